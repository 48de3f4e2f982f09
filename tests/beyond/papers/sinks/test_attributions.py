"""Tokens left out by hand."""

import pytest
import torch
from store_tools import many_segments
from tolerances import float32_error

from beyond.papers.sinks import attributions
from helpers.model.forward import padded
from helpers.model.gradients import paragraphs
from helpers.store.extract import extract


def records_of(encoder, count=6):
    return list(extract(encoder, many_segments(count), max_tokens=60, stream=True).records())


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
    source = extract(encoder, many_segments(8), max_tokens=60, stream=True)
    table = attributions.attribution_table(encoder, source, 8)
    table = table.set_index("method")
    assert table.loc["oracle", "correlation"] == pytest.approx(1)
    assert table.loc[attributions.BASELINE, "correlation"] == pytest.approx(-1)
    assert table.loc["oracle", "lead"] == pytest.approx(2)
    assert table.loc[attributions.BASELINE, "lead"] == 0
