"""Words and the norm lens, against slow loops over heads and the attention block's own output."""

import copy
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tiny_models
import torch
import transformers as hf
from store_tools import cache_at
from tiny_models import FAMILIES

from helpers.errors import ModelError
from helpers.model.encoder import load
from helpers.model.forward import (
    forward,
    length_batches,
    lens_pass,
    membership,
    model_inputs,
    norm_maps,
    to_words,
    vectors_to_words,
    word_groups,
)
from helpers.model.linear import convolve
from helpers.model.sites import sites
from helpers.store.extract import extract, stream
from helpers.work import COMPILATION_LOCK, CompilationLock

HALF = {"rtol": 2**-10, "atol": 2**-22}  # float16 precision, and float32 noise before rounding


@pytest.fixture(params=[*FAMILIES, "llama"])
def encoder(request, tiny_encoder):
    return tiny_encoder(request.param)


def projections(attention, model_type):
    """The weights and biases of a layer's values [width of the model, all heads] and of its output
    [all heads, width of the model], read off the modules' own names, not off the lens."""
    part = {name.rpartition(".")[2]: part for name, part in attention.named_modules()}
    own = lambda *names: next(part[name] for name in names if name in part)  # noqa: E731
    output = own("out_lin", "o", "Wo", "c_proj", "o_proj", "dense")
    if model_type == "mpnet":
        output = part["o"]
    out = output.weight if model_type == "gpt2" else output.weight.T
    if model_type == "gpt2":
        weight, bias = part["c_attn"].weight.chunk(3, -1)[2], part["c_attn"].bias.chunk(3)[2]
    elif model_type == "modernbert":
        weight, bias = part["Wqkv"].weight.chunk(3)[2].T, None
    elif model_type == "deberta":  # each head has its queries, keys and values side by side
        width = part["in_proj"].weight.shape[1]
        by_head = part["in_proj"].weight.view(4, 3, -1, width)[:, 2]
        weight = by_head.reshape(-1, width).T
        bias = own("self").v_bias
    else:
        value = own("value", "value_proj", "v_lin", "v", "v_proj")
        weight, bias = value.weight.T, value.bias
    if model_type == "llama":  # two heads share each of the values
        weight = weight.unflatten(1, (2, -1)).repeat_interleave(2, dim=1).flatten(1)
        bias = bias.unflatten(0, (2, -1)).repeat_interleave(2, dim=0).flatten()
    bias = torch.zeros(weight.shape[1]) if bias is None else bias
    return weight, bias, out, output.bias


def spied(encoder, record):
    """For each layer: what goes into its values, its map, and what its output projection gives."""
    layers, into, outof, hooks = sites(encoder.model), [], [], []
    for site in {id(s.values): s for s in layers}.values():
        hooks.append(site.values.register_forward_hook(lambda _m, args, _o: into.append(args[0])))
        hooks.append(site.output.register_forward_hook(lambda _m, _a, out: outof.append(out)))
    maps, _ = forward(encoder, [model_inputs(encoder, record)])
    for hook in hooks:
        hook.remove()
    parts = [own for own in encoder.model.modules() if "Attention" in type(own).__name__]
    attentions = [next(own for own in parts if site.output in own.modules()) for site in layers]
    return [
        (attention, x[0].double(), layer[0].double(), out[0].double())
        for attention, x, layer, out in zip(attentions, into, maps, outof, strict=True)
    ]


RECORD = {"words": ["the", "cat", "doesn't", "sit", "on", "rainy", "re-election", "."]}


@torch.no_grad()
def slow(encoder, record):
    """Norm maps by a loop over heads, queries and keys; each block's output is checked too."""
    maps = []
    for attention, x, weights, output in spied(encoder, record):
        kind = encoder.model.config.model_type
        w_v, b_v, w_o, b_o = (
            None if part is None else part.double() for part in projections(attention, kind)
        )
        heads, n, _ = weights.shape
        width = w_o.shape[0] // heads
        total = torch.zeros(n, w_o.shape[1], dtype=torch.double)
        sizes = torch.zeros(heads, n, n, dtype=torch.double)
        for h in range(heads):
            own = slice(h * width, (h + 1) * width)
            for j in range(n):
                f = (x[j] @ w_v[:, own] + b_v[own]) @ w_o[own]
                for i in range(n):
                    total[i] += weights[h, i, j] * f
                    sizes[h, i, j] = (weights[h, i, j] * f).norm()
        total += 0 if b_o is None else b_o
        torch.testing.assert_close(total, output, rtol=1e-3, atol=1e-4 * output.abs().max().item())
        maps.append(sizes / sizes.sum(-1, keepdim=True))
    return torch.stack(maps)


