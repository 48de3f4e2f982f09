"""Random weights whose heads are as focused as the trained ones."""

from __future__ import annotations

import copy
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from store_tools import token_records
from tiny_models import FAMILIES

from helpers.errors import ModelError
from helpers.model import sites
from helpers.model.encoder import load
from helpers.model.forward import forward, model_inputs, padded
from helpers.studies.head_removal import Change, passes_under


def temperatures(encoder, like, records):
    batch = padded(like, [model_inputs(like, record) for record in records])
    return sites.temperatures(encoder.model.base_model, like.model.base_model, batch)


def entropies(encoder, records):
    """Return the mean entropy of each head, every record by itself."""
    found = []
    for record in records:
        layers, _ = forward(encoder, [model_inputs(encoder, record)])
        maps = np.concatenate([layer.numpy() for layer in layers])
        found.append(-(maps * np.log(np.maximum(maps, 1e-30))).sum(axis=-1).mean(axis=-1))
    return np.mean(found, axis=0)


@pytest.mark.parametrize("family", FAMILIES)
def test_each_head_has_the_entropy_of_the_trained_one(family, tiny_folder, tiny_encoder, segments):
    trained, folder = tiny_encoder(family), str(tiny_folder(family))
    records, drawn = token_records(trained, segments), load(folder, device="cpu", random_init=1)
    found = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        found.append(temperatures(drawn, trained, records))
    assert found[0] == found[1] == found[2]
    focused = load(folder, device="cpu", random_init=1, temperatures=found[0])
    wanted, before = entropies(trained, records), entropies(drawn, records)
    assert abs(wanted - before).max() > 0.1
    np.testing.assert_allclose(entropies(focused, records), wanted, atol=0.01)
    # A copy has its own.
    twin = copy.deepcopy(focused.model)
    twin.base_model.temperatures.fill_(1)
    np.testing.assert_allclose(entropies(focused, records), wanted, atol=0.01)
    focused.read().model.base_model.temperatures.fill_(1)
    np.testing.assert_allclose(entropies(focused, records), before, atol=1e-5)
    assert drawn.identity | {"temperatures": found[0]} == focused.identity


def test_an_entropy_that_is_out_of_reach_is_neared(tiny_folder, encoder, segments):
    drawn, flat, again = (load(str(tiny_folder("bert")), device="cpu") for _ in range(3))
    with torch.no_grad():
        for name, weight in flat.model.named_parameters():
            weight.mul_("query" not in name)
    records = token_records(encoder, segments)
    sites.focus(drawn.model.base_model, temperatures(drawn, flat, records))  # exactly uniform
    np.testing.assert_allclose(entropies(drawn, records), entropies(flat, records), atol=1e-4)
    assert np.isfinite(temperatures(flat, encoder, records)).all()  # no scores to multiply
    sites.focus(again.model.base_model, temperatures(again, encoder, records))  # itself
    np.testing.assert_allclose(entropies(again, records), entropies(encoder, records), atol=1e-4)


def test_a_model_without_a_softmax_a_layer_is_one_line(encoder, segments, monkeypatch):
    monkeypatch.setattr("helpers.model.sites.F", SimpleNamespace(softmax=None))
    with pytest.raises(ModelError, match="0 calls of softmax in 3 layers"):
        temperatures(encoder, encoder, token_records(encoder, segments))


@pytest.mark.parametrize("family", ["bert", "t5", "albert"])
def test_a_pass_that_leaves_layers_out_has_their_temperatures(family, tiny_folder):
    factors = (2.0 ** torch.arange(12).view(3, 4)).tolist()
    focused = load(str(tiny_folder(family)), device="cpu", random_init=1, temperatures=factors)
    base, ids = focused.model.base_model, torch.tensor([[5, 6, 7, 8, 9]])
    change = Change(2, lambda _: nullcontext())
    (whole, _), (resumed, _) = passes_under(base, lambda: base(input_ids=ids), [change])
    assert torch.equal(whole.last_hidden_state, resumed.last_hidden_state)
