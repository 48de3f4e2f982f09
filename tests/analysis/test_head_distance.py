import warnings
from functools import partial

import numpy as np
import pytest
import torch
from scipy.spatial.distance import jensenshannon

from helpers.analysis import head_distance
from helpers.analysis.head_distance import head_distances


def maps(rng, layers, heads, n, *, sharpness=3.0):
    logits = rng.normal(size=(layers, heads, n, n)) * sharpness
    return torch.softmax(torch.from_numpy(logits), -1).to(torch.float16).numpy()


def by_scipy(attention):
    """The definition, pair by pair and token by token, in float64."""
    layers, heads, n, _ = attention.shape
    p = 0.999 * attention.astype(np.float64).reshape(layers * heads, n, n) + 0.001 / n
    return np.array([[(jensenshannon(a, b, axis=1) ** 2).sum() for b in p] for a in p])


def normalised(attention):
    """Maps whose rows sum to 1 in float64, as scipy makes them (float16 rows are a bit off)."""
    wide = attention.astype(np.float64)
    return wide / wide.sum(-1, keepdims=True)


@pytest.fixture
def backend(monkeypatch):
    """A backend that has not compiled, failed or worked yet."""
    fresh = head_distance._Backend()
    monkeypatch.setattr(head_distance, "_BACKEND", fresh)
    return fresh


@pytest.fixture(scope="module")
def compiled():
    """The compiled kernel of this process; one compilation serves every test."""
    kernel = partial(head_distances, compiled=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        kernel(maps(np.random.default_rng(0), 2, 3, 5))
    if any("without compilation" in str(warning.message) for warning in caught):
        pytest.skip("nothing can be compiled here (is there a C++ compiler?)")
    return kernel


@pytest.mark.parametrize("n", [1, 3, 22, 40])  # less than a tile, nearly one, more than two
@pytest.mark.parametrize("heads", [1, 3, 4])
def test_distances_are_jensen_shannon_divergences_summed_over_tokens(n, heads):
    attention = normalised(maps(np.random.default_rng(n), 2, heads, n))
    ours, reference = head_distances(attention), by_scipy(attention)
    assert ours.shape == (2 * heads, 2 * heads)
    assert ours.dtype == np.float64
    np.testing.assert_allclose(ours, reference, rtol=1e-5, atol=1e-6 if n < 22 else 0)


def test_nan_is_not_hidden(compiled):
    attention = maps(np.random.default_rng(0), 2, 3, 12)
    attention[1, 0, 4, 4] = np.nan
    for kernel in (head_distances, compiled):
        distances = kernel(attention)
        assert np.isnan(distances[3]).all()
        assert np.isfinite(distances[0, [0, 1, 2, 4, 5]]).all()


def test_the_compiled_kernel_agrees_with_the_definition(compiled):
    rng = np.random.default_rng(1)
    for n in (3, 40, 25):
        attention = normalised(maps(rng, 2, 3, n))
        # As hard as real maps get: two heads that differ by a hundredth.
        attention[1, 2] = 0.99 * attention[1, 1] + 0.01 * attention[1, 0]
        ours = compiled(attention)
        reference = by_scipy(attention)
        close = reference < 0.01 * reference.max()  # float32 leaves these an absolute error
        np.testing.assert_allclose(ours[~close], reference[~close], rtol=1e-5)
        np.testing.assert_allclose(ours[close], reference[close], atol=1e-6 * n)
        np.testing.assert_allclose(ours, head_distances(attention), atol=1e-6 * n)


def test_one_compilation_serves_every_length(compiled):
    torch._dynamo.utils.counters.clear()
    rng = np.random.default_rng(2)
    for n in (2, 22, 23, 33, 47, 60):
        compiled(maps(rng, 2, 3, n))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 0


def test_a_failed_compilation_warns_once_and_gives_the_same_result(backend, monkeypatch):
    def no_compiler(*args, **options):
        raise RuntimeError("no C++ compiler\ndetails")

    monkeypatch.setattr(torch, "compile", no_compiler)
    attention = maps(np.random.default_rng(0), 2, 2, 12)
    kernel = partial(head_distances, compiled=True)
    with pytest.warns(UserWarning, match=r"without compilation.*\(no C\+\+ compiler\)"):
        first = kernel(attention)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        second = kernel(attention)
    np.testing.assert_array_equal(first, head_distances(attention))
    np.testing.assert_array_equal(second, first)


def test_short_jobs_never_compile_and_long_jobs_do(backend, monkeypatch):
    compilations = []

    def compile_eagerly(function, **options):
        compilations.append(function)
        return head_distance._eager

    monkeypatch.setattr(torch, "compile", compile_eagerly)
    monkeypatch.setattr(head_distance, "COMPILE_AFTER", 2.5 * 1024 * 4 * 4 / 2)
    attention = maps(np.random.default_rng(0), 2, 2, 32)  # 1,024 weights, 4 heads
    for expected in (0, 0, 1, 1):
        head_distances(attention)
        assert len(compilations) == expected
    head_distances(attention, compiled=False)
    assert len(compilations) == 1
