"""One pass over a parsed corpus: how often each head picks the syntactic head (section 4.2).

Individual heads as syntactic classifiers: Table 1 of the paper, with intervals (4.2).

How well each single head does syntax, over all relations: one row for each head.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int, Num, Shaped, UInt16

from helpers.analysis.averages import checked_maps
from helpers.analysis.head_choice import DIRECTIONS, Direction, picked_words, possessive_marks
from helpers.analysis.paper import paper_table1
from helpers.analysis.relations import ALL, paper_names, relation_table, scheme_of
from helpers.analysis.statistics import bootstrap_intervals
from helpers.data.records import Sentence
from helpers.errors import InputError, MapError
from helpers.store.store import Example

OFFSETS = np.array([-5, -4, -3, -2, -1, 1, 2, 3, 4, 5])


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
            yield record, np.stack([picked_words(maps, direction=way) for way in DIRECTIONS])

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
        own_mark = possessive_marks(record)
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


COLUMNS = (
    "relation",
    "count",
    "head",
    "direction",
    "accuracy",
    "ci_low",
    "ci_high",
    "baseline",
    "baseline_offset",
    "paper_head",
    "paper_accuracy",
    "paper_baseline",
)


class Choice(NamedTuple):
    """A head, as indices from 0, and the direction it is read in."""

    direction: int
    layer: int
    head: int

    @property
    def label(self) -> str:
        """The paper's name of the head: layer and head from 1."""
        return f"{self.layer + 1}-{self.head + 1}"


def head_accuracy(
    counts: HeadCounts, relation: str, direction: Direction, *, split: str | None = None
) -> Float[np.ndarray, "layer head"]:
    """Return every head's accuracy at a relation in one direction, in percent.

    ``relation`` is a name of the corpus, or ``"All"``.

    Raises:
        InputError: no word of this relation in the split.
    """
    return _accuracy(counts.right, counts, relation, split)[DIRECTIONS.index(direction)]


def dependency_heads(
    counts: HeadCounts,
    *,
    split: str | None = None,
    minimum: int = 100,
    resamples: int = 1000,
    seed: int = 0,
) -> pd.DataFrame:
    """Return Table 1: the best head of each relation on the data that it is scored on.

    One row per relation with at least ``minimum`` words, "All" first, then by count; the root
    relation has no head to find and is left out.  Accuracies and the 95% bootstrap interval over
    sentences are percentages; the interval is that of the chosen head and does not know that it
    was chosen, which `held_out_heads` corrects.  ``baseline`` is the best fixed offset, from -5
    to 5, under the same rules.  The paper's columns are those of the Stanford relation that
    `relation_table` gives, empty where Table 1 has none.
    """
    relations = _frequent(counts, split, minimum)
    choices = {name: _best_head(counts, name, split) for name in relations}
    low, high = _intervals(counts, choices, split, resamples, seed)
    paper, names = paper_table1(), paper_names(counts.names)
    rows = []
    for index, (name, choice) in enumerate(choices.items()):
        by_offset = _accuracy(counts.offset_right, counts, name, split)
        known = paper.loc[names[name]] if names.get(name) in paper.index else {}
        rows.append(
            {
                "relation": name,
                "count": int(counts.total[counts.rows(name, split)].sum()),
                "head": choice.label,
                "direction": DIRECTIONS[choice.direction],
                "accuracy": _accuracy(counts.right, counts, name, split)[choice],
                "ci_low": low[index],
                "ci_high": high[index],
                "baseline": by_offset.max(),
                "baseline_offset": OFFSETS[by_offset.argmax()],
                "paper_head": known.get("head"),
                "paper_accuracy": known.get("accuracy", np.nan),
                "paper_baseline": known.get("baseline", np.nan),
            }
        )
    return pd.DataFrame(rows, columns=COLUMNS)


