"""Words and the norm lens, against slow loops over heads and the attention block's own output."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
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
    vectors_to_words,
)
from helpers.model.loading import load_model
from helpers.model.sites import sites
from helpers.store.extract import extract

RECORD = {"words": ["the", "cat", "doesn't", "sit", "on", "rainy", "re-election", "."]}


def recorded(encoder, inputs):
    """Return the maps of a pass, and by module the outputs of its values and output projections."""
    outputs = {}
    hooks = []
    for module in {part for site in sites(encoder.model) for part in (site.values, site.output)}:
        calls = outputs.setdefault(module, [])
        hooks.append(module.register_forward_hook(lambda *call, calls=calls: calls.append(call[2])))
    maps, _ = forward(encoder, inputs)
    for hook in hooks:
        hook.remove()
    return maps, outputs


@pytest.mark.parametrize("family", [*FAMILIES, "llama"])
def test_norm_maps_are_those_of_a_loop_whose_terms_add_up_to_the_output(family, tiny_encoder):
    """A value vector of another head, or another part of the output's weights, would not add up."""
    encoder = tiny_encoder(family)
    inputs = [model_inputs(encoder, RECORD)]
    with lens_pass(encoder, "norm") as run:
        norm_lens, states = run(inputs)
    maps, outputs = recorded(encoder, inputs)
    assert len(states) == encoder.layers + 1
    for layer, site in enumerate(sites(encoder.model)):
        # Of layers that share a module, each has a call of its own.
        call = layer if len(outputs[site.values]) > 1 else 0
        values = site.value_vectors(outputs[site.values][call])[0].double()
        n, heads, _ = values.shape
        moved = torch.zeros(outputs[site.output][call].shape[1:], dtype=torch.double)
        sizes = torch.zeros(heads, n, n, dtype=torch.double)
        for head in range(heads):
            for key in range(n):
                f = values[key, head] @ site.output_weight[head].double()
                for query in range(n):
                    term = maps[layer][0, head, query, key] * f
                    moved[query] += term
                    sizes[head, query, key] = term.norm()
        if site.output.bias is not None:
            moved += site.output.bias.double()
        output = outputs[site.output][call][0].double()
        atol = 1e-4 * output.abs().max().item()
        torch.testing.assert_close(moved, output, rtol=1e-3, atol=atol)
        expected = sizes / sizes.sum(-1, keepdim=True)
        measured = norm_lens[layer][0].double()
        torch.testing.assert_close(measured, expected, rtol=1e-4, atol=float32_error(expected))
    assert (torch.stack(norm_lens) - torch.stack(maps)).abs().max() > 0.02, "another lens"


def test_norm_maps_do_not_depend_on_padding_and_streams(encoder, segments, tmp_path, monkeypatch):
    options = {"lens": "norm", "max_tokens": 60}
    with cache_at(tmp_path / "batches"):
        in_batches = extract(encoder, segments, **options)
    monkeypatch.setattr("helpers.store.extract.BATCH_TOKENS", {"cpu": 1})
    with cache_at(tmp_path / "single"):
        single = extract(encoder, segments, **options, stream=True)
    for in_batch, alone in zip(in_batches, single, strict=True):
        np.testing.assert_allclose(in_batch.attention, alone.attention, rtol=2**-10, atol=2**-22)


def test_lens_pass_keeps_the_values_of_threads_apart(encoder):
    inputs = [[model_inputs(encoder, {"words": ["a"] * n})] for n in range(1, 9)]
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


def refuse_lens(encoder, message):
    with pytest.raises(ModelError, match=message), lens_pass(encoder, "norm"):
        pass


def test_lens_pass_refuses_heads_that_do_more_than_weigh_values(tiny_folder):
    encoder = load_model(str(tiny_folder("bert")), device="cpu")
    output = sites(encoder.model)[1].output
    output.register_forward_pre_hook(lambda _module, args: (args[0] * 1.1,), prepend=True)
    refuse_lens(encoder, "do more than weigh value vectors")


@pytest.mark.parametrize("convert", [torch.tensor, np.array], ids=["tensors", "arrays"])
def test_norm_maps_of_a_query_that_moves_nothing_are_its_attention_weights(convert):
    attention = convert([[[0.25, 0.75, 0.0], [0.5, 0.25, 0.25]]])
    norms = convert([[0.0, 0.0, 2.0]])
    expected = [[[0.25, 0.75, 0.0], [0.0, 0.0, 1.0]]]
    assert norm_maps(attention, norms).tolist() == expected


# Words


@pytest.mark.parametrize(
    ("word_ids", "groups"),
    [
        ([None, 0, 0, 0, 1, 1, None], [0, 1, 1, 1, 2, 2, 3]),
        ([0, 0, 1], [0, 0, 1]),  # a decoder: no special tokens
        ([None, 0, None, None, 1, None], [0, 1, 2, 3, 4, 5]),  # special tokens stay apart
    ],
)
def test_number_words_gives_each_special_token_a_number(word_ids, groups):
    assert number_words(word_ids) == groups


def test_to_words_equals_loops_over_heads_and_words():
    torch.manual_seed(0)
    attention = torch.rand(2, 3, 7, 7).mul(3).softmax(dim=-1)
    groups = [0, 1, 1, 1, 2, 3, 3]
    expected = np.zeros((2, 3, 4, 4))
    for layer, head, i, j in np.ndindex(2, 3, 7, 7):
        share = attention[layer, head, i, j] / groups.count(groups[i])
        expected[layer, head, groups[i], groups[j]] += share
    words = to_words(attention, groups).numpy()
    np.testing.assert_allclose(words, expected, rtol=0, atol=float32_error(expected))


def test_vectors_to_words_averages_the_tokens_of_a_word():
    vectors = torch.tensor([[1.0, 0.0], [2.0, 4.0], [4.0, 0.0]])
    assert vectors_to_words(vectors, [0, 1, 1]).tolist() == [[1.0, 0.0], [3.0, 2.0]]


def test_length_batches_keep_to_the_budget_of_tokens_from_the_longest_on():
    lengths = [5, 60, 7, 30, 30, 6, 100]
    assert length_batches(lengths, budget=64) == [[6], [1], [3, 4], [2, 5, 0]]
