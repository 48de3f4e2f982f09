"""Antecedents picked by single attention heads and by rules: Table 2 of the paper (section 4.3).

An antecedent of a mention is an earlier mention of the same chain.  Mentions are ordered by their
first word, then by their last one.  The nearest antecedent is the last one before the mention.

The third sieve of the rules asks whether two mentions agree in number, gender and person, as far as
the words of ``mention_words.csv`` and the endings of nouns show it.  Each attribute is the set of
values that a mention can have.  Two mentions agree if every attribute has a value in common.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int, Num, Shaped

from helpers.errors import InputError
from helpers.metrics.heads import antecedents, head_label, ordered_mentions, picked_words
from helpers.metrics.reference import paper_table2
from helpers.metrics.statistics import Clusters, paired_difference, ratio
from helpers.store.store import Example

# Words that a head can pick: head words of all other mentions, head words of earlier mentions, or
# all other words.
Candidates = Literal["mentions", "earlier mentions", "words"]

CANDIDATES: tuple[Candidates, ...] = get_args(Candidates)
MENTION_TYPES = ("pronoun", "proper", "nominal")  # columns of Table 2
TYPES_BY_TAG = {"PRON": "pronoun", "PROPN": "proper"}  # by the head word's tag; else nominal
UNMATCHED = "nominal without match"  # no earlier mention has the same head word
TYPES = ("all", *MENTION_TYPES)
ROWS = (*TYPES, UNMATCHED)
NOMINAL_MINUS_ALL = "nominal minus all"
COLUMNS = (
    "system", "head", "candidates", "type", "n", "accuracy", "accuracy_low", "accuracy_high",
    "paper_accuracy",
)  # fmt: skip
HELD_OUT_COLUMNS = (
    "candidates", "head", "type", "against", "n", "margin", "margin_low", "margin_high",
)  # fmt: skip
HEAD = "head"
HELD_OUT = "head of the type (chosen on train, scored on dev)"
NO_ANTECEDENT = (
    "no mention has an antecedent within its document; give documents in which coreference chains "
    "begin and go on, and do not cut them too early (--max-tokens)"
)


@dataclass(frozen=True)
class AntecedentJudgements:
    """For each mention that has an antecedent, which systems pick a right one.

    Attributes
    ----------
    splits : array of shape (document,)
        Split of each document, in the order in which they were read.
    document : int array of shape (mention,)
        Index of the document into ``splits``.
    types : array of shape (mention,)
        One of `MENTION_TYPES`.
    rules : dict of bool arrays of shape (mention,)
        By the name of the baseline: whether it selects an antecedent.
    heads : dict of bool arrays of shape (layer, head, mention)
        By the set of candidates: whether the attention head picks an antecedent.
    unmatched : bool array of shape (mention,)
        Whether no earlier mention has the same head word.
    """

    splits: Shaped[np.ndarray, " document"]
    document: Int[np.ndarray, " mention"]
    types: Shaped[np.ndarray, " mention"]
    rules: Mapping[str, Bool[np.ndarray, " mention"]]
    heads: Mapping[Candidates, Bool[np.ndarray, "layer head mention"]]
    unmatched: Bool[np.ndarray, " mention"]

    def select(
        self, mention_type: str = "all", split: str | None = None
    ) -> Bool[np.ndarray, " mention"]:
        """Mark the mentions of a type.

        Parameters
        ----------
        mention_type : str
            One of `ROWS`.
        split : str, optional
            "train" or "dev".  By default all documents.

        Returns
        -------
        bool array of shape (mention,)
        """
        if mention_type == UNMATCHED:
            return self.select("nominal", split) & self.unmatched
        mask = (self.types == mention_type) | (mention_type == "all")
        if split is not None:
            mask &= self.splits[self.document] == split
        return mask

    def accuracy(
        self,
        candidates: Candidates = "mentions",
        split: str | None = None,
        mention_type: str = "all",
    ) -> Float[np.ndarray, "layer head"]:
        """Compute the accuracy of every attention head, in percent.

        Parameters
        ----------
        candidates : {"mentions", "earlier mentions", "words"}
            Words that a head can pick.
        split : str, optional
            "train" or "dev".  By default all documents.
        mention_type : str
            One of `ROWS`.

        Returns
        -------
        float array of shape (layer, head)

        Raises
        ------
        InputError
            If the split has no such mention.
        """
        mask = self.select(mention_type, split)
        if not mask.any():
            raise InputError(
                f"no mention with an antecedent in {split or 'any'} split; give more documents"
            )
        return 100 * self.heads[candidates][:, :, mask].mean(axis=-1)

    def best_head(
        self,
        candidates: Candidates = "mentions",
        split: str | None = None,
        mention_type: str = "all",
    ) -> tuple[int, int]:
        """Find the most accurate attention head for a type of mention.

        Parameters
        ----------
        candidates : {"mentions", "earlier mentions", "words"}
            Words that a head can pick.
        split : str, optional
            "train" or "dev".  By default all documents.
        mention_type : str
            One of `ROWS`.  If the split has no mention of this type, all types count.

        Returns
        -------
        layer, head : int
            Indices from 0.
        """
        if not self.select(mention_type, split).any():
            mention_type = "all"
        best = int(self.accuracy(candidates, split, mention_type).argmax())
        return divmod(best, self.heads[candidates].shape[1])

    def sums(
        self, values: Num[np.ndarray, " mention"], mention_type: str, split: str | None = None
    ) -> tuple[Clusters, Clusters]:
        """Sum a value of each mention over documents: the input of an interval over documents.

        Parameters
        ----------
        values : array of shape (mention,)
            For example whether a system is right.
        mention_type : str
            One of `ROWS`.
        split : str, optional
            "train" or "dev".  By default all documents.

        Returns
        -------
        totals : array of shape (document,)
            Sums of the values, times 100 for percentages.
        counts : array of shape (document,)
            Number of mentions.
        """
        mask = self.select(mention_type, split)
        documents = len(self.splits)
        in_split = (self.splits == split) | (split is None)
        totals = np.bincount(self.document[mask], 100 * values[mask], documents)
        counts = np.bincount(self.document[mask], minlength=documents)
        return totals[in_split], counts[in_split]

    def held_out(self) -> bool:
        """Whether a head can be chosen on train and scored on dev."""
        return all(self.select(split=split).any() for split in ("train", "dev"))


def first_document(examples: Iterable[Example]) -> Example:
    """Find the first document in which a mention has an antecedent.

    Parameters
    ----------
    examples : iterable of Example
        Word-level maps of coreference documents.

    Returns
    -------
    Example

    Raises
    ------
    InputError
        If a record has no mentions, or no mention has an antecedent.
    """
    for example in examples:
        if _antecedents(_mentions(example)):
            return example
    raise InputError(NO_ANTECEDENT)


def evaluate_antecedents(examples: Iterable[Example]) -> AntecedentJudgements:
    """Let every attention head and every rule pick an antecedent for every mention that has one.

    A head picks the candidate that the mention's head word attends to most.  It is right if that is
    the head word of an earlier mention of the same chain.  The mention's own head word and special
    tokens are never candidates.

    Parameters
    ----------
    examples : iterable of Example
        Word-level maps of coreference documents, such as ``Study().coreference_store()``.

    Returns
    -------
    Judgements

    Raises
    ------
    InputError
        If a record has no mentions, or no mention has an antecedent.
    MapError
        If a row of a map is not a distribution, or a map has another size than its document.
    """
    splits: list[str] = []
    rows = []
    by_heads: list[np.ndarray] = []  # [mention], each [layer, head, candidates]
    for number, example in enumerate(examples):
        splits.append(example.record.get("split", ""))
        mentions = _mentions(example)
        words = example.word_positions
        maps = example.attention[:, :, words, words]
        for index, correct in _antecedents(mentions).items():
            row = {"document": number, "type": mentions[index].type}
            for system in SYSTEMS:
                selected = select_antecedent(system, mentions, index)
                row[system] = selected in correct
                if system == "head match":
                    row["unmatched"] = selected is None
            rows.append(row)
            by_heads.append(_heads_right(maps, mentions, index, correct))
    if not rows:
        raise InputError(NO_ANTECEDENT)
    table = pd.DataFrame(rows)
    heads = np.stack(by_heads).transpose(3, 1, 2, 0)  # [candidates, layer, head, mention]
    return AntecedentJudgements(
        splits=np.array(splits),
        document=table["document"].to_numpy(),
        types=table["type"].to_numpy(),
        rules={system: table[system].to_numpy() for system in SYSTEMS},
        heads=dict(zip(CANDIDATES, heads, strict=True)),
        unmatched=table["unmatched"].to_numpy(),
    )


def _mentions(example: Example) -> list[DocumentMention]:
    if "mentions" not in example.record:
        raise InputError(
            f"example {example.index} has no mentions; give the store of a coreference corpus"
        )
    return document_mentions(example.record)


def _antecedents(mentions: Sequence[DocumentMention]) -> dict[int, list[int]]:
    return antecedents([mention.chain for mention in mentions])


def _heads_right(
    maps: Float[np.ndarray, "layer head word word"],
    mentions: Sequence[DocumentMention],
    index: int,
    correct: Sequence[int],
) -> Bool[np.ndarray, "layer head candidates"]:
    """Whether each attention head picks an antecedent of a mention, for each of `CANDIDATES`."""
    head_words = [mention.head for mention in mentions]
    head_word = head_words[index]
    earlier = head_words[:index]
    later = head_words[index + 1 :]
    words = np.arange(maps.shape[-1])
    allowed = np.array(
        [
            np.isin(words, earlier + later),  # mentions
            np.isin(words, earlier),  # earlier mentions
            np.full(len(words), True),  # words
        ]
    )
    queries = np.full(len(allowed), head_word)
    picked = picked_words(maps, queries, candidates=allowed)
    gold = {head_words[antecedent] for antecedent in correct} - {head_word}
    return np.isin(picked, list(gold))


def coreference_table(judgements: AntecedentJudgements, *, seed: int = 0) -> pd.DataFrame:
    """Compute Table 2: the accuracy of heads and rules, with intervals over documents.

    There is a row for each system, set of candidates and type of mention.  The systems are the
    rules, the head that is best on all mentions of all documents, as in the paper (5-4 there), and
    the head that is best on the type in train, scored on dev, if both splits exist.  The paper does
    not say whether a head picks among mentions or, as in section 4.1, among all words: the rows of
    both have its figure.

    Parameters
    ----------
    judgements : Judgements
        What `evaluate_antecedents` returns.
    seed : int
        Seed of the bootstrap.

    Returns
    -------
    DataFrame
        Columns `COLUMNS`; accuracies in percent, with a 95% bootstrap interval.
    """
    rows = []
    for rule in judgements.rules:
        for mention_type in ROWS:
            rows.append(_row(judgements, rule, "earlier mentions", mention_type, seed=seed))
    for candidates in judgements.heads:
        best = judgements.best_head(candidates)
        for mention_type in ROWS:
            rows.append(_row(judgements, HEAD, candidates, mention_type, best, seed=seed))
    if judgements.held_out():
        for candidates in judgements.heads:
            for mention_type in ROWS:
                best = judgements.best_head(candidates, "train", mention_type)
                rows.append(
                    _row(judgements, HELD_OUT, candidates, mention_type, best, "dev", seed=seed)
                )
    return pd.DataFrame(rows, columns=COLUMNS)


def _row(
    judgements: AntecedentJudgements,
    system: str,
    candidates: Candidates,
    mention_type: str,
    head: tuple[int, int] | None = None,
    split: str | None = None,
    *,
    seed: int,
) -> dict[str, Any]:
    """Compute a row of Table 2 for a rule, or for the attention head ``(layer, head)``."""
    right = judgements.rules[system] if head is None else judgements.heads[candidates][head]
    totals, counts = judgements.sums(right, mention_type, split)
    in_paper = paper_table2().reindex(columns=ROWS)
    is_comparable = system in judgements.rules or (
        system == HEAD and candidates != "earlier mentions"
    )
    return {
        "system": system,
        "head": "" if head is None else head_label(*head),
        "candidates": candidates,
        "type": mention_type,
        "n": int(counts.sum()),
        **ratio(totals, counts, seed=seed).columns("accuracy"),
        "paper_accuracy": in_paper.at[system, mention_type] if is_comparable else np.nan,
    }


def coreference_held_out(judgements: AntecedentJudgements, *, seed: int = 0) -> pd.DataFrame:
    """Compute the margin over each rule of the head that is best on train, on the dev documents.

    The head is the one that is best on the type of mention.  Head and rule are paired in the
    interval of the margin.  The type "nominal minus all" has the difference of two margins, paired
    as well.

    Parameters
    ----------
    judgements : Judgements
        What `evaluate_antecedents` returns.
    seed : int
        Seed of the bootstrap.

    Returns
    -------
    DataFrame
        Columns `HELD_OUT_COLUMNS`; margins in percentage points, with a 95% bootstrap interval over
        documents.  It is empty if the corpus has not both splits.
    """
    rows = []
    if judgements.held_out():
        for candidates in judgements.heads:
            for rule in judgements.rules:
                rows += _margin_rows(judgements, candidates, rule, seed=seed)
    return pd.DataFrame(rows, columns=HELD_OUT_COLUMNS)


def _margin_rows(
    judgements: AntecedentJudgements, candidates: Candidates, rule: str, *, seed: int
) -> list[dict[str, Any]]:
    """Compute the margins over a rule: a row for each type of mention, and for a difference."""
    rows = {}
    sums = {}
    for mention_type in ROWS:
        best = judgements.best_head(candidates, "train", mention_type)
        head_right = judgements.heads[candidates][best].astype(int)
        lead = head_right - judgements.rules[rule]
        totals, counts = judgements.sums(lead, mention_type, "dev")
        sums[mention_type] = (totals, counts)
        rows[mention_type] = {
            "candidates": candidates,
            "head": head_label(*best),
            "type": mention_type,
            "against": rule,
            "n": int(counts.sum()),
            **ratio(totals, counts, seed=seed).columns("margin"),
        }
    difference = paired_difference(sums["nominal"], sums["all"], seed=seed)
    row = {**rows["nominal"], "type": NOMINAL_MINUS_ALL, **difference.columns("margin")}
    return [*rows.values(), row]


class DocumentMention(NamedTuple):
    """A mention of a document, with what the rules compare.

    Attributes
    ----------
    chain : int or None
        Number of the coreference chain; None for a mention without one.
    head : int
        Position of the head word in the document.
    type : str
        One of `MENTION_TYPES`.
    string : tuple of str
        Words, in lower case.
    head_string : str
        Head word, in lower case.
    attributes : Attributes
        Number, gender and person.
    """

    chain: int | None
    head: int
    type: str
    string: tuple[str, ...]
    head_string: str
    attributes: Attributes


def document_mentions(record: Mapping[str, Any]) -> list[DocumentMention]:
    """List the mentions of a document's record (``words``, ``tags``, ``mentions``) in order."""
    words = record["words"]
    tags = record["tags"]
    mentions = []
    for start, end, chain, head in ordered_mentions(record):
        lower = tuple(word.lower() for word in words[start:end])
        mentions.append(
            DocumentMention(
                chain=chain,
                head=head,
                type=TYPES_BY_TAG.get(tags[head], "nominal"),
                string=lower,
                head_string=words[head].lower(),
                attributes=attributes(words[start:end], tags[start:end], head - start),
            )
        )
    return mentions


