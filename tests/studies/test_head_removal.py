"""Heads are masked and made uniform by definition; resumed passes are full; what can be removed."""

from contextlib import nullcontext
from functools import partial
from itertools import combinations

import numpy as np
import pytest
import tiny_models
import torch
from torch import nn
from torch.nn import functional as F

from helpers.model.forward import padded
from helpers.studies import head_removal
from helpers.studies.head_removal import (
    Change,
    Scores,
    head_mask,
    sequential_equivalence_test,
    uniform_attention,
)

LAYERS, HEADS = 3, 4
FAMILIES = sorted(tiny_models.FAMILIES)


def batch_of(encoder, *texts):
    """Two texts of different length: a long one and one with padding behind it."""
    texts = texts or ("the cat sat on the mat and the dog", "rainy winters")
    ids = [encoder.encode_words(text.split()).ids for text in texts]
    return padded(encoder, [{"input_ids": i, "token_type_ids": [0] * len(i)} for i in ids])


@torch.no_grad()
def states(model, batch):
    """Last hidden states of the real tokens, as one matrix."""
    output = model.base_model(**batch).last_hidden_state
    return output[batch["attention_mask"].bool()]


def reference(monkeypatch, change):
    """Make every softmax over scores give ``change(layer, scores, probabilities)``: a reference
    that knows nothing of projections, because ``(c A) V = c (A V)``."""
    softmax, calls = F.softmax, []

    def changed(scores, *args, **kwargs):
        calls.append(1)
        return change((len(calls) - 1) % LAYERS, scores, softmax(scores, *args, **kwargs))

    monkeypatch.setattr(F, "softmax", changed)
    return calls


@pytest.mark.parametrize("family", FAMILIES)
def test_a_mask_scales_the_heads_of_its_own_layer_and_is_differentiable(
    tiny_encoder, family, monkeypatch
):
    """Layers that share weights (ALBERT) are masked apart too."""
    encoder = tiny_encoder(family)
    batch = batch_of(encoder)
    whole = states(encoder.model, batch)
    with head_mask(encoder.model, torch.ones(LAYERS, HEADS)):
        assert torch.equal(states(encoder.model, batch), whole)  # to the last bit
    mask = torch.rand(LAYERS, HEADS, generator=torch.Generator().manual_seed(1))
    mask[2, 3] = 0
    mask.requires_grad_()

    def found():
        output = encoder.model.base_model(**batch).last_hidden_state[batch["attention_mask"] > 0]
        return output, torch.autograd.grad((output**3).sum(), mask)[0]

    with head_mask(encoder.model, mask):
        masked, gradient = found()
        assert torch.equal(masked, states(encoder.model, batch))
    calls = reference(monkeypatch, lambda layer, _, maps: maps * mask[layer].view(1, -1, 1, 1))
    expected, expected_gradient = found()
    assert len(calls) == LAYERS
    torch.testing.assert_close(masked, expected, rtol=1e-4, atol=1e-5)
    assert gradient.abs().min() > 0
    assert (gradient - expected_gradient).abs().max() < 1e-3 * expected_gradient.abs().max()


@pytest.mark.parametrize("disable", [head_mask, uniform_attention])
def test_the_model_is_as_before_after_an_exception(tiny_encoder, disable):
    encoder = tiny_encoder("albert")
    batch = batch_of(encoder)
    before = states(encoder.model, batch)
    argument = torch.rand(LAYERS, HEADS) if disable is head_mask else 1

    def interrupted(_module, _args):
        handle.remove()
        raise KeyboardInterrupt

    modules = encoder.model.named_modules()
    feed_forward = next(module for path, module in modules if path.endswith("ffn"))
    with pytest.raises(KeyboardInterrupt), disable(encoder.model, argument):
        handle = feed_forward.register_forward_pre_hook(interrupted)
        states(encoder.model, batch)
    assert torch.equal(states(encoder.model, batch), before)
    for module in encoder.model.modules():
        assert not module._forward_pre_hooks
        assert not [h for h in module._forward_hooks.values() if "keep_values" in str(h)]


