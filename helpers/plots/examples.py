"""Figures 1 and 5: maps of single sentences, drawn as in the paper.

The tokens stand in two columns.  A line goes from each token on the left to each token on the right
that it attends to.  How dark the line is, from white to black, is its weight, from 0 to 1; all
panels of all figures have this scale.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import fill

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from helpers.metrics.heads import DIRECTIONS
from helpers.metrics.panels import MAX_LETTERS, OFFSET, Panel
from helpers.plots import style
from helpers.plots.style import canvas, missing_glyphs, panel_grid, theme

WORD_HEIGHT = 0.112  # inches, from one word to the next
MIN_LINK_WEIGHT = 0.3  # a link with a smaller weight is drawn as dark as with this one
LINK_STYLES = {
    "right": {"label": "right choice", "color": style.RIGHT, "linewidth": 1.6},
    "wrong": {"label": "wrong choice", "color": style.WRONG, "linewidth": 1.6},
    "missed": {"label": "what is right", "color": style.WRONG, "linewidth": 1, "linestyle": ":"},
}
# Bars of Figure 5: of the head, of a fixed offset, and of another rule.
BAR_COLORS = (style.SERIES_COLORS[0], style.MUTED, style.SERIES_COLORS[1])
ONE_SCALE = "how dark a line is, from white to full colour, is its weight, from 0 to 1"


@theme()
def fig1_examples(panels: Sequence[Panel], *, model: str, lens: str) -> Figure:
    """Draw Figure 1: heads with the patterns of section 3, in the colours of Figure 2.

    Parameters
    ----------
    panels : sequence of Panel
        The `pattern_panels`.
    model : str
        Name of the model, for the note.
    lens : {"attention", "norm"}
        The lens of the maps, for the note.
    """
    if not panels:
        return canvas(0.1, "Figure 1 · No head has one of the paper's patterns", model)
    heads = "One head" if len(panels) == 1 else f"{len(panels)} heads"
    return draw_maps(panels, f"Figure 1 · {heads} on one sentence", model, lens)


@theme()
def draw_maps(panels: Sequence[Panel], title: str, model: str, lens: str) -> Figure:
    """Draw maps of one text next to each other, two in a row."""
    columns = min(2, len(panels))
    height = WORD_HEIGHT * (len(panels[0].words) + 3) * -(-len(panels) // columns)
    note = f"{style.WEIGHT_NAMES[lens]} of tokens (left) to tokens (right)"
    figure = canvas(height, title, model, note, ONE_SCALE)
    glyphs = missing_glyphs(word for panel in panels for word in panel.words)
    for axes, panel in zip(panel_grid(figure, len(panels), columns), panels, strict=True):
        axes.set_title(fill(panel.title, 28), loc="center")
        draw_map(axes, panel, glyphs)
    return figure


@theme()
def fig5_heads(panels: Sequence[Panel], *, model: str, lens: str) -> Figure:
    """Draw Figure 5 (section 4): a success and a failure of single heads, a head in each row.

    Every link of the relation has a coloured line, as dark as its weight.  Where the head is wrong,
    its own choice has a line, and a dotted one marks the right one.  As for the paper's head 9-6,
    attention to special tokens is not drawn; the title of a panel has its share.  Below are the
    accuracies of the head and of rules.

    Parameters
    ----------
    panels : sequence of Panel
        The `relation_panels` and `coreference_panels`.
    model : str
        Name of the model, for the note.
    lens : {"attention", "norm"}
        The lens of the maps, for the note.
    """
    heads: dict[str, list[Panel]] = {}
    for panel in panels:
        heads.setdefault(panel.title, []).append(panel)
    if not panels:
        return canvas(0.1, "Figure 5 · No relation is frequent enough to be drawn", model)
    n_words = []
    for pair in heads.values():
        n_words.append(max(len(panel.words) for panel in pair))
    heights = [WORD_HEIGHT * (count + 2) + 0.75 for count in n_words]
    figure = canvas(
        sum(heights) + 0.15,
        _fig5_title(panels),
        model,
        f"{style.WEIGHT_NAMES[lens]} of words (left) to words (right), not to special tokens",
        ONE_SCALE,
        "" if panels[0].is_checked else "sentences by rule: wrong parses can remain",
    )
    glyphs = missing_glyphs(word for panel in panels for word in panel.words)
    rows = figure.subfigures(len(heads), 1, squeeze=False, height_ratios=heights)[:, 0]
    for row, pair, count in zip(rows, heads.values(), n_words, strict=True):
        heading = pair[0].title
        if pair[0].location.direction == DIRECTIONS[1]:
            heading += " (which word attends most to the dependent?)"
        row.suptitle(fill(heading, 52), x=0.01, ha="left", fontsize=7, fontweight="bold")
        layout = [["right", "wrong"], ["bars", "bars"]]
        panel_axes = row.subplot_mosaic(layout, height_ratios=[WORD_HEIGHT * count, 0.36])
        for name, mark in {"right": "✓", "wrong": "✗"}.items():
            drawn_panels = [panel for panel in pair if panel.correct == (name == "right")]
            _draw_choice(panel_axes[name], drawn_panels, mark, glyphs)
        _draw_scores(panel_axes["bars"], pair[0].scores)
    handles = [Line2D([], [], **link_style) for link_style in LINK_STYLES.values()]
    style.add_legend(figure, handles, 3)
    return figure


def _fig5_title(panels: Sequence[Panel]) -> str:
    """Write the title of Figure 5: the head that is the furthest beyond a fixed offset."""

    def lead(panel: Panel) -> float:
        accuracy, *_ = panel.scores.values()
        return accuracy - panel.scores.get(OFFSET, accuracy)

    best = max(panels, key=lead)
    (_, accuracy), *_, (rule, rule_accuracy) = best.scores.items()
    return f"Figure 5 · {best.title}, {accuracy:.0f}%; {rule}, {rule_accuracy:.0f}%"


def _draw_choice(axes: Axes, panels: Sequence[Panel], mark: str, glyphs: Mapping[int, str]) -> None:
    """Draw the map of a success or a failure; if there is none, say so."""
    if not panels:
        axes.set_axis_off()
        axes.text(0.5, 0.5, f"{mark} in no sentence", ha="center", color=style.MUTED)
        return
    share = f"{panels[0].special_share:.0%} to special tokens"
    axes.set_title(f"{mark} {share}", loc="center")
    draw_map(axes, panels[0], glyphs)


def _draw_scores(axes: Axes, scores: Mapping[str, float]) -> None:
    """Draw the accuracies of a head and of rules as bars."""
    axes.set_axis_off()
    bars = axes.barh(range(len(scores)), list(scores.values()), color=BAR_COLORS[: len(scores)])
    labels = [f"{name}: {value:.0f}%" for name, value in scores.items()]
    axes.bar_label(bars, labels, padding=2)
    axes.set(xlim=(0, 235), ylim=(len(scores) - 0.4, -0.6))  # room for the labels


def draw_map(axes: Axes, panel: Panel, glyphs: Mapping[int, str]) -> None:
    """Draw two columns of words, a line for each visible weight, and the links."""
    colors = [style.TOKEN_COLORS[word_type] for word_type in panel.word_types]
    # A lighter line cannot be seen on white, even where lines cross.
    pairs = np.argwhere(panel.weights >= 0.01)  # [line, query and key]
    queries, keys = pairs.T
    lines = LineCollection(
        [((0, query), (1, key)) for query, key in pairs],
        colors=[colors[key] for key in keys],  # each line has the colour of its key
        alpha=panel.weights[queries, keys].clip(0, 1),
        linewidths=1,
        rasterized=len(pairs) > 1500,  # an SVG with more lines holds them as an image
    )
    axes.add_collection(lines, autolim=False)
    axes.set_frame_on(False)
    n_words = len(panel.words)
    axes.set(xticks=[], xlim=(0, 1), ylim=(n_words - 0.5, -0.5))
    words = [word.translate(glyphs) for word in panel.words]
    short = [word if len(word) <= MAX_LETTERS else f"{word[: MAX_LETTERS - 1]}…" for word in words]
    axes.set_yticks(range(n_words), short)
    axes.tick_params(axis="y", length=0, labelright=True, labelsize=6.5)
    labels = axes.get_yticklabels()  # on the left, then on the right
    for label, color in zip(labels, colors * 2, strict=True):
        label.set_color(color)
    for attending, attended, verdict in panel.links:
        link_style = LINK_STYLES[verdict]
        for label in (labels[attending], labels[n_words + attended]):
            label.set(color=link_style["color"], fontweight="bold")
        weight = np.clip(panel.weights[attending, attended], MIN_LINK_WEIGHT, 1)
        alpha = None if verdict == "missed" else float(weight)
        axes.plot([0, 1], [attending, attended], zorder=3, alpha=alpha, **link_style)