def select_antecedent(system: str, mentions: Sequence[DocumentMention], index: int) -> int | None:
    """Select the nearest earlier mention that passes the first sieve that any mention passes.

    Parameters
    ----------
    system : str
        One of `SYSTEMS`.
    mentions : sequence of DocumentMention
        Mentions of a document, in order.
    index : int
        The mention that looks for an antecedent.

    Returns
    -------
    int or None
        Index of the selected mention; None if no earlier mention passes.
    """
    for sieve in SYSTEMS[system]:
        for earlier in reversed(range(index)):
            if SIEVES[sieve](mentions[index], mentions[earlier]):
                return earlier
    return None


def _same_words(mention: DocumentMention, earlier: DocumentMention) -> bool:
    return mention.string == earlier.string


def _same_head_word(mention: DocumentMention, earlier: DocumentMention) -> bool:
    return mention.head_string == earlier.head_string


def _agree(mention: DocumentMention, earlier: DocumentMention) -> bool:
    return mention.attributes.agrees(earlier.attributes)


def _any_mention(mention: DocumentMention, earlier: DocumentMention) -> bool:
    return True


# The sieves of section 4.3, after Lee et al. (2011).
SIEVES: Mapping[str, Callable[[DocumentMention, DocumentMention], bool]] = {
    "all words": _same_words,
    "head": _same_head_word,
    "agreement": _agree,
    "any mention": _any_mention,
}

