"""Edge ablation against attention written out by hand, in every family of models."""

from itertools import product

import numpy as np
import pytest
import torch
from softmax_reference import changed_softmax
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
from helpers.errors import ModelError
from helpers.model.forward import padded

CUTS = [Cut((1,), "cls"), Cut((0, 2))]

# One row of attention: to [CLS], "the" and "cat".
ROW = [0.25, 0.5, 0.25]
IS_CLS = torch.tensor([True, False, False])


@pytest.mark.parametrize(
    ("row", "mode", "expected"),
    [
        (ROW, DROPPED, [0, 0.5, 0.25]),  # the rest is not normalised again: it sums to 0.75
        (ROW, REDISTRIBUTED, [0, 2 / 3, 1 / 3]),
        (ROW, MASS_MATCHED, [0.25, 1 / 3, 1 / 6]),  # 0.25 less, in proportion
        (ROW, MOST_ATTENDED, [0.25, 0.25, 0.25]),  # 0.25 less of the largest
        ([0.9, 0.06, 0.04], MASS_MATCHED, [0.9, 0, 0]),  # the words have less
        ([0.9, 0.06, 0.04], MOST_ATTENDED, [0.9, 0, 0]),
    ],
)
def test_ablate_edges_of_three_tokens(row, mode, expected):
    ablated = ablate_edges(torch.tensor(row), IS_CLS, mode, ~IS_CLS)
    torch.testing.assert_close(ablated, torch.tensor(expected, dtype=torch.float))


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


@pytest.mark.parametrize("family", [*FAMILIES, "llama"])
def test_cut_edges_matches_maps_ablated_by_hand(family, tiny_encoder):
    encoder = tiny_encoder(family)
    model = encoder.model.base_model
    texts = ("the cat sat on the mat , .", "rainy .")
    ids = [encoder.encode_words(text.split()).ids for text in texts]
    inputs = [{"input_ids": text, "token_type_ids": [0] * len(text)} for text in ids]
    batch = padded(encoder, inputs)
    token_ids = {"special": {ids[0][0], ids[0][-1]}, "cls": {ids[0][0]}}

    @torch.no_grad()
    def states():
        return model(**batch).last_hidden_state[batch["attention_mask"].bool()]

    intact = states()
    for cut, mode in product(CUTS, [*MODES, MOST_ATTENDED]):

        def ablate(layer, _scores, weights, cut=cut, mode=mode):
            if layer in cut.layers:
                for tokens, heads in zip(batch["input_ids"].tolist(), weights, strict=True):
                    chosen = [[token in token_ids[cut.keys] for token in tokens]] * len(tokens)
                    is_word = [token not in token_ids["special"] for token in tokens]
                    for head in heads:
                        ablated = ablate_by_hand(head.numpy(), np.array(chosen), is_word, mode)
                        head[:] = torch.from_numpy(ablated)
            return weights

        with changed_softmax(ablate):
            expected = states()
        with cut_edges(model, cut, token_ids, mode):
            torch.testing.assert_close(states(), expected, rtol=1e-4, atol=1e-5)
        assert not torch.allclose(expected, intact, atol=1e-4)


def test_cut_shares_are_of_the_mass_and_of_rows_whose_other_tokens_have_less():
    rows = [[0.7, 0.2, 0.1], [0.3, 0.4, 0.3], [0.4, 0.35, 0.25]]  # to [CLS], cat and [SEP]
    maps = [torch.tensor(rows)[None, None]]
    tokens = torch.tensor([[1, 5, 2]])
    token_ids = {"special": {1, 2}, "cls": {1}}
    share, unmatched = cut_shares(maps, Cut((0,), "cls"), tokens, token_ids)
    assert share.item() == pytest.approx(1.4 / 3)
    assert unmatched.item() == pytest.approx(1 / 3)  # the first row


@pytest.mark.parametrize(("family", "roles"), [("bert", ["cls", "sep"]), ("t5", ["first"])])
def test_list_roles_has_the_special_tokens_of_the_model(family, roles, tiny_encoder):
    encoder = tiny_encoder(family)
    assert list_roles(encoder) == roles
    ids = key_token_ids(encoder)
    assert all(set(ids[role]) <= set(ids["special"]) for role in roles)


def test_cut_edges_refuses_a_pass_without_a_softmax(tiny_encoder):
    model = tiny_encoder("bert").model
    ablation = cut_edges(model, Cut((1,)), {"special": {2}}, DROPPED)
    with pytest.raises(ModelError, match="in layers 2"), ablation:
        pass  # nothing is computed
