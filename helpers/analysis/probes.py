"""The probing classifiers of section 5: each gives every candidate head of a word a score.

Scores are logits: ``p(i|j)`` is their softmax over the candidates ``i`` of the dependent ``j``,
and the loss is ``-log p(head | word)``, a word's mean.  ROOT's score is a linear function of the
attention between the dependent and the special tokens, with weights of its own for every head,
direction and side.  (The released notebook of the paper reuses the words' weights there, times
one scalar a side.)

Attn and Attn + GloVe are linear in their parameters.  Their loss is therefore convex: what
L-BFGS finds is the one optimum, whatever the start, for the model and for its control alike.
Distances + GloVe is a small network, and depends on its seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from helpers.analysis.probe_data import SMALLEST_SCALE, Batch, ProbeData
from helpers.analysis.training import Schedule, Scores, loss, one_thread, train, validation_slice
from helpers.model.parallel import compute_alone

# Penalties to choose from, on the squares of the parameters: half of it, beside the mean loss.
L2 = (1.0, 0.1, 0.01, 0.001)
ROUGHLY, EXACTLY = 1e-3, 1e-5  # nats that the last step of a fit may still have gained
MOST_STEPS = 500
DISTANCE_FEATURES = 8
HIDDEN = 256  # as in the paper's released notebook
SCHEDULE = Schedule(epochs=5, learning_rate=0.006, batch_size=8)  # of Distances + GloVe


class LinearProbe(nn.Module):
    """Attn, a linear combination of the heads, and Attn + GloVe, whose weights depend on words.

    Attn (section 5, first equation): ``score(i, j) = sum_k w_k alpha^k_ij + u_k alpha^k_ji``.

    Attn + GloVe (second equation): ``w_k`` is ``W_k (v_i + v_j)``, where + joins the vectors end
    to end, and ``u_k`` is ``U_k (v_i + v_j)``; a bias for each head and direction, as in the
    paper's code, makes Attn the case of vectors without width.  ``words`` are W above U, their
    columns v_i's (the candidate's), v_j's (the dependent's) and the bias.

    Heads differ a hundredfold in how much attention they give to words.  Parameters are therefore
    for attention in units of ``Scales`` and vectors less their mean, in units of their deviation.

    W (v_i + v_j) = W_1 v_i + W_2 v_j, so each word is projected once for each role, and no
    array has pairs of words x features.  A word's row of maps holds the pairs in which it is
    the dependent.  The same row, read with the two directions exchanged, holds those in which
    it is the candidate; one batched product therefore gives both halves of the score.
    """

    def __init__(self, data: ProbeData, *, with_words: bool = False) -> None:
        super().__init__()
        self.scales, self.width = data.scales, data.vectors.shape[1] if with_words else 0
        self.correlations = torch.zeros(0, 0).double()
        if with_words:
            rows = np.concatenate([data.rows[index] for index in data.splits["train"]])
            own = data.vectors[rows].double()
            mean, deviation = own.mean(0), own.std(0, correction=0).clamp(min=SMALLEST_SCALE)
            own = (own - mean) / deviation
            self.correlations = own.T @ own / len(own)
            self.mean, self.deviation = mean.float(), deviation.float()
        features, special = len(self.scales.words), len(self.scales.root)
        self.words = nn.Parameter(torch.zeros(features, 2 * self.width + 1))
        self.root = nn.Parameter(torch.zeros(special, self.width + 1))

    @property
    def coefficients(self) -> Float[np.ndarray, " feature"]:
        """w, then u, of Attn for attention as it is."""
        return (self.words.detach()[:, -1] / self.scales.words).numpy()

    def forward(self, data: ProbeData, batch: Batch) -> Scores:
        """Return the score of every candidate head of every word."""
        features, shape = len(self.words), batch.heads.shape
        special, maps = data.padded_maps(batch)
        vectors = self._with_one(data, batch)  # [word, width + 1]
        words = self.words / self.scales.words[:, None]
        candidate, dependent = words[:, : self.width], words[:, self.width :]
        exchanged = F.pad(candidate.roll(features // 2, dims=0), (0, 1))  # the other has the bias
        roles = torch.cat([dependent, exchanged]) if self.width else dependent
        # [word, role, feature] @ [word, feature, candidate]
        halves = (vectors @ roles.T).unflatten(1, (-1, features)) @ maps.flatten(0, 1)
        halves = halves.unflatten(0, shape)
        scores = halves[:, :, 0] + halves[:, :, 1:].sum(2).transpose(1, 2)
        root = vectors @ (self.root / self.scales.root[:, None]).T  # [word, feature and place]
        root = (root * special.flatten(0, 1).flatten(1)).sum(1).view(*shape, 1)
        return torch.cat([root, scores], dim=-1)

    def _with_one(self, data: ProbeData, batch: Batch) -> Float[Tensor, "word width"]:
        if not self.width:
            return torch.ones(batch.heads.numel(), 1)
        vectors = (data.vectors[batch.rows.flatten()] - self.mean) / self.deviation
        return F.pad(vectors, (0, 1), value=1.0)


class Fit(NamedTuple):
    """A linear probe at its optimum.

    ``l2`` is the penalty; ``loss`` the mean loss of a word in nats, without it; ``gradient`` the
    largest element of the gradient of both; ``passes`` over the data, those to choose the penalty
    included.
    """

    probe: LinearProbe
    l2: float
    loss: float
    gradient: float
    passes: int


class Axes(NamedTuple):
    """Coordinates in which the loss is about as steep in every direction, so that it falls fast.

    Parameters ``[row, column]`` are rotated to where the features (rows) and the vectors (columns)
    are uncorrelated, and divided by the root of the loss's second derivative there.
    """

    rows: Float[Tensor, "row row"]
    columns: Float[Tensor, "column column"]
    steepness: Float[Tensor, "row column"]

    @classmethod
    def of(
        cls, rows: Float[Tensor, "row row"], columns: Float[Tensor, "column column"], l2: float
    ) -> Axes:
        """Return the axes for these mean products of features and of vectors."""
        sizes, rows = torch.linalg.eigh(rows)
        widths, columns = torch.linalg.eigh(columns)
        products = sizes.clamp(min=0)[:, None] * widths.clamp(min=0)
        return cls(rows, columns, (products + l2).sqrt())

    def coordinates(self, parameters: Tensor) -> Float[Tensor, "row column"]:
        """Return where parameters are along the axes."""
        return self.rows.T @ parameters.double() @ self.columns * self.steepness

    def parameters(self, coordinates: Tensor) -> Float[Tensor, "row column"]:
        """Return the parameters at some coordinates."""
        return self.rows @ (coordinates / self.steepness) @ self.columns.T


def fit_linear(
    data: ProbeData,
    sentences: Sequence[int],
    *,
    with_words: bool = False,
    l2: float | None = None,
    control_task: bool = False,
) -> Fit:
    """Fit Attn or Attn + GloVe (``with_words``) to ``sentences``, to the optimum of the loss.

    Without ``l2`` the penalty is chosen: of `L2`, from the largest on, each starting from the last
    one's optimum, the one with the lowest loss on a slice of the sentences that is held out.  Then
    the probe is fitted to all of them.  ``control_task`` asks for the heads of the control task.

    The result is the same for every number of torch's threads.
    """
    probe = LinearProbe(data, with_words=with_words)
    with one_thread() as threads, ThreadPoolExecutor(threads, initializer=compute_alone) as pool:
        fitting = _Fitting(probe, data, control_task, pool)
        if l2 is None:
            l2 = fitting.choose(*validation_slice(sentences, np.random.default_rng(0)))
        fitting.minimise(sentences, l2, EXACTLY)
        loss, gradients = fitting.loss(list(data.batches(sentences)))
    steepest = max(
        (gradient + l2 * parameter).abs().max().item()
        for gradient, parameter in zip(gradients, probe.parameters(), strict=True)
    )
    return Fit(probe, l2, loss, steepest, fitting.passes)


class _Fitting:
    """A linear probe on its way to the optimum, with the threads that go over the data."""

    def __init__(
        self, probe: LinearProbe, data: ProbeData, control_task: bool, pool: Executor
    ) -> None:
        self.probe, self.data, self.control_task, self.pool = probe, data, control_task, pool
        self.passes = 0

    def choose(self, kept: Sequence[int], held: Sequence[int]) -> float:
        """Fit to ``kept`` with ever smaller penalties; return which does best on ``held``."""
        losses = []
        for l2 in L2:
            self.minimise(kept, l2, ROUGHLY)
            losses.append(self.loss(list(self.data.batches(held)))[0])
            if losses[-1] > min(losses):
                break
        return L2[int(np.argmin(losses))]

    def minimise(self, sentences: Sequence[int], l2: float, tolerance: float) -> None:
        """Go to the optimum for some sentences, from where the probe is."""
        scales, parameters = self.probe.scales, list(self.probe.parameters())
        batches = list(self.data.batches(sentences))  # the maps are read in each pass
        vectors, one = self.probe.correlations, torch.ones(1, 1).double()
        axes = [
            Axes.of(scales.word_products, torch.block_diag(vectors, vectors, one), l2),
            Axes.of(scales.root_products, torch.block_diag(vectors, one), l2),
        ]
        at = [
            side.coordinates(parameter.detach()).requires_grad_()
            for side, parameter in zip(axes, parameters, strict=True)
        ]
        optimizer = torch.optim.LBFGS(
            at,
            max_iter=MOST_STEPS,
            max_eval=2 * MOST_STEPS,
            history_size=20,
            tolerance_grad=0,
            tolerance_change=tolerance,
            line_search_fn="strong_wolfe",
        )

        def penalised() -> Tensor:
            optimizer.zero_grad()
            found = [side.parameters(own) for side, own in zip(axes, at, strict=True)]
            with torch.no_grad():
                for parameter, value in zip(parameters, found, strict=True):
                    parameter.copy_(value)
            loss, gradients = self.loss(batches)
            penalty = sum(l2 / 2 * value.square().sum() for value in found)
            # Its gradient is that of the loss, too, which the threads have already taken.
            slope = sum((g * v).sum() for g, v in zip(gradients, found, strict=True))
            (penalty + slope).backward()
            return penalty.detach() + loss

        optimizer.step(penalised)
        for parameter, side, own in zip(parameters, axes, at, strict=True):
            parameter.data = side.parameters(own.detach()).float()

    def loss(self, batches: Sequence[Batch]) -> tuple[float, list[Tensor]]:
        """Return the mean loss of a word in some batches, and its gradient, in one pass."""
        parameters = list(self.probe.parameters())

        def of_batch(batch: Batch) -> tuple[float, tuple[Tensor, ...]]:
            lost = loss(self.probe, self.data, batch, control_task=self.control_task)
            return lost.item(), torch.autograd.grad(lost, parameters)

        total, sums = 0.0, [torch.zeros_like(own, dtype=torch.float64) for own in parameters]
        # The order of the sum is that of the batches, whatever the number of threads.
        for lost, gradients in self.pool.map(of_batch, batches):
            total += lost
            for own, gradient in zip(sums, gradients, strict=True):
                own += gradient
        self.passes += 1
        words = sum(int(batch.lengths.sum()) for batch in batches)
        return total / words, [own / words for own in sums]


class DistancesWordsProbe(nn.Module):
    """Distances + GloVe: one hidden layer over both words' vectors and their distance.

    The hidden layer's input is ``v_i + v_j + distance features`` (joined; v is zero for ROOT);
    its projection is a sum of three, of which two are computed once a word.
    """

    def __init__(self, width: int, seed: int = 0, hidden: int = HIDDEN) -> None:
        super().__init__()
        self.dependent = nn.Parameter(torch.empty(width + 1, hidden))  # the last row: a bias
        self.candidate = nn.Parameter(torch.empty(width, hidden))
        self.distance = nn.Parameter(torch.empty(DISTANCE_FEATURES, hidden))
        self.output = nn.Parameter(torch.empty(hidden))
        bounds = {
            self.dependent: width**-0.5,
            self.candidate: width**-0.5,
            self.distance: (6 / (DISTANCE_FEATURES + hidden)) ** 0.5,  # Glorot and Bengio's
            self.output: hidden**-0.5,
        }
        generator = torch.Generator().manual_seed(seed)
        for weight, bound in bounds.items():
            nn.init.uniform_(weight, -bound, bound, generator)

    def forward(self, data: ProbeData, batch: Batch) -> Scores:
        """Return the score of every candidate head of every word."""
        features, vectors = distance_features(batch), data.vectors[batch.rows]
        with_root = F.pad(vectors, (0, 0, 1, 0))
        dependent = F.pad(vectors, (0, 1), value=1.0) @ self.dependent
        hidden = features @ self.distance
        hidden = hidden + dependent[:, :, None] + (with_root @ self.candidate)[:, None]
        # tanh(x) is 2 sigmoid(2 x) - 1, which torch computes several times as fast on a CPU.
        return 2 * ((2 * hidden).sigmoid() @ self.output) - self.output.sum()


def distance_features(batch: Batch) -> Float[Tensor, "sentence dependent candidate feature"]:
    """Return the eight distance features of the paper (footnote 5 and its released notebook).

    How far ahead and how far behind the candidate is, each as a share of the sentence's length
    and zero in the other direction; whether it is exactly 2 or 1 behind, the word itself, 1 or
    2 ahead; whether it is ROOT (for which the other seven are zero).
    """
    count, width = batch.heads.shape
    place = torch.arange(width)
    offset = place[None, :] - place[:, None]  # [dependent, candidate]
    share = offset / batch.lengths[:, None, None]
    features = torch.zeros(count, width, width + 1, DISTANCE_FEATURES)
    features[:, :, 1:, 0] = share.clamp(min=0)
    features[:, :, 1:, 1] = (-share).clamp(min=0)
    for feature, near in enumerate((-2, -1, 0, 1, 2), start=2):
        features[:, :, 1:, feature] = (offset == near).float()
    features[:, :, 0, -1] = 1
    return features


def fit_distances(
    data: ProbeData, sentences: Sequence[int], seed: int, *, control_task: bool = False
) -> DistancesWordsProbe:
    """Train Distances + GloVe on ``sentences``; the seed decides its start and their order."""
    model = DistancesWordsProbe(data.vectors.shape[1], seed)
    order = np.random.default_rng(seed)
    train(
        model,
        lambda: data.batches(sentences, size=SCHEDULE.batch_size, order=order),
        lambda batch: loss(model, data, batch, control_task=control_task) / batch.lengths.sum(),
        sentences=len(sentences),
        schedule=SCHEDULE,
    )
    return model