# The sieves of each baseline, in the order in which they are tried.
SYSTEMS = {
    "nearest mention": ("any mention",),
    "head match": ("head",),
    "rule-based": tuple(SIEVES),
}

SINGULAR_ENDINGS = ("ss", "us", "is", "ics")
NOUN_TAGS = ("NOUN", "PROPN")
SINGULAR = frozenset("s")
PLURAL = frozenset("p")
ANY_NUMBER = SINGULAR | PLURAL
NEUTER = frozenset("n")
ANY_GENDER = frozenset("mfn")
THIRD_PERSON = frozenset("3")


class Attributes(NamedTuple):
    """Values that the attributes of a mention can have.

    Attributes
    ----------
    number : set of {"s", "p"}
        Singular, plural.
    gender : set of {"m", "f", "n"}
        Masculine, feminine, neuter.
    person : set of {"1", "2", "3"}
    """

    number: frozenset[str]
    gender: frozenset[str]
    person: frozenset[str]

    def agrees(self, earlier: Attributes) -> bool:
        """Whether every attribute has a value that this and an earlier mention can have."""
        pairs = zip(self, earlier, strict=True)
        return all(values & earlier_values for values, earlier_values in pairs)


def attributes(words: Sequence[str], tags: Sequence[str], head: int) -> Attributes:
    """Derive the attributes of a mention from its words.

    Two nouns joined by "and" are plural.  A common noun that the list does not have is neuter, and
    an unknown name may have any gender.

    Parameters
    ----------
    words, tags : sequence of str
        Words of the mention, and their universal part-of-speech tags.
    head : int
        Index of the head word in ``words``.

    Returns
    -------
    Attributes
    """
    lower = [word.lower() for word in words]
    pronouns = _word_attributes()["pronoun"]
    if len(lower) == 1 and lower[0] in pronouns:
        return pronouns[lower[0]]
    return Attributes(
        number=_number(lower, tags, head),
        gender=_gender(lower, tags, head),
        person=THIRD_PERSON,
    )


