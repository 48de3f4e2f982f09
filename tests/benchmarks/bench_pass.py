"""The one pass of sections 3 and 6 against a pass for each analysis, and against reading alone.

    python tests/benchmarks/bench_pass.py [--json PATH] [--repeats N] [--segments N]

The reference computes what the paper's notebook computes, the way it does: each analysis loops
over the examples and over the heads, and the distances are the released algorithm's.  The limit
reads every map from the store once, into float32.  The digests of the shards are checked by the
first reading of a process: what that costs is measured, too.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from bench_distances import released_algorithm
from common import extract_into, interleaved, options, random_encoder, random_segments, report

from helpers.analysis.averages import sweep
from helpers.analysis.head_distance import head_distances
from helpers.paths import sha256
from helpers.store.store import Store


def reading(store: Store) -> float:
    """Read every map once."""
    return sum(float(example.attention.astype(np.float32)[0, 0, 0, 0]) for example in store)


def digests(store: Store) -> None:
    """Check every shard's digest, as the first reading of a process does."""
    for shard in store.manifest.shards:
        if sha256(store.folder / shard.file) != shard.sha256:
            raise AssertionError(shard.file)


def surface_by_head(store: Store) -> None:
    """Positions, token types and entropy, an analysis after the other, a head at a time."""
    for analysis in (_positions, _token_types, _entropy):
        for example in store:
            maps = example.attention.astype(np.float32)
            for head in maps.reshape(-1, *maps.shape[2:]):
                analysis(head, example.record["tokens"])


def _positions(head: np.ndarray, _tokens: list[str]) -> list[float]:
    n = len(head)
    return [
        float(sum(head[i, i + offset] for i in range(n) if 0 <= i + offset < n)) / n
        for offset in (-1, 0, 1)
    ]


def _token_types(head: np.ndarray, tokens: list[str]) -> list[float]:
    types = (["[CLS]"], ["[SEP]"], [".", ","])
    return [
        float(head[:, [i for i, token in enumerate(tokens) if token in own]].sum()) / len(head)
        for own in types
    ]


def _entropy(head: np.ndarray, _tokens: list[str]) -> float:
    smooth = 0.9999 * head + 0.0001 / len(head)
    return float(-(smooth * np.log(smooth)).sum(-1).mean())


def distances_by_head(store: Store) -> None:
    """The released algorithm over every example."""
    for example in store:
        released_algorithm(example.attention.astype(np.float32))


def main() -> None:
    parser = options(__doc__, repeats=3)
    parser.add_argument("--segments", type=int, default=32)
    given = parser.parse_args()
    encoder = random_encoder("minilm", width=96)
    head_distances(np.full((6, 12, 8, 8), 1 / 8, np.float32), compiled=True)  # once a process
    with tempfile.TemporaryDirectory() as folder:
        store = extract_into(Path(folder), encoder, random_segments(given.segments))
        seconds = interleaved(
            {
                "separate passes": lambda: (surface_by_head(store), distances_by_head(store)),
                "one pass": lambda: sweep(store),
                "reading": lambda: reading(store),
                "digests": lambda: digests(store),
            },
            given.repeats,
        )
        gigabytes = sum(shard.bytes for shard in store.manifest.shards) / 1e9
    results = {
        "segments": given.segments,
        "seconds": seconds,
        "ratio": seconds["separate passes"] / seconds["one pass"],
        "reading_gb_per_s": gigabytes / seconds["reading"],
        "share_of_reading": seconds["reading"] / seconds["one pass"],
        "share_of_digests": seconds["digests"] / seconds["one pass"],
    }
    print(
        f"sections 3 and 6 over {given.segments} segments: {seconds['one pass']:.2f} s, "
        f"{results['ratio']:.0f} times faster than separate passes head by head; reading alone "
        f"is {results['share_of_reading']:.0%} of it ({results['reading_gb_per_s']:.1f} GB/s), "
        f"the shards' digests {results['share_of_digests']:.0%}"
    )
    report(results, given.json)


if __name__ == "__main__":
    main()
