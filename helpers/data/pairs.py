"""Labelled pairs of words, for relations of any kind (section 4.2).

A file has one JSON object per line, with the words of a sentence and its pairs::

    {"words": ["She", "reads", "books"], "pairs": [[0, 1, "nsubj"], [2, 1, "obj"]]}

A pair has a dependent, a parent and a label; words are counted from 0.  A word that is paired with
itself is a root, which no pick finds.  A word may have several partners, and a pick is right if it
is any of them.  Optional are ``document``, a name, and ``tags``, a class for each word or null.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from helpers.data.records import Corpus, Pair, PairedText
from helpers.data.text_files import existing_file, lines, plain_name, word
from helpers.data.treebank import sampled_corpus
from helpers.errors import CorpusError

EXPECTED_LINE = (
    'expected one JSON object per line, such as {"words": ["She", "reads"], '
    '"pairs": [[0, 1, "nsubj"]], "document": "d1", "tags": ["PRON", null]}'
)


def paired_corpus(
    path: str | Path, *, sentences: int | None = None, seed: int = 0
) -> Corpus[PairedText]:
    """Read the pairs of a file: the sentences of its train split, then those of its dev split.

    Random documents with at most a fifth of the sentences become dev, as of a treebank of one file.

    Parameters
    ----------
    path : str or Path
        The file.
    sentences : int, optional
        Size of a random sample of both splits together, a fifth of it dev.  None: all sentences.
    seed : int
        Seed of the sample and of the split.

    Returns
    -------
    Corpus of PairedText

    Raises
    ------
    CorpusError
        For a file that is missing and, with the line, for one that breaks the format.
    """
    file = existing_file(path)
    if file.is_dir():
        raise CorpusError(path, "is a folder; name one file of pairs")
    files = {"train": file}
    return sampled_corpus(files, read_pairs, {"kind": "pairs"}, sentences=sentences, seed=seed)


def read_pairs(path: Path, counts: Counter[str]) -> Iterator[PairedText]:
    """Yield the sentences of a file of pairs that have one, in order, without a split.

    Parameters
    ----------
    path : Path
        The file.
    counts : Counter
        Receives the numbers of words that were changed, and of sentences without a pair.

    Raises
    ------
    CorpusError
        With the line, for what breaks the format, and if no sentence has a pair.
    """
    n_texts = 0
    for number, line in lines(path):
        if not line.strip():
            continue
        try:
            text = _read_object(line)
            pairs = dict.fromkeys(read_pair(pair, len(text["words"])) for pair in text["pairs"])
        except (ValueError, TypeError, RecursionError) as error:
            problem = f"this line cannot be read ({error})"
            raise CorpusError(path, f"{problem}; {EXPECTED_LINE}", number) from error
        if not pairs:
            counts["sentences dropped: no pair"] += 1
            continue
        n_texts += 1
        document = f", document {text['document']}" if text["document"] else ""
        words = tuple(word(form, counts) for form in text["words"])
        source = f"{plain_name(path)}{document}, sentence {number}"
        yield PairedText(words, tuple(pairs), "", source, tuple(text["tags"]))
    if not n_texts:
        raise CorpusError(path, f"has no sentence with a pair; {EXPECTED_LINE}")


def _read_object(line: str) -> dict[str, Any]:
    """Read the JSON object of a line; ValueError for one with other fields than the format has."""
    text = {"document": "", "tags": [], **json.loads(line)}
    types = {name: type(value) for name, value in text.items()}
    if types != {"document": str, "tags": list, "words": list, "pairs": list}:
        raise ValueError("other fields, or fields of another type")
    if not text["words"] or len(text["tags"]) not in (0, len(text["words"])):
        raise ValueError("no words, or not a tag for each")
    if not all(isinstance(word, str) for word in text["words"]):
        raise ValueError("a word is no text")
    if not all(isinstance(tag, str | None) for tag in text["tags"]):
        raise ValueError("a tag is neither text nor null")
    return text


def read_pair(pair: Any, n_words: int) -> Pair:
    """Check a pair of words and its label.

    Parameters
    ----------
    pair : list
        Dependent, parent and label.
    n_words : int
        Number of words of the sentence.

    Returns
    -------
    (int, int, str)

    Raises
    ------
    ValueError
        With the problem and the remedy, for words that the sentence does not have, or another form.
    """
    if not (isinstance(pair, (list, tuple)) and len(pair) == 3):
        raise ValueError(f"the pair {pair!r} is not [dependent, parent, label]")
    dependent, parent, label = pair
    if not (isinstance(label, str) and label.strip()):
        raise ValueError(f"the pair {pair!r} has no label")
    for index in (dependent, parent):
        if type(index) is not int or not 0 <= index < n_words:
            words = f"whole numbers from 0 to {n_words - 1}"
            raise ValueError(f"the pair {list(pair)} has the word {index!r}; words are {words}")
    return dependent, parent, label
