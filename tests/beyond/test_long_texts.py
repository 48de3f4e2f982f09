"""Maps in blocks of rows are those of whole maps, in every family that uses the interface."""

import pytest
import torch
import zoo
from tolerances import weights_error
from zoo import ZOO

from beyond.long_texts import check_blocks, rows_in_blocks
from helpers.errors import ModelError
from helpers.model.forward import forward

# Sixteen words or more: longer than the sliding windows of the zoo, which have eight keys.
TEXT = "MKTAYI the cat sat on the mat and the dog watched it"
WITHOUT_INTERFACE = {
    "MPNet", "DeBERTa", "DeBERTa-v2 and v3", "RoFormer", "RemBERT", "LUKE",
    "BigBird (original_full)", "XLM (with tokenizer.json)", "FlauBERT (with tokenizer.json)",
    "XLNet", "BLOOM", "Falcon", "DiffLlama",
}  # fmt: skip
READ = [family.name for family in ZOO if not family.refusal]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    return zoo.save_and_load(tmp_path_factory.mktemp("zoo"))


def check_against_whole_maps(encoder):
    encoding = encoder.tokenizer.backend_tokenizer.encode(TEXT)
    inputs = {"input_ids": encoding.ids, "token_type_ids": encoding.type_ids}
    expected, _ = forward(encoder, [inputs])
    for n_queries in (5, 16, 1000):
        layers = [[] for _ in expected]

        def receive(layer, first, rows, layers=layers):
            assert first == sum(block.shape[1] for block in layers[layer])
            assert not any(layers[layer + 1 :])
            layers[layer].append(rows)

        rows_in_blocks(encoder, inputs, receive, n_queries=n_queries)
        for blocks, rows in zip(layers, expected, strict=True):
            error = weights_error(rows[0])
            torch.testing.assert_close(torch.cat(blocks, dim=1), rows[0], rtol=0, atol=error)
    check_blocks(encoder)
    again, _ = forward(encoder, [inputs])
    assert all(map(torch.equal, again, expected)), "the model is as it was"


@pytest.mark.parametrize("name", READ)
def test_blocks_of_a_family_are_the_rows_of_its_maps(name, loaded):
    if name in WITHOUT_INTERFACE:
        with pytest.raises(ModelError, match="interface of transformers"):
            check_blocks(loaded[name])
    else:
        check_against_whole_maps(loaded[name])
