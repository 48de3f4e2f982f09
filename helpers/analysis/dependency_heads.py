"""Individual heads as syntactic classifiers: Table 1 of the paper (section 4.2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int, Num, Shaped, UInt16

from helpers.analysis.averages import checked_maps
from helpers.analysis.head_choice import DIRECTIONS, Direction, picked_words, possessive_marks
from helpers.analysis.heads import head_label
from helpers.analysis.paper import paper_table1
from helpers.analysis.relations import ALL, paper_names, relation_table, scheme_of
from helpers.analysis.statistics import bootstrap_intervals, holm, sign_flip_test
from helpers.data.records import cluster_of
from helpers.errors import InputError, MapError
from helpers.store.store import Example

Accuracies = Float[np.ndarray, "direction layer head"]

OFFSETS = np.array([-5, -4, -3, -2, -1, 1, 2, 3, 4, 5])
COLUMNS = (
    "relation", "count", "head", "direction", "accuracy", "ci_low", "ci_high", "baseline",
    "baseline_offset", "paper_head", "paper_accuracy", "paper_baseline", "p_best",
)  # fmt: skip
HELD_OUT_COLUMNS = (
    "relation", "head", "direction", "train_accuracy", "dev_accuracy", "ci_low", "ci_high",
    "train_count", "dev_count", "baseline", "baseline_offset", "margin", "margin_low",
    "margin_high", "p_holm",
)  # fmt: skip


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

    def size(self, relation: str, split: str | None = None) -> int:
        """Return how many words of a relation there are, in one split or in all."""
        return int(self.total[self.rows(relation, split)].sum(dtype=np.int64))

    def frequent(self, minimum: int, split: str | None = None) -> list[str]:
        """Return the relations with enough words, the root left out, most frequent first.

        ``"All"`` is the first of them.
        """
        sizes = {name: self.size(name, split) for name in self.names}
        listed = [
            name
            for name, size in sizes.items()
            if size >= max(minimum, 1) and self.rooted[self.rows(name, split)].sum() < size
        ]
        # A corpus with a single relation ties with "All", which sorted() then leaves first.
        return sorted(listed, key=sizes.__getitem__, reverse=True)

    def accuracy(self, relation: str, split: str | None = None) -> Accuracies:
        """Return every head's accuracy in percent, in both `DIRECTIONS`.

        Raises:
            InputError: no word of this relation in the split.
        """
        return self._percent(self.right, relation, split)

    def offset_accuracy(
        self, relation: str, split: str | None = None
    ) -> Float[np.ndarray, " offset"]:
        """Return the accuracy of each of `OFFSETS` in percent."""
        return self._percent(self.offset_right, relation, split)

    def _percent(self, right: np.ndarray, relation: str, split: str | None) -> np.ndarray:
        rows = self.rows(relation, split)
        if not len(rows):
            where = f"the {split} split" if split else "the corpus"
            raise InputError(f"no word of relation {relation!r} in {where}")
        return 100 * right[rows].sum(axis=0, dtype=np.int64) / self.size(relation, split)


class Choice(NamedTuple):
    """A head, as indices from 0, and the direction it is read in."""

    direction: int
    layer: int
    head: int


def count_heads(examples: Iterable[Example]) -> HeadCounts:
    """Count what every head of a model gets right, reading each example once.

    Which word a head picks, and the rule for a possessor's 's, are in `helpers.analysis.
    head_choice`; the root is right for no pick.  `ALL` is the plain attachment score, without the
    rule for possessors.

    Memory: four bytes a head for each sentence and relation.

    Raises:
        InputError: the records have no syntactic heads, or there is none.
        MapError: a map is not a distribution over keys, or of another size than its sentence.
    """
    ids, articles = {ALL: 0}, {}
    splits: list[str] = []
    owners, relations, totals, rooted, by_offset, by_head, clusters = [], [], [], [], [], [], []
    for number, example in enumerate(examples):
        record, maps = example.record, _word_maps(example)
        picks = np.stack([picked_words(maps, direction=way) for way in DIRECTIONS])
        gold = np.asarray(record["heads"]) - 1  # the root: -1
        names, member = _membership(record["relations"])
        own_mark = possessive_marks(record)
        shifted = np.arange(len(gold)) + OFFSETS[:, None]  # [offset, word]
        splits.append(record.get("split", ""))
        clusters.append(articles.setdefault(cluster_of(record, number), len(articles)))
        owners.append(np.full(len(names), number))
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
        np.array(clusters),
        np.concatenate(owners),
        np.concatenate(relations),
        np.concatenate(totals).astype(np.uint16),
        np.concatenate(rooted).astype(np.uint16),
        np.concatenate(by_offset),
        np.concatenate(by_head),
    )


def _word_maps(example: Example) -> Float[np.ndarray, "layer head word word"]:
    record, words = example.record, example.word_positions
    if "heads" not in record or "relations" not in record:
        raise InputError(
            f"example {example.index} has no syntactic heads; expected the store of a treebank"
        )
    maps = checked_maps(example)[:, :, words, words]
    if maps.shape[-1] != len(record["heads"]):
        raise MapError(
            example.index,
            f"expected a map over {len(record['heads'])} words; extract the store again",
        )
    return maps


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
    plain = (picks == gold) & (gold >= 0)  # an offset may point to -1, where the root's head is
    right = plain.copy()
    for possessor, mark in own_mark.items():
        right[..., possessor] |= picks[..., mark] == gold[possessor]
    # [predictor ..., word] @ [word, relation]; ALL, the first relation, knows no possessor rule
    counts = right.astype(np.float32) @ member.astype(np.float32)
    counts[..., 0] = plain.sum(axis=-1)
    return np.moveaxis(counts, -1, 0).astype(np.uint16)


def head_accuracy(
    counts: HeadCounts, relation: str, direction: Direction, *, split: str | None = None
) -> Float[np.ndarray, "layer head"]:
    """Return every head's accuracy at a relation in one direction: `HeadCounts.accuracy`."""
    return counts.accuracy(relation, split)[DIRECTIONS.index(direction)]


