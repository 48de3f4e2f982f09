"""Edge ablation against attention written out by hand, in every family of models."""

from itertools import product

import numpy as np
import pytest
import torch
from tiny_models import FAMILIES

from beyond.papers.common.edge_cuts import (
    CONSTANT,
    DROPPED,
    MASS_MATCHED,
    MODES,
    MOST_ATTENDED,
    REDISTRIBUTED,
    Cut,
    ablate_edges,
    cut_edges,
    cut_shares,
    key_token_ids,
    list_roles,
)
from beyond.papers.common.head_removal import patch_head_outputs
from helpers.errors import ModelError
from helpers.model.forward import padded
from helpers.model.sites import sites

CUTS = [Cut((1,), "cls"), Cut((0, 2))]

# One row of attention: to [CLS], "the" and "cat".
ROW = torch.tensor([0.25, 0.5, 0.25])
IS_CLS = torch.tensor([True, False, False])


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (DROPPED, [0, 0.5, 0.25]),  # the rest is not normalised again: it sums to 0.75
        (REDISTRIBUTED, [0, 2 / 3, 1 / 3]),
        (MASS_MATCHED, [0.25, 1 / 3, 1 / 6]),  # 0.25 less, in proportion
        (MOST_ATTENDED, [0.25, 0.25, 0.25]),  # 0.25 less of the largest
    ],
)
def test_ablate_edges_of_three_tokens(mode, expected):
    torch.testing.assert_close(ablate_edges(ROW, IS_CLS, mode, ~IS_CLS), torch.tensor(expected))


@pytest.mark.parametrize("mode", [MASS_MATCHED, MOST_ATTENDED])
def test_mass_matched_ablations_remove_the_mass_of_the_chosen_edges(mode):
    generator = torch.Generator().manual_seed(0)
    weights = torch.rand(50, 9, 9, generator=generator, dtype=torch.float64).softmax(dim=-1)
    weights[:, 0] = torch.tensor([0.9, 0.06, 0.04, *[0.0] * 6])  # words have less than the cut edge
    is_chosen = torch.arange(9) == 0
    n_kept = 1 if mode == MASS_MATCHED else 2  # 1 is another special token, which is no word
    is_word = torch.arange(9) > 1
    ablated = ablate_edges(weights, is_chosen, mode, is_word)
    assert torch.equal(ablated[..., :n_kept], weights[..., :n_kept])
    removed = (weights - ablated).sum(dim=-1)
    torch.testing.assert_close(removed[:, 1:], weights[:, 1:, 0])
    torch.testing.assert_close(removed[:, 0], weights[:, 0, n_kept:].sum(dim=-1))
    assert (ablated >= 0).all()


def ablate_by_hand(weights, chosen, is_word, mode):
    """Ablate the chosen edges of one map [query, key], row by row and key by key."""
    ablated = weights.copy()
    for query, row in enumerate(weights):
        keys = range(len(row))
        cut = [key for key in keys if chosen[query, key]]
        rest = [key for key in keys if not chosen[query, key]]
        words = [key for key in rest if is_word[key]]
        mass = sum(row[key] for key in cut)
        if mode in (DROPPED, REDISTRIBUTED):
            ablated[query, cut] = 0
        if mode == REDISTRIBUTED:
            ablated[query, rest] *= 1 / max(sum(row[key] for key in rest), 1e-30)
        if mode == MASS_MATCHED and mass:
            ablated[query, rest] *= max(0, 1 - mass / max(row[rest].sum(), 1e-30))
        if mode == CONSTANT and query:
            ablated[query, cut] = weights[1:, cut].mean(axis=0)
        if mode == MOST_ATTENDED:
            for key in sorted(words, key=lambda key: -row[key]):
                removed = min(mass, row[key])
                ablated[query, key] -= removed
                mass -= removed
    return ablated


