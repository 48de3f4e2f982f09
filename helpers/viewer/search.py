"""Search a store for places with a word, or where one head is right or wrong about a relation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from helpers.analysis.head_choice import DIRECTIONS, Direction, Record, answer, questions
from helpers.analysis.heads import head_label
from helpers.errors import InputError
from helpers.store.store import Source

COLUMNS = ("example", "asked", "word", "relation", "picked", "gold", "right")


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
