"""Counts of the words whose partner each attention head picks (sections 4.2 and 4.3).

Partners are syntactic heads, antecedents of mentions, or come from labelled pairs of words.  A word
is asked once for each label of its pairs, so that a tree has one question for each word.  If a word
has several partners of one label, a pick is right if it is any of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int, Num, Shaped, UInt16

from helpers.cache import cached
from helpers.data.links import ROOT, Links, read_links
from helpers.data.records import Record, cluster_of
from helpers.errors import InputError
from helpers.metrics import CODE
from helpers.metrics.heads import DIRECTIONS, LayerNumbers, is_right, picked_words, sees_answer
from helpers.metrics.reference import ALL
from helpers.metrics.statistics import Clusters, Whole, cluster_sums, divide
from helpers.store.store import Example, Store

OFFSETS = np.array([-5, -4, -3, -2, -1, 1, 2, 3, 4, 5])


@dataclass(frozen=True)
class HeadCounts:
    """Number of words that each attention head gets right, by sentence and relation.

    There is a row for each sentence and each relation that occurs in it.  A word counts in the
    layers and directions in which its syntactic head can be picked: under a causal mask, a word
    attends to no later one.  With full attention it counts in all.  For coreference (4.3), the rows
    are those of documents and types of mentions, and there is one direction.

    Attributes
    ----------
    split : array of shape (row,)
        Split of the sentence: "train", "dev" or "".
    article : int array of shape (row,)
        Number of the article that the sentence is from.
    relation : array of shape (row,)
        Name of the relation.  The first row has that of all questions of a sentence.
    total : int array of shape (row,)
        Number of words.
    visible_total : int array of shape (row, direction, layer)
        Number of words whose syntactic head can be picked, roots included.
    rival_right : int array of shape (row, direction, layer, rival)
        Number of these words that each rival of the heads gets right: each of `OFFSETS`, or the
        rules for coreference.
    right : int array of shape (row, direction, layer, head)
        Number of words whose syntactic head the attention head picks.
    layer_numbers : sequence of int
        The numbers of the layers that attend, from 1; all if there are none.
    """

    split: Shaped[np.ndarray, " row"]
    article: Int[np.ndarray, " row"]
    relation: Shaped[np.ndarray, " row"]
    total: UInt16[np.ndarray, " row"]
    visible_total: UInt16[np.ndarray, "row direction layer"]
    rival_right: UInt16[np.ndarray, "row direction layer rival"]
    right: UInt16[np.ndarray, "row direction layer head"]
    layer_numbers: LayerNumbers = ()

    @property
    def names(self) -> list[str]:
        """Names of the relations, in order of appearance."""
        return list(dict.fromkeys(self.relation.tolist()))

    def of_split(self, split: str) -> HeadCounts:
        """Select the rows of a split, "train" or "dev".

        Raises
        ------
        InputError
            If the treebank has no sentence of the split.
        """
        rows = self.split == split
        if not rows.any():
            raise InputError(
                f"the treebank has no {split} sentences, but heads are chosen on train and scored "
                "on dev; give a treebank with both (TRAIN,DEV), more sentences (--sentences), or "
                "more tokens for long ones (--max-tokens)"
            )
        fields = vars(self).items()
        by_row = {name: values[rows] for name, values in fields if name != "layer_numbers"}
        return replace(self, **by_row)

    def by_article(
        self, values: Num[np.ndarray, "row ..."], relation: str, split: str = ""
    ) -> Clusters:
        """Sum values over the rows of a relation, for each article.

        Parameters
        ----------
        values : array of shape (row, ...)
            A value for each row of the counts.
        relation : str
            The relation.
        split : str
            The split that counts; by default all do.

        Returns
        -------
        array of shape (article, ...)
            Articles without a word of the relation have zeros.
        """
        rows = self.relation == relation
        if split:
            rows &= self.split == split
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
        names = [name for name in self.names if self.visible_size(name).max() >= max(minimum, 1)]
        # In a corpus with a single relation, it ties with "All".  The sort is stable, so "All"
        # stays first.
        names.sort(key=self.size, reverse=True)
        return [name for name in names if name.lower() != ROOT]

    def accuracy(
        self, relation: str, *, minimum: int = 1
    ) -> Float[np.ndarray, "direction layer head"]:
        """Compute the accuracy of every attention head, in percent.

        Parameters
        ----------
        relation : str
            The relation.
        minimum : int
            Number of words that must count in a layer and direction.

        Returns
        -------
        float array of shape (direction, layer, head)
            NaN if fewer words count.
        """
        return self._percent_right(self.right, relation, minimum)

    def rival_accuracy(self, relation: str) -> Float[np.ndarray, "direction layer rival"]:
        """Compute the accuracy of each rival on the words that count, in percent."""
        return self._percent_right(self.rival_right, relation, 1)

    def _percent_right(
        self, right: Num[np.ndarray, "row direction layer _"], relation: str, minimum: int
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
            The relation.
        head : sequence of int
            Index into `DIRECTIONS`, layer and head, all from 0.

        Returns
        -------
        right, total : array of shape (article,)
            Their ratio is the accuracy in percent.
        """
        right = self.by_article(self.right[:, *head], relation)
        total = self.by_article(self.visible_total[:, *head[:2]], relation)
        return 100 * right, total

    def leads_of_head(
        self, relation: str, head: Sequence[Whole], rival: Whole
    ) -> tuple[Clusters, Clusters]:
        """Sum by how much a head leads a rival, times 100, and the words, for each article.

        As `right_of_head`; ``rival`` is its index, and the ratio is the margin of the head in
        percentage points.
        """
        right, total = self.right_of_head(relation, head)
        rival_right = self.by_article(self.rival_right[:, *head[:2], rival], relation)
        return right - 100 * rival_right, total


