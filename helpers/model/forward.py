"""One pass of a model over a padded batch: token ids in, maps out, seen through a lens.

A map shows where a head looks (the lens ``attention``), or what it brings from there (``norm``):
a head adds ``sum_j A[i, j] f(x_j)`` to position ``i``, with ``f(x) = (x W_V + b_V) W_O``, and
Kobayashi et al. (2020, *Attention is Not Only a Weight*) look at the size of each term,
``|A[i, j] f(x_j)|``, here normalised over ``j``, so that all that takes maps takes these.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from helpers.data.records import Record
from helpers.errors import ModelError, or_wider
from helpers.model.encoder import Encoder, Lens
from helpers.model.sites import Site, sites
from helpers.work import COMPILATION_LOCK

TOLERANCE = 1e-2  # of half precision, relative to the largest output
PADDING_TOLERANCE = 1e-2  # attention to padding, which is masked: zero but for half precision

Inputs = dict[str, Any]
Maps = list[Float[Tensor, "batch head query key"]]  # a layer each
States = list[Float[Tensor, "batch token width"]]  # of the embeddings and of each layer
Norms = list[Float[Tensor, "batch head token"]]  # a layer each
Pass = Callable[..., tuple[Maps, States]]
Recorded = Callable[[], AbstractContextManager[list[Tensor]]]
Values = TypeVar("Values", np.ndarray, Tensor)


def model_inputs(encoder: Encoder, record: Record) -> Inputs:
    """Return the token ids of a record (and types, or word groups) as lists."""
    if "tokens" in record:
        ids = encoder.tokenizer.convert_tokens_to_ids(record["tokens"])
        types = [int(position >= record["second"]) for position in range(len(ids))]
        return {"input_ids": ids, "token_type_ids": types}
    encoding = encoder.encode_words(record["words"])
    return {
        "input_ids": encoding.ids,
        "token_type_ids": encoding.type_ids,
        "groups": word_groups(encoding.word_ids),
    }


@torch.inference_mode()
def forward(encoder: Encoder, inputs: list[Inputs], *, hidden: bool = False) -> tuple[Maps, States]:
    """Compute the attention maps of a padded batch, padding not yet cropped.

    Parameters
    ----------
    encoder : Encoder
        The model.
    inputs : list of dict
        The inputs of each example, as `model_inputs` makes them.
    hidden : bool
        Whether to return the vectors of the embeddings and of each layer as well.

    Returns
    -------
    maps : list of tensor, one for each layer, shape (batch, head, query, key)
    states : list of tensor, shape (batch, token, width)
        Empty without ``hidden``.

    Raises
    ------
    ModelError
        If the maps are not those of this batch, because something else in the process has
        interfered with the pass.
    """
    batch = padded(encoder, inputs)
    with COMPILATION_LOCK.forward_pass():
        output = encoder.model.base_model(
            **batch, output_attentions=True, output_hidden_states=hidden
        )
    maps = list(output.attentions or ())
    states = list(output.hidden_states or ())
    _check_maps(encoder, maps, batch["attention_mask"])
    return maps, states


def _check_maps(encoder: Encoder, maps: Maps, mask: Int[Tensor, "batch token"]) -> None:
    """Check that a pass has given one map for each layer and head, of this very batch."""
    examples, length = mask.shape
    expected = [(examples, encoder.heads, length, length)] * encoder.layers
    shapes = [tuple(layer.shape) for layer in maps]
    interference = (
        "Something else in this process has disturbed the pass (torch.compile in another thread "
        "does); the model is not at fault. Run the command again: finished shards are kept."
    )
    if shapes != expected:
        raise ModelError(
            f"model {encoder.name!r}: a forward pass over {examples} texts of up to {length} "
            f"tokens gave {len(maps)} attention maps of the shapes {sorted(set(shapes))}, where "
            f"{encoder.layers} maps of the shape {expected[0]} were expected. {interference}"
        )
    # The last query of each text is enough to see that a longer text's maps are in its place.
    lengths = mask.sum(dim=1)
    texts = torch.arange(examples, device=mask.device)
    is_padding = mask == 0
    for number, layer in enumerate(maps, start=1):
        weights = layer[texts, :, lengths - 1]  # [batch, head, key]
        to_padding = (weights * is_padding[:, None]).sum(dim=-1).max()
        if to_padding > PADDING_TOLERANCE:
            raise ModelError(
                f"model {encoder.name!r}: in layer {number} of a forward pass over {examples} "
                f"texts, padding gets {to_padding:.1%} of a token's attention. {interference}"
            )


def padded(encoder: Encoder, inputs: list[Inputs]) -> dict[str, Tensor]:
    """Return a batch of inputs as padded tensors on the model's device."""
    lengths = [len(example["input_ids"]) for example in inputs]
    longest = max(lengths)
    padding_values = {"input_ids": encoder.tokenizer.pad_token_id or 0}
    if encoder.takes_token_types:
        padding_values["token_type_ids"] = 0
    rows: dict[str, list[list[int]]] = {}
    for name, value in padding_values.items():
        rows[name] = [_pad(example[name], longest, value) for example in inputs]
    rows["attention_mask"] = [_pad([1] * length, longest, 0) for length in lengths]
    return {name: torch.tensor(values, device=encoder.device) for name, values in rows.items()}


