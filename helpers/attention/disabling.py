"""What a classifier says with one head disabled, or one whole layer (Kovaleva et al. 2019, 4.6).

A disabled head attends uniformly over the real tokens.  Disabling in a layer changes nothing
below it, so a batch goes through the lower layers once, and their outputs serve every pass that
starts above them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import nn

from helpers.attention.ablation import uniform_attention
from helpers.attention.classify import Classifier, Labelled, batches
from helpers.attention.models import Encoder
from helpers.attention.projections import sites
from helpers.attention.side_by_side import side_by_side
from helpers.data.tasks import Pair

Predictions = Int[np.ndarray, "layer disabled example"]


def disabled_predictions(
    classifier: Classifier, encoder: Encoder, pairs: Sequence[Pair], *, max_tokens: int
) -> Predictions:
    """Return the label of each of ``pairs`` with each head disabled, and with each layer.

    The second axis holds the heads of the layer and, after them, all of its heads together.
    """
    found = np.zeros((encoder.layers, encoder.heads + 1, len(pairs)), dtype=np.int64)
    work = list(batches(encoder, pairs, max_tokens=max_tokens))
    job = partial(_batch_predictions, layers=encoder.layers, heads=encoder.heads)
    results = side_by_side(classifier, work, job, "disabling heads")
    for (_, _, order), predicted in zip(work, results, strict=True):
        found[:, :, order] = predicted
    return found


@torch.inference_mode()
def _batch_predictions(
    classifier: Classifier, item: Labelled, *, layers: int, heads: int
) -> Predictions:
    batch, _, order = item
    model = classifier.encoder
    found = np.zeros((layers, heads + 1, len(order)), dtype=np.int64)
    modules = layer_modules(model)
    with recorded(modules) as outputs:
        classifier(**batch)
    for layer in range(layers):
        with replayed(modules[:layer], outputs):
            for place, head in enumerate([*range(heads), None]):
                with uniform_attention(model, layer, head):
                    found[layer, place] = classifier(**batch).argmax(dim=-1).cpu().numpy()
    return found


def layer_modules(model: nn.Module) -> list[nn.Module]:
    """Return the modules of a model's layers, in order.

    None, and so an empty list, where they cannot be told apart: a model that uses one module
    for all layers (ALBERT) is computed from the start every time.
    """
    attentions = [site.attention for site in sites(model)]
    for module in model.modules():
        if isinstance(module, nn.ModuleList) and len(module) == len(attentions) > 1:
            inside = [set(layer.modules()) for layer in module]
            if all(a in own for a, own in zip(attentions, inside, strict=True)):
                return list(module)
    return []


@contextmanager
def recorded(modules: Sequence[nn.Module]) -> Iterator[dict[nn.Module, Any]]:
    """Keep what each module returns inside the context."""
    outputs: dict[nn.Module, Any] = {}
    with ExitStack() as hooks:
        for module in modules:
            hook = module.register_forward_hook(lambda own, _, out: outputs.update({own: out}))
            hooks.callback(hook.remove)
        yield outputs


@contextmanager
def replayed(modules: Sequence[nn.Module], outputs: dict[nn.Module, Any]) -> Iterator[None]:
    """Let modules return what was kept of them, without computing, inside the context."""
    for module in modules:
        module.forward = partial(_kept, outputs[module])
    try:
        yield
    finally:
        for module in modules:
            del module.forward


def _kept(output: Any, *_: Any, **__: Any) -> Any:
    return output
