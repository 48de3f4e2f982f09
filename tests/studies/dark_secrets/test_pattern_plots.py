"""Figure 7 shows typical maps, and draws the shares of its table."""

import numpy as np
import pandas as pd
import pytest

from helpers.studies.dark_secrets.maps import DrawnMap, shaded
from helpers.studies.dark_secrets.patterns import CLASSES
from helpers.studies.dark_secrets.plots import fig7_patterns

WEIGHTS = ("pretrained", "fine-tuned")


def drawn(name="1", length=12):
    weights = np.random.default_rng(0).dirichlet(np.ones(length), length)
    special = np.isin(np.arange(length), (0, 5, length - 1))
    return DrawnMap(name, weights, special, (np.arange(length) > 5).astype(int))


def table(layers=3, heads=2, tasks=("order", "article")):
    rng = np.random.default_rng(1)
    rows = [
        (task, weights, layer + 1, head + 1)
        for task in tasks
        for weights in WEIGHTS
        for layer in range(layers)
        for head in range(heads)
    ]
    shares = rng.dirichlet(np.ones(len(CLASSES)), len(rows))
    places = pd.DataFrame(rows, columns=["task", "weights", "layer", "head"])
    return places.join(pd.DataFrame(shares, columns=list(CLASSES)))


def shown(figure):
    return [axes for axes in figure.axes if axes.axison]


def test_typical_maps_are_shown_whole_under_their_names():
    maps = [drawn(str(number)) for number in (7, 12, 3)]
    panels = shown(fig7_patterns(table(), maps))[: len(maps)]
    assert [axes.get_title(loc="left") for axes in panels] == ["7", "12", "3"]
    for axes in panels:
        np.testing.assert_array_equal(axes.images[0].get_array(), shaded(maps[0].weights))
        assert list(axes.get_xticks()) == [0, 5, 11]
        low, high = axes.get_xlim()
        assert low < -0.5
        assert high > 11.5  # the first and the last column can be seen whole


@pytest.mark.parametrize("tasks", [("order",), ("order", "article"), ("a", "b", "c", "d")])
def test_figure_7_has_a_column_for_each_task_with_the_mean_shares_before_above_after(tasks):
    shares = table(tasks=tasks)
    panels = shown(fig7_patterns(shares, [drawn("vertical · 1-2")]))[1:]
    assert [axes.get_title(loc="left") for axes in panels] == [*tasks, *[""] * len(tasks)]
    places = [(weights, task) for weights in WEIGHTS for task in tasks]
    for axes, (weights, task) in zip(panels, places, strict=True):
        own = shares[(shares["task"] == task) & (shares["weights"] == weights)]
        rows = own.groupby("layer")[list(CLASSES)].mean()
        heights = np.array([[bar.get_height() for bar in group] for group in axes.containers])
        np.testing.assert_allclose(heights, rows.to_numpy().T)
    for number, weights in enumerate(WEIGHTS):
        assert panels[number * len(tasks)].get_ylabel() == f"{weights}\nShare of maps"


def test_figure_7_of_one_task_and_many_layers():
    wide = table(layers=24, tasks=("one",))
    figure = fig7_patterns(wide, [drawn(name) for name in CLASSES], model="big")
    assert len(shown(figure)) == len(CLASSES) + len(WEIGHTS)
    assert any(axes.texts for axes in shown(figure))
    crowded = fig7_patterns(table(layers=12, tasks=tuple("abcd")), [], model="big")
    assert not any(axes.texts for axes in shown(crowded))
