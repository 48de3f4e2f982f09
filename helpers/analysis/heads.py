"""Heads: their names, their maps, and which word a head picks (sections 4.2 and 4.3).

A head is named ``layer-head``, both from 1 as in the paper ("8-10").  It picks for a word the other
word with the most attention, of equals the first; [CLS] and [SEP] are no candidates.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple, get_args

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int, Shaped

from helpers.data.records import Record
from helpers.errors import InputError

Direction = Literal["dependent attends to head", "head attends to dependent"]

DIRECTIONS: tuple[Direction, ...] = get_args(Direction)
POSSESSIVE_RELATIONS = frozenset({"poss", "nmod:poss"})
POSSESSIVE_MARKS = frozenset({"'s", "s'"})
COREFERENCE = "coreference"  # the name of the one relation of a coreference corpus


def head_label(layer: int, head: int) -> str:
    """Return the label of a head given its array indices (both from 0)."""
    return f"{layer + 1}-{head + 1}"


def head_labels(layers: int, heads: int) -> list[str]:
    """Return the labels of a model's heads, layer by layer (the order of flattened maps)."""
    return [head_label(layer, head) for layer in range(layers) for head in range(heads)]


def parse_head(label: str) -> tuple[int, int]:
    """Return the array indices (both from 0) of a labelled head; InputError where it is none."""
    layer, _, head = label.strip().partition("-")
    if not (layer.isdecimal() and head.isdecimal() and int(layer) and int(head)):
        raise InputError(f"{label!r} is not a head; write layer-head, both from 1, such as 8-10")
    return int(layer) - 1, int(head) - 1


def head_rows(layers: int, heads: int, **columns: Shaped[np.ndarray, "layer head"]) -> pd.DataFrame:
    """Return one row a head, in the order of `head_labels`: layer, head (from 1), and columns."""
    layer, head = np.indices((layers, heads)).reshape(2, -1) + 1
    values = {name: np.asarray(column).ravel() for name, column in columns.items()}
    return pd.DataFrame({"layer": layer, "head": head} | values)


def by_head(table: pd.DataFrame, column: str) -> Float[np.ndarray, "layer head"]:
    """Return a column of a table with a row for each layer and head (from 1): see `head_rows`."""
    return table.pivot(index="layer", columns="head", values=column).to_numpy(float)


def picked_words(
    attention: Float[np.ndarray, "*heads word word"],
    asked: Int[np.ndarray, " asked"] | None = None,
    *,
    direction: Direction = DIRECTIONS[0],
    candidates: Bool[np.ndarray, "asked word"] | None = None,
) -> Int[np.ndarray, "*heads asked"]:
    """Return the word that each head picks for each word that is asked about.

    For word i that is ``argmax_j A[i, j]`` (dependent attends to head) or ``argmax_j A[j, i]``
    (head attends to dependent), j not i.  A word without candidates picks itself.  ``attention``
    are maps over the words, without special tokens; ``asked`` the words asked about, from 0, and
    ``candidates`` those that may be picked: all, where they are left out.
    """
    words = attention.shape[-1]
    asked = np.arange(words) if asked is None else np.asarray(asked)
    reverse = direction == DIRECTIONS[1]
    scores = (attention.swapaxes(-1, -2) if reverse else attention)[..., asked, :]
    allowed = np.full((len(asked), words), True) if candidates is None else candidates.copy()
    allowed[np.arange(len(asked)), asked] = False
    picked = np.where(allowed, scores, -np.inf).argmax(axis=-1)  # [*heads, asked]
    return np.where(allowed.any(axis=-1), picked, asked)


def possessive_marks(record: Record) -> dict[int, int]:
    """Return the position of the 's after each possessor (``poss``, ``nmod:poss``) that has one.

    Heads attend from the 's where the annotation has the noun.  As in the released evaluation, the
    pick of the next word, if it is 's or s', takes the place of the possessor's (section 4.2).
    """
    pairs = zip(record["relations"], record["words"][1:], strict=False)
    marked = [own in POSSESSIVE_RELATIONS and mark in POSSESSIVE_MARKS for own, mark in pairs]
    return {word: word + 1 for word in np.flatnonzero(marked).tolist()}


class Question(NamedTuple):
    """Which word belongs to word ``asked``?  All words are counted from 0, special tokens not.

    For a syntactic relation ``asked`` is the dependent and ``gold`` its head; ``mark`` is the 's
    of a possessor, which answers for it.  For coreference ``asked`` is a mention's head word,
    ``gold`` the head words of its antecedents, and only ``candidates`` can be picked.
    """

    relation: str
    asked: int
    gold: tuple[int, ...]
    mark: int | None = None
    candidates: tuple[int, ...] | None = None


def questions(record: Record) -> Iterator[Question]:
    """Yield the questions of a record: none where the corpus has no annotation."""
    if "relations" in record:
        marks = possessive_marks(record)
        for word, (head, name) in enumerate(zip(record["heads"], record["relations"], strict=True)):
            if head > 0:
                yield Question(name, word, (head - 1,), marks.get(word))
    mentions = sorted(record.get("mentions", ()), key=lambda mention: (mention[0], mention[1]))
    for number, (_, _, chain, asked) in enumerate(mentions):
        earlier = [m[3] for m in mentions[:number] if m[2] == chain] if chain is not None else []
        if earlier:
            others = {m[3] for i, m in enumerate(mentions) if i != number} - {asked}
            gold = tuple(sorted(set(earlier) - {asked}))
            yield Question(COREFERENCE, asked, gold, candidates=tuple(sorted(others)))


def answer(
    question: Question, weights: Float[np.ndarray, "*heads word word"], direction: Direction
) -> tuple[Int[np.ndarray, "*heads"], Bool[np.ndarray, "*heads"]]:
    """Return the word that each head picks, and whether it is right.

    ``weights[..., query, key]`` are maps over the words, without special tokens.  Coreference is
    always read from the mention to its antecedent.
    """
    asked, candidates = np.array([question.asked]), None
    if question.candidates is not None:
        direction = DIRECTIONS[0]
        candidates = np.isin(np.arange(weights.shape[-1]), question.candidates)[None]
    elif question.mark is not None:
        asked = np.array([question.mark])
    picked = picked_words(weights, asked, direction=direction, candidates=candidates)[..., 0]
    return picked, np.isin(picked, question.gold)
