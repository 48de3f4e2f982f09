"""A test of whether a text is English, because parser, word vectors and coreference sample are."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain, islice

# The most frequent words of English prose that are rare, or not words at all, in most other
# languages ("in", "was" and "so" are German words, "on" and "he" are found in many).
ENGLISH_WORDS = frozenset((
    "the", "of", "and", "to", "that", "it", "for", "with", "as", "his", "at", "by", "from",
    "which", "but", "this", "be", "are", "had", "were", "have", "they", "not", "or", "her", "an",
    "their", "been", "has", "would", "there", "when", "what", "can", "more", "who", "will",
    "other", "about",
))  # fmt: skip
MIN_ENGLISH_SHARE = 0.1  # English prose has 0.25 to 0.45
SAMPLE_WORDS = 2000
ENGLISH = "English"
# What is bundled for English only, by the setting that takes another one.
BUNDLED_IN_ENGLISH = {"vectors": "word vectors", "coref": "coreference documents"}
MIN_WORDS = 20  # of a text in the Latin alphabet; fewer words do not tell
_WORD = re.compile(r"\w+")


def is_english(texts: Iterable[str]) -> bool:
    """Tell whether a text can be English, by its first `SAMPLE_WORDS` words.

    Most of their letters have to be of the Latin alphabet without accents, and `MIN_ENGLISH_SHARE`
    of the words have to be frequent words of English, unless there are less than `MIN_WORDS`.

    Parameters
    ----------
    texts : iterable of str
        The paragraphs of the text.  No more of them are read than necessary.

    Returns
    -------
    bool
    """
    words = list(islice(chain.from_iterable(map(_WORD.findall, texts)), SAMPLE_WORDS))
    letters = "".join(words)
    if sum(map(str.isascii, letters)) < len(letters) / 2:
        return False
    n_frequent = sum(word.lower() in ENGLISH_WORDS for word in words)
    return len(words) < MIN_WORDS or n_frequent >= MIN_ENGLISH_SHARE * len(words)