def test_norm_maps_are_those_of_a_loop_and_add_up_to_the_blocks_output(encoder):
    inputs = [model_inputs(encoder, RECORD)]
    with lens_pass(encoder, "norm") as run:
        maps, states = run(inputs, hidden=True)
    expected = slow(encoder, RECORD)
    torch.testing.assert_close(torch.stack(maps)[:, 0].double(), expected, rtol=1e-4, atol=1e-6)
    assert len(states) == encoder.layers + 1
    attention, _ = forward(encoder, inputs)
    assert (torch.stack(maps) - torch.stack(attention)).abs().max() > 0.02, "another lens"


def test_neither_padding_nor_threads_change_a_norm_map(encoder, segments, tmp_path, monkeypatch):
    options = {"lens": "norm", "max_tokens": 60}
    with cache_at(tmp_path):
        whole = extract(encoder, segments, **options)
    monkeypatch.setattr("helpers.store.examples.BATCH_TOKENS", {"cpu": 1})
    with cache_at(tmp_path / "alone"):
        alone = stream(encoder, segments, **options)
    for one, other in zip(whole, alone, strict=True):
        np.testing.assert_allclose(one.attention, other.attention, **HALF)


def test_threads_do_not_see_each_others_values(tiny_encoder):
    encoder = tiny_encoder("bert")
    texts = [["a"] * n for n in range(1, 9)]
    inputs = [[model_inputs(encoder, {"words": words})] for words in texts]
    ready = threading.Barrier(4, timeout=10)

    def maps(number):
        if number < 4:
            ready.wait()
        return torch.stack(run(inputs[number])[0])

    with lens_pass(encoder, "norm") as run:
        expected = [torch.stack(run(item)[0]) for item in inputs]
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(maps, range(8)))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)


def test_the_model_is_left_as_it_was(tiny_encoder):
    def hooks():
        parts = encoder.model.modules()
        return [len(part._forward_hooks) + len(part._forward_pre_hooks) for part in parts]

    encoder = tiny_encoder("bert")
    before = hooks()
    with pytest.raises(KeyboardInterrupt), lens_pass(encoder, "norm"):
        assert hooks() != before
        raise KeyboardInterrupt
    assert hooks() == before


def refusal(encoder):
    with pytest.raises(ModelError) as caught, lens_pass(encoder, "norm") as run:
        run([model_inputs(encoder, RECORD)])
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_models_whose_heads_do_not_weigh_values_are_refused(tiny_folder, tmp_path):
    _, tokenizer = tiny_models.bert()
    config = hf.XLNetConfig(vocab_size=len(tokenizer), d_model=24, n_layer=2, n_head=4, d_inner=32)
    folder = tiny_models.save(tmp_path, hf.XLNetModel(config), tokenizer)
    assert "--lens norm needs value vectors: " in refusal(load(str(folder), device="cpu"))
    encoder = load(str(tiny_folder("bert")), device="cpu")
    site = sites(encoder.model)[1]
    handle = site.output.register_forward_pre_hook(lambda _m, args: (args[0] * 1.1,), prepend=True)
    assert "do more than to weigh value vectors" in refusal(encoder)
    handle.remove()


def test_a_head_that_moves_nothing_has_its_attention_weights_as_norm_map(tiny_folder):
    encoder = load(str(tiny_folder("bert")), device="cpu")
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


@pytest.mark.parametrize("norm", [np.nan, np.inf])
def test_norm_maps_refuse_what_is_not_finite(norm):
    with pytest.raises(ModelError, match="not finite"):
        norm_maps(np.full((1, 2, 2), 0.5), np.array([[1.0, norm]]))


# Maps of another batch


def toy_batch(*lengths):
    """Inputs of some lengths, special tokens included, of words that differ."""
    return [
        {"input_ids": [2, *range(5, 3 + length), 3], "token_type_ids": [0] * length}
        for length in lengths
    ]


def answers(monkeypatch, encoder, change):
    """Make a model answer with ``change`` of the maps that it would give."""
    base = encoder.model.base_model
    original = base.forward

    def changed(*args, **options):
        output = original(*args, **options)
        output["attentions"] = change(output.attentions)
        return output

    monkeypatch.setattr(base, "forward", changed)


@pytest.mark.parametrize(
    "change",
    [
        lambda maps: (),
        lambda maps: maps * 2,
        lambda maps: maps[1:],
        lambda maps: tuple(layer[:1] for layer in maps),
        lambda maps: tuple(layer[:, :, 1:, 1:] for layer in maps),
    ],
    ids=["no maps", "those of two passes", "a layer missing", "fewer texts", "shorter texts"],
)
def test_forward_refuses_another_number_or_shape_of_maps(tiny_encoder, monkeypatch, change):
    encoder = tiny_encoder("bert")
    answers(monkeypatch, encoder, change)
    with pytest.raises(ModelError, match="the model is not at fault"):
        forward(encoder, toy_batch(7, 9))


