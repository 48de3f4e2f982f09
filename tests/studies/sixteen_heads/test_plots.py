import numpy as np
import pandas as pd
import pytest

from helpers.plots.style import save_figure
from helpers.studies.sixteen_heads import plots

TASKS = ("one", "$two", "three")
SHARES = range(0, 101, 10)


def heads_table(column, generator):
    index = pd.MultiIndex.from_product([TASKS, range(1, 4), range(1, 6)])
    table = index.to_frame(index=False, name=["task", "layer", "head"])
    return table.assign(**{column: generator.normal(0, 1, len(table))})


@pytest.fixture
def single():
    table = heads_table("change", np.random.default_rng(0)).assign(p_value=0.5)
    table.loc[[0, 20], "p_value"] = 0.001, 0.01
    table.loc[0, "change"] = -40
    return table


def pruning_table():
    rows = [
        (task, order, draw, share, 90 - share * (1 + draw) / 4)
        for task in TASKS
        for order in plots.ORDERS
        for draw in range(2 if order == "random" else 1)
        for share in SHARES
    ]
    return pd.DataFrame(rows, columns=["task", "order", "draw", "pruned", "accuracy"])


def test_fig10_has_every_head_and_marks_significant_changes(single, tmp_path):
    weights = heads_table("normalised", np.random.default_rng(1)).assign(normalised=0.3)
    figure = plots.fig10_importance(weights, single, model="m")
    panels = [axes for axes in figure.axes if axes.images]
    assert len(panels) == 2 * len(TASKS)
    first = single[single["task"] == "one"].pivot(index="layer", columns="head", values="change")
    np.testing.assert_array_equal(panels[3].images[0].get_array(), first.to_numpy())
    crosses = [len(axes.collections[-1].get_offsets()) for axes in panels[3:]]
    assert crosses == [1, 0, 0]  # 0.01 is not below 0.01
    low, high = panels[3].images[0].get_clim()
    assert low == -high and -40 < low <= -plots.NARROWEST
    assert save_figure(figure, tmp_path, "fig10").stat().st_size > 10_000


def translation_table():
    return pd.DataFrame(
        [(kind, 1 - s / 100, 80 - s / 2) for kind in plots.KINDS for s in SHARES],
        columns=["kind", "kept", "bleu"],
    )


def test_fig11_draws_means_bands_and_the_unpruned_accuracy(tmp_path):
    figure = plots.fig11_pruning(pruning_table(), translation_table())
    panels = [axes for axes in figure.axes if axes.lines][:-1]
    assert [axes.get_title(loc="left") for axes in panels] == list(TASKS)
    curves = {line.get_label(): line.get_ydata() for line in panels[0].lines}
    np.testing.assert_allclose(
        curves["random orders: mean and range"], [90 - 1.5 * s / 4 for s in SHARES]
    )
    np.testing.assert_allclose(curves["least important first"], [90 - s / 4 for s in SHARES])
    assert len(panels[0].collections) == 1
    save_figure(figure, tmp_path, "fig11")


def test_fig11_has_room_for_the_kinds_of_attention():
    figure = plots.fig11_pruning(pruning_table(), translation_table())
    axes = figure.axes[3]
    assert [line.get_label() for line in axes.lines] == ["encoder", "cross-attention", "decoder"]
    np.testing.assert_allclose(axes.lines[0].get_xdata(), list(SHARES), atol=1e-9)
    alone = plots.fig11_pruning(pruning_table().query("task == 'one'"), translation_table())
    assert len([axes for axes in alone.axes if axes.lines]) == 2


def test_the_course_is_drawn_against_the_share_of_steps():
    summary = pd.DataFrame({"trained": [0, 50, 100], "correlation": [-0.2, 0.8, 1],
                            "top_tenth": [12, 30, 40]})  # fmt: skip
    figure = plots.importance_course(summary, task="one")
    assert figure.get_suptitle().startswith("Michel et al., section 6")
    left, right = figure.axes
    np.testing.assert_allclose(left.lines[0].get_xydata()[1], [50, 0.8])
    np.testing.assert_allclose(right.lines[0].get_xydata()[2], [100, 40])