class HandWrittenPasses:
    """Passes of a model whose head outputs are given maps times the model's own value vectors."""

    def __init__(self, encoder, request):
        texts = ("the cat sat on the mat , .", "rainy .")
        ids = [encoder.encode_words(text.split()).ids for text in texts]
        inputs = [{"input_ids": text, "token_type_ids": [0] * len(text)} for text in ids]
        special = {ids[0][0], ids[0][-1]}
        self.token_ids = {"special": special, "cls": {ids[0][0]}}
        self.batch = padded(encoder, inputs)
        self.real = self.batch["attention_mask"].bool()
        self.model = encoder.model.base_model
        self.layers = sites(self.model)
        self.maps = {}  # by layer: those that replace the model's
        self.values = []
        for layer in self.layers:
            hook = layer.values.register_forward_hook(self._remember_values)
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
        with patch_head_outputs(self.layers, self._head_outputs):
            return self.run()

    def ablate(self, cut, mode):
        """Ablate layer by layer, because the maps of a layer depend on the cuts below it."""
        self.maps.clear()
        for layer in cut.layers:
            maps = self.run_replaced().attentions[layer].double().numpy()
            for tokens, heads in zip(self.batch["input_ids"].tolist(), maps, strict=True):
                is_key = [token in self.token_ids[cut.keys] for token in tokens]
                is_word = [token not in self.token_ids["special"] for token in tokens]
                chosen = np.array([is_key] * len(tokens))
                for head in heads:
                    head[:] = ablate_by_hand(head, chosen, is_word, mode)
            self.maps[layer] = torch.from_numpy(maps)
        return self.run_replaced().last_hidden_state[self.real]


@pytest.mark.parametrize("family", [*FAMILIES, "llama"])
def test_cut_edges_matches_maps_ablated_by_hand(family, tiny_encoder, request):
    by_hand = HandWrittenPasses(tiny_encoder(family), request)
    intact = by_hand.run()
    for cut, mode in product(CUTS, [*MODES, MOST_ATTENDED]):
        expected = by_hand.ablate(cut, mode)
        with cut_edges(by_hand.model, cut, by_hand.token_ids, mode):
            states = by_hand.run().last_hidden_state[by_hand.real]
        torch.testing.assert_close(states, expected, rtol=1e-4, atol=1e-5)
        intact_states = intact.last_hidden_state[by_hand.real]
        assert not torch.allclose(expected, intact_states, atol=1e-4)


def test_cut_shares_are_of_the_mass_and_of_rows_whose_other_tokens_have_less():
    rows = [[0.7, 0.2, 0.1], [0.3, 0.4, 0.3], [0.4, 0.35, 0.25]]  # to [CLS], cat and [SEP]
    maps = [torch.tensor(rows)[None, None]]
    tokens = torch.tensor([[1, 5, 2]])
    token_ids = {"special": {1, 2}, "cls": {1}}
    share, unmatched = cut_shares(maps, Cut((0,), "cls"), tokens, token_ids)
    assert share.item() == pytest.approx(1.4 / 3)
    assert unmatched.item() == pytest.approx(1 / 3)  # the first row


@pytest.mark.parametrize(
    ("family", "names"),
    [
        ("bert", ["special", "cls", "sep"]),
        ("t5", ["special", "first"]),
        ("gpt2", ["special", "first"]),
    ],
)
def test_key_token_ids_has_the_special_tokens_of_the_model(family, names, tiny_encoder):
    encoder = tiny_encoder(family)
    ids = key_token_ids(encoder)
    assert set(ids) == set(names)
    assert set(list_roles(encoder)) == set(names) - {"special"}
    for role in set(ids) & {"cls", "sep"}:
        assert set(ids[role]) <= set(ids["special"])


def test_cut_edges_refuses_a_pass_without_a_softmax(tiny_encoder):
    model = tiny_encoder("bert").model
    ablation = cut_edges(model, Cut((1,)), {"special": {2}}, DROPPED)
    with pytest.raises(ModelError, match="in layers 2"), ablation:
        pass  # nothing is computed
