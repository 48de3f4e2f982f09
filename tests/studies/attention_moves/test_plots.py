import numpy as np
import pandas as pd
import pytest
from plot_checks import shown_texts

from helpers.analysis.heads import head_rows
from helpers.plots.style import save_figure
from helpers.studies.attention_moves import plots
from helpers.studies.attention_moves.lenses import SHARES, SINKS, VALUES

LAYERS, HEADS = 3, 5
SPECIAL = {"cls": "<s>", "sep": "</s>"}


@pytest.fixture
def tables():
    generator = np.random.default_rng(0)
    draw = lambda *shape: generator.random(shape)  # noqa: E731
    shares = head_rows(LAYERS, HEADS, **{name: draw(LAYERS, HEADS) / 4 for name in SHARES})
    norms = head_rows(LAYERS, HEADS, **{name: draw(LAYERS, HEADS) for name in VALUES})
    sinks = pd.DataFrame({"layer": range(1, LAYERS + 1)} | {name: draw(LAYERS) for name in SINKS})
    return shares, norms, sinks


def test_fig13_has_both_lenses_and_every_type_of_token(tables, tmp_path):
    shares, _, _ = tables
    figure = plots.fig13_lenses(shares, SPECIAL, model="m")
    left, right = figure.axes
    means = shares.groupby("layer").mean()
    np.testing.assert_allclose(left.lines[0].get_ydata(), means["attention_cls"])
    np.testing.assert_allclose(right.lines[1].get_ydata(), means["norm_sep"])
    texts = [text.get_text() for text in shown_texts(figure)]
    assert {"<s>", "</s>", "periods and commas", "other tokens"} <= set(texts)
    save_figure(figure, tmp_path, "fig13")


def test_fig14_draws_values_shares_and_states(tables, tmp_path):
    _, norms, sinks = tables
    figure = plots.fig14_sinks(sinks, norms, SPECIAL, model="m")
    values, shares, states = figure.axes
    assert [len(axes.lines) for axes in (values, shares, states)] == [4, 3, 2]
    np.testing.assert_allclose(shares.lines[1].get_ydata(), sinks["norm_first"])
    np.testing.assert_allclose(states.lines[0].get_ydata(), sinks["peak_first"])
    save_figure(figure, tmp_path, "fig14")
