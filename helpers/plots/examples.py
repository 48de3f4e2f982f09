"""Figures 1 and 5: maps of single sentences, chosen by their scores and drawn as in the paper.

The tokens stand in two columns.  A line goes from each token on the left to each token on the right
that it attends to.  How dark the line is, from white to black, is its weight, from 0 to 1; all
panels of all figures have this scale.
"""

from __future__ import annotations

import tomllib
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, cast

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from helpers.data.links import COREFERENCE, Links, read_links
from helpers.data.records import Record
from helpers.metrics.clustering import POSITION_SHARE, TOKEN_SHARE
from helpers.metrics.heads import (
    DIRECTIONS,
    Direction,
    by_head,
    head_label,
    is_right,
    parse_head,
    picked_words,
    sees_answer,
)
from helpers.metrics.reference import BROAD, FIGURE_5
from helpers.metrics.surface import example_values
from helpers.plots import style
from helpers.plots.heads import role_of_first_token
from helpers.plots.style import canvas, fill_lines, for_column, missing_glyphs
from helpers.store.store import Example, Store

MIN_WORDS = 8  # of a sentence that is easy to read as two columns
MAX_WORDS = 14
MAX_CHARACTERS = 15  # of its longest word, which fits into a panel without being cut
SENTENCE_ENDS = frozenset(".!?")
MAX_CANDIDATES = 400  # sentences to choose from

# Measures in units of the size of the type.
LINE_HEIGHT = 1.31  # from one word or line of a title to the next
WORD_WIDTH = 0.52  # of the average character of a word
TITLE_WIDTH = 0.63  # of the average character of a title, which may be bold
# Measures in inches.
LINES_WIDTH = 0.45  # between the two columns of words, with the gap to the next panel, at least
TITLE_GAP = 0.15  # between titles
ROW_GAP = 1.6  # lines, between rows of panels
MAX_COLUMNS = 3  # panels in a row of a page, at most
COLUMN_COLUMNS = 2  # panels in a row of a column of a paper, at most
RELATION_ROWS = 3  # relations in Figure 5, in the order of `FIGURE_5`; coreference has a row, too
COLUMN_ROWS = 2  # rows of panels in the Figure 5 for a column, at most
COLUMN_LINES_WIDTH = 0.3  # inches, in a column of a paper instead of LINES_WIDTH
CHECKED = "hand-checked"  # how sentences were chosen
BY_RULE = "by rule"
HERE = Path(__file__).parent
PAIR_TITLE_LINES = 2.6  # height of the heading of a row of Figure 5 and the titles of its panels
SCORE_STEP = 2.6  # lines, from one bar of Figure 5 to the next
SCORE_LINES = 8  # height of three bars
HEADING_POINTS = 12  # from a panel to the heading above its title, in a figure for a column
MIN_DRAWN_DARKNESS = 0.01  # a lighter line cannot be seen on white, even where lines cross
MAX_VECTOR_LINES = 1500  # an SVG with more lines than this holds them as an image

