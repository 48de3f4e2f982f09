"""Attention maps in blocks of rows, for texts whose maps of all layers do not fit into memory.

`AttentionInterface` of transformers lets a model compute its attention with another function.  The
one here calls the family's own eager function for some queries at a time.  The rows of these
queries are handed over and dropped, so that memory grows with the tokens times the block, and not
with the tokens squared.  Masks are computed for the same queries, by transformers' own function.
Sliding windows, grouped queries, sinks in the softmax and biases of positions are therefore those
of the model.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import eager_mask

from helpers.data.records import Visible, roles, visible_mask
from helpers.errors import ModelError
from helpers.metrics.heads import PerHead
from helpers.metrics.surface import SECTION_3, section_3
from helpers.model.forward import Inputs, forward, padded
from helpers.model.loading import Model
from helpers.model.sites import base_transformer, softmax_calls
from helpers.store.extract import check_example

NAME = "eager_in_blocks"  # of the attention function, in the configuration of a model
EAGER = "eager_attention_forward"  # the name of each family's own function
QUERIES = 128  # in a block
TOLERANCE = 1e-4  # of weights in blocks and in whole maps
WITHOUT_INTERFACE = (
    "it does not compute its attention with the interface of transformers, so the maps of a text "
    "cannot be measured in blocks"
)

Block = Float[Tensor, "head query key"]
# Takes the number of a layer, the position of the first query, and the rows.
Receive = Callable[[int, int, Block], None]
# Of all queries, or a function that computes that of some.
Mask = Tensor | Callable[[int, int], Tensor | None] | None


class _Pass:
    """The settings of a forward pass that the attention function reads."""

    def __init__(self, receive: Receive, n_queries: int) -> None:
        self.receive = receive
        self.n_queries = n_queries  # in a block
        self.layers = count()  # in the order of computation


_current: ContextVar[_Pass] = ContextVar("current pass")


@torch.inference_mode()
def rows_in_blocks(
    encoder: Model,
    inputs: Inputs,
    receive: Receive,
    *,
    n_queries: int = QUERIES,
) -> None:
    """Run a model on one text, and hand over the rows of its maps block by block.

    No other thread may use the model at the same time.

    Parameters
    ----------
    encoder : Model
        The model.
    inputs : dict
        The inputs of the text, as `forward.model_inputs` makes them.
    receive : callable
        It takes the number of a layer (from 0), the position of the first query, and the rows
        ``[head, query, key]``.  Layers come in their order, and so do the blocks of a layer.
    n_queries : int
        Largest number of queries in a block.

    Raises
    ------
    ModelError
        If the model does not compute its attention with the interface of transformers.
    """
    base = base_transformer(encoder.model)
    started = _Pass(receive, n_queries)
    n_blocks = math.ceil(len(inputs["input_ids"]) / n_queries)
    layers = [layer for layer in range(encoder.layers) for _ in range(n_blocks)]
    token = _current.set(started)
    try:
        with _attention_in_blocks(base), softmax_calls(layers):
            base(**padded(encoder, [inputs]))
    finally:
        _current.reset(token)
    n_layers = next(started.layers)
    if n_layers != encoder.layers:
        raise ModelError(f"model {encoder.name!r}: {WITHOUT_INTERFACE}")


def long_text_measures(encoder: Model, tokens: Sequence[str], inputs: Inputs) -> dict[str, PerHead]:
    """Compute every measure of section 3 for a text whose whole maps would not fit into memory.

    Parameters
    ----------
    encoder : Model
        The model.
    tokens : sequence of str
        The tokens of the text, special tokens included.
    inputs : mapping
        The inputs of the model for it.

    Returns
    -------
    dict of str to array, shape (layer, head)
        The measures of `helpers.metrics.surface.SECTION_3`.

    Raises
    ------
    ModelError
        If a row is not a distribution, or the model cannot compute blocks.
    """
    token_roles = roles(tokens, encoder.special_tokens)
    masks = {}  # of each kind of layer
    for layer in encoder.visible:
        visible = Visible(**layer)
        masks[visible] = visible_mask(visible, len(tokens))
    n = len(tokens)
    maps = np.empty((encoder.heads, n, n), np.float32)  # of one layer
    values: dict[str, list[PerHead]] = {name: [] for name in SECTION_3}

    def add(layer: int, first: int, rows: Block) -> None:
        check_example(encoder, 0, rows[None])
        end = first + rows.shape[1]
        maps[:, first:end] = rows.float().numpy(force=True)
        if end == n:  # the layer is complete
            visible = masks[Visible(**encoder.visible[layer])][None]
            for attention in maps:
                measures = section_3(attention[None, None], token_roles, visible)
                for name, value in measures.items():
                    values[name].append(value)

    rows_in_blocks(encoder, inputs, add)
    shape = (encoder.layers, encoder.heads)
    return {name: np.reshape(by_head, shape) for name, by_head in values.items()}


def check_blocks(encoder: Model) -> None:
    """Raise ModelError unless a model gives the same rows in blocks as in whole maps."""
    inputs = dict(encoder.tokenizer("a b c"))
    blocks: list[Block] = []
    rows_in_blocks(encoder, inputs, lambda _layer, _first, rows: blocks.append(rows), n_queries=1)
    maps, _ = forward(encoder, [inputs])
    # Both are [layer and query, head, key].
    rows_of_maps = torch.stack(maps).transpose(2, 3)[:, 0].flatten(0, 1)
    rows_of_blocks = torch.cat(blocks, dim=1).transpose(0, 1)
    difference = (rows_of_blocks.float() - rows_of_maps.float()).abs().max()
    if not difference < TOLERANCE:
        raise ModelError(
            f"model {encoder.name!r}: its maps in blocks differ by {difference:.2g} from its whole "
            "maps, so the maps of a text cannot be measured in blocks"
        )


@contextmanager
def _attention_in_blocks(base: PreTrainedModel) -> Iterator[None]:
    """Let a model compute its attention with `_attend`, and keep no keys and values for later."""
    used_cache = getattr(base.config, "use_cache", None)
    base.set_attn_implementation(NAME)
    base.config.use_cache = False
    try:
        yield
    finally:
        base.set_attn_implementation("eager")
        base.config.use_cache = used_cache


def _attend(
    module: nn.Module,
    query: Float[Tensor, "1 head query width"],
    key: Float[Tensor, "1 key_head key width"],
    value: Float[Tensor, "1 key_head key value_width"],
    attention_mask: Mask = None,
    **options: Any,
) -> tuple[Float[Tensor, "1 query head value_width"], None]:
    """Compute the output of a layer's heads with its own eager function, block by block."""
    current = _current.get()
    eager = getattr(sys.modules[type(module).__module__], EAGER)
    layer = next(current.layers)
    position_bias = options.get("position_bias")  # of T5: [1, head, query, key]
    outputs = []
    first = 0
    for queries in query.split(current.n_queries, dim=2):
        block = slice(first, first + queries.shape[2])
        mask = _mask_of_rows(attention_mask, block)
        if position_bias is not None:
            options["position_bias"] = position_bias[:, :, block]
        output, weights = eager(module, queries, key, value, mask, **options)
        current.receive(layer, block.start, weights[0])
        outputs.append(output)
        first = block.stop
    return torch.cat(outputs, dim=1), None


def _mask_of_rows(mask: Mask, block: slice) -> Tensor | None:
    """Compute the mask of a block's rows, or select it from the mask of a family's own code."""
    if mask is None:
        return None
    if not isinstance(mask, Tensor):
        return mask(block.start, block.stop - block.start)
    return mask if mask.shape[-2] == 1 else mask[..., block, :]  # LayoutLM has one row for all


def _mask_of_blocks(*, q_length: int, q_offset: int = 0, **options: Any) -> Callable:
    """Make the function that computes the mask of some queries, in place of the whole mask."""

    def mask(first: int, n_queries: int) -> Tensor | None:
        return eager_mask(q_length=n_queries, q_offset=q_offset + first, **options)

    return mask


AttentionInterface.register(NAME, _attend)
AttentionMaskInterface.register(NAME, _mask_of_blocks)
