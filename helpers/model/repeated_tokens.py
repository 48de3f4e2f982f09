"""Maps of random tokens that are written twice, in which no meaning tells a head where to look."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from jaxtyping import Float

from helpers.model.forward import forward, model_inputs
from helpers.model.loading import Model

N_TOKENS = 20  # of each half
N_SEQUENCES = 32


def repeated_token_maps(
    encoder: Model, vocabulary: Collection[str], seed: int
) -> tuple[Float[np.ndarray, "layer sequence head query key"], int, int]:
    """Compute the maps of `N_SEQUENCES` sequences ``[CLS] a b c ... a b c ... [SEP]``.

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
