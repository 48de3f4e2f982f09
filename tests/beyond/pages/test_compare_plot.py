"""The figure of several runs shows their tables."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from plot_checks import LONG_NAME, intervals, texts_outside

from beyond.pages.compare_plot import comparison, relative_curve
from helpers.plots.style import ACCENT, SERIES_COLORS

RELATIONS = ["All", "dobj", "$x$", "punct"]


def run_tables(layers=3, heads=2, seed=0):
    """Make the tables of one run: entropy and token_types."""
    rng = np.random.default_rng(seed)
    layer, head = np.divmod(np.arange(layers * heads), heads)
    index = pd.DataFrame({"layer": layer + 1, "head": head + 1})
    return {
        "entropy": index.assign(entropy=rng.uniform(1, 4, len(index)), uniform=4.5),
        "token_types": index.assign(sep=rng.uniform(0, 1, len(index)), first=0.1 * index["layer"]),
    }


def comparison_of(runs, paper=(34.5, 86.8, 50.0, np.nan)):
    """Draw runs that differ by five percentage points in accuracy."""
    heads = pd.DataFrame({"relation": RELATIONS, "paper accuracy": paper})
    for index, name in enumerate(runs):
        heads[f"{name} accuracy"] = np.array([30.0, 80.0, 45.0, 20.0]) - 5 * index
        heads[f"{name} accuracy_low"] = heads[f"{name} accuracy"] - 2
        heads[f"{name} accuracy_high"] = heads[f"{name} accuracy"] + 3
        heads[f"{name} baseline"] = [26.0, 40.0, 30.0, 20.0]
    return comparison(runs, best_heads=heads, note="")


def panel(figure, title):
    """Find the axes of a figure by the start of their title."""
    (axes,) = [axes for axes in figure.axes if axes.get_title("left").startswith(title)]
    return axes


def points_in_color(axes, color):
    """List the points of each line of a colour."""
    lines = [line for line in axes.lines if to_hex(line.get_color()).upper() == color.upper()]
    return [line.get_xydata().tolist() for line in lines]


def test_relative_curve_divides_entropy_by_that_of_uniform_attention():
    table = pd.DataFrame({"layer": [1, 1, 2, 2], "entropy": [1.0, 2.0, 3.0, 3.0], "uniform": 4.0})
    curve = relative_curve({"entropy": table}, "entropy")
    assert curve.to_dict() == {0.5: 1.5 / 4, 1.0: 0.75}


def test_relative_curve_leaves_out_layers_without_a_value():
    table = pd.DataFrame({"layer": [1, 2, 2], "sep": [np.nan, 0.2, 0.4], "first": np.nan})
    assert relative_curve({"token_types": table}, "sep").to_dict() == {1.0: pytest.approx(0.3)}
    assert relative_curve({"token_types": table}, "first").empty
    assert relative_curve({}, "entropy").empty


@pytest.fixture
def two_runs():
    return {"a": run_tables(layers=2), "b": run_tables(layers=4, seed=1)}


@pytest.mark.parametrize(
    ("title", "quantity"), [("Entropy", "entropy"), ("To the separator", "sep")]
)
def test_comparison_draws_a_curve_per_run(two_runs, title, quantity):
    axes = panel(comparison_of(two_runs), title)
    for color, tables in zip(SERIES_COLORS, two_runs.values(), strict=False):
        (curve,) = points_in_color(axes, color)
        np.testing.assert_allclose(curve, relative_curve(tables, quantity).reset_index())


def test_comparison_draws_best_heads_of_the_papers_relations(two_runs):
    axes = panel(comparison_of(two_runs), "Best head")
    expected_accuracies = ((30, 80, 45), (25, 75, 40))  # none for punct, which the paper lacks
    bounds = []
    for color, accuracies in zip(SERIES_COLORS, expected_accuracies, strict=False):
        (best_heads,) = points_in_color(axes, color)
        assert [x for x, _ in best_heads] == [*accuracies]
        bounds += [(accuracy - 2, accuracy + 3) for accuracy in accuracies]
    assert intervals(axes) == bounds
    (paper,) = points_in_color(axes, ACCENT)
    assert paper == [[34.5, 0], [86.8, 1], [50.0, 2]]
    assert [label.get_text() for label in axes.get_yticklabels()] == RELATIONS[:3]


def test_comparison_names_every_series_in_the_legend(two_runs):
    figure = comparison_of(two_runs)
    (legend,) = [axes.get_legend() for axes in figure.axes if axes.get_legend()]
    names = [text.get_text() for text in legend.get_texts()]
    assert names == ["best fixed offset", "a", "b", "the paper"]


def test_comparison_without_a_table_or_the_papers_relations():
    figure = comparison_of({"a": run_tables(), "b": {}}, paper=np.nan)
    labels = panel(figure, "Best head").get_yticklabels()
    assert [label.get_text() for label in labels] == RELATIONS


@pytest.mark.parametrize("in_column", [False, True])
def test_long_names_of_runs_stay_on_the_page(in_column):
    figure = comparison_of({LONG_NAME: run_tables(), f"{LONG_NAME}-random": run_tables(seed=1)})
    if in_column:
        figure = figure.draw_for_column()
    assert not texts_outside(figure)
