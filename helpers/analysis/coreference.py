"""Coreference by single attention heads, beside rules: Table 2 of the paper (section 4.3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Literal, get_args

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int, Num, Shaped

from helpers.analysis.coreference_rules import (
    MENTION_TYPES,
    SYSTEMS,
    DocumentMention,
    antecedents,
    document_mentions,
    selected,
)
from helpers.analysis.heads import checked_maps, head_label, picked_words
from helpers.analysis.paper import paper_table2
from helpers.analysis.statistics import cluster_sums, paired_interval, ratio
from helpers.errors import InputError
from helpers.store.store import Example

# Head words of all other mentions; of those before the mention; or all other words.
Candidates = Literal["mentions", "earlier mentions", "words"]

CANDIDATES: tuple[Candidates, ...] = get_args(Candidates)
UNMATCHED = "nominal without match"  # no earlier mention has the same head word
TYPES = ("all", *MENTION_TYPES)
ROWS = (*TYPES, UNMATCHED)
NOMINAL_LESS_ALL = "nominal less all"
COLUMNS = (
    "system", "head", "candidates", "type", "n", "accuracy", "ci_low", "ci_high", "paper_accuracy",
)  # fmt: skip
HEAD, HELD_OUT = "head", "head of the type (chosen on train, scored on dev)"
NO_ANTECEDENT = (
    "no mention has an antecedent within its document; expected coreference chains that begin and "
    "go on before a document is cut (--max-tokens)"
)


@dataclass(frozen=True)
class Judgements:
    """Which systems are right about which mention; only mentions with an antecedent are here.

    ``document`` indexes ``splits``, that is, the documents in the order they were read.
    ``rules`` has an array for each of the paper's baselines, ``heads`` one for each candidate
    set.  ``unmatched`` says of which mentions no earlier one has the head word.
    """

    splits: Shaped[np.ndarray, " document"]
    document: Int[np.ndarray, " mention"]
    types: Shaped[np.ndarray, " mention"]
    rules: Mapping[str, Bool[np.ndarray, " mention"]]
    heads: Mapping[Candidates, Bool[np.ndarray, "layer head mention"]]
    unmatched: Bool[np.ndarray, " mention"]

    def select(self, kind: str = "all", split: str | None = None) -> Bool[np.ndarray, " mention"]:
        """Return which mentions are of one of `ROWS`, in one split or in all."""
        if kind == UNMATCHED:
            return self.select("nominal", split) & self.unmatched
        of_type = (self.types == kind) | (kind == "all")
        return of_type if split is None else of_type & (self.splits[self.document] == split)

    def accuracy(
        self, candidates: Candidates = "mentions", split: str | None = None, kind: str = "all"
    ) -> Float[np.ndarray, "layer head"]:
        """Return every head's accuracy in percent; an error where the split has no such mention."""
        mine = self.select(kind, split)
        if not mine.any():
            raise InputError(f"no mention with an antecedent in {split or 'any'} split")
        return 100 * self.heads[candidates][:, :, mine].mean(axis=-1)

    def best_head(
        self, candidates: Candidates = "mentions", split: str | None = None, kind: str = "all"
    ) -> tuple[int, int]:
        """Return the most accurate head over a kind of mention, as layer and head from 0.

        Over all kinds where the split has none of that one.
        """
        kind = kind if self.select(kind, split).any() else "all"
        best = int(self.accuracy(candidates, split, kind).argmax())
        return divmod(best, self.heads[candidates].shape[1])

    def sums(
        self, values: Num[np.ndarray, " mention"], kind: str, split: str | None = None
    ) -> tuple[Num[np.ndarray, " document"], Int[np.ndarray, " document"]]:
        """Return the sums of the documents of a split, in percent, and how many mentions each."""
        mine = self.select(kind, split)
        documents = np.flatnonzero((self.splits == split) | (split is None))
        both = 100 * values.astype(int), np.ones(len(mine), int)
        return tuple(cluster_sums(own[mine], self.document[mine], documents) for own in both)

    def held_out(self) -> bool:
        """Return whether a head can be chosen on train and scored on dev."""
        return all(self.select(split=split).any() for split in ("train", "dev"))


def first_document(examples: Iterable[Example]) -> Example:
    """Return the first document in which a mention has an antecedent.

    InputError where the records have no mentions, or no mention has an antecedent.
    """
    for example in examples:
        if antecedents(_mentions(example)):
            return example
    raise InputError(NO_ANTECEDENT)


