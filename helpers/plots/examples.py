"""Figures 1 and 5: maps of single sentences, chosen by their scores and drawn as in the paper.

The tokens stand in two columns.  A line goes from each token on the left to each token on the right
that it attends to; the larger the weight, the darker the line.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from textwrap import fill
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from helpers.data.records import Record
from helpers.metrics.clustering import POSITION_SHARE, TOKEN_SHARE
from helpers.metrics.heads import (
    COREFERENCE,
    DIRECTIONS,
    Direction,
    Question,
    by_head,
    gold_links,
    head_label,
    pair_questions,
    parse_head,
    predict_link,
    sees_answer,
)
from helpers.metrics.reference import BROAD
from helpers.metrics.surface import example_sums
from helpers.plots import style
from helpers.plots.style import canvas, for_column, legend_below, missing_glyphs
from helpers.store.store import Example, Store

MIN_WORDS = 8  # of a sentence that is easy to read as two columns
MAX_WORDS = 14
MAX_CHARACTERS = 15  # of its longest word, which fits into a panel without being cut
SENTENCE_ENDS = frozenset(".!?")
MAX_CANDIDATES = 400  # sentences to choose from

# Measures in units of the size of the type.
LINE_HEIGHT = 1.31  # from one word or line of a title to the next
WORD_WIDTH = 0.52  # of the average character of a word
TITLE_WIDTH = 0.58  # of the average character of a title, which may be bold
# Measures in inches.
LINES_WIDTH = 0.45  # between the two columns of words, with the gap to the next panel, at least
TITLE_GAP = 0.15  # between titles
ROW_GAP = 1.6  # lines, between rows of panels
MAX_COLUMNS = 3  # panels in a row of a page, at most
COLUMN_COLUMNS = 2  # panels in a row of a column of a paper, at most
COLUMN_HEADS = 4  # heads in the Figure 5 for a column, at most
COLUMN_ROWS = 2  # rows of panels in the Figure 5 for a column, at most
MIN_DRAWN_DARKNESS = 0.01  # a lighter line cannot be seen on white, even where lines cross
MAX_VECTOR_LINES = 1500  # an SVG with more lines than this holds them as an image

LINK_STYLES = {
    "right": {"label": "right choice", "color": style.RIGHT, "linewidth": 2.4},
    "wrong": {"label": "wrong choice", "color": style.WRONG, "linewidth": 2.4},
    "missed": {"label": "would be right", "color": style.WRONG, "linewidth": 1.6, "dashes": (3, 2)},
}

# What the heads of Figure 5 do, by the paper's name of the relation: read from the dependent, and
# from its head.
BEHAVIOURS = {
    "dobj": ("direct objects attend to their verbs", "verbs attend to their direct objects"),
    "det": ("determiners attend to their nouns", "nouns attend to their determiners"),
    "pobj": (
        "objects of prepositions attend to their prepositions",
        "prepositions attend to their objects",
    ),
    "poss": (
        "possessive pronouns and 's attend to what is possessed",
        "what is possessed attends to possessive pronouns and 's",
    ),
    "auxpass": (
        "passive auxiliaries attend to their verbs",
        "verbs attend to their passive auxiliaries",
    ),
}
# Of a relation that the paper does not have, as in pairs of the user.
OTHER_BEHAVIOUR = ("words attend to their partners", "partners attend to their words")
# Rules by which some wrong parses are not drawn.  In these relations English has only these words.
CLOSED_CLASSES = {
    "det": "a all an another any both each either every neither no some that the these this those "
    "what which whatever whichever half such",
    "auxpass": "am are be been being 'm 're 's get gets getting got gotten is was were",
}
# A word with one of these relations follows its verb or preposition.
FOLLOWS_HEAD = ("dobj", "pobj")
# A direct object depends on a verb, not on an adjective, as in "Not religious himself, he left".
VERBS = frozenset({"VERB", "AUX"})
# A compound between a possessor and its noun may be wrong, as in "keeps their [skin moist]".
COMPOUNDS = frozenset({"compound", "nn"})


class MapLocation(NamedTuple):
    """The map of a panel: its example in a store, and its layer and head from 1."""

    example: int
    layer: int
    head: int
    relation: str = ""
    direction: str = ""


class Link(NamedTuple):
    """A line between two words of a panel, which the head drew or should have drawn.

    Attributes
    ----------
    attending, attended : int
        Indices of the words.
    verdict : {"right", "wrong", "missed"}
        A right choice of the head, a wrong one, or what would have been right instead.
    """

    attending: int
    attended: int
    verdict: str


@dataclass(frozen=True)
class Panel:
    """One map of Figure 1 or 5.

    Attributes
    ----------
    title : str
        What the head does.  In Figure 5, panels of one row have the same title.
    words : sequence of str
        The tokens or words.
    word_types : sequence of str
        The type of each word, a key of `TOKEN_COLORS`; it colours the word and the attention to it.
    darkness : array, shape (query, key)
        The attention weights of one head; in Figure 1 those of broad attention are scaled up.
    location : MapLocation
        The map in the store.
    links : sequence of Link
        All links of the relation between the words; empty in Figure 1.
    special_share : float
        The share of the linked words' attention that goes to special tokens, which are not drawn.
    """

    title: str
    words: Sequence[str]
    word_types: Sequence[str]
    darkness: Float[np.ndarray, "query key"]
    location: MapLocation
    links: Sequence[Link] = ()
    special_share: float = 0.0

    @property
    def correct(self) -> bool:
        """Whether the head is right about every link."""
        return all(link.verdict == "right" for link in self.links)


def pattern_panels(store: Store, heads: pd.DataFrame) -> list[Panel]:
    """Choose the panels of Figure 1: one head for each pattern of section 3.

    Parameters
    ----------
    store : Store
        A store of sentences, or of segments.
    heads : DataFrame
        The averages of section 3, one row per head (`head_table` of `SECTION_3`).

    Returns
    -------
    list of Panel
        Broad attention, the previous and the next token, the special token with more attention,
        and punctuation.  The head with the largest average of a pattern is drawn on the short
        sentence with the largest value.  The title has its average, and says if it is below the
        threshold of the pattern in Figure 6.
    """
    means = heads.reindex(columns=["sep", "cls", "first"]).mean().fillna(0)
    special = means.idxmax()
    special_token = "the first token" if special == "first" else store.special_tokens.get(special)
    patterns = {
        "entropy": ("broad, {:.1f} of {:.1f} nats", BROAD),
        "previous": ("{:.0%} to the previous token", POSITION_SHARE),
        "next": ("{:.0%} to the next token", POSITION_SHARE),
        special: (f"{{:.0%}} to {special_token}", TOKEN_SHARE),
        "punctuation": ("{:.0%} to periods and commas", TOKEN_SHARE),
    }
    uniform = by_head(heads, "uniform")
    examples = _short_examples(store)
    sums_of_examples = [example_sums([example], store.special_tokens) for example in examples]
    panels = []
    for column, (amount, threshold) in patterns.items():
        averages = by_head(heads, column)
        shares = averages / uniform if column == "entropy" else averages
        if np.nan_to_num(shares).max() > 0:
            layer, head = np.unravel_index(np.nanargmax(shares), shares.shape)
            amount_of_head = amount.format(averages[layer, head], uniform[layer, head])
            title = f"Head {head_label(layer, head)}: {amount_of_head}"
            if shares[layer, head] < threshold:
                broad = f"{threshold * uniform[layer, head]:.1f} nats"
                least = broad if column == "entropy" else f"{threshold:.0%}"
                title += f"\n(the closest; the paper counts from {least})"
            strengths = [sums.mean(column)[layer, head] for sums in sums_of_examples]
            example = examples[np.argmax(np.nan_to_num(strengths))]
            weights = example.attention[layer, head]
            # The largest weight of a row is dark, so that broad attention shows.
            darkness = weights / weights.max(axis=1).mean()
            location = MapLocation(example.index, layer + 1, head + 1)
            word_types = example.roles.kinds()
            if special == "first":
                word_types[0] = special
            panels.append(Panel(title, example.tokens, word_types, darkness, location))
    return panels


def relation_panels(
    store: Store, table: pd.DataFrame, relations: Mapping[str, str], *, english: bool
) -> list[Panel]:
    """Choose the panels of Figure 5 for relations: successes and a failure of each head.

    Parameters
    ----------
    store : Store
        A word-level store of a treebank.
    table : DataFrame
        The table dependency_heads.csv.
    relations : mapping of str to str
        The relations to draw, with the paper's name of each, a key of `BEHAVIOURS`, or another.
    english : bool
        Whether sentences in which the annotation of the relation is wrong, or may well be, are left
        out by the rules of `CLOSED_CLASSES`, `FOLLOWS_HEAD`, `VERBS` and `COMPOUNDS`, which are for
        English.

    Returns
    -------
    list of Panel
        See `_clearest_panels`.
    """
    examples = _short_examples(store)
    panels = []
    for row in table[table["relation"].isin(list(relations))].itertuples():
        paper_name = relations[row.relation]
        behaviours = BEHAVIOURS.get(
            paper_name, [f"{paper_name}: {text}" for text in OTHER_BEHAVIOUR]
        )
        behaviour = behaviours[DIRECTIONS.index(row.direction)]
        baseline = f"best fixed offset {row.baseline:.0f}%"
        title = f"Head {row.head}: {behaviour}, {row.accuracy:.0f}% ({baseline})"
        layer, head = parse_head(row.head)
        location = MapLocation(0, layer + 1, head + 1, row.relation, row.direction)
        plausible = [
            example for example in examples
            if not english or _is_plausible(example.record, row.relation, paper_name)
        ]  # fmt: skip
        panels += _clearest_panels(plausible, location, title)
    return panels


def coreference_panels(store: Store, head: tuple[int, int], accuracy: float) -> list[Panel]:
    """Choose the panels of Figure 5 for coreference: successes and a failure of a head.

    Parameters
    ----------
    store : Store
        A word-level store of coreference documents.
    head : (int, int)
        Layer and head, from 0.
    accuracy : float
        The head's accuracy in percent, for the title.

    Returns
    -------
    list of Panel
        See `_clearest_panels`.
    """
    title = f"Head {head_label(*head)}: mentions attend to their antecedents, {accuracy:.0f}%"
    location = MapLocation(0, head[0] + 1, head[1] + 1, COREFERENCE)
    return _clearest_panels(store, location, title)


def panel_table(panels: Sequence[Panel]) -> pd.DataFrame:
    """Tabulate the map of each panel.

    Returns
    -------
    DataFrame
        Columns: title, example, layer and head (from 1), relation and direction.
    """
    rows = [(panel.title.replace("\n", " "), *panel.location) for panel in panels]
    return pd.DataFrame(rows, columns=["title", *MapLocation._fields])


@for_column
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
    return _draw_rows(
        {"": panels}, "Figure 1 · Heads with the most of each pattern", model, subtitle
    )


@for_column
def fig5_heads(panels: Sequence[Panel], *, model: str = "", lens: str = "attention") -> Figure:
    """Draw Figure 5 (section 4): successes and failures of single heads, a head in each row.

    Every link of the relation has a coloured line.  Where the head is wrong, its own choice has a
    line and the right one a dashed line.  As for the paper's head 9-6, attention to special tokens
    is not drawn; the title of a panel has its share.  For a column of a paper, the figure has one
    success of each head, and `COLUMN_HEADS` heads at most.

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
    if style.in_column():
        panels = _shortest_successes(panels)
    if not panels:
        needs = "a relation of the paper's Figure 5, frequent enough, or mentions near antecedents"
        return canvas(0.1, title, model, "nothing to draw", note=f"It would need {needs}.")
    subtitle = f"{style.WEIGHT_NAMES[lens]} of words (left) to words (right), not to special tokens"
    groups = defaultdict(list)
    for panel in panels:
        to_special = f"{max(panel.special_share, 0):.0%} to special tokens"
        if style.in_column():
            groups[""].append(replace(panel, title=f"{panel.title}; {to_special}"))
        else:
            mark = "✓" if panel.correct else "✗"
            # What the head does stands above the first panel, in the first line of the titles.
            groups[panel.title].append(replace(panel, title=f"\n{mark} {to_special}"))
    figure = _draw_rows(groups, title, model, subtitle)
    legend_below(figure, columns=3)
    return figure


