import numpy as np
import pandas as pd
import pytest

from helpers.studies.sixteen_heads import plots

TASKS = ("one", "$two", "three")
SHARES = range(0, 101, 10)


def heads_table(column, generator):
    index = pd.MultiIndex.from_product([TASKS, range(1, 4), range(1, 6)])
    table = index.to_frame(index=False, name=["task", "layer", "head"])
    return table.assign(**{column: generator.normal(0, 1, len(table))})


def test_fig10_has_every_head_and_marks_significant_changes():
    single = heads_table("change", np.random.default_rng(0)).assign(p_value=0.5)
    single.loc[[0, 20], "p_value"] = 0.001, 0.01
    single.loc[0, "change"] = -40
    weights = heads_table("normalised", np.random.default_rng(1)).assign(normalised=0.3)
    figure = plots.fig10_importance(weights, single, model="m")
    panels = [axes for axes in figure.axes if axes.images]
    assert len(panels) == 2 * len(TASKS)
    first = single[single["task"] == "one"].pivot(index="layer", columns="head", values="change")
    np.testing.assert_array_equal(panels[3].images[0].get_array(), first.to_numpy())
    crosses = [len(axes.collections[-1].get_offsets()) for axes in panels[3:]]
    assert crosses == [1, 0, 0]  # 0.01 is not below 0.01
    assert panels[3].images[0].get_clim() == (-40, 40)  # no change is outside


def test_fig11_draws_medians_and_ranges_and_the_kinds_of_attention():
    orders = [*((order, 0) for order in plots.ORDER_STYLES), ("random", 1)]
    table = pd.DataFrame(
        [(task, *order, share) for task in TASKS for order in orders for share in SHARES],
        columns=["task", "order", "draw", "pruned"],
    )
    table["change"] = -table["pruned"] * (1 + table["draw"]) / 4
    translation = pd.DataFrame(
        [(kind, 1 - s / 100, 80 - s / 2) for kind in plots.ATTENTION_STYLES for s in SHARES],
        columns=["kind", "kept", "bleu"],
    )
    figure = plots.fig11_pruning(table, translation)
    *panels, last = [axes for axes in figure.axes if axes.lines]
    assert [axes.get_title(loc="left") for axes in panels] == list(TASKS)
    importance, _, random = panels[0].lines[:3]
    np.testing.assert_allclose(importance.get_ydata(), [-s / 4 for s in SHARES[:-1]])
    np.testing.assert_allclose(random.get_ydata(), [-1.5 * s / 4 for s in SHARES[:-1]])
    band = panels[0].collections[-1].get_paths()[0].vertices
    assert {(90, -45), (90, -22.5)} <= set(map(tuple, band.tolist()))
    assert panels[0].lines[-1].get_ydata() == pytest.approx([-25, -25])  # no head at all
    np.testing.assert_allclose(last.lines[0].get_xydata(), [(s, 80 - s / 2) for s in SHARES])
    alone = plots.fig11_pruning(table.query("task == 'one'"), translation)
    assert len([axes for axes in alone.axes if axes.lines]) == 2


def test_transfer_has_a_dot_for_each_head_and_names_the_costliest():
    changes = heads_table("one_change", np.random.default_rng(0)).assign(set="halves")
    changes["other_change"] = changes["one_change"] / 2
    changes.loc[7, ["one_change", "other_change"]] = -20
    figure = plots.transfer(changes)
    for axes, (_, own) in zip(figure.axes, changes.groupby("task", sort=False), strict=True):
        dots = axes.collections[0].get_offsets()
        np.testing.assert_allclose(dots, own[["one_change", "other_change"]])
    assert figure.axes[0].texts[0].get_text() == "2-3"
