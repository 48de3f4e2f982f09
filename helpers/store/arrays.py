"""Read the arrays and tokens of other tools: of one text or several, by text or by layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from helpers.errors import InputError

Maps = Float[np.ndarray, "layer head query key"]
NO_MAPS = (
    "there are no maps (None, or an empty tuple), because attention was computed by sdpa or flash "
    'attention; load the model with attn_implementation="eager"'
)
WITHOUT_SOME = (
    "some layers have no map (None); leave them out: "
    "tuple(layer for layer in maps if layer is not None)"
)
GENERATED = (
    "maps by step, as generate() returns them; run the model once over the finished text: "
    "model(sequences[:1], output_attentions=True).attentions"
)
UNCLEAR = (
    "as many arrays as texts, which can be examples or layers of a batch; give tuple(maps) for "
    "layers, or [tuple(example) for example in maps] for examples"
)


def plain(value: Any) -> Any:
    """Convert arrays and numbers of NumPy, torch and pandas to lists and numbers of Python."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {key: plain(entry) for key, entry in value.items()}
    if not isinstance(value, (list, tuple)):
        return value
    entries = [plain(entry) for entry in value]
    return tuple(entries) if isinstance(value, tuple) else entries


def example_columns(maps: Any, tokens: Any, words: Any, records: Any) -> list[Sequence[Any]]:
    """List the maps, tokens, words and records of each example; InputError if numbers differ."""
    tokens = plain(tokens)
    _check_tokens(tokens)
    columns: list[Any] = [tokens, plain(words), plain(records)]
    if _is_example(tokens):
        columns = [[value] for value in columns]
    n_examples = len(columns[0])
    columns = [[None] * n_examples if values is None else values for values in columns]
    columns.insert(0, _maps_of_examples(maps, tokens))
    sizes = [len(values) if isinstance(values, (list, tuple)) else 0 for values in columns]
    if not n_examples or len(set(sizes)) > 1:
        raise InputError(
            f"maps, tokens, words and records of {sizes} examples; give each of every example, and "
            "of one at least"
        )
    return columns


def _check_tokens(tokens: Any) -> None:
    """Raise InputError unless tokens are texts in lists, and in tuples of two lists."""
    is_list = isinstance(tokens, (list, tuple))
    for token in tokens if is_list else [tokens]:
        if isinstance(token, (list, tuple)) and token:
            _check_tokens(token)
        elif not (is_list and isinstance(token, str)):
            raise InputError(
                f"tokens are a list of texts, not {token!r:.60}; numbers become texts by "
                'tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])'
            )


def _is_example(tokens: Any) -> bool:
    """Tell whether tokens are those of one example, and not of a sequence of examples."""
    if isinstance(tokens, tuple) and len(tokens) == 2:
        return isinstance(tokens[0], str) or isinstance(tokens[0][0], str)
    return len(tokens) > 0 and isinstance(tokens[0], str)


def _maps_of_examples(maps: Any, tokens: Any) -> Sequence[Any]:
    """List the maps of each example; transformers has them by layers of a batch of texts.

    InputError if there are no maps, or it is not clear whether they are examples or layers.
    """
    maps = getattr(maps, "attentions", maps)
    if len(tokens) and _has_none(maps):
        has_some = isinstance(maps, (list, tuple)) and any(map(_ndim, maps))
        raise InputError(WITHOUT_SOME if has_some else NO_MAPS)
    is_one = _is_example(tokens)
    n_texts = 1 if is_one else len(tokens)
    if _ndim(maps) == 5:
        maps = list(maps)
    if not isinstance(maps, (list, tuple)):
        return [maps]
    batch_sizes = {len(layer) for layer in maps if _ndim(layer) == 4}
    is_by_step = isinstance(maps, tuple) and isinstance(maps[0], tuple)
    if is_by_step and (is_one or len(maps) != n_texts):
        raise InputError(GENERATED)
    if is_one:
        if batch_sizes <= {1}:
            return [maps]
        if len(maps) == 1 and isinstance(maps, list):
            return maps
        batch = f"a batch of {max(batch_sizes)} texts, or of examples"
        raise InputError(f"maps of {batch}; give a list with the tokens of each")
    if batch_sizes != {n_texts} or {_ndim(layer) for layer in maps} != {4}:
        return maps
    return _by_text(maps, n_texts)


def _by_text(maps: Sequence[Any], n_texts: int) -> Sequence[Any]:
    """Split layers of a batch by text; InputError if they can be examples of as many layers."""
    by_text = [[_as_array(layer[text]) for layer in maps] for text in range(n_texts)]
    # transformers returns a tuple: the first layer of all texts, and so on.
    if len(maps) == n_texts and not isinstance(maps, tuple):
        examples = np.stack([_as_array(example) for example in maps])
        if not np.array_equal(np.stack([np.stack(layers) for layers in by_text]), examples):
            raise InputError(UNCLEAR)
    return by_text


def _has_none(maps: Any) -> bool:
    """Tell whether maps are missing somewhere."""
    if isinstance(maps, (list, tuple)):
        return not maps or any(map(_has_none, maps))
    return maps is None


def _ndim(value: Any) -> int:
    """Count the axes of an array; a sequence has none."""
    return len(getattr(value, "shape", ()))


def as_maps(value: Any) -> Maps:
    """Convert an array, or one for each layer, to NumPy."""
    if isinstance(value, (list, tuple)):
        layers = [_as_array(layer) for layer in value]
        # A layer of transformers has a batch of one text.
        return np.stack([layer.reshape(layer.shape[-3:]) for layer in layers])
    return _as_array(value)


def _as_array(value: Any) -> np.ndarray:
    """Convert an array of NumPy or torch to NumPy."""
    if isinstance(value, torch.Tensor):
        return value.detach().float().cpu().numpy()
    return np.asarray(value)
