"""Sweeps: a resumed pass is a full pass; what can be removed is shown on few examples or on all."""

from contextlib import nullcontext

import numpy as np
import pytest
import tiny_models
import torch
from torch import nn

from helpers.model.forward import padded
from helpers.studies import head_removal
from helpers.studies.head_mask import head_mask, uniform_attention
from helpers.studies.head_removal import (
    MARGIN,
    Change,
    LayerMemory,
    Scores,
    changes_of,
    in_looks,
    outputs_under,
)

LAYERS, HEADS = 3, 4


class MeanOfTokens(nn.Module):
    def __init__(self, encoder):
        super().__init__()
        self.encoder = encoder.model.base_model

    def forward(self, **batch):
        return self.encoder(**batch).last_hidden_state.mean(dim=1)


def batches_of(encoder):
    for texts in (("the cat sat on the mat", "rainy winters"), ("the dog watched", "coffee")):
        ids = [encoder.encode_words(text.split()).ids for text in texts]
        yield padded(encoder, [{"input_ids": i, "token_type_ids": [0] * len(i)} for i in ids])


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("family", sorted(tiny_models.FAMILIES))
def test_a_resumed_pass_is_a_full_pass_to_the_last_bit(tiny_encoder, family, threads):
    encoder = tiny_encoder(family)
    model = MeanOfTokens(encoder)
    mask = torch.ones(LAYERS, HEADS)
    mask[1, 2] = 0
    contexts = [
        (0, lambda model: uniform_attention(model, 0, 1)),
        (1, lambda model: head_mask(model, mask)),
        (2, lambda model: uniform_attention(model, 2)),
        (2, lambda _: nullcontext()),
    ]
    batches = list(batches_of(encoder))
    torch.set_num_threads(threads)
    found = outputs_under(model, batches, [Change(*c) for c in contexts], label="sweep")
    assert torch.get_num_threads() == threads
    torch.set_num_threads(1)
    assert len(found) == 2
    for batch, outputs in zip(batches, found, strict=True):
        with torch.no_grad():
            expected = [model(**batch)]
            for _, context in contexts:
                with context(model):
                    expected.append(model(**batch))
        assert torch.equal(outputs, torch.stack(expected))
        assert not torch.equal(outputs[0], outputs[1])


def test_skipped_layers_are_not_computed_and_come_back(tiny_encoder):
    encoder = tiny_encoder("bert")
    model = MeanOfTokens(encoder)
    layers = model.encoder.encoder.layer
    calls = []
    hooks = [
        layer.attention.register_forward_hook(lambda *_, number=number: calls.append(number))
        for number, layer in enumerate(layers)
    ]
    batch = next(batches_of(encoder))
    model(**batch)  # transformers puts hooks of its own in at the first pass
    calls.clear()
    before = [dict(layer._forward_hooks) for layer in layers]
    memory = LayerMemory(model)
    with memory.recording():
        model(**batch)
    with memory.resumed_at(2):
        model(**batch)
    with pytest.raises(KeyError), memory.resumed_at(1):
        raise KeyError
    model(**batch)
    for hook in hooks:
        hook.remove()
    assert calls == [0, 1, 2, 2, 0, 1, 2]
    assert not any("forward" in vars(layer) for layer in layers)
    assert [dict(layer._forward_hooks) for layer in layers] == before


def of(*rows, looks=1):
    """The table of changes of which examples are right: the first row is the unchanged model."""
    right = np.array(rows)
    return changes_of(Scores(right, 1.0 - right), looks=looks)


def test_what_is_not_significant_is_not_yet_removable():
    """Of 160 examples twenty lost and twenty won: neither a difference nor its absence."""
    before = np.arange(160) % 2 == 0
    same, few = before.copy(), before.copy()
    few[:40] = ~few[:40]
    table = of(before, same, few)
    assert table["p_value"].tolist() == [1, 1]
    assert table["removable"].tolist() == [True, False]
    low, high = table["ci_low"], table["ci_high"]
    assert (low[0], high[0]) == (0, 0) and low[1] < -MARGIN < MARGIN < high[1]
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

    monkeypatch.setattr(head_removal, "scores_under", scores)
    table, first = in_looks(None, list(range(1200)), [0, 1, 2, 3], "heads")
    assert asked == [(300, [0, 1, 2, 3]), (500, [1, 2, 3]), (400, [2, 3])]
    assert table["examples"].tolist() == [300, 800, 1200, 1200]
    assert table["removable"].tolist() == [True, True, True, False]
    assert table["change"].tolist() == pytest.approx([0, -0.75, -1, -10])
    assert table["loss_change"].tolist() == pytest.approx([0, 0.0075, 0.01, 0.1])
    assert table["p_value"].tolist() == pytest.approx([1, 2 * 0.5**6, 2 * 0.5**12, 2 * 0.5**120])
    assert not changes_of(scores(None, range(300), [1], ""), looks=3)["removable"].any()
    np.testing.assert_array_equal(first.right, rows[:, :300])
    few, first = in_looks(None, list(range(300)), [0, 1], "heads")  # there are no more
    assert first.right.shape == (3, 300)
    assert few["examples"].tolist() == [300, 300]


def test_looks_share_the_error_between_them():
    """22 of 1,600 lost: within two points at 5%, at 2.5%, not at a thousandth."""
    before = np.ones(1600, bool)
    after = np.arange(1600) >= 22  # 1.375 points, with a standard error of 0.29
    removable = [of(before, after, looks=n)["removable"].item() for n in (1, 2, 50)]
    assert removable == [True, True, False]
