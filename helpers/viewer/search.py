"""Search a store for places with a word, or where one head is right or wrong about a relation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from helpers.analysis.heads import DIRECTIONS, Direction, Question, answer, head_label, questions
from helpers.errors import InputError
from helpers.store.store import Example, Store

MOST_FOUND = 50  # places shown at a time
RELATIONS_FROM = 300  # records looked at for the names of relations to suggest
COLUMNS = ("example", "asked", "word", "relation", "picked", "gold", "right")


def relations_in(store: Store) -> list[str]:
    """Return the names of relations in the first records of a store."""
    records = store.records(range(min(RELATIONS_FROM, len(store))))
    return sorted({question.relation for record in records for question in questions(record)})


def check_relation(store: Store, relation: str) -> None:
    """Check that a store has a relation.

    Raises:
        InputError: no example has it; the message has those that there are.
    """
    known: set[str] = set()
    for record in store.records():
        known.update(question.relation for question in questions(record))
        if relation in known:
            return
    there = f"there are {', '.join(sorted(known))}" if known else "the corpus has no annotation"
    raise InputError(f"no relation {relation!r} here; {there}")


def search(
    store: Store,
    head: tuple[int, int],
    *,
    word: str = "",
    relation: str = "",
    right: bool | None = None,
    direction: Direction = DIRECTIONS[0],
    limit: int = MOST_FOUND,
) -> pd.DataFrame:
    """Find the first ``limit`` places with a word, or where a head answers a relation.

    ``head`` is (layer, head) from 0.  A word (any case) and a relation together ask for words
    with that relation.  ``right`` keeps the right or the wrong answers; all maps but those of
    examples that have the relation are left unread.  One row per place: ``example``, ``asked``
    (position in the map), ``word``, ``relation``, ``picked``, ``gold`` (words), ``right``; the
    last four are empty for a plain word.

    Raises:
        InputError: nothing is asked for, or no example has the relation.
    """
    if not word and not relation:
        raise InputError("search for a word, a relation or both, such as relation='dobj'")
    rows: list[tuple[Any, ...]] = []
    for index, record in enumerate(store.records()):
        words = record.get("words") or record["tokens"]
        places = [i for i, other in enumerate(words) if word.lower() in ("", other.lower())]
        if relation:
            asked = [q for q in questions(record) if q.relation == relation and q.asked in places]
            found = _answers(store[index], asked, head, direction) if asked else ()
            rows += [row for row in found if right in (None, row[-1])]
        else:
            offset = record.get("offset", 0) if "words" in record else 0
            rows += [(index, i + offset, words[i], "", "", "", None) for i in places]
        if len(rows) >= limit:
            break
    if relation and not rows:
        check_relation(store, relation)
    return pd.DataFrame(rows[:limit], columns=COLUMNS).assign(head=head_label(*head))


def _answers(
    example: Example, asked: list[Question], head: tuple[int, int], direction: Direction
) -> Iterator[tuple[Any, ...]]:
    own, words = example.word_positions, example.record["words"]
    weights = example.attention[head][own, own]
    for question in asked:
        picked, right = answer(question, weights, direction)
        gold = " / ".join(words[place] for place in question.gold)
        place = question.asked + example.offset
        row = (example.index, place, words[question.asked], question.relation)
        yield *row, words[picked], gold, bool(right)
