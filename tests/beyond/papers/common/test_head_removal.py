"""Masked heads, uniform attention, forward passes under interventions, and equivalence tests."""

from contextlib import nullcontext
from functools import partial

import numpy as np
import pytest
import tiny_models
import torch
from torch import nn
from torch.nn import functional as F

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
FAMILIES = sorted(tiny_models.FAMILIES)


def batch_of(encoder, *texts):
    """Make a batch: by default of a long text and of a short one, which is padded."""
    texts = texts or ("the cat sat on the mat and the dog", "rainy winters")
    inputs = []
    for text in texts:
        ids = encoder.encode_words(text.split()).ids
        inputs.append({"input_ids": ids, "token_type_ids": [0] * len(ids)})
    return padded(encoder, inputs)


@torch.no_grad()
def states(model, batch):
    """Compute the last hidden states of all tokens except padding, as one matrix."""
    output = model.base_model(**batch).last_hidden_state
    return output[batch["attention_mask"].bool()]


def patch_softmax(monkeypatch, change):
    """Make every softmax over scores return ``change(layer, scores, probabilities)``.

    This is a reference for masked heads that uses no projection, because ``(c A) V = c (A V)``.
    """
    softmax = F.softmax
    calls = []

    def changed(scores, *args, **kwargs):
        calls.append(1)
        return change((len(calls) - 1) % LAYERS, scores, softmax(scores, *args, **kwargs))

    monkeypatch.setattr(F, "softmax", changed)
    return calls


@pytest.mark.parametrize("family", FAMILIES)
def test_head_mask_of_ones_changes_no_bit(tiny_encoder, family):
    encoder = tiny_encoder(family)
    batch = batch_of(encoder)
    unmasked = states(encoder.model, batch)
    with head_mask(encoder.model, torch.ones(LAYERS, HEADS)):
        assert torch.equal(states(encoder.model, batch), unmasked)


@pytest.mark.parametrize("family", FAMILIES)
def test_head_mask_scales_attention_and_is_differentiable(tiny_encoder, family, monkeypatch):
    """Layers that share weights (ALBERT) are masked separately too."""
    encoder = tiny_encoder(family)
    batch = batch_of(encoder)
    mask = torch.rand(LAYERS, HEADS, generator=torch.Generator().manual_seed(1))
    mask[2, 3] = 0
    mask.requires_grad_()

    def output_and_gradient():
        output = encoder.model.base_model(**batch).last_hidden_state[batch["attention_mask"] > 0]
        return output, torch.autograd.grad((output**3).sum(), mask)[0]

    with head_mask(encoder.model, mask):
        masked, gradient = output_and_gradient()
        assert torch.equal(masked, states(encoder.model, batch))
    calls = patch_softmax(monkeypatch, lambda layer, _, maps: maps * mask[layer].view(1, -1, 1, 1))
    expected, expected_gradient = output_and_gradient()
    assert len(calls) == LAYERS
    torch.testing.assert_close(masked, expected, rtol=1e-4, atol=1e-5)
    assert gradient.abs().min() > 0
    assert (gradient - expected_gradient).abs().max() < 1e-3 * expected_gradient.abs().max()


@pytest.mark.parametrize("disable", [head_mask, uniform_attention])
def test_interventions_leave_no_trace_after_an_exception(tiny_encoder, disable):
    encoder = tiny_encoder("albert")
    batch = batch_of(encoder)
    before = states(encoder.model, batch)
    arguments = [torch.rand(LAYERS, HEADS)] if disable is head_mask else [1, 2]

    def interrupted(_module, _args):
        handle.remove()
        raise KeyboardInterrupt

    modules = encoder.model.named_modules()
    feed_forward = next(module for path, module in modules if path.endswith("ffn"))
    with pytest.raises(KeyboardInterrupt), disable(encoder.model, *arguments):
        handle = feed_forward.register_forward_pre_hook(interrupted)
        states(encoder.model, batch)
    assert torch.equal(states(encoder.model, batch), before)
    for module in encoder.model.modules():
        assert not module._forward_pre_hooks
        assert not [h for h in module._forward_hooks.values() if "keep_values" in str(h)]


