import copy

import pytest
import tiny_models
import torch
import transformers as hf
from torch import nn
from torch.nn import functional as F

from helpers.errors import ModelError
from helpers.model.forward import padded
from helpers.model.sites import sites
from helpers.studies.head_mask import head_mask, uniform_attention

LAYERS, HEADS, WIDTH = 3, 4, 6
FAMILIES = sorted(tiny_models.FAMILIES)


def batch_of(encoder):
    """Two texts of different length: a long one and one with padding behind it."""
    texts = "the cat sat on the mat and the dog", "rainy winters"
    ids = [encoder.encode_words(text.split()).ids for text in texts]
    return padded(encoder, [{"input_ids": i, "token_type_ids": [0] * len(i)} for i in ids])


@torch.no_grad()
def states(model, batch):
    """Last hidden states of the real tokens, as one matrix."""
    output = model.base_model(**batch).last_hidden_state
    return output[batch["attention_mask"].bool()]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_mask_of_ones_changes_no_bit(tiny_encoder, family):
    encoder = tiny_encoder(family)
    batch = batch_of(encoder)
    before = states(encoder.model, batch)
    with head_mask(encoder.model, torch.ones(encoder.layers, encoder.heads)):
        assert torch.equal(states(encoder.model, batch), before)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_zero_is_the_removal_of_the_heads_columns(tiny_encoder, family):
    encoder = tiny_encoder(family)
    batch = batch_of(encoder)
    mask = torch.ones(LAYERS, HEADS)
    mask[0, 1] = mask[2, 3] = 0
    without = copy.deepcopy(encoder.model)
    if family == "albert":  # one projection serves all layers, so only whole columns compare
        mask = torch.ones(LAYERS, HEADS)
        mask[:, 1] = 0
    for layer, module in enumerate(site.output for site in sites(without)):
        columns = module.weight if family == "gpt2" else module.weight.T  # [input, output]
        for head in range(HEADS):
            if not mask[layer, head]:
                columns.data[head * WIDTH : (head + 1) * WIDTH] = 0
    with head_mask(encoder.model, mask):
        masked = states(encoder.model, batch)
    torch.testing.assert_close(masked, states(without, batch), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(masked, states(encoder.model, batch), atol=1e-3)


def reference_masked(monkeypatch, mask):
    """Make every softmax over scores give probabilities scaled by the mask: a reference that
    knows nothing of projections, because ``(c A) V = c (A V)``."""
    softmax, calls = F.softmax, []

    def scaled(scores, *args, **kwargs):
        weights = softmax(scores, *args, **kwargs)
        calls.append(1)
        return weights * mask[(len(calls) - 1) % LAYERS].view(1, -1, 1, 1)

    monkeypatch.setattr(F, "softmax", scaled)
    return calls


@pytest.mark.parametrize("family", FAMILIES)
def test_every_layer_has_its_own_row_of_the_mask(tiny_encoder, family, monkeypatch):
    """Layers that share weights (ALBERT) are masked apart too."""
    encoder = tiny_encoder(family)
    batch = batch_of(encoder)
    mask = torch.rand(LAYERS, HEADS, generator=torch.Generator().manual_seed(1))
    with head_mask(encoder.model, mask):
        masked = states(encoder.model, batch)
        again = states(encoder.model, batch)
    calls = reference_masked(monkeypatch, mask)
    expected = states(encoder.model, batch)
    assert len(calls) == LAYERS
    torch.testing.assert_close(masked, expected, rtol=1e-4, atol=1e-5)
    assert torch.equal(masked, again)


def cubes(model, batch):
    output = model.base_model(**batch).last_hidden_state
    return (output[batch["attention_mask"].bool()] ** 3).sum()


@pytest.mark.parametrize("family", FAMILIES)
def test_the_output_is_differentiable_in_the_mask(tiny_encoder, family, monkeypatch):
    encoder = tiny_encoder(family)
    batch = batch_of(encoder)
    mask = torch.ones(LAYERS, HEADS, requires_grad=True)
    with head_mask(encoder.model, mask):
        (gradient,) = torch.autograd.grad(cubes(encoder.model, batch), mask)
    reference_masked(monkeypatch, mask)
    (expected,) = torch.autograd.grad(cubes(encoder.model, batch), mask)
    assert gradient.abs().min() > 0
    assert (gradient - expected).abs().max() < 1e-3 * expected.abs().max()


def test_every_example_can_have_its_own_mask(tiny_encoder):
    """The gradient of a summed loss is then that of each example alone."""
    encoder = tiny_encoder("roberta")
    batch = batch_of(encoder)
    masks = torch.rand(LAYERS, 2, HEADS, requires_grad=True)
    with head_mask(encoder.model, masks):
        output = encoder.model.base_model(**batch).last_hidden_state
    (together,) = torch.autograd.grad((output[batch["attention_mask"].bool()] ** 3).sum(), masks)
    for row in range(2):
        alone = {name: value[row : row + 1] for name, value in batch.items()}
        mask = masks[:, row].detach().requires_grad_()
        with head_mask(encoder.model, mask):
            (gradient,) = torch.autograd.grad(cubes(encoder.model, alone), mask)
        torch.testing.assert_close(together[:, row], gradient, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("disable", [head_mask, uniform_attention])
def test_the_model_is_as_before_after_an_exception(tiny_encoder, disable):
    encoder = tiny_encoder("albert")
    batch = batch_of(encoder)
    before = states(encoder.model, batch)
    argument = torch.rand(LAYERS, HEADS) if disable is head_mask else 1

    def interrupted(_module, _args):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), disable(encoder.model, argument):
        states(encoder.model, batch)
        feed_forward = encoder.model.get_submodule(
            next(path for path, _ in encoder.model.named_modules() if path.endswith("ffn"))
        )
        handle = feed_forward.register_forward_pre_hook(interrupted)
        try:
            states(encoder.model, batch)
        finally:
            handle.remove()
    assert torch.equal(states(encoder.model, batch), before)
    for module in encoder.model.modules():
        assert not module._forward_pre_hooks
        assert not [h for h in module._forward_hooks.values() if "keep_values" in str(h)]


def test_an_interrupted_pass_does_not_shift_shared_layers(tiny_encoder):
    encoder = tiny_encoder("albert")
    batch = batch_of(encoder)
    mask = torch.rand(LAYERS, HEADS)
    with head_mask(encoder.model, mask):
        expected = states(encoder.model, batch)
        calls = []

        def stop_in_the_second_layer(_module, _args):
            calls.append(1)
            if len(calls) == 2:
                raise RuntimeError

        handle = sites(encoder.model)[0].values.register_forward_pre_hook(stop_in_the_second_layer)
        with pytest.raises(RuntimeError):
            states(encoder.model, batch)
        handle.remove()
        assert torch.equal(states(encoder.model, batch), expected)


def reference_uniform(monkeypatch, layer, heads):
    """Make the softmax of one layer uniform over what it is not masked from."""
    softmax, calls = F.softmax, []

    def flat(scores, *args, **kwargs):
        weights = softmax(scores, *args, **kwargs)
        if len(calls) == layer:
            allowed = (scores > -1e30).to(weights)
            uniform = allowed / allowed.sum(dim=-1, keepdim=True).clamp(
                min=1
            )  # padding sees nothing
            weights = weights.clone()
            weights[:, heads] = uniform.expand_as(weights)[:, heads]
        calls.append(1)
        return weights

    monkeypatch.setattr(F, "softmax", flat)


@pytest.mark.parametrize("head", [2, None])
@pytest.mark.parametrize("family", FAMILIES)
def test_uniform_attention_is_what_a_flat_softmax_gives(tiny_encoder, family, head, monkeypatch):
    encoder = tiny_encoder(family)
    batch = batch_of(encoder)
    before = states(encoder.model, batch)
    with uniform_attention(encoder.model, 1, head):
        disabled = states(encoder.model, batch)
    reference_uniform(monkeypatch, 1, slice(None) if head is None else [head])
    torch.testing.assert_close(disabled, states(encoder.model, batch), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(disabled, before, atol=1e-3)
    monkeypatch.undo()
    assert torch.equal(states(encoder.model, batch), before)


def test_uniform_attention_by_hand(tiny_encoder):
    """The head's context is the plain mean of the value vectors of the unpadded tokens."""
    encoder = tiny_encoder("bert")
    batch = batch_of(encoder)
    site = sites(encoder.model)[0]
    seen = {}
    hooks = [
        site.values.register_forward_hook(lambda _m, _a, out: seen.update(values=out)),
    ]
    with uniform_attention(encoder.model, 0, 1):
        hooks.append(site.output.register_forward_pre_hook(lambda _m, a: seen.update(context=a[0])))
        states(encoder.model, batch)
    for hook in hooks:
        hook.remove()
    columns = slice(WIDTH, 2 * WIDTH)
    for row in range(2):
        real = batch["attention_mask"][row].bool()
        mean = seen["values"][row, real, columns].mean(dim=0)
        expected = mean.expand(int(real.sum()), -1)
        torch.testing.assert_close(seen["context"][row, real, columns], expected)


def test_a_model_without_attention_is_refused(tiny_encoder):
    with pytest.raises(ModelError, match="no attention"):
        sites(nn.Linear(2, 2))
    with pytest.raises(ModelError, match="no cross-attention"):
        sites(tiny_encoder("bert").model, cross=True)


def test_a_classifier_around_the_encoder_is_masked_the_same(tiny_encoder):
    encoder = tiny_encoder("roberta")
    batch = batch_of(encoder)
    mask = torch.rand(LAYERS, HEADS)

    class Wrapper(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = encoder.model.base_model

        def forward(self, **batch):
            return self.encoder(**batch).last_hidden_state[batch["attention_mask"].bool()]

    with head_mask(encoder.model, mask):
        expected = states(encoder.model, batch)
    wrapper = Wrapper()
    with head_mask(wrapper, mask), torch.no_grad():
        assert torch.equal(wrapper(**batch), expected)
    with uniform_attention(wrapper, 1), torch.no_grad():
        disabled = wrapper(**batch)
    with uniform_attention(encoder.model, 1):
        assert torch.equal(disabled, states(encoder.model, batch))


@pytest.fixture(scope="module", params=["marian", "t5"])
def translator(request):
    torch.manual_seed(0)
    if request.param == "t5":
        model, _ = tiny_models.t5()
    else:
        sizes = dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), HEADS)
        sizes |= dict.fromkeys(("encoder_layers", "decoder_layers"), LAYERS)
        sizes |= dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 32)
        config = hf.MarianConfig(
            vocab_size=40, d_model=24, pad_token_id=0, decoder_start_token_id=0, eos_token_id=1,
            **sizes,
        )  # fmt: skip
        model = hf.MarianMTModel(config)
    return tiny_models.spread(model).eval()


def test_encoder_decoder_and_cross_attention_are_masked_apart(translator):
    encoder, decoder = translator.get_encoder(), translator.get_decoder()
    parts = {
        "encoder": (encoder, {}), "decoder": (decoder, {}), "cross": (decoder, {"cross": True}),
    }  # fmt: skip
    ids = torch.tensor([[5, 6, 7, 8, 1]])
    projections = {}
    for part, (module, how) in parts.items():
        projections[part] = [id(site.output) for site in sites(module, **how)]
        assert len(projections[part]) == LAYERS
    assert len({i for part in projections.values() for i in part}) == 3 * LAYERS

    @torch.no_grad()
    def run():
        return translator(input_ids=ids, decoder_input_ids=ids).logits

    before = run()
    results = []
    for module, how in parts.values():
        with head_mask(module, torch.ones(LAYERS, HEADS), **how):
            assert torch.equal(run(), before)
        mask = torch.ones(LAYERS, HEADS)
        mask[1, 2] = 0
        with head_mask(module, mask, **how):
            results.append(run())
        assert torch.equal(run(), before)
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert not torch.equal(results[one], results[other])
