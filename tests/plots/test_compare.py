"""The figure of several runs shows what their tables say."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from helpers.plots.compare import COLORS, comparison, relative_curve
from helpers.plots.style import ACCENT

RELATIONS = ["All", "dobj", "$x$", "punct"]


def tables(layers=3, heads=2, seed=0):
    rng = np.random.default_rng(seed)
    layer, head = np.divmod(np.arange(layers * heads), heads)
    index = pd.DataFrame({"layer": layer + 1, "head": head + 1})
    return {
        "entropy": index.assign(entropy=rng.uniform(1, 4, len(index)), uniform=4.5),
        "token_types": index.assign(sep=rng.uniform(0, 1, len(index)), cls=0.1 * index["layer"]),
    }


def drawn(runs, paper=(34.5, 86.8, 50.0, np.nan)):
    claims = pd.DataFrame({"section": ["3.1", "3.1", "3.2", "6"]})
    heads = pd.DataFrame({"relation": RELATIONS, "paper accuracy": paper})
    for index, name in enumerate(runs):
        second = ["supported", "not supported"]
        if index % 2 == 0:
            second.reverse()
        claims[f"{name} verdict"] = ["supported", second[0], "not measured", second[1]]
        heads[f"{name} accuracy"] = np.array([30.0, 80.0, 45.0, 20.0]) - 5 * index
        heads[f"{name} accuracy_low"] = heads[f"{name} accuracy"] - 2
        heads[f"{name} accuracy_high"] = heads[f"{name} accuracy"] + 3
        heads[f"{name} baseline"] = [26.0, 40.0, 30.0, 20.0]
    return comparison(runs, claims=claims, best_heads=heads)


def panel(figure, title):
    (axes,) = [axes for axes in figure.axes if axes.get_title("left").startswith(title)]
    return axes


def drawn_in(axes, color):
    lines = [line for line in axes.lines if to_hex(line.get_color()).upper() == color.upper()]
    return [line.get_xydata().tolist() for line in lines]


def test_relative_curves_by_hand():
    table = pd.DataFrame({"layer": [1, 1, 2, 2], "entropy": [1.0, 2.0, 3.0, 3.0], "uniform": 4.0})
    curve = relative_curve({"entropy": table}, "entropy")
    assert curve.to_dict() == {0.5: 1.5 / 4, 1.0: 0.75}
    table = pd.DataFrame({"layer": [1, 2, 2], "sep": [np.nan, 0.2, 0.4], "cls": np.nan})
    assert relative_curve({"token_types": table}, "sep").to_dict() == {1.0: pytest.approx(0.3)}
    assert relative_curve({"token_types": table}, "cls").empty
    assert relative_curve({}, "entropy").empty


def test_every_panel_shows_its_table():
    runs = {"a": tables(layers=2), "b": tables(layers=4, seed=1)}
    figure = drawn(runs)
    for title, quantity in (("Entropy", "entropy"), ("To the separator", "sep")):
        for color, each in zip(COLORS, runs.values(), strict=False):
            (curve,) = drawn_in(panel(figure, title), color)
            np.testing.assert_allclose(curve, relative_curve(each, quantity).reset_index())
    axes = panel(figure, "Best head")
    for color, values in zip(COLORS, ((30, 80, 45), (25, 75, 40)), strict=False):
        *intervals, heads = sorted(drawn_in(axes, color), key=len)
        assert [place[0] for place in heads] == [*values]  # punct is not the paper's
        assert [[low[0], high[0]] for low, high in intervals] == [[v - 2, v + 3] for v in values]
    ((*paper,),) = drawn_in(axes, ACCENT)
    assert paper == [[34.5, 0], [86.8, 1], [50.0, 2]]
    assert [label.get_text() for label in axes.get_yticklabels()] == RELATIONS[:3]
    axes = panel(figure, "Supported claims")
    assert [text.get_text() for text in axes.texts] == ["1/2", "2/2", "1/1", "0/1", "2/3", "2/3"]
    (legend,) = [axes.get_legend() for axes in figure.axes if axes.get_legend()]
    names = [text.get_text() for text in legend.get_texts()]
    assert names == ["a", "b", "the paper", "best fixed offset"]


def test_runs_without_a_table_or_the_papers_relations_are_drawn():
    figure = drawn({"a": tables(), "b": {}}, paper=np.nan)
    labels = panel(figure, "Best head").get_yticklabels()
    assert [label.get_text() for label in labels] == RELATIONS
