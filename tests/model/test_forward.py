"""Words and the norm lens, against slow loops over heads and the attention block's own output."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import numpy as np
import pytest
import tiny_models
import torch
import transformers as hf
from store_tools import cache_at
from tiny_models import FAMILIES
from tolerances import float32_error

from helpers.errors import ModelError
from helpers.model.forward import (
    forward,
    length_batches,
    lens_pass,
    model_inputs,
    norm_maps,
    number_words,
    to_words,
    to_words_by_matrix,
    vectors_to_words,
    word_matrix,
)
from helpers.model.loading import load_model
from helpers.model.sites import sites
from helpers.store.extract import extract

HALF = {"rtol": 2**-10, "atol": 2**-22}  # float16 precision, and float32 noise before rounding


@pytest.fixture(params=[*FAMILIES, "llama"])
def encoder(request, tiny_encoder):
    return tiny_encoder(request.param)


def first_of(modules, *names):
    """The first of some modules that there is."""
    for name in names:
        if name in modules:
            return modules[name]
    raise LookupError(names)


def projections(attention, model_type):
    """The weights and biases of a layer's values [width of the model, all heads] and of its output
    [all heads, width of the model], read off the modules' own names, not off the lens."""
    modules = {name.rpartition(".")[2]: module for name, module in attention.named_modules()}
    output = first_of(modules, "out_lin", "o", "Wo", "c_proj", "o_proj", "dense")
    if model_type == "mpnet":
        output = modules["o"]
    output_weight = output.weight if model_type == "gpt2" else output.weight.T
    if model_type == "gpt2":
        weight = modules["c_attn"].weight.chunk(3, -1)[2]
        bias = modules["c_attn"].bias.chunk(3)[2]
    elif model_type == "modernbert":
        weight = modules["Wqkv"].weight.chunk(3)[2].T
        bias = None
    elif model_type == "deberta":  # each head has its queries, keys and values side by side
        width = modules["in_proj"].weight.shape[1]
        by_head = modules["in_proj"].weight.view(4, 3, -1, width)[:, 2]
        weight = by_head.reshape(-1, width).T
        bias = modules["self"].v_bias
    else:
        value = first_of(modules, "value", "value_proj", "v_lin", "v", "v_proj")
        weight = value.weight.T
        bias = value.bias
    if model_type == "llama":  # two heads share each of the values
        weight = weight.unflatten(1, (2, -1)).repeat_interleave(2, dim=1).flatten(1)
        bias = bias.unflatten(0, (2, -1)).repeat_interleave(2, dim=0).flatten()
    if bias is None:
        bias = torch.zeros(weight.shape[1])
    return weight, bias, output_weight, output.bias


def attention_module(model, site):
    """The outermost attention module that an output projection is part of."""
    for module in model.modules():
        if "Attention" in type(module).__name__ and site.output in module.modules():
            return module
    raise LookupError(site)


def recorded_layers(encoder, record):
    """For each layer: its module, the input of its values, its map, and its projected output."""
    layers = sites(encoder.model)
    value_inputs = []
    block_outputs = []

    def record_value_input(_module, args, _output):
        value_inputs.append(args[0])

    def record_block_output(_module, _args, output):
        block_outputs.append(output)

    with ExitStack() as hooks:
        for site in {site.values: site for site in layers}.values():
            hooks.callback(site.values.register_forward_hook(record_value_input).remove)
            hooks.callback(site.output.register_forward_hook(record_block_output).remove)
        maps, _ = forward(encoder, [model_inputs(encoder, record)])
    for site, x, weights, output in zip(layers, value_inputs, maps, block_outputs, strict=True):
        module = attention_module(encoder.model, site)
        yield module, x[0].double(), weights[0].double(), output[0].double()


RECORD = {"words": ["the", "cat", "doesn't", "sit", "on", "rainy", "re-election", "."]}


