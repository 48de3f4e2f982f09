"""Figures 7 to 9 show what their tables say."""

from itertools import product

import numpy as np
import pandas as pd

from helpers.studies.dark_secrets import plots
from helpers.studies.dark_secrets.maps import TextMaps, shaded
from helpers.studies.dark_secrets.patterns import CLASSES

LAYERS, HEADS, TASKS = 3, 4, 2
RNG = np.random.default_rng(0)


def rows(tasks=TASKS, whole=False, **more):
    """Return a row for each task, head, and value of ``more``."""
    places = product(range(tasks), range(1, LAYERS + 1), range(0 if whole else 1, HEADS + 1))
    table = pd.DataFrame(places, columns=["task", "layer", "head"])
    table["task"] = [f"task {number}" for number in table["task"]]
    return table.merge(pd.DataFrame(more), how="cross") if more else table


def patterns():
    table = rows(weights=["pretrained", "fine-tuned"])
    shares = RNG.dirichlet(np.ones(len(CLASSES)), len(table))
    return table.join(pd.DataFrame(shares, columns=list(CLASSES)))


def typical(length=12):
    some = np.arange(length)
    maps = zip(CLASSES[:3], RNG.dirichlet(np.ones(length), (3, length)), strict=True)
    return {f"{name} (1-2)": TextMaps(own, some < 1, some > 5) for name, own in maps}


def similarity():
    return rows().assign(similarity=RNG.uniform(0.7, 1, len(rows())), similarity_random=1.0)


def disabled():
    table = rows(whole=True)
    return table.assign(change=RNG.normal(size=len(table)), p_value=RNG.uniform(size=len(table)))


def links():
    linked, difference, p_values = RNG.uniform(0, 0.1, (3, LAYERS * HEADS))
    return rows(tasks=1).assign(linked=linked, difference=difference, p_holm=p_values)


def images(figure):
    return [np.asarray(image.get_array()) for axes in figure.axes for image in axes.images]


def test_figure_7_shows_maps_and_the_mean_shares_of_each_layer():
    table, maps = patterns(), typical()
    figure = plots.fig7_patterns(table, maps)
    for axes, image, (name, drawn) in zip(figure.axes, images(figure), maps.items(), strict=False):
        assert axes.get_title(loc="left").replace("\n", " ") == name
        np.testing.assert_allclose(image, shaded(drawn.attention))
    panels = [axes for axes in figure.axes if axes.axison]
    means = table.groupby(["weights", "task", "layer"])[list(CLASSES)].mean()
    order = product(["pretrained", "fine-tuned"], ["task 0", "task 1"])
    for axes, place in zip(panels, order, strict=True):
        heights = [[bar.get_height() for bar in group] for group in axes.containers]
        np.testing.assert_allclose(heights, means.loc[place].to_numpy().T, atol=1e-6)
    titles = [axes.get_title(loc="left") for axes in panels]
    assert titles == ["task 0", "task 1", "", ""]


def test_figure_8_shows_every_head_from_both_starts():
    table = similarity()
    drawn = images(plots.fig8_finetuning(table))
    columns = product(["similarity", "similarity_random"], ["task 0", "task 1"])
    for image, (column, task) in zip(drawn, columns, strict=False):
        assert np.array_equal(image.ravel(), table.loc[table["task"] == task, column])


def test_figure_9_shows_heads_and_layers_and_marks_what_is_significant():
    table = disabled()
    figure = plots.fig9_disabling(table)
    for axes, drawn, (_, own) in zip(
        figure.axes, images(figure), table.groupby("task"), strict=False
    ):
        single = own.loc[own["head"] > 0, "change"].to_numpy().reshape(3, 4)
        whole = own.loc[own["head"] == 0, "change"].to_numpy()
        np.testing.assert_array_equal(drawn, np.column_stack([single, whole]))
        sure = own.loc[own["p_value"] < 0.05, ["head", "layer"]].replace({"head": {0: 5}})
        np.testing.assert_array_equal(axes.collections[0].get_offsets(), sure)


def test_links_mark_the_heads_above_chance():
    table = links()
    figure = plots.semantic_links(table, links="FrameNet")
    for image, column in zip(images(figure), ("linked", "difference"), strict=False):
        assert np.array_equal(image.ravel(), table[column])
    above = table.loc[table["p_holm"] < 0.05, ["head", "layer"]].to_numpy()
    assert np.array_equal(figure.axes[1].collections[0].get_offsets(), above)
