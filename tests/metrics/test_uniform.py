"""Chance lines are what uniform attention over the visible keys would give."""

import numpy as np
import pandas as pd
import pytest
from viewer_stores import token_store

from helpers.data.visible import Visible
from helpers.metrics.uniform import with_uniform

TOKENS = ["[CLS]", "a", ",", "b", ".", "[SEP]"]
TABLE = pd.DataFrame({"layer": [1, 1, 2, 2], "head": [1, 2, 1, 2]})


def uniform_of(visible, columns):
    """Compute the uniform shares of a store of one example of six tokens, by layer."""
    store = token_store(2, 2, 6, TOKENS)
    store.visible = visible
    table = with_uniform(TABLE.assign(**dict.fromkeys(columns, 0.5)), store)
    assert set(table) == {"layer", "head", *columns, *(f"uniform_{name}" for name in columns)}
    return table.groupby("layer").first()


def test_every_token_is_equally_likely_if_all_are_visible():
    full = Visible(causal=False, window=None)
    shares = uniform_of([full, full], ["previous", "current", "next", "punctuation"])
    assert shares["uniform_previous"].tolist() == pytest.approx([5 / 36] * 2)
    assert shares["uniform_current"].tolist() == pytest.approx([1 / 6] * 2)
    assert shares["uniform_next"].tolist() == pytest.approx([5 / 36] * 2)
    assert shares["uniform_punctuation"].tolist() == pytest.approx([2 / 6] * 2)


def test_a_causal_layer_has_another_chance():
    masks = [Visible(causal=True, window=None), Visible(causal=True, window=1)]
    shares = uniform_of(masks, ["previous", "next"])
    harmonic = sum(1 / count for count in range(2, 7)) / 6
    assert shares["uniform_previous"].tolist() == pytest.approx([harmonic, 5 / 12])
    assert np.isnan(shares["uniform_next"]).all()
