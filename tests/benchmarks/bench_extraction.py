"""Extraction against a bare forward pass, and the norm lens against extraction.

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
from itertools import count
from pathlib import Path

import torch
from common import extract_into, interleaved, options, random_encoder, random_segments, report

from helpers.model.forward import length_batches, model_inputs, padded
from helpers.store.examples import BATCH_TOKENS
from helpers.store.extract import extract
from helpers.store.store import Store


def bare_batches(store: Store) -> list[dict[str, torch.Tensor]]:
    """Return the batches that extraction makes of a store's records."""
    batches = []
    for number in range(store.n_shards):
        records = store.records(store.indices(number))
        inputs = [model_inputs(store.encoder, record) for record in records]
        lengths = [len(segment["input_ids"]) for segment in inputs]
        for batch in length_batches(lengths, budget=BATCH_TOKENS["cpu"]):
            batches.append(padded(store.encoder, [inputs[index] for index in batch]))
    return batches


def extraction_row(name: str, segments: int, repeats: int) -> dict[str, object]:
    """Return the throughput of extraction and of its limit, in segments per second."""
    encoder = random_encoder(name)
    corpus = random_segments(segments)
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["ATTENTION_CACHE"] = str(Path(scratch) / "bare")
        batches = bare_batches(extract(encoder, corpus, stream=True))
        run_numbers = count()

        @torch.inference_mode()
        def bare() -> None:
            for batch in batches:
                encoder.model(**batch, output_attentions=True)

        def extract_once(lens: str) -> None:
            root = Path(scratch) / str(next(run_numbers))
            extract_into(root, encoder, corpus, lens=lens)
            shutil.rmtree(root)

        variants = {
            "bare": bare,
            "attention": partial(extract_once, "attention"),
            "norm": partial(extract_once, "norm"),
        }
        seconds = interleaved(variants, repeats)
    return {
        "geometry": name,
        "segments": segments,
        "bare_per_s": segments / seconds["bare"],
        "extract_per_s": segments / seconds["attention"],
        "ratio": seconds["bare"] / seconds["attention"],
        "norm_cost": seconds["norm"] / seconds["attention"],
    }


def main() -> None:
    parser = options(__doc__, repeats=5)
    parser.add_argument("--segments", type=int, default=256)
    arguments = parser.parse_args()
    results: dict[str, list[dict[str, object]]] = {"extraction": []}
    for name, share in (("minilm", 1), ("bert-base", 4)):
        row = extraction_row(name, arguments.segments // share, arguments.repeats)
        results["extraction"].append(row)
        print(
            f"{name}: {row['extract_per_s']:.1f} segments/s extracted, "
            f"{row['bare_per_s']:.1f} by bare forward passes: ratio {row['ratio']:.2f}; "
            f"through the norm lens {row['norm_cost']:.2f} times the time"
        )
    report(results, arguments.json)


if __name__ == "__main__":
    main()
