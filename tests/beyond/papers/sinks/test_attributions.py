"""Rollout by explicit products, and tokens left out by hand."""

import numpy as np
import pytest
import torch
from store_tools import many_segments
from tolerances import float32_error

from beyond.papers.sinks import attributions
from helpers.model.forward import padded
from helpers.model.gradients import paragraphs
from helpers.store.extract import stream


def records_of(encoder, count=6):
    return list(stream(encoder, many_segments(count), max_tokens=60).records())


def test_rollout_is_the_product_of_the_layers_with_residuals():
    first_map = np.array([[1, 0, 0], [0.5, 0.5, 0], [0, 0.5, 0.5]])
    second_map = np.array([[0, 1, 0], [0, 0, 1], [1, 0, 0]])
    identity = np.eye(3)
    first_layer = (first_map + identity) / 2
    second_layer = (second_map + identity) / 2
    np.testing.assert_allclose(attributions.rollout(first_map[None]), first_layer)
    two_layers = attributions.rollout(np.stack([first_map, second_map]))
    np.testing.assert_allclose(two_layers, second_layer @ first_layer)
    # Position 0 gets half from itself, and half through position 1.
    assert two_layers[0, 0] == pytest.approx(0.5 * 1 + 0.5 * 0.25)
    np.testing.assert_allclose(two_layers.sum(axis=1), 1)


def mean_vector(encoder, ids, left_out=None):
    batch = padded(encoder, [{"input_ids": ids, "token_type_ids": [0] * len(ids)}])
    remaining = [index for index in range(len(ids)) if index != left_out]
    if left_out is not None:
        batch["attention_mask"][0, left_out] = 0
    with torch.no_grad():
        states = encoder.model.base_model(**batch).last_hidden_state[0]
        return states[remaining].double().mean(0)


@pytest.mark.parametrize("family", ["bert", "mpnet", "gpt2"])
def test_leave_one_out_effects_match_a_masked_token(tiny_encoder, family):
    encoder = tiny_encoder(family)
    text, _ = paragraphs(encoder, [records_of(encoder)[1]])
    effects = attributions.leave_one_out_effects(encoder, text)
    full = mean_vector(encoder, text["input_ids"])
    for index in range(len(text["input_ids"])):
        reduced = mean_vector(encoder, text["input_ids"], index)
        moved = 1 - torch.cosine_similarity(reduced, full, dim=0)
        assert effects[index] == pytest.approx(moved.item(), abs=float32_error(1.0))


def test_correlation_of_the_effect_itself_is_perfect(tiny_encoder, monkeypatch):
    encoder = tiny_encoder("bert")

    def oracle_scores(encoder, text):
        effects = attributions.leave_one_out_effects(encoder, text)
        return {attributions.BASELINE: -effects, "oracle": effects}

    monkeypatch.setattr(attributions, "attribution_scores", oracle_scores)
    source = stream(encoder, many_segments(8), max_tokens=60)
    table = attributions.attribution_table(encoder, source, 8)
    table = table.set_index("method")
    assert table.loc["oracle", "correlation"] == pytest.approx(1)
    assert table.loc[attributions.BASELINE, "correlation"] == pytest.approx(-1)
    assert table.loc["oracle", "lead"] == pytest.approx(2)
    assert table.loc[attributions.BASELINE, "lead"] == 0
