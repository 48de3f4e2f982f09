"""Edge cases of the definitions: one word, nothing to count, rounded rows."""

import numpy as np
import pytest

from helpers.errors import InputError
from helpers.metrics.coreference import coreference_table, evaluate_antecedents
from helpers.metrics.dependency_heads import dependency_heads
from helpers.metrics.head_counts import count_heads
from helpers.store.store import Example

LAYERS = 2
HEADS = 3
MAX_TOKENS = 128


def uniform_maps(tokens):
    """Make maps in which every token gets the same attention."""
    return np.full((LAYERS, HEADS, tokens, tokens), 1 / tokens, np.float16)


def sentence(words, *, index=0, maps=None):
    """Make a tree in which each word depends on the one before."""
    record = {
        "tokens": ["[CLS]", *["slept"] * words, "[SEP]"],
        "words": ["slept"] * words,
        "heads": list(range(words)),
        "relations": ["root", *["dep"] * (words - 1)],
        "split": "train",
    }
    return Example(index, uniform_maps(words + 2) if maps is None else maps, record)


def document(words, *, index=0, split="train"):
    """Make a document in which every second word is "she", a mention of one chain."""
    is_mention = [number % 2 == 0 for number in range(words)]
    texts = ["she" if mention else "slept" for mention in is_mention]
    record = {
        "tokens": ["[CLS]", *texts, "[SEP]"],
        "words": texts,
        "tags": ["PRON" if mention else "VERB" for mention in is_mention],
        "mentions": [[word, word + 1, 1, word] for word in range(0, words, 2)],
        "split": split,
    }
    return Example(index, uniform_maps(words + 2), record)


@pytest.mark.parametrize("seed", range(20))
def test_count_heads_accepts_rounding_to_float16(seed):
    """A row of 128 stored weights is off from a sum of 1 by at most 128 rounding errors."""
    generator = np.random.default_rng(seed)
    maps = generator.dirichlet(np.full(MAX_TOKENS, 0.05), (LAYERS, HEADS, MAX_TOKENS))
    counts = count_heads([sentence(MAX_TOKENS - 2, maps=maps.astype(np.float16))])
    assert counts.size("All") == MAX_TOKENS - 2


def test_metrics_of_a_sentence_of_one_word():
    """The word is the root, which no head gets right, and its mention has no antecedent."""
    counts = count_heads([sentence(1)])
    assert counts.size("All") == 1
    assert not counts.accuracy("All").any()
    assert (dependency_heads(counts, minimum=1)["accuracy"] == 0).all()  # the root is a miss
    with pytest.raises(InputError, match="no mention has an antecedent"):
        evaluate_antecedents([document(1)])


def test_coreference_table_is_nan_only_where_nothing_was_counted():
    documents = [
        document(6),
        document(6, index=1),
        document(5, index=2, split="dev"),
        document(5, index=3, split="dev"),
    ]
    table = coreference_table(evaluate_antecedents(documents))
    is_nan = table[["accuracy", "accuracy_low", "accuracy_high"]].isna()
    without_mentions = table["n"] == 0
    assert (is_nan.all(axis=1) == without_mentions).all()
    assert (is_nan.any(axis=1) == without_mentions).all()
    assert without_mentions.any()  # all mentions are pronouns
    assert not without_mentions.all()


def test_dependency_heads_has_no_nan_in_its_own_columns():
    table = dependency_heads(count_heads([sentence(6), sentence(5, index=1)]), minimum=1)
    columns = [name for name in table if not name.startswith("paper_")]
    assert len(table)
    assert not table[columns].isna().any(axis=None)
