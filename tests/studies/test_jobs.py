"""Jobs side by side."""

import threading
import time

import pytest
import torch

from helpers.studies import jobs as module
from helpers.studies.jobs import run_jobs

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def two_threads():
    torch.set_num_threads(2)  # put back by the fixture of all tests


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

    with pytest.raises(ValueError, match="mine"):
        run(endless(begun, []), failing, endless(begun, []))
    assert torch.get_num_threads() == 2


def test_an_interruption_stops_all(monkeypatch):
    steps, begun = [], threading.Event()

    def interrupted(_):
        begun.wait(5)
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "as_completed", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(endless(begun, steps), endless(begun, steps))
    after = len(steps)
    time.sleep(0.05)
    assert len(steps) == after