def judge(examples: Iterable[Example]) -> Judgements:
    """Let every head and every rule select an antecedent for every mention that has one.

    A head selects the candidate that the mention's head word attends to most; it is right if that
    is the head word of one of the earlier mentions of its chain.  The mention's own head word and
    special tokens are never candidates.  InputError where the records have no mentions, or no
    mention has an antecedent; MapError where a map is not a distribution over keys, or of another
    size than its document.
    """
    splits, rows, by_heads = [], [], []
    for example in examples:
        mentions, words = _mentions(example), example.word_positions
        maps = checked_maps(example)[:, :, words, words]
        head_words, all_words = [mention.head for mention in mentions], np.arange(maps.shape[-1])
        for index, correct in antecedents(mentions).items():
            right = [selected(name, mentions, index) in correct for name in SYSTEMS]
            unmatched = selected("head match", mentions, index) is None
            rows.append((len(splits), mentions[index].type, unmatched, *right))
            before, asked, after = head_words[:index], head_words[index], head_words[index + 1 :]
            sets = before + after, before, all_words  # as in `CANDIDATES`
            allowed = np.array([np.isin(all_words, own) for own in sets])
            picked = picked_words(maps, np.full(len(sets), asked), candidates=allowed)
            gold = {head_words[i] for i in correct} - {asked}
            by_heads.append(np.isin(picked, list(gold)))  # [layer, head, candidates]
        splits.append(example.record.get("split", ""))
    if not rows:
        raise InputError(NO_ANTECEDENT)
    document, types, unmatched, *rules = map(np.array, zip(*rows, strict=True))
    by_rule = dict(zip(SYSTEMS, rules, strict=True))
    by_candidates = dict(zip(CANDIDATES, np.stack(by_heads).transpose(3, 1, 2, 0), strict=True))
    return Judgements(np.array(splits), document, types, by_rule, by_candidates, unmatched)


def _mentions(example: Example) -> list[DocumentMention]:
    if "mentions" not in example.record:
        raise InputError(
            f"example {example.index} has no mentions; expected the store of a coreference corpus"
        )
    return document_mentions(example.record)


def coreference_table(judgements: Judgements, *, seed: int = 0) -> pd.DataFrame:
    """Return Table 2 with 95% bootstrap intervals over documents; all figures in percent.

    A row for each system, candidate set and mention type: of the rules, of the head that is best on
    all mentions of all documents, as in the paper (there it is 5-4), and of the head that is best
    on the type in train, scored on dev, where both exist.  The paper does not say whether a head
    picks among mentions or, as section 4.1 has it, all words: its figure stands beside both.
    """
    paper = paper_table2()
    scored = [(name, "", "earlier mentions", right, kind, None, name)
              for name, right in judgements.rules.items() for kind in ROWS]  # fmt: skip
    for system, chosen_on, split in ((HEAD, None, None), (HELD_OUT, "train", "dev")):
        if system == HEAD or judgements.held_out():
            for (candidates, right), kind in product(judgements.heads.items(), ROWS):
                best = judgements.best_head(candidates, chosen_on, kind if split else "all")
                known = HEAD if system == HEAD and candidates != "earlier mentions" else ""
                row = system, head_label(*best), candidates, right[best], kind, split, known
                scored.append(row)
    rows = []
    for system, head, candidates, right, kind, split, known in scored:
        sums, place = judgements.sums(right, kind, split), (system, head, candidates, kind)
        in_paper = paper[kind].get(known) if kind in paper else None
        rows.append((*place, int(sums[1].sum()), *ratio(*sums, seed=seed), in_paper))
    return pd.DataFrame(rows, columns=COLUMNS).astype({"paper_accuracy": float})


def coreference_held_out(judgements: Judgements, *, seed: int = 0) -> pd.DataFrame:
    """Return by how much the head that is best on train outdoes each rule, on the dev documents.

    It is the head that is best on the type of mention; its margin, in points, has the interval of
    head and rule paired.  The type "nominal less all" has the difference of two margins, paired
    too.  Empty without both splits.
    """
    columns = ["candidates", "head", "type", "against", "n", "margin", "ci_low", "ci_high"]
    rows = []
    for candidates, right in judgements.heads.items() if judgements.held_out() else ():
        for rule, of_rule in judgements.rules.items():
            found = {}
            for kind in ROWS:
                best = judgements.best_head(candidates, "train", kind)
                sums = judgements.sums(right[best].astype(int) - of_rule, kind, "dev")
                place = candidates, head_label(*best), kind, rule, int(sums[1].sum())
                found[kind] = sums, place, ratio(*sums, seed=seed)
                rows.append((*place, *found[kind][2]))
            (mine, place, own), (everything, _, of_all) = found["nominal"], found["all"]
            low, high = paired_interval(mine, everything, seed=seed)
            place = *place[:2], NOMINAL_LESS_ALL, *place[3:]
            rows.append((*place, own.value - of_all.value, low[0], high[0]))
    return pd.DataFrame(rows, columns=columns)
