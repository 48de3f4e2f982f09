"""How much the loss would change if a head were scaled a little: Michel et al. (2019), eq. 5."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import nn
from torch.nn import functional as F

from helpers.attention.ablation import head_mask, head_modules
from helpers.attention.classify import Labelled, batches
from helpers.attention.models import Encoder
from helpers.attention.side_by_side import side_by_side
from helpers.data.tasks import Pair


def mask_gradients(
    classifier: nn.Module,
    encoder: Encoder,
    pairs: Sequence[Pair],
    *,
    max_tokens: int,
    label: str = "importance of heads",
) -> Float[np.ndarray, "example layer head"]:
    """Return ``dL/dxi`` at a mask of ones, for each of ``pairs`` by itself.

    L is the cross-entropy of the example's label, in nats.  ``E|dL/dxi|`` is the mean of the
    absolute values over examples; an example alone, because over a batch gradients of opposite
    signs would cancel.

    Raises:
        InputError: ``classifier`` has other layers or heads than ``encoder``.
    """
    work = list(batches(encoder, pairs, max_tokens=max_tokens))
    gradients = np.zeros((len(pairs), len(head_modules(classifier)), encoder.heads))

    def job(own: nn.Module, batch: Labelled) -> Float[np.ndarray, "example layer head"]:
        return _gradients(own, batch, gradients.shape[1:])

    found = side_by_side(classifier, work, job, label)
    for (_, _, order), part in zip(work, found, strict=True):
        gradients[order] = part
    return gradients


def _gradients(
    classifier: nn.Module, batch: Labelled, shape: tuple[int, int]
) -> Float[np.ndarray, "example layer head"]:
    inputs, labels, _ = batch
    layers, heads = shape
    mask = torch.ones(layers, len(labels), heads, device=labels.device, requires_grad=True)
    with head_mask(classifier, mask):
        # Summed: an example's gradient must not depend on how many others share its batch.
        loss = F.cross_entropy(classifier(**inputs).float(), labels, reduction="sum")
    (gradient,) = torch.autograd.grad(loss, mask)  # [layer, example, head]
    return gradient.transpose(0, 1).double().cpu().numpy()
