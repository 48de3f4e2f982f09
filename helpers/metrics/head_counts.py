"""Counts of the words whose partner each attention head picks (section 4.2).

Partners are syntactic heads, or come from labelled pairs of words.  A word is asked once for each
label of its pairs, so that a tree has one question for each word.  If a word has several partners
of one label, a pick is right if it is any of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int, Num, Shaped, UInt16

from helpers.cache import cached
from helpers.data.links import ROOT, Links, read_links
from helpers.data.records import cluster_of
from helpers.errors import InputError
from helpers.metrics import CODE
from helpers.metrics.heads import DIRECTIONS, LayerNumbers, is_right, picked_words, sees_answer
from helpers.metrics.reference import ALL
from helpers.metrics.statistics import (
    Clusters,
    Whole,
    cluster_sums,
    divide,
)
from helpers.store.store import Example, Store

OFFSETS = np.array([-5, -4, -3, -2, -1, 1, 2, 3, 4, 5])


@dataclass(frozen=True)
class HeadCounts:
    """Number of words that each attention head gets right, by sentence and relation.

    There is a row for each sentence and each relation that occurs in it.  A word counts in the
    layers and directions in which its syntactic head can be picked: under a causal mask, a word
    attends to no later one.  With full attention it counts in all.

    Attributes
    ----------
    names : tuple of str
        Names of the relations.  The first is `ALL`: every question of a sentence.
    split : array of shape (row,)
        Split of the sentence: "train", "dev" or "".
    article : int array of shape (row,)
        Number of the article that the sentence is from.
    relation : int array of shape (row,)
        Index into ``names``.
    total : int array of shape (row,)
        Number of words.
    visible_total : int array of shape (row, direction, layer)
        Number of words whose syntactic head can be picked, roots included.
    offset_right : int array of shape (row, direction, layer, offset)
        Number of these words whose syntactic head stands at each of `OFFSETS`.
    right : int array of shape (row, direction, layer, head)
        Number of words whose syntactic head the attention head picks.
    right_with_special : int array of shape (article, direction, layer, head)
        The same for all words of each article, of any split, if special tokens can be picked as
        well (footnote 2).
    layer_numbers : sequence of int
        The numbers of the layers that attend, from 1; all if there are none.
    """

    names: tuple[str, ...]
    split: Shaped[np.ndarray, " row"]
    article: Int[np.ndarray, " row"]
    relation: Int[np.ndarray, " row"]
    total: UInt16[np.ndarray, " row"]
    visible_total: UInt16[np.ndarray, "row direction layer"]
    offset_right: UInt16[np.ndarray, "row direction layer offset"]
    right: UInt16[np.ndarray, "row direction layer head"]
    right_with_special: Int[np.ndarray, "article direction layer head"]
    layer_numbers: LayerNumbers = ()

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
        by_row = (
            "split", "article", "relation", "total", "visible_total", "offset_right", "right",
        )  # fmt: skip
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
        """
        rows = self.relation == self.names.index(relation)
        return cluster_sums(values[rows], self.article[rows], np.unique(self.article))

    def size(self, relation: str) -> int:
        """Count the words of a relation."""
        return int(self.by_article(self.total, relation).sum())

    def visible_size(self, relation: str) -> Int[np.ndarray, "direction layer"]:
        """Count the words of a relation whose syntactic head can be picked."""
        return self.by_article(self.visible_total, relation).sum(axis=0)

    def frequent(self, minimum: int) -> list[str]:
        """List the relations with at least ``minimum`` words in a layer, except the root.

        Returns
        -------
        list of str
            `ALL` first, then by number of words.
        """
        sizes = {name: self.visible_size(name).max() for name in self.names}
        frequent = [name for name in sizes if sizes[name] >= max(minimum, 1)]
        # In a corpus with a single relation, it ties with "All".  The sort is stable, so "All"
        # stays first.
        frequent.sort(key=self.size, reverse=True)
        return [name for name in frequent if name.lower() != ROOT]

    def accuracy(
        self, relation: str, *, minimum: int = 1
    ) -> Float[np.ndarray, "direction layer head"]:
        """Compute the accuracy of every attention head, in percent.

        Parameters
        ----------
        relation : str
            One of ``names``.
        minimum : int
            Number of words that must count in a layer and direction.

        Returns
        -------
        float array of shape (direction, layer, head)
            NaN if fewer words count.
        """
        return self._percent_right(self.right, relation, minimum)

    def offset_accuracy(
        self, relation: str, *, minimum: int = 1
    ) -> Float[np.ndarray, "direction layer offset"]:
        """Compute the accuracy of each of `OFFSETS` on the words that count, in percent.

        The parameters are those of `accuracy`.
        """
        return self._percent_right(self.offset_right, relation, minimum)

    def _percent_right(
        self, right: UInt16[np.ndarray, "row direction layer _"], relation: str, minimum: int
    ) -> Float[np.ndarray, "direction layer _"]:
        """Divide numbers of right picks by those of the words that count, in percent."""
        sizes = self.visible_size(relation)[..., None]
        percent = divide(100 * self.by_article(right, relation).sum(axis=0), sizes)
        return np.where(sizes >= minimum, percent, np.nan)

    def right_of_head(self, relation: str, head: Sequence[Whole]) -> tuple[Clusters, Clusters]:
        """Sum what a head gets right, times 100, and the words that count, for each article.

        Parameters
        ----------
        relation : str
            One of ``names``.
        head : sequence of int
            Index into `DIRECTIONS`, layer and head, all from 0.

        Returns
        -------
        right, total : array of shape (article,)
            Their ratio is the accuracy in percent.
        """
        direction, layer, _ = head
        right = self.by_article(self.right[:, *head], relation)
        total = self.by_article(self.visible_total[:, direction, layer], relation)
        return 100 * right, total


