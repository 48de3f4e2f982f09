"""Head distances against the released algorithm and against the machine's logarithms.

    python tests/benchmarks/bench_distances.py [--json PATH] [--repeats N] [--tokens N]

The variants run in turn, repeat after repeat, on the same maps; the table shows medians.  The
reference is the algorithm of the paper's repository in plain numpy: each head against all heads,
two logarithms for each pair and weight, both triangles.  It gets float32 maps, as the kernel does,
because numpy would be slower and less exact on the float16 maps that the repository stores.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from common import GEOMETRIES, interleaved, options, report, seconds

from helpers.metrics.head_distance import _log2, head_distances

CACHED = 32_768  # float32 values per thread, 128 KiB: they stay in the second-level cache
PASSES = 200


def released_algorithm(attention: np.ndarray) -> np.ndarray:
    """Distances as the paper's repository computes them, in the precision of the maps."""
    layers, heads, n, _ = attention.shape
    flat = attention.reshape(layers * heads, n, n)
    distances = np.zeros((layers * heads, layers * heads))
    for head in range(layers * heads):
        one_head = 0.999 * flat[None, head] + 0.001 / n
        all_heads = 0.999 * flat + 0.001 / n
        mean = (one_head + all_heads) / 2
        divergence = -one_head * np.log(mean / one_head)
        divergence += -all_heads * np.log(mean / all_heads)
        distances[head] = (divergence / 2).sum(-1).sum(-1)
    return distances


def realistic_maps(layers: int, heads: int, n: int) -> np.ndarray:
    """Make float32 maps with the patterns of real heads: offsets, a sink, broad and sharp rows."""
    rng = np.random.default_rng(0)
    total = layers * heads
    logits = rng.normal(size=(total, n, n)) * rng.uniform(0.3, 4, size=(total, 1, 1))
    position = np.arange(n)
    for head in range(total):
        offset = rng.integers(-2, 3)
        logits[head][position[:, None] + offset == position] += rng.uniform(0, 8)
        logits[head][:, -1] += rng.uniform(0, 8)
    maps = torch.softmax(torch.from_numpy(logits), -1).to(torch.float16).float()
    return maps.reshape(layers, heads, n, n).numpy()


def relative_error(distances: np.ndarray, reference: np.ndarray) -> float:
    """Return the largest relative error over pairs of different heads."""
    pairs = np.triu_indices(len(reference), 1)
    return float(np.abs(distances[pairs] / reference[pairs] - 1).max())


def log_throughput() -> dict[str, Callable[[], object]]:
    """Return the logarithms to time: every thread works on its own cached values.

    ``torch.log`` is the vectorised library logarithm; the polynomial is the kernel's own, with
    the multiplication and the sum that make it an entropy but nothing read twice.
    """
    threads = torch.get_num_threads()
    values = torch.rand(threads, CACHED) + 1e-3
    out = torch.empty_like(values)

    def entropies(x: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
        mean = x[:, None] + scales[None, :, None]
        return (mean * _log2(mean)).sum(-1)

    compiled = torch.compile(
        entropies, options={"cpp.enable_floating_point_contract_flag": "fast"}, fullgraph=True
    )
    scales = torch.rand(PASSES)

    def library() -> None:
        for _ in range(PASSES):
            torch.log(values, out=out)

    return {"torch.log": library, "polynomial": lambda: compiled(values, scales)}


def benchmark(layers: int, heads: int, n: int, repeats: int) -> dict[str, object]:
    """Return times (seconds an example), ratios, errors and the share of the log throughput."""
    maps = realistic_maps(layers, heads, n)
    kernels = {
        "eager": partial(head_distances, compiled=False),
        "compiled": partial(head_distances, compiled=True),
    }
    exact = released_algorithm(maps.astype(np.float64))
    errors = {"reference": relative_error(released_algorithm(maps), exact)}
    compile_seconds = seconds(lambda: kernels["compiled"](maps))
    for name, kernel in kernels.items():
        errors[name] = relative_error(kernel(maps), exact)

    logs = log_throughput()
    for function in logs.values():
        function()
    variants: dict[str, Callable[[], object]] = {"reference": lambda: released_algorithm(maps)}
    for name, kernel in kernels.items():
        variants[name] = partial(kernel, maps)
    medians = interleaved({**variants, **logs}, repeats)

    logarithms = torch.get_num_threads() * CACHED * PASSES
    total = layers * heads
    pair_weights = total * (total + 1) / 2 * n * n
    throughput = {name: logarithms / medians[name] for name in logs}
    # The gain over the reference if pairs cost only their logarithms.
    limits = {
        name: medians["reference"] / (pair_weights / rate) for name, rate in throughput.items()
    }
    return {
        "heads": total,
        "tokens": n,
        "seconds": {name: medians[name] for name in variants},
        "ratio": {name: medians["reference"] / medians[name] for name in variants},
        "relative_error": errors,
        "first_call_seconds": compile_seconds,
        "log_throughput": throughput,
        "limit_ratio": limits,
    }


def print_row(row: dict[str, object]) -> None:
    """Print the times, ratios and errors of one geometry as a table."""
    print(f"distances of {row['heads']} heads, {row['tokens']} tokens")
    print(f"{'':32}{'ms/example':>12}{'ratio':>8}{'relative error':>16}")
    for name, time in row["seconds"].items():
        ratio = row["ratio"][name]
        error = row["relative_error"][name]
        print(f"{name:32}{time * 1e3:12.1f}{ratio:8.1f}{error:16.1e}")
    for name, ratio in row["limit_ratio"].items():
        rate = row["log_throughput"][name] / 1e9
        print(f"{f'limit: {name}, {rate:.2f} G/s':32}{'':12}{ratio:8.1f}")
    print(f"first compiled call: {row['first_call_seconds']:.1f} s")


def main() -> None:
    parser = options(__doc__, repeats=7)
    parser.add_argument("--tokens", type=int, default=128)
    arguments = parser.parse_args()
    rows = []
    for layers, heads, _ in GEOMETRIES.values():
        row = benchmark(layers, heads, arguments.tokens, arguments.repeats)
        rows.append(row)
        print_row(row)
    report({"distances": rows}, arguments.json)


if __name__ == "__main__":
    main()
