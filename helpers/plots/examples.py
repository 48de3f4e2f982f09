"""Figures 1 and 5: maps of single sentences, chosen by their scores and drawn as in the paper.

The tokens stand in two columns; a line goes from each token on the left to each token on the
right that it attends to, and is the darker the larger the weight.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from helpers.analysis.clustering import head_behaviours
from helpers.analysis.heads import (
    COREFERENCE,
    DIRECTIONS,
    answer,
    head_label,
    parse_head,
    questions,
)
from helpers.analysis.surface import entropy, relative_position, token_types
from helpers.data.records import Record, roles
from helpers.plots import style
from helpers.plots.style import bottom_margin, canvas, joined, named, nothing, theme
from helpers.store.store import Example, Store, tokens_of

LONGEST = 14  # words of a sentence that is easy to read as two columns
SHORTEST = 8
SENTENCE_ENDS = frozenset(".!?")
LOOKED_AT = 400  # sentences to choose from

ROW = 0.155  # inches from one token to the next
CHARACTER = 0.075  # inches, of the average character, which may be bold, at `FONT_SIZE`
FONT_SIZE = 8.5
PANEL_GAP = 0.25
PANELS = 4  # in a row
FAINTEST = 0.01  # a lighter line cannot be seen on white, even where lines cross
MOST_VECTORS = 1500  # an SVG with more lines than this holds them as an image


class Place(NamedTuple):
    """Where in a store a panel is from, head and layer from 1, so that it can be looked at."""

    example: int
    layer: int
    head: int
    relation: str = ""
    direction: str = ""


@dataclass(frozen=True)
class Panel:
    """One map of Figure 1 or 5: ``weights[query, key]`` of one head over ``words``.

    The kind of a word (of `TOKEN_COLORS`) gives it and the attention to it a colour.  A pair of
    ``gold`` is (attending, attended), as indices into ``words``; ``picked`` has the pairs that the
    head has chosen.  In Figure 1 nothing is asked, and there are neither.
    """

    title: str
    words: Sequence[str]
    kinds: Sequence[str]
    weights: Float[np.ndarray, "query key"]
    place: Place
    gold: Sequence[tuple[int, int]] = ()
    picked: Sequence[tuple[int, int]] = ()

    @property
    def correct(self) -> bool:
        """Whether the head is right about every pair."""
        return set(self.picked) <= set(self.gold)


def pattern_panels(store: Store, heads: pd.DataFrame) -> list[Panel]:
    """Return the panels of Figure 1, a head for each pattern of section 3.

    ``heads`` has the columns of section 3's tables.  The head with the most of a pattern is shown
    on the short sentence where it has most of it; its title says how much it has in the corpus, and
    what it counts as in Figure 6.  Of a model that cannot look ahead it is the previous token.
    """
    special = "sep" if heads["sep"].mean() >= heads["cls"].fillna(0).mean() else "cls"
    neighbour = "next" if heads["next"].max() > 0 else "previous"
    examples = list(_short_examples(store))
    patterns = {
        "entropy": "{:.1f} nats",
        neighbour: f"{neighbour} token {{:.0%}}",
        special: f"{store.special_tokens.get(special)} {{:.0%}}",
        "punctuation": "punctuation {:.0%}",
    }
    heads = heads.merge(head_behaviours(heads))
    return [
        _pattern_panel(store, examples, heads.loc[heads[column].idxmax()], column, amount)
        for column, amount in patterns.items()
        if heads[column].max() > 0
    ]


def relation_panels(store: Store, table: pd.DataFrame, relations: Mapping[str, str]) -> list[Panel]:
    """Return the panels of Figure 5 for relations: a sentence where the head is right, one not.

    ``table`` is dependency_heads.csv; ``relations`` maps its names to the paper's.
    """
    examples = list(_short_examples(store))
    panels = []
    for row in table[table["relation"].isin(list(relations))].itertuples():
        title = f"{relations[row.relation]} {row.head} · {row.accuracy:.0f}%"
        layer, head = parse_head(row.head)
        asked = Place(0, layer + 1, head + 1, row.relation, row.direction)
        panels += _most_certain(examples, asked, title)
    return panels


def coreference_panels(store: Store, head: tuple[int, int], accuracy: float) -> list[Panel]:
    """Return the panels of Figure 5 for coreference: the candidates are other mentions' heads."""
    title = f"coreference {head_label(*head)} · {accuracy:.0f}%"
    return _most_certain(store, Place(0, head[0] + 1, head[1] + 1, COREFERENCE), title)


def places(panels: Sequence[Panel]) -> pd.DataFrame:
    """Return where each panel of a figure is from: title, example, layer, head (from 1) ..."""
    rows = [(panel.title.replace("\n", " · "), *panel.place) for panel in panels]
    return pd.DataFrame(rows, columns=["title", *Place._fields])


