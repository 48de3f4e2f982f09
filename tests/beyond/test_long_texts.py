"""Maps in blocks of rows are those of whole maps, in every family that uses the interface."""

from __future__ import annotations

import pytest
import torch
import zoo
from tolerances import weights_error
from zoo import ZOO

from beyond.long_texts import check_blocks, rows_in_blocks
from helpers.errors import ModelError
from helpers.model.forward import forward
from helpers.model.loading import Model

# Sixteen words or more: longer than the sliding windows of the zoo, which have eight keys.
TEXT = "MKTAYI the cat sat on the mat and the dog watched it"
WITHOUT_INTERFACE = {
    "MPNet", "DeBERTa", "DeBERTa-v2 and v3", "RoFormer", "RemBERT", "LUKE",
    "BigBird (original_full)", "XLM (with tokenizer.json)", "FlauBERT (with tokenizer.json)",
    "XLNet", "BLOOM", "Falcon",
}  # fmt: skip
READ = [family.name for family in ZOO if not family.refusal]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    return zoo.save_and_load(tmp_path_factory.mktemp("zoo"))


def inputs_of(encoder):
    encoding = encoder.tokenizer.backend_tokenizer.encode(TEXT)
    return {"input_ids": encoding.ids, "token_type_ids": encoding.type_ids}


def whole_of_blocks(encoder, inputs, **options):
    """Put the blocks of each layer together; the order in which they come is checked."""
    layers = {}

    def receive(layer, first, rows):
        assert first == sum(block.shape[1] for block in layers.setdefault(layer, []))
        assert layer == len(layers) - 1
        layers[layer].append(rows)

    rows_in_blocks(encoder, inputs, receive, **options)
    return [torch.cat(blocks, dim=1) for blocks in layers.values()]


def assert_same_weights(maps, expected):
    torch.testing.assert_close(maps, expected, rtol=0, atol=weights_error(expected))


@pytest.mark.parametrize("name", READ)
def test_blocks_of_a_family_are_the_rows_of_its_maps(name, loaded):
    encoder = loaded[name]
    assert isinstance(encoder, Model), encoder
    inputs = inputs_of(encoder)
    expected, _ = forward(encoder, [inputs])
    if name in WITHOUT_INTERFACE:
        for call in (whole_of_blocks, lambda *_: check_blocks(encoder)):
            with pytest.raises(ModelError, match="interface of transformers"):
                call(encoder, inputs)
    else:
        for n_queries in (5, 16, 1000):
            maps = whole_of_blocks(encoder, inputs, n_queries=n_queries)
            for layer, expected_layer in zip(maps, expected, strict=True):
                assert_same_weights(layer, expected_layer[0])
        check_blocks(encoder)
    again, _ = forward(encoder, [inputs])
    assert all(map(torch.equal, again, expected)), "the model is as it was"


@pytest.mark.parametrize("name", ["BERT", "Mistral", "GPT-OSS"])
def test_heads_with_temperatures_have_blocks_too(name, loaded):
    encoder = loaded[name]
    factors = torch.linspace(0.2, 3, encoder.layers * encoder.heads)
    control = encoder.with_temperatures(factors.unflatten(0, (encoder.layers, -1)).tolist(), {})
    inputs = inputs_of(control)
    expected, _ = forward(control, [inputs])
    assert not torch.allclose(expected[-1], forward(encoder, [inputs])[0][-1], atol=1e-3)
    for layer, expected_layer in zip(
        whole_of_blocks(control, inputs, n_queries=5), expected, strict=True
    ):
        assert_same_weights(layer, expected_layer[0])


def test_an_error_while_rows_are_received_leaves_the_model_as_it_was(loaded):
    encoder = loaded["Llama"]

    def fail(*_):
        raise InterruptedError

    with pytest.raises(InterruptedError):
        rows_in_blocks(encoder, inputs_of(encoder), fail)
    maps, _ = forward(encoder, [inputs_of(encoder)])
    assert len(maps) == encoder.layers
