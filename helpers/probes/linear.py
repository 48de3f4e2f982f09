"""Attn and Attn + GloVe (section 5): linear probes of the attention between two words."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from helpers.probes.data import Batch, ProbeData
from helpers.probes.training import HeadProbe, Scores, with_root


class Attn(HeadProbe):
    """Attn, a linear combination of the attention heads, or Attn + GloVe, with words' weights.

    Attn (section 5, first equation): ``score(i, j) = sum_k w_k alpha^k_ij + u_k alpha^k_ji``.

    Attn + GloVe (second equation): ``w_k`` is ``W_k (v_i + v_j)``, where + concatenates the
    vectors, and ``u_k`` is ``U_k (v_i + v_j)``.  A bias for each attention head and direction, as
    in the paper's code, makes Attn the special case of vectors without width.

    ``W (v_i + v_j) = W_1 v_i + W_2 v_j``.  Therefore each word is projected once for each role, and
    no array has the size of all pairs of words times all features.

    The score of ROOT is a linear function of the attention between the dependent and the special
    tokens, with weights of its own for every attention head, direction and side.  (The released
    notebook of the paper reuses the words' weights there, times one scalar for each side.)

    Parameters
    ----------
    data
        The sentences; their train part determines the scales of features.
    with_words
        Attn + GloVe if true, Attn if false.

    Attributes
    ----------
    dependent
        ``[feature, width + 1]``: W_2 above U_2, with the bias last, of features in their scales.
    candidate
        ``[feature, width]``: U_1 above W_1.  A word's row of maps has the pairs in which it is the
        dependent.  With the two directions exchanged, it has those in which it is the candidate.
        One batched product therefore gives both halves of the score.
    root
        ``[special feature, width + 1]``: weights of the score of ROOT.
    """

    def __init__(self, data: ProbeData, *, with_words: bool = False) -> None:
        super().__init__()
        self.width = data.vectors.shape[1] if with_words else 0
        self.learning_rate = 0.0005 if with_words else 0.02
        self.scales, self.special_scales = data.feature_scales
        features = len(self.scales)
        self.dependent = nn.Parameter(torch.zeros(features, self.width + 1))
        self.candidate = nn.Parameter(torch.zeros(features, self.width))
        self.root = nn.Parameter(torch.zeros(2 * features, self.width + 1))

    @property
    def weights(self) -> tuple[Float[Tensor, " feature"], Float[Tensor, " special"]]:
        """The weights of Attn, w above u, and those of the score of ROOT."""
        return self.dependent[:, -1] / self.scales, self.root[:, -1] / self.special_scales

    def forward(self, batch: Batch) -> Scores:
        """Score ROOT and every word as the head of each word."""
        vectors = batch.vectors[..., : self.width]
        with_bias = F.pad(vectors, (0, 1), value=1.0)
        roles = [with_bias @ self.dependent.T, vectors @ self.candidate.T]
        weights = torch.stack(roles, dim=-1) / self.scales[:, None]
        halves = batch.blocks[:, :, 1:-1] @ weights  # [sentence, word, other, role]
        special = batch.blocks[:, :, [0, -1]].flatten(2)
        root = special * (with_bias @ self.root.T) / self.special_scales
        return with_root(root.sum(-1), halves[..., 0] + halves[..., 1].mT)