@theme()
def fig1_examples(panels: Sequence[Panel], *, model: str = "", lens: str = "attention") -> Figure:
    """Draw Figure 1: heads that show the patterns of section 3, in the colours of Figure 2."""
    what = f"{style.WEIGHTS[lens]} of tokens (left) to tokens (right); darker is more"
    title = "Figure 1 · Heads with the most of each pattern"
    return _figure(panels, title, joined(model, what))


@theme()
def fig5_heads(panels: Sequence[Panel], *, model: str = "", lens: str = "attention") -> Figure:
    """Draw Figure 5 (section 4): what single heads find, and where they fail.

    The title, the words in question and their line are coloured; where the head is wrong, its own
    choice has a line and the right one a dashed line.  As in the paper's head 9-6, attention to
    special tokens is not drawn.
    """
    title = "Figure 5 · What single heads find"
    if not panels:
        needs = "a relation of the paper's Figure 5, frequent enough, or mentions near antecedents"
        return nothing(title, model, needs)
    drawn = f"{style.WEIGHTS[lens]} of words (left) to words (right), but not to special tokens"
    note = " "  # the legend takes the place of the footnote
    figure = _figure(panels, title, joined(model, f"{drawn}; darker is more"), note)
    missed = {"linewidth": 1.6, "dashes": (3, 2), "label": "what would be right"}
    handles = [
        Line2D([], [], color=style.RIGHT, linewidth=2.4, label="the head is right"),
        Line2D([], [], color=style.WRONG, linewidth=2.4, label="the head is wrong"),
        Line2D([], [], color=style.WRONG, **missed),
    ]
    figure.legend(handles=handles, loc="lower left", ncols=3, handlelength=2.6, borderaxespad=0)
    return figure


def _figure(panels: Sequence[Panel], title: str, subtitle: str, note: str = "") -> Figure:
    """Draw panels in rows, all with the same space between words."""
    rows = [panels[first : first + PANELS] for first in range(0, len(panels), PANELS)]
    above, gap = 0.34 + 0.16 * panels[0].title.count("\n"), 0.16
    longest = [max(len(panel.words) for panel in row) for row in rows]
    heights = [ROW * words + above + gap for words in longest]
    figure = canvas(sum(heights), title, subtitle, note, constrained=False)
    total, width = figure.get_figheight(), (style.WIDTH - 0.2 + PANEL_GAP) / max(map(len, rows))
    top = sum(heights) + bottom_margin(note)
    for row, words, height in zip(rows, longest, heights, strict=True):
        for column, panel in enumerate(row):
            left, bottom = 0.1 + column * width, top - height + gap
            inches = np.array([left, bottom, width - PANEL_GAP, ROW * words])
            axes = figure.add_axes(inches / [style.WIDTH, total, style.WIDTH, total])
            axes.set_axis_off()
            axes.set_ylim(words - 0.5, -0.5)
            _draw(axes, panel)
        top -= height
    return figure


def _draw(axes: Axes, panel: Panel) -> None:
    """Draw the columns of words, a line for each weight that can be seen, and what is asked."""
    colors = [style.TOKEN_COLORS[kind] for kind in panel.kinds]
    verdict = style.RIGHT if panel.correct else style.WRONG
    asked = {query for query, _ in panel.gold}
    answers = {key for _, key in (*panel.gold, *panel.picked)}
    _words(axes, panel.words, [
        [verdict if place in marked else color for place, color in enumerate(colors)]
        for marked in (asked, answers)
    ])  # fmt: skip
    queries, keys = np.nonzero(panel.weights >= FAINTEST)
    alphas = np.clip(panel.weights[queries, keys].astype(np.float64), 0, 1)
    lines = LineCollection(
        [((0, query), (1, key)) for query, key in zip(queries, keys, strict=True)],
        colors=[to_rgba(colors[key], alpha) for key, alpha in zip(keys, alphas, strict=True)],
        linewidths=1.4,
        rasterized=len(queries) > MOST_VECTORS,
    )
    axes.add_collection(lines, autolim=False)
    for query, key in panel.gold if panel.correct else panel.picked:
        # A head may be right with a small weight: its line is light, but never invisible.
        strength = 0.35 + 0.65 * float(panel.weights[query, key])
        axes.plot([0, 1], [query, key], color=verdict, linewidth=2.4, alpha=strength, zorder=3)
    for query, key in () if panel.correct else panel.gold:
        axes.plot([0, 1], [query, key], color=verdict, linewidth=1.6, dashes=(3, 2), zorder=3)
    mark = f"{'✓' if panel.correct else '✗'} " if panel.gold else ""
    axes.set_title(
        mark + panel.title, fontweight="bold", fontsize=FONT_SIZE, pad=6, parse_math=False,
        color=verdict if mark else style.INK,
    )  # fmt: skip


