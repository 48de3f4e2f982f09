"""Figures 7 to 9 show what their tables say."""

from itertools import product

import numpy as np
import pandas as pd

from helpers.studies.dark_secrets import plots
from helpers.studies.dark_secrets.maps import TextMaps, shaded
from helpers.studies.dark_secrets.patterns import CLASSES

LAYERS, HEADS, TASKS = 3, 4, 2
RNG = np.random.default_rng(0)


def rows(tasks=TASKS, first=1, **more):
    """Return a row for each task, head (from ``first``), and value of ``more``."""
    places = product(range(tasks), range(1, LAYERS + 1), range(first, HEADS + 1))
    table = pd.DataFrame(places, columns=["task", "layer", "head"])
    table["task"] = [f"task {number}" for number in table["task"]]
    return table.merge(pd.DataFrame(more), how="cross") if more else table


def images(figure):
    return [np.asarray(image.get_array()) for axes in figure.axes for image in axes.images]


def test_figure_7_shows_maps_and_the_mean_shares_of_each_layer():
    table, some = rows(weights=["pretrained", "fine-tuned"]), np.arange(12)
    table[list(CLASSES)] = RNG.dirichlet(np.ones(len(CLASSES)), len(table))
    drawn = zip(CLASSES[:3], RNG.dirichlet(np.ones(12), (3, 12)), strict=True)
    maps = {f"{name} (1-2)": TextMaps(own, some < 1, some > 5) for name, own in drawn}
    figure = plots.fig7_patterns(table, maps)
    for axes, image, (name, own) in zip(figure.axes, images(figure), maps.items(), strict=False):
        assert axes.get_title(loc="left").replace("\n", " ") == name
        np.testing.assert_allclose(image, shaded(own.attention))
    panels = [axes for axes in figure.axes if axes.axison]
    means = table.groupby(["weights", "task", "layer"])[list(CLASSES)].mean()
    order = product(["pretrained", "fine-tuned"], ["task 0", "task 1"])
    for axes, place in zip(panels, order, strict=True):
        heights = [[bar.get_height() for bar in group] for group in axes.containers]
        np.testing.assert_allclose(heights, means.loc[place].to_numpy().T, atol=1e-6)
    titles = [axes.get_title(loc="left") for axes in panels]
    assert titles == ["task 0", "task 1", "", ""]


def test_figure_8_shows_every_head_from_both_starts():
    table = rows()
    table["similarity"], table["similarity_random"] = RNG.uniform(0.7, 1, (2, len(table)))
    columns = product(["similarity", "similarity_random"], ["task 0", "task 1"])
    for image, (column, task) in zip(images(plots.fig8_finetuning(table)), columns, strict=False):
        assert np.array_equal(image.ravel(), table.loc[table["task"] == task, column])


def test_figure_9_shows_heads_and_layers_both_ways_and_marks_what_is_significant():
    table = rows(first=0)
    table[["change", "p_value", "zeroed"]] = RNG.uniform(size=(len(table), 3))
    table.loc[table["head"] == 0, "zeroed"] = np.nan
    figure = plots.fig9_disabling(table)
    ways = product(["change", "zeroed"], table.groupby("task"))
    for axes, drawn, (column, (_, own)) in zip(figure.axes, images(figure), ways, strict=False):
        changes = own[column].to_numpy().reshape(LAYERS, HEADS + 1)
        np.testing.assert_array_equal(drawn, np.roll(changes, -1, axis=1))  # layers come last
        sure = own.loc[own["p_value"] < 0.05, ["head", "layer"]].replace({"head": {0: 5}})
        if column == "change":
            np.testing.assert_array_equal(axes.collections[0].get_offsets(), sure)


def test_links_mark_the_heads_above_chance():
    table = rows(tasks=1)
    table[["linked", "difference", "p_holm"]] = RNG.uniform(0, 0.1, (len(table), 3))
    figure = plots.semantic_links(table, links="FrameNet")
    for image, column in zip(images(figure), ("linked", "difference"), strict=False):
        assert np.array_equal(image.ravel(), table[column])
    above = table.loc[table["p_holm"] < 0.05, ["head", "layer"]].to_numpy()
    assert np.array_equal(figure.axes[1].collections[0].get_offsets(), above)
