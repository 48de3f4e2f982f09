"""Counts of the words whose syntactic head each attention head picks (section 4.2)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int, Num, Shaped, UInt16

from helpers.data.records import cluster_of
from helpers.errors import InputError
from helpers.metrics.heads import DIRECTIONS, picked_words, possessive_marks
from helpers.metrics.reference import ALL
from helpers.metrics.statistics import cluster_sums
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
        Names of the relations.  The first is `ALL`: every word of the sentence.
    splits : array of shape (sentence,)
        Split of each sentence: "train", "dev" or "".
    articles : int array of shape (sentence,)
        Number of the article that the sentence is from.
    sentence, relation : int array of shape (row,)
        Indices into ``splits`` and ``articles``, and into ``names``.
    total : int array of shape (row,)
        Number of words.
    offset_right : int array of shape (row, offset)
        Number of words whose syntactic head stands at each of `OFFSETS`.
    right : int array of shape (row, direction, layer, head)
        Number of words whose syntactic head the attention head picks.
    right_with_special : int array of shape (sentence, direction, layer, head)
        The same for all words of a sentence if special tokens can be picked as well (footnote 2).
    """

    names: tuple[str, ...]
    splits: Shaped[np.ndarray, " sentence"]
    articles: Int[np.ndarray, " sentence"]
    sentence: Int[np.ndarray, " row"]
    relation: Int[np.ndarray, " row"]
    total: UInt16[np.ndarray, " row"]
    offset_right: UInt16[np.ndarray, "row offset"]
    right: UInt16[np.ndarray, "row direction layer head"]
    right_with_special: UInt16[np.ndarray, "sentence direction layer head"]

    def rows(self, relation: str, split: str | None = None) -> Int[np.ndarray, " row"]:
        """Find the rows of a relation.

        Parameters
        ----------
        relation : str
            One of ``names``.
        split : str, optional
            "train" or "dev".  By default all sentences.

        Returns
        -------
        int array of shape (row,)

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
        mask = self.relation == self.names.index(relation)
        if split is not None:
            mask &= self.splits[self.sentence] == split
        return np.flatnonzero(mask)

    def by_article(
        self, values: Num[np.ndarray, "row ..."], relation: str, split: str | None = None
    ) -> Num[np.ndarray, "article ..."]:
        """Sum values over the rows of a relation, for each article of a split.

        Parameters
        ----------
        values : array of shape (row, ...)
            A value for each row of the counts.
        relation : str
            One of ``names``.
        split : str, optional
            "train" or "dev".  By default all sentences.

        Returns
        -------
        array of shape (article, ...)
            Articles of the split without a word of the relation have zeros.
        """
        rows = self.rows(relation, split)
        in_split = slice(None) if split is None else self.splits == split
        articles = np.unique(self.articles[in_split])
        return cluster_sums(values[rows], self.articles[self.sentence[rows]], articles)

    def size(self, relation: str, split: str | None = None) -> int:
        """Count the words of a relation, in one split or (None) in all."""
        return int(self.total[self.rows(relation, split)].sum(dtype=np.int64))

    def frequent(self, minimum: int, split: str | None = None) -> list[str]:
        """List the relations with at least ``minimum`` words, except the root.

        Parameters
        ----------
        minimum : int
            Number of words.
        split : str, optional
            "train" or "dev".  By default all sentences.

        Returns
        -------
        list of str
            `ALL` first, then by number of words.
        """
        sizes = {name: self.size(name, split) for name in self.names if name.lower() != ROOT}
        frequent = [name for name, size in sizes.items() if size >= max(minimum, 1)]
        # In a corpus with a single relation, it ties with "All".  The sort is stable, so "All"
        # stays first.
        return sorted(frequent, key=sizes.__getitem__, reverse=True)

    def accuracy(
        self, relation: str, split: str | None = None, *, offsets: bool = False
    ) -> Float[np.ndarray, "direction layer head"] | Float[np.ndarray, " offset"]:
        """Compute the accuracy of every attention head, or of every fixed offset, in percent.

        Parameters
        ----------
        relation : str
            One of ``names``.
        split : str, optional
            "train" or "dev".  By default all sentences.
        offsets : bool
            Whether to score `OFFSETS` instead of the heads.

        Returns
        -------
        float array of shape (direction, layer, head), or of shape (offset,)
            NaN if no word has the relation.
        """
        rows = self.rows(relation, split)
        right = self.offset_right if offsets else self.right
        return 100 * right[rows].sum(axis=0, dtype=np.int64) / self.size(relation, split)


def count_heads(examples: Iterable[Example]) -> HeadCounts:
    """Count the words that every attention head gets right, in one pass over a treebank.

    `helpers.metrics.heads` defines which word a head picks, and the rule for a possessor's 's.  No
    pick is right for the root.  The counts take twelve bytes for each head, sentence and relation.

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
    relation_ids = {ALL: 0}
    article_ids: dict[str, int] = {}
    parts: dict[str, list[np.ndarray]] = defaultdict(list)
    for number, example in enumerate(examples):
        record = example.record
        gold = syntactic_heads(example)
        attention = example.attention
        words = example.word_positions
        maps = attention[:, :, words, words]
        positions = np.arange(words.start, words.stop)
        picks = np.stack([picked_words(maps, direction=direction) for direction in DIRECTIONS])
        with_special = [
            picked_words(attention, positions, direction=direction) for direction in DIRECTIONS
        ]
        # From the first word on; special tokens are outside.
        picks_with_special = np.stack(with_special) - words.start
        relations = np.array(record["relations"])
        names = [ALL, *np.unique(relations).tolist()]
        marks = possessive_marks(record)
        at_offset = np.arange(len(gold)) + OFFSETS[:, None]  # [offset, word]
        article = cluster_of(record, number)
        with_special = _is_right(picks_with_special, gold, marks)
        rows = {
            "splits": [record.get("split", "")],
            "articles": [article_ids.setdefault(article, len(article_ids))],
            "sentence": [number] * len(names),
            "relation": [relation_ids.setdefault(name, len(relation_ids)) for name in names],
            "total": _sum_by_relation(np.ones(len(gold), bool), relations),
            "offset_right": _sum_by_relation(_is_right(at_offset, gold, marks), relations),
            "right": _sum_by_relation(_is_right(picks, gold, marks), relations),
            "right_with_special": with_special.sum(axis=-1, dtype=np.uint16)[None],
        }
        for name, values in rows.items():
            parts[name].append(np.asarray(values))
    if not parts:
        raise InputError("the treebank has no parsed sentence; give one with at least one")
    columns = {name: np.concatenate(values) for name, values in parts.items()}
    return HeadCounts(names=tuple(relation_ids), **columns)


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
