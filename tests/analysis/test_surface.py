"""Section 3: of one example by hand, over a corpus, and with intervals over articles."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from store_tools import MAX_TOKENS, cache_at, many_segments

from helpers.analysis import head_distance, surface
from helpers.analysis.statistics import percentiles, ratio
from helpers.analysis.surface import combine, entropy, example_sums, head_table, token_types
from helpers.data.records import roles
from helpers.store import examples as examples_module
from helpers.store.extract import extract, stream
from helpers.store.store import Example

# [CLS] a [SEP]; one layer, two heads: the second attends evenly.
TOKENS = ["[CLS]", "a", "[SEP]"]
FIRST = [[0.5, 0.2, 0.3], [0.1, 0.3, 0.6], [0.0, 0.1, 0.9]]
MAPS = np.array([[FIRST, np.full((3, 3), 1 / 3)]])
BERT = {"cls": "[CLS]", "sep": "[SEP]"}


def heads(value):
    return value[0].tolist()


def test_relative_position_by_hand():
    shares = surface.relative_position(MAPS)
    assert heads(shares["previous"]) == pytest.approx([(0.1 + 0.1) / 3, 2 / 9])
    assert heads(shares["current"]) == pytest.approx([(0.5 + 0.3 + 0.9) / 3, 1 / 3])
    assert heads(shares["next"]) == pytest.approx([(0.2 + 0.6) / 3, 2 / 9])


def test_token_types_by_hand():
    shares = token_types(MAPS, roles(TOKENS, BERT))
    assert heads(shares["cls"]) == pytest.approx([0.6 / 3, 1 / 3])
    assert heads(shares["sep"]) == pytest.approx([1.8 / 3, 1 / 3])
    assert heads(shares["punctuation"]) == [0, 0]
    assert heads(shares["sep_to_sep"]) == pytest.approx([0.9, 1 / 3])
    assert heads(shares["other_to_sep"]) == pytest.approx([0.9 / 2, 1 / 3])
    for name in ("cls", "sep"):  # whatever a head attends to
        assert heads(shares[f"uniform_{name}"]) == pytest.approx([1 / 3, 1 / 3])


def test_the_commonest_tokens_are_counted_without_case_and_special_ones():
    texts = [["[CLS]", "The", ",", "the", "[SEP]"], ["[CLS]", "Ġthe", ",", "a", "[SEP]"]]
    records = [{"tokens": tokens} for tokens in texts]
    source = SimpleNamespace(special_tokens=BERT, records=lambda: records)
    assert surface.commonest_tokens(source).to_numpy().tolist() == [["the", 3], [",", 2], ["a", 1]]


def test_uniform_shares_count_the_special_tokens_that_there_are():
    maps = np.random.default_rng(0).dirichlet(np.ones(5), size=(1, 1, 5))
    tokens = ["<s>", "a", "</s>", "</s>", "b"]  # RoBERTa puts two between two texts
    names = roles(tokens, {"cls": "<s>", "sep": "</s>"})
    assert token_types(maps, names)["uniform_sep"].item() == pytest.approx(2 / 5)
    causal = np.tril(maps)
    causal /= causal.sum(axis=-1, keepdims=True)
    shares = token_types(causal, names)
    rows = [1, 1 / 2, 1 / 3, 1 / 4, 1 / 5]  # what each query gives to every token so far
    assert shares["uniform_cls"].item() == pytest.approx(sum(rows) / 5)
    assert shares["uniform_sep"].item() == pytest.approx((rows[2] + 2 * sum(rows[3:])) / 5)


def test_token_types_with_punctuation_and_two_separators():
    maps = np.random.default_rng(0).dirichlet(np.ones(5), size=(2, 3, 5))
    shares = token_types(maps, roles(["[CLS]", ".", "[SEP]", ",", "[SEP]"], BERT))
    sums = {
        "punctuation": (range(5), (1, 3)),
        "sep_to_sep": ((2, 4), (2, 4)),
        "other_to_sep": ((0, 1, 3), (2, 4)),
    }
    for name, (queries, keys) in sums.items():
        expected = sum(maps[..., i, j] for i in queries for j in keys) / len(queries)
        np.testing.assert_allclose(shares[name], expected)
    together = shares["cls"] + shares["sep"] + shares["punctuation"]
    np.testing.assert_allclose(together, 1)  # no other token is there


def smooth(p, n):
    return 0.9999 * p + 0.0001 / n


def test_entropy_by_hand():
    values = entropy(MAPS, roles(TOKENS, BERT))
    rows = [-sum(smooth(p, 3) * np.log(smooth(p, 3)) for p in row) for row in FIRST]
    assert values["entropy"][0, 0] == pytest.approx(np.mean(rows), rel=1e-12)
    assert values["entropy_from_cls"][0, 0] == pytest.approx(rows[0], rel=1e-12)


@pytest.mark.parametrize("n", [2, 7, 128])
def test_entropy_of_uniform_attention_is_the_logarithm_of_the_length(n):
    names = roles(["[CLS]", *["a"] * (n - 1)], BERT)
    values = entropy(np.full((1, 1, n, n), 1 / n), names)
    for name in ("entropy", "entropy_from_cls", "uniform"):
        assert values[name].item() == pytest.approx(np.log(n), rel=1e-12)
    causal = np.tril(np.ones((1, 1, n, n))) / (np.arange(n) + 1)[:, None]  # over what it can see
    values, expected = entropy(causal, names), np.log(np.arange(n) + 1).mean()
    assert values["uniform"].item() == pytest.approx(expected)
    assert values["entropy"].item() == pytest.approx(expected, abs=0.02)


# Over a corpus


def example(index, n=6, seed=0, tokens=None):
    maps = np.random.default_rng(seed).dirichlet(np.ones(n), size=(2, 3, n)).astype(np.float16)
    return Example(
        index, maps, {"tokens": tokens or ["[CLS]", "a", ".", "[SEP]", "b", "[SEP]"][:n]}
    )


def test_averages_are_over_examples_however_these_are_cut_into_shards():
    examples = [example(i, seed=i) for i in range(5)]
    whole = example_sums(examples, BERT)
    row = head_table(whole, ["previous", "sep"]).query("layer == 2 and head == 3").iloc[0]
    maps = [e.attention[1, 2].astype(float) for e in examples]
    previous = np.mean([np.trace(each, offset=-1) / 6 for each in maps])
    sep = np.mean([each[:, [3, 5]].sum() / 6 for each in maps])
    assert row[["previous", "sep"]].tolist() == pytest.approx([previous, sep], rel=1e-5)
    parts = combine(example_sums(part, BERT) for part in (examples[:2], examples[2:]))
    for name in whole.names:
        np.testing.assert_allclose(parts.mean(name), whole.mean(name), rtol=1e-12)
    np.testing.assert_allclose(parts.distances, whole.distances, rtol=1e-12)
    assert whole.distances.shape == (6, 6)


@pytest.fixture
def small_stream(tiny_encoder, tmp_path):
    """Maps that are computed when they are asked for: 11 segments, in shards of four."""
    with cache_at(tmp_path):
        return stream(tiny_encoder("bert"), many_segments(11), max_tokens=MAX_TOKENS)


def test_sweep_of_a_long_corpus_compiles_before_any_map_is_computed(small_stream, monkeypatch):
    events = []

    def note_calls(module, name):
        original = getattr(module, name)

        def noted(*args, **options):
            events.append(name)
            return original(*args, **options)

        monkeypatch.setattr(module, name, noted)

    note_calls(examples_module, "shards_tensors")
    note_calls(head_distance, "compile_distances")
    monkeypatch.setattr(head_distance, "COMPILE_AFTER", 1)
    monkeypatch.setattr(head_distance._COMPILED, "_has_failed", True)  # eager, which is faster
    surface.sweep(small_stream)
    assert events == ["compile_distances", "shards_tensors"]
    events.clear()
    surface.shard_sums(small_stream, 1)
    assert events == ["compile_distances", "shards_tensors"]


def test_shards_and_sweep_choose_the_kernel_by_the_work_of_the_corpus(small_stream, monkeypatch):
    chosen = []

    def noted(attention, *, compiled=False, original=head_distance.head_distances):
        chosen.append(compiled)
        return original(attention)

    monkeypatch.setattr(head_distance, "head_distances", noted)
    monkeypatch.setattr(head_distance, "compile_distances", lambda heads: None)
    heads = small_stream.layers * small_stream.heads
    work = sum(len(record["tokens"]) ** 2 for record in small_stream.records()) * heads**2 / 2
    for threshold, expected in ((work, False), (work * 0.99, True)):
        monkeypatch.setattr(head_distance, "COMPILE_AFTER", threshold)
        for compute in (surface.sweep, lambda store: surface.shard_sums(store, 2)):
            chosen.clear()
            compute(small_stream)
            assert len(chosen) >= 3
            assert set(chosen) == {expected}


def test_a_stream_in_one_pass_and_by_shards_gives_the_same_compiled_sums(
    small_stream, tiny_encoder, monkeypatch, tmp_path
):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))  # it compiles now
    monkeypatch.setattr(head_distance, "COMPILE_AFTER", 1)
    torch.set_num_threads(2)
    swept = surface.sweep(small_stream).to_arrays()
    by_shard = combine(surface.shard_sums(small_stream, number) for number in range(3)).to_arrays()
    monkeypatch.setattr(head_distance, "COMPILE_AFTER", np.inf)
    with cache_at(tmp_path / "eager"):
        stored = extract(tiny_encoder("bert"), many_segments(11), max_tokens=MAX_TOKENS)
    eager = surface.sweep(stored).to_arrays()
    for name, values in swept.items():
        np.testing.assert_array_equal(by_shard[name], values)
        if name != "names":
            np.testing.assert_allclose(eager[name], values, rtol=1e-4, atol=1e-3)


def test_sums_come_back_whole_from_arrays():
    sums = example_sums([example(0), example(1)], {"cls": None, "sep": "[SEP]"})
    back = surface.Sums.from_arrays(sums.to_arrays())
    assert surface.article_table(back).equals(surface.article_table(sums))
    assert back.distances is sums.distances


def articles(n, seed=0):
    """Segments of articles with one to three each, some given to the previous token."""
    rng = np.random.default_rng(seed)
    examples = []
    for article in range(n):
        share = rng.uniform(0.1, 0.6)
        for _ in range(rng.integers(1, 4)):
            maps = np.full((2, 3, 4, 4), (1 - share) / 4) + share * np.eye(4, k=-1)
            maps[..., 0, 0] += share
            record = {"tokens": ["[CLS]", "a", "b", "[SEP]"], "title": f"Article {article}"}
            examples.append(Example(len(examples), maps, record))
    return examples


def test_intervals_are_over_articles_and_points_are_not_touched_by_them():
    examples = articles(30)
    table = head_table(example_sums(examples, BERT), ["previous", "uniform"])
    columns = ["layer", "head", "previous", "uniform", "previous_low", "previous_high"]
    assert list(table) == columns
    values = [e.attention[0, 0, [1, 2, 3], [0, 1, 2]].sum() / 4 for e in examples]
    row = table.iloc[0]
    assert row["previous"] == pytest.approx(np.mean(values), rel=1e-6)
    titles = [e.record["title"] for e in examples]
    rng = np.random.default_rng(1)
    by_article = pd.Series(values).groupby(titles).agg(["sum", "size"]).to_numpy()
    drawn = [by_article[rng.integers(0, 30, 30)].sum(axis=0) for _ in range(4000)]
    expected = np.quantile([total / count for total, count in drawn], [0.025, 0.975])
    assert row[["previous_low", "previous_high"]].tolist() == pytest.approx(expected, abs=0.01)


def test_averages_of_articles_add_up_to_the_average():
    sums = combine(example_sums(part, BERT) for part in (articles(9)[:7], articles(9)[7:]))
    table = surface.article_table(sums)
    assert len(table) == 2 * 9 and table["examples"].sum() == 2 * len(articles(9))
    first = table[table["layer"] == 1]
    mean = np.average(first["previous"], weights=first["examples"])
    assert mean == pytest.approx(sums.mean("previous")[0].mean())
    within = np.average(first["within_layers"], weights=first["examples"])
    d = sums.distances / len(articles(9))
    assert within == pytest.approx((d[:3, :3].sum() + d[3:, 3:].sum()) / 12, abs=1e-9)


# Averages by layer, with intervals over articles


@pytest.fixture
def by_article():
    rng = np.random.default_rng(0)
    frame = pd.MultiIndex.from_product([range(40), [1, 2]], names=["article", "layer"]).to_frame(
        index=False
    )
    frame["examples"] = np.repeat(rng.integers(1, 6, 40), 2)
    return frame.assign(sep=rng.random(80), cls=np.where(frame["article"] < 10, np.nan, 0.5))


def test_intervals_are_those_of_the_articles_weighed_by_their_examples(by_article):
    draws, n = surface.layer_draws(by_article, "sep")
    own = by_article[by_article["layer"] == 2]
    expected = ratio(own["sep"] * own["examples"], own["examples"])[1:]
    low, high = percentiles(draws.T.to_numpy(), n)
    assert (low[1], high[1]) == pytest.approx(expected)
    assert surface.layer_draws(by_article, "cls")[0].loc[1].tolist() == pytest.approx(
        [0.5] * draws.shape[1]
    )


def test_layers_share_their_resamples(by_article):
    by_article["twice"] = 2 * by_article["sep"]
    (one, n), (two, _) = (surface.layer_draws(by_article, name) for name in ("sep", "twice"))
    np.testing.assert_allclose(two, 2 * one)
    assert n == 40 and list(one.index) == [1, 2]
    assert surface.layer_draws(by_article, "cls")[1] == 30


def test_the_gradients_of_a_layer_have_intervals_over_articles():
    articles = list("aabcaabc" * 8)
    importance = np.random.default_rng(0).random((len(articles), 3, 4))
    importance[:, :, 1] = np.nan  # a model without [CLS]
    importance[3, :, 2] = np.nan  # a segment without punctuation
    found = {"gradients": importance, "losses": np.arange(len(articles))}
    table = surface.gradient_table(found, articles, "masked-lm")
    expected = ["layer", "sep", "cls", "punctuation", "other", "objective", "loss"]
    assert list(table)[:7] == expected and set(table["loss"]) == {31.5}
    assert table["layer"].tolist() == [1, 2, 3] and set(table["objective"]) == {"masked-lm"}
    assert table.filter(like="cls").isna().all(axis=None)
    values = pd.Series(importance[:, 1, 2]).groupby(articles)
    assert table["punctuation"][1] == pytest.approx(np.nanmean(importance[:, 1, 2]))
    expected = ratio(values.sum(), values.count())[1:]
    assert tuple(table.loc[1, ["punctuation_low", "punctuation_high"]]) == pytest.approx(expected)
    sums = (pd.Series(importance[:, 1, kind]).groupby(articles).sum() for kind in (3, 0))
    columns = ["other_over_sep", "other_over_sep_low", "other_over_sep_high"]
    assert tuple(table.loc[1, columns]) == pytest.approx(tuple(ratio(*sums)))


def test_a_missing_token_is_nan_and_an_absent_one_in_an_example_is_left_out():
    without = head_table(example_sums([example(0)], {"cls": None, "sep": None}), ["cls", "sep"])
    assert without[["cls", "sep"]].isna().all(axis=None)
    plain = example(1, tokens=["[CLS]", "a", "b", "c", "d", "e"])
    both = example_sums([example(0), plain], BERT)
    alone = example_sums([example(0)], BERT)
    np.testing.assert_array_equal(both.mean("sep_to_sep"), alone.mean("sep_to_sep"))