@pytest.mark.parametrize("family", FAMILIES)
def test_uniform_attention_equals_a_uniform_softmax(tiny_encoder, family, monkeypatch):
    encoder = tiny_encoder(family)
    batch = batch_of(encoder)
    before = states(encoder.model, batch)
    with uniform_attention(encoder.model, 1, 2):
        disabled = states(encoder.model, batch)

    def flat(layer, scores, maps):
        """Make the maps of layer 1 uniform over the tokens that are not masked."""
        if layer != 1:
            return maps
        visible = (scores > -1e30).to(maps)
        uniform = visible / visible.sum(dim=-1, keepdim=True).clamp(min=1)  # padding sees nothing
        disabled_heads = torch.arange(HEADS) == 2
        return torch.where(disabled_heads[:, None, None], uniform, maps)

    patch_softmax(monkeypatch, flat)
    torch.testing.assert_close(disabled, states(encoder.model, batch), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(disabled, before, atol=1e-3)
    monkeypatch.undo()
    assert torch.equal(states(encoder.model, batch), before)


# Forward passes under interventions


class MeanOfTokens(nn.Module):
    def __init__(self, encoder):
        super().__init__()
        self.encoder = encoder.model.base_model

    def forward(self, **batch):
        return self.encoder(**batch).last_hidden_state.mean(dim=1)


def outputs_of(model, batch, interventions):
    """Stack the outputs of a batch, unchanged and under each intervention."""
    passes = head_removal.run_interventions(model, partial(model, **batch), interventions)
    return torch.stack(list(passes))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("family", FAMILIES)
def test_run_interventions_equals_full_passes_to_the_last_bit(tiny_encoder, family, threads):
    encoder = tiny_encoder(family)
    model = MeanOfTokens(encoder)
    mask = torch.ones(LAYERS, HEADS)
    mask[1, 2] = 0
    interventions = [
        Intervention(0, lambda model: uniform_attention(model, 0, 1)),
        Intervention(1, lambda model: head_mask(model, mask)),
        Intervention(2, lambda model: uniform_attention(model, 2, 0)),
        Intervention(2, lambda _: nullcontext()),
    ]
    batches = [batch_of(encoder), batch_of(encoder, "the dog watched", "coffee")]
    torch.set_num_threads(threads)
    sweep = partial(outputs_of, interventions=interventions)
    outputs_by_batch = head_removal.map_over_model_copies(model, batches, sweep, "sweep")
    assert torch.get_num_threads() == threads
    torch.set_num_threads(1)
    for batch, outputs in zip(batches, outputs_by_batch, strict=True):
        with torch.no_grad():
            expected = [model(**batch)]
            for _, context in interventions:
                with context(model):
                    expected.append(model(**batch))
        assert torch.equal(outputs, torch.stack(expected))
        assert not torch.equal(outputs[0], outputs[1])


def test_layers_below_an_intervention_are_computed_once_and_restored(tiny_encoder):
    encoder = tiny_encoder("bert")
    model = MeanOfTokens(encoder)
    calls = []
    for number, layer in enumerate(model.encoder.encoder.layer):
        layer.attention.register_forward_hook(lambda *_, number=number: calls.append(number))

    def interrupted(_model):
        raise KeyError

    interventions = [Intervention(2, lambda _: nullcontext()), Intervention(1, interrupted)]
    with pytest.raises(KeyError):
        outputs_of(model, batch_of(encoder), interventions)
    assert calls == [0, 1, 2, 2]
    assert not any("forward" in vars(layer) for layer in model.encoder.encoder.layer)


# Equivalence tests


def changes_from(*rows):
    """Make the table of changes from which examples are right; row 0: the unchanged model."""
    right = np.array(rows)
    return head_removal.accuracy_changes(Scores(right, 1.0 - right))


HALF_RIGHT = np.arange(160) % 2 == 0


def flipped(right, examples):
    """Flip which of the first examples are right."""
    changed = right.copy()
    changed[:examples] = ~changed[:examples]
    return changed


def test_accuracy_changes_without_any_change_is_removable():
    row = changes_from(HALF_RIGHT, HALF_RIGHT).iloc[0]
    assert row["p_value"] == 1
    assert row["removable"]
    assert (row["change_low"], row["change_high"]) == (0, 0)


def test_accuracy_changes_that_are_not_significant_need_not_be_removable():
    """Twenty of 160 examples are lost and twenty won."""
    row = changes_from(HALF_RIGHT, flipped(HALF_RIGHT, 40)).iloc[0]
    assert row["p_value"] == 1
    assert not row["removable"]
    margin = head_removal.MARGIN
    assert row["change_low"] < -margin < margin < row["change_high"]


def test_accuracy_changes_on_too_few_examples_are_not_removable():
    right = HALF_RIGHT[:140]
    table = changes_from(right, right)
    assert not table["removable"].any()


def test_accuracy_changes_on_many_examples_find_a_small_change_removable():
    right = np.tile(HALF_RIGHT, 25)  # 4,000 examples
    table = changes_from(right, flipped(right, 20))
    assert table["removable"].all()
