"""Jobs side by side, batches of similar length, and memory that goes back to the system."""

import threading
import time

import numpy as np
import pytest
import torch

from helpers.model import parallel
from helpers.model.parallel import length_batches, run_jobs

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def run(*jobs, total=0):
    return run_jobs(jobs, CPU, label="testing", unit="step", total=total)


def test_jobs_run_at_the_same_time_on_one_thread_each_and_come_in_their_order():
    both = threading.Barrier(2, timeout=5)

    def job(number):
        def work(step_done):
            both.wait()
            time.sleep(0.02 * (2 - number))
            step_done()
            return number, torch.get_num_threads()

        return work

    assert run(job(0), job(1), total=2) == [(0, 1), (1, 1)]
    assert torch.get_num_threads() == 2


def test_a_failure_stops_the_others_and_is_what_is_raised():
    begun = threading.Event()

    def failing(_):
        begun.wait(5)
        raise ValueError("mine")

    def endless(step_done):
        begun.set()
        while True:
            time.sleep(0.01)
            step_done()

    with pytest.raises(ValueError, match="mine"):
        run(endless, failing, endless)
    assert torch.get_num_threads() == 2


def test_an_interruption_stops_all(monkeypatch):
    def interrupted(steps, *_, **__):
        yield next(steps)
        raise KeyboardInterrupt

    monkeypatch.setattr(parallel, "progress", interrupted)
    steps = []

    def endless(step_done):
        while True:
            time.sleep(0.01)
            steps.append(1)
            step_done()

    with pytest.raises(KeyboardInterrupt):
        run(endless, endless)
    after = len(steps)
    time.sleep(0.05)
    assert len(steps) == after


# Batches of similar length


def test_batches_hold_similar_lengths_within_the_budget():
    lengths = [5, 60, 7, 30, 30, 6, 100]
    batches = length_batches(lengths, budget=64, longest_first=True)
    assert batches == [[6], [1], [3, 4], [2, 5, 0]]
    assert length_batches(lengths, budget=64) == [[0, 5, 2], [3, 4], [1], [6]]
    assert length_batches(lengths, size=3, longest_first=True) == [[6, 1, 3], [4, 2, 5], [0]]


def test_shuffled_batches_hold_every_example_once_and_stay_small():
    lengths = [3, 50, 4, 200, 5, 50, 3]
    order = np.random.default_rng(0)
    batches = length_batches(
        lengths, range(7), size=3, budget=1 << 15, cost=lambda n: n * n, order=order
    )
    assert sorted(i for batch in batches for i in batch) == list(range(7))
    assert max(map(len, batches)) == 3
    assert [3] in batches  # too long to share a batch
