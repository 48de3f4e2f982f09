"""A test of whether a text is English, because parser, word vectors and coreference sample are."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain, islice

# The most frequent words of English prose that are rare, or not words at all, in most other
# languages ("in", "was" and "so" are German words, "on" and "he" are found in many).
ENGLISH_WORDS = (
    "the of and to that it for with as his at by from which but this be are had were have they not "
    "or her an their been has would there when what can more who will other about"
)
ENGLISH = "English"
# What is bundled for English only, by the setting that takes another one.
BUNDLED_IN_ENGLISH = {"vectors": "word vectors", "coref": "coreference documents"}


def is_english(texts: Iterable[str]) -> bool:
    """Tell whether a text can be English, by its first 2,000 words.

    Most of their letters have to be of the Latin alphabet without accents, and a tenth of the words
    have to be frequent words of English (English prose has 0.25 to 0.45), unless there are fewer
    than 20 words, which do not tell.

    Parameters
    ----------
    texts : iterable of str
        The paragraphs of the text.  No more of them are read than necessary.

    Returns
    -------
    bool
    """
    all_words = chain.from_iterable(re.findall(r"\w+", text) for text in texts)
    words = list(islice(all_words, 2000))
    letters = "".join(words)
    if sum(map(str.isascii, letters)) < len(letters) / 2:
        return False
    frequent_words = set(ENGLISH_WORDS.split())
    n_frequent = sum(word.lower() in frequent_words for word in words)
    return len(words) < 20 or n_frequent >= 0.1 * len(words)
