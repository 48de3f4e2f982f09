"""Forward passes of a model over padded batches: token ids in, attention maps out.

Heads can be removed from the passes inside a context.

Maps come through one of two lenses.  With ``attention`` they are the attention weights.  With
``norm`` they are the norm-based weights of Kobayashi et al. (2020, *Attention is Not Only a
Weight*): a head adds ``sum_j A[i, j] f(x_j)`` to position ``i``, with ``f(x) = (x W_V + b_V) W_O``,
and the weight of key ``j`` is the size of its term, ``|A[i, j] f(x_j)|``.  Here it is normalised
over ``j``, so that these maps can be used wherever attention maps can.
"""

from __future__ import annotations

import operator
import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar, cast

import numpy as np
import torch
from jaxtyping import Float
from tokenizers import Encoding
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from helpers.data.records import Record
from helpers.errors import InputError, ModelError, one_line
from helpers.model.loading import Lens, Model
from helpers.model.sites import (
    Outputs,
    Site,
    Weights,
    check_removable,
    patch_head_outputs,
    sites,
)

Inputs = dict[str, Any]
Maps = list[Weights]  # one for each layer
States = list[Float[Tensor, "batch token width"]]  # one for the embeddings and for each layer
Norms = list[Float[Tensor, "batch head token"]]  # one for each layer
Pass = Callable[..., tuple[Maps, States]]
Values = TypeVar("Values", np.ndarray, Tensor)

N_TOKENS = 20  # of each half of repeated tokens
N_SEQUENCES = 32


def model_inputs(encoder: Model, record: Record) -> Inputs:
    """Convert a store's record to a model's inputs.

    Parameters
    ----------
    encoder : Model
        The model.
    record : dict
        A line of a store's ``examples.jsonl``: tokens of a segment, or words with their
        ``inputs``.  Without these the words are tokenized.  Or a labelled text with its ``inputs``.

    Returns
    -------
    dict of str to list
        ``input_ids`` and ``token_type_ids``, and for words ``groups``: the word-level position of
        each token.
    """
    if "inputs" in record:
        return record["inputs"]
    if "tokens" in record:
        ids = cast("list[int]", encoder.tokenizer.convert_tokens_to_ids(record["tokens"]))
        # A decoder reads both paragraphs as one text.
        second = len(ids) if "blank_line" in record else record["second"]
        types = [int(position >= second) for position in range(len(ids))]
        return {"input_ids": ids, "token_type_ids": types}
    return word_inputs(encoder.encode_words(record["words"]))


def word_inputs(encoding: Encoding) -> Inputs:
    """Convert tokenized words to a model's inputs; each special token is a word of its own."""
    return {
        "input_ids": encoding.ids,
        "token_type_ids": encoding.type_ids,
        "groups": number_words(encoding.word_ids),
    }


def number_words(word_ids: Sequence[int | None]) -> list[int]:
    """Number the words of tokens from 0; a special token (None) is a word of its own."""
    begins = [
        word is None or word != word_before for word_before, word in pairwise([None, *word_ids])
    ]
    return (np.cumsum(begins) - 1).tolist()


@torch.inference_mode()
def forward(encoder: Model, inputs: list[Inputs]) -> tuple[Maps, States]:
    """Compute the attention maps of a padded batch, padding not yet cropped.

    Parameters
    ----------
    encoder : Model
        The model.
    inputs : list of dict
        The inputs of each example, as `model_inputs` makes them.

    Returns
    -------
    maps : list of tensor, one for each layer, shape (batch, head, query, key)
    states : list of tensor, one for the embeddings and one for each layer
        Shape (batch, token, width).
    """
    batch = padded(encoder, inputs)
    output = encoder.model.base_model(**batch, output_attentions=True, output_hidden_states=True)
    return list(output.attentions), list(output.hidden_states)


