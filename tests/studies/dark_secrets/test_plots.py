"""Figures 8 and 9 show what their tables say, for models of any size and any number of tasks."""

import numpy as np
import pandas as pd
import pytest

from helpers.plots.style import save_figure
from helpers.studies.dark_secrets import plots

SIZES = [(2, 2, 1), (6, 12, 3), (24, 16, 4)]


def head_rows(layers, heads, whole=False):
    layer, head = np.divmod(np.arange(layers * (heads + whole)), heads + whole)
    return pd.DataFrame({"layer": layer + 1, "head": head + (not whole)})


def tasks(count):
    return [f"task {number}" for number in range(count)]


def similarity(layers, heads, count, seed=0):
    rng = np.random.default_rng(seed)
    parts = [head_rows(layers, heads).assign(task=task) for task in tasks(count)]
    table = pd.concat(parts, ignore_index=True)
    table["similarity"] = rng.uniform(0.7, 1, len(table))
    return table.assign(similarity_random=1.0)


def accuracy(count):
    rows = [
        (task, start, value, value - 3, value + 3, 50.0, 58.0)
        for task in tasks(count)
        for start, value in (("pretrained", 80.0), ("random", 55.0), ("classifier alone", 62.0))
    ]
    columns = ["task", "start", "accuracy", "ci_low", "ci_high", "majority", "bag_of_words"]
    return pd.DataFrame(rows, columns=columns)


def disabled(layers, heads, count, seed=0):
    rng = np.random.default_rng(seed)
    parts = [head_rows(layers, heads, whole=True).assign(task=task) for task in tasks(count)]
    table = pd.concat(parts, ignore_index=True)
    return table.assign(change=rng.normal(size=len(table)), p_value=rng.uniform(size=len(table)))


def links(layers, heads, seed=0):
    rng = np.random.default_rng(seed)
    table = head_rows(layers, heads)
    difference = rng.normal(0, 0.1, len(table))
    return table.assign(
        linked=0.2, random=0.2 - difference, difference=difference,
        ci_low=difference - 0.01, ci_high=difference + 0.02, p_holm=rng.uniform(0, 0.1, len(table)),
    )  # fmt: skip


def images(figure):
    return [np.asarray(image.get_array()) for axes in figure.axes for image in axes.images]


@pytest.mark.parametrize(("layers", "heads", "count"), SIZES)
def test_figures_of_every_size_can_be_saved(tmp_path, layers, heads, count):
    figures = {
        "fig8": plots.fig8_finetuning(similarity(layers, heads, count), accuracy(count), model="m"),
        "fig9": plots.fig9_disabling(disabled(layers, heads, count), model="m"),
        "links": plots.semantic_links(links(layers, heads), links="x", model="m"),
    }
    for name, figure in figures.items():
        path = save_figure(figure, tmp_path, name)
        assert path.stat().st_size > 5000 and path.with_suffix(".svg").is_file()


def test_figure_8_shows_every_head_and_all_conditions():
    table = similarity(6, 12, 3)
    figure = plots.fig8_finetuning(table, accuracy(3))
    assert "Figure 8" in figure.get_suptitle()
    for drawn, (_, rows) in zip(images(figure), table.groupby("task"), strict=False):
        assert np.array_equal(drawn.ravel(), rows["similarity"])
    *_, by_layer, bars = figure.axes
    lines = [line.get_ydata() for line in by_layer.lines]
    means = table.groupby(["task", "layer"])[["similarity", "similarity_random"]].mean()
    expected = [means.loc[task, name] for task in tasks(3) for name in means]
    assert all(np.allclose(drawn, own) for drawn, own in zip(lines, expected, strict=True))
    assert [bar.get_height() for bar in bars.patches] == [80] * 3 + [62] * 3 + [55] * 3
    assert {text.get_text() for text in bars.texts} == {"80", "62", "55"}
    assert {tuple(line.get_ydata()) for line in bars.lines} >= {(50, 50), (58, 58)}


def test_figure_9_shows_heads_and_layers_and_marks_what_is_significant():
    table = disabled(3, 4, 2)
    figure = plots.fig9_disabling(table)
    drawn = images(figure)
    for number, (_, rows) in enumerate(table.groupby("task")):
        single, whole = rows[rows["head"] > 0], rows[rows["head"] == 0]
        assert np.array_equal(drawn[2 * number].ravel(), single["change"])
        assert np.array_equal(drawn[2 * number + 1].ravel(), whole["change"])
        heads, layers = figure.axes[2 * number : 2 * number + 2]
        marked = single.loc[single["p_value"] < 0.05, ["head", "layer"]].to_numpy()
        assert np.array_equal(heads.collections[0].get_offsets(), marked)
        written = [text.get_text() for text in layers.texts]
        expected = [
            f"{r.change:+.1f}" + ("•" if r.p_value < 0.05 else "") for r in whole.itertuples()
        ]
        assert written == expected


def test_links_mark_the_heads_above_chance():
    table = links(3, 4)
    figure = plots.semantic_links(table, links="FrameNet")
    above = table.loc[table["p_holm"] < 0.05, ["head", "layer"]].to_numpy()
    assert np.array_equal(figure.axes[1].collections[0].get_offsets(), above)
    assert "FrameNet" in figure.texts[-2].get_text()
    ((points, _, (bars,)),) = figure.axes[2].containers
    assert points.get_ydata().tolist() == sorted(table["difference"])
    ends = np.array([segment[:, 1] for segment in bars.get_segments()])
    assert np.allclose(ends, table.sort_values("difference")[["ci_low", "ci_high"]])


def test_the_same_table_gives_the_same_bytes(tmp_path):
    paths = [
        save_figure(plots.fig9_disabling(disabled(3, 4, 2)), tmp_path / str(n), "f")
        for n in range(2)
    ]
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_curves_of_equal_similarity_can_be_told_apart():
    figure = plots.fig8_finetuning(similarity(3, 4, 2), accuracy(2))
    (axes,) = [axes for axes in figure.axes if axes.get_ylabel() == "Mean cosine of the layer"]
    one, other = [line for line in axes.lines if line.get_linestyle() == ":"]
    np.testing.assert_array_equal(one.get_ydata(), other.get_ydata())
    assert (np.abs(one.get_xdata() - other.get_xdata()) > 0.1).all()
