import inspect
import os
import warnings
from functools import cache, partial

import numpy as np
import pytest
import torch
from scipy.spatial.distance import jensenshannon
from store_tools import MAX_TOKENS, cache_at, many_segments
from tolerances import float32_error

from helpers.metrics import head_distance
from helpers.metrics.head_distance import head_distances
from helpers.metrics.surface import combine
from helpers.store.extract import extract


def maps(rng, layers, heads, n, *, sharpness=3.0):
    logits = rng.normal(size=(layers, heads, n, n)) * sharpness
    return torch.softmax(torch.from_numpy(logits), -1).to(torch.float16).numpy()


@torch.no_grad()
def compile_distances(heads):
    head_distance._compiled_kernel(heads, torch.get_num_threads())


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


@pytest.fixture(scope="module", autouse=True)
def without_checks_of_axes():
    """Take jaxtyping's checks off the functions that are compiled: torch cannot trace them."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_fused", "_log2"):
            patch.setattr(head_distance, name, inspect.unwrap(getattr(head_distance, name)))
        head_distance._compiled_kernel.cache_clear()  # a kernel that failed before is not kept
        yield
        head_distance._compiled_kernel.cache_clear()


@pytest.fixture
def fresh_kernel(monkeypatch):
    """No kernel has been compiled or failed to be."""
    uncached = head_distance._compiled_kernel.__wrapped__
    monkeypatch.setattr(head_distance, "_compiled_kernel", cache(uncached))


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """The compiled kernel of this process; one compilation serves every test."""
    kernel = partial(head_distances, compiled=True)
    with pytest.MonkeyPatch.context() as patch:
        if "ATEN_CPU_CAPABILITY" in os.environ:  # torch's cache would give another processor's code
            patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("inductor")))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            kernel(maps(np.random.default_rng(0), 2, 3, 5))
        messages = [str(warning.message) for warning in caught]
        assert not any("Dynamo" in message for message in messages), messages  # our own code
        if any("without compilation" in message for message in messages):
            pytest.skip("nothing can be compiled here (is there a C++ compiler?)")
        yield kernel


@pytest.mark.parametrize("n", [1, 3, 22, 40])  # less than a tile, nearly one, more than two
@pytest.mark.parametrize("heads", [1, 3, 4])
def test_head_distances_are_divergences_summed_over_tokens(n, heads):
    attention = normalised(maps(np.random.default_rng(n), 2, heads, n))
    distances = head_distances(attention)
    assert distances.shape == (2 * heads, 2 * heads)
    assert distances.dtype == np.float64
    expected = by_scipy(attention)
    np.testing.assert_allclose(distances, expected, rtol=1e-5, atol=float32_error(n))


def assert_only_one_head_is_nan(kernel):
    attention = maps(np.random.default_rng(0), 2, 3, 12)
    attention[1, 0, 4, 4] = np.nan
    distances = kernel(attention)
    assert np.isnan(distances[3]).all()
    assert np.isfinite(distances[0, [0, 1, 2, 4, 5]]).all()


def test_eager_distances_do_not_hide_nan():
    assert_only_one_head_is_nan(head_distances)


def test_compiled_distances_do_not_hide_nan(compiled):
    assert_only_one_head_is_nan(compiled)


@pytest.mark.parametrize("n", [3, 40, 25])
def test_compiled_distances_agree_with_the_definition(n, compiled):
    attention = normalised(maps(np.random.default_rng(n), 2, 3, n))
    # As hard as real maps get: two heads that differ by a hundredth.
    attention[1, 2] = 0.99 * attention[1, 1] + 0.01 * attention[1, 0]
    distances = compiled(attention)
    expected = by_scipy(attention)
    is_small = expected < 0.01 * expected.max()  # float32 leaves these an absolute error
    np.testing.assert_allclose(distances[~is_small], expected[~is_small], rtol=1e-5)
    np.testing.assert_allclose(distances[is_small], expected[is_small], atol=float32_error(n))
    # With ATen's plain kernels the two differed by 2.9e-5 at 25 tokens.
    np.testing.assert_allclose(distances, head_distances(attention), atol=2 * float32_error(n))


def test_one_compilation_serves_every_length(compiled):
    torch._dynamo.utils.counters.clear()
    rng = np.random.default_rng(2)
    for n in (2, 22, 23, 33, 47, 60):
        compiled(maps(rng, 2, 3, n))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 0


def test_a_failed_compilation_warns_once_and_gives_the_same_result(fresh_kernel, monkeypatch):
    def no_compiler(*args, **options):
        raise RuntimeError("no C++ compiler\ndetails")

    monkeypatch.setattr(torch, "compile", no_compiler)
    attention = maps(np.random.default_rng(0), 2, 2, 12)
    kernel = partial(head_distances, compiled=True)
    with pytest.warns(UserWarning, match=r"without compilation.*\(no C\+\+ compiler details\)"):
        first = kernel(attention)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        second = kernel(attention)
    np.testing.assert_array_equal(first, head_distances(attention))
    np.testing.assert_array_equal(second, first)


def test_distances_are_eager_unless_compiled_is_asked_for(fresh_kernel, monkeypatch):
    monkeypatch.setattr(torch, "compile", None)
    monkeypatch.setattr(head_distance, "COMPILE_AFTER", 0)
    attention = maps(np.random.default_rng(0), 2, 2, 32)
    for _ in range(2):
        assert np.isfinite(head_distances(attention)).all()


def test_compile_distances_leaves_nothing_to_compile(compiled, monkeypatch):
    attention = maps(np.random.default_rng(0), 2, 4, 9)
    compile_distances(8)
    torch._dynamo.utils.counters.clear()
    monkeypatch.setattr(torch, "compile", None)
    np.testing.assert_allclose(compiled(attention), head_distances(attention), atol=1e-5)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 0


def test_another_number_of_threads_compiles_again(compiled, monkeypatch):
    attention = maps(np.random.default_rng(0), 2, 3, 9)
    expected = compiled(attention)
    n_kernels = head_distance._compiled_kernel.cache_info().currsize
    torch.set_num_threads(3)
    np.testing.assert_array_equal(compiled(attention), expected)
    np.testing.assert_array_equal(compiled(attention), expected)
    assert head_distance._compiled_kernel.cache_info().currsize == n_kernels + 1


# Over a corpus


@pytest.fixture
def small_stream(tiny_encoder, tmp_path):
    """Maps that are computed when they are asked for: 11 segments, in shards of four."""
    with cache_at(tmp_path):
        return extract(tiny_encoder("bert"), many_segments(11), max_tokens=MAX_TOKENS, stream=True)


def test_shards_and_sweep_choose_the_kernel_by_the_work_of_the_corpus(small_stream, monkeypatch):
    chosen = []

    def noted(attention, *, compiled=False, original=head_distance.head_distances):
        chosen.append(compiled)
        return original(attention)

    monkeypatch.setattr(head_distance, "head_distances", noted)
    monkeypatch.setattr(head_distance, "_compiled_kernel", lambda heads, threads: None)
    heads = small_stream.layers * small_stream.heads
    work = sum(len(record["tokens"]) ** 2 for record in small_stream.records()) * heads**2 / 2
    for threshold, expected in ((work, False), (work * 0.99, True)):
        monkeypatch.setattr(head_distance, "COMPILE_AFTER", threshold)
        for number in (None, 2):
            chosen.clear()
            head_distance.sweep(small_stream, number)
            assert len(chosen) >= 3
            assert set(chosen) == {expected}


def test_a_stream_in_one_pass_and_by_shards_gives_the_same_compiled_sums(
    small_stream, tiny_encoder, monkeypatch, tmp_path
):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))  # it compiles now
    monkeypatch.setattr(head_distance, "COMPILE_AFTER", 1)
    torch.set_num_threads(2)
    swept = head_distance.sweep(small_stream).to_arrays()
    by_shard = combine(head_distance.sweep(small_stream, number) for number in range(3)).to_arrays()
    monkeypatch.setattr(head_distance, "COMPILE_AFTER", np.inf)
    with cache_at(tmp_path / "eager"):
        stored = extract(tiny_encoder("bert"), many_segments(11), max_tokens=MAX_TOKENS)
    eager = head_distance.sweep(stored).to_arrays()
    for name, values in swept.items():
        np.testing.assert_array_equal(by_shard[name], values)
        if name == "sums":
            np.testing.assert_allclose(eager[name], values, rtol=1e-4, atol=1e-3)