LINK_STYLES = {
    "right": {"label": "right choice", "color": style.RIGHT, "linewidth": 2.4},
    "wrong": {"label": "wrong choice", "color": style.WRONG, "linewidth": 2.4},
    "missed": {
        "label": "would be right (a mark, not a weight)", "color": style.WRONG, "linewidth": 1.2,
        "dashes": (3, 2),
    },
}  # fmt: skip
# Bars of Figure 5: of the head, of a fixed offset, and of another rule.
BAR_COLORS = (style.SERIES_COLORS[0], style.MUTED, style.SERIES_COLORS[1])
ONE_SCALE = "how dark a line is, from white to full colour, is its weight, from 0 to 1"

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
        The attention weights of one head.
    location : MapLocation
        The map in the store.
    links : sequence of Link
        All links of the relation between the words; empty in Figure 1.
    special_share : float
        The share of the linked words' attention that goes to special tokens, which are not drawn.
    scores : mapping of str to float
        Accuracies in percent for Figure 5, by their names: of the head, and of rules.  In Figure 1
        the average share of the head.
    chosen : {"hand-checked", "by rule"}
        How the sentence was chosen.
    """

    title: str
    words: Sequence[str]
    word_types: Sequence[str]
    darkness: Float[np.ndarray, "query key"]
    location: MapLocation
    links: Sequence[Link] = ()
    special_share: float = 0.0
    scores: Mapping[str, float] = field(default_factory=dict)
    chosen: str = BY_RULE

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
        Broad attention, the previous and the next token, the first token and each special one,
        and punctuation.  The head with the largest average of a pattern is drawn.  The title has
        its average, and says if it is below the threshold of the pattern in Figure 6.  All panels
        have the same short sentence, so that only the heads differ; it is one of ``figure5.toml``
        if the store has them.
    """
    names = {"first": "the first token", **store.special_tokens}
    present = heads.reindex(columns=["first", "cls", "sep"]).notna().any()
    if role_of_first_token(heads):
        present["first"] = False  # it is one of the others
    patterns = {
        "entropy": ("broad, {:.1f} of {:.1f} nats", BROAD),
        "previous": ("{:.0%} to the previous token", POSITION_SHARE),
        "next": ("{:.0%} to the next token", POSITION_SHARE),
        **{token: (f"{{:.0%}} to {names[token]}", TOKEN_SHARE) for token in present.index[present]},
        "punctuation": ("{:.0%} to periods and commas", TOKEN_SHARE),
    }
    uniform = by_head(heads, "uniform")
    strongest = {}  # head and title by pattern
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
                title += f"\n(the closest; a pattern from {least})"
            strongest[column] = (layer, head, title)
    example = _clearest_example(store, {name: head[:2] for name, head in strongest.items()})
    panels = []
    for column, (layer, head, title) in strongest.items():
        location = MapLocation(example.index, layer + 1, head + 1)
        word_types = example.roles.kinds()
        if column == "first":
            word_types[0] = column
        share = float(by_head(heads, column)[layer, head])
        scores = {} if column == "entropy" else {"share": share}
        weights = example.attention[layer, head]
        panels.append(Panel(title, example.tokens, word_types, weights, location, scores=scores))
    return panels


def _clearest_example(store: Store, heads: Mapping[str, tuple[int, int]]) -> Example:
    """Choose the sentence of Figure 1: the one with the most of all patterns together.

    A pattern counts as a share of the most that its head has of it in any sentence.
    """
    checked = _checked_examples(store)
    listed = {
        example.index: example
        for relation_examples in checked.values()
        for example in relation_examples
    }
    examples = list(listed.values()) or _short_examples(store)
    total = np.zeros(len(examples))
    values = [example_values(example, store.special_tokens) for example in examples]
    for column, (layer, head) in heads.items():
        amounts = [of_example[column][layer, head] for of_example in values]
        amounts = np.nan_to_num(amounts)
        total += amounts / max(amounts.max(), np.finfo(float).tiny)
    return examples[total.argmax()]


