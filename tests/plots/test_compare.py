"""The figure of several runs shows what their tables say."""

import itertools

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex, to_rgb
from plot_checks import DEFICIENCIES, lab, shown_texts

from helpers.plots.compare import COLORS, MARKERS, comparison, relative_curve
from helpers.plots.style import ACCENT, TOKEN_COLORS

RELATIONS = ["All", "dobj", "$x$", "punct"]


def tables(layers=3, heads=2, seed=0):
    rng = np.random.default_rng(seed)
    layer, head = np.divmod(np.arange(layers * heads), heads)
    index = pd.DataFrame({"layer": layer + 1, "head": head + 1})
    return {
        "entropy": index.assign(entropy=rng.uniform(1, 4, len(index)), uniform=4.5),
        "token_types": index.assign(sep=rng.uniform(0, 1, len(index)), cls=0.1 * index["layer"]),
    }


def claims(names):
    table = pd.DataFrame({"section": ["3.1", "3.1", "3.2", "6"]})
    verdicts = [["yes", "no", "not measured", "yes"], ["yes", "yes", "not measured", "no"]]
    for index, name in enumerate(names):
        table[f"{name} holds"] = verdicts[index % 2]
    return table


def best_heads(names):
    table = pd.DataFrame({"relation": RELATIONS, "paper accuracy": [34.5, 86.8, 50.0, np.nan]})
    for index, name in enumerate(names):
        accuracy = np.array([30.0, 80.0, 45.0, 20.0]) - 5 * index
        columns = [accuracy, accuracy - 2, accuracy + 3, [26.0, 40.0, 30.0, 20.0]]
        for part, values in zip(
            ["accuracy", "ci_low", "ci_high", "baseline"], columns, strict=True
        ):
            table[f"{name} {part}"] = values
    return table


def drawn(names=("minilm", "minilm-random-0"), runs=None, note=""):
    runs = runs or {name: tables(layers=3 + i, seed=i) for i, name in enumerate(names)}
    return comparison(runs, claims=claims(runs), best_heads=best_heads(runs), note=note)


def panel(figure, title):
    (axes,) = [axes for axes in figure.axes if axes.get_title("left").startswith(title)]
    return axes


def line_of(axes, color):
    (line,) = [line for line in axes.lines if to_hex(line.get_color()).upper() == color.upper()]
    return line


def test_relative_curves_by_hand():
    table = pd.DataFrame({"layer": [1, 1, 2, 2], "entropy": [1.0, 2.0, 3.0, 3.0], "uniform": 4.0})
    curve = relative_curve({"entropy": table}, "entropy")
    assert curve.to_dict() == {0.5: 1.5 / 4, 1.0: 0.75}
    table = pd.DataFrame({"layer": [1, 2, 2], "sep": [np.nan, 0.2, 0.4], "cls": np.nan})
    assert relative_curve({"token_types": table}, "sep").to_dict() == {1.0: pytest.approx(0.3)}
    assert relative_curve({"token_types": table}, "cls").empty


def test_runs_of_different_depths_share_the_axis():
    runs = {"a": tables(layers=2), "b": tables(layers=4, seed=1)}
    figure = drawn(runs=runs)
    for title, quantity in (("Entropy", "entropy"), ("Attention to the sep", "sep"),
                            ("Attention to the first", "cls")):  # fmt: skip
        axes = panel(figure, title)
        for color, each in zip(COLORS, runs.values(), strict=False):
            line, curve = line_of(axes, color), relative_curve(each, quantity)
            np.testing.assert_allclose(line.get_xdata(), curve.index)
            np.testing.assert_allclose(line.get_ydata(), curve)
            assert line.get_xdata()[-1] == 1


def test_a_run_without_a_token_is_named_in_the_panel():
    runs = {"with": tables(), "without": tables(seed=1)}
    runs["without"]["token_types"]["sep"] = np.nan
    figure = drawn(runs=runs)
    assert [text.get_text() for text in panel(figure, "Attention to the sep").texts] == [
        "none in without"
    ]
    assert not panel(figure, "Attention to the first").texts


def test_what_no_run_has_is_said_shortly():
    names = [f"{name}-{'x' * 60}" for name in ("one", "other")]
    runs = {name: tables() for name in names}
    for each in runs.values():
        each["token_types"]["sep"] = np.nan
    figure = drawn(runs=runs)
    (text,) = panel(figure, "Attention to the sep").texts
    assert text.get_text() == "none in these runs"
    runs[names[0]] = tables()
    (text,) = panel(drawn(runs=runs), "Attention to the sep").texts
    assert max(map(len, text.get_text().splitlines())) <= 40


