"""Extraction against a bare forward pass, and the norm lens against extraction.

    python tests/benchmarks/bench_extraction.py

The limit of extraction is ``model(..., output_attentions=True)`` over the same padded batches,
its results thrown away; extraction also reads records, checks, converts and writes the maps.
The variants run in turn, repeat after repeat; the lines show medians.
"""

from __future__ import annotations

import shutil
import tempfile
from functools import partial
from itertools import count
from pathlib import Path

import torch
from common import extract_into, interleaved, random_encoder, random_segments

from helpers.model.forward import length_batches, model_inputs, padded
from helpers.store.extract import BATCH_TOKENS
from helpers.store.store import Store

REPEATS = 5
SEGMENTS = {"minilm": 256, "bert-base": 64}


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


def medians(geometry: str, segments: int) -> dict[str, float]:
    """Measure the seconds of bare passes, and of extraction through each lens."""
    encoder = random_encoder(geometry)
    corpus = random_segments(segments)
    with tempfile.TemporaryDirectory() as scratch:
        batches = bare_batches(extract_into(Path(scratch), encoder, corpus, stream=True))
        run_numbers = count()

        @torch.inference_mode()
        def bare() -> None:
            for batch in batches:
                encoder.model(**batch, output_attentions=True)

        def extract_once(lens: str) -> None:
            root = Path(scratch) / str(next(run_numbers))
            extract_into(root, encoder, corpus, lens=lens)
            shutil.rmtree(root)

        variants = {lens: partial(extract_once, lens) for lens in ("attention", "norm")}
        return interleaved({"bare": bare, **variants}, REPEATS)


if __name__ == "__main__":
    for geometry, segments in SEGMENTS.items():
        seconds = medians(geometry, segments)
        print(
            f"{geometry}: bare passes take {seconds['bare'] / seconds['attention']:.2f} of the "
            f"time of extraction, the norm lens {seconds['norm'] / seconds['attention']:.2f} times"
        )
