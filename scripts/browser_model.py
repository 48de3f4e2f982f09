"""Export a model for a browser, for scripts/browser_page.py.

The model, a relative of BERT, becomes an ONNX graph that returns its attention maps and its
sentence vector, and that can change the attention to [CLS].  Matrices are stored in 8 bits with a
scale for each output; the runtime turns them into float32 when it loads the graph.  The graph is
compared with the model on sentences of the bundled text.
"""

import json
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from beyond.papers.common.edge_cuts import (
    CONSTANT,
    DROPPED,
    REDISTRIBUTED,
    ablate_edges,
    patch_layers,
)
from helpers.data.treebank import silver_treebank
from helpers.errors import InputError
from helpers.files import build_folder, cache_root, json_digest, sha256
from helpers.metrics.heads import picked_words
from helpers.model.forward import Inputs, forward, to_words, word_inputs
from helpers.model.loading import Model, slug

CHANGES = (CONSTANT, DROPPED, REDISTRIBUTED)  # of the attention to [CLS]; number 0 is none
N_SENTENCES = 200  # that the graph is compared on
MIN_SAME_PICKS = 0.97
BITS = 8  # of a stored number
EXACT = ("position_embeddings", "token_type_embeddings")  # small, and added to every word


class Maps(nn.Module):
    """A model from token ids to its maps and its sentence vector, as the graph computes them."""

    def __init__(self, encoder: Model) -> None:
        super().__init__()
        self.model = encoder.model.base_model
        self.layers = tuple(range(encoder.layers))

    def forward(
        self, ids: Int[Tensor, "one token"], change: Int[Tensor, ""]
    ) -> tuple[Float[Tensor, "head query key"], Float[Tensor, " width"]]:
        """Compute the maps of all layers' heads, and the mean of the last layer's vectors."""
        is_cls = torch.arange(ids.shape[1]) == 0

        def ablate(weights: Tensor) -> Tensor:
            ablated = [ablate_edges(weights, is_cls, mode, ~is_cls) for mode in CHANGES]
            return torch.stack([weights, *ablated])[change]

        with patch_layers(self.model, self.layers, ablate):
            output = self.model(ids, output_attentions=True)
        return torch.cat(output.attentions, dim=1)[0], output.last_hidden_state[0].mean(dim=0)


def export(encoder: Model, path: Path) -> None:
    """Write the graph of a model."""
    ids = torch.tensor([encoder.tokenizer("A text of some words.")["input_ids"]])
    options: dict[str, Any] = {
        "input_names": ["ids", "change"],
        "output_names": ["attention", "vector"],
        "dynamic_axes": {"ids": {1: "token"}, "attention": {1: "query", 2: "key"}},
        "opset_version": 17,
        "dynamo": False,  # the older exporter, which says so; the newer one needs onnxscript
    }
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(Maps(encoder).eval(), (ids, torch.tensor(0)), path, **options)


def shrink(path: Path) -> None:
    """Store the matrices of a graph in 8 bits."""
    import onnx

    model = onnx.load(path)
    store_matrices(model.graph)
    onnx.save(model, path)


def store_matrices(graph: Any) -> None:
    """Store the matrices of a graph in 8 bits, and let the graph turn them into float32.

    A matrix has a scale for each output: for each row of a table of embeddings, and for each column
    of a matrix that states are multiplied by.
    """
    from onnx import TensorProto, helper, numpy_helper

    tensors = []
    nodes = []
    for tensor in graph.initializer:
        matrix = numpy_helper.to_array(tensor)
        if matrix.ndim != 2 or any(name in tensor.name for name in EXACT):
            tensors.append(tensor)
            continue
        stored, cast, scale = (f"{tensor.name}.{part}" for part in ("stored", "cast", "scale"))
        axis = 1 if "embeddings" in tensor.name else 0
        scales = np.abs(matrix).max(axis=axis, keepdims=True).clip(min=1e-12) / np.float32(127)
        tensors.append(numpy_helper.from_array(np.rint(matrix / scales).astype(np.int8), stored))
        tensors.append(numpy_helper.from_array(scales, scale))
        nodes.append(helper.make_node("Cast", [stored], [cast], to=TensorProto.FLOAT))
        nodes.append(helper.make_node("Mul", [cast, scale], [tensor.name]))
    nodes.extend(graph.node)
    del graph.initializer[:], graph.node[:]
    graph.initializer.extend(tensors)
    graph.node.extend(nodes)


def open_graph(path: Path) -> Any:
    """Open a graph in onnxruntime, on one thread as in the browser."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options)


def run_graph(session: Any, ids: Sequence[int], change: int = 0) -> list[np.ndarray]:
    """Compute the maps [head, query, key] of token ids and their sentence vector.

    ``change`` is the number of one of `CHANGES`, from 1, or 0.
    """
    return session.run(None, {"ids": np.array([ids]), "change": np.array(change)})


def compare(encoder: Model, path: Path, count: int = N_SENTENCES) -> dict[str, float]:
    """Compare the maps of a graph with those of the model, on sentences of the bundled text.

    Returns
    -------
    dict of str to float
        The number of ``sentences``, the ``mean`` and the ``largest`` difference of a weight of
        attention, and ``same``, the share of all heads' picks that are the same word (section 4.2).
    """
    session = open_graph(path)
    differences = []
    is_same = []
    for sentence in silver_treebank(count=count).read(Counter()):
        inputs = word_inputs(encoder.encode_words(sentence.words))
        exact = torch.cat(forward(encoder, [inputs])[0], dim=1)[0]
        maps = torch.from_numpy(run_graph(session, inputs["input_ids"])[0])
        differences.append((maps - exact).abs().flatten())
        is_same.append(pick_words(maps, inputs) == pick_words(exact, inputs))
    difference = torch.cat(differences)
    return {
        "sentences": count,
        "mean": float(difference.mean()),
        "largest": float(difference.max()),
        "same": float(np.concatenate(is_same, axis=1).mean()),
    }


def pick_words(maps: Float[Tensor, "head token token"], inputs: Inputs) -> Int[np.ndarray, "..."]:
    """Find the word that each head picks for each word; [CLS] and [SEP] are left out."""
    return picked_words(to_words(maps, inputs["groups"]).numpy()[:, 1:-1, 1:-1])


def model_folder(encoder: Model) -> Path:
    """Return the folder with graph.onnx and comparison.json of a model; make it if it is missing.

    InputError if the graph is too far from the model.
    """
    digest = json_digest([encoder.key, torch.__version__, sha256(Path(__file__))])
    folder = cache_root() / "browser" / f"{slug(encoder.name)}-{digest[:12]}"

    def write(temporary: Path) -> None:
        path = temporary / "graph.onnx"
        export(encoder, path)
        shrink(path)
        comparison = {"bits": BITS, **compare(encoder, path)}
        if comparison["same"] < MIN_SAME_PICKS:
            raise InputError(
                f"{encoder.name}: the exported graph picks {comparison['same']:.1%} of the words "
                f"that the model picks; choose another model"
            )
        (temporary / "comparison.json").write_text(json.dumps(comparison))

    build_folder(folder, write)
    return folder
