"""The bilinear probe on hidden states: by hand, its gradient, and a planted relation."""

import numpy as np
import pytest
import torch
from tolerances import float32_error
from toy_corpora import random_heads

from helpers.metrics.reference import UAS_WITHOUT_PUNCTUATION
from helpers.probes import bilinear, training
from helpers.probes.bilinear import (
    BilinearProbe,
    choose_layer_and_rank,
    fit_bilinear,
    fit_bilinear_layers,
)
from helpers.probes.data import Parse, ProbeData, prepare
from helpers.probes.training import (
    Schedule,
    candidate_scores,
    loss,
    predicted_heads,
    scores_of,
    train,
    validation_slice,
)
from helpers.store.store import Example

WIDTH = 16


def hand_made(states, heads):
    """Make the data of one sentence, whose states are neither centred nor scaled."""
    parse = Parse(np.array(heads), np.zeros(len(heads), bool), "a", np.arange(len(heads)))
    return ProbeData(
        layers=1,
        heads=1,
        parses=[parse],
        splits={},
        blocks={},
        states={(0, 0): np.array(states, np.float32)},
        scales=np.ones(1),
        vectors=torch.zeros(len(heads), 0),
    )


def with_parameters(probe, **values):
    """Set parameters of a probe."""
    for name, value in values.items():
        getattr(probe, name).data = torch.tensor(value)
    return probe


def test_scores_and_loss_of_three_words_by_hand():
    data = hand_made([[1, 0], [0, 2], [3, 1]], [2, 0, 2])
    probe = with_parameters(
        BilinearProbe(0, 2, 1, 0),
        dependent=[[1.0, 2.0, 0.5]],  # U = (1, 2), a = 0.5: 1.5, 4.5 and 5.5
        candidate=[[1.0, -1.0, 1.0]],  # V = (1, -1), b = 1: 2, -1 and 3
        root=[2.0],
    )
    logits = candidate_scores(probe, data, [0])[0].detach()
    minus = -np.inf
    expected = [[3, minus, -1.5, 4.5], [9, 9, minus, 13.5], [11, 11, -5.5, minus]]
    np.testing.assert_allclose(logits, expected, rtol=0, atol=float32_error(13.5))
    assert predicted_heads(probe, data, [0])[0].tolist() == [3, 3, 0]  # of equals, the first
    by_word = [
        np.log(np.exp(3) + np.exp(-1.5) + np.exp(4.5)) + 1.5,
        np.log(2 * np.exp(9) + np.exp(13.5)) - 9,
        np.log(2 * np.exp(11) + np.exp(-5.5)) + 5.5,
    ]
    error = float32_error(13.5)
    assert loss(probe, data, [0]).item() == pytest.approx(np.mean(by_word), abs=error)


def test_gradient_equals_finite_differences(monkeypatch):
    states = torch.from_numpy(np.random.default_rng(0).standard_normal((1, 1, 4, 3)))
    monkeypatch.setattr(ProbeData, "hidden", lambda data, indices, layers: states)
    data = hand_made(states[0, 0].numpy(), [2, 0, 2, 1])
    probe = BilinearProbe(0, 3, 2, 0).double()
    loss(probe, data, [0]).backward()
    step = 1e-4
    for parameter in probe.parameters():
        slopes = torch.zeros_like(parameter).flatten()
        flat = parameter.data.view(-1)
        for position in range(len(flat)):
            initial = flat[position].item()
            around = []
            for moved in (initial + step, initial - step):
                flat[position] = moved
                around.append(loss(probe, data, [0]).item())
            flat[position] = initial
            slopes[position] = (around[0] - around[1]) / (2 * step)
        torch.testing.assert_close(parameter.grad.flatten(), slopes, rtol=1e-6, atol=1e-8)


def test_probe_of_rank_16_has_12_336_parameters():
    """As many as the probe of the referee, at MiniLM's width."""
    probe = BilinearProbe(3, 384, 16, 0)
    assert sum(parameter.numel() for parameter in probe.parameters()) == 12_336


def examples(count=120, layers=3, planted=1):
    """Make states of which one layer has a bilinear relation; the other layers are noise.

    A word has a random key, and a rotation of the key of its head.  Both are rotated together.
    """
    rng = np.random.default_rng(0)
    half = WIDTH // 2
    key_rotation = np.linalg.qr(rng.standard_normal((half, half)))[0]
    rotation = np.linalg.qr(rng.standard_normal((WIDTH, WIDTH)))[0]
    for index in range(count):
        n = int(rng.integers(4, 9))
        heads = random_heads(rng, n)
        keys = rng.standard_normal((n + 1, half))  # the first is that of ROOT
        keys[0] = 2
        hidden = rng.standard_normal((layers, n + 2, WIDTH))
        hidden[planted, 1:-1] = np.hstack([keys[1:], keys[heads] @ key_rotation]) @ rotation
        record = {
            "words": ["w"] * n,
            "heads": heads.tolist(),
            "relations": ["dep"] * n,
            "split": "dev" if index % 4 == 0 else "train",
            "source": f"article {index % 12}",
        }
        maps = np.full((layers - 1, 1, n + 2, n + 2), 1 / (n + 2), np.float16)
        yield Example(index, maps, record, hidden=hidden.astype(np.float16))


