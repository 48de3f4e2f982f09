"""Figures 13 and 14 draw the values of their tables."""

import numpy as np
import pandas as pd

from helpers.metrics.heads import head_rows
from helpers.studies.kobayashi2020 import plots
from helpers.studies.kobayashi2020.lenses import SHARE_COLUMNS, SINK_COLUMNS, VALUE_COLUMNS

SPECIAL_TOKENS = {"cls": "<s>", "sep": "</s>"}


def random_head_table(columns, *, scale=1.0):
    """Make a table of 3 layers of 5 heads with random values."""
    rng = np.random.default_rng(0)
    return head_rows(3, 5, **{name: scale * rng.random((3, 5)) for name in columns})


def random_sinks():
    rng = np.random.default_rng(0)
    sinks = pd.DataFrame({"layer": range(1, 4)})
    for name in SINK_COLUMNS:
        sinks[name] = rng.random(3)
    return sinks


def line_of(axes, label):
    (line,) = [line for line in axes.lines if line.get_label() == label]
    return line.get_ydata()


def test_fig13_draws_means_of_both_lenses():
    shares = random_head_table(SHARE_COLUMNS, scale=0.25)
    attention_axes, norm_axes = plots.fig13_lenses(shares, SPECIAL_TOKENS, model="m").axes
    means = shares.groupby("layer").mean()
    np.testing.assert_allclose(line_of(attention_axes, "<s>"), means["attention_cls"])
    np.testing.assert_allclose(line_of(norm_axes, "</s>"), means["norm_sep"])


def test_fig13_names_every_type_of_token():
    shares = random_head_table(SHARE_COLUMNS, scale=0.25)
    axes, _ = plots.fig13_lenses(shares, SPECIAL_TOKENS).axes
    labels = [line.get_label() for line in axes.lines]
    assert labels == ["<s>", "</s>", "periods and commas", "other tokens"]
    axes, _ = plots.fig13_lenses(shares, {"cls": None, "sep": None}).axes
    labels = {line.get_label() for line in axes.lines}
    assert labels == {"first token", "separator", "periods and commas", "other tokens"}


def test_fig14_draws_values_and_states():
    norms = random_head_table(VALUE_COLUMNS)
    sinks = random_sinks()
    value_axes, state_axes = plots.fig14_sinks(sinks, norms, SPECIAL_TOKENS).axes
    assert len(value_axes.lines) == 4
    assert len(state_axes.lines) == 2
    mean_of_cls = norms.groupby("layer")["value_cls"].mean()
    np.testing.assert_allclose(line_of(value_axes, "<s>"), mean_of_cls)
    np.testing.assert_allclose(line_of(state_axes, "first position"), sinks["peak_first"])
