"""Which keys the layers of a model see, found from the mask that it computes."""

import pytest
import tiny_models
import torch
import transformers as hf

from helpers.data.records import Visible, visible_mask
from helpers.model.forward import forward, model_inputs
from helpers.model.weights import computed_masks, probe_visible

FULL = Visible(causal=False, window=None)
CAUSAL = Visible(causal=True, window=None)
EXPECTED = {
    "bert": {FULL},
    "t5": {FULL},
    "gpt2": {CAUSAL},
    "llama": {CAUSAL},
    # ModernBERT counts the tokens on both sides; some of its layers are global.
    "modernbert": {FULL, Visible(causal=False, window=4)},
}


def visible_of(encoder):
    return [Visible(**layer) for layer in encoder.visible]


@pytest.mark.parametrize(("family", "expected"), EXPECTED.items())
def test_visible_of_a_family(family, expected, tiny_encoder):
    assert set(visible_of(tiny_encoder(family))) == expected


@pytest.mark.parametrize("family", EXPECTED)
def test_no_weight_is_outside_of_the_visible_keys(family, tiny_encoder):
    encoder = tiny_encoder(family)
    maps, _ = forward(encoder, [model_inputs(encoder, {"words": ["the"] * 20})])
    for layer, visible in zip(maps, visible_of(encoder), strict=True):
        mask = torch.from_numpy(visible_mask(visible, layer.shape[-1]))
        assert not layer[..., ~mask].any()
        assert layer[..., mask].any()


@pytest.mark.parametrize(("sliding_window", "positions"), [(8, 64), (100, 400), (300, 1000)])
def test_probe_visible_of_causal_windows(sliding_window, positions):
    """Shorter and longer than the input of the probe; the number counts the token itself."""
    model, _ = tiny_models.llama()
    config = hf.MistralConfig(
        vocab_size=model.config.vocab_size, num_key_value_heads=2, sliding_window=sliding_window,
        **{**tiny_models.SIZES, "max_position_embeddings": positions},
    )  # fmt: skip
    model = hf.MistralModel._from_config(config, attn_implementation="eager").eval()
    ids = torch.tensor([[5, 6, 7]])
    expected = Visible(causal=True, window=sliding_window - 1)
    assert set(probe_visible(model, ids, positions)) == {expected}
    n = min(positions, sliding_window + 50)
    assert all((mask == visible_mask(expected, n)).all() for mask in computed_masks(model, ids, n))


def test_probe_visible_refuses_a_mask_without_a_baseline(tiny_encoder, monkeypatch):
    blocks = torch.block_diag(torch.ones(8, 8), torch.ones(8, 8)).numpy() > 0
    monkeypatch.setattr("helpers.model.weights.computed_masks", lambda *_: [blocks, blocks])
    with pytest.raises(ValueError, match="in layer 1 is neither all tokens"):
        probe_visible(tiny_encoder("bert").model, torch.tensor([[2, 3]]), 64)
