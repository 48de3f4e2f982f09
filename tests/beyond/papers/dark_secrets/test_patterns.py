"""Patterns of maps that are drawn by hand, and the maps of a tiny model."""

import numpy as np
import pytest
import torch

from beyond.papers.common.tasks import Pair
from beyond.papers.dark_secrets import patterns
from beyond.papers.dark_secrets.maps import shaded, text_maps
from beyond.papers.dark_secrets.patterns import FEATURES

N = 40
POSITION = np.arange(N)
SPECIAL = np.isin(POSITION, (0, 19, N - 1))
NONE = np.zeros(N, bool)


def normalised(weights):
    weights = weights + 0.1 / N
    return weights / weights.sum(axis=-1, keepdims=True)


def column(position):
    return normalised(np.tile(0.7 * (position == POSITION), (N, 1)))


FIRST = column(0)
DIAGONAL = normalised(np.eye(N, k=-1))
NOISE = np.random.default_rng(0).uniform(0.5, 1, (N, N))


@pytest.mark.parametrize(
    ("weights", "special", "pattern"),
    [
        (FIRST, SPECIAL, "vertical"),
        (column(7), SPECIAL, "vertical"),
        (DIAGONAL, SPECIAL, "diagonal"),
        (DIAGONAL, NONE, "diagonal"),
        ((FIRST + DIAGONAL) / 2, SPECIAL, "vertical + diagonal"),
        (normalised(NOISE), SPECIAL, "heterogeneous"),
        (np.full((N, N), 1 / N), SPECIAL, "heterogeneous"),
    ],
)
def test_patterns_of_drawn_maps(weights, special, pattern):
    features = patterns.map_features(weights[None, None], special)
    assert patterns.pattern_classifier().predict(features[0]) == [pattern]


def test_map_features_by_hand():
    weights = np.array(
        [
            [0.4, 0.2, 0.1, 0.0, 0.2, 0.1],
            [0.3, 0.2, 0.3, 0.0, 0.1, 0.1],
            [0.2, 0.4, 0.2, 0.0, 0.1, 0.1],
            [0.3, 0.1, 0.1, 0.3, 0.1, 0.1],
            [0.1, 0.1, 0.2, 0.0, 0.3, 0.3],
            [0.5, 0.0, 0.1, 0.0, 0.2, 0.2],
        ]
    )
    words = [1, 2, 4, 5]  # special tokens are before each of the two texts
    values = patterns.map_features(weights[None, None], ~np.isin(np.arange(6), words))[0, 0]
    # The darkest colour is 1 here, whatever the map.
    rows = (weights**0.7)[np.ix_(words, words)]
    means = sorted(np.diagonal(rows, offset).mean() for offset in range(-3, 4))
    # Neighbours in the same text, and all pairs of different texts.
    inside = np.mean([rows[0, 1], rows[1, 0], rows[2, 3], rows[3, 2]])
    between = np.mean([*rows[:2, 2:].flat, *rows[2:, :2].flat])
    correlation = np.corrcoef(rows)
    expected = {
        "column share": 1.8 / 6,
        "first column": 0.3**0.7,
        "diagonal": means[-1],
        "second diagonal": means[-2],
        "main diagonal": np.trace(rows) / 4,
        "far": 0,  # no words are more than three words apart
        "square": inside - between,
        "rows alike": np.mean([correlation[0, 1], correlation[1, 2], correlation[2, 3]]),
        "far rows alike": np.mean([correlation[0, 2], correlation[1, 3]]),
        "length": np.log(6),
    }
    assert dict(zip(FEATURES, values, strict=True)) == pytest.approx(expected, abs=1e-5)
    np.testing.assert_allclose(shaded(weights), weights**0.7)


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_text_maps_of_a_batch_equal_those_of_single_inputs(tiny_encoder, family):
    encoder = tiny_encoder(family)
    texts = [("The cat sat on the mat.", "It was a lazy cat."), ("Yes.",), ("She doesn't know.",)]
    examples = text_maps(encoder, [Pair(text, 0) for text in texts * 6], max_tokens=48)
    for text, example in zip(texts * 6, examples, strict=True):
        inputs = encoder.tokenizer(*text, return_tensors="pt")
        maps = encoder.model.base_model(**inputs, output_attentions=True).attentions
        assert np.allclose(example.attention, torch.cat(maps), atol=1e-5)
        special_ids = encoder.tokenizer.all_special_ids
        assert example.special.tolist() == [i in special_ids for i in inputs["input_ids"][0]]