@torch.no_grad()
def norm_maps_by_loops(encoder, record):
    """Norm maps by a loop over heads, queries and keys; each block's output is checked too."""
    maps = []
    for module, x, weights, output in recorded_layers(encoder, record):
        w_v, b_v, w_o, b_o = projections(module, encoder.model.config.model_type)
        w_v = w_v.double()
        b_v = b_v.double()
        w_o = w_o.double()
        heads, n, _ = weights.shape
        width = w_o.shape[0] // heads
        total = torch.zeros(n, w_o.shape[1], dtype=torch.double)
        sizes = torch.zeros(heads, n, n, dtype=torch.double)
        for h in range(heads):
            columns = slice(h * width, (h + 1) * width)
            for j in range(n):
                f = (x[j] @ w_v[:, columns] + b_v[columns]) @ w_o[columns]
                for i in range(n):
                    total[i] += weights[h, i, j] * f
                    sizes[h, i, j] = (weights[h, i, j] * f).norm()
        if b_o is not None:
            total += b_o.double()
        torch.testing.assert_close(total, output, rtol=1e-3, atol=1e-4 * output.abs().max().item())
        maps.append(sizes / sizes.sum(-1, keepdim=True))
    return torch.stack(maps)


def test_norm_maps_are_those_of_a_loop_and_add_up_to_the_output(encoder):
    inputs = [model_inputs(encoder, RECORD)]
    with lens_pass(encoder, "norm") as run:
        maps, states = run(inputs)
    expected = norm_maps_by_loops(encoder, RECORD)
    measured = torch.stack(maps)[:, 0].double()
    torch.testing.assert_close(measured, expected, rtol=1e-4, atol=float32_error(expected))
    assert len(states) == encoder.layers + 1
    attention, _ = forward(encoder, inputs)
    assert (torch.stack(maps) - torch.stack(attention)).abs().max() > 0.02, "another lens"


def test_norm_maps_do_not_depend_on_padding_and_streams(encoder, segments, tmp_path, monkeypatch):
    options = {"lens": "norm", "max_tokens": 60}
    with cache_at(tmp_path / "batches"):
        in_batches = extract(encoder, segments, **options)
    monkeypatch.setattr("helpers.store.examples.BATCH_TOKENS", {"cpu": 1})
    with cache_at(tmp_path / "single"):
        single = extract(encoder, segments, **options, stream=True)
    for in_batch, alone in zip(in_batches, single, strict=True):
        np.testing.assert_allclose(in_batch.attention, alone.attention, **HALF)


def test_lens_pass_keeps_the_values_of_threads_apart(tiny_encoder):
    encoder = tiny_encoder("bert")
    texts = [["a"] * n for n in range(1, 9)]
    inputs = [[model_inputs(encoder, {"words": words})] for words in texts]
    ready = threading.Barrier(4, timeout=10)

    def maps(number):
        if number < 4:
            ready.wait()
        return torch.stack(run(inputs[number])[0])

    with lens_pass(encoder, "norm") as run:
        expected = [torch.stack(run(batch)[0]) for batch in inputs]
        with ThreadPoolExecutor(4) as pool:
            parallel = list(pool.map(maps, range(8)))
    torch.testing.assert_close(parallel, expected, rtol=0, atol=float32_error(1.0))


def count_hooks(model):
    modules = model.modules()
    return [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in modules]


def test_lens_pass_removes_its_hooks_after_an_interruption(tiny_encoder):
    encoder = tiny_encoder("bert")
    before = count_hooks(encoder.model)
    with pytest.raises(KeyboardInterrupt), lens_pass(encoder, "norm"):
        assert count_hooks(encoder.model) != before
        raise KeyboardInterrupt
    assert count_hooks(encoder.model) == before


def refusal(encoder):
    with pytest.raises(ModelError) as caught, lens_pass(encoder, "norm") as run:
        run([model_inputs(encoder, RECORD)])
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_lens_pass_refuses_a_family_without_known_values(tmp_path):
    _, tokenizer = tiny_models.bert()
    config = hf.XLNetConfig(vocab_size=len(tokenizer), d_model=24, n_layer=2, n_head=4, d_inner=32)
    folder = tiny_models.save(tmp_path, hf.XLNetModel(config), tokenizer)
    assert "expected one output and one value projection" in refusal(
        load_model(str(folder), device="cpu")
    )