def relation_panels(
    store: Store,
    table: pd.DataFrame,
    relations: Mapping[str, str],
    *,
    english: bool,
    held_out: pd.DataFrame | None = None,
) -> list[Panel]:
    """Choose the panels of Figure 5 for relations: a success and a failure of each head.

    There are the first `RELATION_ROWS` relations that the treebank has, in the order of `FIGURE_5`,
    whatever the heads find.  If the treebank has sentences of ``figure5.toml``, which were checked
    by hand, the panels are the first of them in which the head is right about every pair of the
    relation, and the first in which it is not.  Otherwise see `_clearest_panels`.

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
    held_out : DataFrame, optional
        The table dependency_heads_held_out.csv.  The heads of its relations are those that were
        chosen on train, with accuracies on dev, also those of both rules.

    Returns
    -------
    list of Panel
    """
    rows = table if held_out is None else pd.concat([held_out, table])
    rows = rows.assign(paper_name=rows["relation"].map(dict(relations)))
    rows = rows.dropna(subset="paper_name").drop_duplicates("paper_name")
    order = rows["paper_name"].map([*FIGURE_5, *relations.values()].index)
    rows = rows.loc[order.sort_values(kind="stable").index].head(RELATION_ROWS)
    checked = _checked_examples(store)
    examples = _short_examples(store)
    panels = []
    for row in rows.itertuples():
        paper_name = row.paper_name
        behaviours = BEHAVIOURS.get(
            paper_name, [f"{paper_name}: {text}" for text in OTHER_BEHAVIOUR]
        )
        behaviour = behaviours[DIRECTIONS.index(row.direction)]
        scores = _scores(row)
        accuracy, baseline = list(scores.values())[:2]
        title = f"Head {row.head}: {behaviour}, {accuracy:.0f}% (best fixed offset {baseline:.0f}%)"
        layer, head = parse_head(row.head)
        location = MapLocation(0, layer + 1, head + 1, row.relation, row.direction)
        if checked.get(paper_name):
            chosen = CHECKED
            pair = _first_panels(checked[paper_name], location, title)
        else:
            chosen = BY_RULE
            plausible = [
                example for example in examples
                if not english or _is_plausible(example.record, row.relation, paper_name)
            ]  # fmt: skip
            pair = _clearest_panels(plausible, location, title)
        panels += [replace(panel, scores=scores, chosen=chosen) for panel in pair]
    return panels


def _scores(row: Any) -> dict[str, float]:
    """List the accuracies of a row of dependency_heads.csv, or of the table of held-out ones."""
    if pd.isna(getattr(row, "dev_accuracy", None)):
        return {"head": row.accuracy, "best fixed offset": row.baseline}
    scores = {"head, held out": row.dev_accuracy, "best fixed offset": row.baseline}
    if pd.notna(getattr(row, "nearest_class", None)):  # older tables do not have it
        rule = f"nearest {row.nearest_class} on the {row.nearest_side}"
        scores[rule] = row.nearest_accuracy
    return scores


@cache
def checked_sentences() -> dict[str, list[str]]:
    """Read the sentences whose parses were checked by hand, by the paper's name of a relation."""
    return tomllib.loads((HERE / "figure5.toml").read_text(encoding="utf-8"))


def _checked_examples(store: Store) -> dict[str, list[Example]]:
    """Find the hand-checked sentences of each relation in a treebank, in the order of the list."""
    sentences = checked_sentences()
    listed = {
        sentence for relation_sentences in sentences.values() for sentence in relation_sentences
    }
    indices = {}
    for index, record in enumerate(store.records()):
        text = " ".join(record.get("words") or record["tokens"])
        if text in listed:
            indices.setdefault(text, index)
    examples = defaultdict(list)
    for relation, relation_sentences in sentences.items():
        examples[relation] = [
            store[indices[text]] for text in relation_sentences if text in indices
        ]
    return examples


def coreference_panels(
    store: Store, head: tuple[int, int], accuracy: float, *, table: pd.DataFrame | None = None
) -> list[Panel]:
    """Choose the panels of Figure 5 for coreference: a success and a failure of a head.

    Parameters
    ----------
    store : Store
        A word-level store of coreference documents.
    head : (int, int)
        Layer and head, from 0.
    accuracy : float
        The head's accuracy in percent, for the title.
    table : DataFrame, optional
        The table coreference.csv, for the accuracies of the rules on the same mentions.

    Returns
    -------
    list of Panel
        See `_clearest_panels`.
    """
    title = f"Head {head_label(*head)}: mentions attend to their antecedents, {accuracy:.0f}%"
    location = MapLocation(0, head[0] + 1, head[1] + 1, COREFERENCE)
    scores = {"head (not held out)": accuracy}
    if table is not None:
        baselines = table[(table["type"] == "all") & (table["head"].fillna("") == "")]
        accuracies = baselines.set_index("system")["accuracy"]
        for system in ("nearest mention", "rule-based"):
            if system in accuracies:
                scores[system] = accuracies[system]
    panels = _clearest_panels(store, location, title)
    return [replace(panel, scores=scores) for panel in panels]