def padded(encoder: Model, inputs: list[Inputs]) -> dict[str, Tensor]:
    """Pad a batch of inputs on the right and convert it to tensors on the model's device."""
    padding_values: dict[str, Any] = {"input_ids": encoder.tokenizer.pad_token_id or 0}
    if encoder.takes_token_types:
        padding_values["token_type_ids"] = 0
    batch = {}
    for name, value in padding_values.items():
        rows = [torch.tensor(example[name]) for example in inputs]
        batch[name] = pad_sequence(rows, batch_first=True, padding_value=value)
    masks = list(map(torch.ones_like, rows))
    batch["attention_mask"] = pad_sequence(masks, batch_first=True)
    return {name: tensor.to(encoder.model.device) for name, tensor in batch.items()}


def to_words(
    attention: Float[Tensor, "*batch token token"], groups: Sequence[int]
) -> Float[Tensor, "*batch word word"]:
    """Convert token maps to word maps, of all heads together (section 4.1).

    Attention to a word is the sum over its tokens, and attention from a word is the mean over its
    tokens, so that each row still sums to 1.
    """
    return vectors_to_words(attention @ _words_of_tokens(attention, groups), groups)


def vectors_to_words(
    vectors: Float[Tensor, "*batch token width"], groups: Sequence[int]
) -> Float[Tensor, "*batch word width"]:
    """Average the vectors of each word's tokens, on the device that has them."""
    token_in_word = _words_of_tokens(vectors, groups)
    return token_in_word.T @ vectors / token_in_word.sum(dim=0)[:, None]


def _words_of_tokens(values: Tensor, groups: Sequence[int]) -> Float[Tensor, "token word"]:
    """Mark the word of each token by a one, in the precision and on the device of a tensor."""
    return F.one_hot(torch.tensor(groups, device=values.device)).to(values)


@contextmanager
def lens_pass(encoder: Model, lens: Lens) -> Iterator[Pass]:
    """Open a function that computes a batch's maps through a lens, with the arguments of `forward`.

    Threads may share the function.

    Raises
    ------
    ModelError
        If the lens is ``norm``, and the model's attention is not a sum of value vectors.
    """
    if lens == "attention":
        yield partial(forward, encoder)
        return
    with value_pass(encoder) as run_with_norms:

        def run(inputs: list[Inputs]) -> tuple[Maps, States]:
            maps, norms, states = run_with_norms(inputs)
            return list(map(norm_maps, maps, norms)), states

        yield run


@contextmanager
def value_pass(encoder: Model) -> Iterator[Callable[..., tuple[Maps, Norms, States]]]:
    """Open a function that computes a batch's maps and the sizes of its transformed values.

    Parameters
    ----------
    encoder : Model
        The model.

    Yields
    ------
    callable
        It takes the arguments of `forward` and returns ``maps`` and ``norms``, a tensor for each
        layer with ``|f(x)|`` of every head and token, shape (batch, head, token), and ``states``.
        Threads may share it.

    Raises
    ------
    ModelError
        If the model's attention is not a sum of value vectors, or they cannot be found.
    """
    layers = sites(encoder.model)
    with recorded_values(layers) as recorded:

        def project(inputs: list[Inputs]) -> tuple[Maps, list[Tensor], States]:
            projected = recorded()
            maps, states = forward(encoder, inputs)
            return maps, projected, states

        def run(inputs: list[Inputs]) -> tuple[Maps, Norms, States]:
            maps, projected, states = project(inputs)
            return maps, list(map(transformed_norms, layers, projected)), states

        _check_heads(encoder, layers, project)
        yield run


@contextmanager
def recorded_values(layers: Sequence[Site]) -> Iterator[Callable[[], list[Tensor]]]:
    """Record what the layers' value projections put out, inside the context.

    Yields
    ------
    callable
        It returns a list for the next pass of the thread that calls it.
    """
    current = threading.local()  # threads share the hooks, and each records its own pass

    def begin() -> list[Tensor]:
        current.projected = []
        return current.projected

    def record(_module: nn.Module, _args: tuple, output: Tensor) -> None:
        getattr(current, "projected", []).append(output.detach())

    with ExitStack() as hooks:
        for module in {site.values for site in layers}:  # layers may share one
            hooks.callback(module.register_forward_hook(record).remove)
        yield begin


