"""What a classifier says with one head disabled, or one whole layer (Kovaleva et al. 2019, 4.6).

A disabled head attends uniformly over the real tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial

import numpy as np
from jaxtyping import Int

from helpers.attention.ablation import uniform_attention
from helpers.attention.classify import Classifier, batches
from helpers.attention.models import Encoder
from helpers.attention.resume import Change, outputs_under
from helpers.data.tasks import Pair

Predictions = Int[np.ndarray, "layer disabled example"]


def disabled_predictions(
    classifier: Classifier, encoder: Encoder, pairs: Sequence[Pair], *, max_tokens: int
) -> Predictions:
    """Return the label of each of ``pairs`` with each head disabled, and with each layer.

    The second axis holds the heads of the layer and, after them, all of its heads together.
    """
    work = list(batches(encoder, pairs, max_tokens=max_tokens))
    changes = [
        Change(layer, partial(_without, layer=layer, head=head))
        for layer in range(encoder.layers)
        for head in (*range(encoder.heads), None)
    ]
    inputs = [batch for batch, _, _ in work]
    results = outputs_under(classifier, inputs, changes, label="disabling heads")
    found = np.zeros((encoder.layers, encoder.heads + 1, len(pairs)), dtype=np.int64)
    for (_, _, order), outputs in zip(work, results, strict=True):
        labels = outputs[1:].argmax(dim=-1).numpy()
        found[:, :, order] = labels.reshape(encoder.layers, encoder.heads + 1, -1)
    return found


def _without(classifier: Classifier, *, layer: int, head: int | None) -> AbstractContextManager:
    return uniform_attention(classifier.encoder, layer, head)
