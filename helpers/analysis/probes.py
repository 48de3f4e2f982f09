"""The probing classifiers of section 5: each gives every candidate head of a word a score.

Scores are logits: ``p(i|j)`` is their softmax over the candidates ``i`` of the dependent ``j``.
ROOT's score is a linear function of the attention between the dependent and the special tokens,
with weights of its own for every head, direction and side.  (The released notebook of the paper
reuses the words' weights there, times one scalar a side.)

Heads differ a hundredfold in how much attention they give to words.  The parameters are
therefore kept in units of each feature's deviation (``Scales``), which makes one learning rate
suit every head and model; ``coefficients`` are the weights of the equations.

Several probes on the same maps are one model here, each a *member* with parameters of its own
along their first axis: reading the maps costs more than multiplying them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from helpers.analysis.heads import head_rows
from helpers.analysis.probe_data import EVALUATION_BATCH, PLACES, Batch, ProbeData
from helpers.analysis.training import one_thread

DISTANCE_FEATURES = 8
HIDDEN = 256  # as in the paper's released notebook

Seeds = Sequence[int]  # one for each member
Scores = Float[Tensor, "member sentence dependent candidate"]


class HeadsProbe(nn.Module):
    """A probe that weighs the heads, its parameters in units of how much each feature varies.

    Heads of random weights all but repeat each other (one axis has 10,000 times the mean square
    of the next), so that no learning rate suits them: ``whitened`` keeps the parameters in units
    of uncorrelated features.
    """

    reads_maps = True

    def __init__(self, data: ProbeData, *, whitened: bool) -> None:
        super().__init__()
        self.register_buffer("whitening", data.scales.whitening if whitened else None)
        self.register_buffer("word_scales", data.scales.words)
        self.register_buffer("root_scales", data.scales.root)


class AttentionProbe(HeadsProbe):
    """Attn: a linear combination of the heads (section 5, first equation).

    ``score(i, j) = sum_k w_k alpha^k_ij + u_k alpha^k_ji``; ``coefficients`` are w, then u.
    """

    def __init__(self, data: ProbeData, seeds: Seeds = (0,), *, whitened: bool = False) -> None:
        super().__init__(data, whitened=whitened)
        self.weight = nn.Parameter(torch.zeros(len(seeds), data.features))
        self.root = nn.Parameter(torch.zeros(len(seeds), data.features, PLACES))

    @property
    def coefficients(self) -> Float[Tensor, "member feature"]:
        """w, then u, for attention as it is."""
        weight = self.weight if self.whitening is None else self.weight @ self.whitening
        return weight / self.word_scales

    def forward(self, batch: Batch) -> Scores:
        """Return the score of every candidate head of every word."""
        maps = batch.maps.flatten(0, 1)  # [word, feature, candidate]
        words = self.coefficients.expand(len(maps), -1, -1) @ maps  # [word, member, candidate]
        root = (self.root / self.root_scales).flatten(1)  # [member, feature * place]
        root = F.linear(batch.special.flatten(2), root)  # [sentence, dependent, member]
        words = words.unflatten(0, root.shape[:2])
        return torch.cat([root[..., None], words], dim=-1).permute(2, 0, 1, 3)


class AttentionWordsProbe(HeadsProbe):
    """Attn + GloVe: the heads' weights depend on the two words (section 5, second equation).

    ``score(i, j) = sum_k W_k (v_i + v_j) alpha^k_ij + U_k (v_i + v_j) alpha^k_ji``, where + joins
    two vectors end to end.  ``coefficients`` are W above U, their columns v_i's (the candidate's),
    then v_j's (the dependent's), and a bias for each head and direction, as in the paper's code.

    W (v_i + v_j) = W_1 v_i + W_2 v_j, so each word is projected once for each role, and no
    array has pairs of words x features.  A word's row of maps holds the pairs in which it is
    the dependent.  The same row, read with the two directions exchanged, holds those in which
    it is the candidate; one batched product therefore gives both halves of the score.
    """

    def __init__(self, data: ProbeData, seeds: Seeds = (0,), *, whitened: bool = False) -> None:
        super().__init__(data, whitened=whitened)
        shape, width = (len(seeds), data.features), data.vector_width
        self.weight = nn.Parameter(torch.zeros(*shape, 2 * width))
        self.bias = nn.Parameter(torch.zeros(shape))
        self.root = nn.Parameter(torch.zeros(*shape, PLACES, width + 1))

    @property
    def coefficients(
        self,
    ) -> tuple[Float[Tensor, "member feature both_words"], Float[Tensor, "member feature"]]:
        """W above U, and the biases, for attention as it is."""
        weight, bias = self.weight, self.bias
        if self.whitening is not None:
            weight, bias = self.whitening @ weight, bias @ self.whitening
        return weight / self.word_scales[:, None], bias / self.word_scales

    def forward(self, batch: Batch) -> Scores:
        """Return the score of every candidate head of every word."""
        weight, bias = self.coefficients
        members, features = bias.shape
        vectors = batch.vectors.flatten(0, 1)
        candidate, dependent = weight.chunk(2, dim=2)
        exchanged = candidate.roll(features // 2, dims=1)
        both = torch.stack([dependent, exchanged], 1).flatten(0, 2)
        biases = F.pad(bias[:, None], (0, 0, 0, 1)).flatten()  # the dependent's half has it
        # [word, member * role, feature] @ [word, feature, candidate]
        halves = F.linear(vectors, both, biases).unflatten(1, (-1, features))
        halves = (halves @ batch.maps.flatten(0, 1)).unflatten(1, (members, 2))
        halves = halves.unflatten(0, batch.heads.shape).permute(3, 2, 0, 1, 4)
        of_dependent, of_candidate = halves  # [member, sentence, word, other]
        root = (self.root / self.root_scales[..., None]).flatten(0, 2)
        root = F.linear(F.pad(vectors, (0, 1), value=1.0), root).unflatten(1, (members, -1))
        root = root @ batch.special.flatten(0, 1).flatten(1)[:, :, None]  # [word, member, 1]
        root = root.unflatten(0, batch.heads.shape).permute(2, 0, 1, 3)
        return torch.cat([root, of_dependent + of_candidate.transpose(2, 3)], dim=-1)


class DistancesWordsProbe(nn.Module):
    """Distances + GloVe: one hidden layer over both words' vectors and their distance.

    The hidden layer's input is ``v_i + v_j + distance features`` (joined; v is zero for ROOT);
    its projection is a sum of three, of which two are computed once a word.  A member starts
    from what its seed draws.
    """

    reads_maps = False

    def __init__(self, data: ProbeData, seeds: Seeds = (0,), hidden: int = HIDDEN) -> None:
        super().__init__()
        count, width = len(seeds), data.vector_width
        self.dependent = nn.Parameter(torch.empty(count, width + 1, hidden))  # the last: a bias
        self.candidate = nn.Parameter(torch.empty(count, width, hidden))
        self.distance = nn.Parameter(torch.empty(count, DISTANCE_FEATURES, hidden))
        self.output = nn.Parameter(torch.empty(count, hidden))
        bounds = {
            self.dependent: width**-0.5,
            self.candidate: width**-0.5,
            self.distance: (6 / (DISTANCE_FEATURES + hidden)) ** 0.5,  # Glorot and Bengio's
            self.output: hidden**-0.5,
        }
        for member, seed in enumerate(seeds):
            generator = torch.Generator().manual_seed(seed)
            for weight, bound in bounds.items():
                nn.init.uniform_(weight[member], -bound, bound, generator)

    def forward(self, batch: Batch) -> Scores:
        """Return the score of every candidate head of every word."""
        features = distance_features(batch.lengths, batch.heads.shape[1])
        with_one = F.pad(batch.vectors, (0, 1), value=1.0)
        with_root = F.pad(batch.vectors, (0, 0, 1, 0))
        parameters = zip(self.distance, self.dependent, self.candidate, self.output, strict=True)
        return torch.stack(
            [
                HiddenLayer.apply(features, distance, with_one @ own, with_root @ other, output)
                for distance, own, other, output in parameters
            ]
        )


class HiddenLayer(torch.autograd.Function):
    """``output . tanh(distance features + dependent + candidate)`` for every pair of words.

    The hidden layer of all pairs is by far the largest array of the probes.  Written out, its
    gradient goes over it a third as often as the automatic one, and in place.  ``tanh(x)`` is
    ``2 sigmoid(2 x) - 1``, which torch computes several times as fast on a CPU.
    """

    @staticmethod
    def forward(
        ctx: Any,
        features: Float[Tensor, "sentence dependent candidate feature"],
        distance: Float[Tensor, "feature hidden"],
        dependent: Float[Tensor, "sentence dependent hidden"],
        candidate: Float[Tensor, "sentence candidate hidden"],
        output: Float[Tensor, " hidden"],
    ) -> Float[Tensor, "sentence dependent candidate"]:
        """Return the scores, and keep half the hidden layer."""
        half = features @ (2 * distance)
        half += 2 * dependent[:, :, None]
        half += 2 * candidate[:, None]
        half.sigmoid_().sub_(0.5)
        ctx.save_for_backward(features, half, output)
        return 2 * (half @ output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients; the slope of tanh is ``1 - tanh^2``."""
        features, half, output = ctx.saved_tensors
        to_output = 2 * (grad.flatten() @ half.flatten(0, 2))
        slopes = half.square_().neg_().add_(0.25).mul_(4 * grad[..., None])
        to_distance = features.flatten(0, 2).T @ slopes.flatten(0, 2)
        return (
            None,
            to_distance * output,
            slopes.sum(2) * output,
            slopes.sum(1) * output,
            to_output,
        )


