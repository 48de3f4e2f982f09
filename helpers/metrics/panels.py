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

from helpers.data.links import COREFERENCE, read_links
from helpers.metrics.clustering import THRESHOLDS
from helpers.metrics.heads import (
    DIRECTIONS,
    Direction,
    layer_number,
    parse_head,
    picked_words,
    sees_answer,
)
from helpers.metrics.reference import BROAD, FIGURE_5
from helpers.store.store import Example, Store

MAX_WORDS = 14  # of a sentence that is easy to read as two columns
MAX_LETTERS = 11  # of its longest word
RELATIONS = 3  # in Figure 5; coreference has a row, too
OFFSET = "best fixed offset"  # of a rule


class MapLocation(NamedTuple):
    """The map of a panel: its example in a store, and the numbers of its layer and head, from 1."""

    example: int
    layer: int
    head: int
    relation: str = ""
    direction: Direction = DIRECTIONS[0]

    @property
    def label(self) -> str:
        """The label of the head."""
        return f"{self.layer}-{self.head}"


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
    is_checked : bool
        Whether the sentence's parse was checked by hand.
    """

    title: str
    words: Sequence[str]
    word_types: Sequence[str]
    weights: Float[np.ndarray, "query key"]
    location: MapLocation
    links: Sequence[Link] = ()
    special_share: float = 0.0
    scores: Mapping[str, float] = field(default_factory=dict)
    is_checked: bool = False

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
    names = {"previous": "the previous token", "next": "the next token"}
    if not any(np.allclose(heads["first"], heads[role]) for role in ("cls", "sep")):
        names["first"] = "the first token"
    names |= {role: token for role, token in store.special_tokens.items() if token}
    names["punctuation"] = "periods and commas"
    drawn = []  # column, row of the head, and what it does
    broadest = heads.loc[(heads["entropy"] / heads["uniform"]).idxmax()]
    if broadest["entropy"] >= BROAD * broadest["uniform"]:
        amount = f"{broadest['entropy']:.1f} of {broadest['uniform']:.1f} nats"
        drawn.append(("entropy", broadest, f"broad, {amount}"))
    for column, name in names.items():
        largest = heads.loc[heads[column].fillna(0).idxmax()]
        if largest[column] >= THRESHOLDS[column]:
            drawn.append((column, largest, f"{largest[column]:.0%} to {name}"))
    examples, _ = _readable_examples(store, chain(*checked_sentences().values()))
    example = next(examples)
    panels = []
    for column, row, behaviour in drawn:
        word_types = example.roles.kinds()
        if column == "first":
            word_types[0] = column
        location = MapLocation(example.index, int(row["layer"]), int(row["head"]))
        weights = example.attention[parse_head(location.label, store.layer_numbers)]
        title = f"Head {location.label}: {behaviour}"
        panels.append(Panel(title, example.tokens, word_types, weights, location))
    return panels


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
        The relations to draw, with the paper's name of each, or another.
    held_out : DataFrame, optional
        The table dependency_heads_held_out.csv.  The heads of its relations are those that were
        chosen on train, with accuracies on dev, also those of both rules.

    Returns
    -------
    list of Panel
    """
    rows = pd.concat([held_out, table])  # None is left out
    rows = rows.assign(paper_name=rows["relation"].map(dict(relations)))
    rows = rows.dropna(subset="paper_name").drop_duplicates("paper_name")
    rows["order"] = rows["paper_name"].map([*FIGURE_5, *relations.values()].index)
    panels = []
    for row in rows.sort_values("order", kind="stable").head(RELATIONS).itertuples():
        name = row.paper_name
        other = (f"{name}: words attend to their partners", f"{name}: partners attend to words")
        behaviour = _texts()["behaviours"].get(name, other)[DIRECTIONS.index(row.direction)]
        layer, head = map(int, row.head.split("-"))
        location = MapLocation(0, layer, head, row.relation, row.direction)
        examples, is_checked = _readable_examples(store, checked_sentences().get(name, []))
        pair = _success_and_failure(examples, location, f"Head {row.head}: {behaviour}")
        panels += [replace(panel, scores=_scores(row), is_checked=is_checked) for panel in pair]
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
    rows = table[table["type"] == "all"].drop_duplicates("system")
    accuracies = rows.set_index("system")["accuracy"]
    names = {"head": "this head (not held out)"}
    scores = accuracies.reindex(["head", "nearest mention", "rule-based"]).dropna().rename(names)
    number = layer_number(head[0], store.layer_numbers)
    location = MapLocation(0, number, head[1] + 1, COREFERENCE)
    title = f"Head {location.label}: mentions attend to their antecedents"
    pair = _success_and_failure(store, location, title)
    return [replace(panel, scores=scores.to_dict()) for panel in pair]


