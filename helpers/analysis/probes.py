"""Attn and Attn + GloVe (section 5): linear probes, which give a word's candidate heads scores.

Scores are logits: ``p(i|j)`` is their softmax over the candidates ``i`` of the dependent ``j``,
and the loss is ``-log p(head | word)``, a word's mean.  ROOT's score is a linear function of the
attention between the dependent and the special tokens, with weights of its own for every head,
direction and side.  (The released notebook of the paper reuses the words' weights there, times
one scalar a side.)

The loss of a score that is linear in its parameters is convex: what L-BFGS finds is the one
optimum, whatever the start, for the model and for its control alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits
from torch import Tensor, nn
from torch.nn import functional as F

from helpers.analysis.probe_data import SAMPLE, SMALLEST_UNIT, Batch, ProbeData
from helpers.analysis.training import Scores, candidate_scores, loss, one_thread, validation_slice
from helpers.work import compute_alone, trim

# Penalties to choose from, on the squares of the parameters: half of it, beside the mean loss.
L2 = (1.0, 0.1, 0.01, 0.001)
ROUGHLY, EXACTLY = 1e-3, 1e-5  # nats that the last step of a fit may still have gained
MOST_STEPS = 500


class LinearProbe(nn.Module):
    """Attn, a linear combination of the heads, and Attn + GloVe, whose weights depend on words.

    Attn (section 5, first equation): ``score(i, j) = sum_k w_k alpha^k_ij + u_k alpha^k_ji``.

    Attn + GloVe (second equation): ``w_k`` is ``W_k (v_i + v_j)``, where + joins the vectors end
    to end, and ``u_k`` is ``U_k (v_i + v_j)``; a bias for each head and direction, as in the
    paper's code, makes Attn the case of vectors without width.  Vectors are less their mean, in
    units of their deviation.

    W (v_i + v_j) = W_1 v_i + W_2 v_j, so each word is projected once for each role, and no
    array has pairs of words x features.  ``dependent`` are W_2 above U_2, with the bias last.  A
    word's row of maps holds the pairs in which it is the dependent.  The same row, read with the
    two directions exchanged, holds those in which it is the candidate: ``candidate`` are
    therefore U_1 above W_1, and one batched product gives both halves of the score.
    """

    def __init__(self, data: ProbeData, *, with_words: bool = False) -> None:
        super().__init__()
        vectors = data.vectors if with_words else data.vectors[:, :0]
        own = vectors[np.concatenate([data.rows[index] for index in data.splits["train"]])].double()
        mean = own.mean(0)
        deviation = (own - mean).square().mean(0).sqrt().clamp(min=SMALLEST_UNIT)
        own = (own - mean) / deviation
        self.correlations = own.T @ own / len(own)
        self.vectors = F.pad((vectors - mean.float()) / deviation.float(), (0, 1), value=1.0)
        self.width, (words, root) = vectors.shape[1], data.units
        self.candidate = nn.Parameter(torch.zeros(len(words), self.width))
        self.dependent = nn.Parameter(torch.zeros(len(words), self.width + 1))
        self.root = nn.Parameter(torch.zeros(len(root), self.width + 1))
        self.units = [own[:, None].double() for own in (words.roll(len(words) // 2), words, root)]

    def forward(self, data: ProbeData, batch: Batch) -> Scores:
        """Return the score of every candidate head of every word."""
        special, maps = data.maps(batch)
        vectors = self.vectors[batch.rows.flatten()]  # [word, width + 1]
        roles = self.dependent
        if self.width:
            roles = torch.cat([roles, F.pad(self.candidate, (0, 1))])
        # [word, role, feature] @ [word, feature, candidate]
        halves = (vectors @ roles.T).unflatten(1, (-1, maps.shape[2])) @ maps.transpose(1, 2)
        halves = halves.unflatten(0, batch.heads.shape)
        scores = halves[:, :, 0] + halves[:, :, 1:].sum(2).transpose(1, 2)
        root = ((vectors @ self.root.T) * special).sum(1).view(*batch.heads.shape, 1)
        return torch.cat([root, scores], dim=-1)


class Fit(NamedTuple):
    """A linear probe at its optimum.

    ``l2`` is the penalty; ``loss`` the mean loss of a word in nats, without it; ``gradient`` the
    largest element of the gradient of both; ``passes`` over the data, also to choose the penalty.
    """

    probe: LinearProbe
    l2: float
    loss: float
    gradient: float
    passes: int


class Axes(NamedTuple):
    """Coordinates in which the loss is about as steep in every direction, so that it falls fast.

    Parameters ``[row, column]``, in the ``units`` of their rows, are rotated to where the features
    (rows) and the vectors (columns) are uncorrelated, and divided by the root of the second
    derivative there of the penalised loss.
    """

    units: Float[Tensor, "row 1"]
    rows: Float[Tensor, "row row"]
    columns: Float[Tensor, "column column"]
    steepness: Float[Tensor, "row column"]

    def coordinates(self, parameters: Tensor) -> Float[Tensor, "row column"]:
        """Return where parameters are along the axes."""
        return self.rows.T @ (parameters * self.units) @ self.columns * self.steepness

    def parameters(self, coordinates: Tensor) -> Float[Tensor, "row column"]:
        """Return the parameters at some coordinates."""
        return self.rows @ (coordinates / self.steepness) @ self.columns.T / self.units

    def slopes(self, gradient: Tensor) -> Float[Tensor, "row column"]:
        """Return the gradient by the coordinates for a gradient by the parameters."""
        return self.rows.T @ (gradient / self.units) @ self.columns / self.steepness


def axes_of(
    probe: LinearProbe, data: ProbeData, sentences: Sequence[int], l2: float, pool: Executor
) -> list[Axes]:
    """Return the axes of each parameter, by how the loss curves where the probe is.

    Candidates are as likely as the probe finds them.  The features of a dependent change the
    scores of all its candidates: what counts is their covariance.  Those of one candidate, or of
    ROOT, change one score: their mean product, the more the less is certain.
    """

    @torch.no_grad()
    def of_batch(batch: Batch) -> tuple[Tensor, tuple[Tensor, Tensor], Tensor, int]:
        likely = candidate_scores(probe, data, batch).softmax(-1).flatten(0, 1)[..., None]
        unsure, (special, maps) = likely * (1 - likely), data.maps(batch)
        weighted, own = maps * likely[:, 1:], maps.flatten(0, 1)
        means = weighted.sum(1)
        candidate = (maps * unsure[:, 1:]).flatten(0, 1).T @ own
        dependent = weighted.flatten(0, 1).T @ own, means.T @ means
        return candidate, dependent, (special * unsure[:, 0]).T @ special, len(maps)

    candidate, dependent, root, count = 0, 0, 0, 0
    for one, (products, of_means), other, words in pool.map(of_batch, data.batches(sentences)):
        candidate, dependent = candidate + one, dependent + products - of_means
        root, count = root + other, count + words
    half = len(dependent) // 2  # a candidate's directions are exchanged
    curvatures = candidate.roll((half, half), (0, 1)), dependent, root
    with_one = torch.block_diag(probe.correlations, torch.ones(1, 1))
    correlations, axes = (probe.correlations, with_one, with_one), []
    for own, vectors, units in zip(curvatures, correlations, probe.units, strict=True):
        sizes, rows = torch.linalg.eigh(own.double() / count / units / units.T)
        widths, columns = torch.linalg.eigh(vectors)
        products = sizes.clamp(min=0)[:, None] * widths.clamp(min=0)
        axes.append(Axes(units, rows, columns, (products + l2).sqrt()))
    return axes


def fit_linear(
    data: ProbeData,
    sentences: Sequence[int],
    *,
    with_words: bool = False,
    l2: float | None = None,
    control_task: bool = False,
    start: LinearProbe | None = None,
) -> Fit:
    """Fit Attn or Attn + GloVe (``with_words``) to ``sentences``, to the optimum of the loss.

    Without ``l2`` the penalty is chosen: of `L2`, from the largest on, each starting from the last
    one's optimum, the one with the lowest loss on a slice of the sentences that is held out.  Then
    the probe is fitted to all of them, sooner from a ``start`` that is near.  ``control_task`` asks
    for the heads of that task.  The result is the same for every number of threads.
    """
    probe = LinearProbe(data, with_words=with_words)
    if start:
        probe.load_state_dict(start.state_dict())
    with (
        one_thread() as threads,
        threadpool_limits(1, "blas"),  # of scipy's sums
        ThreadPoolExecutor(threads, initializer=compute_alone) as pool,
    ):
        fitting = _Fitting(probe, data, control_task, pool)
        if l2 is None:
            l2 = fitting.choose(*validation_slice(sentences, np.random.default_rng(0)))
        elif not start:
            fitting.minimise(sentences, l2, ROUGHLY)
        fitting.minimise(sentences, l2, EXACTLY)
        loss, gradients = fitting.loss(list(data.batches(sentences)))
    slopes = [
        (gradient / unit + l2 * own.detach() * unit).flatten()
        for own, unit, gradient in zip(probe.parameters(), probe.units, gradients, strict=True)
    ]
    return Fit(probe, l2, loss, torch.cat(slopes).abs().max().item(), fitting.passes)


class _Fitting:
    """A linear probe on its way to the optimum, with the threads that go over the data."""

    def __init__(
        self, probe: LinearProbe, data: ProbeData, control_task: bool, pool: Executor
    ) -> None:
        self.probe, self.data, self.control_task, self.pool = probe, data, control_task, pool
        self.passes = 0

    def choose(self, kept: Sequence[int], held: Sequence[int]) -> float:
        """Fit to ``kept`` with ever smaller penalties; return which does best on ``held``."""
        held_out, losses, states = list(self.data.batches(held)), [], []
        for l2 in L2:
            self.minimise(kept, l2, ROUGHLY)
            losses.append(self.loss(held_out)[0])
            states.append({name: own.clone() for name, own in self.probe.state_dict().items()})
            if losses[-1] > min(losses):
                break
        best = int(np.argmin(losses))
        self.probe.load_state_dict(states[best])
        return L2[best]

    def minimise(self, sentences: Sequence[int], l2: float, tolerance: float) -> None:
        """Go to the optimum for some sentences, from where the probe is."""
        batches = list(self.data.batches(sentences))  # the maps are read in each pass
        axes = axes_of(self.probe, self.data, sentences[:SAMPLE], l2, self.pool)

        def penalised(flat: np.ndarray) -> tuple[float, np.ndarray]:
            at = self.move(flat, axes)
            loss, gradients = self.loss(batches)
            slopes = []
            for side, gradient, own in zip(axes, gradients, at, strict=True):
                loss += l2 / 2 * (own / side.steepness).square().sum().item()
                slopes.append((side.slopes(gradient) + l2 * own / side.steepness**2).flatten())
            return loss, torch.cat(slopes).numpy()

        start = [
            side.coordinates(own.detach()).flatten()
            for side, own in zip(axes, self.probe.parameters(), strict=True)
        ]
        options = {"ftol": tolerance, "gtol": 0, "maxcor": 50, "maxiter": MOST_STEPS}
        found = minimize(penalised, torch.cat(start), jac=True, method="L-BFGS-B", options=options)
        self.move(found.x, axes)
        trim()

    def move(self, flat: np.ndarray, axes: Sequence[Axes]) -> list[Tensor]:
        """Take the probe to some coordinates; return those of each parameter."""
        parts = torch.from_numpy(flat).split([side.steepness.numel() for side in axes])
        at = [part.view_as(side.steepness) for part, side in zip(parts, axes, strict=True)]
        for parameter, side, own in zip(self.probe.parameters(), axes, at, strict=True):
            parameter.data = side.parameters(own).float()
        return at

    def loss(self, batches: Sequence[Batch]) -> tuple[float, list[Tensor]]:
        """Return the mean loss of a word in some batches, and its gradient, in one pass."""
        parameters = list(self.probe.parameters())

        def of_batch(batch: Batch) -> tuple[float, tuple[Tensor, ...]]:
            lost = loss(self.probe, self.data, batch, control_task=self.control_task)
            return lost.item(), torch.autograd.grad(lost, parameters, materialize_grads=True)

        total, sums = 0.0, [torch.zeros_like(own, dtype=torch.float64) for own in parameters]
        # The order of the sum is that of the batches, whatever the number of threads.
        for lost, gradients in self.pool.map(of_batch, batches):
            total += lost
            for own, gradient in zip(sums, gradients, strict=True):
                own += gradient
        self.passes += 1
        words = sum(batch.heads.numel() for batch in batches)
        return total / words, [own / words for own in sums]