def describe_choice(panels: Sequence[Panel]) -> str:
    """Describe how the sentences of Figure 5 were chosen, for its caption."""
    syntactic = [panel for panel in panels if panel.location.relation != COREFERENCE]
    if any(panel.chosen == CHECKED for panel in syntactic):
        return (
            "The sentences are the first of a list with hand-checked parses in which the head is "
            "right about every pair of the relation, and in which it is not."
        )
    return (
        "The sentences were chosen by rule, those with the largest weights first; wrong parses can "
        "remain."
    )


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
    subtitle = f"{style.WEIGHT_NAMES[lens]} of tokens (left) to tokens (right)"
    clearest = max(panels, key=lambda panel: panel.scores.get("share", 0.0), default=None)
    finding = clearest.title.split("\n")[0] if clearest else "No pattern"
    return _draw_rows({"": panels}, f"Figure 1 · {finding}", model, subtitle, ONE_SCALE)


@for_column
def fig5_heads(panels: Sequence[Panel], *, model: str = "", lens: str = "attention") -> Figure:
    """Draw Figure 5 (section 4): a success and a failure of single heads, a head in each row.

    Every link of the relation has a coloured line, as dark as its weight.  Where the head is wrong,
    its own choice has a line, and a thin dashed one marks the right one.  As for the paper's head
    9-6, attention to special tokens is not drawn; the title of a panel has its share.  On the right
    are the accuracies of the head and of rules.  For a column of a paper, the figure has
    `COLUMN_ROWS` rows at most, and the accuracies are in the headings.

    Parameters
    ----------
    panels : sequence of Panel
        The `relation_panels` and `coreference_panels`.
    model : str, optional
        Name of the model, for the subtitle.
    lens : {"attention", "norm"}, optional
        The lens of the maps, for the subtitle.
    """
    groups: dict[str, list[Panel]] = defaultdict(list)
    for panel in panels:
        groups[panel.title].append(panel)
    title = _fig5_title(panels)
    if not panels:
        needs = "a relation of the paper's Figure 5, frequent enough, or mentions near antecedents"
        return canvas(0.1, title, model, "nothing to draw", note=f"It would need {needs}.")
    subtitle = f"{style.WEIGHT_NAMES[lens]} of words (left) to words (right), not to special tokens"
    choice = {panel.chosen for panel in panels if panel.location.relation != COREFERENCE}
    sentences = f"sentences: {' and '.join(sorted(choice))}" if choice else ""
    if style.in_column():
        return _fig5_for_column(groups)
    rows = [_PairRow.of_panels(group) for group in groups.values()]
    n_lines = sum(row.n_lines for row in rows)
    figure = canvas(
        n_lines * LINE_HEIGHT * _type_size() + 0.3, title, model, subtitle, ONE_SCALE, sentences
    )
    glyphs = missing_glyphs(word for panel in panels for word in panel.words)
    grid = figure.subplots(
        len(rows), 3, squeeze=False, height_ratios=[row.n_words for row in rows],
        width_ratios=[1, 1, 0.95],
    )  # fmt: skip
    for row, (*panel_axes, bar_axes) in zip(rows, grid, strict=True):
        _draw_pair(row, panel_axes, glyphs)
        _draw_scores(bar_axes, row)
        panel_axes[0].annotate(
            row.heading, (style.LEFT_MARGIN / style.page_width(), 1),
            xycoords=("figure fraction", "axes fraction"), xytext=(0, 19),
            textcoords="offset points", fontweight="bold", fontsize=9.5, parse_math=False,
            in_layout=False,
        )  # fmt: skip
    _link_legend(figure)
    return figure


def _link_legend(figure: Figure) -> None:
    """Put the legend of the coloured lines below Figure 5."""
    handles = {}
    for link_style in LINK_STYLES.values():
        handles[link_style["label"]] = Line2D([], [], **link_style)
    columns = 1 if style.in_column() else 3
    figure.legend(handles=handles.values(), loc="outside lower left", ncols=columns)


