import numpy as np
import pandas as pd
import pytest

from helpers.analysis.layers import layer_draws, layer_intervals
from helpers.analysis.statistics import bootstrap_interval


@pytest.fixture
def articles():
    rng = np.random.default_rng(0)
    frame = pd.MultiIndex.from_product([range(40), [1, 2]], names=["article", "layer"]).to_frame(
        index=False
    )
    frame["examples"] = np.repeat(rng.integers(1, 6, 40), 2)
    return frame.assign(sep=rng.random(80), cls=np.where(frame["article"] < 10, np.nan, 0.5))


def test_intervals_are_those_of_the_articles_weighed_by_their_examples(articles):
    table = layer_intervals(articles, ["sep", "cls"]).set_index("layer")
    own = articles[articles["layer"] == 2]
    expected = bootstrap_interval(own["sep"] * own["examples"], own["examples"])
    assert tuple(table.loc[2, ["sep_low", "sep_high"]]) == pytest.approx(expected)
    assert table.loc[1, ["cls_low", "cls_high"]].tolist() == pytest.approx([0.5, 0.5])


def test_layers_share_their_resamples(articles):
    articles["twice"] = 2 * articles["sep"]
    (one, n), (two, _) = (layer_draws(articles, name) for name in ("sep", "twice"))
    np.testing.assert_allclose(two, 2 * one)
    assert n == 40 and list(one.index) == [1, 2]
    assert layer_draws(articles, "cls")[1] == 30


def test_one_article_has_no_interval(articles):
    table = layer_intervals(articles[articles["article"] == 0], ["sep"])
    assert table[["sep_low", "sep_high"]].isna().all(axis=None)
