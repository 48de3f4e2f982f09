"""Linear layers that are convolutions."""

import copy

import pytest
import torch
from torch import nn

from helpers.model.linear import convolve


@pytest.mark.parametrize("shape", [(3, 5, 8), (1, 1, 8), (5, 8)])
def test_outputs_and_gradients_are_those_of_the_linear_layer(shape):
    x, found = torch.randn(shape, generator=torch.Generator().manual_seed(0)), []
    model = nn.Sequential(nn.Linear(8, 6), nn.GELU(), nn.Linear(6, 4))
    convolved = copy.deepcopy(model)
    convolve(convolved)
    for own in (model, copy.deepcopy(convolved)):
        own(x).square().sum().backward()
        found.append([own(x), *(weights.grad for weights in own.parameters())])
    torch.testing.assert_close(*found, atol=1e-5, rtol=1e-5)
    assert list(model.state_dict()) == list(convolved.state_dict())
