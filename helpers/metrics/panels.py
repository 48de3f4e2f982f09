"""Panels of Figures 1 and 5: which sentence shows a head, and what the head does in it.

Sentences that show relations are the first of a list that was checked by hand (``panels.toml``), if
the corpus has them, and otherwise its first short ones.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float

from helpers.data.links import COREFERENCE, Links, read_links
from helpers.data.records import Record
from helpers.metrics.clustering import POSITION_SHARE, TOKEN_SHARE
from helpers.metrics.heads import (
    DIRECTIONS,
    Direction,
    by_dependent,
    by_head,
    head_label,
    parse_head,
    picked_words,
)
from helpers.metrics.reference import BROAD, FIGURE_5
from helpers.metrics.statistics import Whole
from helpers.store.store import Example, Store

MIN_WORDS = 8  # of a sentence that is easy to read as two columns
MAX_WORDS = 14
MAX_LETTERS = 11  # of its longest word
RELATIONS = 3  # in Figure 5; coreference has a row, too
CHECKED = "hand-checked"  # how sentences were chosen
BY_RULE = "by rule"
OFFSET = "best fixed offset"  # of a rule
HERE = Path(__file__).parent
# What the heads of Figure 5 do, by the paper's name of the relation: read from the dependent, and
# from its parent.
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


class MapLocation(NamedTuple):
    """The map of a panel: its example in a store, and its layer and head from 1."""

    example: int
    layer: int
    head: int
    relation: str = ""
    direction: Direction = DIRECTIONS[0]


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
        What the head does.  In Figure 5, panels of one head have the same title.
    words : sequence of str
        The tokens or words.
    word_types : sequence of str
        The type of each word, which colours the word and the attention to it.
    weights : array, shape (query, key)
        The attention weights of one head.
    location : MapLocation
        The map in the store.
    links : sequence of Link
        All links of the relation between the words; empty in Figure 1.
    special_share : float
        The share of the linked words' attention that goes to special tokens, which are not drawn.
    scores : mapping of str to float
        For Figure 5, accuracies in percent by their names: of the head, and of rules.
    chosen : {"hand-checked", "by rule"}
        How the sentence was chosen.
    """

    title: str
    words: Sequence[str]
    word_types: Sequence[str]
    weights: Float[np.ndarray, "query key"]
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
    """Choose the panels of Figure 1: one head for each pattern of section 3 that the model has.

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
        and punctuation, if a head reaches the pattern's threshold in Figure 6.  The head with the
        largest average is drawn, all on the same sentence.
    """
    is_special = any(np.allclose(heads["first"], heads[role]) for role in ("cls", "sep"))
    tokens = {"first": None if is_special else "the first token", **store.special_tokens}
    patterns = {"previous": (POSITION_SHARE, "the previous token")}
    patterns["next"] = (POSITION_SHARE, "the next token")
    patterns |= {role: (TOKEN_SHARE, token) for role, token in tokens.items() if token}
    patterns["punctuation"] = (TOKEN_SHARE, "periods and commas")
    uniform = by_head(heads, "uniform")
    entropy = by_head(heads, "entropy")
    drawn = []  # column, head, and what it does
    broadest = _largest(entropy / uniform)
    if entropy[broadest] >= BROAD * uniform[broadest]:
        amount = f"{entropy[broadest]:.1f} of {uniform[broadest]:.1f} nats"
        drawn.append(("entropy", broadest, f"broad, {amount}"))
    for column, (threshold, name) in patterns.items():
        shares = np.nan_to_num(by_head(heads, column))
        largest = _largest(shares)
        if shares[largest] >= threshold:
            drawn.append((column, largest, f"{shares[largest]:.0%} to {name}"))
    listed = chain.from_iterable(_listed_examples(store, name) for name in checked_sentences())
    example = next(chain(listed, _short_examples(store)))
    panels = []
    for column, (layer, head), behaviour in drawn:
        word_types = example.roles.kinds()
        if column == "first":
            word_types[0] = column
        location = MapLocation(example.index, layer + 1, head + 1)
        title = f"Head {head_label(layer, head)}: {behaviour}"
        weights = example.attention[layer, head]
        panels.append(Panel(title, example.tokens, word_types, weights, location))
    return panels