def test_a_head_that_moves_nothing_has_its_attention_weights_as_norm_map(tiny_folder):
    encoder = load_model(str(tiny_folder("bert")), device="cpu")
    inputs = [model_inputs(encoder, RECORD)]
    with lens_pass(encoder, "norm") as run:
        before, _ = run(inputs)
    values = sites(encoder.model)[2].values
    values.weight.data[:6] = 0  # of the first head, in the last layer
    values.bias.data[:6] = 0
    with lens_pass(encoder, "norm") as run:
        after, _ = run(inputs)
    attention, _ = forward(encoder, inputs)
    torch.testing.assert_close(after[2][:, 0], attention[2][:, 0], rtol=0, atol=0)
    assert (before[2][:, 0] - attention[2][:, 0]).abs().max() > 0.02
    torch.testing.assert_close(after[2][:, 1:], before[2][:, 1:], rtol=0, atol=0)
    torch.testing.assert_close(after[:2], before[:2], rtol=0, atol=0)


@pytest.mark.parametrize("convert", [torch.tensor, np.array], ids=["tensors", "arrays"])
def test_norm_maps_of_a_query_that_moves_nothing_are_its_attention_weights(convert):
    attention = convert([[[0.25, 0.75, 0.0], [0.5, 0.25, 0.25]]])
    norms = convert([[0.0, 0.0, 2.0]])
    expected = [[[0.25, 0.75, 0.0], [0.0, 0.0, 1.0]]]
    assert norm_maps(attention, norms).tolist() == expected


# Maps of another batch


def test_forward_takes_padding_that_local_attention_cannot_see_past(tiny_encoder):
    encoder = tiny_encoder("modernbert")  # a query sees 4 keys on either side
    maps, _ = forward(encoder, [model_inputs(encoder, {"words": ["a"] * n}) for n in (1, 30)])
    assert len(maps) == encoder.layers


# Words


def random_maps(*shape, seed=0):
    torch.manual_seed(seed)
    return torch.rand(shape).mul(3).softmax(dim=-1)


def to_words_by_loops(attention, groups):
    """One head at a time, one word at a time, as section 4.1 says it."""
    words = max(groups) + 1
    word_maps = np.zeros((*attention.shape[:-2], words, words))
    for head in np.ndindex(*attention.shape[:-2]):
        for query in range(words):
            rows = [i for i, group in enumerate(groups) if group == query]
            for i in rows:
                for j, key in enumerate(groups):
                    word_maps[head][query, key] += attention[head][i, j] / len(rows)
    return word_maps


@pytest.mark.parametrize(
    ("word_ids", "groups"),
    [
        ([None, 0, 1, None], [0, 1, 2, 3]),
        ([None, 0, 0, 0, 1, 1, None], [0, 1, 1, 1, 2, 2, 3]),
        ([0, 0, 1], [0, 0, 1]),  # a decoder: no special tokens
        ([None, 0, None, None, 1, None], [0, 1, 2, 3, 4, 5]),  # special tokens stay apart
        ([0, None], [0, 1]),
    ],
)
def test_number_words_gives_each_special_token_a_number(word_ids, groups):
    assert number_words(word_ids) == groups


def test_to_words_equals_loops_over_heads_and_words():
    attention = random_maps(2, 3, 7, 7)
    groups = [0, 1, 1, 1, 2, 3, 3]
    expected = to_words_by_loops(attention.numpy(), groups)
    error = float32_error(expected)
    np.testing.assert_allclose(to_words(attention, groups).numpy(), expected, rtol=0, atol=error)
    token_in_word = word_matrix(torch.tensor(groups), groups[-1] + 1)
    by_matrix = to_words_by_matrix(attention, token_in_word)
    np.testing.assert_allclose(by_matrix.numpy(), expected, rtol=0, atol=error)


def test_vectors_to_words_averages_the_tokens_of_a_word():
    vectors = torch.tensor([[1.0, 0.0], [2.0, 4.0], [4.0, 0.0]])
    means = vectors_to_words(vectors, [0, 1, 1])
    assert means.tolist() == [[1.0, 0.0], [3.0, 2.0]]


LENGTHS = [5, 60, 7, 30, 30, 6, 100]


def test_length_batches_keep_to_the_budget_of_tokens_from_the_longest_on():
    assert length_batches(LENGTHS, budget=64) == [[6], [1], [3, 4], [2, 5, 0]]


def test_lens_pass_refuses_heads_that_do_more_than_weigh_values(tiny_folder):
    encoder = load_model(str(tiny_folder("bert")), device="cpu")
    output = sites(encoder.model)[1].output
    output.register_forward_pre_hook(lambda _module, args: (args[0] * 1.1,), prepend=True)
    assert "do more than weigh value vectors" in refusal(encoder)
