"""What a fine-tuned classifier gets right with heads changed or taken out, and what can go.

*Removable* is what an equivalence test says: two one-sided tests at 5%, over the test examples,
that the accuracy changes by less than `MARGIN`.  A change that is not significant says no such
thing: with few examples none is.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch.nn import functional as F

from helpers.analysis.statistics import equivalence, mcnemar, paired_interval
from helpers.studies.activation_cache import Change, outputs_under
from helpers.studies.classifier import batches
from helpers.studies.fine_tune import FineTuned
from helpers.studies.head_mask import head_mask
from helpers.studies.tasks import Pair

MARGIN = 2.0  # points of accuracy: less is no change
LEVEL = 0.05
LOOKS = (300, 800)  # of so many examples, before that of all: most changes do hardly anything


class Scores(NamedTuple):
    """Row 0 is the unchanged classifier, row i + 1 that under change i."""

    right: Bool[np.ndarray, "row example"]
    loss: Float[np.ndarray, "row example"]  # nats


def masking(mask: Float[np.ndarray, "layer head"]) -> Change:
    """Return the change that scales the output of each head by its entry of ``mask``."""
    first = int((mask != 1).any(axis=1).argmax())
    return Change(first, partial(head_mask, mask=torch.from_numpy(mask).float()))


def scores_under(
    run: FineTuned, pairs: Sequence[Pair], changes: Sequence[Change], label: str
) -> Scores:
    """Return which of ``pairs`` a classifier gets right, and its losses, under each change."""
    work = list(batches(run.encoder, pairs, max_tokens=run.recipe.max_tokens))
    inputs, label = [batch for batch, _, _ in work], f"{label} ({run.task.name})"
    found = outputs_under(run.classifier, inputs, changes, label=label)
    right = np.zeros((len(changes) + 1, len(pairs)), bool)
    loss = np.zeros(right.shape)
    for (_, labels, order), logits in zip(work, found, strict=True):  # [row, example, label]
        own = labels.cpu().expand(len(logits), -1)
        right[:, order] = (logits.argmax(dim=-1) == own).numpy()
        losses = F.cross_entropy(logits.double().transpose(1, 2), own, reduction="none")
        loss[:, order] = losses.numpy()
    return Scores(right, loss)


def changes_of(scores: Scores, *, looks: int = 1) -> pd.DataFrame:
    """Return a row for each change.

    Columns: examples, accuracy (percent), change (of it, in points) with its 95% interval (ci_low,
    ci_high), removable (see `compare_accuracies`), loss_change (nats) and p_value (`mcnemar`).
    """
    accuracy, loss = 100 * scores.right.mean(axis=1), scores.loss.mean(axis=1)
    low, high, removable = compare_accuracies(scores.right[0], scores.right[1:], looks=looks)
    return pd.DataFrame(
        {
            "examples": scores.right.shape[1],
            "accuracy": accuracy[1:],
            "change": accuracy[1:] - accuracy[0],
            "ci_low": low,
            "ci_high": high,
            "removable": removable,
            "loss_change": loss[1:] - loss[0],
            "p_value": mcnemar(scores.right[0], scores.right[1:]),
        }
    )


def in_looks(
    run: FineTuned, pairs: Sequence[Pair], changes: Sequence[Change], label: str
) -> tuple[pd.DataFrame, Scores]:
    """Return `changes_of`, with all of ``pairs`` for every change that needs them.

    What is shown to be removable on the first `LOOKS` of them is settled; everything else is
    scored on all.  The looks share the 5% between them, so that all together err no more often
    than one would.  Beside it, the scores of the first look: the same examples for every change.
    """
    ends = [*(look for look in LOOKS if look < len(pairs)), len(pairs)]
    open_changes, start = np.arange(len(changes)), 0
    found, first, settled = None, None, []
    for end in ends:
        own = [changes[index] for index in open_changes]
        more = scores_under(run, pairs[start:end], own, f"{label}, {end} examples")
        if found is not None:
            more = Scores(*(np.hstack(both) for both in zip(found, more, strict=True)))
        first = first or more
        table = changes_of(more, looks=len(ends)).set_index(open_changes)
        done = table["removable"].to_numpy() | (end == len(pairs))
        settled.append(table[done])
        if done.all():
            break
        found = Scores(*(part[[True, *~done]] for part in more))
        open_changes, start = open_changes[~done], end
    return pd.concat(settled).sort_index(), first


def compare_accuracies(
    before: Bool[np.ndarray, " example"], after: Bool[np.ndarray, "change example"], looks: int = 1
) -> tuple[Float[np.ndarray, " change"], Float[np.ndarray, " change"], Bool[np.ndarray, " change"]]:
    """Return by how much accuracy changes: a 95% interval (points), and whether by no more than
    `MARGIN` (see the module).  Fewer than 150 examples never show that, not even unchanged.

    Of several ``looks`` each has its share of the 5%.
    """
    changed = after.T.astype(float)  # [example, change]
    whole = np.repeat(before[:, None], len(after), axis=1).astype(float)
    each = np.ones_like(changed)
    pair = (changed, each), (whole, each)
    low, high = (100 * bound for bound in paired_interval(*pair))
    # Of n examples none has changed: up to 3 in n still may (the rule of three, at 5%).
    enough = -100 * np.log(LEVEL / looks) / len(changed) <= MARGIN
    error = LEVEL / looks
    return low, high, enough & equivalence(*pair, margin=MARGIN / 100, error=error)
