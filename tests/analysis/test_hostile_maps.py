"""Maps that no model should give: each metric has a definition for them, or names the example."""

import math

import numpy as np
import pandas as pd
import pytest

from helpers.analysis.coreference import coreference_table, judge
from helpers.analysis.dependency_heads import dependency_heads
from helpers.analysis.head_counts import count_heads
from helpers.analysis.heads import DIRECTIONS
from helpers.analysis.probe_data import prepare
from helpers.analysis.surface import example_sums
from helpers.errors import InputError, MapError
from helpers.store.store import Example

LAYERS, HEADS = 2, 3
LONGEST = 128


def uniform(n):
    return np.full((LAYERS, HEADS, n, n), 1 / n, np.float16)


def chain(words, index=0, maps=None, split="train"):
    """A document and tree in one: each word depends on the one before, every second is "she"."""
    mentions = [[i, i + 1, 1, i] for i in range(0, words, 2)]
    texts = ["she", "slept"] * (words // 2) + ["she"] * (words % 2)
    record = {
        "tokens": ["[CLS]", *texts, "[SEP]"],
        "words": texts,
        "tags": ["PRON", "VERB"] * (words // 2) + ["PRON"] * (words % 2),
        "heads": list(range(words)),
        "relations": ["root", *["dep"] * (words - 1)],
        "mentions": mentions,
        "split": split,
    }
    return Example(index, uniform(words + 2) if maps is None else maps, record)


def probe_data(examples):
    return prepare([*examples, chain(3, split="dev")])


def section_3(examples):
    return example_sums(examples, {"cls": "[CLS]", "sep": "[SEP]"})


METRICS = {
    "section 3": section_3, "dependency heads": count_heads, "coreference": judge,
    "probes": probe_data,
}  # fmt: skip


@pytest.mark.parametrize(
    ("value", "message"),
    [(math.nan, "NaN"), (math.inf, "summing"), (-0.25, "negative"), (0.9, "summing")],
)
@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_rows_that_are_no_distribution_are_refused_with_the_index(metric, value, message):
    spoilt = chain(4, index=17)
    spoilt.attention[1, 0, 3, 1] = value
    with pytest.raises(MapError, match=rf"^example 17: .*{message}"):
        metric([chain(4), spoilt])


def test_rounding_to_float16_is_no_reason_to_refuse():
    """The rows of n = 128 stored weights are off from 1 by at most n rounding errors."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        maps = rng.dirichlet(np.full(LONGEST, 0.05), (LAYERS, HEADS, LONGEST))
        count_heads([chain(LONGEST - 2, maps=maps.astype(np.float16))])


def test_a_sentence_of_one_word():
    """Its word is the root: a miss for every head, and no mention has an antecedent."""
    counts = count_heads([chain(1)])
    for direction in DIRECTIONS:
        assert not counts.accuracy("All")[DIRECTIONS.index(direction)].any()
    assert dependency_heads(counts, minimum=1).empty  # nothing but a root has no best head
    with pytest.raises(InputError, match="no mention has an antecedent"):
        judge([chain(1)])


def test_nan_stands_in_a_table_only_where_nothing_was_counted():
    documents = [chain(6), chain(6, 1), chain(5, 2, split="dev"), chain(5, 3, split="dev")]
    table = coreference_table(judge(documents))
    measured = table[["accuracy", "ci_low", "ci_high"]].isna()
    assert (measured.all(axis=1) == (table["n"] == 0)).all()
    assert (measured.any(axis=1) == (table["n"] == 0)).all()
    assert 0 < (table["n"] == 0).sum() < len(table)  # all mentions are pronouns
    heads = dependency_heads(count_heads([chain(6), chain(5, 1)]), minimum=1)
    named = [name for name in heads if not name.startswith("paper_")]
    assert not pd.isna(heads[named]).any(axis=None)
