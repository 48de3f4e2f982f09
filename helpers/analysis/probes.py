"""The probing classifiers of section 5: each gives every candidate head of a word a score.

Scores are logits: ``p(i|j)`` is their softmax over the candidates ``i`` of the dependent ``j``.
ROOT's score is a linear function of the attention between the dependent and the special tokens,
with weights of its own for every head, direction and side.  (The released notebook of the paper
reuses the words' weights there, times one scalar a side.)

Heads differ a hundredfold in how much attention they give to words.  The parameters are
therefore kept in units of each feature's deviation (``Scales``), which makes one learning rate
suit every head and model; ``coefficients`` are the weights of the equations.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from helpers.analysis.probe_data import PLACES, Batch, Scales

DISTANCE_FEATURES = 8
HIDDEN = 256  # as in the paper's released notebook

Scores = Float[Tensor, "sentence dependent candidate"]


class AttentionProbe(nn.Module):
    """Attn: a linear combination of the heads (section 5, first equation).

    ``score(i, j) = sum_k w_k alpha^k_ij + u_k alpha^k_ji``; ``weight`` is w, then u.
    """

    def __init__(self, scales: Scales) -> None:
        super().__init__()
        self.register_buffer("word_scales", scales.words)
        self.register_buffer("root_scales", scales.root)
        self.weight = nn.Parameter(torch.zeros_like(scales.words))
        self.root = nn.Parameter(torch.zeros_like(scales.root))

    @property
    def coefficients(self) -> Float[Tensor, " feature"]:
        """w, then u, for attention as it is."""
        return self.weight / self.word_scales

    def forward(self, batch: Batch) -> Scores:
        """Return the score of every candidate head of every word."""
        count, width = batch.heads.shape
        weights = self.coefficients.expand(count * width, 1, -1)
        words = (weights @ batch.maps.flatten(0, 1)).view(count, width, -1)[..., PLACES:]
        root = (batch.maps[..., :PLACES] * (self.root / self.root_scales)).sum((-2, -1))
        return torch.cat([root[..., None], words], dim=-1)


class AttentionWordsProbe(nn.Module):
    """Attn + GloVe: the heads' weights depend on the two words (section 5, second equation).

    ``score(i, j) = sum_k W_k (v_i + v_j) alpha^k_ij + U_k (v_i + v_j) alpha^k_ji``, where + joins
    two vectors end to end.  ``coefficients`` are W above U, their columns v_i's (the candidate's),
    then v_j's (the dependent's), and a bias for each head and direction, as in the paper's code.

    W (v_i + v_j) = W_1 v_i + W_2 v_j, so each word is projected once for each role, and no
    array has pairs of words x features.  A word's row of maps holds the pairs in which it is
    the dependent.  The same row, read with the two directions exchanged, holds those in which
    it is the candidate; one batched product therefore gives both halves of the score.
    """

    def __init__(self, scales: Scales, width: int) -> None:
        super().__init__()
        features = len(scales.words)
        self.register_buffer("word_scales", scales.words)
        self.register_buffer("root_scales", scales.root)
        self.weight = nn.Parameter(torch.zeros(features, 2 * width))
        self.bias = nn.Parameter(torch.zeros(features))
        self.root = nn.Linear(width, features * PLACES)
        nn.init.zeros_(self.root.weight)
        nn.init.zeros_(self.root.bias)

    @property
    def coefficients(
        self,
    ) -> tuple[Float[Tensor, "feature both_words"], Float[Tensor, " feature"]]:
        """W above U, and the biases, for attention as it is."""
        return self.weight / self.word_scales[:, None], self.bias / self.word_scales

    def forward(self, batch: Batch) -> Scores:
        """Return the score of every candidate head of every word."""
        weight, bias = self.coefficients
        features, width = len(bias), batch.vectors.shape[-1]
        candidate, dependent = weight.split(width, dim=1)
        exchanged = candidate.roll(features // 2, dims=0)
        weights = torch.stack(  # [sentence, word, role, feature]
            [F.linear(batch.vectors, dependent, bias), F.linear(batch.vectors, exchanged)], 2
        )
        halves = (weights.flatten(0, 1) @ batch.maps.flatten(0, 1)).unflatten(
            0, weights.shape[:2]
        )  # [sentence, word, role, place]
        of_dependent, of_candidate = halves[..., PLACES:].unbind(2)
        root_weights = self.root(batch.vectors).unflatten(-1, (features, PLACES))
        root_weights = root_weights / self.root_scales
        root = (root_weights * batch.maps[..., :PLACES]).sum((-2, -1))
        return torch.cat([root[..., None], of_dependent + of_candidate.transpose(1, 2)], dim=-1)


class DistancesWordsProbe(nn.Module):
    """Distances + GloVe: one hidden layer over both words' vectors and their distance.

    The hidden layer's input is ``v_i + v_j + distance features`` (joined; v is zero for ROOT);
    its projection is a sum of three, of which two are computed once a word.
    """

    def __init__(self, width: int, hidden: int = HIDDEN) -> None:
        super().__init__()
        self.dependent = nn.Linear(width, hidden)
        self.candidate = nn.Linear(width, hidden, bias=False)
        self.distance = nn.Parameter(torch.empty(DISTANCE_FEATURES, hidden))
        nn.init.xavier_uniform_(self.distance)
        self.output = nn.Linear(hidden, 1, bias=False)

    def forward(self, batch: Batch) -> Scores:
        """Return the score of every candidate head of every word."""
        count, width, _ = batch.vectors.shape
        candidate = F.pad(self.candidate(batch.vectors), (0, 0, 1, 0))  # ROOT is zero
        # The dependent's projection enters as the weight of a ninth feature that is always 1,
        # so that the three terms meet in a single product.
        features = F.pad(distance_features(batch.lengths, width), (0, 1), value=1.0)
        weights = torch.cat(
            [
                self.distance.expand(count, width, -1, -1),
                self.dependent(batch.vectors)[:, :, None],
            ],
            dim=2,
        )  # [sentence, dependent, feature, hidden]
        hidden = torch.baddbmm(
            candidate[:, None].expand(-1, width, -1, -1).flatten(0, 1),
            features.flatten(0, 1),
            weights.flatten(0, 1),
        ).tanh()  # [sentence * dependent, candidate, hidden]
        return self.output(hidden).squeeze(-1).unflatten(0, (count, width))


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
