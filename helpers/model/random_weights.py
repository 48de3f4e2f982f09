"""The control of random weights: the same model, its input embeddings alone kept (section 5)."""

from __future__ import annotations

import torch
from torch import nn
from transformers import PreTrainedModel


def reinitialised(model: PreTrainedModel, *, seed: int) -> PreTrainedModel:
    """Return a copy with the input embeddings kept and all other weights drawn anew (section 5).

    Input embeddings are the tables of words, positions and segments, and their normalisation.
    Tables of relative positions (MPNet, T5, DeBERTa) are a trained part of attention.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        fresh = type(model)(model.config)
    for own, trained in zip(_input_embeddings(fresh), _input_embeddings(model), strict=True):
        own.load_state_dict(trained.state_dict())
    fresh.tie_weights()
    return fresh.to(model.dtype).train(model.training)


def _input_embeddings(model: PreTrainedModel) -> list[nn.Module]:
    """Return the table of words and what stands beside it: one module, or the parts of one."""
    words = model.get_input_embeddings()
    path, holder = next(
        (path, module)
        for path, module in model.named_modules()
        if any(part is words for part in module.children())
    )
    if path.endswith("embeddings"):
        return [holder]
    return [
        part
        for name, part in holder.named_children()
        if isinstance(part, nn.Embedding) or ("norm" in name and "emb" in name)
    ]
