"""The antecedent of a mention, selected by rules: the baselines of section 4.3.

An antecedent is an earlier mention of the same chain.  Mentions are earlier or later by their
first word, then by their last one; "nearest" is the latest of those that come before.

The third sieve asks whether two mentions agree in number, gender and person, as far as the words
of ``mention_words.csv`` and the endings of nouns show them: an attribute is the set of values that
a mention can have, and two agree where every attribute has a value in common.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

MENTION_TYPES = ("pronoun", "proper", "nominal")  # columns of Table 2
TYPES_BY_TAG = {"PRON": "pronoun", "PROPN": "proper"}  # of the head word; others are nominal


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
    with Path(__file__).with_name("mention_words.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            shared = Attributes(
                frozenset(row["number"]) or ANY_NUMBER,
                frozenset(row["gender"]) or ANY_GENDER,
                frozenset(row["person"]),
            )
            kinds.setdefault(row["kind"], {}).update(dict.fromkeys(row["words"].split(), shared))
    return kinds