def _largest(values: Float[np.ndarray, "layer head"]) -> tuple[int, int]:
    """Find the head with the largest value."""
    layer, head = np.unravel_index(values.argmax(), values.shape)
    return int(layer), int(head)


def relation_panels(
    store: Store,
    table: pd.DataFrame,
    relations: Mapping[str, str],
    *,
    held_out: pd.DataFrame | None = None,
) -> list[Panel]:
    """Choose the panels of Figure 5 for relations: a success and a failure of each head.

    There are the first `RELATIONS` relations that the treebank has, in the order of `FIGURE_5`,
    whatever the heads find.  The panels are the first sentence in which the head is right about
    every pair of the relation, and the first in which it is not.

    Parameters
    ----------
    store : Store
        A word-level store of a treebank.
    table : DataFrame
        The table dependency_heads.csv.
    relations : mapping of str to str
        The relations to draw, with the paper's name of each, a key of `BEHAVIOURS`, or another.
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
    panels = []
    for row in rows.loc[order.sort_values(kind="stable").index].head(RELATIONS).itertuples():
        name = row.paper_name
        behaviours = BEHAVIOURS.get(name, [f"{name}: {text}" for text in OTHER_BEHAVIOUR])
        layer, head = parse_head(row.head)
        location = MapLocation(0, layer + 1, head + 1, row.relation, row.direction)
        title = f"Head {row.head}: {behaviours[DIRECTIONS.index(row.direction)]}"
        checked = _listed_examples(store, name)
        pair = success_and_failure(checked or _short_examples(store), location, title)
        chosen = CHECKED if checked else BY_RULE
        panels += [replace(panel, scores=_scores(row), chosen=chosen) for panel in pair]
    return panels


def _scores(row: Any) -> dict[str, float]:
    """List the accuracies of a row of dependency_heads.csv, or of the table of held-out ones."""
    if pd.isna(getattr(row, "dev_accuracy", None)):
        return {"this head": row.accuracy, OFFSET: row.baseline}
    scores = {"this head, held out": row.dev_accuracy, OFFSET: row.baseline}
    if pd.notna(row.nearest_class):
        name = {"ADP": "preposition"}.get(row.nearest_class, row.nearest_class.lower())
        scores[f"nearest {name} on the {row.nearest_side}"] = row.nearest_accuracy
    return scores


def coreference_panels(store: Store, head: tuple[int, int], table: pd.DataFrame) -> list[Panel]:
    """Choose the panels of Figure 5 for coreference: a success and a failure of a head.

    They are the first mentions whose antecedent and whose pick are both among the `MAX_WORDS` words
    up to the mention.

    Parameters
    ----------
    store : Store
        A word-level store of coreference documents.
    head : (int, int)
        Layer and head, from 0.
    table : DataFrame
        The table coreference.csv, for the accuracies of the head and of rules.

    Returns
    -------
    list of Panel
    """
    accuracies = (
        table[table["type"] == "all"].drop_duplicates("system").set_index("system")["accuracy"]
    )
    names = {"head": "this head (not held out)"}
    scores = accuracies.reindex(["head", "nearest mention", "rule-based"]).dropna().rename(names)
    title = f"Head {head_label(*head)}: mentions attend to their antecedents"
    location = MapLocation(0, head[0] + 1, head[1] + 1, COREFERENCE)
    pair = success_and_failure(store, location, title)
    return [replace(panel, scores=scores.to_dict()) for panel in pair]


def describe_choice(panels: Sequence[Panel]) -> str:
    """Describe how the sentences of Figure 5 were chosen, for its caption."""
    source = "the corpus"
    if any(panel.chosen == CHECKED for panel in panels):
        source = "a list with hand-checked parses"
    return (
        f"The sentences are the first short ones of {source} in which the head is right about "
        "every pair of the relation, and in which it is not."
    )


@cache
def checked_sentences() -> dict[str, list[str]]:
    """Read the sentences whose parses were checked by hand, by the paper's name of a relation."""
    return tomllib.loads((HERE / "panels.toml").read_text(encoding="utf-8"))


