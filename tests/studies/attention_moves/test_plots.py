"""Figures 13 and 14 draw what their tables say."""

import numpy as np
import pandas as pd

from helpers.analysis.heads import head_rows
from helpers.studies.attention_moves import plots
from helpers.studies.attention_moves.lenses import SHARES, SINKS, VALUES

SPECIAL = {"cls": "<s>", "sep": "</s>"}
DRAW = np.random.default_rng(0).random


def test_fig13_has_both_lenses_and_every_type_of_token():
    shares = head_rows(3, 5, **{name: DRAW((3, 5)) / 4 for name in SHARES})
    left, right = plots.fig13_lenses(shares, SPECIAL, model="m").axes
    means = shares.groupby("layer").mean()
    np.testing.assert_allclose(left.lines[0].get_ydata(), means["attention_cls"])
    np.testing.assert_allclose(right.lines[1].get_ydata(), means["norm_sep"])
    names = [line.get_label() for line in left.lines]
    assert names == ["<s>", "</s>", "periods and commas", "other tokens"]
    nameless = plots.fig13_lenses(shares, {"cls": None, "sep": None}).axes[0]
    assert [line.get_label() for line in nameless.lines][:2] == ["first token", "separator"]


def test_fig14_draws_values_shares_and_states():
    norms = head_rows(3, 5, **{name: DRAW((3, 5)) for name in VALUES})
    sinks = pd.DataFrame({"layer": range(1, 4)} | {name: DRAW(3) for name in SINKS})
    values, shares, states = plots.fig14_sinks(sinks, norms, SPECIAL, model="m").axes
    assert [len(axes.lines) for axes in (values, shares, states)] == [4, 3, 2]
    np.testing.assert_allclose(shares.lines[1].get_ydata(), sinks["norm_first"])
    np.testing.assert_allclose(states.lines[0].get_ydata(), sinks["peak_first"])