@cache
def _texts() -> dict[str, dict[str, list[str]]]:
    """Read what heads of relations do, and sentences, by the paper's name of the relation."""
    path = Path(__file__).with_name("panels.toml")
    return tomllib.loads(path.read_text(encoding="utf-8"))


def checked_sentences() -> dict[str, list[str]]:
    """List the sentences whose parses were checked by hand, by the paper's name of a relation."""
    return _texts()["sentences"]


def _readable_examples(store: Store, checked: Iterable[str]) -> tuple[Iterator[Example], bool]:
    """Yield the checked sentences that a store has, in the order of the list, or else short ones.

    If none is short, those closest to it in length are.  Also says whether they are checked.
    """
    sentences = [record.get("words") or record["tokens"] for record in store.records()]
    texts = list(map(" ".join, sentences))
    indices = [texts.index(text) for text in checked if text in texts]
    is_checked = bool(indices)
    if not is_checked:
        excess = list(map(_excess, sentences))
        indices = np.flatnonzero(np.equal(excess, min(excess))).tolist()
    return map(store.__getitem__, indices), is_checked


def _excess(words: Sequence[str]) -> int:
    """Count the words that a sentence has too few or too many, and those that are too long."""
    n_long = sum(len(word) > MAX_LETTERS for word in words)
    return max(8 - len(words), len(words) - MAX_WORDS, 0) + n_long


def _success_and_failure(
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
    positions = example.word_positions
    head = parse_head(location.label, example.layer_numbers)
    weights = example.attention[head][positions, positions]
    answers = answer_lines(example, location)
    if location.relation != COREFERENCE:
        answers = [list(chain(*answers))]
    for lines in filter(None, answers):
        end = lines[0].attending + 1 if location.relation == COREFERENCE else len(weights)
        first = max(0, end - MAX_WORDS) if location.relation == COREFERENCE else 0
        attending, attended, verdicts = zip(*lines, strict=True)
        if min(attending + attended) < first or max(attending + attended) >= end:
            continue
        ends = (np.array([attending, attended]) - first).tolist()
        yield Panel(
            title,
            example.record["words"][first:end],
            ["other"] * (end - first),
            weights[first:end, first:end],
            location._replace(example=example.index),
            list(map(Link, *ends, verdicts)),
            special_share=max(0.0, float(1 - weights[list(attending)].sum(axis=1).mean())),
        )


def answer_lines(example: Example, location: MapLocation) -> list[list[Link]]:
    """List the lines of each link of a relation of which the head can see an answer.

    They are the head's choice, if it has one, and the right word if that is another.
    """
    layer, head = parse_head(location.label, example.layer_numbers)
    words = example.word_positions
    weights = example.stored_attention[layer, head][words, words]
    visible = example.visible_keys[layer][words, words]
    links = read_links(example.record)
    direction = location.direction
    picked = picked_words(
        weights, links.query, direction=direction, candidates=links.candidates, visible=visible
    )
    is_drawn = (links.relation == location.relation) & sees_answer(links, visible, direction)
    answers = []
    for row in np.flatnonzero(is_drawn):
        query = int(links.query[row])
        gold = np.flatnonzero(links.gold[row])
        choices = {int(picked[row]): "right"}
        if picked[row] not in gold:
            choices = {int(picked[row]): "wrong", int(gold[-1]): "missed"}
        lines = []
        for word, verdict in choices.items():
            if word != query:  # otherwise nothing is picked
                ends = (query, word) if direction == DIRECTIONS[0] else (word, query)
                lines.append(Link(*ends, verdict))
        answers.append(lines)
    return answers