def _pad(values: list[int], length: int, padding: int) -> list[int]:
    """Fill a list up to a length."""
    return values + [padding] * (length - len(values))


def word_groups(word_ids: Sequence[int | None]) -> list[int]:
    """Return each token's word-level position; special tokens (None) are words of their own."""
    groups: list[int] = []
    for index, word in enumerate(word_ids):
        new = index == 0 or word is None or word != word_ids[index - 1]
        groups.append(groups[-1] + new if groups else 0)
    return groups


def membership(groups: Sequence[int]) -> Float[Tensor, "token word"]:
    """Return the 0/1 matrix that says which word each token belongs to."""
    return nn.functional.one_hot(torch.tensor(groups)).float()


def to_words(
    attention: Float[Tensor, "*batch token token"], groups: Sequence[int]
) -> Float[Tensor, "*batch word word"]:
    """Convert token maps to word maps, all heads together (section 4.1).

    To a word is the sum over its tokens, from a word the mean: each row still sums to 1.
    """
    if attention.device.type != "cpu":  # additions are faster, but have no fixed order there
        return vectors_to_words(attention @ membership(groups).to(attention), groups)
    *batch, tokens, _ = attention.shape
    word, words = torch.tensor(groups), groups[-1] + 1
    maps = attention.reshape(-1, tokens, tokens)
    summed = maps.new_zeros(len(maps), words, tokens).index_add_(1, word, maps)
    summed = maps.new_zeros(len(maps), words, words).index_add_(2, word, summed)
    counts = torch.bincount(word, minlength=words)
    return (summed / counts[:, None]).reshape(*batch, words, words)


def vectors_to_words(
    vectors: Float[Tensor, "*batch token width"], groups: Sequence[int]
) -> Float[Tensor, "*batch word width"]:
    """Average the vectors of each word's tokens."""
    to = membership(groups).to(vectors)
    return (to / to.sum(dim=0)).T @ vectors


@contextmanager
def lens_pass(encoder: Encoder, lens: Lens) -> Iterator[Pass]:
    """Yield what runs a batch and returns maps as `forward` does, seen through a lens."""
    if lens == "attention":
        yield partial(forward, encoder)
        return
    with value_pass(encoder) as seen:

        def run(inputs: list[Inputs], *, hidden: bool = False) -> tuple[Maps, States]:
            maps, norms, states = seen(inputs, hidden=hidden)
            return list(map(norm_maps, maps, norms)), states

        yield run


@contextmanager
def value_pass(encoder: Encoder) -> Iterator[Callable[..., tuple[Maps, Norms, States]]]:
    """Yield what runs a batch and returns maps, each layer's ``|f(x)|``, and vectors if asked.

    Threads may share it.  ModelError where attention is no sum of value vectors that can be found.
    """
    try:
        layers = sites(encoder.model)
    except ModelError as error:
        needs = f"model {encoder.name!r}: --lens norm needs value vectors: {error}"
        raise ModelError(needs) from error
    with _watched([site.values for site in layers]) as values:
        _check(encoder, layers, values)

        def run(inputs: list[Inputs], *, hidden: bool = False) -> tuple[Maps, Norms, States]:
            with values() as projected:
                maps, states = forward(encoder, inputs, hidden=hidden)
            return maps, list(map(transformed_norms, layers, projected)), states

        yield run


