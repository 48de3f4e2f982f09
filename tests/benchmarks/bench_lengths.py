"""Section 3 of one text by its length: maps in blocks of rows, beside whole maps.

    python tests/benchmarks/bench_lengths.py

Each measurement runs in a process of its own, on one thread.  The model has the layers and heads of
SmolLM2 and little width, so that its weights do not hide the growth.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace

import numpy as np
import torch
from common import in_a_process, peak_mebibytes
from transformers import LlamaConfig, LlamaModel

from beyond.long_texts import long_text_measures
from helpers.data.records import Visible, roles, visible_mask
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
    print(time.process_time() - started, peak_mebibytes())


if __name__ == "__main__":
    if len(sys.argv) > 1:
        measure(sys.argv[1], int(sys.argv[2]))
        sys.exit()
    for length in LENGTHS:
        seconds, mebibytes = in_a_process("blocks", length)
        line = f"{length:,} tokens: blocks take {seconds:.1f} s and {mebibytes:,.0f} MiB"
        if length <= LONGEST_WHOLE:
            whole = in_a_process("whole", length)
            line += f", {seconds / whole[0]:.2f} and {mebibytes / whole[1]:.2f} of whole maps"
        print(line, flush=True)
