"""Small corpora in memory and in files, for the tests of several packages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from helpers.data.records import Corpus, Sentence

PARAGRAPHS = (
    ("The cat sat on the mat.", "It was, by all accounts, a lazy cat."),
    ("Hi.", "She doesn't know."),
    ("Naïve readers pay 3,50 € for coffee 😀.", "The dog watched, Ω and ж."),
    ("Rainy winters, rainy summers.", "Yes, and no."),
)
SENTENCES = (
    ("The", "dog", "doesn't", "like", "rainy", "winters", "."),
    ("Yes", "!"),
    ("She", "'d", "rather", "live", "in", "Zürich", ",", "unbelievably", "."),
)


def write(folder: Path, name: str, content: str | bytes) -> Path:
    """Write a file and return its path."""
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def corpus_of(records: Sequence[object], name: str = "toy") -> Corpus:
    """Make a corpus of records that are in memory already."""

    def read(_counts: Counter[str]):
        yield from records

    return Corpus(name, {"records": [repr(record) for record in records]}, read)


def sentence_of(words: Sequence[str], split: str = "dev") -> Sentence:
    """Make a sentence in which each word depends on the one before it."""
    relations = ("root", *["dep"] * (len(words) - 1))
    return Sentence(tuple(words), tuple(range(len(words))), relations, split, "toy")


def random_heads(rng: np.random.Generator, n: int) -> np.ndarray:
    """Draw a random tree: the head of each of ``n`` words, counted from 1; the root has head 0."""
    heads = np.zeros(n, int)
    attached: list[int] = []
    for word in rng.permutation(np.arange(1, n + 1)):
        heads[word - 1] = rng.choice(attached) if attached else 0
        attached.append(word)
    return heads


def conllu(*sentences: Sequence[tuple[int, str, int, str]], times: int) -> str:
    """Write sentences in CoNLL-U, ``times`` over; a word is its number, form, head and relation."""
    text = ""
    for words in sentences:
        for number, form, head, relation in words:
            text += f"{number}\t{form}\t_\tX\t_\t_\t{head}\t{relation}\t_\t_\n"
        text += "\n"
    return text * times


class ListedStore(list):
    """Examples in memory, with what the probes use of a store."""

    key = "listed"
    layer_numbers = ()

    @property
    def layers(self):
        return self[0].attention.shape[0]

    @property
    def heads(self):
        return self[0].attention.shape[1]

    def records(self):
        return (example.record for example in self)
