"""The figures of notebooks 07 to 09: what is drawn agrees with the committed tables."""

from itertools import product

import numpy as np
import pytest
from committed import committed_figures
from matplotlib.collections import PathCollection
from plot_checks import LONG_NAME, checked

from beyond.papers.argument_cues.plots import N_LABELLED, PAPER, fig12_cues
from beyond.papers.dark_secrets import plots
from beyond.papers.dark_secrets.maps import darkest_weights, shaded
from beyond.papers.dark_secrets.patterns import CLASSES, TEXT
from beyond.papers.sixteen_heads.plots import fig10_importance, fig11_pruning
from helpers.metrics import rows_of_model
from helpers.results import read_tables


def tables_of(run):
    tables = read_tables(committed_figures() / run)
    return {name: rows_of_model(table) for name, table in tables.items()}


@pytest.fixture(scope="module")
def tables():
    return tables_of("minilm-later")


def check_images(figure, values):
    """Check the images of a figure, and return the axes that they are in."""
    panels = [axes for axes in figure.axes if axes.images]
    images = np.ravel([axes.images[0].get_array() for axes in panels[: len(figure.axes)]])
    np.testing.assert_allclose(images[: len(values)], values)
    return panels


def test_fig7_patterns_shows_each_example_map_and_mean_shares_by_layer(tables):
    rng = np.random.default_rng(0)
    maps = {f"{name} (1-2)": rng.dirichlet(np.ones(12), 12) for name in reversed(CLASSES[:3])}
    table = tables["patterns"]
    table = table[table["task"] != TEXT]
    figure = checked(plots.fig7_patterns(table, maps, model=LONG_NAME))
    check_images(figure, np.ravel([shaded(example) for example in reversed(maps.values())]))
    for panel, example in zip(figure.axes, reversed(maps.values()), strict=False):
        is_black = panel.images[0].get_array() == 1
        assert (is_black == (example >= darkest_weights(example))).all()
    panels = [axes for axes in figure.axes if axes.axison]
    means = table.groupby(["weights", "task", "layer"])[[*CLASSES]].mean()
    keys = product(table["weights"].unique(), table["task"].unique())
    for axes, key in zip(panels, keys, strict=True):
        heights = [[bar.get_height() for bar in bars] for bars in axes.containers]
        np.testing.assert_allclose(heights, means.loc[key].T, atol=1e-6)


def test_fig8_fig10_and_semantic_links_show_and_mark_every_head(tables):
    similarity = tables["finetuning_similarity"]
    figure = checked(plots.fig8_finetuning(similarity, model=LONG_NAME))
    check_images(figure, 1 - similarity["similarity"])
    links = tables["semantic_links"]
    figure = checked(plots.semantic_links(links, model=LONG_NAME))
    (panel, *_) = check_images(figure, links["difference"])
    linked = links.loc[links["difference"] > 0.05, ["head", "layer"]]
    assert np.array_equal(panel.collections[0].get_offsets(), linked)
    importance, ablation = tables["importance"], tables["ablation"]
    figure = checked(fig10_importance(importance, ablation, model=LONG_NAME))
    panels = check_images(figure, importance["normalised"])
    costliest = ablation.loc[ablation.groupby("task", sort=False)["change"].idxmin()]
    for axes, row in zip(panels, costliest.itertuples(), strict=False):
        assert axes.patches[0].get_xy() == (row.head - 0.5, row.layer - 0.5)


@pytest.mark.parametrize("n_tasks", [1, 2, 3])
def test_fig11_pruning_shows_orders_and_the_median_and_range_of_random_ones(tables, n_tasks):
    table = tables["pruning"]
    tasks = table["task"].unique()[:n_tasks]
    figure = checked(fig11_pruning(table[table["task"].isin(tasks)], model=LONG_NAME))
    for column, task in enumerate(tasks):
        rows = table[table["task"] == task].set_index("pruned")
        random = rows[rows["order"] == "random"].groupby("pruned")["change"]
        chosen = rows[rows["order"] == "importance"]
        curves = {0: chosen["change"], n_tasks: random.median()}
        bands = {0: chosen[["change_low", "change_high"]].T, n_tasks: random.agg(["min", "max"]).T}
        for first, curve in curves.items():
            axes = figure.axes[first + column]
            np.testing.assert_allclose(axes.lines[0].get_ydata(), curve.drop(100))
            assert axes.lines[-1].get_ydata() == pytest.approx([curve[100]] * 2)
            corners = axes.collections[0].get_paths()[0].vertices.tolist()
            assert all([60, end] in corners for end in bands[first][60])


def test_fig12_draws_the_cues_of_the_originals_and_all_accuracies():
    tables = tables_of("minilm-arct-later")
    cues, choices = tables["cues"], tables["partial_inputs"]
    upper, *panels = checked(fig12_cues(cues, choices, model=LONG_NAME)).axes
    originals = cues.query("split == 'all' and half == 'original'")
    points = [drawn for drawn in upper.collections if isinstance(drawn, PathCollection)]
    offsets = np.vstack([drawn.get_offsets() for drawn in points])
    expected = originals[["coverage", "productivity"]].to_numpy()
    np.testing.assert_allclose(np.sort(offsets, axis=0), np.sort(expected, axis=0))
    labels = {text.get_text() for text in upper.texts}
    assert set(originals.nlargest(N_LABELLED, "gain")["cue"]) <= labels
    for panel, test in zip(panels, ("original", "adversarial"), strict=True):
        rows = choices[(choices["train"] == "original") & (choices["test"] == test)]
        for container in panel.containers:
            means = rows.loc[rows["classifier"] == container.get_label(), "mean"]
            assert list(container.lines[0].get_xdata()) == means.tolist()
        drawn = [np.asarray(line.get_xdata()) for line in panel.lines if line.get_label() == PAPER]
        drawn = np.sort(np.ravel(drawn))
        assert drawn[~np.isnan(drawn)].tolist() == sorted(rows["paper_mean"].dropna())
        low, high = panel.get_xlim()
        assert low < rows["mean_low"].min() and high > rows["mean_high"].max()
