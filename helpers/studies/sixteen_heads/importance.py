"""Which heads matter, and what is left without some of them (Michel et al. 2019).

The importance of a head is how much the loss would change if the head were scaled a little
(equation 5); it gives the orders in which heads are pruned.  Pruned heads are zeros of a mask
``[layer, head]``.  Heads are counted from 0 here, layer by layer; tables name them from 1.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from helpers.model.encoder import Encoder
from helpers.model.sites import sites
from helpers.studies.classifier import Labelled, batches
from helpers.studies.head_mask import head_mask
from helpers.studies.head_removal import side_by_side
from helpers.studies.tasks import Pair

AT_ONCE = 1000  # permutations in memory


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
    shape = len(sites(classifier)), encoder.heads

    def job(own: nn.Module, batch: Labelled) -> Float[np.ndarray, "example layer head"]:
        inputs, labels, _ = batch
        mask = unit_mask(*shape, labels)
        with head_mask(own, mask):
            loss = F.cross_entropy(own(**inputs).float(), labels, reduction="sum")
        return by_example(loss, mask)

    gradients = np.zeros((len(pairs), *shape))
    found = side_by_side(classifier, work, job, label)
    for (_, _, order), part in zip(work, found, strict=True):
        gradients[order] = part
    return gradients


def unit_mask(layers: int, heads: int, examples: Tensor) -> Float[Tensor, "layer example head"]:
    """Return a mask of ones for each of the ``examples`` of a batch, to be differentiated in."""
    return torch.ones(layers, len(examples), heads, device=examples.device, requires_grad=True)


def by_example(
    loss: Float[Tensor, ""], mask: Float[Tensor, "layer example head"]
) -> Float[np.ndarray, "example layer head"]:
    """Return the gradient of a batch's loss in its mask.

    The loss is a sum: an example's gradient must not depend on how many others share its batch.
    """
    (gradient,) = torch.autograd.grad(loss, mask)
    return gradient.transpose(0, 1).double().cpu().numpy()


def importance(
    gradients: Float[np.ndarray, "example layer head"],
) -> Float[np.ndarray, "layer head"]:
    """Return ``E|dL/dxi|``, the mean over examples (equation 5), in nats of loss."""
    return np.abs(gradients).mean(axis=0)


def by_layer_norm(scores: Float[np.ndarray, "layer head"]) -> Float[np.ndarray, "layer head"]:
    """Divide each layer's scores by their l2 norm, as Michel et al. do before they prune (4.1).

    A layer without any score keeps its zeros.
    """
    norms = np.linalg.norm(scores, axis=1, keepdims=True)
    return np.divide(scores, norms, out=np.zeros_like(scores), where=norms > 0)


def pruning_order(*scores: Float[np.ndarray, "layer head"]) -> Int[np.ndarray, " head"]:
    """Return the heads as indices into the flat scores, the least important first.

    Ties of the first scores are broken by the next, and in the end by position.
    """
    return np.lexsort([score.ravel() for score in reversed(scores)])


def masks_along(
    order: Int[np.ndarray, " head"], shape: tuple[int, int], shares: Sequence[float]
) -> Float[np.ndarray, "step layer head"]:
    """Return head masks in which the first ``share`` of ``order`` is zero, for each share (0-1)."""
    masks = np.ones((len(shares), len(order)))
    for mask, share in zip(masks, shares, strict=True):
        mask[order[: round(share * len(order))]] = 0
    return masks.reshape(len(shares), *shape)


def without_each(layers: int, heads: int) -> Float[np.ndarray, "head layer head"]:
    """Return a mask for each head of a model, in which it alone is zero."""
    return (1 - np.eye(layers * heads)).reshape(-1, layers, heads)


def with_one_in_layer(layers: int, heads: int) -> Float[np.ndarray, "head layer head"]:
    """Return a mask for each head of a model, in which it is the only one left in its layer."""
    masks = np.ones((layers, heads, layers, heads))
    for layer in range(layers):
        masks[layer, :, layer] = np.eye(heads)
    return masks.reshape(-1, layers, heads)
