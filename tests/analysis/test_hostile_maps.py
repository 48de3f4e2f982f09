"""Maps that no model should give: each metric has a definition for them, or names the example.

What the sweep over tokens refuses is in ``test_sweep.py``; here are the other metrics, and the
maps at the edges of their definitions: one position, nothing but [UNK], and the longest segment.
"""

import math

import numpy as np
import pandas as pd
import pytest
from toy_corpora import corpus_of

from helpers.analysis.coreference import coreference_table, judge
from helpers.analysis.dependency_heads import dependency_heads
from helpers.analysis.head_counts import count_heads
from helpers.analysis.head_distance import head_distances
from helpers.analysis.heads import DIRECTIONS
from helpers.analysis.probe_data import PLACES, attention_block, prepare
from helpers.analysis.surface import (
    ENTROPY,
    RELATIVE_POSITION,
    TOKEN_TYPES,
    entropy,
    example_sums,
    head_table,
    relative_position,
    token_types,
)
from helpers.data.records import Segment, Sentence
from helpers.errors import InputError, MapError
from helpers.model.tokens import roles
from helpers.store.extract import extract
from helpers.store.store import Example

LAYERS, HEADS = 2, 3
SPECIAL = {"cls": "[CLS]", "sep": "[SEP]"}
LONGEST = 128


def uniform(n):
    return np.full((LAYERS, HEADS, n, n), 1 / n, np.float16)


def chain(words, index=0, maps=None, split="train"):
    """A document and tree in one: each word depends on the one before, every second is "she"."""
    mentions = [[i, i + 1, 1, i] for i in range(0, words, 2)]
    record = {
        "words": ["she", "slept"] * (words // 2) + ["she"] * (words % 2),
        "tags": ["PRON", "VERB"] * (words // 2) + ["PRON"] * (words % 2),
        "heads": list(range(words)),
        "relations": ["root", *["dep"] * (words - 1)],
        "mentions": mentions,
        "split": split,
    }
    return Example(index, uniform(words + 2) if maps is None else maps, record)


def spoilt(index, value):
    """A map in which one weight, from the third word to the first, is wrong."""
    item = chain(4, index)
    item.attention[1, 0, 3, 1] = value
    return item


def probe_data(examples):
    return prepare([*examples, chain(3, split="dev")])


METRICS = {"dependency heads": count_heads, "coreference": judge, "probes": probe_data}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf], ids=str)
@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_a_weight_that_is_no_number_is_refused_with_the_index(metric, value):
    with pytest.raises(MapError, match=r"^example 17: ") as error:
        metric([chain(4), spoilt(17, value)])
    assert error.value.index == 17


@pytest.mark.parametrize(("value", "message"), [(-0.25, "negative"), (0.9, "off from summing")])
@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_rows_that_are_no_distribution_are_refused_with_the_index(metric, value, message):
    with pytest.raises(MapError, match=rf"^example 17: .*{message}"):
        metric([chain(4), spoilt(17, value)])


def test_rounding_to_float16_is_no_reason_to_refuse():
    """The rows of n = 128 stored weights are off from 1 by at most n rounding errors."""
    for seed in range(20):
        maps = np.random.default_rng(seed).dirichlet(
            np.full(LONGEST, 0.05), (LAYERS, HEADS, LONGEST)
        )
        stored = maps.astype(np.float16)
        count_heads([chain(LONGEST - 2, maps=stored)])


# One position


def test_a_segment_of_one_token():
    ones = np.ones((LAYERS, HEADS, 1, 1), np.float16)
    sums = example_sums([Example(0, ones, {"tokens": ["[CLS]"]})], SPECIAL)
    expected = {"previous": 0, "current": 1, "next": 0, "cls": 1, "sep": 0, "punctuation": 0}
    expected |= {"entropy": 0, "entropy_from_cls": 0, "uniform": 0, "other_to_sep": 0}
    for name, value in expected.items():
        np.testing.assert_array_equal(sums.mean(name), np.full((LAYERS, HEADS), value), name)
    assert np.isnan(sums.mean("sep_to_sep")).all()  # there is no [SEP] to attend from
    np.testing.assert_array_equal(sums.distances, np.zeros((6, 6)))


def test_a_sentence_of_one_word():
    """Its word is the root: a miss for every head, and no mention has an antecedent."""
    counts = count_heads([chain(1)])
    for direction in DIRECTIONS:
        assert not counts.accuracy("All")[DIRECTIONS.index(direction)].any()
    assert dependency_heads(counts, minimum=1).empty  # nothing but a root has no best head
    with pytest.raises(InputError, match="no mention has an antecedent"):
        judge([chain(1)])
    block = attention_block(chain(1))
    assert block.shape == (1, 2 * LAYERS * HEADS, 1 + PLACES)
    np.testing.assert_allclose(block, 1 / 3, atol=1e-3)


