"""Head distances against the released algorithm, and what each trick of the kernel saves.

    python tests/benchmarks/bench_distances.py [--json PATH] [--repeats N] [--tokens N]

The variants run in turn, repeat after repeat, on the same maps; the table shows medians.  The
reference is the algorithm of the paper's repository in plain numpy: each head against all heads,
two logarithms for each pair and weight, both triangles.  It gets float32 maps, as the kernel does,
because numpy would be slower and less exact on the float16 maps that the repository stores.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from common import GEOMETRIES, interleaved, options, report, seconds

from helpers.metrics.head_distance import (
    COMPILED_FOR_TILES,
    TILE,
    Kernel,
    _compile_options,
    _compiled_kernel,
    _eager,
    _log2,
    _tiles,
    head_distances,
)
from helpers.torch_utils import one_thread


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


def fused_with(log2: Callable[[torch.Tensor], torch.Tensor]) -> Kernel:
    """Make a function that computes what `head_distance._fused` does, with another logarithm."""

    def fused(tiles: torch.Tensor) -> torch.Tensor:
        heads = tiles.shape[0]
        in_circle = torch.cat([tiles, tiles[: heads // 2]])
        partners = in_circle.unfold(0, heads // 2 + 1, 1)
        mean = (tiles.unsqueeze(-1) + partners).transpose(-1, -2)
        sums = (mean * log2(mean)).sum(-1)
        return sums.sum(1, dtype=torch.float64) * -math.log(2)

    return fused


def without(options: dict[str, object], name: str) -> dict[str, object]:
    """Leave an option out."""
    return {key: value for key, value in options.items() if key != name}


def other_kernels(heads: int) -> dict[str, Kernel]:
    """Compile the kernel with simpler code: what each of its tricks saves."""
    tiles = torch.full((heads, COMPILED_FOR_TILES, TILE), 0.5)
    torch._dynamo.mark_dynamic(tiles, 1)
    options = _compile_options()
    variants = {
        "torch.log2": (torch.log2, options),
        "no fused multiply-add": (
            _log2,
            without(options, "cpp.enable_floating_point_contract_flag"),
        ),
        "the widest vectors": (_log2, without(options, "cpp.simdlen")),
    }
    kernels = {}
    for name, (log2, with_options) in variants.items():
        kernel = torch.compile(
            fused_with(log2), fullgraph=True, dynamic=False, options=with_options
        )
        kernel(tiles)
        kernels[name] = kernel
    return kernels


def cpu_seconds(run: Callable[[], object]) -> float:
    """Return the processor time of one call, on all threads together."""
    started = time.process_time()
    run()
    return time.process_time() - started


def benchmark(layers: int, heads: int, n: int, repeats: int) -> dict[str, object]:
    """Return seconds an example, ratios, errors, and the processor time of each kernel."""
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
    variants: dict[str, Callable[[], object]] = {"reference": lambda: released_algorithm(maps)}
    for name, kernel in kernels.items():
        variants[name] = partial(kernel, maps)
    medians = interleaved(variants, repeats)
    return {
        "heads": layers * heads,
        "tokens": n,
        "seconds": medians,
        "ratio": {name: medians["reference"] / medians[name] for name in variants},
        "relative_error": errors,
        "first_call_seconds": compile_seconds,
        "kernel_cpu_seconds": kernel_times(maps, repeats),
    }


@torch.no_grad()
def kernel_times(maps: np.ndarray, repeats: int) -> dict[str, float]:
    """Return the processor time of the kernels on one thread, the least of the repeats.

    Processor time on one thread tells what a trick saves on a busy machine, too.
    """
    tiles = _tiles(maps)
    with one_thread():
        kernels = {
            "eager": _eager,
            "compiled": _compiled_kernel(len(tiles), 1),
            **other_kernels(len(tiles)),
        }
        times: dict[str, list[float]] = {name: [] for name in kernels}
        for _ in range(repeats):
            for name, kernel in kernels.items():
                times[name].append(cpu_seconds(partial(kernel, tiles)))
    return {name: min(values) for name, values in times.items()}


def print_row(row: dict[str, object]) -> None:
    """Print the times, ratios and errors of one geometry as a table."""
    print(f"distances of {row['heads']} heads, {row['tokens']} tokens")
    print(f"{'':32}{'ms/example':>12}{'ratio':>8}{'relative error':>16}")
    for name, duration in row["seconds"].items():
        ratio = row["ratio"][name]
        error = row["relative_error"][name]
        print(f"{name:32}{duration * 1e3:12.1f}{ratio:8.1f}{error:16.1e}")
    print(f"first compiled call: {row['first_call_seconds']:.1f} s")
    for name, duration in row["kernel_cpu_seconds"].items():
        print(f"{f'kernel: {name}':32}{duration * 1e3:12.1f} ms of processor time")


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