class _PairRow(NamedTuple):
    """The row of a head in Figure 5: a panel in which it is right, and one in which it is wrong."""

    heading: str
    right: Panel | None
    wrong: Panel | None
    scores: Mapping[str, float]

    @classmethod
    def of_panels(cls, panels: Sequence[Panel]) -> _PairRow:
        """Arrange the panels of a head; its accuracy is not in the heading, but in the bars."""
        first = panels[0]
        heading = first.title.rpartition(", ")[0] if first.scores else first.title
        if first.location.direction == DIRECTIONS[1]:
            heading += " (which word attends most to the dependent?)"
        right = next((panel for panel in panels if panel.correct), None)
        wrong = next((panel for panel in panels if not panel.correct), None)
        return cls(heading, right, wrong, first.scores)

    @property
    def panels(self) -> list[Panel]:
        """The panels that there are."""
        return [panel for panel in (self.right, self.wrong) if panel is not None]

    @property
    def n_words(self) -> int:
        """The number of words of the longer panel, or what the bars need."""
        return max(SCORE_LINES, *(len(panel.words) for panel in self.panels))

    @property
    def n_lines(self) -> float:
        """The height in lines: words, heading, titles, and the gap to the next row."""
        return self.n_words + PAIR_TITLE_LINES + ROW_GAP


def _fig5_title(panels: Sequence[Panel]) -> str:
    """Write the title of Figure 5: the head that is the furthest beyond a fixed offset."""
    leads = {}
    for panel in panels:
        scores = list(panel.scores.values())
        if panel.location.relation != COREFERENCE and len(scores) > 1:
            leads[scores[0] - scores[1]] = panel
    if not leads:
        return "Figure 5 · What single heads find"
    best = leads[max(leads)]
    heading = best.title.rpartition(", ")[0]
    (_, accuracy), *rules = best.scores.items()
    rule_scores = ", ".join(f"{name} {value:.0f}%" for name, value in rules)
    return f"Figure 5 · {heading}, {accuracy:.0f}%; {rule_scores}"


def _draw_pair(row: _PairRow, pair_axes: Sequence[Axes], glyphs: Mapping[int, str]) -> None:
    """Draw the panels of a row of Figure 5; one that is missing says so."""
    for axes, panel, mark in zip(pair_axes, (row.right, row.wrong), "✓✗", strict=True):
        if panel is None:
            axes.set_axis_off()
            missing = f"{mark} none among the\nsentences looked at"
            axes.text(0.5, 0.5, missing, ha="center", va="center", color=style.MUTED)
            continue
        # The heading of the row stands in the first line of the titles.
        title = f"\n{mark} {panel.special_share:.0%} to special tokens"
        words = [word.translate(glyphs) for word in panel.words]
        _draw_panel(axes, replace(panel, title=title), words)
        axes.set_ylim(row.n_words - 0.5, -0.5)


def _draw_scores(axes: Axes, row: _PairRow) -> None:
    """Draw the accuracies of a head and of rules as bars, each on a track of 100%."""
    axes.set_axis_off()
    axes.set(xlim=(0, 100), ylim=(row.n_words - 0.5, -0.5))
    for number, ((name, value), color) in enumerate(
        zip(row.scores.items(), BAR_COLORS, strict=False)
    ):
        y = SCORE_STEP * number + 1
        axes.barh(y, 100, height=0.7, color="#EEEEEE")
        axes.barh(y, value, height=0.7, color=color)
        axes.text(0, y - 0.55, f"{name}: {value:.0f}%", va="bottom", parse_math=False)