# Nothing but [UNK]


def test_a_sentence_of_unknown_words_counts_like_any_other(tiny_encoder, own_cache):
    bert = tiny_encoder("bert")
    snow = ("☃", "☃", "☃", "☃")
    segment = Segment("☃ ☃ ☃", "☃ ☃", title="snow")
    store = extract(bert, corpus_of([segment], "snow"), max_tokens=32)
    assert store[0].record["tokens"] == [
        "[CLS]", *["[UNK]"] * 3, "[SEP]", *["[UNK]"] * 2, "[SEP]",
    ]  # fmt: skip
    sums = example_sums(store, store.special_tokens)
    table = head_table(sums, [*RELATIVE_POSITION, *TOKEN_TYPES, *ENTROPY])
    assert np.isfinite(table.filter(regex="(?<!_low)(?<!_high)$").to_numpy()).all()
    assert not table["punctuation"].any()

    sentence = Sentence(snow, (2, 0, 2, 3), ("a", "root", "b", "c"), "train", "snow")
    words = extract(bert, corpus_of([sentence], "tree"), level="word", max_tokens=32)
    assert len(words[0].record["words"]) == 4
    counts = count_heads(words)
    assert counts.total[counts.rows("All")].tolist() == [4]
    assert np.isfinite(attention_block(words[0])).all()


# The longest segment


def test_a_segment_of_exactly_128_tokens_of_uniform_attention():
    n = LONGEST
    tokens = ["[CLS]", *["a"] * 60, ".", "[SEP]", *["b"] * 64, "[SEP]"]
    assert len(tokens) == n
    sums = example_sums([Example(0, uniform(n), {"tokens": tokens})], SPECIAL)
    expected = {
        "previous": (n - 1) / n**2,  # the first token has no previous one
        "current": 1 / n,
        "next": (n - 1) / n**2,
        "cls": 1 / n,
        "sep": 2 / n,
        "punctuation": 1 / n,
        "sep_to_sep": 2 / n,
        "other_to_sep": 2 / n,
        "entropy": math.log(n),
        "entropy_from_cls": math.log(n),
        "uniform": math.log(n),
    }
    for name, value in expected.items():
        np.testing.assert_allclose(sums.mean(name), value, rtol=1e-6, err_msg=name)
    np.testing.assert_allclose(sums.distances, 0, atol=1e-9)


def test_a_segment_of_exactly_128_tokens_of_one_hot_attention():
    n = LONGEST
    maps = np.zeros((1, 2, n, n), np.float32)
    maps[0, 0, np.arange(n), np.arange(n) - 1] = 1  # to the previous token, the first to the last
    maps[0, 1, np.arange(n), np.arange(n)] = 1
    own = roles(["[CLS]", *["a"] * (n - 2), "[SEP]"], SPECIAL)
    assert relative_position(maps)["previous"].tolist() == [[(n - 1) / n, 0]]
    assert token_types(maps, own)["sep"].tolist() == [[1 / n, 1 / n]]
    # p = 0.9999 + 0.0001 / n at one key, 0.0001 / n at the n - 1 others
    high, low = 0.9999 + 1e-4 / n, 1e-4 / n
    by_hand = -high * math.log(high) - (n - 1) * low * math.log(low)
    np.testing.assert_allclose(entropy(maps, own)["entropy"], by_hand, rtol=1e-3)
    # JS of two smoothed one-hot rows: they differ at two keys
    p, q = 0.999 + 1e-3 / n, 1e-3 / n
    m = (p + q) / 2
    divergence = p * math.log(p / m) + q * math.log(q / m)
    distances = head_distances(maps)
    np.testing.assert_allclose(distances, n * divergence * (1 - np.eye(2)), rtol=1e-4, atol=1e-9)


def test_a_sentence_of_exactly_128_positions():
    words = LONGEST - 2
    maps = np.zeros((LAYERS, HEADS, LONGEST, LONGEST), np.float16)
    before = np.arange(LONGEST) - 1
    maps[..., np.arange(LONGEST), before] = 1  # each word to the word before, which is its head
    maps[1, 2] = 1 / LONGEST
    item = chain(words, maps=maps)
    accuracy = count_heads([item]).accuracy("dep")[0]
    assert accuracy[0].tolist() == [100] * HEADS
    # Of equal weights the first: word 1 is right for word 2 only.
    assert accuracy[1, 2] == pytest.approx(100 / (words - 1))
    judgements = judge([item])
    assert judgements.heads["words"].shape == (LAYERS, HEADS, words // 2 - 1)
    assert not judgements.heads["words"][0, 0].any()  # "slept", not the "she" before it
    assert judgements.heads["mentions"][1, 2].all()  # of equal weights the first, an antecedent
    assert attention_block(item).shape == (words, 2 * LAYERS * HEADS, words + PLACES)


# NaN in tables


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
