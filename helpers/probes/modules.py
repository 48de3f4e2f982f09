"""The five probes of section 5, each of which is its formula.

Attn and Attn + GloVe read the attention between two words, Distances + GloVe reads words and
distances, but no attention.  The bilinear probe asks the question of Attn of hidden states.  The
structural probe of Hewitt and Manning (2019) is the first row of Table 3.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from jaxtyping import Float
from scipy.sparse.csgraph import minimum_spanning_tree
from torch import Tensor, nn
from torch.nn import functional as F

from helpers.metrics.reference import UUAS
from helpers.probes.data import Batch, ProbeData, Sentences, WordPairs
from helpers.probes.training import HeadProbe, ProbeCounts, Scores, count_right, with_root
from helpers.progress import one_thread

HIDDEN_UNITS = 256  # of Distances + GloVe, as in the paper's released notebook


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


class AttnWithRule(Attn):
    """Attn with the log-probability of the rule of tags and places, which begins as the rule alone.

    What do all attention heads add to what tags and places say (beyond the paper)?

    Parameters
    ----------
    data
        The sentences.
    log_p
        ``log P`` of ROOT and of every word as the parent of each word, for each sentence.
    """

    def __init__(self, data: ProbeData, log_p: list[Float[Tensor, "_word _candidate"]]) -> None:
        super().__init__(data)
        self.log_p = log_p
        self.rule = nn.Parameter(torch.ones(()))

    def forward(self, batch: Batch) -> Scores:
        """Score ROOT and every word as the head of each word."""
        log_p = torch.stack([self.log_p[index] for index in batch.sentences])
        return super().forward(batch) + self.rule * log_p


class DistancesWords(HeadProbe):
    """One hidden layer over both words' vectors and their distance.

    The input of the hidden layer is ``v_i + v_j + distance features``, where + concatenates and v
    is zero for ROOT.  Its projection is a sum of three terms, two of which are computed once for
    each word.

    Parameters
    ----------
    data
        The sentences with the vectors of their words.
    """

    learning_rate = 0.02

    def __init__(self, data: ProbeData) -> None:
        super().__init__()
        width = data.vectors.shape[1]
        self.dependent = nn.Linear(width, HIDDEN_UNITS)
        self.candidate = nn.Linear(width, HIDDEN_UNITS, bias=False)
        self.distance = nn.Linear(8, HIDDEN_UNITS, bias=False)
        self.output = nn.Linear(HIDDEN_UNITS, 1)

    def forward(self, batch: Batch) -> Scores:
        """Score ROOT and every word as the head of each word."""
        candidates = F.pad(batch.vectors, (0, 0, 1, 0))  # ROOT is the first
        distances = self.distance(distance_features(batch.vectors.shape[1]))
        hidden = distances + self.dependent(batch.vectors)[:, :, None]
        hidden += self.candidate(candidates)[:, None]
        # Logistic units are those of tanh up to scale, and are computed in place.
        scores = self.output(hidden.sigmoid_())[..., 0]
        return with_root(scores[..., 0], scores[..., 1:])


@cache
def distance_features(words: int) -> Float[Tensor, "dependent candidate feature"]:
    """Compute the eight distance features of the paper (footnote 4 and its released notebook).

    Parameters
    ----------
    words
        Length of the sentence.

    Returns
    -------
    Tensor
        ``[dependent, candidate, feature]``, where candidate 0 is ROOT.  The first two features are
        how far ahead and how far behind the candidate is, as fractions of the sentence's length.
        The next five mark candidates that are 2 or 1 words behind, the word itself, and 1 or 2
        words ahead.  The last marks ROOT.
    """
    positions = torch.arange(words)
    offset = positions[None, :] - positions[:, None]  # [dependent, candidate]
    features = torch.zeros(words, words + 1, 8)
    features[:, 1:, :2] = torch.stack([offset, -offset], dim=-1).clamp(min=0) / words
    features[:, 1:, 2:7] = (offset[..., None] == torch.arange(-2, 3)).float()
    features[:, 0, -1] = 1
    return features


class BilinearProbe(HeadProbe):
    """A score that is bilinear in one layer's hidden states of the two words.

    The score of a candidate ``j`` for the head of a dependent ``i`` is
    ``(U h_i + a) . (V h_j + b)``, and ``(U h_i + a) . r`` for ROOT.  The sentences, the candidates,
    the softmax and the loss are those of Attn.  The structural probe reads the same states, but it
    is asked for distances in a tree without directions.

    Parameters
    ----------
    data
        The sentences, with the hidden states of the layer that the probe reads.
    """

    rank = 32  # rows of U and V
    learning_rate = 0.002
    weight_decay = 1.0

    def __init__(self, data: ProbeData) -> None:
        super().__init__()
        width = data.states[0].shape[1]
        self.dependent = nn.Linear(width, self.rank)
        self.candidate = nn.Linear(width, self.rank)
        self.root = nn.Parameter(torch.randn(self.rank) * self.rank**-0.25)

    def forward(self, batch: Batch) -> Scores:
        """Score ROOT and every word as the head of each word."""
        states = batch.states
        dependents = self.dependent(states)
        return with_root(dependents @ self.root, dependents @ self.candidate(states).mT)


class StructuralProbe(nn.Module):
    """A linear map B of one layer's hidden states under which squared distances are a tree's.

    ``d_B(h_i, h_j)^2 = |B (h_i - h_j)|^2`` should be the words' distance in the dependency tree.
    The minimum spanning tree of the predicted distances is the parse, without directions.

    Parameters
    ----------
    data
        The sentences, with the hidden states of the layer that the probe reads.

    Attributes
    ----------
    projection
        B.
    """

    rank = 64  # rows of B
    learning_rate = 0.001
    weight_decay = 0.0

    def __init__(self, data: ProbeData) -> None:
        super().__init__()
        width = data.states[0].shape[1]
        self.projection = nn.Linear(width, self.rank, bias=False)
        # Differences of unit-variance vectors have variance 2 in each dimension.  Training starts
        # from distances of about five edges.
        nn.init.normal_(self.projection.weight, std=(5 / (2 * self.rank * width)) ** 0.5)

    def forward(self, batch: Batch) -> Float[Tensor, "sentence word other"]:
        """Compute the squared distance of every pair of words under B."""
        mapped = self.projection(batch.states)
        return torch.cdist(mapped, mapped).square()

    def loss(self, batch: Batch) -> Float[Tensor, ""]:
        """Compute the sentences' mean of ``sum_ij loss(d_T(i, j) - d_B(i, j)^2) / n^2``.

        In section 2.2 of Hewitt and Manning the loss is the absolute error.  Here it is that error
        less 1/4, and below an error of 1/2 it is the square of the error.
        """
        return F.smooth_l1_loss(self(batch), batch.stacked("distances"), beta=0.5)

    @torch.no_grad()
    def score(self, data: ProbeData, sentences: Sentences) -> ProbeCounts:
        """Count the edges of the dependency trees that the predicted trees have (UUAS).

        A predicted tree is the minimum spanning tree of the distances.  Punctuation is left out of
        both trees.
        """
        parses = []
        is_found = []
        with one_thread():
            for batch in data.batches(sentences):
                parses += batch.parses
                for distances, parse in zip(self(batch).numpy(), batch.parses, strict=True):
                    is_left_out = parse.punctuation | parse.punctuation[:, None]
                    tree = spanning_tree(np.where(is_left_out, np.inf, distances))
                    is_found.append(tree[parse.edges])
        return {UUAS: count_right(parses, is_found)}


def spanning_tree(distances: Float[np.ndarray, "word other"]) -> WordPairs:
    """Mark the pairs of words that the minimum spanning tree joins, in both directions.

    A distance of infinity joins no words.
    """
    # SciPy takes a distance of zero for no edge.  Adding 1 to all changes no comparison.
    tree = minimum_spanning_tree(distances.astype(np.float64) + 1).toarray() > 0
    return tree | tree.T
