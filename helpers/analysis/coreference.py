"""Coreference by single attention heads, beside rules: Table 2 of the paper (section 4.3).

An antecedent is an earlier mention of the same chain.  Mentions are earlier or later by their
first word, then by their last one; "nearest" is the latest of those that come before.

The third sieve of the rules asks whether two mentions agree in number, gender and person, as far as
the words of ``mention_words.csv`` and the endings of nouns show them: an attribute is the set of
values that a mention can have, and two agree where every attribute has a value in common.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int, Num, Shaped

from helpers.analysis.heads import head_label, picked_words
from helpers.analysis.paper import paper_table2
from helpers.analysis.statistics import cluster_sums, paired_interval, ratio
from helpers.errors import InputError
from helpers.store.store import Example, checked_maps

# Head words of all other mentions; of those before the mention; or all other words.
Candidates = Literal["mentions", "earlier mentions", "words"]

CANDIDATES: tuple[Candidates, ...] = get_args(Candidates)
MENTION_TYPES = ("pronoun", "proper", "nominal")  # columns of Table 2
TYPES_BY_TAG = {"PRON": "pronoun", "PROPN": "proper"}  # of the head word; others are nominal
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


class DocumentMention(NamedTuple):
    """A mention with what the rules look at: its words in lower case, and its agreement."""

    chain: int | None
    head: int
    type: str  # of `MENTION_TYPES`
    string: tuple[str, ...]
    head_string: str
    attributes: Attributes


def document_mentions(record: Mapping[str, Any]) -> list[DocumentMention]:
    """Return the mentions of a record (``words``, ``tags``, ``mentions``) in document order."""
    words, tags = record["words"], record["tags"]
    return [
        DocumentMention(
            chain,
            head,
            TYPES_BY_TAG.get(tags[head], "nominal"),
            tuple(word.lower() for word in words[start:end]),
            words[head].lower(),
            attributes(words[start:end], tags[start:end], head - start),
        )
        for start, end, chain, head in sorted(record["mentions"], key=lambda m: (m[0], m[1]))
    ]


def antecedents(mentions: Sequence[DocumentMention]) -> dict[int, list[int]]:
    """Return the mentions before each mention in its chain, nearest last, where there are any."""
    found: dict[int, list[int]] = {}
    for index, (chain, *_) in enumerate(mentions):
        earlier = [i for i in range(index) if chain is not None and mentions[i].chain == chain]
        if earlier:
            found[index] = earlier
    return found


def selected(system: str, mentions: Sequence[DocumentMention], index: int) -> int | None:
    """Return the nearest earlier mention that passes the first sieve that any passes, or None."""
    for name in SYSTEMS[system]:
        for earlier in reversed(range(index)):
            if SIEVES[name](mentions[index], mentions[earlier]):
                return earlier
    return None


# Those of section 4.3, after Lee et al. (2011).
SIEVES: Mapping[str, Callable[[DocumentMention, DocumentMention], bool]] = {
    "all words": lambda mention, other: mention.string == other.string,
    "head": lambda mention, other: mention.head_string == other.head_string,
    "agreement": lambda mention, other: mention.attributes.agrees(other.attributes),
    "any mention": lambda mention, other: True,
}

# The sieves of each baseline, in their order.
SYSTEMS = {
    "nearest mention": ("any mention",),
    "head match": ("head",),
    "rule-based": tuple(SIEVES),
}

SINGULAR_ENDINGS = ("ss", "us", "is", "ics")
NOUN_TAGS = ("NOUN", "PROPN")
ANY_NUMBER, ANY_GENDER, THIRD_PERSON = frozenset("sp"), frozenset("mfn"), frozenset("3")


class Attributes(NamedTuple):
    """What a mention can be: number s or p; gender m, f or n (neuter); person 1, 2 or 3."""

    number: frozenset[str]
    gender: frozenset[str]
    person: frozenset[str]

    def agrees(self, other: Attributes) -> bool:
        """Return whether all three attributes can be the same."""
        return all(mine & theirs for mine, theirs in zip(self, other, strict=True))


def attributes(words: Sequence[str], tags: Sequence[str], head: int) -> Attributes:
    """Return the attributes of a mention of these words and tags; ``head`` indexes its head word.

    Two things joined by "and" are plural.  A common noun that the list does not know is neuter,
    an unknown name may have any gender.
    """
    lower = [word.lower() for word in words]
    pronouns = _words()["pronoun"]
    if len(lower) == 1 and lower[0] in pronouns:
        return pronouns[lower[0]]
    return Attributes(_number(lower, tags, head), _gender(lower, tags, head), THIRD_PERSON)


def _number(lower: Sequence[str], tags: Sequence[str], head: int) -> frozenset[str]:
    word = lower[head]
    if word in _words()["plural noun"] or _is_joined(lower, tags, head):
        return frozenset("p")
    if tags[head] == "PROPN":  # names of groups: "the Beatles", "the United Nations"
        return frozenset("sp" if lower[0] == "the" and word.endswith("s") else "s")
    if tags[head] == "NOUN":
        plural = word.endswith("s") and not word.endswith(SINGULAR_ENDINGS)
        return frozenset("p" if plural else "s")
    return ANY_NUMBER


def _is_joined(lower: Sequence[str], tags: Sequence[str], head: int) -> bool:
    """Return whether "and" follows the head: "Ann and Bob", not "a cup of tea and milk"."""
    after = next((i for i in range(head + 1, len(lower)) if tags[i] not in NOUN_TAGS), None)
    return after is not None and lower[after] in ("and", "&") and after + 1 < len(lower)


def _gender(lower: Sequence[str], tags: Sequence[str], head: int) -> frozenset[str]:
    # A name shows its gender in what stands before its head: "Mrs Lee", "Ada Lovelace".
    shown = lower[: head + 1] if tags[head] == "PROPN" else lower[head : head + 1]
    known = _words()["noun or name"]
    for word in shown:
        if (title := word.rstrip(".")) in known:
            return known[title].gender
    return frozenset("n") if tags[head] == "NOUN" else ANY_GENDER


@cache
def _words() -> Mapping[str, Mapping[str, Attributes]]:
    """Return the attributes of each word of the list, by kind; an empty cell is any value."""
    kinds: dict[str, dict[str, Attributes]] = {}
    path = Path(__file__).with_name("mention_words.csv")
    for row in pd.read_csv(path, dtype=str, keep_default_na=False).itertuples():
        number, gender, person = map(frozenset, (row.number, row.gender, row.person))
        shared = Attributes(number or ANY_NUMBER, gender or ANY_GENDER, person)
        kinds.setdefault(row.kind, {}).update(dict.fromkeys(row.words.split(), shared))
    return kinds
