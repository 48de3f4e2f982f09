"""The bilinear probe on hidden states: by hand, its gradient, and a planted relation."""

from functools import partial

import numpy as np
import pytest
import torch
from tolerances import float32_error
from toy_corpora import ListedStore, random_heads

from helpers.metrics.reference import UAS_WITHOUT_PUNCTUATION
from helpers.probes import table3, training
from helpers.probes.bilinear import BilinearProbe
from helpers.probes.data import Parse, ProbeData, prepare
from helpers.probes.training import predict_heads, seeded, train
from helpers.store.store import Example

WIDTH = 16


def hand_made(states, heads):
    """Make the data of one sentence, whose states are neither centred nor scaled."""
    parse = Parse(np.array(heads), np.zeros(len(heads), bool), "a", np.arange(len(heads)))
    states = [torch.tensor(states, dtype=torch.float16)]
    return ProbeData([], [parse], {}, torch.zeros(len(heads), 0), states)


def with_parameters(probe, **values):
    """Set parameters of a probe."""
    for name, value in values.items():
        probe.get_parameter(name.replace("_", ".")).data = torch.tensor(value)
    return probe


def test_scores_and_loss_of_three_words_by_hand():
    data = hand_made([[1, 0], [0, 2], [3, 1]], [2, 0, 2])
    probe = with_parameters(
        BilinearProbe(data),
        dependent_weight=[[1.0, 2.0]],
        dependent_bias=[0.5],  # U = (1, 2), a = 0.5: 1.5, 4.5 and 5.5
        candidate_weight=[[1.0, -1.0]],
        candidate_bias=[1.0],  # V = (1, -1), b = 1: 2, -1 and 3
        root=[2.0],
    )
    (batch,) = data.batches([0])
    logits = probe(batch)[0].detach()
    minus = -np.inf
    expected = [[3, minus, -1.5, 4.5], [9, 9, minus, 13.5], [11, 11, -5.5, minus]]
    np.testing.assert_allclose(logits, expected, rtol=0, atol=float32_error(13.5))
    assert predict_heads(probe, data, [0])[0].tolist() == [3, 3, 0]  # of equals, the first
    by_word = [
        np.log(np.exp(3) + np.exp(-1.5) + np.exp(4.5)) + 1.5,
        np.log(2 * np.exp(9) + np.exp(13.5)) - 9,
        np.log(2 * np.exp(11) + np.exp(-5.5)) + 5.5,
    ]
    error = float32_error(13.5)
    assert probe.loss(batch).item() == pytest.approx(np.mean(by_word), abs=error)


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
    monkeypatch.setattr(BilinearProbe, "weight_decay", 0.1)
    monkeypatch.setattr(BilinearProbe, "learning_rate", 0.02)
    data = prepare(ListedStore(examples()))
    counts, table = table3.fit_hidden(data, table3.BILINEAR, 2)
    assert table["layer"].tolist() == [0, 1, 2]
    assert table["chosen"].tolist() == [False, True, False]
    assert table["validation"][1] > table["validation"][0] + 30
    assert (table["validation_low"] <= table["validation"]).all()
    assert (table["validation"] <= table["validation_high"]).all()
    assert (counts[UAS_WITHOUT_PUNCTUATION].by_seed > 80).all()


def test_training_is_deterministic_and_depends_on_the_seed(monkeypatch):
    monkeypatch.setattr(training, "MIN_UPDATES", 1)
    data = prepare(ListedStore(examples(40))).at_layer(1)

    def trained(seed):
        probe = seeded(partial(BilinearProbe, data), seed)
        train([probe], data, data.splits["train"], seed=seed)
        return probe.dependent.weight

    assert torch.equal(trained(0), trained(0))
    assert not torch.equal(trained(0), trained(1))