def head_counts(store: Store, *, special_tokens: bool = False) -> HeadCounts:
    """Count the words that every attention head gets right over a treebank, once (section 4.2).

    Parameters
    ----------
    store : Store
        Word-level maps of a treebank.
    special_tokens : bool
        Whether a head can pick special tokens (footnote 2).

    Returns
    -------
    HeadCounts
    """
    compute = partial(count_heads, store, special_tokens=special_tokens)
    inputs = {"store": store.key, "special_tokens": special_tokens}
    return cached_counts("head-counts", compute, inputs)


def cached_counts(
    name: str, compute: Callable[[], HeadCounts], inputs: Mapping[str, Any]
) -> HeadCounts:
    """Count with `helpers.cache.cached`."""
    return HeadCounts(**cached(name, lambda: vars(compute()), inputs=inputs, code=CODE))


def count_heads(examples: Iterable[Example], *, special_tokens: bool = False) -> HeadCounts:
    """Count the words that every attention head gets right, in one pass over a treebank.

    `helpers.metrics.heads` defines which word a head picks, and the rule for a possessor's 's.  No
    pick is right for the root.  Words that a layer's mask hides are no candidates.

    Parameters
    ----------
    examples : iterable of Example
        Word-level maps of a treebank, such as ``Study().treebank_store()``.
    special_tokens : bool
        Whether a head can pick special tokens, which are never right (footnote 2).

    Returns
    -------
    HeadCounts

    Raises
    ------
    InputError
        If no text has syntactic heads or pairs.
    """
    parts = []
    for number, example in enumerate(examples):
        if "words" not in example.record:  # a text of tokens has no annotation
            continue
        links = read_links(example.record)
        first = example.word_positions.start
        queries = links.query + first
        is_candidate = example.is_word | special_tokens
        candidates = np.broadcast_to(is_candidate, (len(queries), len(example)))
        options = {"candidates": candidates, "visible": example.visible_keys[:, None]}
        right = []
        for direction in DIRECTIONS:
            picked = picked_words(example.attention, queries, direction=direction, **options)
            right.append(is_right(picked - first, links))
        counts = links_that_count(example, links)  # [direction, layer, link]
        at_offset = counts[:, :, None] & is_right(links.query + OFFSETS[:, None], links)
        rows = {ALL: np.ones(len(links.relation), bool)} | rows_of_relations(links)
        marks = (counts, at_offset, np.array(right))
        parts.append(count_rows(example.record, number, rows, *marks, example.layer_numbers))
    return join_rows(parts)


def rows_of_relations(links: Links) -> dict[str, Bool[np.ndarray, " link"]]:
    """Mark the links of each relation."""
    return {name: links.relation == name for name in np.unique(links.relation)}


def count_rows(
    record: Record,
    number: int,
    rows: Mapping[str, Bool[np.ndarray, " link"]],
    counts: Bool[np.ndarray, "direction layer link"],
    rival_right: Bool[np.ndarray, "direction layer rival link"],
    right: Bool[np.ndarray, "direction layer head link"],
    layer_numbers: LayerNumbers = (),
) -> dict[str, Any]:
    """Count for a text, which is the ``number``-th, what `HeadCounts` has.

    ``rows`` marks the links of each row, and ``counts`` those that count in a layer.
    """
    is_of_row = np.array(list(rows.values()), np.float32).T  # [link, row]
    columns: dict[str, Any] = {
        "relation": np.array(list(rows)),
        "article": np.full(len(rows), cluster_of(record, number)),
        "split": np.full(len(rows), record.get("split", "")),
        "total": is_of_row.sum(axis=0).astype(np.uint16),
        "layer_numbers": np.array(layer_numbers, dtype=int),
    }
    marks = {"visible_total": counts, "rival_right": rival_right, "right": right}
    for name, values in marks.items():
        columns[name] = np.moveaxis(values @ is_of_row, -1, 0).astype(np.uint16)  # [row, ...]
    return columns


def join_rows(parts: Sequence[Mapping[str, Any]]) -> HeadCounts:
    """Join the labelled rows of all texts.

    Raises
    ------
    InputError
        If there is nothing to count.
    """
    if not any(part["total"].any() for part in parts):
        raise InputError(
            "the texts have no syntactic heads and no pairs, and no mention has an antecedent "
            "within its document; give a treebank, records with pairs, or documents in which "
            "coreference chains continue, and raise --max-tokens if documents are cut too early"
        )
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    columns["article"], _ = pd.factorize(columns["article"])
    columns["layer_numbers"] = parts[0]["layer_numbers"]  # every part has the same
    return HeadCounts(**columns)


def between_words(
    example: Example,
) -> tuple[Float[np.ndarray, "layer head word word"], Bool[np.ndarray, "layer 1 word word"]]:
    """Read the maps between the words of an example, and which words see which."""
    words = example.word_positions
    maps = example.stored_attention[:, :, words, words].astype(np.float32)
    return maps, example.visible_keys[:, None, words, words]


def links_that_count(example: Example, links: Links) -> Bool[np.ndarray, "direction layer link"]:
    """Mark the links of which a right word can be picked, and the root, which is an error."""
    words = example.word_positions
    visible = example.visible_keys[:, words, words]
    by_direction = [sees_answer(links, visible, direction) for direction in DIRECTIONS]
    return np.array(by_direction) | links.is_root
