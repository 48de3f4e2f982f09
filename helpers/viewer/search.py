"""What an annotated example asks of a head, and how one head answers (sections 4.2 and 4.3).

The rules are those of `helpers.analysis.dependency_heads` and `helpers.analysis.coreference`,
word by word for one head, so that single answers can be looked at and searched for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from helpers.analysis.dependency_heads import (
    DIRECTIONS,
    POSSESSIVE_MARKS,
    POSSESSIVE_RELATIONS,
    Direction,
)
from helpers.analysis.heads import head_label
from helpers.errors import InputError
from helpers.store.store import Source

COREFERENCE = "coreference"  # the name of the one relation of a coreference corpus
COLUMNS = ("example", "asked", "word", "relation", "picked", "gold", "right")

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Question:
    """Which word belongs to word ``asked``?  All words are counted from 0, special tokens not.

    For a syntactic relation ``asked`` is the dependent and ``gold`` its head; ``mark`` is the 's
    of a possessor, which may answer for it.  For coreference ``asked`` is a mention's head word,
    ``gold`` the head words of its antecedents, and only ``candidates`` can be picked.
    """

    relation: str
    asked: int
    gold: tuple[int, ...]
    mark: int | None = None
    candidates: tuple[int, ...] | None = None


def questions(record: Record) -> list[Question]:
    """Return the questions of a record: none where the corpus has no annotation."""
    if "relations" in record:
        return list(_syntax(record))
    return list(_coreference(record)) if "mentions" in record else []


def _syntax(record: Record) -> Iterator[Question]:
    heads, relations, words = record["heads"], record["relations"], record["words"]
    marks = {head - 1: i for i, head in enumerate(heads) if words[i] in POSSESSIVE_MARKS}
    for word, (head, relation) in enumerate(zip(heads, relations, strict=True)):
        mark = marks.get(word) if relation in POSSESSIVE_RELATIONS else None
        if head > 0:
            yield Question(relation, word, (head - 1,), mark)


def _coreference(record: Record) -> Iterator[Question]:
    mentions = sorted(record["mentions"], key=lambda mention: (mention[0], mention[1]))
    for number, (_, _, chain, asked) in enumerate(mentions):
        earlier = [m[3] for m in mentions[:number] if m[2] == chain] if chain is not None else []
        if earlier:
            others = {m[3] for i, m in enumerate(mentions) if i != number} - {asked}
            gold = tuple(sorted(set(earlier) - {asked}))
            yield Question(COREFERENCE, asked, gold, candidates=tuple(sorted(others)))


def answer(
    question: Question, weights: Float[np.ndarray, "word word"], direction: Direction
) -> tuple[int, bool]:
    """Return the word that a head picks, and whether it is right.

    ``weights[query, key]`` is its map over the words, without special tokens.  Coreference is
    always read from the mention to its antecedent.
    """
    reverse = direction == DIRECTIONS[1] and question.candidates is None
    scores = (weights.T if reverse else weights).astype(np.float32)
    picked = _pick(scores, question.asked, question.candidates)
    right = picked in question.gold
    if question.mark is not None:
        right = right or _pick(scores, question.mark, None) in question.gold
    return picked, right


def _pick(scores: np.ndarray, asked: int, candidates: tuple[int, ...] | None) -> int:
    allowed = np.arange(len(scores)) if candidates is None else np.array(candidates, int)
    allowed = allowed[allowed != asked]
    return int(allowed[scores[asked, allowed].argmax()]) if len(allowed) else asked


def search(
    store: Source,
    head: tuple[int, int],
    *,
    word: str = "",
    relation: str = "",
    right: bool | None = None,
    direction: Direction = DIRECTIONS[0],
    limit: int = 50,
) -> pd.DataFrame:
    """Find the first ``limit`` places with a word, or where a head answers a relation.

    ``head`` is (layer, head) from 0.  A word (any case) and a relation together ask for words
    with that relation.  ``right`` keeps the right or the wrong answers; all maps but those of
    examples that have the relation are left unread.  One row per place: ``example``, ``asked``
    (position in the map), ``word``, ``relation``, ``picked``, ``gold`` (words), ``right``; the
    last four are empty for a plain word.

    Raises:
        InputError: nothing is asked for, or the direction is not one of the two.
    """
    if not word and not relation:
        raise InputError("search for a word, a relation or both, such as relation='dobj'")
    if direction not in DIRECTIONS:
        raise InputError(f"no direction {direction!r}; there are {', '.join(DIRECTIONS)}")
    rows: list[tuple[Any, ...]] = []
    for index, record in enumerate(store.records()):
        found = (
            _answers(store, index, record, head, word, relation, right, direction)
            if relation
            else _words(index, record, word)
        )
        rows += found
        if len(rows) >= limit:
            break
    return pd.DataFrame(rows[:limit], columns=COLUMNS).assign(head=head_label(*head))


def _words(index: int, record: Record, word: str) -> Iterator[tuple[Any, ...]]:
    offset = record.get("offset", 0) if "words" in record else 0
    for place, other in enumerate(record.get("words") or record["tokens"]):
        if other.lower() == word.lower():
            yield index, place + offset, other, "", "", "", None


def _answers(
    store: Source,
    index: int,
    record: Record,
    head: tuple[int, int],
    word: str,
    relation: str,
    right: bool | None,
    direction: Direction,
) -> Iterator[tuple[Any, ...]]:
    words = record.get("words", ())
    asked = [
        question
        for question in questions(record)
        if question.relation == relation and word.lower() in ("", words[question.asked].lower())
    ]
    if not asked:
        return
    example = store[index]
    own = example.word_positions
    weights = example.attention[head][own, own]
    for question in asked:
        picked, correct = answer(question, weights, direction)
        if right is None or right == correct:
            gold = " / ".join(words[place] for place in question.gold)
            place = question.asked + example.offset
            yield index, place, words[question.asked], relation, words[picked], gold, correct