def beside_paper(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of Table 1 that the paper has too: its head and figures, and those here.

    ``fit`` says how well the corpus's relation corresponds to the paper's ("exact", "close",
    "rough").
    """
    known = relation_table()
    fits = known[known["scheme"] == scheme_of(table["relation"])].set_index("relation")["fit"]
    ours = table[table["paper_accuracy"].notna()]
    names = paper_names(table["relation"])
    return pd.DataFrame(
        {
            "relation": ours["relation"],
            "in the paper": ours["relation"].map(names),
            "fit": ours["relation"].map(fits).fillna("exact"),
            "paper: head": ours["paper_head"],
            "accuracy": ours["paper_accuracy"],
            "offset": ours["paper_baseline"],
            "here: head": ours["head"],
            "accuracy ": ours["accuracy"].round(1),
            "offset ": ours["baseline"].round(1),
            "direction": ours["direction"],
        }
    ).reset_index(drop=True)


def held_out_heads(
    counts: HeadCounts, *, minimum: int = 100, resamples: int = 1000, seed: int = 0
) -> pd.DataFrame:
    """Return the honest figure: head and direction chosen on train, scored on dev.

    One row per relation with at least ``minimum`` words in train and any in dev.  The baseline's
    offset is chosen on train too.  Columns: relation, head, direction, train_accuracy,
    dev_accuracy, ci_low and ci_high (of dev), train_count, dev_count, baseline (on dev),
    baseline_offset; accuracies in percent.

    Raises:
        InputError: the corpus has no train or no dev split.
    """
    for split in ("train", "dev"):
        if split not in counts.splits:
            raise InputError(f"no {split} sentences; choosing heads on train takes both splits")
    relations = [
        name
        for name in _frequent(counts, "train", minimum)
        if counts.total[counts.rows(name, "dev")].any()
    ]
    choices = {name: _best_head(counts, name, "train") for name in relations}
    low, high = _intervals(counts, choices, "dev", resamples, seed)
    rows = []
    for index, (name, choice) in enumerate(choices.items()):
        offset = _accuracy(counts.offset_right, counts, name, "train").argmax()
        rows.append(
            {
                "relation": name,
                "head": choice.label,
                "direction": DIRECTIONS[choice.direction],
                "train_accuracy": _accuracy(counts.right, counts, name, "train")[choice],
                "dev_accuracy": _accuracy(counts.right, counts, name, "dev")[choice],
                "ci_low": low[index],
                "ci_high": high[index],
                "train_count": int(counts.total[counts.rows(name, "train")].sum()),
                "dev_count": int(counts.total[counts.rows(name, "dev")].sum()),
                "baseline": _accuracy(counts.offset_right, counts, name, "dev")[offset],
                "baseline_offset": OFFSETS[offset],
            }
        )
    return pd.DataFrame(rows)


def fixed_offsets(sentences: Iterable[Sentence], *, minimum: int = 1) -> pd.DataFrame:
    """Return each relation's best fixed offset from -5 to 5 and its accuracy in percent.

    Takes parsed sentences, no attention.  Columns: relation, count, baseline, baseline_offset.
    """
    counts = count_offsets(sentences)
    rows = []
    for name in _frequent(counts, None, minimum):
        by_offset = _accuracy(counts.offset_right, counts, name, None)
        count = int(counts.total[counts.rows(name)].sum())
        rows.append((name, count, by_offset.max(), OFFSETS[by_offset.argmax()]))
    return pd.DataFrame(rows, columns=["relation", "count", "baseline", "baseline_offset"])


def _accuracy(
    right: Num[np.ndarray, "row predictor ..."],
    counts: HeadCounts,
    relation: str,
    split: str | None,
) -> Float[np.ndarray, "predictor ..."]:
    rows = counts.rows(relation, split)
    if not len(rows):
        where = f"the {split} split" if split else "the corpus"
        raise InputError(f"no word of relation {relation!r} in {where}")
    return 100 * right[rows].sum(axis=0, dtype=np.int64) / counts.total[rows].sum(dtype=np.int64)


def _best_head(counts: HeadCounts, relation: str, split: str | None) -> Choice:
    accuracy = _accuracy(counts.right, counts, relation, split)  # [direction, layer, head]
    return Choice(*map(int, np.unravel_index(accuracy.argmax(), accuracy.shape)))


def _frequent(counts: HeadCounts, split: str | None, minimum: int) -> list[str]:
    """Return the relations with enough words, most frequent first ("All" is), without the root."""
    sizes = {}
    for name in counts.names:
        rows = counts.rows(name, split)
        total = int(counts.total[rows].sum())
        if total >= max(minimum, 1) and counts.rooted[rows].sum() < total:
            sizes[name] = total
    # A corpus with a single relation ties with "All", which sorted() then leaves first.
    return sorted(sizes, key=sizes.__getitem__, reverse=True)


def _intervals(
    counts: HeadCounts,
    choices: dict[str, Choice],
    split: str | None,
    resamples: int,
    seed: int,
) -> Float[np.ndarray, "bound relation"]:
    """Return the 95% intervals of the chosen heads in percent, over the sentences of the split."""
    n_sentences = len(counts.splits)
    right, total = np.zeros((2, n_sentences, len(choices)))
    for column, (name, choice) in enumerate(choices.items()):
        rows = counts.rows(name, split)
        right[counts.sentence[rows], column] = counts.right[(rows, *choice)]
        total[counts.sentence[rows], column] = counts.total[rows]
    mine = np.full(n_sentences, True) if split is None else counts.splits == split
    bounds = bootstrap_intervals(right[mine], total[mine], resamples=resamples, seed=seed)
    return 100 * np.stack(bounds)


SCORES = ("best_accuracy", "best_margin", "attachment")


def head_scores(counts: HeadCounts, *, minimum: int) -> pd.DataFrame:
    """Return three scores of each head as a finder of syntactic heads, in percent.

    Columns: layer, head (both from 1), relation (the one that it finds best), best_accuracy (at
    that one), best_margin (the largest lead over a relation's best fixed offset, in points; it
    is not misled by relations that are easy) and attachment (of all words, the better of the two
    directions).  Relations with fewer than ``minimum`` words are left out.
    """
    table = dependency_heads(counts, minimum=minimum, resamples=1)
    best = {
        relation: np.max([head_accuracy(counts, relation, way) for way in DIRECTIONS], axis=0)
        for relation in table["relation"]
    }
    attachment = best.pop(ALL)
    relations = list(best)
    accuracies = np.stack(list(best.values()))  # [relation, layer, head]
    baselines = table.set_index("relation").loc[relations, "baseline"].to_numpy()
    layer, head = np.indices(attachment.shape).reshape(2, -1) + 1
    return pd.DataFrame(
        {
            "layer": layer,
            "head": head,
            "relation": np.array(relations)[accuracies.argmax(axis=0)].ravel(),
            "best_accuracy": accuracies.max(axis=0).ravel(),
            "best_margin": (accuracies - baselines[:, None, None]).max(axis=0).ravel(),
            "attachment": attachment.ravel(),
        }
    )
