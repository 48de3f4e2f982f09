"""A translation task that makes itself: numbers in English words to digits.

``three thousand two hundred and five`` becomes ``3 2 0 5``: the digits are words of their own, so
that a translation can be nearly right.  To place the zeros, a model has to read the whole number.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from helpers.errors import InputError

ONES = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
    "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen",
    "nineteen",
)  # fmt: skip
TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
WORDS = (*ONES, *TENS, "hundred", "thousand", "and")
DIGITS = tuple("0123456789")
LONGEST = 6  # digits
LIMIT = 10**LONGEST


class Translation(NamedTuple):
    """A sentence and its translation."""

    source: str
    target: str


def in_words(number: int) -> str:
    """Return a number from 0 to 999,999 in English words, without hyphens."""
    thousands, rest = divmod(number, 1000)
    if not thousands:
        return _below_thousand(rest)
    joint = "" if not rest else " and " if rest < 100 else " "
    return f"{_below_thousand(thousands)} thousand{joint}{_below_thousand(rest) if rest else ''}"


def translation_of(number: int) -> Translation:
    """Return a number in words, and its digits with spaces between them."""
    return Translation(in_words(number), " ".join(str(number)))


def number_pairs(
    train: int, test: int, *, seed: int
) -> tuple[tuple[Translation, ...], tuple[Translation, ...]]:
    """Return training and test pairs of different numbers, drawn with a seed.

    Lengths of one to six digits are equally likely, until the short ones are used up.

    Raises:
        InputError: there are not that many numbers.
    """
    if not 0 < train + test <= LIMIT // 2:
        raise InputError(f"{train} + {test} numbers: expected 1 to {LIMIT // 2} of them")
    generator = np.random.default_rng(seed)
    found: dict[int, None] = {}
    while len(found) < train + test:
        digits = generator.integers(1, LONGEST + 1, size=train + test)
        lowest = np.where(digits == 1, 0, 10 ** (digits - 1))
        found.update(dict.fromkeys(generator.integers(lowest, 10**digits).tolist()))
    chosen = generator.permutation(list(found)[: train + test]).tolist()
    pairs = [translation_of(number) for number in chosen]
    return tuple(pairs[test:]), tuple(pairs[:test])


def fingerprint(pairs: Sequence[Translation]) -> str:
    """Return the SHA-256 of some pairs."""
    return hashlib.sha256(json.dumps(list(pairs)).encode()).hexdigest()


def _below_thousand(number: int) -> str:
    hundreds, rest = divmod(number, 100)
    tens, ones = divmod(rest, 10)
    parts = [f"{ONES[hundreds]} hundred"] if hundreds else []
    if rest >= 20:
        parts.append(TENS[tens - 2] + (f" {ONES[ones]}" if ones else ""))
    elif rest or not hundreds:
        parts.append(ONES[rest])
    return " and ".join(parts)