def dependency_heads(counts: HeadCounts, *, minimum: int = 100, seed: int = 0) -> pd.DataFrame:
    """Return Table 1 as the paper has it: the best head of each relation, scored where it is best.

    One row per relation with at least ``minimum`` words, "All" first, then by count; the root
    relation has no head to find and is left out.  Accuracies and the 95% bootstrap interval over
    articles are percentages; the interval is that of the chosen head and does not know that it
    was chosen: `held_out_heads` has the figures to argue with.  ``baseline`` is the best fixed
    offset, from -5 to 5, under the same rules.  The paper's columns are those of the Stanford
    relation that `relation_table` gives, empty where Table 1 has none.  ``p_best`` says that the
    best of all heads and both directions beats that offset, the choice counted in.
    """
    paper, names = paper_table1(), paper_names(counts.names)
    rows = []
    for name in counts.frequent(minimum):
        choice = _best_head(counts, name, None)
        by_offset = counts.offset_accuracy(name)
        known = paper.loc[names[name]] if names.get(name) in paper.index else {}
        rows.append(
            {
                "relation": name,
                "count": counts.size(name),
                **_scores(counts, name, choice, None, seed),
                "baseline": by_offset.max(),
                "baseline_offset": OFFSETS[by_offset.argmax()],
                "paper_head": known.get("head"),
                "paper_accuracy": known.get("accuracy", np.nan),
                "paper_baseline": known.get("baseline", np.nan),
                "p_best": sign_flip_test(_leads(counts, name, by_offset.argmax()), seed=seed)[1],
            }
        )
    return pd.DataFrame(rows, columns=COLUMNS)