def distance_features(
    lengths: Int[Tensor, " sentence"], width: int
) -> Float[Tensor, "sentence dependent candidate feature"]:
    """Return the eight distance features of the paper (footnote 5 and its released notebook).

    How far ahead and how far behind the candidate is, each as a share of the sentence's length
    and zero in the other direction; whether it is exactly 2 or 1 behind, the word itself, 1 or
    2 ahead; whether it is ROOT (for which the other seven are zero).
    """
    place = torch.arange(width)
    offset = place[None, :] - place[:, None]  # [dependent, candidate]
    share = offset / lengths[:, None, None]
    features = torch.zeros(len(lengths), width, width + 1, DISTANCE_FEATURES)
    features[:, :, 1:, 0] = share.clamp(min=0)
    features[:, :, 1:, 1] = (-share).clamp(min=0)
    for feature, near in enumerate((-2, -1, 0, 1, 2), start=2):
        features[:, :, 1:, feature] = (offset == near).float()
    features[:, :, 0, -1] = 1
    return features


def head_weights(coefficients: Float[Tensor, "member feature"], data: ProbeData) -> pd.DataFrame:
    """Return what the Attn probe made of each head: layer, head, w, u, w_gain, u_gain.

    ``w`` weighs the attention from the candidate head to the word, ``u`` that from the word to
    the candidate; means over members.  A head that gives words little attention needs a large
    weight to matter at all, so ``w_gain`` and ``u_gain`` are what it adds to the score: the
    weight times the mean, over dev words with a head, of the attention between word and gold
    head less its mean over the other words.  Sorted by the larger of the two gains.
    """
    weight = coefficients.detach().mean(0).numpy()
    gains = weight * attention_contrast(data)
    (w, u), (w_gain, u_gain) = (v.reshape(2, data.layers, data.heads) for v in (weight, gains))
    table = head_rows(data.layers, data.heads, w=w, u=u, w_gain=w_gain, u_gain=u_gain)
    order = table[["w_gain", "u_gain"]].max(axis=1).sort_values(ascending=False, kind="stable")
    return table.loc[order.index].reset_index(drop=True)


@one_thread()
def attention_contrast(data: ProbeData) -> Float[np.ndarray, " feature"]:
    """Return each feature's mean on gold heads less its mean on the other candidate words.

    The means are over the dev words that have a word as head and another that is not it.
    """
    contrast, words = torch.zeros(data.features, dtype=torch.float64), 0
    for batch in data.batches(data.splits["dev"], size=EVALUATION_BATCH):
        others = batch.candidates()[..., 1:].float()
        gold = F.one_hot(batch.heads.clamp(min=0), others.shape[-1] + 1)[..., 1:].float()
        others = others - gold
        usable = (gold.sum(-1) > 0) & (others.sum(-1) > 0)
        pairs = (gold - others / others.sum(-1, keepdim=True).clamp(min=1)) * usable[..., None]
        contrast += torch.einsum("sdp,sdfp->f", pairs, batch.maps).double()
        words += int(usable.sum())
    return (contrast / max(words, 1)).numpy()
