"""Edge ablation against attention written out by hand, in every family of models."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
import torch
from softmax_reference import changed_softmax
from tiny_models import FAMILIES

from beyond.papers.common.edge_cuts import (
    DROPPED,
    FIRST_QUERY,
    MAIN_MODES,
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
    plan_ablations,
    special_token_layers,
)
from helpers.errors import ModelError
from helpers.model.forward import padded


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (DROPPED, [0, 0.1, 0.3, 0.15]),  # the rest is not normalised again
        (REDISTRIBUTED, [0, 2 / 11, 6 / 11, 3 / 11]),
        (MASS_MATCHED, [0.45, 0.1 * 0.1 / 0.55, 0.3 * 0.1 / 0.55, 0.15 * 0.1 / 0.55]),
        (MOST_ATTENDED, [0.45, 0.1, 0, 0]),  # the largest edges are removed whole and first
    ],
)
def test_ablate_edges_of_four_tokens(mode, expected):
    is_cls = torch.arange(4) == 0
    row = torch.tensor([0.45, 0.1, 0.3, 0.15])
    torch.testing.assert_close(ablate_edges(row, is_cls, mode, ~is_cls), torch.tensor(expected))


@pytest.mark.parametrize("mode", [MASS_MATCHED, MOST_ATTENDED])
def test_controls_remove_the_mass_of_the_chosen_edges_from_words(mode):
    maps = torch.from_numpy(np.random.default_rng(0).dirichlet(np.full(9, 0.3), (50, 9)))
    key = torch.arange(9)  # 1 is another special token
    ablated = ablate_edges(maps, key == 0, mode, key > 1)
    assert torch.equal(ablated[..., :2], maps[..., :2]) and (ablated >= 0).all()
    removed = (maps - ablated).sum(dim=-1)  # in some rows, words have less than the cut edge
    torch.testing.assert_close(removed, maps[..., 0].minimum(maps[..., 2:].sum(dim=-1)))


def ablate_by_hand(row, chosen, is_word, mode):
    """Ablate the chosen keys of one row in place, key by key."""
    words = [key for key in range(len(row)) if is_word[key] and not chosen[key]]
    mass = row[chosen].sum().item()
    if mode in (DROPPED, REDISTRIBUTED):
        row[chosen] = 0
    if mode == REDISTRIBUTED:
        row *= 1 / max(row.sum().item(), 1e-30)
    if mode == MASS_MATCHED and mass:
        row[words] *= max(0, 1 - mass / max(row[words].sum().item(), 1e-30))
    if mode == MOST_ATTENDED:
        for key in sorted(words, key=lambda key: -row[key].item()):
            removed = min(mass, row[key].item())
            row[key] -= removed
            mass -= removed


@pytest.mark.parametrize("family", [*FAMILIES, "llama"])
def test_cut_edges_equal_a_softmax_changed_row_by_row(family, tiny_encoder):
    encoder = tiny_encoder(family)
    model = encoder.model.base_model
    texts = ("the cat sat on the mat , .", "rainy .")
    inputs = [{"input_ids": encoder.encode_words(text.split()).ids} for text in texts]
    for text_inputs in inputs:
        text_inputs["token_type_ids"] = [0] * len(text_inputs["input_ids"])
    batch = padded(encoder, inputs)
    tokens = batch["input_ids"]
    special = {inputs[0]["input_ids"][0], inputs[0]["input_ids"][-1]}
    token_ids = {"special": special, "cls": {inputs[0]["input_ids"][0]}}
    is_word = torch.tensor([[token not in special for token in text] for text in tokens.tolist()])

    @torch.no_grad()
    def run():
        return model(**batch).last_hidden_state[batch["attention_mask"].bool()]

    intact = run()
    cuts = [Cut((1,), "cls"), Cut((0, 2)), Cut((0,), "cls", FIRST_QUERY)]
    for cut, mode in product(cuts, MODES):

        def change(layer, _, weights, cut=cut, mode=mode):
            if layer in cut.layers:
                for text, head, query in np.ndindex(weights.shape[:3]):
                    if cut.queries != FIRST_QUERY or query == 0:
                        is_key = torch.isin(tokens[text], torch.tensor([*token_ids[cut.keys]]))
                        row = weights[text, head, query, : len(is_key)]
                        ablate_by_hand(row, is_key, is_word[text], mode)
            return weights

        with changed_softmax(change):
            expected = run()
        with cut_edges(model, cut, token_ids, mode):
            torch.testing.assert_close(run(), expected, rtol=1e-4, atol=1e-5)
        is_first = cut.queries == FIRST_QUERY  # in a decoder it sees itself only
        assert is_first or not torch.allclose(expected, intact, atol=1e-4)
    with cut_edges(model, Cut((0, 1, 2)), {"special": {10**6}}, MASS_MATCHED):
        assert torch.equal(run(), intact)


def test_plan_ablations_has_each_special_token_by_layer_and_in_the_group_once():
    group = (1, 2, 3, 4, 9, 10)
    ablations = plan_ablations(12, group, ("cls", "sep"))
    assert len(set(ablations)) == len(ablations) == 12 * 4 + 12 * 2 + 5 * 4
    last = [Cut(group, keys) for keys in ("special", "cls", "sep")]
    last += [Cut(group, "cls", FIRST_QUERY), Cut(tuple(range(12)), "cls")]
    assert ablations[-20:] == [*product(last, MODES)] and last[0].name == "2-5, 10-11"
    assert len(set(plan_ablations(2, (1,), ("cls",)))) == 5 * 4  # the group is a layer
    assert plan_ablations(1, (), ("sep",)) == [*product([Cut((0,), "sep")], MAIN_MODES)]


def test_cut_shares_are_of_the_mass_and_of_rows_whose_words_have_less():
    rows = [[0.7, 0.2, 0.1], [0.3, 0.4, 0.3], [0.4, 0.35, 0.25]]  # to [CLS], cat and [SEP]
    token_ids = {"special": {1, 2}, "cls": {1}}
    maps = [torch.tensor(rows)[None, None]]
    shares = cut_shares(maps, Cut((0,), "cls"), torch.tensor([[1, 5, 2]]), token_ids)
    assert shares.tolist() == pytest.approx([1.4 / 3, 2 / 3])  # the first row and the last


def test_special_token_layers_are_above_a_quarter():
    table = pd.DataFrame({"layer": ["1", "2", "3", "all"], "attention": [0.2, 0.3, 0.25, 0.5]})
    table = pd.concat([table.assign(token="special"), table.assign(token="cls", attention=1)])
    assert special_token_layers(table) == (1,)


def test_cut_edges_of_a_decoder_go_to_its_first_token_whatever_it_is(tiny_encoder):
    encoder = tiny_encoder("gpt2")
    batch = padded(encoder, [{"input_ids": [9, 10, 11, 12, 13]}, {"input_ids": [11, 9, 10]}])
    base = encoder.model.base_model
    token_ids = key_token_ids(encoder)
    assert list_roles(encoder) == ["first"]
    for keys in ("first", "special"):
        with torch.no_grad(), cut_edges(base, Cut((0,), keys), token_ids, DROPPED):
            (maps, *_) = base(**batch, output_attentions=True).attentions
        assert (maps[..., 0] == 0).all() and (maps[..., 1, 1] > 0).all()


def test_cut_edges_refuses_a_pass_without_a_softmax(encoder):
    ablation = cut_edges(encoder.model, Cut((1,)), {"special": {2}}, DROPPED)
    with pytest.raises(ModelError, match="in layers 2"), ablation:
        pass  # nothing is computed
