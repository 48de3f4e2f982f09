import itertools
from collections import Counter

import numpy as np
import pandas as pd
import pytest

from helpers.analysis.layers import gradient_table, layer_draws, layer_intervals
from helpers.analysis.statistics import bootstrap_interval
from helpers.model.gradients import gradient_importance
from helpers.store.examples import examples


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


class Records(list):
    """What `gradient_table` asks of a store."""

    record = list.__getitem__


def test_the_gradients_of_a_layer_have_intervals_over_articles(tiny_encoder, segments):
    encoder = tiny_encoder("bert")
    records = Records(examples(encoder, segments, 60, Counter()))
    for record, title in zip(records, itertools.cycle("aabc")):
        record["title"] = title
    table = gradient_table(encoder, records, 0, seed=0)
    assert list(table)[:6] == ["layer", "sep", "cls", "punctuation", "other", "objective"]
    assert table["layer"].tolist() == [1, 2, 3]
    assert set(table["objective"]) == {"masked-lm"}
    values = gradient_importance(encoder, records)[:, 1, 0]  # of [SEP] in layer 2
    assert table["sep"][1] == pytest.approx(values.mean())
    articles = pd.Series(values).groupby([record["title"] for record in records])
    expected = bootstrap_interval(articles.sum(), articles.size())
    assert tuple(table.loc[1, ["sep_low", "sep_high"]]) == pytest.approx(expected)
    assert (table["sep_low"] < table["sep_high"]).all()
    assert len(gradient_table(encoder, records, 2, seed=0)) == 3
