"""Distances between heads: by SciPy, and over the first segments of a store."""

import numpy as np
import pytest
import torch
from scipy.spatial.distance import jensenshannon
from store_tools import MAX_TOKENS, cache_at, many_segments
from tolerances import float32_error

from helpers.metrics import head_distance
from helpers.metrics.head_distance import distances, head_distances
from helpers.store.extract import extract


def maps(rng, layers, heads, n, *, sharpness=3.0):
    logits = rng.normal(size=(layers, heads, n, n)) * sharpness
    return torch.softmax(torch.from_numpy(logits), -1).to(torch.float16).numpy()


def by_scipy(attention):
    """The definition, pair by pair and token by token, in float64."""
    layers, heads, n, _ = attention.shape
    smoothed = 0.999 * attention.astype(np.float64).reshape(layers * heads, n, n) + 0.001 / n
    distances = np.empty((layers * heads, layers * heads))
    for a, p in enumerate(smoothed):
        for b, q in enumerate(smoothed):
            distances[a, b] = (jensenshannon(p, q, axis=1) ** 2).sum()
    return distances


def normalised(attention):
    """Maps whose rows sum to 1 in float64, as scipy makes them (float16 rows are a bit off)."""
    wide = attention.astype(np.float64)
    return wide / wide.sum(-1, keepdims=True)


@pytest.mark.parametrize("n", [1, 3, 22, 40])
@pytest.mark.parametrize("heads", [1, 3, 4])
def test_head_distances_are_divergences_summed_over_tokens(n, heads):
    attention = normalised(maps(np.random.default_rng(n), 2, heads, n))
    # As hard as real maps get: two heads that differ by a hundredth.
    attention[1, -1] = 0.99 * attention[0, -1] + 0.01 * attention[0, 0]
    between_heads = head_distances(attention)
    assert between_heads.shape == (2 * heads, 2 * heads)
    assert between_heads.dtype == np.float64
    expected = by_scipy(attention)
    np.testing.assert_allclose(between_heads, expected, rtol=1e-5, atol=float32_error(n))
    assert (between_heads.diagonal() == 0).all()
    assert (between_heads == between_heads.T).all()


def test_distances_do_not_hide_nan():
    attention = maps(np.random.default_rng(0), 2, 3, 12)
    attention[1, 0, 4, 4] = np.nan
    between_heads = head_distances(attention)
    assert np.isnan(between_heads[3]).all()
    assert np.isfinite(between_heads[0, [0, 1, 2, 4, 5]]).all()


# Over a corpus


def test_distances_are_means_over_the_first_segments(tiny_encoder, tmp_path, monkeypatch):
    monkeypatch.setattr(head_distance, "SEGMENTS", 10)  # 11 segments, in shards of four
    with cache_at(tmp_path):
        store = extract(tiny_encoder("bert"), many_segments(11), max_tokens=MAX_TOKENS)
        of_all, of_words = distances(store)
    examples = [store[index] for index in range(10)]
    expected = np.mean([head_distances(example.attention) for example in examples], axis=0)
    np.testing.assert_allclose(of_all, expected, rtol=1e-12)
    of_examples = []
    for example in (examples[0], examples[8]):
        is_word = example.roles.punctuation | example.roles.other
        words = example.attention[:, :, is_word][..., is_word]
        of_examples.append(head_distances(words / words.sum(axis=-1, keepdims=True)))
    np.testing.assert_allclose(of_words, np.mean(of_examples, axis=0), rtol=1e-6)
    assert list(of_all) == list(of_all.index)


def test_a_stream_gives_the_distances_of_a_store(tiny_encoder, tmp_path):
    with cache_at(tmp_path / "store"):
        stored = distances(extract(tiny_encoder("bert"), many_segments(5), max_tokens=MAX_TOKENS))
    with cache_at(tmp_path / "stream"):
        listed = extract(tiny_encoder("bert"), many_segments(5), max_tokens=MAX_TOKENS, stream=True)
        streamed = distances(listed)
    for of_store, of_stream in zip(stored, streamed, strict=True):
        np.testing.assert_array_equal(of_store, of_stream)