class MixedHeadsError(ModelError):
    """The heads of a model do more than weigh value vectors by their attention."""


def _check_heads(encoder: Model, layers: Sequence[Site], project: Callable[..., Any]) -> None:
    """Raise ModelError unless all heads output attention times the value vectors, side by side."""
    head_outputs: list[Float[Tensor, "batch token features"]] = []

    def keep(_module: nn.Module, args: tuple) -> None:
        head_outputs.append(args[0])

    with ExitStack() as hooks:
        for module in {site.output for site in layers}:
            hooks.callback(module.register_forward_pre_hook(keep).remove)
        maps, projected, _ = project([dict(encoder.tokenizer("a b c"))])
    is_sum = []
    try:
        for site, outputs, weights, values in zip(
            layers, head_outputs, maps, projected, strict=True
        ):
            vectors = site.value_vectors(values).to(weights)
            sums = torch.einsum("bhqk,bkhw->bqhw", weights, vectors).flatten(-2)
            # Half precision is coarse.
            is_sum.append(bool((sums - outputs).abs().max() <= 1e-2 * outputs.abs().max()))
    except (RuntimeError, ValueError) as error:  # of shapes, or numbers of layers, that do not fit
        problem = "we cannot find the value vectors of its heads, which --lens norm needs"
        raise ModelError(f"model {encoder.name!r}: {problem}. Use --lens attention.") from error
    if not all(is_sum):
        problem = "its heads do more than weigh value vectors, so --lens norm is not defined"
        raise MixedHeadsError(f"model {encoder.name!r}: {problem}. Use --lens attention.")


def check_length(encoder: Model, n_tokens: int) -> None:
    """Raise ModelError if a model takes no input of a number of tokens: configurations can lie."""
    ids = encoder.tokenizer("a b c")["input_ids"] * n_tokens
    inputs = {"input_ids": ids[:n_tokens], "token_type_ids": [0] * n_tokens}
    try:
        forward(encoder, [inputs])
    except (RuntimeError, IndexError, ValueError) as error:
        problem = f"it takes no input of {n_tokens:,} tokens ({one_line(str(error))})"
        raise ModelError(f"model {encoder.name!r}: {problem}. Lower --max-tokens.") from error


