"""Calls on several threads: order, threads, failures and interruptions."""

import threading
import time

import pytest
import torch

from beyond.papers.common import threads
from beyond.papers.common.threads import thread_map

OPTIONS = {"label": "testing", "threads": 2}


@pytest.fixture(autouse=True)
def two_threads():
    torch.set_num_threads(2)  # the fixture of all tests sets it back


def test_thread_map_calls_at_the_same_time_and_keeps_the_order():
    barrier = threading.Barrier(2, timeout=5)

    def work(number):
        barrier.wait()
        time.sleep(0.02 * (2 - number))
        return number, torch.get_num_threads()

    assert thread_map(work, range(2), **OPTIONS) == [(0, 1), (1, 1)]
    assert thread_map(work, [], **OPTIONS) == [] and torch.get_num_threads() == 2


def test_thread_map_begins_no_further_call_after_ctrl_c(monkeypatch):
    begun = []

    def work(number):
        begun.append(number)
        time.sleep(0.05)

    def interrupted(results, *_, **__):
        next(results)
        raise KeyboardInterrupt

    monkeypatch.setattr(threads, "progress", interrupted)
    with pytest.raises(KeyboardInterrupt):
        thread_map(work, range(50), **OPTIONS)
    n_calls = len(begun)
    assert n_calls < 50 and torch.get_num_threads() == 2
    time.sleep(0.1)
    assert len(begun) == n_calls
