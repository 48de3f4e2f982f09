"""Figures 7 to 9 and semantic links: what is drawn agrees with the tables."""

from itertools import product

import numpy as np
import pandas as pd
from matplotlib.colors import to_hex
from plot_checks import LONG_NAME, check_figure, check_long_name

from beyond.papers.dark_secrets import plots
from beyond.papers.dark_secrets.maps import GAMMA, shaded
from beyond.papers.dark_secrets.patterns import CLASSES, WITH_COLUMN
from helpers.plots.style import title_of

LAYERS = 3
HEADS = 4
RNG = np.random.default_rng(0)


def head_table(tasks=("task 0", "task 1"), first_head=1):
    """Make a table with one row per task and head."""
    layers = range(1, LAYERS + 1)
    heads = range(first_head, HEADS + 1)
    return pd.DataFrame(product(tasks, layers, heads), columns=["task", "layer", "head"])


def images(figure):
    """List the arrays of all images of a figure."""
    arrays = []
    for axes in figure.axes:
        arrays += [np.asarray(image.get_array()) for image in axes.images]
    return arrays


def pattern_table():
    """Make a table of random pattern shares, before and after fine-tuning."""
    table = head_table().merge(pd.DataFrame({"weights": ["pretrained", "fine-tuned"]}), how="cross")
    table[list(CLASSES)] = RNG.dirichlet(np.ones(len(CLASSES)), len(table))
    return table


def example_maps():
    """Make a random map for three of the patterns."""
    return {f"{name} (1-2)": RNG.dirichlet(np.ones(12), 12) for name in CLASSES[:3]}


def test_fig7_patterns_shows_each_example_map():
    maps = example_maps()
    in_another_order = dict(reversed(maps.items()))
    figure = plots.fig7_patterns(pattern_table(), in_another_order, model="tiny")
    for axes, image, (title, attention) in zip(
        figure.axes, images(figure), maps.items(), strict=False
    ):
        darkest = plots.darkest_weight(attention)
        assert axes.get_title(loc="left").replace("\n", " ") == f"{title} black: {darkest:.2f}"
        np.testing.assert_allclose(image, np.clip(attention / darkest, 0, 1) ** GAMMA)
        np.testing.assert_allclose(image, shaded(attention))


def test_fig7_patterns_shows_mean_shares_by_layer():
    table = pattern_table()
    figure = plots.fig7_patterns(table, example_maps(), model="tiny")
    panels = [axes for axes in figure.axes if axes.axison]
    means = table.groupby(["weights", "task", "layer"])[list(CLASSES)].mean()
    order = product(["pretrained", "fine-tuned"], ["task 0", "task 1"])
    for axes, (weights, task) in zip(panels, order, strict=True):
        expected = means.loc[(weights, task), :]
        for bars, name in zip(axes.containers, CLASSES, strict=True):
            heights = [bar.get_height() for bar in bars]
            np.testing.assert_allclose(heights, expected[name], atol=1e-6)
    titles = [axes.get_title(loc="left") for axes in panels]
    assert titles == ["task 0", "task 1", "", ""]


def test_fig7_patterns_has_the_shares_after_fine_tuning_in_its_title():
    """Shares before and after are not averaged, nor are tasks."""
    table = pattern_table()
    figure = plots.fig7_patterns(table, example_maps(), model="tiny")
    fine_tuned = table[table["weights"] == "fine-tuned"]
    shares = fine_tuned.groupby("task")[list(WITH_COLUMN)].mean().sum(axis=1)
    expected = f"In {shares.min():.0%} to {shares.max():.0%} of the maps, many tokens attend"
    assert expected in title_of(figure)
    assert "fine-tuned" in title_of(figure)


def test_fig8_finetuning_shows_the_change_of_every_head():
    table = head_table()
    table["similarity"] = RNG.uniform(0.7, 1, len(table))
    figure = plots.fig8_finetuning(table, model="tiny")
    changes = 1 - table.groupby("layer")["similarity"].mean()
    ending = f"maps of layer {changes.idxmax()} most, by {changes.max():.2f} on average"
    assert title_of(figure).endswith(ending)
    for image, (_, rows) in zip(images(figure), table.groupby("task"), strict=False):
        np.testing.assert_allclose(image.ravel(), 1 - rows["similarity"])


def test_no_difference_is_white():
    table = head_table(tasks=["task 0"]).assign(difference=0.1)
    (image,) = plots.semantic_links(table, model="tiny").axes[0].images
    assert to_hex(image.cmap(image.norm(0.0))) == "#ffffff"


def test_semantic_links_shows_differences_and_marks_linked_heads():
    table = head_table(tasks=["task 0"])
    table["difference"] = RNG.uniform(0, 0.1, len(table))
    figure = plots.semantic_links(table, model="tiny")
    assert np.array_equal(images(figure)[0].ravel(), table["difference"])
    linked = table.loc[table["difference"] > 0.05, ["head", "layer"]].to_numpy()
    assert np.array_equal(figure.axes[0].collections[0].get_offsets(), linked)


def test_a_long_name_of_a_model_stays_on_the_page():
    figures = [plots.fig7_patterns(pattern_table(), example_maps(), model=LONG_NAME)]
    columns = {"similarity": 0.8, "difference": 0.1}
    for draw in (plots.fig8_finetuning, plots.semantic_links):
        tasks = ["task 0"] if draw is plots.semantic_links else ["task 0", "task 1"]
        figures.append(draw(head_table(tasks).assign(**columns), model=LONG_NAME))
    for figure in figures:
        check_long_name(figure)
        check_figure(figure)
