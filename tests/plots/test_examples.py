"""Figures 1 and 5 draw each weight and each link at its place, in the right colours."""

from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.colors import to_hex
from plot_checks import LONG_NAME, check_figure, check_long_name

from helpers.metrics.panels import MAX_WORDS, Link, MapLocation, Panel
from helpers.plots import examples, style
from helpers.plots.style import RIGHT, TOKEN_COLORS, WRONG

TEXTS = {"model": "MiniLM, 6 layers of 12 heads", "lens": "attention"}
WORDS = ["[CLS]", "costs", "$", ".", "[SEP]"]
WORD_TYPES = ["cls", "other", "other", "punctuation", "sep"]
WEIGHTS = np.array([
    [0.0, 0.5, 0.0, 0.5, 0.0],
    [0.1, 0.2, 0.3, 0.4, 0.0],
    [0.0, 0.0, 1.0, 0.0, 0.0],
    [0.0, 0.0, 0.0, 0.0, 1.0],
    [0.2, 0.2, 0.2, 0.2, 0.2],
])  # fmt: skip
SCORES = {"head": 73.0, "best fixed offset": 40.0, "nearest verb on the left": 93.0}
TITLE = "Head 2-3: possessive pronouns and 's attend to what is possessed"


def panel(title=TITLE, links=(), **options):
    return Panel(title, WORDS, WORD_TYPES, WEIGHTS, MapLocation(0, 1, 2), links=links, **options)


def fig5_of(*panels):
    figure = examples.fig5_heads(panels, **TEXTS)
    right, wrong, bars = figure.axes[:3]
    return figure, right, wrong, bars


@pytest.mark.parametrize("count", [1, 4, 7])
def test_fig1_has_a_titled_map_per_panel(count):
    figure = examples.fig1_examples([panel("Head 1-2: 70% to [SEP]")] * count, **TEXTS)
    assert [axes.get_title() for axes in figure.axes] == ["Head 1-2: 70% to [SEP]"] * count
    assert not any(axes.lines for axes in figure.axes)


@pytest.mark.parametrize("largest_weight", [1.0, 0.4])
def test_fig1_draws_lines_as_dark_as_the_weights(largest_weight):
    drawn = replace(panel(), weights=WEIGHTS / largest_weight)
    (axes,) = examples.fig1_examples([drawn], **TEXTS).axes
    (lines,) = axes.collections
    colors = {}
    for segment, color in zip(lines.get_segments(), lines.get_colors(), strict=True):
        (_, query), (_, key) = segment
        colors[int(query), int(key)] = color
    assert colors.keys() == {tuple(pair) for pair in np.argwhere(WEIGHTS > 0).tolist()}
    for (query, key), color in colors.items():
        assert color[3] == pytest.approx(min(1, WEIGHTS[query, key] / largest_weight))
        assert to_hex(color).upper() == TOKEN_COLORS[WORD_TYPES[key]].upper()


def drawn_links(axes):
    """List the drawn links as (attending, attended, is dashed, colour, opacity)."""
    return [
        (*line.get_ydata(), line.is_dashed(), line.get_color(), line.get_alpha())
        for line in axes.lines
    ]


def test_fig5_draws_all_links_of_a_success_as_dark_as_their_weights():
    links = [Link(1, 3, "right"), Link(2, 2, "right"), Link(1, 0, "right")]
    _, axes, no_failure, _ = fig5_of(panel(links=links, special_share=0.25, scores=SCORES))
    assert "25%" in axes.get_title()
    least = examples.MIN_LINK_WEIGHT
    assert drawn_links(axes) == [
        (1, 3, False, RIGHT, 0.4), (2, 2, False, RIGHT, 1.0), (1, 0, False, RIGHT, least),
    ]  # fmt: skip
    assert not no_failure.lines


def test_fig5_draws_the_choice_and_the_missed_link_of_a_failure():
    wrong = panel(links=[Link(1, 3, "wrong"), Link(1, 2, "missed")], scores=SCORES)
    _, no_success, axes, _ = fig5_of(wrong)
    assert not no_success.lines
    # The mark of the right answer is no weight.
    assert drawn_links(axes) == [(1, 3, False, WRONG, 0.4), (1, 2, True, WRONG, None)]
    colored = [text.get_text() for text in axes.get_yticklabels() if text.get_color() == WRONG]
    # The query on the left; the right answer and the choice on the right.
    assert colored == [WORDS[1], WORDS[2], WORDS[3]]


def test_fig5_has_a_bar_for_the_head_and_each_rule():
    figure, *_, bars = fig5_of(panel(links=[Link(1, 3, "right")], scores=SCORES))
    assert [bar.get_width() for bar in bars.patches] == [73, 40, 93]
    assert [text.get_text() for text in bars.texts] == [
        f"{name}: {value:.0f}%" for name, value in SCORES.items()
    ]
    title = style.title_of(figure)
    assert "73%" in title and "93%" in title


@pytest.mark.parametrize("word", ["verb", "governments", "internationalisation"])
def test_words_do_not_overlap_and_lines_have_room(word):
    words = [word] * MAX_WORDS
    n_words = len(words)
    right = Panel(
        TITLE, words, ["other"] * n_words, np.eye(n_words), MapLocation(0, 1, 2),
        links=[Link(0, 3, "right")], scores=SCORES,
    )  # fmt: skip
    wrong = replace(right, links=[Link(0, 3, "wrong")])
    figure, *pair, _ = fig5_of(right, wrong)
    other, *_ = examples.fig1_examples([right, right], **TEXTS).axes
    check_figure(figure)
    check_figure(other.figure)
    for axes in (*pair, other):
        boxes = [mpl.text.Text.get_window_extent(label) for label in axes.get_yticklabels()]
        for box in boxes:
            assert sum(box.overlaps(neighbour) for neighbour in boxes) == 1  # with itself
        assert axes.bbox.width > 0.15 * axes.figure.dpi  # inches


def test_words_without_a_font_give_one_warning_for_a_figure(monkeypatch):
    monkeypatch.setattr(style, "INSTALLED_FONTS", style.FONTS[:1])
    foreign = replace(panel(), words=["猫", "は", "$", ".", "[SEP]"])
    with pytest.warns(UserWarning) as caught:
        figure = examples.fig1_examples([foreign, foreign], **TEXTS)
        figure.draw_without_rendering()
    assert len(caught) == 1


def test_a_model_without_patterns_or_relations_has_figures_that_say_so():
    for draw in (examples.fig1_examples, examples.fig5_heads):
        figure = draw([], **TEXTS)
        assert not figure.axes
        check_figure(figure)


def test_a_long_name_of_a_model_stays_on_the_page():
    right = panel(links=[Link(0, 3, "right")], scores=SCORES)
    for draw in (examples.fig1_examples, examples.fig5_heads):
        check_long_name(draw([right], model=LONG_NAME, lens="norm"))