@pytest.mark.parametrize("head", [2, None])
@pytest.mark.parametrize("family", FAMILIES)
def test_uniform_attention_is_what_a_flat_softmax_gives(tiny_encoder, family, head, monkeypatch):
    encoder = tiny_encoder(family)
    batch = batch_of(encoder)
    before = states(encoder.model, batch)
    with uniform_attention(encoder.model, 1, head):
        disabled = states(encoder.model, batch)

    def flat(layer, scores, maps):
        """Give uniform maps of layer 1, over what it is not masked from."""
        allowed = (scores > -1e30).to(maps)
        uniform = allowed / allowed.sum(dim=-1, keepdim=True).clamp(min=1)  # padding sees nothing
        chosen = torch.arange(HEADS) == head if head is not None else torch.ones(HEADS).bool()
        return torch.where(chosen[:, None, None], uniform, maps) if layer == 1 else maps

    reference(monkeypatch, flat)
    torch.testing.assert_close(disabled, states(encoder.model, batch), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(disabled, before, atol=1e-3)
    monkeypatch.undo()
    assert torch.equal(states(encoder.model, batch), before)


def test_encoder_decoder_and_cross_attention_are_masked_apart():
    translator = tiny_models.spread(tiny_models.t5()[0]).eval()
    encoder, decoder = translator.get_encoder(), translator.get_decoder()
    ids = torch.tensor([[5, 6, 7, 8, 1]])

    @torch.no_grad()
    def run():
        return translator(input_ids=ids, decoder_input_ids=ids).logits

    mask = torch.ones(LAYERS, HEADS)
    mask[1, 2] = 0
    results = [run()]
    for module, cross in ((encoder, False), (decoder, False), (decoder, True)):
        with head_mask(module, mask, cross=cross):
            results.append(run())
    assert torch.equal(run(), results[0])
    for one, other in combinations(results, 2):
        assert not torch.equal(one, other)


# Sweeps


class MeanOfTokens(nn.Module):
    def __init__(self, encoder):
        super().__init__()
        self.encoder = encoder.model.base_model

    def forward(self, **batch):
        return self.encoder(**batch).last_hidden_state.mean(dim=1)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_resumed_pass_is_a_full_pass_to_the_last_bit(tiny_encoder, family, threads):
    encoder = tiny_encoder(family)
    model = MeanOfTokens(encoder)
    mask = torch.ones(LAYERS, HEADS)
    mask[1, 2] = 0
    changes = [
        Change(0, lambda model: uniform_attention(model, 0, 1)),
        Change(1, lambda model: head_mask(model, mask)),
        Change(2, lambda model: uniform_attention(model, 2)),
        Change(2, lambda _: nullcontext()),
    ]
    batches = [batch_of(encoder), batch_of(encoder, "the dog watched", "coffee")]
    torch.set_num_threads(threads)
    sweep = partial(head_removal.intervened_outputs, interventions=changes)
    found = head_removal.side_by_side(model, batches, sweep, "sweep")
    assert torch.get_num_threads() == threads
    torch.set_num_threads(1)
    for batch, outputs in zip(batches, found, strict=True):
        with torch.no_grad():
            expected = [model(**batch)]
            for _, context in changes:
                with context(model):
                    expected.append(model(**batch))
        assert torch.equal(outputs, torch.stack(expected))
        assert not torch.equal(outputs[0], outputs[1])


def test_layers_below_a_change_are_not_computed_and_come_back(tiny_encoder):
    encoder = tiny_encoder("bert")
    model, calls = MeanOfTokens(encoder), []
    for number, layer in enumerate(model.encoder.encoder.layer):
        layer.attention.register_forward_hook(lambda *_, number=number: calls.append(number))

    def interrupted(_model):
        raise KeyError

    changes = [Change(2, lambda _: nullcontext()), Change(1, interrupted)]
    with pytest.raises(KeyError):
        head_removal.intervened_outputs(model, batch_of(encoder), changes)
    assert calls == [0, 1, 2, 2]
    assert not any("forward" in vars(layer) for layer in model.encoder.encoder.layer)


def of(*rows, looks=1):
    """The table of changes of which examples are right: the first row is the unchanged model."""
    right = np.array(rows)
    return head_removal.accuracy_changes(Scores(right, 1.0 - right), test_count=looks)


def test_what_is_not_significant_is_not_yet_removable():
    """Of 160 examples twenty lost and twenty won: neither a difference nor its absence."""
    before = np.arange(160) % 2 == 0
    same, few = before.copy(), before.copy()
    few[:40] = ~few[:40]
    table = of(before, same, few)
    assert table["p_value"].tolist() == [1, 1]
    assert table["removable"].tolist() == [True, False]
    low, high, margin = table["ci_low"], table["ci_high"], head_removal.MARGIN
    assert (low[0], high[0]) == (0, 0) and low[1] < -margin < margin < high[1]
    assert not of(before[:140], same[:140])["removable"].any()  # too few
    assert not of(before, same, looks=2)["removable"].any()  # too few for two looks
    many = np.tile(before, 25)
    once = many.copy()
    once[:20] = ~once[:20]  # of 4,000: found to be no change, however significant
    assert of(many, once)["removable"].all()


def test_what_a_look_does_not_settle_is_scored_on_more_examples(monkeypatch):
    """Four changes: none, two that the first look sees as larger than they are, a large one."""
    whole = np.arange(1200) % 10 > 0
    unlucky, late, bad = whole.copy(), whole.copy(), whole.copy()
    unlucky[1:7] = False  # 2 points of the first 300, 0.75 of 800
    late[1:14] = False  # 12 lost: 4 points, 1.5 of 800, 1 of all
    bad[5::10] = False
    rows = np.array([whole, whole, unlucky, late, bad])
    asked = []

    def scores(run, pairs, changes, label):
        asked.append((len(pairs), list(changes)))
        right = rows[[0, *(change + 1 for change in changes)]][:, pairs]
        return Scores(right, 1.0 - right)

    monkeypatch.setattr(head_removal, "evaluate_interventions", scores)
    looks = (300, 800, 1200)
    table, first = sequential_equivalence_test(
        None, list(range(1200)), [0, 1, 2, 3], "heads", looks
    )
    assert asked == [(300, [0, 1, 2, 3]), (500, [1, 2, 3]), (400, [2, 3])]
    assert table["examples"].tolist() == [300, 800, 1200, 1200]
    assert table["removable"].tolist() == [True, True, True, False]
    assert table["change"].tolist() == pytest.approx([0, -0.75, -1, -10])
    assert table["loss_change"].tolist() == pytest.approx([0, 0.0075, 0.01, 0.1])
    assert table["p_value"].tolist() == pytest.approx([1, 2 * 0.5**6, 2 * 0.5**12, 2 * 0.5**120])
    np.testing.assert_array_equal(first.right, rows[:, :300])
    few, _ = sequential_equivalence_test(
        None, list(range(300)), [0, 1], "heads"
    )  # there are no more
    assert few["examples"].tolist() == [300, 300]
    most, _ = sequential_equivalence_test(
        None, list(range(1200)), [3], "heads"
    )  # no more are taken
    assert most["examples"].tolist() == [800]