def _shortest_successes(panels: Sequence[Panel]) -> list[Panel]:
    """Choose the right panel with the shortest words of each head, and the heads with these."""
    by_length = sorted(panels, key=_longest_word, reverse=True)
    successes = {panel.title: panel for panel in by_length if panel.correct}
    shortest = sorted(successes.values(), key=_longest_word)[:COLUMN_HEADS]
    return shortest[: COLUMN_ROWS * _columns(shortest)]


def _longest_word(panel: Panel) -> int:
    """Count the characters of a panel's longest word."""
    return max(len(word) for word in panel.words)


def _columns(panels: Sequence[Panel]) -> int:
    """Choose how many panels a row has: as many as the longest words leave room for.

    A row has fewer if no more rows are needed then, so that the last row is not much shorter.
    """
    longest_word = max(map(_longest_word, panels), default=MAX_CHARACTERS)
    panel_width = 2 * longest_word * WORD_WIDTH * _type_size() + LINES_WIDTH
    max_columns = COLUMN_COLUMNS if style.in_column() else MAX_COLUMNS
    columns = int(np.clip(style.page_width() / panel_width, 1, max_columns))
    rows = -(-len(panels) // columns)
    return -(-len(panels) // max(rows, 1)) or 1  # four panels have two rows of two


def _type_size() -> float:
    """Return the size of the type in inches."""
    return plt.rcParams["font.size"] / 72


class _Row(NamedTuple):
    """Panels next to each other, with the heading above them; most rows have none."""

    heading: str
    panels: Sequence[Panel]

    @property
    def n_words(self) -> int:
        """The number of words of the longest panel."""
        return max(len(panel.words) for panel in self.panels)

    @property
    def n_lines(self) -> float:
        """The height in lines: words, titles, and the gap to the next row."""
        n_title_lines = max(panel.title.count("\n") + 1 for panel in self.panels)
        return self.n_words + n_title_lines + ROW_GAP


def _rows_of_panels(groups: Mapping[str, Sequence[Panel]], columns: int) -> list[_Row]:
    """Cut groups of panels into rows, and the titles of panels into lines that fit.

    Parameters
    ----------
    groups : mapping of str to sequence of Panel
        The panels by the heading above the first row of a group.
    columns : int
        Panels in a row.
    """
    title_width = style.page_width() / columns - TITLE_GAP
    title_characters = int(title_width / (TITLE_WIDTH * _type_size()))
    rows = []
    for heading, group in groups.items():
        titled = []
        for panel in group:
            lines = [fill(line, title_characters) for line in panel.title.splitlines()]
            titled.append(replace(panel, title="\n".join(lines)))
        for start in range(0, len(titled), columns):
            rows.append(_Row("" if start else heading, titled[start : start + columns]))
    return rows


def _draw_rows(groups: Mapping[str, Sequence[Panel]], *texts: str) -> Figure:
    """Draw rows of panels, all with the same distance between words.

    Parameters
    ----------
    groups : mapping of str to sequence of Panel
        The panels by the heading above the first row of a group.
    *texts : str
        The texts above the figure.
    """
    panels = [panel for group in groups.values() for panel in group]
    glyphs = missing_glyphs(word for panel in panels for word in panel.words)
    rows = _rows_of_panels(groups, _columns(panels))
    n_lines = sum(row.n_lines for row in rows)
    figure = canvas(n_lines * LINE_HEIGHT * _type_size(), *texts)
    width = max(len(row.panels) for row in rows)
    heights = [row.n_words for row in rows]
    grid = figure.subplots(len(rows), width, squeeze=False, height_ratios=heights)
    for row, row_axes in zip(rows, grid, strict=True):
        for axes in row_axes[len(row.panels) :]:
            axes.remove()
        for axes, panel in zip(row_axes, row.panels, strict=False):
            _draw_panel(axes, panel, [word.translate(glyphs) for word in panel.words])
            axes.set_ylim(row.n_words - 0.5, -0.5)
        row_axes[0].annotate(
            row.heading, (style.LEFT_MARGIN / style.page_width(), 1),
            xycoords=("figure fraction", "axes fraction"), xytext=(0, 19),
            textcoords="offset points", fontweight="bold", fontsize=9.5, parse_math=False,
            in_layout=False,
        )  # fmt: skip
    return figure


def _draw_panel(axes: Axes, panel: Panel, words: Sequence[str]) -> None:
    """Draw the title, two columns of words, a line for each visible weight, and the links."""
    weight = "normal" if panel.links else "bold"
    axes.set_title(
        panel.title, loc="center", fontsize="medium", parse_math=False, fontweight=weight
    )
    colors = [style.TOKEN_COLORS[word_type] for word_type in panel.word_types]
    pairs = np.argwhere(panel.darkness >= MIN_DRAWN_DARKNESS)  # [line, query and key]
    queries, keys = pairs.T
    lines = LineCollection(
        [((0, query), (1, key)) for query, key in pairs],
        colors=[colors[key] for key in keys],  # each line has the colour of its key
        alpha=panel.darkness[queries, keys].clip(0, 1),
        linewidths=1.4,
        rasterized=len(pairs) > MAX_VECTOR_LINES,
    )
    axes.add_collection(lines, autolim=False)
    axes.set_frame_on(False)
    axes.set(xticks=[], xlim=(0, 1))
    axes.set_yticks(range(len(words)), words, parse_math=False)
    axes.tick_params(axis="y", length=0, labelright=True, labelsize="medium")
    labels = axes.get_yticklabels()  # on the left, then on the right
    for label, color in zip(labels, colors * 2, strict=True):
        label.set_color(color)
    for link in panel.links:
        link_style = LINK_STYLES[link.verdict]
        for label in (labels[link.attending], labels[len(words) + link.attended]):
            label.set(color=link_style["color"], fontweight="bold")
        axes.plot([0, 1], [link.attending, link.attended], zorder=3, **link_style)


def _short_examples(store: Store) -> list[Example]:
    """Choose sentences that are easy to read, or else those closest to them in length."""
    excess = []  # words that a sentence has too few or too many, and words that are too long
    for record in store.records():
        lengths = [len(word) for word in record.get("words") or record["tokens"]]
        too_long = sum(length > MAX_CHARACTERS for length in lengths)
        excess.append(max(MIN_WORDS - len(lengths), len(lengths) - MAX_WORDS, 0) + too_long)
    indices = np.flatnonzero(np.equal(excess, min(excess)))
    return [store[index] for index in indices[:MAX_CANDIDATES]]


def _is_plausible(record: Record, relation: str, paper_name: str) -> bool:
    """Check the annotation of a relation in a sentence by rules that need no second parser."""
    if paper_name not in BEHAVIOURS:
        return True
    closed_class = CLOSED_CLASSES.get(paper_name, "").split()
    relations = {question.word: question.relation for question in pair_questions(record)}
    tags = record.get("tags") or [None] * len(record["words"])
    for question in gold_links(record):
        if question.relation != relation:
            continue
        between = {relations.get(word) for word in range(question.word, question.gold[0])}
        if paper_name in FOLLOWS_HEAD and question.word < question.gold[0]:
            return False
        if paper_name == "dobj" and tags[question.gold[0]] not in {None, *VERBS}:
            return False
        if paper_name == "poss" and not COMPOUNDS.isdisjoint(between):
            return False
        if closed_class and record["words"][question.word].lower() not in closed_class:
            return False
    return True


def _clearest_panels(examples: Iterable[Example], location: MapLocation, title: str) -> list[Panel]:
    """Choose the two clearest panels where a head is right, and the clearest where it is wrong.

    Panels with two or more links come first, then those with the largest weights.  Panels whose
    right links are all between neighbours come last, because a fixed offset finds them, too.
    """

    def rank(panel: Panel) -> tuple[bool, bool, float]:
        weights = [panel.darkness[link[:2]] for link in panel.links if link.verdict != "missed"]
        gold = [link for link in panel.links if link.verdict != "wrong"]
        are_neighbours = all(abs(link.attending - link.attended) == 1 for link in gold)
        return are_neighbours, len(weights) < 2, -np.mean(weights or [0.0])

    panels: list[Panel] = []
    for example in examples:
        panels += _panels_of_example(example, location, title)
    panels.sort(key=rank)
    right = [panel for panel in panels if panel.correct]
    wrong = [panel for panel in panels if not panel.correct]
    return right[:2] + wrong[:1]


def _panels_of_example(example: Example, location: MapLocation, title: str) -> Iterator[Panel]:
    """Yield panels with the links of a relation in an example; ``location`` names the head.

    A sentence has one panel.  A document has one for each mention with an antecedent nearby.
    """
    record = example.record
    positions = example.word_positions
    weights = example.attention[location.layer - 1, location.head - 1, positions, positions]
    seen = example.visible_keys[location.layer - 1, positions, positions]
    relation = location.relation
    questions = [question for question in gold_links(record) if question.relation == relation]
    visible = [_visible_words(record, question) for question in questions]
    for words in dict.fromkeys(visible):  # in order, each once
        links: list[Link] = []
        for question in questions:
            direction = location.direction or DIRECTIONS[0]  # none is named for coreference
            links += _links(question, weights, seen, words, direction)
        if links:
            attending = [words[link.attending] for link in links]
            yield Panel(
                title,
                [record["words"][word] for word in words],
                ["other"] * len(words),
                weights[np.ix_(words, words)],
                location._replace(example=example.index),
                links=links,
                special_share=max(0.0, 1 - weights[attending].sum(axis=1).mean()),
            )


def _visible_words(record: Record, question: Question) -> range:
    """Choose the words to draw: a sentence, or a document's sentences up to the question's.

    As many sentences of a document are drawn as have `MAX_WORDS` words together.
    """
    words = record["words"]
    if "mentions" not in record:
        return range(len(words))
    ends = [index for index, word in enumerate(words, 1) if word in SENTENCE_ENDS]
    boundaries = [0, *ends, len(words)]
    stop = boundaries[bisect_right(boundaries, question.word)]
    return range(boundaries[bisect_left(boundaries, stop - MAX_WORDS)], stop)


def _links(
    question: Question,
    weights: Float[np.ndarray, "word word"],
    seen: Bool[np.ndarray, "word word"],
    words: range,
    direction: Direction,
) -> Iterator[Link]:
    """Yield the links of a question, if its words and the head's choice are drawn.

    There are none if the layer's mask hides the answer.  A head that picks nothing misses it.
    """
    picked, is_right = predict_link(question, weights, direction, seen)
    gold = [word for word in question.gold if word in words]
    are_drawn = question.query in words and picked in words and gold
    if are_drawn and sees_answer(question, seen, direction):
        choices = [(picked, "right")] if is_right else [(picked, "wrong"), (gold[-1], "missed")]
        for word, verdict in choices:
            if word == question.query:  # nothing is picked
                continue
            ends = [words.index(question.query), words.index(word)]
            if direction == DIRECTIONS[1]:  # heads attend to dependents
                ends.reverse()
            yield Link(*ends, verdict)
