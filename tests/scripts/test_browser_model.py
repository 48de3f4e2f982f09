"""The graph that a browser runs gives the maps of the model, intact and ablated."""

import numpy as np
import pytest
import torch

from beyond.papers.common.edge_cuts import Cut, cut_edges, key_token_ids
from helpers.errors import InputError
from helpers.model.forward import forward
from scripts import browser_model
from scripts.browser_model import CHANGES, export, open_graph, run_graph, store_matrices

NEEDED = "needs requirements-book.txt"


@pytest.fixture(scope="module")
def graph(tiny_encoder, tmp_path_factory):
    """A graph of the tiny BERT, open in onnxruntime."""
    pytest.importorskip("onnx", reason=NEEDED)
    pytest.importorskip("onnxruntime", reason=NEEDED)
    path = tmp_path_factory.mktemp("graph") / "graph.onnx"
    export(tiny_encoder("bert"), path)
    return open_graph(path)


@pytest.mark.parametrize("change", range(1 + len(CHANGES)))
@pytest.mark.parametrize("text", ["the cat", "the dog saw the cat on the mat"])
def test_graph_gives_maps_and_vector_of_the_ablated_model(graph, encoder, text, change):
    inputs = {name: encoder.tokenizer(text)[name] for name in ("input_ids", "token_type_ids")}
    cut = Cut(tuple(range(encoder.layers)), "cls")
    if change:
        with cut_edges(encoder.model, cut, key_token_ids(encoder), CHANGES[change - 1]):
            maps, states = forward(encoder, [inputs])
    else:
        maps, states = forward(encoder, [inputs])
    attention, vector = run_graph(graph, inputs["input_ids"], change)
    np.testing.assert_allclose(attention, torch.cat(maps, dim=1)[0], atol=1e-5)
    np.testing.assert_allclose(vector, states[-1][0].mean(dim=0), atol=1e-4)


def test_matrices_of_8_bits_are_right_to_half_a_step_of_their_output():
    onnx = pytest.importorskip("onnx", reason=NEEDED)
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(5, 3)).astype(np.float32) * np.float32([1, 100, 0])
    graph = onnx.helper.make_graph(
        [], "g", [], [], [onnx.numpy_helper.from_array(matrix, "matrix")]
    )
    store_matrices(graph)
    stored, scale = (onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer)
    assert stored.dtype == np.int8
    assert scale.shape == (1, 3)
    assert (np.abs(stored * scale - matrix) <= 0.501 * scale).all()


def test_model_folder_refuses_a_graph_that_is_far_from_the_model(monkeypatch, own_cache, encoder):
    for name in ("export", "shrink"):
        monkeypatch.setattr(browser_model, name, lambda *_: None)
    monkeypatch.setattr(browser_model, "compare", lambda *_: {"same": 0.9})
    with pytest.raises(InputError, match=r"90\.0% of the words"):
        browser_model.model_folder(encoder)
