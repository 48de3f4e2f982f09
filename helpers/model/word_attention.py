"""What is made of maps over tokens: maps of what moves (a lens), and maps over words (4.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from jaxtyping import Float

from helpers.errors import ModelError

if TYPE_CHECKING:  # torch takes seconds to import, and records of words need `word_groups` alone
    from torch import Tensor

Maps = TypeVar("Maps", np.ndarray, "Tensor")


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


def norm_maps(attention: Maps, norms: Maps) -> Maps:
    """Return ``A[i, j] |f(x_j)|``, normalised over j (Kobayashi et al. 2020), in float32 or wider.

    Arrays or tensors: ``attention`` ``[..., head, query, key]``, ``norms`` ``[..., head, key]``.
    Raises ModelError where a head moves nothing at all, or what is not finite.
    """
    moved = attention * norms[..., None, :]
    total = moved.sum(axis=-1)[..., None]
    if not ((total > 0) & (total < np.inf)).all():
        raise ModelError(
            "a head moves nothing at all, or what is not finite, so the lens 'norm' has no map of "
            "it; use --lens attention, or --dtype float32"
        )
    moved /= total
    return moved


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
    to = membership(groups).to(attention)
    return _mean_over_tokens(to).T @ (attention @ to)


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
    return _mean_over_tokens(membership(groups).to(vectors)).T @ vectors


def _mean_over_tokens(to: Float[Tensor, "token word"]) -> Float[Tensor, "token word"]:
    return to / to.sum(dim=0)
