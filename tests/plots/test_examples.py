"""Figures 1 and 5 draw each weight and each link at its place, in the right colours."""

from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.colors import to_hex
from plot_checks import LONG_NAME, checked

from helpers.metrics.panels import MAX_WORDS, Link, MapLocation, Panel
from helpers.plots import examples, style
from helpers.plots.style import RIGHT, TOKEN_COLORS, WRONG

TEXTS = {"model": LONG_NAME, "lens": "attention"}
WORD_TYPES = ["cls", "other", "other", "punctuation", "sep"]
WEIGHTS = np.array([
    [0.0, 0.5, 0.0, 0.5, 0.0],
    [0.1, 0.2, 0.3, 0.4, 0.0],
    [0.0, 0.0, 1.0, 0.0, 0.0],
    [0.0, 0.0, 0.0, 0.0, 1.0],
    [0.2, 0.2, 0.2, 0.2, 0.2],
])  # fmt: skip
SCORES = {"head": 73.0, "best fixed offset": 40.0, "nearest verb on the left": 93.0}
PANEL = Panel(
    "Head 2-3: possessive pronouns and 's attend to what is possessed",
    ["[CLS]", "costs", "$", ".", "[SEP]"], WORD_TYPES, WEIGHTS, MapLocation(0, 1, 2), scores=SCORES,
)  # fmt: skip


def test_fig1_draws_lines_as_dark_as_the_weights():
    drawn = replace(PANEL, weights=2 * WEIGHTS)  # the norm lens has weights above one
    figure = examples.fig1_examples([drawn] * 4, **TEXTS)
    assert [axes.get_title().replace("\n", " ") for axes in figure.axes] == [PANEL.title] * 4
    axes = figure.axes[0]
    assert not axes.lines
    (lines,) = axes.collections
    for segment, color in zip(lines.get_segments(), lines.get_colors(), strict=True):
        (_, query), (_, key) = segment.astype(int)
        assert color[3] == pytest.approx(min(1, 2 * WEIGHTS[query, key]))
        assert to_hex(color).upper() == TOKEN_COLORS[WORD_TYPES[key]].upper()
    assert len(lines.get_segments()) == (WEIGHTS > 0).sum()


def drawn_links(axes):
    """List the drawn links as (attending, attended, is dashed, colour, opacity)."""
    return [
        (*line.get_ydata(), line.is_dashed(), line.get_color(), line.get_alpha())
        for line in axes.lines
    ]


def test_fig5_draws_links_as_dark_as_their_weights_and_what_was_missed():
    links = [Link(1, 3, "right"), Link(2, 2, "right"), Link(1, 0, "right")]
    success = replace(PANEL, links=links, special_share=0.25)
    failure = replace(PANEL, links=[Link(1, 3, "wrong"), Link(1, 2, "missed")])
    figure = examples.fig5_heads([success, failure], **TEXTS)
    right, wrong, bars = figure.axes
    assert "25%" in right.get_title()
    least = examples.MIN_LINK_WEIGHT
    assert drawn_links(right) == [
        (1, 3, False, RIGHT, 0.4), (2, 2, False, RIGHT, 1.0), (1, 0, False, RIGHT, least),
    ]  # fmt: skip
    # The mark of the right answer is no weight.
    assert drawn_links(wrong) == [(1, 3, False, WRONG, 0.4), (1, 2, True, WRONG, None)]
    # The query on the left; the right answer and the choice on the right.
    labels = wrong.get_yticklabels()
    assert [label.get_color() == WRONG for label in labels] == [n in (1, 7, 8) for n in range(10)]
    assert [bar.get_width() for bar in bars.patches] == list(SCORES.values())
    assert all(name in text.get_text() for name, text in zip(SCORES, bars.texts, strict=True))
    assert "73%" in style.title_of(figure) and "93%" in style.title_of(figure)
    _, no_failure, _ = examples.fig5_heads([success], **TEXTS).axes
    assert not no_failure.lines


def test_long_words_do_not_overlap_and_lines_have_room():
    words = {"words": ["internationalisation"] * MAX_WORDS, "word_types": ["other"] * MAX_WORDS}
    right = replace(PANEL, **words, weights=np.eye(MAX_WORDS), links=[Link(0, 3, "right")])
    wrong = replace(right, links=[Link(0, 3, "wrong")])
    figure = checked(examples.fig5_heads([right, wrong], **TEXTS))
    other = checked(examples.fig1_examples([right, right], **TEXTS))
    for axes in (*figure.axes[:2], other.axes[0]):
        boxes = [mpl.text.Text.get_window_extent(label) for label in axes.get_yticklabels()]
        for box in boxes:
            assert sum(box.overlaps(neighbour) for neighbour in boxes) == 1  # with itself
        assert axes.bbox.width > 0.15 * axes.figure.dpi  # inches


def test_a_model_without_patterns_or_relations_has_figures_that_say_so():
    for draw in (examples.fig1_examples, examples.fig5_heads):
        figure = draw([], **TEXTS)
        assert not checked(figure).axes
