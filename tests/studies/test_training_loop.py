"""The order of batches, and the learning rate."""

from itertools import chain

import pytest
import torch

from helpers.studies.training import (
    BUCKET,
    shuffled_batches,
    steps_of,
    warmup_and_decay,
)


def rates_of(steps):
    """Return the rates that the optimizer really uses, step by step."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    schedule = warmup_and_decay(optimizer, steps)
    rates = []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return rates


def test_the_learning_rate_rises_over_a_tenth_and_falls_to_nothing():
    rates = rates_of(100)
    assert rates[:3] == [0.1, 0.2, 0.3] and max(rates) == rates[9] == rates[10] == 1
    assert rates[55] == 0.5 and rates[-1] == pytest.approx(1 / 90)
    assert rates_of(1) == [1]


def test_each_epoch_meets_each_example_once_in_another_order():
    lengths = list(range(45))
    batches = list(shuffled_batches(lengths, epochs=2, batch_size=10, seed=0))
    assert len(batches) == steps_of(45, epochs=2, batch_size=10) == 10
    epochs = [sorted(chain.from_iterable(part)) for part in (batches[:5], batches[5:])]
    assert epochs == [lengths] * 2
    assert batches[:5] != batches[5:]
    assert batches == list(shuffled_batches(lengths, epochs=2, batch_size=10, seed=0))
    assert batches != list(shuffled_batches(lengths, epochs=2, batch_size=10, seed=1))


def test_a_batch_holds_texts_of_similar_length():
    lengths = [length % 64 for length in range(2 * BUCKET * 4)]
    spreads = [
        max(lengths[i] for i in batch) - min(lengths[i] for i in batch)
        for batch in shuffled_batches(lengths, epochs=1, batch_size=4, seed=0)
    ]
    assert sum(spreads) / len(spreads) < 8  # 38 where the order is random alone
