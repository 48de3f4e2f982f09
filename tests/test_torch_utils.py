"""Calls on several threads: order, threads, failures and interruptions."""

import threading
import time
from operator import call

import pytest
import torch

from helpers import torch_utils
from helpers.torch_utils import raise_if_stopped, thread_map


@pytest.fixture(autouse=True)
def two_threads():
    torch.set_num_threads(2)  # the fixture of all tests sets it back


def endless(begun, steps):
    def work():
        while True:
            time.sleep(0.01)
            steps.append(1)
            begun.set()
            raise_if_stopped()

    return work


def run(*jobs):
    return thread_map(call, jobs, label="testing")


def test_thread_map_calls_at_the_same_time_and_keeps_the_order():
    barrier = threading.Barrier(2, timeout=5)

    def work(number):
        barrier.wait()
        time.sleep(0.02 * (2 - number))
        return number, torch.get_num_threads()

    assert thread_map(work, range(2), label="testing") == [(0, 1), (1, 1)]
    assert torch.get_num_threads() == 2


def test_thread_map_of_nothing_is_empty():
    assert run() == []


def test_thread_map_raises_a_failure_and_stops_all_calls():
    begun = threading.Event()

    def failing():
        begun.wait(5)
        raise ValueError("failure")

    with pytest.raises(ValueError, match="failure"):
        run(endless(begun, []), failing, endless(begun, []))
    assert torch.get_num_threads() == 2


def test_thread_map_stops_all_calls_when_interrupted(monkeypatch):
    steps = []
    begun = threading.Event()

    def interrupted(_):
        begun.wait(5)
        raise KeyboardInterrupt

    monkeypatch.setattr(torch_utils, "as_completed", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(endless(begun, steps), endless(begun, steps))
    after = len(steps)
    time.sleep(0.05)
    assert len(steps) == after


def test_raise_if_stopped_outside_of_a_map_does_nothing():
    raise_if_stopped()