def test_probe_recovers_a_planted_relation_and_its_layer(monkeypatch):
    schedule = Schedule(epochs=20, learning_rate=0.02, batch_size=10, min_updates=1)
    monkeypatch.setattr(bilinear, "SCHEDULE", schedule)
    monkeypatch.setattr(bilinear, "L2", 1e-3)
    data = prepare(examples())
    table = choose_layer_and_rank(data, [8, 4])
    assert table["layer"].tolist() == [0, 1, 2, 1]
    assert table["rank"].tolist() == [8, 8, 8, 4]
    (chosen,) = table.query("chosen").itertuples()
    assert (chosen.layer, chosen.rank) == (1, 8)
    assert chosen.validation_uas > table["validation_uas"][0] + 30
    assert chosen.validation_uas_low <= chosen.validation_uas <= chosen.validation_uas_high
    probe = fit_bilinear(data, 1, layer=1, rank=8)
    counts = scores_of(probe, data, data.splits["dev"])
    assert counts[UAS_WITHOUT_PUNCTUATION].by_seed[0] > 80


@pytest.mark.parametrize("profile", ["quick", "usual"])
def test_least_number_of_updates_follows_the_profile_of_the_call(profile, monkeypatch):
    monkeypatch.setenv("ATTENTION_PROFILE", profile)
    monkeypatch.setattr(training, "MIN_UPDATES", 3)
    monkeypatch.setattr(training, "QUICK_MIN_UPDATES", 2)
    updates = []

    def count_updates(*arguments):
        updates.append(len(updates))
        return loss(*arguments)

    data = prepare(examples(8))
    sentences = data.splits["train"][:1]
    schedule = Schedule(epochs=1, learning_rate=0.01, batch_size=10)
    probe = BilinearProbe(0, WIDTH, 4, 0)
    train(probe, data, sentences, count_updates, seed=0, schedule=schedule)
    assert len(updates) == (2 if profile == "quick" else 3)


def test_probes_trained_together_equal_those_trained_alone(monkeypatch):
    """The reference trains one probe in a loop, with the loss of a single one."""
    schedule = Schedule(epochs=4, learning_rate=0.01, batch_size=10, min_updates=1)
    monkeypatch.setattr(bilinear, "SCHEDULE", schedule)
    data = prepare(examples(60))
    training, _ = validation_slice(data.splits["train"])
    together = fit_bilinear_layers(data, 1, layers=range(3), rank=4)
    for layer, probe in enumerate(together):
        alone = trained_alone(data, training, layer, schedule)
        for name, parameter in alone.named_parameters():
            torch.testing.assert_close(probe.get_parameter(name), parameter, rtol=1e-4, atol=1e-4)


def trained_alone(data, training, layer, schedule):
    """Train the probe of one layer and seed 1 with torch's Adam."""
    probe = BilinearProbe(layer, WIDTH, 4, 1)
    optimizer = torch.optim.Adam(probe.parameters())
    order = np.random.default_rng(1)
    for epoch in range(schedule.epochs):
        (group,) = optimizer.param_groups
        group["lr"] = schedule.learning_rate * (1 + np.cos(np.pi * epoch / schedule.epochs)) / 2
        batches = data.groups(order.permutation(training).tolist(), schedule.batch_size)
        order.shuffle(batches)
        for batch in batches:
            optimizer.zero_grad()
            squares = sum(parameter.square().sum() for parameter in probe.parameters())
            (loss(probe, data, batch) + bilinear.L2 / 2 * squares).backward()
            optimizer.step()
    return probe


def test_fit_is_deterministic_and_depends_on_the_seed(monkeypatch):
    schedule = Schedule(epochs=2, learning_rate=0.01, batch_size=10, min_updates=1)
    monkeypatch.setattr(bilinear, "SCHEDULE", schedule)
    data = prepare(examples(40))
    first = fit_bilinear(data, 0, layer=1, rank=4)
    again = fit_bilinear(data, 0, layer=1, rank=4)
    other_seed = fit_bilinear(data, 1, layer=1, rank=4)
    assert torch.equal(first.dependent, again.dependent)
    assert not torch.equal(first.dependent, other_seed.dependent)
