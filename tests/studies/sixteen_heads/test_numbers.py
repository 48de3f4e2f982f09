"""Numbers in words are read back by another grammar, and training never meets a test number."""

import pytest

from helpers.errors import InputError
from helpers.studies.sixteen_heads.numbers import (
    DIGITS,
    LIMIT,
    ONES,
    TENS,
    WORDS,
    in_words,
    number_pairs,
    translation_of,
)


def read_back(text):
    """Return the number that words stand for, adding and multiplying from left to right."""
    values = {word: value for value, word in enumerate(ONES)}
    values |= {word: 10 * value for value, word in enumerate(TENS, 2)}
    total = part = 0
    for word in text.split():
        if word == "hundred":
            part *= 100
        elif word == "thousand":
            total, part = 1000 * part, 0
        elif word != "and":
            part += values[word]
    return total + part


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, "zero"),
        (13, "thirteen"),
        (40, "forty"),
        (105, "one hundred and five"),
        (3205, "three thousand two hundred and five"),
        (7006, "seven thousand and six"),
        (60_000, "sixty thousand"),
        (999_999, "nine hundred and ninety nine thousand nine hundred and ninety nine"),
    ],
)
def test_words(number, words):
    assert in_words(number) == words


def test_every_number_can_be_read_back_and_uses_known_words():
    for number in [*range(2000), *range(2000, LIMIT, 997), LIMIT - 1]:
        pair = translation_of(number)
        assert read_back(pair.source) == number
        assert set(pair.source.split()) <= set(WORDS)
        assert pair.target.replace(" ", "") == str(number)
        assert set(pair.target.split()) <= set(DIGITS)


def test_pairs_are_different_numbers_of_all_lengths():
    train, test = number_pairs(900, 100, seed=3)
    assert (len(train), len(test)) == (900, 100)
    assert len({*train, *test}) == 1000
    assert not set(train) & set(test)
    lengths = {len(pair.target.split()) for pair in test}
    assert lengths == {1, 2, 3, 4, 5, 6} or lengths == {2, 3, 4, 5, 6}
    assert number_pairs(900, 100, seed=3) == (train, test)
    assert number_pairs(900, 100, seed=4) != (train, test)


def test_more_numbers_than_there_are_are_refused():
    with pytest.raises(InputError, match="expected 1 to"):
        number_pairs(LIMIT, 1, seed=0)
