"""Calls on several threads: order, threads, failures and interruptions."""

import threading
import time
from operator import call

import pytest
import torch

from helpers import torch_utils
from helpers.torch_utils import pool, thread_map


@pytest.fixture(autouse=True)
def two_threads():
    torch.set_num_threads(2)  # the fixture of all tests sets it back


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


def test_thread_map_raises_a_failure_and_begins_no_further_call():
    begun = []

    def failing():
        raise ValueError("failure")

    def slow():
        begun.append(1)
        time.sleep(0.05)

    with pytest.raises(ValueError, match="failure"):
        run(failing, *[slow] * 50)
    assert len(begun) < 50
    assert torch.get_num_threads() == 2


def test_thread_map_begins_no_further_call_after_ctrl_c(monkeypatch):
    begun = []

    def slow():
        begun.append(1)
        time.sleep(0.05)

    def interrupted(results, *_, **__):
        next(results)
        raise KeyboardInterrupt

    monkeypatch.setattr(torch_utils, "progress", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(*[slow] * 50)
    n_calls = len(begun)
    assert n_calls < 50
    time.sleep(0.1)
    assert len(begun) == n_calls


def test_pool_gives_torch_the_threads_that_it_had():
    with pool(1) as workers:
        assert workers.submit(torch.get_num_threads).result() == 1
    assert torch.get_num_threads() == 2
    with pool(1) as workers:
        workers.submit(torch.get_num_threads).result()
    new_thread = threading.Thread(target=lambda: counts.append(torch.get_num_threads()))
    counts = []
    new_thread.start()
    new_thread.join()
    assert counts == [2]
