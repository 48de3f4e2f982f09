"""The figures of the later papers draw the numbers of their tables, here of a golden run."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from committed import committed_figures
from matplotlib.patches import Rectangle
from plot_checks import LONG_NAME, checked

from beyond.papers.accuracy_and_function import plots as function_plots
from beyond.papers.argument_cues.plots import fig12_cues
from beyond.papers.dark_secrets import plots as pattern_plots
from beyond.papers.dark_secrets.maps import shaded
from beyond.papers.dark_secrets.patterns import CLASSES, TEXT
from beyond.papers.sinks import plots as sink_plots
from beyond.papers.sixteen_heads.plots import fig10_importance, fig11_pruning
from helpers.metrics import rows_of_model
from helpers.results import read_tables

GOLDEN = Path(__file__).parents[2] / "golden" / "encoder"


@pytest.fixture(scope="module")
def tables():
    return {path.stem: pd.read_csv(path) for path in GOLDEN.glob("*.csv")}


def drawn_numbers(figure):
    """Collect the numbers that a figure draws: of images, points, lines and bars."""
    numbers = []
    for axes in figure.axes:
        for image in axes.images:
            numbers.append(image.get_array())
        for collection in axes.collections:
            numbers.append(collection.get_offsets())
        for line in axes.lines:
            numbers += [line.get_xdata(), line.get_ydata()]
        for patch in axes.patches:
            if isinstance(patch, Rectangle):
                numbers.append([patch.get_width(), patch.get_height()])
    return np.concatenate([np.ravel(np.asarray(part, float)) for part in numbers])


def fig7(tables):
    rng = np.random.default_rng(0)
    maps = {f"{name} (1-2)": rng.dirichlet(np.ones(12), 12) for name in CLASSES[:3]}
    table = tables["patterns"]
    table = table[table["task"] != TEXT]
    shares = table.groupby(["weights", "task", "layer"])[[*CLASSES]].mean()
    numbers = [shaded(example) for example in maps.values()]
    figure = pattern_plots.fig7_patterns(table, maps, model=LONG_NAME)
    return figure, [*np.ravel(numbers), *np.ravel(shares)]


def fig8(tables):
    table = rows_of_model(tables["finetuning_similarity"])
    return pattern_plots.fig8_finetuning(table, model=LONG_NAME), 1 - table["similarity"]


def semantic_links(tables):
    table = rows_of_model(tables["semantic_links"])
    return pattern_plots.semantic_links(table, model=LONG_NAME), table["difference"]


def fig10(tables):
    importance = tables["importance"]
    figure = fig10_importance(importance, tables["ablation"], model=LONG_NAME)
    return figure, importance["normalised"]


def fig11(tables):
    table = tables["pruning"]
    changes = table[table["order"] == "importance"]["change"]
    random = table[table["order"] == "random"].groupby(["task", "pruned"])["change"].median()
    return fig11_pruning(table, model=LONG_NAME), [*changes, *random]


def fig12(_tables):
    committed = read_tables(committed_figures() / "minilm-arct-later")
    cues, choices = [rows_of_model(committed[name]) for name in ("cues", "partial_inputs")]
    originals = cues[(cues["split"] == "all") & (cues["half"] == "original")]
    numbers = originals[["coverage", "productivity"]].to_numpy()
    means = choices[(choices["train"] == "original") & (choices["test"] != "both")]
    figure = fig12_cues(cues, choices, model=LONG_NAME)
    return figure, [*numbers.ravel(), *means["mean"], *means["paper_mean"].dropna()]


def fig14(tables):
    table = rows_of_model(tables["sink_causes"])
    figure = sink_plots.fig14_causes(tables["sink_causes"], "[SEP]", model=LONG_NAME)
    shares = table.set_index(["dimensions", "change"])["share"]
    return figure, shares[shares.index.isin(list(sink_plots.CHANGES))]


def fig15(tables):
    table = tables["edges"]
    table = table[(table["keys"] == "cls") & (table["measure"] == "sentence angle")]
    return sink_plots.fig15_edges(table, "[CLS]", model=LONG_NAME), table["value"]


def fig16(tables):
    correlations = rows_of_model(tables["head_edge_correlations"])
    figure = function_plots.fig16_causal(
        tables["head_edge_effects"], tables["head_edge_correlations"], model=LONG_NAME
    )
    drawn = ["margin", function_plots.GIVEN_ATTENTION, function_plots.AT_EQUAL_ATTENTION]
    return figure, correlations.set_index("predictor").loc[drawn, "correlation"]


def fig17(_tables):
    maps = np.random.default_rng(0).dirichlet(np.ones(4), size=(2, 4))
    tokens = ["<s>", "a", "cat", "."]
    return sink_plots.fig17_before_after(*maps, tokens, "a title", model=LONG_NAME), maps


def fig19(_tables):
    heads = pd.DataFrame({"layer": [1, 1, 2], "head": [1, 2, 1], "accuracy": [10.0, 50, 90]})
    heads = heads.assign(attention=[0.1, 0.2, 0.3], first_order=[0.0, -0.1, 0.4])
    heads = heads.assign(dropped=[np.nan, 0.15, 0.5])
    heads = heads.assign(dropped_low=0.0, dropped_high=0.9, dropped_df=9.0)
    row = {"subject": "all", "attractor": "all", "right": 75.0, "log_odds": 2.5}
    figure = function_plots.fig19_agreement(heads, pd.DataFrame([row]), model=LONG_NAME)
    return figure, [*heads["attention"], *heads["first_order"], 0.15, 0.5]


def fig20(tables):
    table = tables["sink_lengths"]
    by_layer = table[table["layer"].str.isdigit()]
    figure = sink_plots.fig20_lengths(table, "[CLS]", model=LONG_NAME)
    return figure, by_layer[["first", "relative_entropy"]]


@pytest.mark.parametrize(
    "draw",
    [fig7, fig8, semantic_links, fig10, fig11, fig12, fig14, fig15, fig16, fig17, fig19, fig20],
)
def test_a_figure_draws_the_numbers_of_its_tables(draw, tables):
    figure, numbers = draw(tables)
    drawn = drawn_numbers(checked(figure))
    for number in np.ravel(numbers):
        assert np.isclose(drawn, number, rtol=1e-6, atol=1e-6).any(), number
