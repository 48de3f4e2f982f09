"""Figure 7 shows typical maps, and draws the shares of its table."""

import numpy as np
import pandas as pd
import pytest

from helpers.studies.dark_secrets.maps import DrawnMap, shaded
from helpers.studies.dark_secrets.pattern_features import CLASSES
from helpers.studies.dark_secrets.plots import fig7_patterns


def drawn(name="1", length=12):
    weights = np.random.default_rng(0).dirichlet(np.ones(length), length)
    special = np.isin(np.arange(length), (0, 5, length - 1))
    return DrawnMap(name, weights, special, (np.arange(length) > 5).astype(int))


def table(layers=3, heads=2, tasks=("order", "article")):
    rng = np.random.default_rng(1)
    rows = [(t, a + 1, b + 1) for t in tasks for a in range(layers) for b in range(heads)]
    shares = rng.dirichlet(np.ones(len(CLASSES)), len(rows))
    places = pd.DataFrame(rows, columns=["task", "layer", "head"])
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
def test_figure_7_has_a_panel_for_each_task_with_the_mean_shares(tasks):
    shares = table(tasks=tasks)
    panels = shown(fig7_patterns(shares, [drawn("vertical · 1-2")]))
    assert [axes.get_title(loc="left") for axes in panels] == ["vertical · 1-2", *tasks]
    for axes, task in zip(panels[1:], tasks, strict=True):
        rows = shares[shares["task"] == task].groupby("layer")[list(CLASSES)].mean()
        heights = np.array([[bar.get_height() for bar in group] for group in axes.containers])
        np.testing.assert_allclose(heights, rows.to_numpy().T)


def test_figure_7_of_one_task_and_many_layers():
    wide = table(layers=24, tasks=("one",))
    figure = fig7_patterns(wide, [drawn(name) for name in CLASSES], model="big")
    assert len(shown(figure)) == len(CLASSES) + 1
