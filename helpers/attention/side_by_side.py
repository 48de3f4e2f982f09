"""The same work on many batches of one model, which the work may put hooks on."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import torch
from torch import nn

from helpers.attention.jobs import StepDone, run_jobs

Item = TypeVar("Item")
Result = TypeVar("Result")


def side_by_side(
    model: nn.Module, items: Sequence[Item], job: Callable[[nn.Module, Item], Result], label: str
) -> list[Result]:
    """Return ``job(model, item)`` for each item, in order, behind a bar called ``label``.

    Each job computes on one thread, with a copy of the model that is its own for that time, so
    that results do not depend on the number of threads.
    """
    device = next(model.parameters()).device
    threads = min(torch.get_num_threads(), len(items)) if device.type == "cpu" else 1
    free = [model, *(copy.deepcopy(model) for _ in range(threads - 1))]

    def with_own_copy(item: Item, step_done: StepDone) -> Result:
        own = free.pop()
        try:
            result = job(own, item)
        finally:
            free.append(own)
        step_done()
        return result

    jobs = [partial(with_own_copy, item) for item in items]
    return run_jobs(jobs, device, label=label, unit="batch", total=len(items))
