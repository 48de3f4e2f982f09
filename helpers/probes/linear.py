"""Attn and Attn + GloVe (section 5): linear probes, which score a word's candidate heads.

Scores are logits: ``p(i|j)`` is their softmax over the candidates ``i`` of the dependent ``j``,
and the loss is the mean of ``-log p(head | word)`` over words.  The score of ROOT is a linear
function of the attention between the dependent and the special tokens, with weights of its own for
every attention head, direction and side.  (The released notebook of the paper reuses the words'
weights there, times one scalar for each side.)

The loss of a score that is linear in its parameters is convex.  L-BFGS therefore finds the only
optimum from any start, for the model and for its controls.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from copy import deepcopy
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import vector_to_parameters

from helpers.probes.data import SCALE_SENTENCES, SMALLEST_SCALE, ProbeData, Sentences
from helpers.probes.training import Scores, candidate_scores, loss, shuffled, validation_slice
from helpers.torch_utils import one_thread, pool, release_freed_memory

L2 = (1.0, 0.1, 0.01, 0.001)  # candidates for l2 in: mean loss + l2 / 2 * sum(parameters ** 2)
# Nats that the last step of a fit may still gain.
ROUGH_TOLERANCE = 1e-3
EXACT_TOLERANCE = 1e-5
MAX_STEPS = 500


class LinearProbe(nn.Module):
    """Attn, a linear combination of the attention heads, or Attn + GloVe, with words' weights.

    Attn (section 5, first equation): ``score(i, j) = sum_k w_k alpha^k_ij + u_k alpha^k_ji``.

    Attn + GloVe (second equation): ``w_k`` is ``W_k (v_i + v_j)``, where + concatenates the
    vectors, and ``u_k`` is ``U_k (v_i + v_j)``.  A bias for each attention head and direction, as
    in the paper's code, makes Attn the special case of vectors without width.  Vectors are
    standardised.

    ``W (v_i + v_j) = W_1 v_i + W_2 v_j``.  Therefore each word is projected once for each role, and
    no array has the size of all pairs of words times all features.

    Parameters
    ----------
    data
        The sentences; their train part determines the scales of features and vectors.
    with_words
        Attn + GloVe if true, Attn if false.

    Attributes
    ----------
    dependent
        ``[feature, width + 1]``: W_2 above U_2, with the bias last.
    candidate
        ``[feature, width]``: U_1 above W_1.  A word's row of maps has the pairs in which it is the
        dependent.  With the two directions exchanged, it has those in which it is the candidate.
        One batched product therefore gives both halves of the score.
    root
        ``[special feature, width + 1]``: weights of the score of ROOT.
    """

    def __init__(self, data: ProbeData, *, with_words: bool = False) -> None:
        super().__init__()
        vectors = data.vectors if with_words else data.vectors[:, :0]
        train_rows = np.concatenate([data.parses[index].words for index in data.splits["train"]])
        train_vectors = vectors[train_rows].double()
        mean = train_vectors.mean(0)
        deviation = (train_vectors - mean).square().mean(0).sqrt().clamp(min=SMALLEST_SCALE)
        standardised = (train_vectors - mean) / deviation
        self.correlations = standardised.T @ standardised / len(standardised)
        self.vectors = F.pad((vectors - mean.float()) / deviation.float(), (0, 1), value=1.0)
        word_scales, special_scales = data.units
        width = vectors.shape[1]
        self.candidate = nn.Parameter(torch.zeros(len(word_scales), width))
        self.dependent = nn.Parameter(torch.zeros(len(word_scales), width + 1))
        self.root = nn.Parameter(torch.zeros(len(special_scales), width + 1))
        exchanged = word_scales.roll(len(word_scales) // 2)
        # In the order of the parameters.
        self.units = [
            scales[:, None].double() for scales in (exchanged, word_scales, special_scales)
        ]

    def forward(self, data: ProbeData, indices: Sentences) -> Scores:
        """Compute the score of every candidate head of every word."""
        special, maps = data.maps(indices)
        vectors = self.vectors[data.word_numbers(indices).ravel()]  # [word, width + 1]
        roles = self.dependent
        if self.candidate.numel():
            roles = torch.cat([roles, F.pad(self.candidate, (0, 1))])
        # [word, role, feature] @ [word, feature, candidate]
        halves = (vectors @ roles.T).unflatten(1, (-1, maps.shape[2])) @ maps.transpose(1, 2)
        halves = halves.unflatten(0, (len(indices), -1))
        scores = halves[:, :, 0] + halves[:, :, 1:].sum(2).transpose(1, 2)
        root = ((vectors @ self.root.T) * special).sum(1).view(len(indices), -1, 1)
        return torch.cat([root, scores], dim=-1)


def flatten(tensors: Iterable[Tensor]) -> Float[Tensor, " element"]:
    """Join the elements of tensors, which need not be contiguous."""
    return torch.cat([tensor.flatten() for tensor in tensors])


class Fit(NamedTuple):
    """A linear probe at its optimum.

    Parameters
    ----------
    probe
        The probe.
    l2
        Its penalty.
    loss
        Mean loss of a word in nats, without the penalty.
    gradient
        Largest element of the gradient of loss and penalty.
    passes
        Passes over the data, including those to choose the penalty.
    """

    probe: LinearProbe
    l2: float
    loss: float
    gradient: float
    passes: int


class Preconditioner(NamedTuple):
    """Coordinates of a parameter in which the loss is about equally curved in every direction.

    The parameter ``[row, column]``, in the units of its rows, is rotated to the eigenvectors of the
    features (rows) and of the vectors (columns), and multiplied by the root of the second
    derivative of the penalised loss there.
    """

    parameter: nn.Parameter
    units: Float[Tensor, "row 1"]
    rows: Float[Tensor, "row row"]
    columns: Float[Tensor, "column column"]
    curvature_scale: Float[Tensor, "row column"]

    def coordinates(self) -> Float[Tensor, "row column"]:
        """Compute the coordinates of the parameter."""
        in_units = self.parameter.detach() * self.units
        return self.rows.T @ in_units @ self.columns * self.curvature_scale

    def transform(self, coordinates: Tensor) -> Float[Tensor, "row column"]:
        """Transform coordinates to the parameter that has them."""
        scaled = coordinates.view_as(self.curvature_scale) / self.curvature_scale
        return self.rows @ scaled @ self.columns.T / self.units


def fit_linear(data: ProbeData, *, with_words: bool = False, l2: float | None = None) -> Fit:
    """Fit Attn or Attn + GloVe to the optimum of the penalised loss on train.

    The result does not depend on the number of threads.

    Parameters
    ----------
    data
        The sentences and their maps.
    with_words
        Attn + GloVe if true, Attn if false.
    l2
        The penalty.  If it is None, the one of `L2` with the lowest loss on a held-out slice of
        train is chosen.  They are tried from the largest on, each from the last one's optimum,
        until the loss rises; then the probe is fitted to all of train.

    Returns
    -------
    Fit
        The probe at its optimum.
    """
    sentences = shuffled(data.splits["train"])
    probe = LinearProbe(data, with_words=with_words)
    with (
        one_thread() as threads,
        threadpool_limits(1, "blas"),  # of scipy's sums
        pool(threads) as workers,
    ):
        fitter = LinearProbeFitter(probe, data, workers)
        if l2 is None:
            l2 = fitter.choose_penalty(sentences)
        else:
            fitter.minimise(sentences, l2, ROUGH_TOLERANCE)
        fitter.minimise(sentences, l2, EXACT_TOLERANCE)
        loss_at_optimum, gradient = fitter.mean_loss(data.batches(sentences))
    parameters = list(probe.parameters())
    pairs = zip(parameters, probe.units, strict=True)
    units = flatten([row_units.expand_as(parameter) for parameter, row_units in pairs])
    penalised = gradient / units + l2 * flatten(parameters).detach() * units
    return Fit(probe, l2, loss_at_optimum, penalised.abs().max().item(), fitter.passes)


@dataclass
class LinearProbeFitter:
    """Fits the parameters of a linear probe, with threads that read the data.

    Parameters
    ----------
    probe, data
        The probe, and the sentences with their maps.
    workers
        The threads.
    passes
        Number of passes over the data until now.
    """

    probe: LinearProbe
    data: ProbeData
    workers: Executor
    passes: int = 0

    def choose_penalty(self, sentences: Sentences) -> float:
        """Fit with ever smaller penalties; keep and return the best on a slice of the sentences."""
        training, validation = validation_slice(sentences)
        held_out = self.data.batches(validation)
        best_loss = np.inf
        for l2 in L2:
            self.minimise(training, l2, ROUGH_TOLERANCE)
            held_out_loss, _ = self.mean_loss(held_out)
            if held_out_loss > best_loss:
                break
            best_loss = held_out_loss
            best_l2 = l2
            best_state = deepcopy(self.probe.state_dict())
        self.probe.load_state_dict(best_state)
        return best_l2

    def minimise(self, sentences: Sentences, l2: float, tolerance: float) -> None:
        """Move the probe to the optimum for some sentences, by L-BFGS."""
        batches = self.data.batches(sentences)
        preconditioners = self.preconditioners(sentences[:SCALE_SENTENCES], l2)
        scale = flatten(preconditioner.curvature_scale for preconditioner in preconditioners)
        sizes = [preconditioner.curvature_scale.numel() for preconditioner in preconditioners]

        def set_parameters(coordinates: Tensor) -> Float[Tensor, " parameter"]:
            parts = zip(preconditioners, coordinates.split(sizes), strict=True)
            flat = flatten(preconditioner.transform(part) for preconditioner, part in parts)
            vector_to_parameters(flat.detach().float(), self.probe.parameters())
            return flat

        def penalised_loss(position: np.ndarray) -> tuple[float, np.ndarray]:
            coordinates = torch.from_numpy(position).requires_grad_()
            flat = set_parameters(coordinates)
            loss, gradient = self.mean_loss(batches)
            penalty = l2 / 2 * (coordinates / scale).square().sum()
            torch.autograd.backward([flat, penalty], [gradient, None])
            return loss + penalty.item(), coordinates.grad.numpy()

        start = flatten(preconditioner.coordinates() for preconditioner in preconditioners)
        options = {"ftol": tolerance, "gtol": 0, "maxcor": 50, "maxiter": MAX_STEPS}
        optimum = minimize(penalised_loss, start, jac=True, method="L-BFGS-B", options=options)
        set_parameters(torch.from_numpy(optimum.x))
        release_freed_memory()

    @torch.no_grad()
    def batch_curvatures(self, batch: list[int]) -> tuple[Tensor, ...]:
        """Sum the second derivatives of the loss of a batch, at the candidates' probabilities.

        The features of one candidate, or of ROOT, change one score, so their mean product counts,
        weighted by ``p (1 - p)``.  The features of a dependent change the scores of all its
        candidates, so their covariance counts: mean products, minus products of means.

        Returns
        -------
        candidate, dependent, dependent_means, root
            Sums over the words, ``[feature, feature]`` each.
        """
        special, maps = self.data.maps(batch)
        scores = candidate_scores(self.probe, self.data, batch)
        p = scores.softmax(-1).flatten(0, 1)[..., None]
        uncertainty = p * (1 - p)
        weighted = maps * p[:, 1:]
        flat_maps = maps.flatten(0, 1)
        means = weighted.sum(1)
        candidate = (maps * uncertainty[:, 1:]).flatten(0, 1).T @ flat_maps
        root = (special * uncertainty[:, 0]).T @ special
        return candidate, weighted.flatten(0, 1).T @ flat_maps, means.T @ means, root

    def preconditioners(self, sentences: Sentences, l2: float) -> list[Preconditioner]:
        """Compute a preconditioner for each parameter, from the curvature of the loss."""
        candidate = 0
        dependent = 0
        root = 0
        curvatures = self.workers.map(self.batch_curvatures, self.data.batches(sentences))
        for candidate_products, dependent_products, dependent_means, root_products in curvatures:
            candidate = candidate + candidate_products
            dependent = dependent + dependent_products - dependent_means
            root = root + root_products
        words = sum(len(self.data.parses[index]) for index in sentences)
        half = len(dependent) // 2
        candidate = candidate.roll((half, half), (0, 1))  # its directions are exchanged
        correlations = self.probe.correlations
        with_bias = torch.block_diag(correlations, torch.ones(1, 1))
        by_parameter = []
        for parameter, units, curvature, column_products in zip(
            self.probe.parameters(),
            self.probe.units,
            (candidate, dependent, root),
            (correlations, with_bias, with_bias),
            strict=True,
        ):
            row_sizes, rows = torch.linalg.eigh(curvature.double() / words / units / units.T)
            column_sizes, columns = torch.linalg.eigh(column_products)
            products = row_sizes.clamp(min=0)[:, None] * column_sizes.clamp(min=0)
            curvature_scale = (products + l2).sqrt()
            by_parameter.append(Preconditioner(parameter, units, rows, columns, curvature_scale))
        return by_parameter

    def mean_loss(self, batches: Sequence[list[int]]) -> tuple[float, Float[Tensor, " parameter"]]:
        """Compute the mean loss of a word in some batches, and its gradient, in one pass."""
        parameters = list(self.probe.parameters())

        def sums(batch: list[int]) -> Float[Tensor, " value"]:
            summed = loss(self.probe, self.data, batch, reduction="sum")
            gradients = torch.autograd.grad(summed, parameters, materialize_grads=True)
            return flatten([summed.detach(), *gradients])  # float64, as the loss is

        self.passes += 1
        words = sum(len(batch) * len(self.data.parses[batch[0]]) for batch in batches)
        # The sum is in the order of the batches, whatever the number of threads.
        means = sum(self.workers.map(sums, batches)) / words
        return means[0].item(), means[1:]
