"""Stores in memory, with random maps, for tests of the viewer and the report."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from helpers.store.store import Example, Store

HOSTILE = "</script><img src=x onerror=alert(1)>"
SENTENCE = {
    "words": ["The", "dog", "bit", "Ann", "'s", HOSTILE, "."],
    "heads": [2, 3, 0, 6, 4, 3, 3],
    "relations": ["det", "nsubj", "root", "poss", "case", "dobj", "punct"],
    "split": "dev",
    "source": "made up, sentence 1",
    "offset": 1,
}
# A right-to-left override, which would draw "evil" as "live", and Hebrew with a mark in it.
BIDI_TEXT = "\u202eevil\u202c \u05e9\u05dc\u05d5\u05dd\u200f!"
BIDI_SHOWN = "[U+202E]evil[U+202C] \u05e9\u05dc\u05d5\u05dd[U+200F]!"
BIDI_SENTENCE = {
    "words": ["Ann", BIDI_TEXT, "."],
    "heads": [2, 0, 2],
    "relations": ["nsubj", "root", "punct"],
    "split": "dev",
    "source": f"{BIDI_TEXT}, sentence 1",
    "offset": 1,
}
OTHER = {
    "words": ["Ann", "saw", "the", "dog", "."],
    "heads": [2, 0, 4, 2, 2],
    "relations": ["nsubj", "root", "det", "dobj", "punct"],
    "split": "dev",
    "source": "made up, sentence 2",
    "offset": 1,
}
DOCUMENT = {
    "words": ["Ann", "met", "Bob", ".", "She", "liked", "the", "tall", "man", "and", "his", "hat"],
    "tags": [
        *("PROPN", "VERB", "PROPN", "PUNCT", "PRON", "VERB"),
        *("DET", "ADJ", "NOUN", "CCONJ", "PRON", "NOUN"),
    ],
    "mentions": [
        [0, 1, 1, 0],
        [2, 3, 2, 2],
        [4, 5, 1, 4],
        [6, 9, 2, 8],
        [10, 11, 2, 10],
        [10, 12, None, 11],
    ],
    "split": "dev",
    "source": "made up, document 1",
    "offset": 1,
}


@dataclass
class MemoryStore:
    """The part of a store's interface that the viewer uses, in memory."""

    examples: list[Example]
    level: str
    lens: str = "attention"

    def __post_init__(self):
        self.special_tokens = {"cls": "[CLS]", "sep": "[SEP]"}
        self.layers, self.heads = self.examples[0].stored_attention.shape[:2]
        self.layer_numbers = list(range(1, self.layers + 1))
        self.examples = [
            replace(example, special_tokens=self.special_tokens) for example in self.examples
        ]
        self.model_name = "toy"
        self.manifest = {"model": {"name": "toy", "random_init": None}}
        self.corpus_name = "made-up"

    @property
    def __class__(self):
        """Pass for a store where types are checked, as `unittest.mock` does."""
        return Store

    def __len__(self):
        return len(self.examples)

    def __getitem__(self, index):
        return self.examples[index]

    def record(self, index):
        return self.examples[index].record

    def records(self, indices=None):
        for index in range(len(self)) if indices is None else indices:
            yield self.record(index)


def random_maps(layers, heads, n_positions, seed=0):
    """Random attention maps in float16."""
    shape = (layers, heads, n_positions, n_positions)
    scores = np.random.default_rng(seed).normal(scale=2.0, size=shape)
    weights = np.exp(scores)
    return (weights / weights.sum(axis=-1, keepdims=True)).astype(np.float16)


def word_store(*records, layers=3, heads=4):
    """A store of records at word level."""
    examples = []
    for index, record in enumerate(records):
        maps = random_maps(layers, heads, len(record["words"]) + 2, seed=index)
        examples.append(Example(index, maps, record))
    return MemoryStore(examples, "word")


def token_store(layers, heads, n_positions, tokens=None):
    """A store of one example at token level; its tokens are numbered by default."""
    if tokens is None:
        numbered = [f"token{number}" for number in range(n_positions - 2)]
        tokens = ["[CLS]", *numbered, "[SEP]"]
    maps = random_maps(layers, heads, n_positions)
    example = Example(0, maps, {"tokens": tokens, "title": "T"}, offset=0)
    return MemoryStore([example], "token")
