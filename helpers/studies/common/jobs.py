"""Run jobs of many steps in parallel: trainings, sweeps, batches."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, as_completed
from typing import TypeVar

import torch

from helpers.progress import progress
from helpers.torch_utils import pool

Result = TypeVar("Result")
StepDone = Callable[[], None]


def run_jobs(
    jobs: Sequence[Callable[[StepDone], Result]],
    device: torch.device,
    *,
    label: str,
    unit: str,
    total: int,
) -> list[Result]:
    """Run jobs in parallel and collect their results in order.

    On a CPU as many jobs run at a time as torch has threads, on other devices one.

    Parameters
    ----------
    jobs
        Each is called with a function that it must call after each of its steps.  That call stops
        the job if another job has failed, or after Ctrl-C.
    device
        Where the jobs compute.
    label, unit
        The name of the progress bar, and of a step.
    total
        The number of steps of all jobs together.
    """
    stopping = threading.Event()

    def step_done() -> None:
        with bar.get_lock():
            bar.update()
        if stopping.is_set():
            raise CancelledError

    threads = torch.get_num_threads() if device.type == "cpu" else 1
    with progress(None, label, unit=unit, total=total) as bar, pool(threads) as workers:
        futures = [workers.submit(job, step_done) for job in jobs]
        try:
            for future in as_completed(futures):
                future.result()
        finally:
            stopping.set()
            workers.shutdown(cancel_futures=True)
    return [future.result() for future in futures]
