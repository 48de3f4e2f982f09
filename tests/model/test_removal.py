"""Heads that are removed by their names."""

import numpy as np
import pytest
import torch

from helpers import remove_heads
from helpers.errors import InputError
from helpers.model.sites import sites

IDS = torch.tensor([[2, 7, 8, 9, 3]])


def outputs(encoder):
    with torch.inference_mode():
        return encoder.model.base_model(IDS, output_attentions=True)


@pytest.mark.parametrize("family", ["bert", "distilbert", "gpt2", "modernbert", "t5"])
def test_remove_heads_zeroes_their_part_of_the_output_projection(tiny_encoder, family):
    encoder = tiny_encoder(family)
    before = outputs(encoder)
    received = []
    projection = sites(encoder.model)[1].output
    with remove_heads(encoder, ["2-1", (np.int64(2), 3)]):
        # A hook that comes later sees what the projection gets.
        hook = projection.register_forward_pre_hook(lambda _, args: received.append(args[0]))
        after = outputs(encoder)
    hook.remove()
    is_zero = (received[0].unflatten(-1, (4, -1)) == 0).all(-1)
    assert is_zero.all(dim=(0, 1)).tolist() == [True, False, True, False]
    assert torch.equal(before.attentions[1], after.attentions[1])  # their own weights stay
    assert not torch.equal(before.attentions[2], after.attentions[2])
    assert torch.equal(before[0], outputs(encoder)[0])


@pytest.mark.parametrize("head", ["4-1", (1, 5), (0, 1), "3", "head", (1, 2, 3), None])
def test_remove_heads_refuses_what_is_no_head(tiny_encoder, head):
    with pytest.raises(InputError, match="no head"), remove_heads(tiny_encoder("bert"), [head]):
        pass


def test_remove_heads_refuses_the_name_of_a_model():
    with pytest.raises(InputError, match="load_model"), remove_heads("minilm", ["1-1"]):
        pass
