"""Freed memory goes back to the system, where its C library can."""

from helpers.attention import memory


def test_trimming_is_asked_of_glibc(monkeypatch):
    asked = []

    class Library:
        def malloc_trim(self, keep):
            asked.append(keep)

    monkeypatch.setattr(memory, "_library", Library)
    memory.trim()
    assert asked == [0]


def test_freed_memory_is_kept_for_the_next_batch(monkeypatch):
    asked = {}

    class Library:
        def mallopt(self, parameter, value):
            asked[parameter] = value

    monkeypatch.setattr(memory, "_library", Library)
    memory.reuse()
    assert asked == {-3: 32 << 20, -1: 64 << 20}  # M_MMAP_THRESHOLD, M_TRIM_THRESHOLD


def test_other_systems_are_left_alone(monkeypatch):
    memory._library.cache_clear()
    monkeypatch.setattr(memory.sys, "platform", "darwin")
    memory.trim()
    memory.reuse()
    assert memory._library() is None
    memory._library.cache_clear()
