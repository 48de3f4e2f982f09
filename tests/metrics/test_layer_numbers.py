"""Layers that attend keep their own number in labels, rows and tables."""

import dataclasses
import json

import numpy as np
import pytest
from store_tools import extract_small

from helpers.errors import InputError
from helpers.metrics import clustering, surface
from helpers.model.sites import attending_layers
from helpers.store.store import Store
from helpers.study import head_grid
from helpers.viewer.view import view

NUMBERS = [2, 4, 7]


@pytest.fixture
def numbered(encoder):
    """A model of which a layer before, between and after each of its three does not attend."""
    return dataclasses.replace(
        encoder, layer_numbers=NUMBERS, key={**encoder.key, "name": "hybrid"}
    )


def test_layers_of_a_store_are_named_by_their_own_number(numbered, tmp_path):
    store = extract_small(numbered, tmp_path, 10)
    manifest = json.loads((store.folder / "manifest.json").read_text())
    assert manifest["layers"] == Store(store.folder).layer_numbers == NUMBERS
    sums = surface.sums(store)
    table = surface.head_table(sums, ["previous"])
    assert table["layer"].tolist() == np.repeat(NUMBERS, 4).tolist()
    distances, _ = clustering.distances(store)
    assert distances.columns[[0, 4, 11]].tolist() == ["2-1", "4-1", "7-4"]
    data = view(store, layer=4, head=2).data()
    assert data["pages"][0]["labels"][5] == "4-2"
    with pytest.raises(InputError, match="there is no head 3-1; the model has 2-1 to 7-4"):
        view(store, layer=3)
    assert head_grid(np.ones((3, 4)), store.layer_numbers).index.tolist() == NUMBERS


def test_attending_layers_leave_out_what_a_configuration_calls_other(encoder, monkeypatch):
    assert attending_layers(encoder.model) == [1, 2, 3]
    types = ["linear_attention", "full_attention", "sliding_attention"]
    monkeypatch.setattr(encoder.model.config, "layer_types", types, raising=False)
    assert attending_layers(encoder.model) == [2, 3]
