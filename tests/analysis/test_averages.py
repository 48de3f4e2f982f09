import numpy as np
import pandas as pd
import pytest

from helpers.analysis.statistics import bootstrap_interval
from helpers.analysis.surface import (
    Sums,
    article_table,
    combine,
    example_sums,
    gradient_table,
    head_table,
    layer_draws,
    layer_intervals,
)
from helpers.errors import MapError
from helpers.store.store import Example

SPECIAL = {"cls": "[CLS]", "sep": "[SEP]"}


def example(index, n=6, seed=0, tokens=None):
    maps = np.random.default_rng(seed).dirichlet(np.ones(n), size=(2, 3, n)).astype(np.float16)
    return Example(
        index, maps, {"tokens": tokens or ["[CLS]", "a", ".", "[SEP]", "b", "[SEP]"][:n]}
    )


def test_averages_are_over_examples():
    examples = [example(i, seed=i) for i in range(3)]
    table = head_table(example_sums(examples, SPECIAL), ["previous", "sep"])
    maps = [e.attention.astype(float) for e in examples]
    previous = np.mean([[m[1, 2, i, i - 1] for i in range(1, 6)] for m in maps], axis=0).sum() / 6
    row = table[(table["layer"] == 2) & (table["head"] == 3)].iloc[0]
    assert row["previous"] == pytest.approx(previous, rel=1e-5)
    sep = np.mean([m[1, 2][:, [3, 5]].sum() / 6 for m in maps])
    assert row["sep"] == pytest.approx(sep, rel=1e-5)


def test_sums_of_shards_add_up_to_the_sum_of_the_whole():
    examples = [example(i, seed=i) for i in range(5)]
    whole = example_sums(examples, SPECIAL)
    parts = combine(example_sums(part, SPECIAL) for part in (examples[:2], examples[2:]))
    for name in whole.names:
        np.testing.assert_allclose(parts.mean(name), whole.mean(name), rtol=1e-12)
    np.testing.assert_allclose(parts.distances, whole.distances, rtol=1e-12)
    assert whole.distances.shape == (6, 6)


def test_sums_come_back_whole_from_arrays():
    sums = example_sums([example(0), example(1)], {"cls": None, "sep": "[SEP]"})
    back = Sums.from_arrays(sums.to_arrays())
    assert article_table(back).equals(article_table(sums))
    assert back.distances is sums.distances


def test_a_missing_token_is_nan_and_an_absent_one_in_an_example_is_left_out():
    without = head_table(example_sums([example(0)], {"cls": None, "sep": None}), ["cls", "sep"])
    assert without[["cls", "sep"]].isna().all(axis=None)
    plain = example(1, tokens=["[CLS]", "a", "b", "c", "d", "e"])
    both = example_sums([example(0), plain], SPECIAL)
    alone = example_sums([example(0)], SPECIAL)
    np.testing.assert_array_equal(both.mean("sep_to_sep"), alone.mean("sep_to_sep"))


@pytest.mark.parametrize(
    ("value", "message"),
    [(np.nan, "NaN"), (np.inf, "summing"), (-0.5, "negative"), (0.9, "summing")],
)
def test_a_map_that_is_none_is_refused_with_its_index(value, message):
    broken = example(17)
    broken.attention[1, 0, 2, 3] = value
    with pytest.raises(MapError, match=rf"example 17: .*{message}"):
        example_sums([example(0), broken], SPECIAL)


def test_one_token():
    single = Example(0, np.ones((1, 1, 1, 1), np.float16), {"tokens": ["[CLS]"]})
    table = head_table(example_sums([single], SPECIAL), ["previous", "current", "entropy"])
    assert table[["previous", "current", "entropy"]].to_numpy().tolist() == [[0.0, 1.0, 0.0]]


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
    table = head_table(example_sums(examples, SPECIAL), ["previous", "uniform"])
    assert list(table.columns) == [
        *("layer", "head", "previous", "uniform", "previous_low", "previous_high"),
    ]
    values = [e.attention[0, 0, [1, 2, 3], [0, 1, 2]].sum() / 4 for e in examples]
    row = table.iloc[0]
    assert row["previous"] == pytest.approx(np.mean(values), rel=1e-6)
    titles = [e.record["title"] for e in examples]
    rng = np.random.default_rng(1)
    by_article = pd.Series(values).groupby(titles).agg(["sum", "size"]).to_numpy()
    drawn = [by_article[rng.integers(0, 30, 30)].sum(axis=0) for _ in range(4000)]
    expected = np.quantile([total / count for total, count in drawn], [0.025, 0.975])
    assert row[["previous_low", "previous_high"]].tolist() == pytest.approx(expected, abs=0.01)


def test_one_article_has_no_interval():
    table = head_table(example_sums(articles(1), SPECIAL), ["previous"])
    assert table["previous"].notna().all() and table["previous_low"].isna().all()


def test_averages_of_articles_add_up_to_the_average():
    sums = combine(example_sums(part, SPECIAL) for part in (articles(9)[:7], articles(9)[7:]))
    table = article_table(sums)
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
    table = layer_intervals(by_article, ["sep", "cls"]).set_index("layer")
    own = by_article[by_article["layer"] == 2]
    expected = bootstrap_interval(own["sep"] * own["examples"], own["examples"])
    assert tuple(table.loc[2, ["sep_low", "sep_high"]]) == pytest.approx(expected)
    assert table.loc[1, ["cls_low", "cls_high"]].tolist() == pytest.approx([0.5, 0.5])


def test_layers_share_their_resamples(by_article):
    by_article["twice"] = 2 * by_article["sep"]
    (one, n), (two, _) = (layer_draws(by_article, name) for name in ("sep", "twice"))
    np.testing.assert_allclose(two, 2 * one)
    assert n == 40 and list(one.index) == [1, 2]
    assert layer_draws(by_article, "cls")[1] == 30


def test_a_layer_of_one_article_has_no_interval(by_article):
    table = layer_intervals(by_article[by_article["article"] == 0], ["sep"])
    assert table[["sep_low", "sep_high"]].isna().all(axis=None)


def test_the_gradients_of_a_layer_have_intervals_over_articles():
    articles = list("aabcaabc" * 8)
    importance = np.random.default_rng(0).random((len(articles), 3, 4))
    importance[:, :, 1] = np.nan  # a model without [CLS]
    importance[3, :, 2] = np.nan  # a segment without punctuation
    table = gradient_table(importance, articles, "masked-lm")
    assert list(table)[:6] == ["layer", "sep", "cls", "punctuation", "other", "objective"]
    assert table["layer"].tolist() == [1, 2, 3] and set(table["objective"]) == {"masked-lm"}
    assert table.filter(like="cls").isna().all(axis=None)
    values = pd.Series(importance[:, 1, 2]).groupby(articles)
    assert table["punctuation"][1] == pytest.approx(np.nanmean(importance[:, 1, 2]))
    expected = bootstrap_interval(values.sum(), values.count())
    assert tuple(table.loc[1, ["punctuation_low", "punctuation_high"]]) == pytest.approx(expected)
