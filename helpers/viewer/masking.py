"""The maps that a model has when words of an example are masked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from helpers.errors import InputError
from helpers.store.format import tensor_name
from helpers.store.store import Example, Source

if TYPE_CHECKING:
    from helpers.model.encoder import Encoder


def check_masks(store: Source, encoder: Encoder) -> None:
    """Check that an encoder can mask the words of a store.

    Raises:
        InputError: it is not the model that the maps are of, or has no mask token.
    """
    from helpers.store.extract import model_facts

    own, other = store.spec.model, model_facts(encoder)
    if other != own:
        raise InputError(
            f"the maps are those of {own['name']}, and {encoder.name} is not that model as it was"
        )
    if encoder.tokenizer.mask_token is None:
        raise InputError(f"{encoder.name} has no mask token")


def masked_example(
    store: Source, index: int, positions: Sequence[int], encoder: Encoder
) -> Example:
    """Return an example with the mask token at ``positions`` of its maps, run through the model.

    At word level the mask token takes the place of a whole word, however many tokens it has.
    """
    from helpers.store.shards import shard_tensors

    example, mask = store[index], encoder.tokenizer.mask_token
    kind, offset = ("words", example.offset) if "words" in example.record else ("tokens", 0)
    texts = list(example.record[kind])
    for position in positions:
        texts[position - offset] = mask
    record = example.record | {kind: texts}
    tensors = shard_tensors(encoder, [record], index, **store.spec.maps)
    return replace(example, attention=tensors[tensor_name("attention", index)], record=record)
