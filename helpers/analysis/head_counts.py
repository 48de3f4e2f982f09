"""What every head gets right about syntax, counted in one pass over a treebank (section 4.2)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int, Num, Shaped, UInt16

from helpers.analysis.heads import DIRECTIONS, picked_words, possessive_marks
from helpers.analysis.paper import ALL
from helpers.analysis.statistics import cluster_sums
from helpers.data.records import cluster_of
from helpers.errors import InputError
from helpers.store.store import Example, checked_maps

OFFSETS = np.array([-5, -4, -3, -2, -1, 1, 2, 3, 4, 5])


@dataclass(frozen=True)
class HeadCounts:
    """How many words of each relation each head gets right, sentence by sentence.

    One row per sentence and relation that occurs in it.  ``relation`` indexes ``names``, whose
    first entry is `ALL` (every word of the sentence); ``sentence`` indexes ``splits`` and
    ``articles``, which has a number for each article.  ``right`` counts the words whose syntactic
    head the attention head picks, ``offset_right`` those whose head stands at each of `OFFSETS`.
    """

    names: tuple[str, ...]
    splits: Shaped[np.ndarray, " sentence"]
    articles: Int[np.ndarray, " sentence"]
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

    def by_article(
        self, values: Num[np.ndarray, "row ..."], relation: str, split: str | None = None
    ) -> Num[np.ndarray, "article ..."]:
        """Return the sums over the articles of a split of ``values`` in a relation's rows."""
        rows = self.rows(relation, split)
        mine = slice(None) if split is None else self.splits == split
        articles = np.unique(self.articles[mine])
        return cluster_sums(values[rows], self.articles[self.sentence[rows]], articles)

    def size(self, relation: str, split: str | None = None) -> int:
        """Return how many words of a relation there are, in one split or in all."""
        return int(self.total[self.rows(relation, split)].sum(dtype=np.int64))

    def rare(self, minimum: int) -> str:
        """Name the relations that have fewer words, with how many they have."""
        sizes = {name: self.size(name) for name in self.names}
        own = sorted((name for name in sizes if sizes[name] < minimum), key=lambda n: -sizes[n])
        return ", ".join(f"{name} ({sizes[name]})" for name in own) or "none"

    def frequent(self, minimum: int, split: str | None = None) -> list[str]:
        """Return the relations with enough words, but the root: "All", then by frequency."""
        sizes = {name: self.size(name, split) for name in self.names}
        enough = [name for name in self.names if sizes[name] >= max(minimum, 1)]
        listed = [n for n in enough if self.rooted[self.rows(n, split)].sum() < sizes[n]]
        # A corpus with a single relation ties with "All", which sorted() then leaves first.
        return sorted(listed, key=sizes.__getitem__, reverse=True)

    def accuracy(
        self, relation: str, split: str | None = None, *, offsets: bool = False
    ) -> Float[np.ndarray, "direction layer head"] | Float[np.ndarray, " offset"]:
        """Return every head's accuracy in percent, or that of `OFFSETS`; InputError for no word."""
        rows, right = self.rows(relation, split), self.offset_right if offsets else self.right
        if not len(rows):
            where = f"the {split} split" if split else "the corpus"
            raise InputError(f"no word of relation {relation!r} in {where}")
        return 100 * right[rows].sum(axis=0, dtype=np.int64) / self.size(relation, split)


def count_heads(examples: Iterable[Example]) -> HeadCounts:
    """Count what every head of a model gets right, reading each example once.

    Which word a head picks, and the rule for a possessor's 's, are in `helpers.analysis.heads`; the
    root is right for no pick.  It takes twelve bytes a head for each sentence and relation.
    InputError where the records have no syntactic heads, or there is none; MapError where a map is
    not a distribution over keys, or of another size than its sentence.
    """
    ids, articles = {ALL: 0}, {}
    parts: dict[str, list[np.ndarray]] = defaultdict(list)
    for number, example in enumerate(examples):
        record, maps = example.record, word_maps(example)[0]
        picks = np.stack([picked_words(maps, direction=way) for way in DIRECTIONS])
        gold = np.asarray(record["heads"]) - 1  # the root: -1
        names, member = _membership(record["relations"])
        own_mark = possessive_marks(record)
        shifted = np.arange(len(gold)) + OFFSETS[:, None]  # [offset, word]
        article = articles.setdefault(cluster_of(record, number), len(articles))
        found = {
            "splits": [record.get("split", "")],
            "articles": [article],
            "sentence": [number] * len(names),
            "relation": [ids.setdefault(name, len(ids)) for name in names],
            "total": member.sum(axis=0, dtype=np.uint16),
            "rooted": member[gold < 0].sum(axis=0, dtype=np.uint16),
            "offset_right": _hits(shifted, gold, member, own_mark),
            "right": _hits(picks, gold, member, own_mark),
        }
        for name, rows in found.items():
            parts[name].append(np.asarray(rows))
    if not parts:
        raise InputError("no parsed sentence; expected a treebank with at least one")
    return HeadCounts(tuple(ids), **{name: np.concatenate(rows) for name, rows in parts.items()})


def word_maps(
    example: Example,
) -> tuple[Float[np.ndarray, "layer head word word"], Float[np.ndarray, "layer head word"]]:
    """Return a sentence's maps over words, and what each word gives to special tokens.

    InputError where the record has no syntactic heads, MapError where a map is no distribution.
    """
    record, words = example.record, example.word_positions
    if "heads" not in record or "relations" not in record:
        raise InputError(
            f"example {example.index} has no syntactic heads; expected the store of a treebank"
        )
    whole = checked_maps(example)
    beside = whole[:, :, words, : words.start], whole[:, :, words, words.stop :]
    return whole[:, :, words, words], sum(part.sum(axis=-1) for part in beside)


def _membership(relations: list[str]) -> tuple[list[str], Bool[np.ndarray, "word relation"]]:
    """Return a sentence's relations, `ALL` first, and which word belongs to which."""
    names, inverse = np.unique(np.asarray(relations, dtype=object), return_inverse=True)
    member = inverse[:, None] == np.arange(len(names))
    return [ALL, *names], np.column_stack([np.ones(len(inverse), bool), member])


def _hits(
    picks: Int[np.ndarray, "predictor ... word"],
    gold: Int[np.ndarray, " word"],
    member: Bool[np.ndarray, "word relation"],
    own_mark: Mapping[int, int],
) -> UInt16[np.ndarray, "relation predictor ..."]:
    """Return how many words of each relation each predictor gets right."""
    right = (picks == gold) & (gold >= 0)  # an offset may point to -1, where the root's head is
    for possessor, mark in own_mark.items():
        right[..., possessor] = picks[..., mark] == gold[possessor]
    # [predictor ..., word] @ [word, relation]
    counts = right.astype(np.float32) @ member.astype(np.float32)
    return np.moveaxis(counts, -1, 0).astype(np.uint16)