def _fig5_for_column(groups: Mapping[str, Sequence[Panel]]) -> Figure:
    """Draw the first rows of Figure 5 that fit next to each other into a column, or one row."""
    pairs = [_PairRow.of_panels(group) for group in groups.values()]
    pairs = [pair for pair in pairs if pair.panels]
    fitting = [pair for pair in pairs if _pair_width(pair) <= style.COLUMN_WIDTH]
    drawn = fitting[:COLUMN_ROWS] or pairs[:1]
    columns = 2 if fitting else 1
    rows: dict[str, list[Panel]] = {}
    for pair in drawn:
        scores = ", ".join(f"{name} {value:.0f}%" for name, value in pair.scores.items())
        letters = int(style.COLUMN_WIDTH / (TITLE_WIDTH * _type_size()))
        heading = fill_lines(f"{pair.heading}\n{scores}".strip(), letters)
        gap = "\n" * (heading.count("\n") + 1)  # where the heading stands
        titled = []
        for panel in pair.panels:
            mark = "✓" if panel.correct else "✗"
            title = f"{mark} {panel.special_share:.0%} to special tokens"
            titled.append(replace(panel, title=gap + title))
        rows[heading] = titled
    figure = _draw_rows(rows, "", columns=columns)
    _link_legend(figure)
    return figure


def _pair_width(pair: _PairRow) -> float:
    """Estimate the width in inches of two panels next to each other."""
    letters = max(map(_longest_word, pair.panels))
    return 2 * (2 * letters * WORD_WIDTH * _type_size() + COLUMN_LINES_WIDTH)


def _longest_word(panel: Panel) -> int:
    """Count the characters of a panel's longest word."""
    return max(len(word) for word in panel.words)


def _columns(panels: Sequence[Panel]) -> int:
    """Choose how many panels a row has: as many as the longest words leave room for.

    A row has fewer if no more rows are needed then, so that the last row is not much shorter.
    """
    longest_word = max(map(_longest_word, panels), default=MAX_CHARACTERS)
    lines_width = COLUMN_LINES_WIDTH if style.in_column() else LINES_WIDTH
    panel_width = 2 * longest_word * WORD_WIDTH * _type_size() + lines_width
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
            title = fill_lines(panel.title, title_characters)
            titled.append(replace(panel, title=title))
        for start in range(0, len(titled), columns):
            rows.append(_Row("" if start else heading, titled[start : start + columns]))
    return rows


def _draw_rows(
    groups: Mapping[str, Sequence[Panel]], *texts: str, columns: int | None = None
) -> Figure:
    """Draw rows of panels, all with the same distance between words.

    Parameters
    ----------
    groups : mapping of str to sequence of Panel
        The panels by the heading above the first row of a group.
    *texts : str
        The texts above the figure.
    columns : int, optional
        Panels in a row; by default as many as there is room for.
    """
    panels = [panel for group in groups.values() for panel in group]
    glyphs = missing_glyphs(word for panel in panels for word in panel.words)
    rows = _rows_of_panels(groups, columns or _columns(panels))
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
            xycoords=("figure fraction", "axes fraction"), xytext=(0, HEADING_POINTS),
            textcoords="offset points", fontweight="bold", va="bottom", parse_math=False,
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
        weight = float(np.clip(panel.darkness[link.attending, link.attended], 0, 1))
        alpha = None if link.verdict == "missed" else weight
        line = {name: value for name, value in link_style.items() if name != "label"}
        axes.plot([0, 1], [link.attending, link.attended], zorder=3, alpha=alpha, **line)


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
    tags = record.get("tags") or [None] * len(record["words"])
    links = read_links(record)
    relations = dict(zip(links.word.tolist(), links.relation, strict=True))
    for row in np.flatnonzero((links.relation == relation) & ~links.is_root):
        dependent, parent = int(links.word[row]), int(links.gold[row].argmax())
        between = {relations.get(word) for word in range(dependent, parent)}
        if paper_name in FOLLOWS_HEAD and dependent < parent:
            return False
        if paper_name == "dobj" and tags[parent] not in {None, *VERBS}:
            return False
        if paper_name == "poss" and not COMPOUNDS.isdisjoint(between):
            return False
        if closed_class and record["words"][dependent].lower() not in closed_class:
            return False
    return True


