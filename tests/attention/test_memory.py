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


def test_other_systems_are_left_alone(monkeypatch):
    memory._library.cache_clear()
    monkeypatch.setattr(memory.sys, "platform", "darwin")
    memory.trim()
    assert memory._library() is None
    memory._library.cache_clear()
