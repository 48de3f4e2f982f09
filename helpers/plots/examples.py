"""Figures 1 and 5: maps of single sentences, chosen by their scores and drawn as in the paper.

The tokens stand in two columns.  A line goes from each token on the left to each token on the right
that it attends to; the larger the weight, the darker the line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgba_array
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from helpers.data.records import Record
from helpers.metrics.clustering import head_behaviours
from helpers.metrics.heads import (
    COREFERENCE,
    DIRECTIONS,
    gold_links,
    head_label,
    parse_head,
    predict_link,
)
from helpers.metrics.surface import entropy, relative_position, token_types
from helpers.plots import style
from helpers.plots.style import (
    bottom_margin,
    canvas,
    empty_figure,
    join_nonempty,
    resolve_special_tokens,
    theme,
)
from helpers.store.store import Example, Store

MIN_WORDS = 8  # of a sentence that is easy to read as two columns
MAX_WORDS = 14
SENTENCE_ENDS = frozenset(".!?")
MAX_CANDIDATES = 400  # sentences to choose from

ROW_HEIGHT = 0.155  # inches, from one token to the next
CHARACTER_WIDTH = 0.075  # inches, of the average character, which may be bold, at `FONT_SIZE`
FONT_SIZE = 8.5
PANEL_GAP = 0.25  # inches, between panels of a row
ROW_GAP = 0.16  # inches, between rows of panels
LINES_WIDTH = 0.45  # inches between the two columns, at least
PANELS_PER_ROW = 4
MIN_DRAWN_WEIGHT = 0.01  # a lighter line cannot be seen on white, even where lines cross
MAX_VECTOR_LINES = 1500  # an SVG with more lines than this holds them as an image


class MapLocation(NamedTuple):
    """The map of a panel: its example in a store, and its layer and head from 1."""

    example: int
    layer: int
    head: int
    relation: str = ""
    direction: str = ""


@dataclass(frozen=True)
class Panel:
    """One map of Figure 1 or 5.

    Attributes
    ----------
    title : str
        One or two lines.
    words : sequence of str
        The tokens or words.
    word_types : sequence of str
        The type of each word, a key of `TOKEN_COLORS`; it colours the word and the attention to it.
    weights : array, shape (query, key)
        The attention weights of one head.
    location : MapLocation
        The map in the store.
    gold, picked : sequence of (int, int)
        Pairs of (attending, attended) word, by index: the right ones, and the head's choices.  Both
        are empty in Figure 1.
    """

    title: str
    words: Sequence[str]
    word_types: Sequence[str]
    weights: Float[np.ndarray, "query key"]
    location: MapLocation
    gold: Sequence[tuple[int, int]] = ()
    picked: Sequence[tuple[int, int]] = ()

    @property
    def correct(self) -> bool:
        """Whether the head is right about every pair."""
        return set(self.picked) <= set(self.gold)


def pattern_panels(store: Store, heads: pd.DataFrame) -> list[Panel]:
    """Choose the panels of Figure 1: one head for each pattern of section 3.

    Parameters
    ----------
    store : Store
        A store of sentences.
    heads : DataFrame
        The averages of section 3, one row per head (`head_table` of `SECTION_3`).

    Returns
    -------
    list of Panel
        Broad attention, the next token (the previous one for a model that cannot look ahead), the
        special token with more attention, and punctuation.  The head with the largest average of a
        pattern is drawn on the short sentence with the largest value.  The title has its behaviour
        in Figure 6 and its average.
    """
    special = "sep" if heads["sep"].mean() >= heads["cls"].fillna(0).mean() else "cls"
    neighbour = "next" if heads["next"].max() > 0 else "previous"
    patterns = {
        "entropy": "{:.1f} nats",
        neighbour: f"{neighbour} token {{:.0%}}",
        special: f"{store.special_tokens.get(special)} {{:.0%}}",
        "punctuation": "punctuation {:.0%}",
    }
    examples = list(_short_examples(store))
    heads = heads.merge(head_behaviours(heads))
    panels = []
    for column, amount in patterns.items():
        if heads[column].max() > 0:
            strongest = heads.loc[heads[column].idxmax()]
            panels.append(_pattern_panel(store, examples, strongest, column, amount))
    return panels


def relation_panels(store: Store, table: pd.DataFrame, relations: Mapping[str, str]) -> list[Panel]:
    """Choose the panels of Figure 5 for relations: one success and one failure of each head.

    Parameters
    ----------
    store : Store
        A word-level store of a treebank.
    table : DataFrame
        The table dependency_heads.csv.
    relations : mapping of str to str
        The relations to draw, with the paper's name of each.
    """
    examples = list(_short_examples(store))
    panels = []
    for row in table[table["relation"].isin(list(relations))].itertuples():
        title = f"{relations[row.relation]} {row.head} · {row.accuracy:.0f}%"
        layer, head = parse_head(row.head)
        location = MapLocation(0, layer + 1, head + 1, row.relation, row.direction)
        panels += _clearest_panels(examples, location, title)
    return panels


def coreference_panels(store: Store, head: tuple[int, int], accuracy: float) -> list[Panel]:
    """Choose the panels of Figure 5 for coreference: one success and one failure of a head.

    Parameters
    ----------
    store : Store
        A word-level store of coreference documents.
    head : (int, int)
        Layer and head, from 0.
    accuracy : float
        The head's accuracy in percent, for the title.
    """
    title = f"coreference {head_label(*head)} · {accuracy:.0f}%"
    location = MapLocation(0, head[0] + 1, head[1] + 1, COREFERENCE)
    return _clearest_panels(store, location, title)


def panel_table(panels: Sequence[Panel]) -> pd.DataFrame:
    """Tabulate the map of each panel.

    Returns
    -------
    DataFrame
        Columns: title, example, layer and head (from 1), relation and direction.
    """
    rows = [(panel.title.replace("\n", " · "), *panel.location) for panel in panels]
    return pd.DataFrame(rows, columns=["title", *MapLocation._fields])


@theme()
def fig1_examples(panels: Sequence[Panel], *, model: str = "", lens: str = "attention") -> Figure:
    """Draw Figure 1: heads with the patterns of section 3, in the colours of Figure 2.

    Parameters
    ----------
    panels : sequence of Panel
        The `pattern_panels`.
    model : str, optional
        Name of the model, for the subtitle.
    lens : {"attention", "norm"}, optional
        The lens of the maps, for the subtitle.
    """
    subtitle = f"{style.WEIGHT_NAMES[lens]} of tokens (left) to tokens (right); darker is more"
    title = "Figure 1 · Heads with the most of each pattern"
    return _draw_figure(panels, title, join_nonempty(model, subtitle))


@theme()
def fig5_heads(panels: Sequence[Panel], *, model: str = "", lens: str = "attention") -> Figure:
    """Draw Figure 5 (section 4): successes and failures of single heads.

    The title, the words of the pair and its line are coloured.  If the head is wrong, its own
    choice has a line and the right one a dashed line.  As for the paper's head 9-6, attention to
    special tokens is not drawn.

    Parameters
    ----------
    panels : sequence of Panel
        The `relation_panels` and `coreference_panels`.
    model : str, optional
        Name of the model, for the subtitle.
    lens : {"attention", "norm"}, optional
        The lens of the maps, for the subtitle.
    """
    title = "Figure 5 · What single heads find"
    if not panels:
        needs = "a relation of the paper's Figure 5, frequent enough, or mentions near antecedents"
        return empty_figure(title, model, needs)
    weights = style.WEIGHT_NAMES[lens]
    subtitle = f"{weights} of words (left) to words (right), but not to special tokens"
    footnote = " "  # the legend takes its place
    figure = _draw_figure(
        panels, title, join_nonempty(model, f"{subtitle}; darker is more"), footnote
    )
    handles = [
        Line2D([], [], color=style.RIGHT, linewidth=2.4, label="the head is right"),
        Line2D([], [], color=style.WRONG, linewidth=2.4, label="the head is wrong"),
        Line2D(
            [], [], color=style.WRONG, linewidth=1.6, dashes=(3, 2), label="what would be right"
        ),
    ]
    figure.legend(handles=handles, loc="lower left", ncols=3, handlelength=2.6, borderaxespad=0)
    return figure


def _draw_figure(panels: Sequence[Panel], title: str, subtitle: str, footnote: str = "") -> Figure:
    """Draw panels in rows, all with the same distance between words."""
    starts = range(0, len(panels), PANELS_PER_ROW)
    rows = [panels[start : start + PANELS_PER_ROW] for start in starts]
    n_words = [_longest_panel(row) for row in rows]
    title_height = 0.34 + 0.16 * panels[0].title.count("\n")
    heights = [ROW_HEIGHT * words + title_height + ROW_GAP for words in n_words]
    figure = canvas(sum(heights), title, subtitle, footnote, constrained=False)
    figure_height = figure.get_figheight()
    figure_size = [style.WIDTH, figure_height, style.WIDTH, figure_height]
    column_width = (style.WIDTH - 0.2 + PANEL_GAP) / max(map(len, rows))
    top = sum(heights) + bottom_margin(footnote)
    for row, words, height in zip(rows, n_words, heights, strict=True):
        bottom = top - height + ROW_GAP
        for column, panel in enumerate(row):
            x = 0.1 + column * column_width
            inches = np.array([x, bottom, column_width - PANEL_GAP, ROW_HEIGHT * words])
            axes = figure.add_axes(inches / figure_size)
            axes.set_axis_off()
            axes.set_ylim(words - 0.5, -0.5)
            _draw_panel(axes, panel)
        top -= height
    return figure


def _longest_panel(panels: Sequence[Panel]) -> int:
    """Count the words of the panel that has most."""
    return max(len(panel.words) for panel in panels)


def _draw_panel(axes: Axes, panel: Panel) -> None:
    """Draw the two columns of words, a line for each visible weight, and the pairs."""
    colors = [style.TOKEN_COLORS[word_type] for word_type in panel.word_types]
    verdict_color = style.RIGHT if panel.correct else style.WRONG
    left_colors = list(colors)
    right_colors = list(colors)
    for query, key in panel.gold:
        left_colors[query] = verdict_color
        right_colors[key] = verdict_color
    for _, key in panel.picked:
        right_colors[key] = verdict_color
    _draw_words(axes, panel.words, left_colors, right_colors)
    _draw_weights(axes, panel.weights, colors)
    _draw_pairs(axes, panel, verdict_color)
    title = panel.title
    title_color = style.INK
    if panel.gold:
        title = f"{'✓' if panel.correct else '✗'} {title}"
        title_color = verdict_color
    axes.set_title(
        title, fontweight="bold", fontsize=FONT_SIZE, pad=6, parse_math=False, color=title_color
    )


def _draw_weights(
    axes: Axes, weights: Float[np.ndarray, "query key"], key_colors: Sequence[str]
) -> None:
    """Draw a line for each visible weight in the colour of its key, darker if it is larger."""
    queries, keys = np.nonzero(weights >= MIN_DRAWN_WEIGHT)
    segments = [((0, query), (1, key)) for query, key in zip(queries, keys, strict=True)]
    alphas = weights[queries, keys].clip(0, 1)
    colors = to_rgba_array([key_colors[key] for key in keys], alphas)
    is_image = len(queries) > MAX_VECTOR_LINES
    lines = LineCollection(segments, colors=colors, linewidths=1.4, rasterized=is_image)
    axes.add_collection(lines, autolim=False)


def _draw_pairs(axes: Axes, panel: Panel, color: str) -> None:
    """Draw the pairs that the head is right about, or its choices and the missed pairs."""
    for query, key in panel.gold if panel.correct else panel.picked:
        # A head may be right with a small weight: its line is light, but never invisible.
        alpha = 0.35 + 0.65 * float(panel.weights[query, key])
        axes.plot([0, 1], [query, key], color=color, linewidth=2.4, alpha=alpha, zorder=3)
    if not panel.correct:
        for query, key in panel.gold:
            axes.plot([0, 1], [query, key], color=color, linewidth=1.6, dashes=(3, 2), zorder=3)


def _draw_words(
    axes: Axes, words: Sequence[str], left_colors: Sequence[str], right_colors: Sequence[str]
) -> None:
    """Write the words to the left and to the right in their colours, verdicts in bold."""
    width = axes.get_position().width * style.WIDTH  # inches
    max_characters = int((width - LINES_WIDTH) / 2 / CHARACTER_WIDTH)
    texts = []
    for word in words:
        texts.append(word if len(word) <= max_characters else f"{word[: max_characters - 1]}…")
    column_width = max(map(len, texts)) * CHARACTER_WIDTH + 0.06
    lines_width = width - 2 * column_width
    axes.set_xlim(-column_width / lines_width, 1 + column_width / lines_width)
    _draw_column(axes, texts, left_colors, x=-0.06 / lines_width, align="right")
    _draw_column(axes, texts, right_colors, x=(lines_width + 0.06) / lines_width, align="left")


def _draw_column(
    axes: Axes, texts: Sequence[str], colors: Sequence[str], *, x: float, align: str
) -> None:
    """Write one column of words in their colours, verdicts in bold."""
    for y, (text, color) in enumerate(zip(texts, colors, strict=True)):
        weight = "bold" if color in (style.RIGHT, style.WRONG) else "normal"
        axes.text(
            x, y, text, ha=align, va="center_baseline", color=color, fontsize=FONT_SIZE,
            weight=weight, parse_math=False,
        )  # fmt: skip


def _short_examples(store: Store) -> Iterator[Example]:
    """Yield sentences that are easy to read, or else those closest to them in length."""
    excess = []  # words that a sentence has too few or too many
    for record in store.records():
        length = len(record["words"])
        excess.append(max(MIN_WORDS - length, length - MAX_WORDS, 0))
    least = min(excess)
    indices = [index for index, words in enumerate(excess) if words == least]
    for index in indices[:MAX_CANDIDATES]:
        yield store[index]


def _pattern_panel(
    store: Store, examples: Sequence[Example], head_row: pd.Series, column: str, amount: str
) -> Panel:
    """Make the panel of a head on the example with the largest value of a pattern."""
    layer = int(head_row["layer"]) - 1
    head = int(head_row["head"]) - 1

    def strength(example: Example) -> float:
        maps = example.attention[[[layer]], [[head]]]
        token_roles = example.roles
        measures = dict(entropy(maps, token_roles))
        measures.update(relative_position(maps))
        measures.update(token_types(maps, token_roles))
        return float(measures[column][0, 0])

    best = max(examples, key=strength)
    words = best.tokens
    weights = best.attention[layer, head]
    word_types = best.roles.kinds()
    behaviour_style = style.BEHAVIOUR_STYLES[head_row["behaviour"]]
    behaviour = resolve_special_tokens(behaviour_style, store.special_tokens).label
    average = amount.format(head_row[column])
    title = f"{head_label(layer, head)} {behaviour}\n{average} on average"
    return Panel(title, words, word_types, weights, MapLocation(best.index, layer + 1, head + 1))


def _panels_of_example(example: Example, location: MapLocation, title: str) -> Iterator[Panel]:
    """Yield a panel for each gold link of a relation in an example; ``location`` names the head."""
    record = example.record
    positions = example.word_positions
    maps = example.attention[location.layer - 1, location.head - 1]
    weights = maps[positions, positions]
    for question in gold_links(record):
        if question.relation != location.relation:
            continue
        dependent = question.word if question.mark is None else question.mark
        words = _visible_words(record, dependent)
        gold = [word for word in question.gold if word in words]
        picked, _ = predict_link(question, weights, location.direction or DIRECTIONS[0])
        if not gold or picked not in words:
            continue
        pairs = []
        for word in (*gold, picked):
            pair = (words.index(dependent), words.index(int(word)))
            is_reversed = location.direction == DIRECTIONS[1]  # heads attend to dependents
            pairs.append(pair[::-1] if is_reversed else pair)
        yield Panel(
            title,
            [record["words"][word] for word in words],
            ["other"] * len(words),
            weights[np.ix_(words, words)],
            location._replace(example=example.index),
            gold=pairs[:-1],
            picked=pairs[-1:],
        )


def _visible_words(record: Record, dependent: int) -> range:
    """Choose the words to draw: a sentence, or a document's sentences up to the dependent's.

    As many sentences of a document are drawn as have `MAX_WORDS` words together, at least one.
    """
    words = record["words"]
    if "mentions" not in record:
        return range(len(words))
    boundaries = [0]
    boundaries += [index for index, word in enumerate(words, 1) if word in SENTENCE_ENDS]
    stop = next((boundary for boundary in boundaries if boundary > dependent), len(words))
    start = next((boundary for boundary in boundaries if stop - MAX_WORDS <= boundary), stop)
    return range(start, stop)


def _clearest_panels(examples: Iterable[Example], location: MapLocation, title: str) -> list[Panel]:
    """Choose the clearest panel where the head is right, and the clearest where it is wrong.

    The clearest has the largest weight.  Pairs of neighbouring words come last, because a fixed
    offset gets them right, too.
    """

    def rank(panel: Panel) -> tuple[bool, float]:
        attending, attended = panel.gold[-1]
        is_neighbour = abs(attending - attended) == 1
        return is_neighbour, -panel.weights[panel.picked[0]]

    panels: list[Panel] = []
    for example in examples:
        panels += _panels_of_example(example, location, title)
    right = [panel for panel in panels if panel.correct]
    wrong = [panel for panel in panels if not panel.correct]
    return [min(panels, key=rank) for panels in (right, wrong) if panels]
