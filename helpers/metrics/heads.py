"""Attention heads: their labels, tables of them, and the word that a head picks.

A head is named ``layer-head``, both from 1 as in the paper ("8-10").  For each word, it picks the
other word with the most attention (sections 4.2 and 4.3).  If several have the same weight, it
picks the first.  [CLS] and [SEP] cannot be picked, nor can a word that the layer's mask hides.  A
pick needs weight: a head picks nothing if all words that it could pick have the same weight, or
none has any.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int, Shaped

from helpers.data.links import (
    COREFERENCE,
    NO_MENTION,
    read_links,
)
from helpers.data.records import Record
from helpers.metrics.statistics import Whole
from helpers.store.store import Example

PerHead = Float[np.ndarray, "layer head"]
Direction = Literal["dependent attends to head", "head attends to dependent"]

DIRECTIONS: tuple[Direction, ...] = get_args(Direction)


def head_label(layer: Whole, head: Whole) -> str:
    """Format the label of a head.

    Parameters
    ----------
    layer, head : int
        Array indices, both from 0.

    Returns
    -------
    str
        ``layer-head``, both from 1: ``head_label(7, 9)`` is "8-10".
    """
    return f"{layer + 1}-{head + 1}"


def head_labels(layers: int, heads: int) -> list[str]:
    """List the labels of a model's heads, layer by layer (the order of flattened maps).

    Parameters
    ----------
    layers, heads : int
        Number of layers, and of heads in each.

    Returns
    -------
    list of str
        ``layers * heads`` labels.
    """
    return [head_label(layer, head) for layer, head in np.ndindex(layers, heads)]


def parse_head(label: str) -> tuple[int, int]:
    """Read the label of a head.

    Parameters
    ----------
    label : str
        ``layer-head``, both from 1.

    Returns
    -------
    layer, head : int
        Array indices, both from 0: ``parse_head("8-10")`` is (7, 9).
    """
    layer, head = label.split("-")
    return int(layer) - 1, int(head) - 1


def head_rows(layers: int, heads: int, **columns: Shaped[np.ndarray, "layer head"]) -> pd.DataFrame:
    """Make a table with a row for each head, in the order of `head_labels`.

    Parameters
    ----------
    layers, heads : int
        Number of layers, and of heads in each.
    **columns : array of shape (layer, head)
        One value for each head, by the name of its column.

    Returns
    -------
    DataFrame
        Columns ``layer`` and ``head`` (from 1), then ``columns``.
    """
    layer, head = np.indices((layers, heads)).reshape(2, -1) + 1
    table = pd.DataFrame({"layer": layer, "head": head})
    return table.assign(**{name: np.asarray(column).ravel() for name, column in columns.items()})


def by_head(table: pd.DataFrame, column: str) -> PerHead:
    """Arrange a column of a table of heads as an array: the inverse of `head_rows`.

    Parameters
    ----------
    table : DataFrame
        A row for each head, with columns ``layer`` and ``head`` (from 1).
    column : str
        Name of the column.

    Returns
    -------
    float array of shape (layer, head)
    """
    return table.pivot(index="layer", columns="head", values=column).to_numpy(float)


def picked_words(
    attention: Float[np.ndarray, "*heads word word"],
    queries: Int[np.ndarray, " query"] | None = None,
    *,
    direction: Direction = DIRECTIONS[0],
    candidates: Bool[np.ndarray, "query word"] | None = None,
    visible: Bool[np.ndarray, "*#heads word word"] | None = None,
) -> Int[np.ndarray, "*heads query"]:
    """Find the word with the most attention, which a head picks, for each word (section 4.2).

    For word i that is ``argmax_j A[i, j]`` (dependent attends to head) or ``argmax_j A[j, i]``
    (head attends to dependent), j not i.  Of equal weights the first counts, unless the weights of
    all words that can be picked are equal.

    Parameters
    ----------
    attention : array of shape (..., word, word)
        Maps over the words, without special tokens: ``attention[..., query, key]``.
    queries : int array, optional
        Words to pick for, from 0.  By default all.
    direction : {"dependent attends to head", "head attends to dependent"}
        Whether a row or a column of the map is read.
    candidates : bool array of shape (query, word), optional
        Words that may be picked for each query.  By default all.
    visible : bool array of shape (..., word, word), optional
        Keys that each query sees, ``visible[..., query, key]``.  By default all.

    Returns
    -------
    int array of shape (..., query)
        Picked words, from 0.  If a head picks nothing for a word, it is the word itself, which is
        never right.
    """
    words = attention.shape[-1]
    queries = np.arange(words) if queries is None else queries
    weights = by_dependent(attention, direction)[..., queries, :]  # [..., query, word]
    allowed = queries[:, None] != np.arange(words)
    if candidates is not None:
        allowed = allowed & candidates
    if visible is not None:
        allowed = allowed & by_dependent(visible, direction)[..., queries, :]
    # Copied once, so that the rows are contiguous in either direction.
    candidate_weights = np.where(allowed, weights, -np.inf)
    picked = candidate_weights.argmax(axis=-1)
    largest = np.take_along_axis(candidate_weights, picked[..., None], axis=-1)[..., 0]
    smallest = np.where(allowed, weights, np.inf).min(axis=-1)
    is_only_candidate = allowed.sum(axis=-1) == 1
    has_pick = (largest > 0) & ((largest > smallest) | is_only_candidate)
    return np.where(has_pick, picked, queries)


class PickFrom(NamedTuple):
    """Positions that heads may pick, and whether rows or columns of maps are read.

    Attributes
    ----------
    candidates : bool array of shape (position,)
        The positions that may be picked, such as those of words or of mentions.
    direction : {"dependent attends to head", "head attends to dependent"}
        Whether rows or columns of the maps are read.
    """

    candidates: Bool[np.ndarray, " position"]
    direction: Direction


def picks_in(
    example: Example, variants: Sequence[PickFrom]
) -> Int[np.ndarray, "variant layer head _"]:
    """Find the position with the most attention for each position of an example.

    Parameters
    ----------
    example : Example
        The maps.
    variants : sequence of PickFrom
        What heads may pick from.

    Returns
    -------
    int array of shape (variant, layer, head, position)
        Picked positions, from 0; the position itself if the head picks nothing.
    """
    n = len(example)
    options = {"visible": example.visible_keys[:, None]}
    picks = []
    for candidates, direction in variants:
        allowed = np.broadcast_to(candidates, (n, n))
        picks.append(
            picked_words(example.attention, direction=direction, candidates=allowed, **options)
        )
    return np.stack(picks)


def by_dependent(
    maps: Shaped[np.ndarray, "*heads query key"], direction: Direction
) -> Shaped[np.ndarray, "*heads dependent head"]:
    """Order the axes of maps, or of masks, so that those of the dependent come before the head's.

    Parameters
    ----------
    maps : array of shape (..., query, key)
        Maps over words.
    direction : {"dependent attends to head", "head attends to dependent"}
        Whether the query or the key is the dependent.
    """
    return maps if direction == DIRECTIONS[0] else maps.swapaxes(-1, -2)


class Question(NamedTuple):
    """A word, and the words that a head should pick for it according to the annotation.

    All words are counted from 0, without special tokens.

    Attributes
    ----------
    relation : str
        Syntactic relation or label of a pair, or `COREFERENCE`.
    word : int
        The dependent, or the head word of a mention.
    gold : tuple of int
        The words that are right: the syntactic head of the dependent, or all its partners in pairs
        of one label, or the head words of the mention's antecedents.  A root has none.
    mark : int or None
        The 's after a possessor (``poss``, ``nmod:poss``), from which a head reads the answer, as
        in the released evaluation: heads attend from the 's where the annotation has the noun.
    mention : int or None
        Index of the mention, in the order of `ordered_mentions`.
    candidates : tuple of int or None
        Words that can be picked: the head words of the other mentions.  None: all words.
    """

    relation: str
    word: int
    gold: tuple[int, ...]
    mark: int | None = None
    mention: int | None = None
    candidates: tuple[int, ...] | None = None

    @property
    def query(self) -> int:
        """The word from which the answer is read: the 's of a possessor that has one."""
        return self.word if self.mark is None else self.mark

    def read_in(self, direction: Direction) -> Direction:
        """Return the direction in which the answer is read, always from a mention on."""
        return DIRECTIONS[0] if self.relation == COREFERENCE else direction


