"""Section 3: one example by hand, a corpus, and intervals over articles."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from references import slow_section_3, sums_of

from helpers.data.records import KEY_TYPES, roles
from helpers.data.visible import Visible, visible_mask
from helpers.metrics import surface
from helpers.metrics.statistics import bootstrap_intervals, percentiles, ratio
from helpers.metrics.surface import entropy, head_table, section_3, sum_by_article, token_types
from helpers.store.store import Example

# [CLS] a [SEP]; one layer, two heads: the second attends evenly.
TOKENS = ["[CLS]", "a", "[SEP]"]
FIRST = [[0.5, 0.2, 0.3], [0.1, 0.3, 0.6], [0.0, 0.1, 0.9]]
MAPS = np.array([[FIRST, np.full((3, 3), 1 / 3)]])
BERT = {"cls": "[CLS]", "sep": "[SEP]"}
ROBERTA_TOKENS = ["<s>", "a", "</s>", "</s>", "b"]  # two separators between two texts
ROBERTA = {"cls": "<s>", "sep": "</s>"}


MASKS = {
    "full": Visible(causal=False, window=None),
    "causal": Visible(causal=True, window=None),
    "window": Visible(causal=False, window=2),
    "causal window": Visible(causal=True, window=2),
}
MAPS_WITH_SINK = 0.7 * np.random.default_rng(1).dirichlet(np.ones(6), size=(2, 3, 6))


def heads(value):
    return value[0].tolist()


def test_relative_position_of_a_map_by_hand():
    shares = surface.relative_position(MAPS)
    assert heads(shares["previous"]) == pytest.approx([(0.1 + 0.1) / 3, 2 / 9])
    assert heads(shares["current"]) == pytest.approx([(0.5 + 0.3 + 0.9) / 3, 1 / 3])
    assert heads(shares["next"]) == pytest.approx([(0.2 + 0.6) / 3, 2 / 9])


def test_token_types_of_a_map_by_hand():
    shares = token_types(MAPS, roles(TOKENS, BERT))
    assert heads(shares["cls"]) == pytest.approx([0.6 / 3, 1 / 3])
    assert heads(shares["sep"]) == pytest.approx([1.8 / 3, 1 / 3])
    assert heads(shares["punctuation"]) == [0, 0]
    assert heads(shares["sep_to_sep"]) == pytest.approx([0.9, 1 / 3])
    assert heads(shares["other_to_sep"]) == pytest.approx([0.9 / 2, 1 / 3])
    for name in ("cls", "sep", "first"):  # whatever a head attends to
        assert heads(shares[f"uniform_{name}"]) == pytest.approx([1 / 3, 1 / 3])
    for ours, theirs in (("first", "cls"), ("first_to_first", "cls_to_cls")):
        np.testing.assert_array_equal(shares[ours], shares[theirs])  # [CLS] is the first token


def test_the_first_token_has_a_share_whatever_it_is():
    shares = token_types(MAPS, roles(["a", "b", "c"], {"cls": None, "sep": None}))
    assert heads(shares["first"]) == pytest.approx([0.6 / 3, 1 / 3])
    assert heads(shares["first_to_first"]) == pytest.approx([0.5, 1 / 3])
    assert heads(shares["other_to_first"]) == pytest.approx([0.1 / 2, 1 / 3])
    assert np.isnan(shares["cls"]).all()


def test_uniform_shares_count_every_special_token():
    maps = np.random.default_rng(0).dirichlet(np.ones(5), size=(1, 1, 5))
    shares = token_types(maps, roles(ROBERTA_TOKENS, ROBERTA))
    assert shares["uniform_sep"].item() == pytest.approx(2 / 5)


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


@pytest.mark.parametrize("mask", MASKS)
def test_measures_are_those_of_one_row_after_the_other(mask):
    tokens = ["[CLS]", "a", ".", "[SEP]", "b", ",", "a", "[SEP]"]
    visible = visible_mask(MASKS[mask], 8)
    weights = np.random.default_rng(0).gamma(0.5, size=(1, 3, 8, 8)) * visible
    maps = weights / weights.sum(axis=-1, keepdims=True)
    values = section_3(maps, roles(tokens, BERT), visible[None])
    for name, value in slow_section_3(maps, tokens, visible).items():
        np.testing.assert_allclose(values[name], value[None], rtol=1e-12, err_msg=name)
    assert np.isnan(values["next"]).all() == MASKS[mask].causal


def test_a_head_with_an_empty_sink_has_its_share_too():
    maps = np.random.default_rng(1).dirichlet(np.ones(6), size=(2, 3, 6))
    maps[1] *= 0.7
    sums = sums_of([replace(example(0), stored_attention=maps)], BERT)
    sink = head_table(sums, ["sink"])["sink"]
    np.testing.assert_allclose(sink, [0] * 3 + [0.3] * 3, atol=1e-6)


def smoothed_entropy(row):
    total = 0.0
    for weight in row:
        smoothed = 0.9999 * weight + 0.0001 / len(row)
        total -= smoothed * np.log(smoothed)
    return total


def test_entropy_of_a_map_by_hand():
    values = entropy(MAPS, roles(TOKENS, BERT))
    rows = [smoothed_entropy(row) for row in FIRST]
    assert values["entropy"][0, 0] == pytest.approx(np.mean(rows), rel=1e-12)
    assert values["entropy_from_cls"][0, 0] == pytest.approx(rows[0], rel=1e-12)


def test_entropy_of_uniform_attention_to_visible_keys_is_the_largest():
    visible = np.tri(9, dtype=bool) & ~np.tri(9, k=-3, dtype=bool)  # a causal window of 3 tokens
    uniform = visible / visible.sum(axis=-1, keepdims=True)
    maps = np.stack([uniform, np.eye(9)])
    values = entropy(maps[None], roles(list("abcdefghi"), {}), visible[None])
    assert values["entropy"][0, 0] == pytest.approx(values["uniform"][0, 0], rel=1e-12)
    rows = [smoothed_entropy([1, *[0] * min(query, 2)]) for query in range(9)]
    assert values["entropy"][0, 1] == pytest.approx(np.mean(rows), rel=1e-12)


@pytest.mark.parametrize("n", [2, 7, 128])
def test_entropy_of_uniform_attention_is_the_logarithm_of_the_length(n):
    names = roles(["[CLS]", *["a"] * (n - 1)], BERT)
    values = entropy(np.full((1, 1, n, n), 1 / n), names)
    for name in ("entropy", "entropy_from_cls", "uniform"):
        assert values[name].item() == pytest.approx(np.log(n), rel=1e-12)


def test_the_mass_that_rows_lack_is_the_share_of_a_sink():
    sums = sums_of([replace(example(1), stored_attention=MAPS_WITH_SINK)], BERT)
    table = head_table(sums, ["first", "sink"])
    expected = 1 - MAPS_WITH_SINK.sum(axis=-1).mean(axis=-1)
    np.testing.assert_allclose(table["sink"], expected.ravel())
    assert "sink" in surface.article_table(sums)


def test_tables_have_no_sink_where_rows_sum_to_one():
    sums = sums_of([example(0)], BERT)
    assert "sink" not in head_table(sums, surface.TOKEN_TYPES)
    assert "sink" not in surface.article_table(sums)


# Over a corpus


def test_token_types_of_a_token_that_attends_to_itself():
    maps = np.full((1, 1, 5, 5), 0.1)
    maps[0, 0] += 0.5 * np.eye(5)
    shares = token_types(maps, roles(ROBERTA_TOKENS, ROBERTA))
    assert shares["cls_to_cls"].item() == pytest.approx(0.6)
    assert shares["other_to_cls"].item() == pytest.approx(0.1)
    assert shares["sep_to_sep"].item() == pytest.approx(0.7)


def example(index, n=6, seed=0, tokens=None):
    maps = np.random.default_rng(seed).dirichlet(np.ones(n), size=(2, 3, n)).astype(np.float16)
    return Example(
        index, maps, {"tokens": tokens or ["[CLS]", "a", ".", "[SEP]", "b", "[SEP]"][:n]}
    )


def test_head_table_averages_over_examples():
    examples = [example(i, seed=i) for i in range(5)]
    table = head_table(sums_of(examples, BERT), ["previous", "sep"])
    row = table.query("layer == 2 and head == 3").iloc[0]
    maps = [e.attention[1, 2].astype(float) for e in examples]
    previous = np.mean([np.trace(attention, offset=-1) / 6 for attention in maps])
    sep = np.mean([attention[:, [3, 5]].sum() / 6 for attention in maps])
    assert row[["previous", "sep"]].tolist() == pytest.approx([previous, sep], rel=1e-5)


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


def test_head_table_has_intervals_over_articles():
    examples = articles(30)
    table = head_table(sums_of(examples, BERT), ["previous", "uniform"])
    columns = {"layer", "head", "previous", "uniform", "previous_low", "previous_high"}
    assert set(table) == columns
    values = [e.attention[0, 0, [1, 2, 3], [0, 1, 2]].sum() / 4 for e in examples]
    row = table.iloc[0]
    assert row["previous"] == pytest.approx(np.mean(values), rel=1e-6)
    titles = [e.record["title"] for e in examples]
    rng = np.random.default_rng(1)
    by_article = pd.Series(values).groupby(titles).agg(["sum", "size"]).to_numpy()
    resamples = [by_article[rng.integers(0, 30, 30)].sum(axis=0) for _ in range(4000)]
    expected = np.quantile([total / count for total, count in resamples], [0.025, 0.975])
    assert row[["previous_low", "previous_high"]].tolist() == pytest.approx(expected, abs=0.01)


def test_every_article_is_a_cluster_of_its_own():
    titles = [f"Article {number}" for number in range(500)]
    values = [{"value": np.full((1, 1), float(number))} for number in range(500)]
    sums, counts = sum_by_article(values, titles).by_article("value")
    assert sums.ravel().tolist() == [titles.index(title) for title in sorted(titles)]
    assert (counts == 1).all()


def test_article_table_adds_up_to_the_averages():
    sums = sums_of(articles(9), BERT)
    table = surface.article_table(sums)
    assert len(table) == 2 * 9
    assert table["article"].drop_duplicates().tolist() == list(sums.articles)
    assert table["examples"].sum() == 2 * len(articles(9))
    first = table[table["layer"] == 1]
    mean = np.average(first["previous"], weights=first["examples"])
    assert mean == pytest.approx(sums.mean("previous")[0].mean())


# Averages by layer, with intervals over articles


@pytest.fixture
def by_article():
    rng = np.random.default_rng(0)
    frame = pd.MultiIndex.from_product([range(40), [1, 2]], names=["article", "layer"]).to_frame(
        index=False
    )
    frame["examples"] = np.repeat(rng.integers(1, 6, 40), 2)
    return frame.assign(sep=rng.random(80), cls=np.where(frame["article"] < 10, np.nan, 0.5))


def test_layer_draws_weigh_articles_by_their_examples(by_article):
    draws, n_articles = surface.layer_resamples(by_article, "sep", by_article["article"])
    rows = by_article[by_article["layer"] == 2]
    estimate = ratio((rows["sep"] * rows["examples"]).to_numpy(), rows["examples"].to_numpy())
    low, high = percentiles(draws.T.to_numpy(), n_articles)
    assert (low[1], high[1]) == pytest.approx((estimate.low, estimate.high))


def test_layer_draws_leave_out_articles_without_the_measure(by_article):
    draws, n_articles = surface.layer_resamples(by_article, "cls", by_article["article"])
    assert draws.loc[1].tolist() == pytest.approx([0.5] * draws.shape[1])
    sizes = by_article.loc[by_article["layer"] == 1, "examples"].to_numpy()
    assert n_articles == pytest.approx(sizes[10:].sum() ** 2 / (sizes[10:] ** 2).sum())


def test_layer_draws_have_the_same_resamples_for_every_measure(by_article):
    by_article["twice"] = 2 * by_article["sep"]
    draws, n_articles = surface.layer_resamples(by_article, "sep", by_article["article"])
    doubled, _ = surface.layer_resamples(by_article, "twice", by_article["article"])
    np.testing.assert_allclose(doubled, 2 * draws)
    assert 20 < n_articles < 40  # articles differ in size
    assert list(draws.index) == [1, 2]


# The gradients of section 3.2

GRADIENT_ARTICLES = list("aabcaabc" * 8)


@pytest.fixture
def importance():
    """Gradients of a model without [CLS]; the fourth segment has no punctuation."""
    gradients = np.random.default_rng(0).random((len(GRADIENT_ARTICLES), 3, len(KEY_TYPES)))
    gradients[:, :, 1] = np.nan
    gradients[3, :, 2] = np.nan
    n = len(GRADIENT_ARTICLES)
    return {"gradients": gradients, "losses": np.arange(n), "guesses": np.full(n, 2.5)}


def test_gradient_table_has_a_row_for_each_layer(importance):
    table = surface.gradient_table(importance, GRADIENT_ARTICLES, "masked-lm")
    assert table["layer"].tolist() == [1, 2, 3]
    assert set(table["objective"]) == {"masked-lm"}
    assert set(table["loss"]) == {31.5}
    assert set(table["guess"]) == {2.5}
    expected = ["layer", "sep", "cls", "punctuation", "other", "objective", "loss"]
    assert list(table)[:7] == expected  # in the order of Figure 3's legend


def test_gradient_table_is_empty_for_a_token_that_the_model_lacks(importance):
    table = surface.gradient_table(importance, GRADIENT_ARTICLES, "masked-lm")
    assert table.filter(like="cls").isna().all(axis=None)


def test_gradient_table_has_intervals_over_articles(importance):
    table = surface.gradient_table(importance, GRADIENT_ARTICLES, "masked-lm").set_index("layer")
    gradients = importance["gradients"][:, 1]  # of the second layer
    assert table.loc[2, "punctuation"] == pytest.approx(np.nanmean(gradients[:, 2]))
    by_article = pd.Series(gradients[:, 2]).groupby(GRADIENT_ARTICLES)
    expected = bootstrap_intervals(by_article.sum().to_numpy(), by_article.count().to_numpy())
    bounds = table.loc[2, ["punctuation_low", "punctuation_high"]]
    assert tuple(bounds) == pytest.approx(expected)


def test_gradient_table_has_ratios_of_means_with_intervals(importance):
    table = surface.gradient_table(importance, GRADIENT_ARTICLES, "masked-lm").set_index("layer")
    gradients = importance["gradients"][:, 1]
    to_other = pd.Series(gradients[:, 3]).groupby(GRADIENT_ARTICLES).sum().to_numpy()
    to_sep = pd.Series(gradients[:, 0]).groupby(GRADIENT_ARTICLES).sum().to_numpy()
    assert table.loc[2, "other_over_sep"] == pytest.approx(to_other.sum() / to_sep.sum())
    bounds = table.loc[2, ["other_over_sep_low", "other_over_sep_high"]]
    assert tuple(bounds) == pytest.approx(bootstrap_intervals(to_other, to_sep))
    assert set(table["articles"]) == {3}


def test_gradient_table_compares_other_tokens_with_the_first(importance):
    table = surface.gradient_table(importance, GRADIENT_ARTICLES, "next token").set_index("layer")
    by_type = importance["gradients"][:, 1].sum(axis=0)
    _, _, _, to_other, to_first = by_type
    assert table.loc[2, "first"] == pytest.approx(to_first / len(GRADIENT_ARTICLES))
    assert table.loc[2, "other_over_first"] == pytest.approx(to_other / to_first)


def test_gradient_table_has_ratios_per_unit_of_value(importance):
    importance["per_value"] = 1 / importance["gradients"]
    table = surface.gradient_table(importance, GRADIENT_ARTICLES, "masked-lm").set_index("layer")
    per_value = importance["per_value"][:, 1].sum(axis=0)
    ratio_of_sums = per_value[3] / per_value[0]
    assert table.loc[2, "other_over_sep_per_value"] == pytest.approx(ratio_of_sums)
    assert table.filter(like="cls_per_value").isna().all(axis=None)


def test_gradient_table_has_gradients_per_score(importance):
    importance["per_score"] = importance["gradients"] ** 2
    table = surface.gradient_table(importance, GRADIENT_ARTICLES, "masked-lm").set_index("layer")
    per_score = importance["per_score"][:, 1].sum(axis=0)
    assert table.loc[2, "first_per_score"] == pytest.approx(per_score[4] / len(GRADIENT_ARTICLES))
    assert table.loc[2, "other_over_first_per_score"] == pytest.approx(per_score[3] / per_score[4])


def test_table_without_gradients_says_why():
    table = surface.table_without_gradients(3, "contrastive", "the text has one article")
    assert table["layer"].tolist() == [1, 2, 3]
    assert set(table["reason"]) == {"the text has one article"}
    assert table[["sep", "other", "loss"]].isna().all(axis=None)


def test_measures_of_a_token_that_the_model_lacks_are_nan():
    sums = sums_of([example(0)], {"cls": None, "sep": None})
    table = head_table(sums, ["cls", "sep"])
    assert table[["cls", "sep"]].isna().all(axis=None)


def test_measures_leave_out_examples_without_the_token():
    without_sep = example(1, tokens=["[CLS]", "a", "b", "c", "d", "e"])
    pair = sums_of([example(0), without_sep], BERT)
    single = sums_of([example(0)], BERT)
    np.testing.assert_array_equal(pair.mean("sep_to_sep"), single.mean("sep_to_sep"))
