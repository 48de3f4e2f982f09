"""Masked heads, uniform attention, forward passes under interventions, and equivalence tests."""

from contextlib import nullcontext
from functools import partial

import numpy as np
import pytest
import torch
from softmax_reference import changed_softmax
from tiny_models import FAMILIES

from beyond.papers.common import head_removal
from beyond.papers.common.head_removal import (
    Intervention,
    Scores,
    head_mask,
    uniform_attention,
)
from helpers.model.forward import padded

LAYERS = 3
HEADS = 4


def batch_of(encoder, *texts):
    """Make a batch: by default of a long text and of a short one, which is padded."""
    texts = texts or ("the cat sat on the mat and the dog", "rainy winters")
    ids = [encoder.encode_words(text.split()).ids for text in texts]
    return padded(encoder, [{"input_ids": i, "token_type_ids": [0] * len(i)} for i in ids])


def states(model, batch):
    """Compute the last hidden states of all tokens except padding, as one matrix."""
    return model.base_model(**batch).last_hidden_state[batch["attention_mask"].bool()]


@pytest.mark.parametrize("family", FAMILIES)
def test_head_mask_scales_attention_and_is_differentiable(tiny_encoder, family):
    """Layers that share weights (ALBERT) are masked separately too."""
    encoder = tiny_encoder(family)
    batch = batch_of(encoder)
    with head_mask(encoder.model, torch.ones(LAYERS, HEADS)):
        unmasked = states(encoder.model, batch)
    assert torch.equal(unmasked, states(encoder.model, batch))
    mask = torch.rand(LAYERS, HEADS, generator=torch.Generator().manual_seed(1))
    mask[2, 3] = 0
    mask.requires_grad_()
    by_softmax = changed_softmax(lambda layer, _, maps: maps * mask[layer].view(1, -1, 1, 1))
    outputs = []
    gradients = []
    for context in (head_mask(encoder.model, mask), by_softmax):
        with context:
            output = states(encoder.model, batch)
            gradients += torch.autograd.grad((output**3).sum(), mask)
        outputs.append(output)
    torch.testing.assert_close(*outputs, rtol=1e-4, atol=1e-5)
    assert gradients[0].abs().min() > 0
    assert (gradients[0] - gradients[1]).abs().max() < 1e-3 * gradients[1].abs().max()


@pytest.mark.parametrize("family", FAMILIES)
def test_uniform_attention_equals_a_uniform_softmax(tiny_encoder, family):
    encoder = tiny_encoder(family)
    batch = batch_of(encoder)

    def flat(layer, scores, maps):
        if layer == 1:
            visible = (scores > -1e30).to(maps)
            uniform = visible / visible.sum(dim=-1, keepdim=True).clamp(min=1)  # of padding: none
            maps[:, 2] = uniform.expand_as(maps)[:, 2]
        return maps

    before = states(encoder.model, batch)
    with uniform_attention(encoder.model, 1, 2):
        uniform = states(encoder.model, batch)
    with changed_softmax(flat):
        torch.testing.assert_close(uniform, states(encoder.model, batch), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(uniform, before, atol=1e-3)
    assert torch.equal(states(encoder.model, batch), before)


def outputs_of(model, batch, interventions):
    """Stack the outputs of a batch, unchanged and under each intervention."""
    passes = head_removal.run_interventions(model, partial(model, **batch), interventions)
    return torch.stack([output.last_hidden_state for output in passes])


@pytest.mark.parametrize("family", FAMILIES)
def test_run_interventions_equals_full_passes_to_the_last_bit(tiny_encoder, family):
    encoder = tiny_encoder(family)
    model = encoder.model.base_model
    mask = torch.ones(LAYERS, HEADS)
    mask[1, 2] = 0
    interventions = [
        Intervention(0, lambda model: uniform_attention(model, 0, 1)),
        Intervention(1, lambda model: head_mask(model, mask)),
        Intervention(2, lambda _: nullcontext()),
    ]
    batches = [batch_of(encoder), batch_of(encoder, "the dog watched", "coffee")]
    sweep = partial(outputs_of, interventions=interventions)
    outputs_by_batch = head_removal.map_over_model_copies(model, batches, sweep, "sweep")
    for batch, outputs in zip(batches, outputs_by_batch, strict=True):
        expected = [model(**batch).last_hidden_state]
        for _, context in interventions:
            with context(model):
                expected.append(model(**batch).last_hidden_state)
        assert torch.equal(outputs, torch.stack(expected))
        assert not torch.equal(outputs[0], outputs[1])


@pytest.mark.parametrize(
    ("examples", "flipped", "removable"),
    [
        (160, 0, True),
        (140, 0, False),  # too few examples, though none has changed
        (160, 40, False),  # twenty are lost and twenty won: not significant, nor equivalent
        (4000, 20, True),
    ],
)
def test_heads_are_removable_if_a_change_of_accuracy_is_shown_to_be_small(
    examples, flipped, removable
):
    before = np.arange(examples) % 2 == 0
    after = before ^ (np.arange(examples) < flipped)
    right = np.array([before, after])
    row = head_removal.accuracy_changes(Scores(right, 1.0 - right)).iloc[0]
    assert (row["removable"], row["p_value"], row["change"]) == (removable, 1, 0)
    assert (row["change_low"] < 0 < row["change_high"]) == (flipped > 0)