def held_out_heads(counts: HeadCounts, *, minimum: int = 100, seed: int = 0) -> pd.DataFrame:
    """Return what single heads are worth: head, direction and offset chosen on train, for dev.

    One row per relation with at least ``minimum`` words in train and any in dev; none where no
    relation reaches it.  The columns are `HELD_OUT_COLUMNS`, in percent and points; ``baseline``
    is on dev.  ``margin`` is the head less the offset on the same words, with a 95% bootstrap
    interval over articles; ``p_holm`` says that it is above zero, adjusted for the number of
    relations (`sign_flip_test`, `holm`).

    Raises:
        InputError: the corpus has no train or no dev split.
    """
    for split in ("train", "dev"):
        if split not in counts.splits:
            raise InputError(f"no {split} sentences; choosing heads on train takes both splits")
    rows, p_values = [], []
    for name in counts.frequent(minimum, "train"):
        if not counts.size(name, "dev"):
            continue
        choice = _best_head(counts, name, "train")
        offset = int(counts.offset_accuracy(name, "train").argmax())
        scores = _scores(counts, name, choice, "dev", seed)
        lead = _leads(counts, name, offset, "dev")[(slice(None), *choice)]
        total = _by_article(counts, name, "dev", counts.total)
        low, high = bootstrap_intervals(lead[:, None], total[:, None], seed=seed)
        p_values.append(sign_flip_test(lead, seed=seed)[1])
        rows.append(
            {
                "relation": name,
                **scores,
                "train_accuracy": counts.accuracy(name, "train")[choice],
                "dev_accuracy": scores["accuracy"],
                "train_count": counts.size(name, "train"),
                "dev_count": counts.size(name, "dev"),
                "baseline": counts.offset_accuracy(name, "dev")[offset],
                "baseline_offset": OFFSETS[offset],
                "margin": 100 * lead.sum() / total.sum(),
                **{"margin_low": 100 * low[0], "margin_high": 100 * high[0]},
            }
        )
    return pd.DataFrame(rows, columns=HELD_OUT_COLUMNS).assign(p_holm=holm(p_values))


def beside_paper(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of Table 1 that the paper has too: its head and figures, and those here.

    ``fit`` says how well the corpus's relation corresponds to the paper's ("exact", "close",
    "rough"); ``note`` where the paper's figure is in doubt.
    """
    known = relation_table()
    fits = known[known["scheme"] == scheme_of(table["relation"])].set_index("relation")["fit"]
    ours = table[table["paper_accuracy"].notna()]
    names = ours["relation"].map(paper_names(table["relation"]))
    return pd.DataFrame(
        {
            "relation": ours["relation"],
            "in the paper": names,
            "fit": ours["relation"].map(fits).fillna("exact"),
            "paper: head": ours["paper_head"],
            "accuracy": ours["paper_accuracy"],
            "offset": ours["paper_baseline"],
            "here: head": ours["head"],
            "accuracy ": ours["accuracy"].round(1),
            "offset ": ours["baseline"].round(1),
            "direction": ours["direction"],
            "note": names.map(paper_table1()["note"]).fillna(""),
        }
    ).reset_index(drop=True)


def _by_article(
    counts: HeadCounts, relation: str, split: str | None, values: Num[np.ndarray, "row ..."]
) -> Int[np.ndarray, "article ..."]:
    """Return the sums over the articles of a split of ``values`` in the rows of a relation."""
    rows = counts.rows(relation, split)
    mine = slice(None) if split is None else counts.splits == split
    articles = np.unique(counts.articles[mine])
    sums = np.zeros((len(articles), *values.shape[1:]), np.int64)
    owner = np.searchsorted(articles, counts.articles[counts.sentence[rows]])
    np.add.at(sums, owner, values[rows])
    return sums


def _leads(
    counts: HeadCounts, relation: str, offset: int, split: str | None = None
) -> Int[np.ndarray, "article direction layer head"]:
    """Return how many more words of each article every head gets right than a fixed offset."""
    by_offset = _by_article(counts, relation, split, counts.offset_right[:, offset])
    return _by_article(counts, relation, split, counts.right) - by_offset[:, None, None, None]


def _scores(
    counts: HeadCounts, relation: str, choice: Choice, split: str | None, seed: int
) -> dict[str, object]:
    """Return a head's name, direction, accuracy and interval in percent."""
    right = _by_article(counts, relation, split, counts.right[(slice(None), *choice)])
    total = _by_article(counts, relation, split, counts.total)
    low, high = bootstrap_intervals(right[:, None], total[:, None], seed=seed)
    return {
        "head": head_label(choice.layer, choice.head),
        "direction": DIRECTIONS[choice.direction],
        "accuracy": 100 * right.sum() / total.sum(),
        "ci_low": 100 * low[0],
        "ci_high": 100 * high[0],
    }


def _best_head(counts: HeadCounts, relation: str, split: str | None) -> Choice:
    accuracy = counts.accuracy(relation, split)  # [direction, layer, head]
    return Choice(*map(int, np.unravel_index(accuracy.argmax(), accuracy.shape)))
