"""Rollout by explicit products, gradients by small steps, tokens left out by hand."""

import numpy as np
import pytest
import torch
from store_tools import many_segments

from helpers.model.forward import padded
from helpers.model.gradients import paragraphs
from helpers.store.extract import stream
from helpers.studies.attention_moves import attributions


def records_of(encoder, count=6):
    return list(stream(encoder, many_segments(count), max_tokens=60).records())


def test_rollout_is_the_product_of_the_layers_with_residuals():
    first = np.array([[1, 0, 0], [0.5, 0.5, 0], [0, 0.5, 0.5]])
    second = np.array([[0, 1, 0], [0, 0, 1], [1, 0, 0]])
    one, eye = (first + np.eye(3)) / 2, np.eye(3)
    np.testing.assert_allclose(attributions.rollout(first[None]), one)
    both = attributions.rollout(np.stack([first, second]))
    np.testing.assert_allclose(both, (second + eye) / 2 @ one)
    assert both[0, 0] == pytest.approx(0.5 * 1 + 0.5 * 0.25)  # itself, and through position 1
    np.testing.assert_allclose(both.sum(axis=1), 1)


def mean_vector(encoder, ids, left_out=None):
    batch = padded(encoder, [{"input_ids": ids, "token_type_ids": [0] * len(ids)}])
    kept = [i for i in range(len(ids)) if i != left_out]
    if left_out is not None:
        batch["attention_mask"][0, left_out] = 0
    with torch.no_grad():
        return encoder.model.base_model(**batch).last_hidden_state[0, kept].double().mean(0)


@pytest.mark.parametrize("family", ["bert", "mpnet", "gpt2"])
def test_effects_are_those_of_a_text_without_the_token(tiny_encoder, family):
    encoder = tiny_encoder(family)
    first, second = paragraphs(encoder, records_of(encoder)[1 : 1 + 1])
    found = attributions.left_out(encoder, first, second)
    whole, other = (mean_vector(encoder, side["input_ids"]) for side in (first, second))
    similar = torch.cosine_similarity(whole, other, dim=0)
    for place in range(len(first["input_ids"])):
        without = mean_vector(encoder, first["input_ids"], place)
        moved = 1 - torch.cosine_similarity(without, whole, dim=0)
        assert found["vector"][place] == pytest.approx(moved.item(), abs=1e-6)
        change = abs(torch.cosine_similarity(without, other, dim=0) - similar)
        assert found["similarity"][place] == pytest.approx(change.item(), abs=1e-6)


def test_gradient_times_attention_is_the_slope_of_scaling_a_keys_attention(
    tiny_encoder, monkeypatch
):
    """Scale what all queries give to a key, and see what the similarity does."""
    encoder = tiny_encoder("bert")
    first, second = paragraphs(encoder, records_of(encoder)[2 : 2 + 1])
    found = attributions.gradient_times_attention(encoder, first, second)
    target = mean_vector(encoder, second["input_ids"])

    def similarity(key, factor):
        scaled = []

        def dropout(maps, *_, **__):  # what eager attention does to its maps before the values
            maps = maps.clone()
            maps[..., key] *= factor
            scaled.append(key)
            return maps

        with monkeypatch.context() as patch:
            patch.setattr(torch.nn.functional, "dropout", dropout)
            patch.setattr(torch.nn.Dropout, "forward", lambda _self, x: x)
            vector = mean_vector(encoder, first["input_ids"])
        assert len(scaled) == encoder.layers
        return torch.cosine_similarity(vector, target, dim=0).item()

    for key in range(0, len(first["input_ids"]), 3):
        slope = (similarity(key, 1.02) - similarity(key, 0.98)) / 0.04
        assert found[key] == pytest.approx(abs(slope), rel=0.02, abs=1e-4)


def test_a_score_that_is_the_effect_correlates_perfectly(tiny_encoder, monkeypatch):
    encoder = tiny_encoder("bert")

    def scores(encoder, first, second):
        effects = attributions.left_out(encoder, first, second)
        return {attributions.ATTENTION: -effects["vector"], "oracle": effects["vector"]}

    monkeypatch.setattr(attributions, "attributions", scores)
    table = attributions.compare(encoder, records_of(encoder, 8)).set_index(["method", "effect"])
    assert table.loc[("oracle", "vector"), "correlation"] == pytest.approx(1)
    assert table.loc[(attributions.ATTENTION, "vector"), "correlation"] == pytest.approx(-1)
    assert table.loc[("oracle", "vector"), "lead"] == pytest.approx(2)
    assert (table.loc[attributions.ATTENTION, "lead"] == 0).all()
