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
from helpers.data.text_files import existing_file, file_fingerprint, lines, quoted, word
from helpers.data.treebank import sample_splits, split_by_document
from helpers.errors import CorpusError
from helpers.progress import progress

EXPECTED_LINE = (
    'expected one JSON object per line, such as {"words": ["She", "reads"], '
    '"pairs": [[0, 1, "nsubj"]]}'
)
KEYS = frozenset({"words", "pairs", "document", "tags"})


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
    spec = {
        "kind": "pairs",
        "files": [file_fingerprint(file)],
        "sentences": sentences,
        "seed": seed,
    }

    def read(counts: Counter[str]) -> Iterator[PairedText]:
        texts = read_pairs(file, counts)
        all_texts = list(progress(texts, f"Reading {file.name}", unit=" sentences"))
        splits = split_by_document(all_texts, file, seed)
        yield from sample_splits(splits, sentences, seed, counts)

    return Corpus(file.name.partition(".")[0], spec, read)


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
    name = path.name.removesuffix(".gz").removesuffix(".bz2")
    n_texts = 0
    for number, line in lines(path):
        if not line.strip():
            continue
        try:
            text = _read_object(line)
            words = _read_words(text)
            pairs = _read_labels(text, len(words))
            tags = _read_tags(text, len(words))
            document = text.get("document", "")
            if not isinstance(document, str):
                raise ValueError(f"document {document!r} is no text; give the name of a document")
        except ValueError as error:
            raise CorpusError(path, str(error), number) from error
        if not pairs:
            counts["sentences dropped: no pair"] += 1
            continue
        n_texts += 1
        source = f"{name}, document {document}" if document else name
        yield PairedText(
            words=tuple(word(form, counts) for form in words),
            pairs=pairs,
            split="",
            source=f"{source}, sentence {number}",
            tags=tags,
        )
    if not n_texts:
        raise CorpusError(path, f"has no sentence with a pair; {EXPECTED_LINE}")


def _read_object(line: str) -> dict[str, Any]:
    """Read the JSON object of a line; ValueError says what is wrong with it."""
    try:
        text = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"this line is no JSON ({error}); {EXPECTED_LINE}") from error
    if not isinstance(text, dict) or not text.keys() >= {"words", "pairs"}:
        raise ValueError(f"this line is no object with words and pairs; {EXPECTED_LINE}")
    unknown = sorted(text.keys() - KEYS)
    if unknown:
        raise ValueError(f"there is no field {quoted(unknown[0])}; use {', '.join(sorted(KEYS))}")
    return text


def _read_words(text: dict[str, Any]) -> list[str]:
    """Read the words of a sentence; ValueError says what is wrong with them."""
    words = text["words"]
    if not isinstance(words, list) or not words or not all(isinstance(form, str) for form in words):
        raise ValueError('"words" must be a list of words, such as ["She", "reads"]')
    return words


def _read_labels(text: dict[str, Any], n_words: int) -> tuple[Pair, ...]:
    """Read the pairs of a sentence, each once; ValueError says what is wrong with them."""
    if not isinstance(text["pairs"], list):
        raise ValueError('"pairs" must be a list of pairs, such as [[0, 1, "nsubj"]]')
    return tuple(dict.fromkeys(read_pair(pair, n_words) for pair in text["pairs"]))


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
    is_pair = isinstance(pair, (list, tuple)) and len(pair) == 3
    if not is_pair or not (isinstance(pair[2], str) and pair[2].strip()):
        raise ValueError(f"the pair {pair!r} is not [dependent, parent, label]; give all three")
    for index in pair[:2]:
        if type(index) is not int or not 0 <= index < n_words:
            raise ValueError(
                f"the pair {list(pair)} has the word {index!r}, but the words are 0 to "
                f"{n_words - 1}; count words from 0"
            )
    return pair[0], pair[1], pair[2]


def _read_tags(text: dict[str, Any], n_words: int) -> tuple[str | None, ...]:
    """Read the tags of a sentence; ValueError says what is wrong with them."""
    tags = text.get("tags") or []
    if not isinstance(tags, list) or not all(tag is None or isinstance(tag, str) for tag in tags):
        raise ValueError('"tags" must be a list with a part of speech for each word, or null')
    if tags and len(tags) != n_words:
        raise ValueError(f"{len(tags)} tags for {n_words} words; give one for each word, or null")
    return tuple(tags)