def test_best_heads_intervals_and_the_papers():
    axes = panel(drawn(), "Best head")
    for index, color in enumerate(COLORS[:2]):
        accuracy = np.array([30.0, 80.0, 45.0]) - 5 * index  # punct is not in the paper
        np.testing.assert_array_equal(line_of(axes, color).get_xdata(), accuracy)
        (interval,) = [
            group for group in axes.collections if to_hex(group.get_color()[0]) == color.lower()
        ]
        bounds = np.array([segment[:, 0] for segment in interval.get_segments()])
        np.testing.assert_array_equal(bounds, np.stack([accuracy - 2, accuracy + 3], axis=1))
    np.testing.assert_array_equal(line_of(axes, ACCENT).get_xdata(), [34.5, 86.8, 50.0])
    assert [label.get_text() for label in axes.get_yticklabels()] == RELATIONS[:3]
    rows = np.concatenate([line_of(axes, color).get_ydata() for color in COLORS[:2]])
    assert (np.rint(rows) == np.tile([0, 1, 2], 2)).all()  # each stays in its relation's row
    assert axes.get_ylim()[0] > axes.get_ylim()[1]


def test_a_treebank_without_the_papers_relations_is_drawn_all_the_same():
    heads = best_heads(["a", "b"]).assign(**{"paper accuracy": np.nan})
    runs = {"a": tables(), "b": tables()}
    figure = comparison(runs, claims=claims(runs), best_heads=heads)
    labels = panel(figure, "Best head").get_yticklabels()
    assert [label.get_text() for label in labels] == RELATIONS


def test_claims_are_counted_by_section_and_in_all():
    axes = panel(drawn(), "Claims that hold")
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == ["3.1 relative position", "3.2 special tokens", "6 clusters", "all"]
    counts = np.array([text.get_text() for text in axes.texts]).reshape(4, 2)
    assert counts.tolist() == [["1/2", "2/2"], ["–", "–"], ["1/1", "0/1"], ["2/3", "2/3"]]
    shares = axes.collections[0].get_array()
    np.testing.assert_allclose(
        np.ma.filled(shares.astype(float), -1).ravel(), [0.5, 1, -1, -1, 1, 0, 2 / 3, 2 / 3]
    )


def test_a_run_has_one_color_and_one_marker_everywhere():
    figure = drawn(("a", "b", "c"))
    (legend,) = [axes.get_legend() for axes in figure.axes if axes.get_legend()]
    entries = {
        text.get_text(): (handle.get_color(), handle.get_marker())
        for text, handle in zip(legend.get_texts(), legend.get_lines(), strict=True)
    }
    assert list(entries) == ["a", "b", "c", "the paper", "best fixed offset"]
    columns = panel(figure, "Claims that hold").lines[:3]
    assert [(line.get_color(), line.get_marker()) for line in columns] == [
        entries[name] for name in "abc"
    ]


@pytest.mark.parametrize(
    "names", [("minilm", "minilm-random-0"), ("a" * 40, "b_$1$", "c", "d", "e")]
)
@pytest.mark.parametrize("note", ["", "These runs also differ in --seeds."])
def test_texts_fit_on_the_page(names, note):
    figure = drawn(names, note=note)
    texts = shown_texts(figure)
    words = " ".join(text.get_text() for text in texts)
    assert all(name in words for name in names) and note in words
    assert all(unit in words for unit in ("(%)", "(fraction)", "share of the depth"))
    for text in texts:
        box = mpl.text.Text.get_window_extent(text)
        assert box.x0 >= -1 and box.x1 <= figure.bbox.x1 + 1, text.get_text()
        assert box.y0 >= -1 and box.y1 <= figure.bbox.y1 + 1, text.get_text()


def test_a_long_name_is_shortened_in_the_middle():
    figure = drawn(("folder-" + "x" * 150 + "-tuned", "b"))
    (legend,) = [axes.get_legend() for axes in figure.axes if axes.get_legend()]
    label = legend.get_texts()[0].get_text()
    assert len(label) == 41 and label.startswith("folder-x") and label.endswith("x-tuned")


def test_titles_and_legend_do_not_overlap():
    figure = drawn(("first", "second", "third", "a-fourth-with-a-long-name", "fifth"))
    figure.draw_without_rendering()
    (legend,) = [axes.get_legend() for axes in figure.axes if axes.get_legend()]
    titles = [text for axes in figure.axes for text in (axes._left_title, axes.xaxis.label)]
    boxes = [text.get_window_extent() for text in (*titles, *figure.texts) if text.get_text()]
    boxes.append(legend.get_window_extent())
    for one, other in itertools.combinations(boxes, 2):
        assert not one.overlaps(other)


@pytest.mark.parametrize("matrix", DEFICIENCIES.values(), ids=DEFICIENCIES.keys())
def test_colors_of_runs_differ_with_color_blindness(matrix):
    for one, other in itertools.combinations((*COLORS, ACCENT), 2):
        assert np.linalg.norm(lab(one, matrix) - lab(other, matrix)) > 15, (one, other)


def test_colors_of_runs_are_not_those_of_token_types_or_the_paper():
    assert not {to_rgb(color) for color in COLORS} & {
        to_rgb(color) for color in (*TOKEN_COLORS.values(), ACCENT)
    }
    assert len(set(MARKERS)) == len(MARKERS) > len(COLORS)


def test_drawing_leaves_no_state_behind():
    before = dict(mpl.rcParams)
    drawn()
    assert dict(mpl.rcParams) == before
