"""Parallel jobs: order, threads, failures and interruptions."""

import threading
import time

import pytest
import torch

from helpers.studies.common import jobs as module
from helpers.studies.common.jobs import run_jobs

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def two_threads():
    torch.set_num_threads(2)  # the fixture of all tests sets it back


def endless(begun, steps):
    def work(step_done):
        while True:
            time.sleep(0.01)
            steps.append(1)
            begun.set()
            step_done()

    return work


def run(*jobs, total=0):
    return run_jobs(jobs, CPU, label="testing", unit="step", total=total)


def test_run_jobs_runs_at_the_same_time_and_keeps_the_order():
    barrier = threading.Barrier(2, timeout=5)

    def job(number):
        def work(step_done):
            barrier.wait()
            time.sleep(0.02 * (2 - number))
            step_done()
            return number, torch.get_num_threads()

        return work

    assert run(job(0), job(1), total=2) == [(0, 1), (1, 1)]
    assert torch.get_num_threads() == 2


def test_run_jobs_raises_a_failure_and_stops_all_jobs():
    begun = threading.Event()

    def failing(_):
        begun.wait(5)
        raise ValueError("failure")

    with pytest.raises(ValueError, match="failure"):
        run(endless(begun, []), failing, endless(begun, []))
    assert torch.get_num_threads() == 2


def test_run_jobs_stops_all_jobs_when_interrupted(monkeypatch):
    steps = []
    begun = threading.Event()

    def interrupted(_):
        begun.wait(5)
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "as_completed", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(endless(begun, steps), endless(begun, steps))
    after = len(steps)
    time.sleep(0.05)
    assert len(steps) == after
