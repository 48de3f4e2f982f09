"""Edge ablation against attention written out by hand, in every family of models."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
import torch
from tiny_models import FAMILIES

from helpers.errors import InputError, ModelError
from helpers.model.forward import padded
from helpers.model.sites import patch_head_outputs, sites
from helpers.studies.common.edge_cuts import (
    DROPPED,
    FIRST_QUERY,
    MASS_MATCHED,
    MODES,
    REDISTRIBUTED,
    Cut,
    cut_edges,
    list_ablations,
    plan_cuts,
    special_token_layers,
)

CUTS = [Cut((1,)), Cut((0, 2)), Cut((1, 2), queries=FIRST_QUERY)]


def ablate_by_hand(weights, chosen, mode):
    """Ablate the chosen edges of one map [query, key], row by row and key by key."""
    ablated = np.zeros_like(weights)
    for query, row in enumerate(weights):
        keys = range(len(row))
        cut_mass = sum(row[key] for key in keys if chosen[query, key])
        rest_mass = max(sum(row[key] for key in keys if not chosen[query, key]), 1e-30)
        rest_factor = {
            DROPPED: 1,
            REDISTRIBUTED: (cut_mass + rest_mass) / rest_mass,
            MASS_MATCHED: max(0, 1 - cut_mass / rest_mass),
        }[mode]
        for key in keys:
            if not chosen[query, key]:
                ablated[query, key] = row[key] * rest_factor
            elif mode == MASS_MATCHED:
                ablated[query, key] = row[key]
    return ablated


class HandWrittenPasses:
    """Passes of a model whose head outputs are given maps times the model's own value vectors."""

    def __init__(self, encoder, request):
        texts = ("the cat sat on the mat , .", "rainy .")
        ids = [encoder.encode_words(text.split()).ids for text in texts]
        inputs = [{"input_ids": text, "token_type_ids": [0] * len(text)} for text in ids]
        self.keys = {ids[0][0], ids[0][-1]}
        self.batch = padded(encoder, inputs)
        self.real = self.batch["attention_mask"].bool()
        self.model = encoder.model.base_model
        self.layers = sites(self.model)
        self.maps = {}  # by layer: those that replace the model's
        self.values = []
        for layer in self.layers:
            hook = layer.values.register_forward_hook(self._remember_values)  # noqa: PD011
            request.addfinalizer(hook.remove)

    def _remember_values(self, _module, _args, output):
        self.values.append(output)

    def _head_outputs(self, layer, outputs):
        if layer not in self.maps:
            return outputs
        values = self.layers[layer].value_vectors(self.values[-1])
        return torch.einsum("bhqk,bkhw->bqhw", self.maps[layer].to(values), values)

    @torch.no_grad()
    def run(self):
        return self.model(**self.batch, output_attentions=True)

    def run_replaced(self):
        with patch_head_outputs(self.model, self.layers, self._head_outputs):
            return self.run()

    def ablate(self, cut, mode):
        """Ablate layer by layer, because the maps of a layer depend on the cuts below it."""
        self.maps.clear()
        for layer in cut.layers:
            maps = self.run_replaced().attentions[layer].double().numpy()
            for tokens, heads in zip(self.batch["input_ids"].tolist(), maps, strict=True):
                is_key = [token in self.keys for token in tokens]
                chosen = np.array([is_key] * len(tokens))
                if cut.queries == FIRST_QUERY:
                    chosen[1:] = False
                for head in heads:
                    head[:] = ablate_by_hand(head, chosen, mode)
            self.maps[layer] = torch.from_numpy(maps)
        return self.run_replaced().last_hidden_state[self.real]


@pytest.mark.parametrize("family", [*FAMILIES, "llama"])
def test_cut_edges_matches_maps_ablated_by_hand(family, tiny_encoder, request):
    by_hand = HandWrittenPasses(tiny_encoder(family), request)
    intact = by_hand.run()
    for cut, mode in product(CUTS, MODES):
        expected = by_hand.ablate(cut, mode)
        with cut_edges(by_hand.model, cut, by_hand.keys, mode) as intact_weights:
            states = by_hand.run().last_hidden_state[by_hand.real]
        torch.testing.assert_close(states, expected, rtol=1e-4, atol=1e-5)
        first_layer = cut.layers[0]
        torch.testing.assert_close(intact_weights[first_layer], intact.attentions[first_layer])
        # The first token of a decoder attends only to itself; its cut may change nothing.
        if cut.queries != FIRST_QUERY:
            intact_states = intact.last_hidden_state[by_hand.real]
            assert not torch.allclose(expected, intact_states, atol=1e-4)


@pytest.mark.parametrize("family", [*FAMILIES, "llama"])
def test_cut_edges_without_a_key_changes_no_bit(family, tiny_encoder, request):
    passes = HandWrittenPasses(tiny_encoder(family), request)
    intact = passes.run().last_hidden_state
    with cut_edges(passes.model, Cut((0, 1, 2)), {10**6}, MASS_MATCHED):
        assert torch.equal(passes.run().last_hidden_state, intact)


def test_plan_cuts_names_layers_and_their_runs():
    cuts, main_cuts = plan_cuts(12, (1, 2, 3, 4, 9, 10))
    names = [cut.name for cut in cuts]
    single_layers = [str(layer) for layer in range(1, 13)]
    assert names == [*single_layers, "2-5", "10-11", "2-5, 10-11"]
    assert {cut.name for cut in main_cuts} == {"2-5, 10-11"}
    assert {(cut.keys, cut.queries) for cut in main_cuts} == {
        ("punctuation", "all"),
        ("special", "first token"),
    }


def test_plan_cuts_of_no_group_has_single_layers_only():
    assert plan_cuts(2, ()) == ([Cut((0,)), Cut((1,))], [])


def test_special_token_layers_are_above_a_quarter():
    table = pd.DataFrame({"layer": ["1", "2", "3", "all"], "attention": [0.2, 0.3, 0.25, 0.5]})
    assert special_token_layers(table) == (1,)


def test_list_ablations_refuses_an_input_without_special_tokens(tiny_encoder):
    with pytest.raises(InputError, match="no special tokens"):
        list_ablations(tiny_encoder("gpt2"), [Cut((0,))])


def test_cut_edges_refuses_a_pass_without_a_softmax(tiny_encoder):
    model = tiny_encoder("bert").model
    ablation = cut_edges(model, Cut((1,)), {2}, DROPPED)
    with pytest.raises(ModelError, match="in layers 2"), ablation:
        pass  # nothing is computed
