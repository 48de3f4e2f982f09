"""Attention that is changed where any script can change it: in torch's softmax."""

from contextlib import contextmanager
from itertools import count
from unittest import mock

from torch.nn import functional as F


@contextmanager
def changed_softmax(change, layers=3):
    """Let each softmax over scores return ``change(layer, scores, weights)``; layers are from 0.

    This is a reference for heads and edges taken out that uses no code of ours.
    """
    original = F.softmax
    calls = count()

    def softmax(scores, *args, **kwargs):
        weights = original(scores, *args, **kwargs)
        if scores.ndim != 4:
            return weights
        return change(next(calls) % layers, scores, weights.clone())

    with mock.patch.object(F, "softmax", softmax):
        yield
