"""Tiny causal language models with their own objective."""

from dataclasses import replace

import tiny_models
import torch

from beyond.papers.common.head_edges import NEXT_TOKEN


def as_decoder(base, model, layers, heads):
    """Make an encoder of a causal language model, with the tokenizer of another one."""
    return replace(
        base,
        model=model,
        key={**base.key, "name": type(model).__name__},
        objective=NEXT_TOKEN,
        layer_numbers=list(range(1, layers + 1)),
        heads=heads,
        visible=[{"causal": True, "window": None}] * layers,
    )


def random_decoder(tiny_encoder, family):
    """Make a random model, "gpt2" or "llama": their tokenizers are the same."""
    torch.manual_seed(0)
    model, _ = getattr(tiny_models, family)()
    model = tiny_models.spread(model, factor=6).eval().requires_grad_(False)
    model.set_attn_implementation("eager")
    return as_decoder(tiny_encoder("gpt2"), model, layers=3, heads=4)
