"""Section 3 of one text by its length: maps in blocks of rows, beside whole maps.

    python tests/benchmarks/bench_lengths.py [--json PATH] [--lengths N ...]

Each measurement runs in a process of its own, on one thread.  The model has the layers and heads of
SmolLM2 and little width, so that its weights do not hide the growth.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import torch
from common import options, report
from transformers import LlamaConfig, LlamaModel

from beyond.long_texts import long_text_measures
from helpers.data.records import roles
from helpers.data.visible import Visible, visible_mask
from helpers.metrics.surface import section_3
from helpers.model.forward import forward, model_inputs
from helpers.model.loading import Model, load_model

LENGTHS = (128, 512, 1024, 2048, 4096)
LONGEST_WHOLE = 1024  # whole maps of 2,048 tokens take 4.5 GB, several times over
LAYERS = 30
HEADS = 9
CAUSAL = Visible(causal=True, window=None)
NO_SPECIAL = {"cls": None, "sep": None}


def narrow_decoder() -> Model:
    """Return a random decoder with the layers and heads of SmolLM2, and the default's tokenizer."""
    default = load_model(device="cpu")
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(default.tokenizer),
        hidden_size=16 * HEADS,
        intermediate_size=32 * HEADS,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=3,
        max_position_embeddings=max(LENGTHS),
        attn_implementation="eager",
    )
    model = LlamaModel(config).eval().requires_grad_(False)
    encoder = replace(default, model=model, name="narrow", heads=HEADS)
    return replace(
        encoder,
        layer_numbers=list(range(1, LAYERS + 1)),
        takes_token_types=False,
        visible=[CAUSAL._asdict()] * LAYERS,
    )


def measure(way: str, length: int) -> None:
    """Measure section 3 of a random text once; print processor seconds and peak MiB."""
    torch.set_num_threads(1)
    encoder = narrow_decoder()
    ids = np.random.default_rng(0).integers(1000, 20000, size=length).tolist()
    tokens = encoder.tokenizer.convert_ids_to_tokens(ids)
    record = {"tokens": tokens, "second": length}
    started = time.process_time()
    if way == "blocks":
        long_text_measures(encoder, tokens, model_inputs(encoder, record))
    else:
        maps, _ = forward(encoder, [model_inputs(encoder, record)])
        visible = visible_mask(CAUSAL, length)[None]
        for attention in maps:
            section_3(attention.numpy(), roles(tokens, NO_SPECIAL), visible)
    seconds = time.process_time() - started
    print(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)


def main() -> None:
    parser = options(__doc__, repeats=1)
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    parser.add_argument("--way", choices=("blocks", "whole maps"), help="measure once")
    arguments = parser.parse_args()
    if arguments.way:
        measure(arguments.way, arguments.lengths[0])
        return
    results = []
    print(f"{'tokens':>8} {'maps':12} {'seconds':>8} {'MiB':>8}")
    for length in arguments.lengths:
        for way in ("blocks", "whole maps"):
            if way == "blocks" or length <= LONGEST_WHOLE:
                command = [sys.executable, __file__, "--way", way, "--lengths", str(length)]
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                seconds, mebibytes = done.stdout.split()[-2:]
                row = {"tokens": length, "way": way, "cpu_seconds": float(seconds)}
                results.append(row | {"peak_mib": int(mebibytes)})
                print(f"{length:8,} {way:12} {float(seconds):8.1f} {mebibytes:>8}", flush=True)
    report({"lengths": results}, arguments.json)


if __name__ == "__main__":
    main()
