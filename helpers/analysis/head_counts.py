"""One pass over a parsed corpus: how often each head picks the syntactic head (section 4.2)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped, UInt16

from helpers.analysis.relations import ALL
from helpers.analysis.sweep import checked_maps
from helpers.attention.example import Example
from helpers.data.records import Sentence
from helpers.errors import InputError, MapError

Direction = Literal["dependent attends to head", "head attends to dependent"]

DIRECTIONS: tuple[Direction, ...] = get_args(Direction)
OFFSETS = np.array([-5, -4, -3, -2, -1, 1, 2, 3, 4, 5])
POSSESSIVE_RELATIONS = frozenset({"poss", "nmod:poss"})
POSSESSIVE_MARKS = frozenset({"'s", "'", "s'", "’s", "’", "s’"})


@dataclass(frozen=True)
class HeadCounts:
    """How many words of each relation each head gets right, sentence by sentence.

    One row per sentence and relation that occurs in it.  ``relation`` indexes ``names``, whose
    first entry is `ALL` (every word of the sentence); ``sentence`` indexes ``splits``.
    ``right`` counts the words whose syntactic head the attention head picks, ``offset_right``
    those whose head stands at each of `OFFSETS`.
    """

    names: tuple[str, ...]
    splits: Shaped[np.ndarray, " sentence"]
    sentence: Int[np.ndarray, " row"]
    relation: Int[np.ndarray, " row"]
    total: UInt16[np.ndarray, " row"]
    rooted: UInt16[np.ndarray, " row"]
    offset_right: UInt16[np.ndarray, "row offset"]
    right: UInt16[np.ndarray, "row direction layer head"]

    def rows(self, relation: str, split: str | None = None) -> Int[np.ndarray, " row"]:
        """Return the rows of a relation, in one split or in all."""
        if relation not in self.names:
            raise InputError(f"no relation {relation!r} here; there are {', '.join(self.names)}")
        mine = self.relation == self.names.index(relation)
        if split is not None:
            mine &= self.splits[self.sentence] == split
        return np.flatnonzero(mine)


def predicted_heads(
    attention: Float[np.ndarray, "layer head word word"],
) -> Int[np.ndarray, "direction layer head word"]:
    """Return the other word that each head picks for each word, in both `DIRECTIONS`.

    For word i that is ``argmax_j A[i, j]`` (dependent attends to head) and ``argmax_j A[j, i]``
    (head attends to dependent), j not i.  The only word of a sentence picks itself.
    """
    scores = np.array(attention, np.float32)
    own = np.arange(scores.shape[-1])
    scores[..., own, own] = -np.inf
    return np.stack([scores.argmax(axis=-1), scores.argmax(axis=-2)])


def count_heads(examples: Iterable[Example]) -> HeadCounts:
    """Count what every head of a model gets right, reading each example once.

    Special positions ([CLS], [SEP]) and the word itself are no candidates; the root is right for
    no pick.  A possessor (``poss``, ``nmod:poss``) counts as right also when its own 's picks
    the possessor's head, because heads attend from the 's where the annotation has the noun
    (section 4.2).  `ALL` is the plain attachment score, without that rule.

    Memory: four bytes a head for each sentence and relation, whatever the length of the
    sentences.

    Raises:
        InputError: the records have no syntactic heads.
        MapError: a map is not a distribution over keys, or of another size than its sentence.
    """

    def sentences() -> Iterator[tuple[Mapping[str, Any], np.ndarray]]:
        for example in examples:
            record, words = example.record, example.word_positions
            if "heads" not in record or "relations" not in record:
                raise InputError(
                    f"example {example.index} has no syntactic heads; expected the store of a "
                    "treebank"
                )
            maps = checked_maps(example)[:, :, words, words]
            if maps.shape[-1] != len(record["heads"]):
                raise MapError(
                    example.index,
                    f"expected a map over {len(record['heads'])} words; extract the store again",
                )
            yield record, predicted_heads(maps)

    return _count(sentences())


def count_offsets(sentences: Iterable[Sentence]) -> HeadCounts:
    """Count what fixed offsets get right, without any attention (``right`` has no heads)."""
    no_heads = (len(DIRECTIONS), 0, 0)
    return _count(
        (
            {
                "words": sentence.words,
                "heads": sentence.heads,
                "relations": sentence.relations,
                "split": sentence.split,
            },
            np.zeros((*no_heads, len(sentence.words)), int),
        )
        for sentence in sentences
    )


def _count(sentences: Iterable[tuple[Mapping[str, Any], np.ndarray]]) -> HeadCounts:
    ids = {ALL: 0}
    splits: list[str] = []
    owners, relations, totals, rooted, by_offset, by_head = [], [], [], [], [], []
    for index, (record, picks) in enumerate(sentences):
        gold = np.asarray(record["heads"]) - 1  # the root: -1
        names, member = _membership(record["relations"])
        own_mark = _possessive_marks(record)
        shifted = np.arange(len(gold)) + OFFSETS[:, None]  # [offset, word]
        splits.append(record.get("split", ""))
        owners.append(np.full(len(names), index))
        relations.append([ids.setdefault(name, len(ids)) for name in names])
        totals.append(member.sum(axis=0))
        rooted.append(member[gold < 0].sum(axis=0))
        by_offset.append(_hits(shifted, gold, member, own_mark))
        by_head.append(_hits(picks, gold, member, own_mark))
    if not splits:
        raise InputError("no parsed sentence; expected a treebank with at least one")
    return HeadCounts(
        tuple(ids),
        np.array(splits),
        np.concatenate(owners),
        np.concatenate(relations),
        np.concatenate(totals).astype(np.uint16),
        np.concatenate(rooted).astype(np.uint16),
        np.concatenate(by_offset),
        np.concatenate(by_head),
    )


def _membership(relations: list[str]) -> tuple[list[str], Bool[np.ndarray, "word relation"]]:
    """Return a sentence's relations, `ALL` first, and which word belongs to which."""
    names, inverse = np.unique(np.asarray(relations, dtype=object), return_inverse=True)
    member = inverse[:, None] == np.arange(len(names))
    return [ALL, *names], np.column_stack([np.ones(len(inverse), bool), member])


def _possessive_marks(record: Mapping[str, Any]) -> dict[int, int]:
    """Return the position of the 's that depends on each possessor."""
    possessors = {i for i, name in enumerate(record["relations"]) if name in POSSESSIVE_RELATIONS}
    return {
        head - 1: mark
        for mark, (word, head) in enumerate(zip(record["words"], record["heads"], strict=True))
        if head - 1 in possessors and word in POSSESSIVE_MARKS
    }


def _hits(
    picks: Int[np.ndarray, "predictor ... word"],
    gold: Int[np.ndarray, " word"],
    member: Bool[np.ndarray, "word relation"],
    own_mark: Mapping[int, int],
) -> UInt16[np.ndarray, "relation predictor ..."]:
    """Return how many words of each relation each predictor gets right."""
    plain = (picks == gold) & (gold >= 0)  # an offset may point to -1, where the root's head is
    right = plain.copy()
    for possessor, mark in own_mark.items():
        right[..., possessor] |= picks[..., mark] == gold[possessor]
    # [predictor ..., word] @ [word, relation]; ALL, the first relation, knows no possessor rule
    counts = right.astype(np.float32) @ member.astype(np.float32)
    counts[..., 0] = plain.sum(axis=-1)
    return np.moveaxis(counts, -1, 0).astype(np.uint16)
