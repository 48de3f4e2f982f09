"""Jobs side by side: results in order, one thread each, and an end to all when one fails."""

import threading
import time

import pytest
import torch

from helpers.model import parallel
from helpers.model.parallel import run_jobs

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def run(*jobs, total=0):
    return run_jobs(jobs, CPU, label="testing", unit="step", total=total)


def test_results_come_in_the_order_of_the_jobs():
    def job(number):
        def work(step_done):
            time.sleep(0.02 * (3 - number))
            step_done()
            return number

        return work

    assert run(*(job(number) for number in range(3)), total=3) == [0, 1, 2]


def test_jobs_run_at_the_same_time_on_one_thread_each():
    both = threading.Barrier(2, timeout=5)

    def work(_):
        both.wait()
        return torch.get_num_threads()

    assert run(work, work) == [1, 1]
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
