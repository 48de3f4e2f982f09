"""Counts of the words whose syntactic head each attention head picks (section 4.2)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from jaxtyping import Bool, Int, Num, Shaped, UInt16

from helpers.data.records import cluster_of
from helpers.errors import InputError
from helpers.metrics.heads import DIRECTIONS, picked_words, possessive_marks
from helpers.metrics.reference import ALL
from helpers.metrics.statistics import (
    Clusters,
    Estimate,
    Statistics,
    Whole,
    cluster_sums,
    ratio,
)
from helpers.store.store import Example

ROOT = "root"  # its name in lower case
OFFSETS = np.array([-5, -4, -3, -2, -1, 1, 2, 3, 4, 5])


@dataclass(frozen=True)
class HeadCounts:
    """Number of words that each attention head gets right, by sentence and relation.

    There is a row for each sentence and each relation that occurs in it.

    Attributes
    ----------
    names : tuple of str
        Names of the relations.  The first is `ALL`: every word of a sentence.
    split : array of shape (row,)
        Split of the sentence: "train", "dev" or "".
    article : int array of shape (row,)
        Number of the article that the sentence is from.
    relation : int array of shape (row,)
        Index into ``names``.
    total : int array of shape (row,)
        Number of words.
    offset_right : int array of shape (row, offset)
        Number of words whose syntactic head stands at each of `OFFSETS`.
    right : int array of shape (row, direction, layer, head)
        Number of words whose syntactic head the attention head picks.
    right_with_special : int array of shape (article, direction, layer, head)
        The same for all words of each article, of any split, if special tokens can be picked as
        well (footnote 2).
    """

    names: tuple[str, ...]
    split: Shaped[np.ndarray, " row"]
    article: Int[np.ndarray, " row"]
    relation: Int[np.ndarray, " row"]
    total: UInt16[np.ndarray, " row"]
    offset_right: UInt16[np.ndarray, "row offset"]
    right: UInt16[np.ndarray, "row direction layer head"]
    right_with_special: Int[np.ndarray, "article direction layer head"]

    def of_split(self, split: str) -> HeadCounts:
        """Select the rows of a split, "train" or "dev".

        Raises
        ------
        InputError
            If the treebank has no sentence of the split.
        """
        is_in_split = self.split == split
        if not is_in_split.any():
            raise InputError(
                f"the treebank has no {split} sentences, but heads are chosen on train and scored "
                "on dev; give a treebank with both (TRAIN,DEV), more sentences (--sentences), or "
                "more tokens for long ones (--max-tokens)"
            )
        by_row = ("split", "article", "relation", "total", "offset_right", "right")
        return replace(self, **{name: getattr(self, name)[is_in_split] for name in by_row})

    def by_article(self, values: Num[np.ndarray, "row ..."], relation: str) -> Clusters:
        """Sum values over the rows of a relation, for each article.

        Parameters
        ----------
        values : array of shape (row, ...)
            A value for each row of the counts.
        relation : str
            One of ``names``.

        Returns
        -------
        array of shape (article, ...)
            Articles without a word of the relation have zeros.

        Raises
        ------
        InputError
            If the treebank has no such relation.
        """
        if relation not in self.names:
            names = ", ".join(self.names)
            raise InputError(
                f"the treebank has no relation {relation!r}; give one of its relations: {names}"
            )
        rows = self.relation == self.names.index(relation)
        return cluster_sums(values[rows], self.article[rows], np.unique(self.article))

    def size(self, relation: str) -> int:
        """Count the words of a relation."""
        return int(self.by_article(self.total, relation).sum())

    def frequent(self, minimum: int) -> list[str]:
        """List the relations with at least ``minimum`` words, except the root.

        Returns
        -------
        list of str
            `ALL` first, then by number of words.
        """
        sizes = {name: self.size(name) for name in self.names if name.lower() != ROOT}
        frequent = [name for name, size in sizes.items() if size >= max(minimum, 1)]
        # In a corpus with a single relation, it ties with "All".  The sort is stable, so "All"
        # stays first.
        return sorted(frequent, key=sizes.__getitem__, reverse=True)

    def accuracy(self, relation: str, *, offsets: bool = False) -> Statistics:
        """Compute the accuracy of every attention head, or of every fixed offset, in percent.

        Parameters
        ----------
        relation : str
            One of ``names``.
        offsets : bool
            Whether to score `OFFSETS` instead of the heads.

        Returns
        -------
        float array of shape (direction, layer, head), or of shape (offset,)
            NaN if no word has the relation.
        """
        right = self.offset_right if offsets else self.right
        return 100 * self.by_article(right, relation).sum(axis=0) / self.size(relation)

    def estimate(self, relation: str, head: Sequence[Whole]) -> Estimate:
        """Estimate the accuracy of a head in percent, with its interval over articles.

        Parameters
        ----------
        relation : str
            One of ``names``.
        head : sequence of int
            Index into `DIRECTIONS`, layer and head, all from 0.
        """
        right = self.by_article(self.right[:, *head], relation)
        return ratio(100 * right, self.by_article(self.total, relation))


def count_heads(examples: Iterable[Example]) -> HeadCounts:
    """Count the words that every attention head gets right, in one pass over a treebank.

    `helpers.metrics.heads` defines which word a head picks, and the rule for a possessor's 's.  No
    pick is right for the root.

    Parameters
    ----------
    examples : iterable of Example
        Word-level maps of a treebank, such as ``Study().treebank_store()``.

    Returns
    -------
    HeadCounts

    Raises
    ------
    InputError
        If there is no example, or a record has no syntactic heads.
    MapError
        If a row of a map is not a distribution, or a map has another size than its sentence.
    """
    with_special = defaultdict(int)  # by article
    parts = defaultdict(list)
    for number, example in enumerate(examples):
        record = example.record
        gold = syntactic_heads(example)
        attention = example.attention
        words = example.word_positions
        maps = attention[:, :, words, words]
        positions = np.arange(words.start, words.stop)
        picks = np.stack([picked_words(maps, direction=direction) for direction in DIRECTIONS])
        positions_picked = np.stack(
            [picked_words(attention, positions, direction=direction) for direction in DIRECTIONS]
        )
        relations = np.array(record["relations"])
        names = [ALL, *np.unique(relations).tolist()]
        marks = possessive_marks(record)
        at_offset = np.arange(len(gold)) + OFFSETS[:, None]  # [offset, word]
        article = cluster_of(record, number)
        # Counted from the first word on: special tokens are outside.
        is_right = _is_right(positions_picked - words.start, gold, marks)
        with_special[article] += is_right.sum(axis=-1)
        rows = {
            "split": [record.get("split", "")] * len(names),
            "article": [article] * len(names),
            "relation": names,
            "total": _sum_by_relation(np.ones(len(gold), bool), relations),
            "offset_right": _sum_by_relation(_is_right(at_offset, gold, marks), relations),
            "right": _sum_by_relation(_is_right(picks, gold, marks), relations),
        }
        for name, values in rows.items():
            parts[name].append(np.asarray(values))
    if not parts:
        raise InputError("the treebank has no parsed sentence; give one with at least one")
    columns = {name: np.concatenate(values) for name, values in parts.items()}
    columns["article"], _ = pd.factorize(columns["article"])
    columns["relation"], names = pd.factorize(columns["relation"])
    by_article = np.stack(list(with_special.values()))
    return HeadCounts(names=tuple(names), right_with_special=by_article, **columns)


def syntactic_heads(example: Example) -> Int[np.ndarray, " word"]:
    """Read the syntactic head of each word, from 0; -1 for the root.

    Parameters
    ----------
    example : Example
        A sentence of a treebank.

    Returns
    -------
    int array of shape (word,)

    Raises
    ------
    InputError
        If the record has no syntactic heads.
    """
    if "heads" not in example.record or "relations" not in example.record:
        raise InputError(
            f"example {example.index} has no syntactic heads; give the store of a treebank"
        )
    return np.asarray(example.record["heads"]) - 1


def _is_right(
    picks: Int[np.ndarray, "predictor ... word"],
    gold: Int[np.ndarray, " word"],
    marks: Mapping[int, int],
) -> Bool[np.ndarray, "predictor ... word"]:
    """Mark the words that each predictor gets right."""
    right = (picks == gold) & (gold >= 0)  # an offset can point to -1, as the root's head does
    for possessor, mark in marks.items():
        right[..., possessor] = picks[..., mark] == gold[possessor]
    return right


def _sum_by_relation(
    is_right: Bool[np.ndarray, "... word"], relations: Shaped[np.ndarray, " word"]
) -> UInt16[np.ndarray, "relation ..."]:
    """Count words in all, and by relation in alphabetical order."""
    by_word = np.moveaxis(is_right, -1, 0)
    by_relation = cluster_sums(by_word, relations, np.unique(relations))
    return np.concatenate([by_word.sum(axis=0)[None], by_relation]).astype(np.uint16)
