from contextlib import nullcontext

import pytest
import tiny_models
import torch
from torch import nn

from helpers.model.forward import padded
from helpers.studies.head_mask import head_mask, uniform_attention
from helpers.studies.head_removal import Change, LayerMemory, outputs_under

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