def test_forward_refuses_maps_of_a_batch_of_other_lengths(tiny_encoder, monkeypatch):
    encoder = tiny_encoder("bert")
    longer, _ = forward(encoder, toy_batch(9, 9))
    assert len(forward(encoder, toy_batch(7, 9))[0]) == encoder.layers
    answers(monkeypatch, encoder, lambda maps: tuple(longer))
    with pytest.raises(ModelError, match="the model is not at fault"):
        forward(encoder, toy_batch(7, 9))


def test_forward_takes_padding_that_local_attention_cannot_see_past(tiny_encoder):
    encoder = tiny_encoder("modernbert")  # a query sees 4 keys on either side
    maps, _ = forward(encoder, [model_inputs(encoder, {"words": ["a"] * n}) for n in (1, 30)])
    assert len(maps) == encoder.layers


# Compiling beside forward passes


def test_forward_waits_while_something_compiles(tiny_encoder):
    encoder = tiny_encoder("bert")
    with ThreadPoolExecutor(1) as pool:
        with COMPILATION_LOCK.compilation():
            run = pool.submit(forward, encoder, toy_batch(5))
            with pytest.raises(TimeoutError):
                run.result(timeout=0.3)
        assert len(run.result(timeout=60)[0]) == encoder.layers


def test_a_compilation_waits_for_the_passes_that_run_and_for_other_compilations():
    lock = CompilationLock()

    def compile_something():
        with lock.compilation():
            return "compiled"

    with ThreadPoolExecutor(1) as pool:
        with lock.forward_pass(), lock.forward_pass():
            run = pool.submit(compile_something)
            with pytest.raises(TimeoutError):
                run.result(timeout=0.2)
        assert run.result(timeout=60) == "compiled"
        with lock.compilation():
            run = pool.submit(compile_something)
            with pytest.raises(TimeoutError):
                run.result(timeout=0.2)
        assert run.result(timeout=60) == "compiled"


def test_an_error_in_a_pass_or_a_compilation_leaves_no_lock_behind():
    lock = CompilationLock()
    for hold in (lock.forward_pass, lock.compilation, lock.forward_pass):
        with pytest.raises(KeyboardInterrupt), hold():
            raise KeyboardInterrupt


# Words


def random_maps(*shape, seed=0):
    torch.manual_seed(seed)
    return torch.rand(shape).mul(3).softmax(dim=-1)


def slow_to_words(attention, groups):
    """One head at a time, one word at a time, as section 4.1 says it."""
    words = max(groups) + 1
    out = np.zeros((*attention.shape[:-2], words, words))
    for index in np.ndindex(*attention.shape[:-2]):
        head = attention[index]
        for query in range(words):
            rows = [i for i, group in enumerate(groups) if group == query]
            for i in rows:
                for j, key in enumerate(groups):
                    out[index][query, key] += head[i, j] / len(rows)
    return out


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
def test_word_groups(word_ids, groups):
    assert word_groups(word_ids) == groups


@pytest.mark.parametrize(
    "convert",
    [to_words, lambda maps, groups: vectors_to_words(maps @ membership(groups), groups)],
    ids=["on a CPU", "on a GPU"],
)
def test_every_way_to_words_equals_a_slow_loop_over_heads(convert):
    attention = random_maps(2, 3, 7, 7)
    groups = [0, 1, 1, 1, 2, 3, 3]
    expected = slow_to_words(attention.numpy(), groups)
    np.testing.assert_allclose(convert(attention, groups).numpy(), expected, atol=1e-6)


def test_vectors_of_a_word_are_averaged():
    vectors = torch.tensor([[1.0, 0.0], [2.0, 4.0], [4.0, 0.0]])
    assert vectors_to_words(vectors, [0, 1, 1]).tolist() == [[1.0, 0.0], [3.0, 2.0]]


def test_batches_hold_similar_lengths_within_the_budget():
    lengths = [5, 60, 7, 30, 30, 6, 100]
    batches = length_batches(lengths, budget=64, longest_first=True)
    assert batches == [[6], [1], [3, 4], [2, 5, 0]]
    assert length_batches(lengths, budget=64) == [[0, 5, 2], [3, 4], [1], [6]]
    assert length_batches(lengths, size=3, longest_first=True) == [[6, 1, 3], [4, 2, 5], [0]]


def test_layers_that_convolve_have_the_outputs_and_gradients_of_those_that_multiply():
    model = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.GELU(), torch.nn.Linear(6, 4))
    convolve(convolved := copy.deepcopy(model))
    assert list(convolved.state_dict()) == list(model.state_dict())
    for shape in ((3, 5, 8), (1, 1, 8), (5, 8)):
        x, found = random_maps(*shape), []
        for own in (model, copy.deepcopy(convolved)):
            gradients = torch.autograd.grad(own(x).square().sum(), list(own.parameters()))
            found.append([own(x), *gradients])
        torch.testing.assert_close(*found, atol=1e-5, rtol=1e-5)