def norm_maps(attention: Values, norms: Values) -> Values:
    """Compute the norm-based attention maps of Kobayashi et al. (2020).

    The weight of key ``j`` for query ``i`` is ``A[i, j] |f(x_j)|``, normalised over ``j``.  If a
    head moves nothing for a query, because every ``f(x_j)`` it attends to is zero, the row is the
    attention weights ``A[i]``: the limit of vectors of equal size that shrink to zero.

    Parameters
    ----------
    attention : array or tensor of float32 or wider, shape (..., head, query, key)
    norms : array or tensor, shape (..., head, key)
        ``|f(x_j)|`` for every head and token.

    Returns
    -------
    array or tensor, shape (..., head, query, key)
        Each row sums to 1.

    Raises
    ------
    ModelError
        If a weight is not finite.
    """
    weighted = attention * norms[..., None, :]
    total = weighted.sum(axis=-1)[..., None]
    if not ((total >= 0) & (total < np.inf)).all():  # NaN is neither
        raise ModelError(
            "--lens norm: a head moves vectors that are not finite. Use --lens attention"
            f"{or_wider(attention.dtype)}."
        )
    moves_nothing = total == 0
    if moves_nothing.any():
        weighted = weighted + attention * moves_nothing
        total = total + moves_nothing
    weighted /= total
    return weighted


def transformed_norms(
    site: Site, projected: Float[Tensor, "batch token features"]
) -> Float[Tensor, "batch head token"]:
    """Return ``|f(x)|`` of every token and head, from the output of a layer's value projection.

    ``|v W_O|`` is the root of ``v (W_O W_O^T) v^T``: products of the width of a head alone.
    """
    values = site.value_vectors(projected).transpose(1, 2).double()  # [batch, head, token, width]
    weight = site.output_weight.double()  # [head, width, model width]
    squared = (values @ (weight @ weight.mT) * values).sum(dim=-1)
    return squared.clamp(min=0).sqrt().float()


def _check(encoder: Encoder, layers: list[Site], values: Recorded) -> None:
    """Check on a short text that each layer's heads put out attention times values."""
    encoding = encoder.encode_words(["a", "b", "c"])
    inputs = [{"input_ids": encoding.ids, "token_type_ids": encoding.type_ids}]
    with (
        _watched([site.output for site in layers], before=True) as outputs,
        values() as projected,
        outputs() as found,
    ):
        maps, _ = forward(encoder, inputs)
    fits = len(projected) == len(found) == len(layers) == len(maps)
    for site, attention, value, output in zip(layers, maps, projected, found, strict=False):
        vectors = site.value_vectors(value).to(attention)
        expected = torch.einsum("bhqk,bkhw->bqhw", attention, vectors).flatten(-2)
        error = (expected - output).abs().max()
        fits = fits and bool(error <= TOLERANCE * output.abs().max())
    if not fits:
        raise ModelError(
            f"model {encoder.name!r}: its heads do more than to weigh value vectors, so --lens "
            "norm is not defined for it; use --lens attention"
        )


@contextmanager
def _watched(modules: list[nn.Module], *, before: bool = False) -> Iterator[Recorded]:
    """Yield what records, for the thread that asks, all that modules give (or are given)."""
    here = threading.local()

    def keep(_module: nn.Module, args: tuple, output: Tensor | None = None) -> None:
        if hasattr(here, "calls"):
            here.calls.append(args[0] if before else output)

    @contextmanager
    def recorded() -> Iterator[list[Tensor]]:
        here.calls = []
        try:
            yield here.calls
        finally:
            del here.calls

    with ExitStack() as hooks:
        for module in {id(module): module for module in modules}.values():
            hook = module.register_forward_pre_hook if before else module.register_forward_hook
            hooks.callback(hook(keep).remove)
        yield recorded


def length_batches(
    lengths: Sequence[int],
    *,
    size: float = math.inf,
    budget: float = math.inf,
    longest_first: bool = False,
) -> list[list[int]]:
    """Cut the indices of examples into batches of similar length.

    A batch has at most ``size`` members, and their number times the length of the longest is at
    most ``budget``, unless one alone exceeds it.  Examples of equal length keep their order.
    """
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=longest_first):
        longest = max(lengths[index], lengths[batches[-1][0]]) if batches else 0
        full = not batches or len(batches[-1]) >= size
        if full or (len(batches[-1]) + 1) * longest > budget:
            batches.append([])
        batches[-1].append(index)
    return batches