def _words(axes: Axes, words: Sequence[str], colors: Sequence[Sequence[str]]) -> None:
    """Write the words to the left and to the right in their colours, verdicts in bold."""
    inches = axes.get_position().width * style.WIDTH
    most = int((inches - 0.45) / 2 / CHARACTER)  # leaves the lines 0.45 inches
    shown = [word if len(word) <= most else word[: most - 1] + "…" for word in words]
    side = max(map(len, shown)) * CHARACTER + 0.06
    middle = inches - 2 * side
    axes.set_xlim(-side / middle, 1 + side / middle)
    for x, align, inks in zip((-0.06, middle + 0.06), ("right", "left"), colors, strict=True):
        for y, (word, ink) in enumerate(zip(shown, inks, strict=True)):
            axes.text(
                x / middle, y, word, ha=align, va="center_baseline", color=ink, fontsize=FONT_SIZE,
                weight="bold" if ink in (style.RIGHT, style.WRONG) else "normal", parse_math=False,
            )  # fmt: skip


def _short_examples(store: Store) -> Iterator[Example]:
    """Yield sentences that are easy to read, or else those nearest to that in length."""
    lengths = [len(record["words"]) for record in store.records()]
    far = [max(SHORTEST - length, length - LONGEST, 0) for length in lengths]
    short = [i for i, words in enumerate(far) if words == min(far)]
    for index in short[:LOOKED_AT]:
        yield store[index]


def _pattern_panel(
    store: Store, examples: Sequence[Example], head: pd.Series, column: str, amount: str
) -> Panel:
    layer, number = int(head["layer"]) - 1, int(head["head"]) - 1

    def strength(example: Example) -> float:
        maps = example.attention[[[layer]], [[number]]].astype(np.float32)
        own = roles(tokens_of(store, example), store.special_tokens)
        measures = entropy(maps, own) | relative_position(maps) | token_types(maps, own)
        return float(measures[column][0, 0])

    best = max(examples, key=strength)
    words, weights = tokens_of(store, best), best.attention[layer, number].astype(np.float32)
    kinds = roles(words, store.special_tokens).kinds()
    does = named(style.BEHAVIOUR_STYLES[head["behaviour"]], store.special_tokens).label
    title = f"{head_label(layer, number)} {does}\n{amount.format(head[column])} on average"
    return Panel(title, words, kinds, weights, Place(best.index, layer + 1, number + 1))


def _panels(example: Example, asked_of: Place, title: str) -> Iterator[Panel]:
    """Yield a panel for each time that an example asks a head about a relation."""
    *_, layer, number, relation, direction = asked_of
    own, record = example.word_positions, example.record
    weights = example.attention[layer - 1, number - 1].astype(np.float32)[own, own]
    for question in questions(record):
        if question.relation != relation:
            continue
        asked = question.asked if question.mark is None else question.mark
        words = _words_to_show(record, asked)
        gold = [word for word in question.gold if word in words]
        picked = answer(question, weights, direction or DIRECTIONS[0])[0]
        if not gold or picked not in words:
            continue
        pairs = [(words.index(asked), words.index(int(word))) for word in (*gold, picked)]
        if direction == DIRECTIONS[1]:
            pairs = [(attended, attending) for attending, attended in pairs]
        yield Panel(
            title,
            [record["words"][word] for word in words],
            ["other"] * len(words),
            weights[np.ix_(words, words)],
            asked_of._replace(example=example.index),
            pairs[:-1],
            pairs[-1:],
        )


def _words_to_show(record: Record, asked: int) -> range:
    """Return a sentence's words, or a document's sentences up to the one asked about that fit."""
    words = record["words"]
    if "mentions" not in record:
        return range(len(words))
    ends = [0, *(place for place, word in enumerate(words, 1) if word in SENTENCE_ENDS)]
    stop = next((end for end in ends if end > asked), len(words))
    return range(next((end for end in ends if stop - LONGEST <= end), stop), stop)


def _most_certain(examples: Iterable[Example], asked_of: Place, title: str) -> list[Panel]:
    """Return the clearest panel where the head is right, and the clearest where it is wrong.

    Pairs of neighbours come last: what a fixed offset finds too shows little of the head.
    """

    def rank(panel: Panel) -> tuple[bool, float]:
        attending, attended = panel.gold[-1]
        return abs(attending - attended) == 1, -panel.weights[panel.picked[0]]

    panels = (panel for each in examples for panel in _panels(each, asked_of, title))
    ranked = sorted(panels, key=lambda panel: (not panel.correct, *rank(panel)))
    return [next(found) for _, found in groupby(ranked, attrgetter("correct"))]