def _listed_examples(store: Store, relation: str) -> list[Example]:
    """Find the hand-checked sentences of a relation in a treebank, in the order of the list."""
    listed = checked_sentences().get(relation, [])
    texts = [" ".join(_words(record)) for record in store.records()]
    return [store[texts.index(text)] for text in listed if text in texts]


def _short_examples(store: Store) -> Iterator[Example]:
    """Yield sentences that are easy to read, or else those closest to them in length."""
    excess = []  # words that a sentence has too few or too many, and words that are too long
    for record in store.records():
        lengths = [len(word) for word in _words(record)]
        n_long = sum(length > MAX_LETTERS for length in lengths)
        excess.append(max(MIN_WORDS - len(lengths), len(lengths) - MAX_WORDS, 0) + n_long)
    for index in np.flatnonzero(np.equal(excess, min(excess))):
        yield store[int(index)]


def _words(record: Record) -> list[str]:
    """Return the words of a record, or its tokens."""
    return record.get("words") or record["tokens"]


def success_and_failure(
    examples: Iterable[Example], location: MapLocation, title: str
) -> list[Panel]:
    """Choose the first panel where a head is right, and the first where it is wrong."""
    pair: dict[bool, Panel] = {}
    for example in examples:
        for panel in _panels_of_example(example, location, title):
            pair.setdefault(panel.correct, panel)
        if len(pair) == 2:
            break
    return [pair[correct] for correct in (True, False) if correct in pair]


def _panels_of_example(example: Example, location: MapLocation, title: str) -> Iterator[Panel]:
    """Yield the panel of a sentence, or that of each mention of a document."""
    words = example.record["words"]
    positions = example.word_positions
    layer, head = location.layer - 1, location.head - 1
    weights = example.attention[layer, head][positions, positions]
    visible = example.visible_keys[layer][positions, positions]
    links = read_links(example.record)
    picked = picked_words(
        weights, links.query, direction=location.direction, candidates=links.candidates,
        visible=visible,
    )  # fmt: skip
    sees_answer = (by_dependent(visible, location.direction)[links.query] & links.gold).any(axis=1)
    rows = np.flatnonzero((links.relation == location.relation) & sees_answer)
    parts = [(rows, range(len(words)))]
    if location.relation == COREFERENCE:
        ends = links.query[rows] + 1
        parts = [
            (row, range(max(0, end - MAX_WORDS), end))
            for row, end in zip(rows[:, None], ends, strict=True)
        ]
    for part, shown in parts:
        drawn = [
            link for row in part for link in _links(links, row, picked[row], location.direction)
        ]
        ends_of_links = {word for link in drawn for word in link[:2]}
        if not drawn or not ends_of_links <= set(shown):
            continue
        attending = [link.attending for link in drawn]
        yield Panel(
            title,
            [words[word] for word in shown],
            ["other"] * len(shown),
            weights[np.ix_(shown, shown)],
            location._replace(example=example.index),
            [Link(link[0] - shown[0], link[1] - shown[0], link.verdict) for link in drawn],
            special_share=max(0.0, float(1 - weights[attending].sum(axis=1).mean())),
        )


def _links(links: Links, row: Whole, picked: Whole, direction: Direction) -> list[Link]:
    """Make a line of a link: the head's choice, and the right one if it is another."""
    query = links.query[row]
    gold = np.flatnonzero(links.gold[row])
    choices = [(picked, "right")] if picked in gold else [(picked, "wrong"), (gold[-1], "missed")]
    drawn = []
    for word, verdict in choices:
        if word != query:  # otherwise nothing is picked
            ends = (query, word) if direction == DIRECTIONS[0] else (word, query)
            drawn.append(Link(int(ends[0]), int(ends[1]), verdict))
    return drawn