def gold_links(record: Record) -> Iterator[Question]:
    """Yield the questions that a record's annotation answers.

    Parameters
    ----------
    record : dict
        A record of a store; one without pairs and coreference has no questions.

    Yields
    ------
    Question
        One for each word and label of its pairs, except roots; then one for each mention that has
        an antecedent.
    """
    for question in _questions(record):
        if question.gold:  # not the root
            yield question


def pair_questions(record: Record) -> Iterator[Question]:
    """Yield a question for each word and label of a record's pairs; that of a root has no gold."""
    for question in _questions(record):
        if question.mention is None:
            yield question


def _questions(record: Record) -> Iterator[Question]:
    """Yield the links of a record one by one."""
    links = read_links(record)
    for row in range(len(links.word)):
        word = int(links.word[row])
        query = int(links.query[row])
        question = Question(
            str(links.relation[row]),
            word,
            gold=tuple(np.flatnonzero(links.gold[row]).tolist()),
            mark=None if query == word else query,
        )
        if links.mention[row] != NO_MENTION:
            candidates = tuple(np.flatnonzero(links.candidates[row]).tolist())
            mention = int(links.mention[row])
            question = question._replace(mention=mention, candidates=candidates)
        yield question


def predict_link(
    question: Question,
    weights: Float[np.ndarray, "*heads word word"],
    direction: Direction,
    visible: Bool[np.ndarray, "*#heads word word"] | None = None,
) -> tuple[Int[np.ndarray, "*heads"], Bool[np.ndarray, "*heads"]]:
    """Find the word that each head picks for a question, and whether it is right.

    Parameters
    ----------
    question : Question
        The word to pick for, and the right words.
    weights : array of shape (..., word, word)
        Maps over the words, without special tokens: ``weights[..., query, key]``.
    direction : {"dependent attends to head", "head attends to dependent"}
        How a syntactic relation is read.  Coreference is always read from the mention to its
        antecedent.
    visible : bool array of shape (..., word, word), optional
        Keys that each query sees.  By default all.

    Returns
    -------
    picked : int array of shape (...)
        Words, from 0; the word that is picked for, if a head picks nothing.
    right : bool array of shape (...)
    """
    candidates = None
    if question.candidates is not None:
        candidates = np.isin(np.arange(weights.shape[-1]), question.candidates)[None]
    by_query = picked_words(
        weights,
        np.array([question.query]),
        direction=question.read_in(direction),
        candidates=candidates,
        visible=visible,
    )
    picked = by_query[..., 0]  # of the only query
    is_right = np.isin(picked, question.gold) & (picked != question.query)
    return picked, np.asarray(is_right)


def sees_answer(
    question: Question, visible: Bool[np.ndarray, "*heads word word"], direction: Direction
) -> Bool[np.ndarray, "*heads"]:
    """Find out whether a right word for a question is among those that can be seen.

    Parameters
    ----------
    question : Question
        The word to pick for, and the right words.
    visible : bool array of shape (..., word, word)
        Keys that each query sees.
    direction : {"dependent attends to head", "head attends to dependent"}
        As for `predict_link`.

    Returns
    -------
    bool array of shape (...)
    """
    keys = by_dependent(visible, question.read_in(direction))[..., question.query, :]
    return np.asarray(keys[..., list(question.gold)].any(axis=-1))
