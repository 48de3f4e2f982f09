"""Tiny causal language models with their own objective, random or with planted edges."""

from dataclasses import replace

import tiny_models
import torch
import transformers as hf

from beyond.papers.common.head_edges import NEXT_TOKEN

SUBJECT_IDS = (10, 11)  # singular, plural
FORM_IDS = (20, 21)
PLANTED_WIDTH = 16


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


def planted_decoder(tiny_encoder):
    """Make a model of one layer in which the edge to the subject matters in the first head only.

    Both heads attend to the subject alone.  The first one copies its number into the logits of the
    two forms of the verb; the second one copies nothing.
    """
    base = tiny_encoder("gpt2")
    config = hf.GPT2Config(
        vocab_size=len(base.tokenizer), n_embd=PLANTED_WIDTH, n_layer=1, n_head=2, n_positions=32
    )
    model = hf.GPT2LMHeadModel(config).eval().requires_grad_(False)
    model.set_attn_implementation("eager")
    half = PLANTED_WIDTH // 2  # the width of a head
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.fill_(1.0 if "ln_" in name and name.endswith("weight") else 0.0)
        words = model.transformer.wte.weight
        words[:, -2:] = torch.tensor([8.0, -8.0])  # the last normalisation sees little else
        for number, (subject, form) in enumerate(zip(SUBJECT_IDS, FORM_IDS, strict=True)):
            words[subject, 0] = 3.0  # that it is a subject
            words[subject, 1] = -3.0
            words[subject, 2 + number] = 3.0  # its number
            words[form, 6 + number] = 3.0
        attention = model.transformer.h[0].attn
        for head in range(2):
            attention.c_attn.bias[head * half] = 20.0  # queries are constant
            attention.c_attn.weight[0, PLANTED_WIDTH + head * half] = 1.0  # keys: is it a subject?
        for number in range(2):
            attention.c_attn.weight[2 + number, 2 * PLANTED_WIDTH + number] = 1.0  # values
            attention.c_proj.weight[number, 6 + number] = 1.0
    return as_decoder(base, model, layers=1, heads=2)
