"""Batches of similar length."""

from helpers.model.parallel import length_batches


def test_batches_hold_similar_lengths_within_the_budget():
    lengths = [5, 60, 7, 30, 30, 6, 100]
    batches = length_batches(lengths, budget=64, longest_first=True)
    assert batches == [[6], [1], [3, 4], [2, 5, 0]]
    assert length_batches(lengths, budget=64) == [[0, 5, 2], [3, 4], [1], [6]]
    assert length_batches(lengths, size=3, longest_first=True) == [[6, 1, 3], [4, 2, 5], [0]]
