"""Distances between heads: by SciPy, and over the first segments of a store."""

import numpy as np
import pytest
from scipy.spatial.distance import jensenshannon
from store_tools import MAX_TOKENS, cache_at, many_segments
from tolerances import float32_error

from helpers.metrics import clustering
from helpers.metrics.clustering import distances, head_distances
from helpers.store.extract import extract


@pytest.mark.parametrize(("heads", "n"), [(1, 1), (3, 3), (4, 22), (3, 40)])
def test_head_distances_are_divergences_summed_over_tokens(heads, n):
    attention = np.random.default_rng(n).dirichlet(np.full(n, 0.1), size=(2, heads, n))
    if heads > 1:  # as hard as real maps get: two heads that differ by a hundredth
        attention[1, -1] = 0.99 * attention[0, -1] + 0.01 * attention[0, 0]
    between_heads = head_distances(attention)
    smoothed = 0.999 * attention.reshape(-1, n, n) + 0.001 / n
    expected = [[(jensenshannon(p, q, axis=1) ** 2).sum() for q in smoothed] for p in smoothed]
    np.testing.assert_allclose(between_heads, expected, rtol=1e-5, atol=float32_error(n))
    assert (between_heads.diagonal() == 0).all()
    assert (between_heads == between_heads.T).all()
    attention[1, 0, 0, 0] = np.nan  # is not hidden
    between_heads = head_distances(attention)
    assert np.isnan(between_heads[heads]).all()
    assert np.isfinite(np.delete(between_heads[0], heads)).all()


@pytest.mark.parametrize("stream", [False, True])
def test_distances_are_means_over_the_first_segments(tiny_encoder, tmp_path, monkeypatch, stream):
    monkeypatch.setattr(clustering, "SEGMENTS", 10)  # 11 segments, in shards of four
    with cache_at(tmp_path):
        segments = many_segments(11)
        store = extract(tiny_encoder("bert"), segments, max_tokens=MAX_TOKENS, stream=stream)
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
