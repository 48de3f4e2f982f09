"""Maps in blocks of rows are those of whole maps; tests/zoo.py checks them in every family."""

import pytest
import torch
from tolerances import weights_error

from beyond.long_texts import check_blocks, rows_in_blocks
from helpers.errors import ModelError
from helpers.model.forward import forward

# Sixteen words or more: longer than the sliding window of the tiny ModernBERT.
TEXT = "MKTAYI the cat sat on the mat and the dog watched it"


@pytest.mark.parametrize("family", ["bert", "t5", "modernbert", "gpt2", "llama"])
def test_blocks_of_a_family_are_the_rows_of_its_maps(family, tiny_encoder):
    encoder = tiny_encoder(family)
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
    again, _ = forward(encoder, [inputs])
    assert all(map(torch.equal, again, expected)), "the model is as it was"


def test_a_family_with_attention_of_its_own_is_refused(tiny_encoder):
    check_blocks(tiny_encoder("llama"))
    with pytest.raises(ModelError, match="interface of transformers"):
        check_blocks(tiny_encoder("mpnet"))
