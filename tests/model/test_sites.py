"""Random weights whose heads have the entropies of the trained ones."""

from __future__ import annotations

import copy
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from store_tools import token_records

from beyond.papers.common.head_removal import Intervention, run_interventions
from helpers.errors import ModelError
from helpers.model import sites
from helpers.model.forward import forward, model_inputs, padded
from helpers.model.loading import load_model


def temperatures(encoder, target, records):
    batch = padded(target, [model_inputs(target, record) for record in records])
    return sites.temperatures(encoder.model.base_model, target.model.base_model, batch)


def entropies(encoder, records):
    """Compute the mean entropy of each head from passes over single records."""
    by_record = []
    for record in records:
        layers, _ = forward(encoder, [model_inputs(encoder, record)])
        maps = np.concatenate([layer.numpy() for layer in layers])
        by_query = -(maps * np.log(np.maximum(maps, 1e-30))).sum(axis=-1)
        by_record.append(by_query.mean(axis=-1))
    return np.mean(by_record, axis=0)


@pytest.mark.parametrize("family", ["bert", "albert", "deberta", "t5", "mistral"])
def test_temperatures_match_the_entropies_of_the_trained_heads(
    family, tiny_folder, tiny_encoder, segments
):
    trained = tiny_encoder(family)
    random = load_model(str(tiny_folder(family)), device="cpu", random_init=1)
    records = token_records(trained, segments)
    factors = temperatures(random, trained, records)
    matched = random.with_temperatures(factors, {"model": trained.key})
    assert matched.key == {**random.key, "matched to": {"model": trained.key}}
    assert matched.slug == f"{random.slug}-entropy-matched"
    target = entropies(trained, records)
    before = entropies(random, records)
    assert abs(target - before).max() > 0.1
    np.testing.assert_allclose(entropies(matched, records), target, atol=0.01)

    twin = copy.deepcopy(matched.model)
    twin.base_model.temperatures.fill_(1)  # a copy has its own
    np.testing.assert_allclose(entropies(matched, records), target, atol=0.01)
    matched.model.base_model.temperatures.fill_(1)
    np.testing.assert_allclose(entropies(matched, records), before, atol=1e-5)


def test_temperatures_do_not_depend_on_the_number_of_threads(tiny_folder, encoder, segments):
    random = load_model(str(tiny_folder("bert")), device="cpu", random_init=1)
    records = token_records(encoder, segments)
    by_threads = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        by_threads.append(temperatures(random, encoder, records))
    assert by_threads[0] == by_threads[1] == by_threads[2]


@pytest.mark.parametrize("low", [-10_000.0, torch.finfo(torch.float32).min])
def test_keys_that_a_mask_hides_stay_hidden_at_any_temperature(low):
    scores = torch.randn(1, 2, 5, 5).masked_fill(~torch.ones(5, 5).tril().bool(), low)
    for factor in (2.0**-20, 1.0, 2.0**20):
        weights = sites._scaled(scores, torch.tensor([factor, 1.0])).softmax(dim=-1)
        assert (weights.triu(1) == 0).all()
        assert torch.equal(weights[:, 1], scores[:, 1].softmax(dim=-1))


def test_temperatures_of_a_model_without_softmax_are_refused(encoder, segments, monkeypatch):
    monkeypatch.setattr("helpers.model.sites.F", SimpleNamespace(softmax=None))
    with pytest.raises(ModelError, match="0 calls of softmax in 3 layers"):
        temperatures(encoder, encoder, token_records(encoder, segments))


@pytest.mark.parametrize("family", ["bert", "t5", "albert"])
def test_a_pass_that_skips_layers_has_the_temperatures_of_the_others(family, tiny_folder):
    factors = (2.0 ** torch.arange(12).view(3, 4)).tolist()
    encoder = load_model(str(tiny_folder(family)), device="cpu", random_init=1)
    encoder = encoder.with_temperatures(factors, {})
    base = encoder.model.base_model
    token_ids = torch.tensor([[5, 6, 7, 8, 9]])
    change = Intervention(2, lambda _: nullcontext())
    full, resumed = run_interventions(base, lambda: base(input_ids=token_ids), [change])
    assert torch.equal(full.last_hidden_state, resumed.last_hidden_state)