def check_lens(encoder: Model) -> None:
    """Raise ModelError if the norm lens is not defined for a model, or cannot be computed."""
    with value_pass(encoder):
        pass


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
    """
    weighted = attention * norms[..., None, :]
    total = weighted.sum(-1)[..., None]
    moves_nothing = total == 0
    return cast("Values", (weighted + attention * moves_nothing) / (total + moves_nothing))


def transformed_norms(
    site: Site, projected: Float[Tensor, "batch token features"]
) -> Float[Tensor, "batch head token"]:
    """Compute ``|f(x)|`` of every token and head from the output of a layer's value projection.

    ``|v W_O|`` is the root of ``v (W_O W_O^T) v^T``, whose products have only the width of a head.
    """
    values = site.value_vectors(projected).transpose(1, 2).double()  # [batch, head, token, width]
    weight = site.output_weight.double()  # [head, width, model width]
    squared = (values @ (weight @ weight.mT) * values).sum(dim=-1)
    return squared.clamp(min=0).sqrt().float()


def length_batches(lengths: Sequence[int], *, budget: int) -> list[list[int]]:
    """Divide the indices of examples into batches of similar length, the longest first.

    Parameters
    ----------
    lengths : sequence of int
        The number of tokens of each example.
    budget : int
        The largest number of tokens in a batch, padding included.  An example that exceeds it is
        a batch of its own.

    Returns
    -------
    list of list of int
        Examples of equal length keep their order.
    """
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        if not batches or (len(batches[-1]) + 1) * lengths[batches[-1][0]] > budget:
            batches.append([])
        batches[-1].append(index)
    return batches


def repeated_token_maps(
    encoder: Model, vocabulary: Collection[str], seed: int
) -> tuple[Float[np.ndarray, "layer sequence head query key"], int, int]:
    """Compute the maps of `N_SEQUENCES` sequences ``[CLS] a b c ... a b c ... [SEP]``.

    The tokens are random, so that no meaning tells a head where to look.

    Parameters
    ----------
    encoder : Model
        The model.
    vocabulary : collection of str
        The tokens to draw from, without replacement; special tokens are left out.
    seed : int
        Seed of the draws.

    Returns
    -------
    maps : array
        The attention of each layer and head in each sequence.
    start : int
        Position of the first drawn token.
    n_tokens : int
        Number of tokens of each half: `N_TOKENS`, or all if there are fewer.
    """
    special = encoder.special_tokens
    first = special["cls"] or special.get("first")  # a decoder has the token that begins a text
    last = special["sep"]
    candidates = sorted(set(vocabulary) - {first, last})
    before = [first] if first else []
    after = [last] if last else []
    n_tokens = min(N_TOKENS, len(candidates))
    rng = np.random.default_rng(seed)
    inputs = []
    for _ in range(N_SEQUENCES):
        drawn = rng.choice(candidates, n_tokens, replace=False).tolist()
        tokens = [*before, *drawn, *drawn, *after]
        inputs.append(model_inputs(encoder, {"tokens": tokens, "second": len(tokens)}))
    layer_maps, _ = forward(encoder, inputs)
    maps = np.stack([layer_map.float().numpy(force=True) for layer_map in layer_maps])
    return maps, len(before), n_tokens


@contextmanager
def remove_heads(model: Any, heads: Iterable[Any]) -> Iterator[None]:
    """Remove attention heads from a model inside the context.

    The output of a removed head is zero, so that nothing of it reaches the layers above.  Its own
    attention weights stay as they are; those of the layers above change.

    Parameters
    ----------
    model : Model
        What `load_model` returns.
    heads : iterable of str or (int, int)
        Names of heads, such as "3-1", or layer and head.  Both count from 1, as in tables.

    Raises
    ------
    InputError
        For a head that the model does not have, or a name in place of a model.
    ModelError
        If the outputs of the model's heads cannot be located.

    Examples
    --------
    >>> model = load_model("minilm")
    >>> text = "The committee rejected my plan."
    >>> with remove_heads(model, ["3-1", (5, 2)]):
    ...     without_heads = read(text, model)
    """
    if not isinstance(model, Model):
        raise InputError(f"{model!r:.60} is no model; give what load_model returns")
    check_removable(model.model, model.heads)
    layers = sites(model.model)
    numbers = model.layer_numbers
    mask = torch.ones(model.layers, model.heads, 1)
    for head in [heads] if isinstance(heads, str) else heads:
        layer_number, head_number = _numbers(head)
        if layer_number not in numbers or not 1 <= head_number <= model.heads:
            ends = f"{numbers[0]}-1 to {numbers[-1]}-{model.heads}"
            raise InputError(f"there is no head {layer_number}-{head_number}; the model has {ends}")
        mask[numbers.index(layer_number), head_number - 1] = 0

    def remove(layer: int, outputs: Outputs) -> Outputs:
        return outputs * mask[layer].to(outputs)

    with patch_head_outputs(layers, remove):
        yield


def _numbers(head: Any) -> tuple[int, int]:
    """Read the name of a head, or its layer and head, both from 1."""
    name = re.fullmatch(r"(\d+)-(\d+)", str(head))
    try:
        layer_number, head_number = map(int, name.groups()) if name else map(operator.index, head)
        return layer_number, head_number
    except (TypeError, ValueError) as error:
        raise InputError(f'{head!r} is no head; write "3-1" or (3, 1)') from error