def _number(lower: Sequence[str], tags: Sequence[str], head: int) -> frozenset[str]:
    """Derive the number of a mention, whose words are in lower case."""
    word = lower[head]
    if word in _word_attributes()["plural noun"] or _is_joined(lower, tags, head):
        return PLURAL
    if tags[head] == "PROPN":  # names of groups: "the Beatles", "the United Nations"
        is_group = lower[0] == "the" and word.endswith("s")
        return ANY_NUMBER if is_group else SINGULAR
    if tags[head] == "NOUN":
        is_plural = word.endswith("s") and not word.endswith(SINGULAR_ENDINGS)
        return PLURAL if is_plural else SINGULAR
    return ANY_NUMBER


def _is_joined(lower: Sequence[str], tags: Sequence[str], head: int) -> bool:
    """Whether "and" follows the head, as in "Ann and Bob", but not in "a cup of tea and milk"."""
    position = head + 1
    while position < len(lower) and tags[position] in NOUN_TAGS:
        position += 1
    # The last word cannot join anything.
    return position + 1 < len(lower) and lower[position] in ("and", "&")


def _gender(lower: Sequence[str], tags: Sequence[str], head: int) -> frozenset[str]:
    """Derive the gender of a mention, whose words are in lower case."""
    # The words before a name's head can show its gender: "Mrs Lee", "Ada Lovelace".
    first = 0 if tags[head] == "PROPN" else head
    nouns_and_names = _word_attributes()["noun or name"]
    for word in lower[first : head + 1]:
        without_dot = word.rstrip(".")
        if without_dot in nouns_and_names:
            return nouns_and_names[without_dot].gender
    return NEUTER if tags[head] == "NOUN" else ANY_GENDER


@cache
def _word_attributes() -> Mapping[str, Mapping[str, Attributes]]:
    """Read the attributes of words, by word class and word; an empty cell allows any value."""
    by_class: dict[str, dict[str, Attributes]] = {}
    path = Path(__file__).with_name("mention_words.csv")
    for row in pd.read_csv(path, dtype=str, keep_default_na=False).itertuples():
        shared = Attributes(
            number=frozenset(row.number) or ANY_NUMBER,
            gender=frozenset(row.gender) or ANY_GENDER,
            person=frozenset(row.person),
        )
        words = by_class.setdefault(row.kind, {})
        for word in row.words.split():
            words[word] = shared
    return by_class
