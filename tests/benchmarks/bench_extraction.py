"""Extraction against a bare forward pass, the norm lens against it, words against a loop.

    python tests/benchmarks/bench_extraction.py [--json PATH] [--repeats N] [--segments N]

The limit of extraction is ``model(..., output_attentions=True)`` over the same padded batches,
its results thrown away; extraction also reads records, checks, converts and writes the maps.
The variants run in turn, repeat after repeat; the table shows medians.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import torch
from common import (
    GEOMETRIES,
    extract_into,
    interleaved,
    options,
    random_encoder,
    random_segments,
    report,
)

from helpers.model.encoder import Encoder
from helpers.model.forward import model_inputs, padded
from helpers.model.parallel import length_batches
from helpers.model.tokens import to_words
from helpers.store import extract as extraction
from helpers.store.examples import BATCH_TOKENS
from helpers.store.store import Store


def bare_batches(encoder: Encoder, folder: Path) -> list[dict[str, torch.Tensor]]:
    """Return the batches that extraction makes of a store's records."""
    store = Store.open(folder, encoder)
    batches = []
    for _, records in store.work(range(store.n_shards)):
        inputs = [model_inputs(encoder, record) for record in records]
        lengths = [len(item["input_ids"]) for item in inputs]
        for batch in length_batches(lengths, budget=BATCH_TOKENS["cpu"], longest_first=True):
            batches.append(padded(encoder, [inputs[i] for i in batch]))
    return batches


def per_head(attention: np.ndarray, groups: list[int]) -> np.ndarray:
    """Convert token maps to word maps head by head and word by word."""
    layers, heads, n, _ = attention.shape
    words = [[i for i in range(n) if groups[i] == word] for word in range(groups[-1] + 1)]
    out = np.zeros((layers, heads, len(words), len(words)))
    for layer in range(layers):
        for head in range(heads):
            to = np.stack([attention[layer, head][:, own].sum(-1) for own in words], axis=1)
            out[layer, head] = np.stack([to[own].mean(axis=0) for own in words])
    return out


def extraction_row(name: str, segments: int, repeats: int) -> dict[str, object]:
    """Return the throughput of extraction and of its limit, in segments per second."""
    encoder, corpus = random_encoder(name), random_segments(segments)
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["ATTENTION_CACHE"] = str(Path(scratch) / "bare")
        key = extraction.store_key(encoder, corpus, level="token", max_tokens=128)
        extraction.prepare(encoder, corpus, key)
        batches, runs = bare_batches(encoder, key.folder()), iter(range(10**6))

        @torch.inference_mode()
        def bare() -> None:
            for batch in batches:
                encoder.model(**batch, output_attentions=True)

        def whole(lens: str) -> None:
            root = Path(scratch) / str(next(runs))
            extract_into(root, encoder, corpus, lens=lens)
            shutil.rmtree(root)

        lenses = {lens: partial(whole, lens) for lens in ("attention", "norm")}
        seconds = interleaved({"bare": bare, **lenses}, repeats)
    return {
        "geometry": name,
        "segments": segments,
        "bare_per_s": segments / seconds["bare"],
        "extract_per_s": segments / seconds["attention"],
        "ratio": seconds["bare"] / seconds["attention"],
        "norm_cost": seconds["norm"] / seconds["attention"],
    }


def words_row(name: str, n_words: int, n_tokens: int, repeats: int) -> dict[str, object]:
    """Return the time of word conversion for an example.

    It takes one thread, as in extraction, where the batches run side by side.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    layers, heads, _ = GEOMETRIES[name]
    rng = np.random.default_rng(0)
    attention = rng.dirichlet(np.ones(n_tokens), size=(layers, heads, n_tokens)).astype(np.float32)
    repeated = rng.integers(1, n_words - 1, size=n_tokens - n_words).tolist()
    groups = sorted([*range(n_words), *repeated])
    maps = torch.from_numpy(attention)
    np.testing.assert_allclose(to_words(maps, groups), per_head(attention, groups), atol=1e-5)
    variants = {
        "loop": lambda: per_head(attention, groups),
        "together": lambda: [to_words(maps, groups) for _ in range(20)],
    }
    seconds = interleaved(variants, repeats)
    seconds["together"] /= 20
    torch.set_num_threads(threads)
    ratio = seconds["loop"] / seconds["together"]
    return {"geometry": name, "words": n_words, "tokens": n_tokens, **seconds, "ratio": ratio}


def main() -> None:
    parser = options(__doc__, repeats=5)
    parser.add_argument("--segments", type=int, default=256)
    given = parser.parse_args()
    results: dict[str, list[dict[str, object]]] = {"extraction": [], "words": []}
    for name, share in (("minilm", 1), ("bert-base", 4)):
        row = extraction_row(name, given.segments // share, given.repeats)
        results["extraction"].append(row)
        print(
            f"{name}: {row['extract_per_s']:.1f} segments/s extracted, "
            f"{row['bare_per_s']:.1f} by bare forward passes: ratio {row['ratio']:.2f}; "
            f"through the norm lens {row['norm_cost']:.2f} times the time"
        )
        for n_words, n_tokens in ((30, 40), (100, 128)):
            row = words_row(name, n_words, n_tokens, given.repeats)
            results["words"].append(row)
            print(
                f"{name}: maps of {n_tokens} tokens to {n_words} words {row['ratio']:.0f} times "
                "faster than a loop over heads"
            )
    report(results, given.json)


if __name__ == "__main__":
    main()