def _clearest_panels(examples: Iterable[Example], location: MapLocation, title: str) -> list[Panel]:
    """Choose the clearest panel where a head is right, and the clearest where it is wrong.

    Panels with two or more links come first, then those with the largest weights.  Panels whose
    right links are all between neighbours come last, because a fixed offset finds them, too.
    """

    def rank(panel: Panel) -> tuple[bool, bool, float]:
        weights = [panel.darkness[link[:2]] for link in panel.links if link.verdict != "missed"]
        gold = [link for link in panel.links if link.verdict != "wrong"]
        are_neighbours = all(abs(link.attending - link.attended) == 1 for link in gold)
        return are_neighbours, len(weights) < 2, -float(np.mean(weights or [0.0]))

    panels: list[Panel] = []
    for example in examples:
        panels += _panels_of_example(example, location, title)
    panels.sort(key=rank)
    right = [panel for panel in panels if panel.correct]
    wrong = [panel for panel in panels if not panel.correct]
    return right[:1] + wrong[:1]


def _first_panels(examples: Iterable[Example], location: MapLocation, title: str) -> list[Panel]:
    """Choose the first panel where a head is right, and the first where it is wrong."""
    panels: list[Panel] = []
    for example in examples:
        panels += _panels_of_example(example, location, title)
    right = [panel for panel in panels if panel.correct]
    wrong = [panel for panel in panels if not panel.correct]
    return right[:1] + wrong[:1]


def _panels_of_example(example: Example, location: MapLocation, title: str) -> Iterator[Panel]:
    """Yield panels with the links of a relation in an example; ``location`` names the head.

    A sentence has one panel.  A document has one for each mention with an antecedent nearby.
    """
    record = example.record
    positions = example.word_positions
    weights = example.attention[location.layer - 1, location.head - 1, positions, positions]
    seen = example.visible_keys[location.layer - 1, positions, positions]
    relation = location.relation
    annotated = read_links(record)
    rows = np.flatnonzero((annotated.relation == relation) & ~annotated.is_root)
    visible = [_visible_words(record, int(word)) for word in annotated.word[rows]]
    direction = cast("Direction", location.direction or DIRECTIONS[0])  # none for coreference
    for words in dict.fromkeys(visible):  # in order, each once
        links: list[Link] = []
        for row in rows:
            links += _links(annotated, int(row), weights, seen, words, direction)
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


def _visible_words(record: Record, asked: int) -> range:
    """Choose the words to draw: a sentence, or a document's sentences up to the question's.

    As many sentences of a document are drawn as have `MAX_WORDS` words together.
    """
    words = record["words"]
    if "mentions" not in record:
        return range(len(words))
    ends = [index for index, word in enumerate(words, 1) if word in SENTENCE_ENDS]
    boundaries = [0, *ends, len(words)]
    stop = boundaries[bisect_right(boundaries, asked)]
    return range(boundaries[bisect_left(boundaries, stop - MAX_WORDS)], stop)


def _links(
    annotated: Links,
    row: int,
    weights: Float[np.ndarray, "word word"],
    seen: Bool[np.ndarray, "word word"],
    words: range,
    direction: Direction,
) -> Iterator[Link]:
    """Yield the links of a question, if its words and the head's choice are drawn.

    There are none if the layer's mask hides the answer.  A head that picks nothing misses it.
    """
    link = Links(*(values[[row]] for values in annotated))
    picks = picked_words(
        weights, link.query, direction=direction, candidates=link.candidates, visible=seen
    )
    query, picked = int(link.query[0]), int(picks[0])
    gold = [word for word in np.flatnonzero(link.gold[0]) if word in words]
    are_drawn = query in words and picked in words and gold
    if are_drawn and sees_answer(link, seen, direction)[0]:
        right = is_right(picks, link)[0]
        choices = [(picked, "right")] if right else [(picked, "wrong"), (int(gold[-1]), "missed")]
        for word, verdict in choices:
            if word == query:  # nothing is picked
                continue
            attending = words.index(query)
            attended = words.index(word)
            if direction == DIRECTIONS[1]:  # heads attend to dependents
                attending, attended = attended, attending
            yield Link(attending, attended, verdict)
