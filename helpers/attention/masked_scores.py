"""How well a classifier does under many head masks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import nn
from torch.nn import functional as F

from helpers.attention.ablation import head_mask
from helpers.attention.classify import batches
from helpers.attention.models import Encoder
from helpers.attention.resume import Change, outputs_under
from helpers.data.tasks import Pair


class Scores(NamedTuple):
    """Row 0 is the unchanged classifier, row i + 1 that under mask i."""

    right: Bool[np.ndarray, "row example"]
    loss: Float[np.ndarray, "row example"]  # nats

    def rows(self, indices: Sequence[int]) -> Scores:
        """Return some of the rows, in the order given."""
        return Scores(self.right[indices], self.loss[indices])


def scores_under(
    classifier: nn.Module,
    encoder: Encoder,
    pairs: Sequence[Pair],
    masks: Float[np.ndarray, "mask layer head"],
    *,
    max_tokens: int,
    label: str,
) -> Scores:
    """Return which of ``pairs`` a classifier gets right, and its losses, under each mask."""
    work = list(batches(encoder, pairs, max_tokens=max_tokens))
    changes = [_change(torch.from_numpy(mask).float().to(encoder.device)) for mask in masks]
    found = outputs_under(classifier, [batch for batch, _, _ in work], changes, label=label)
    right = np.zeros((len(masks) + 1, len(pairs)), bool)
    loss = np.zeros(right.shape)
    for (_, labels, order), logits in zip(work, found, strict=True):  # [row, example, label]
        own = labels.cpu().expand(len(logits), -1)
        right[:, order] = (logits.argmax(dim=-1) == own).numpy()
        loss[:, order] = F.cross_entropy(
            logits.double().transpose(1, 2), own, reduction="none"
        ).numpy()
    return Scores(right, loss)


def _change(mask: Float[torch.Tensor, "layer head"]) -> Change:
    changed = (mask != 1).any(dim=1).nonzero()
    first = int(changed[0]) if len(changed) else 0
    return Change(first, partial(head_mask, mask=mask))
