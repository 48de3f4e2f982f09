"""What the tokens of an example are: its special tokens and punctuation (3.2), its words (4.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float

if TYPE_CHECKING:  # torch takes seconds to import, and roles and records of words need none
    from torch import Tensor

PUNCTUATION = (".", ",")
WORD_MARKS = "Ġ▁"  # how byte-level and SentencePiece vocabularies write a leading space


@dataclass(frozen=True)
class Roles:
    """Masks over an example's positions; every position is in exactly one of them.

    ``cls`` or ``sep`` is None where the model has no such token, which is not the same as a
    model that has one and gives it no attention.
    """

    cls: Bool[np.ndarray, " position"] | None
    sep: Bool[np.ndarray, " position"] | None
    punctuation: Bool[np.ndarray, " position"]
    other: Bool[np.ndarray, " position"]

    def masks(self) -> dict[str, Bool[np.ndarray, " position"]]:
        """Return the masks that the model has, by name."""
        return {name: mask for name, mask in vars(self).items() if mask is not None}

    def kinds(self) -> list[str]:
        """Return the name of the mask that each position is in."""
        names, masks = zip(*self.masks().items(), strict=True)
        return [names[index] for index in np.argmax(masks, axis=0)]


def roles(tokens: Sequence[str], special_tokens: Mapping[str, str | None]) -> Roles:
    """Return the role of each token; ``special_tokens`` says what [CLS] and [SEP] are here."""
    cls, sep = (
        None if token is None else np.array([other == token for other in tokens])
        for token in map(special_tokens.get, ("cls", "sep"))
    )
    punctuation = np.array([token.lstrip(WORD_MARKS) in PUNCTUATION for token in tokens])
    taken = [mask for mask in (cls, sep, punctuation) if mask is not None]
    return Roles(cls, sep, punctuation, ~np.any(taken, axis=0))


def word_groups(word_ids: Sequence[int | None]) -> list[int]:
    """Return the word-level position of each token, special tokens kept as words of their own.

    ``word_ids`` is what a fast tokenizer gives: the word of each token, None for special tokens.
    Positions count up from 0 in the order of the tokens.
    """
    groups: list[int] = []
    for index, word in enumerate(word_ids):
        new = index == 0 or word is None or word != word_ids[index - 1]
        groups.append(groups[-1] + new if groups else 0)
    return groups


def membership(groups: Sequence[int]) -> Float[Tensor, "token word"]:
    """Return the 0/1 matrix that says which word each token belongs to."""
    import torch

    index = torch.tensor(groups)
    return torch.nn.functional.one_hot(index, int(index[-1]) + 1).float()


def to_words(
    attention: Float[Tensor, "*batch token token"], groups: Sequence[int]
) -> Float[Tensor, "*batch word word"]:
    """Convert token maps to word maps, all heads together (section 4.1).

    Attention *to* a word is the sum over its tokens, attention *from* a word the mean over its
    tokens, so that each row still sums to 1.
    """
    return (by_adding if attention.device.type == "cpu" else by_products)(attention, groups)


def by_products(
    attention: Float[Tensor, "*batch token token"], groups: Sequence[int]
) -> Float[Tensor, "*batch word word"]:
    """Convert to words with two matrix products, the same every time on any device."""
    return vectors_to_words(attention @ membership(groups).to(attention), groups)


def by_adding(
    attention: Float[Tensor, "*batch token token"], groups: Sequence[int]
) -> Float[Tensor, "*batch word word"]:
    """Convert to words with additions alone: faster on a CPU, in no fixed order on a GPU."""
    import torch

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