def head_counts(store: Store) -> HeadCounts:
    """Count the words that every attention head gets right over a treebank, once (section 4.2).

    Parameters
    ----------
    store : Store
        Word-level maps of a treebank.

    Returns
    -------
    HeadCounts
    """
    arrays: dict[str, Any] = cached(
        "head-counts", lambda: vars(count_heads(store)), inputs={"store": store.key}, code=CODE
    )
    names = tuple(arrays.pop("names").tolist())
    return HeadCounts(names=names, **arrays)


def count_heads(examples: Iterable[Example]) -> HeadCounts:
    """Count the words that every attention head gets right, in one pass over a treebank.

    `helpers.metrics.heads` defines which word a head picks, and the rule for a possessor's 's.  No
    pick is right for the root.  Words that a layer's mask hides are no candidates.

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
        If no text has syntactic heads or pairs.
    """
    with_special = defaultdict(int)  # by article
    parts = defaultdict(list)
    for number, example in enumerate(examples):
        record = example.record
        if "words" not in record:  # a text of tokens has no annotation
            continue
        links = read_links(record)
        right, right_with_special = _right_picks(example, links)
        relations = links.relation
        names = [ALL, *np.unique(relations).tolist()]
        at_offset = is_right(links.query + OFFSETS[:, None], links)  # [offset, link]
        counts = links_that_count(example, links)  # [direction, layer, link]
        article = cluster_of(record, number)
        with_special[article] += right_with_special.sum(axis=-1)
        rows = {
            "split": [record.get("split", "")] * len(names),
            "article": [article] * len(names),
            "relation": names,
            "total": _sum_by_relation(np.ones(len(relations), bool), relations),
            "visible_total": _sum_by_relation(counts, relations),
            "offset_right": _sum_by_relation(counts[:, :, None] & at_offset, relations),
            "right": _sum_by_relation(right, relations),
        }
        for name, values in rows.items():
            parts[name].append(np.asarray(values))
    columns = {name: np.concatenate(values) for name, values in parts.items()}
    if not columns or not columns["total"].any():
        raise InputError(
            "the texts have no syntactic heads and no pairs; give a treebank, or records with pairs"
        )
    columns["article"], _ = pd.factorize(columns["article"])
    columns["relation"], names = pd.factorize(columns["relation"])
    by_article = np.stack(list(with_special.values()))
    numbers = np.array(example.layer_numbers, dtype=int)
    return HeadCounts(
        names=tuple(names), right_with_special=by_article, layer_numbers=numbers, **columns
    )


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
    if "heads" not in example.record:
        raise InputError(
            f"example {example.index} has no syntactic heads; give the store of a treebank"
        )
    return np.asarray(example.record["heads"]) - 1


def _right_picks(
    example: Example, links: Links
) -> Bool[np.ndarray, "candidates direction layer head link"]:
    """Mark the links that each head gets right among words, and among special tokens, too."""
    words = example.word_positions
    right = []
    for allowed in (words, slice(None)):
        maps = example.attention[..., allowed, allowed]
        visible = example.visible_keys[:, None, allowed, allowed]
        first = 0 if allowed == words else words.start  # position of the first word
        for direction in DIRECTIONS:
            queries = links.query + first
            picked = picked_words(maps, queries, direction=direction, visible=visible)
            right.append(is_right(picked - first, links))
    return np.reshape(right, (2, len(DIRECTIONS), *right[0].shape))


def links_that_count(example: Example, links: Links) -> Bool[np.ndarray, "direction layer link"]:
    """Mark the links of which a right word can be picked, and the root, which is an error."""
    words = example.word_positions
    visible = example.visible_keys[:, words, words]
    by_direction = [sees_answer(links, visible, direction) for direction in DIRECTIONS]
    return np.stack(by_direction) | links.is_root


def _sum_by_relation(
    marks: Bool[np.ndarray, "*predictor link"], relations: Shaped[np.ndarray, " link"]
) -> UInt16[np.ndarray, "relation ..."]:
    """Count the marked links in all, and by relation in alphabetical order."""
    by_link = np.moveaxis(marks, -1, 0)
    by_relation = cluster_sums(by_link, relations, np.unique(relations))
    return np.concatenate([by_link.sum(axis=0)[None], by_relation]).astype(np.uint16)
