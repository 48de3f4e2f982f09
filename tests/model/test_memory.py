"""Freed memory goes back to the system, where its C library can."""

from helpers.model import parallel


def test_trimming_is_asked_of_glibc(monkeypatch):
    asked = []

    class Library:
        def malloc_trim(self, keep):
            asked.append(keep)

    monkeypatch.setattr(parallel, "_library", Library)
    parallel.trim()
    assert asked == [0]


def test_freed_memory_is_kept_for_the_next_batch(monkeypatch):
    asked = {}

    class Library:
        def mallopt(self, parameter, value):
            asked[parameter] = value

    monkeypatch.setattr(parallel, "_library", Library)
    parallel.reuse()
    assert asked == {-3: 32 << 20, -1: 64 << 20}  # M_MMAP_THRESHOLD, M_TRIM_THRESHOLD


def test_other_systems_are_left_alone(monkeypatch):
    parallel._library.cache_clear()
    monkeypatch.setattr(parallel.sys, "platform", "darwin")
    parallel.trim()
    parallel.reuse()
    assert parallel._library() is None
    parallel._library.cache_clear()
