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

from collections import defaultdict
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import Executor
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import vector_to_parameters

from helpers.probes import lbfgs
from helpers.probes.data import SCALE_SENTENCES, SMALLEST_SCALE, ProbeData, Sentences
from helpers.probes.training import Scores, candidate_scores, shuffled, validation_slice
from helpers.torch_utils import one_thread, pool

L2 = (1.0, 0.1, 0.01, 0.001)  # candidates for l2 in: mean loss + l2 / 2 * sum(parameters ** 2)
# Nats that the last step of a fit may still gain.
ROUGH_TOLERANCE = 1e-3
EXACT_TOLERANCE = 1e-5

SentenceWeights = Float[Tensor, " sentence"]  # of each sentence of `ProbeData.parses`


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

    def gradient(self, gradient: Tensor) -> Float[Tensor, "row column"]:
        """Transform the gradient by the parameter to that by the coordinates."""
        in_units = gradient.view_as(self.curvature_scale) / self.units
        return self.rows.T @ in_units @ self.columns / self.curvature_scale


class Task(NamedTuple):
    """The data to which a linear probe is fitted.

    Parameters
    ----------
    with_words
        Attn + GloVe if true, Attn if false.
    on_control_task
        Whether it is fitted to the control task, with the penalty of the same probe's fit to the
        syntactic heads.
    """

    with_words: bool = False
    on_control_task: bool = False


class Sums(NamedTuple):
    """The loss and gradients of a probe, from one pass over the maps.

    Parameters
    ----------
    losses
        The loss of each sentence in nats, a sum over its words; zero outside train.
    gradient
        The gradient of the weighted sum of these losses.
    """

    losses: Float[Tensor, " sentence"]
    gradient: Float[Tensor, " parameter"]


Request = tuple["LinearProbeFitter", SentenceWeights]  # a probe, and the weights of the sentences
Search = Generator[Request, Sums, Any]  # it waits for passes


def fit_linear(data: ProbeData, *, with_words: bool = False, l2: float | None = None) -> Fit:
    """Fit Attn or Attn + GloVe to the optimum of the penalised loss on train.

    Parameters
    ----------
    data
        The sentences and their maps.
    with_words
        Attn + GloVe if true, Attn if false.
    l2
        The penalty; it is chosen if it is None: see `fit_together`.

    Returns
    -------
    Fit
        The probe at its optimum.
    """
    (fit,) = fit_together(data, [Task(with_words)], l2=l2)
    return fit


def fit_together(data: ProbeData, tasks: Sequence[Task], *, l2: float | None = None) -> list[Fit]:
    """Fit linear probes to the optima of their penalised losses on train, in the same passes.

    The results do not depend on the number of threads.

    Parameters
    ----------
    data
        The sentences and their maps.
    tasks
        The probes.
    l2
        The penalty.  If it is None, each probe gets the one of `L2` with the lowest loss on a
        held-out slice of train.  They are tried from the largest on, each from the last one's
        optimum, until the loss rises; then the probe is fitted to all of train.

    Returns
    -------
    list of Fit
        The probe of each task at its optimum.
    """
    data_of_task = {False: data, True: data.control_task()}
    with one_thread() as threads, pool(threads) as workers:
        fitters = {}
        for task in tasks:
            probe = LinearProbe(data, with_words=task.with_words)
            fitters[task] = LinearProbeFitter(
                probe, data_of_task[task.on_control_task], workers, l2
            )
        if l2 is None:
            on_heads = [fitters[task] for task in tasks if not task.on_control_task]
            run_together([fitter.choose_penalty() for fitter in on_heads], data, workers)
            for task, fitter in fitters.items():
                fitter.l2 = fitters[task._replace(on_control_task=False)].l2
        return run_together([fitter.fit() for fitter in fitters.values()], data, workers)


def run_together(searches: Sequence[Search], data: ProbeData, workers: Executor) -> list[Any]:
    """Run searches that each wait for one pass after another, and list what they return.

    All searches that wait share the next pass over the maps.
    """
    batches = data.batches(shuffled(data.splits["train"]))
    requests = {search: next(search) for search in searches}
    results = {}
    while requests:
        answers = pass_over(batches, list(requests.values()), workers)
        for search, sums in zip(list(requests), answers, strict=True):
            try:
                requests[search] = search.send(sums)
            except StopIteration as end:
                results[search] = end.value
                del requests[search]
    return [results[search] for search in searches]


def pass_over(
    batches: Sequence[list[int]], requests: Sequence[Request], workers: Executor
) -> list[Sums]:
    """Compute the losses of several probes and their gradients, in one pass over the maps.

    The gradients are summed in the order of the batches, whatever the number of threads.
    """
    by_width = defaultdict(list)
    for fitter, weights in requests:
        by_width[fitter.probe.candidate.shape[1]].append((fitter, weights))
    stacks = [ProbeStack(*zip(*same_width, strict=True)) for same_width in by_width.values()]
    data = requests[0][0].data

    def sums_of(batch: list[int]) -> list[tuple[Tensor, ...]]:
        maps = data.maps(batch)
        return [stack.batch_sums(batch, *maps) for stack in stacks]

    for batch, sums_of_batch in zip(batches, workers.map(sums_of, batches), strict=True):
        for stack, sums in zip(stacks, sums_of_batch, strict=True):
            stack.add(batch, *sums)
    sums = {}
    for stack in stacks:
        sums |= stack.sums()
    return [sums[fitter] for fitter, _ in requests]


class ProbeStack:
    """Linear probes of one width, with the sums of their losses and gradients.

    Parameters
    ----------
    fitters
        The probes with their data.
    weights
        The weights of the sentences in each gradient.
    """

    def __init__(
        self, fitters: Sequence[LinearProbeFitter], weights: Sequence[SentenceWeights]
    ) -> None:
        self.fitters = fitters
        self.weights = torch.stack(list(weights), dim=1).float()
        probes = [fitter.probe for fitter in fitters]
        dependent = torch.stack([probe.dependent.detach() for probe in probes])
        candidate = torch.stack([F.pad(probe.candidate.detach(), (0, 1)) for probe in probes])
        self.roles = torch.stack([dependent, candidate])
        self.root = torch.stack([probe.root.detach() for probe in probes], dim=1)
        self.losses = torch.zeros(self.weights.shape, dtype=torch.float64)
        self.by_role = torch.zeros(self.roles.shape, dtype=torch.float64)
        self.by_root = torch.zeros(self.root.shape, dtype=torch.float64)

    def batch_sums(
        self,
        batch: list[int],
        special: Float[Tensor, "word special"],
        maps: Float[Tensor, "word other feature"],
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Compute `losses_and_gradients` of a batch."""
        first = self.fitters[0]
        vectors = first.probe.vectors[first.data.word_numbers(batch).ravel()]
        gold = torch.stack([fitter.gold(batch) for fitter in self.fitters], dim=2)
        weights = self.weights[batch]
        return losses_and_gradients(self.roles, self.root, vectors, special, maps, gold, weights)

    def add(self, batch: list[int], losses: Tensor, by_role: Tensor, by_root: Tensor) -> None:
        """Add what `batch_sums` computed of a batch."""
        self.losses[batch] = losses
        self.by_role += by_role
        self.by_root += by_root

    def sums(self) -> dict[LinearProbeFitter, Sums]:
        """Collect the sums of each probe; the gradient is in the order of the parameters."""
        sums = {}
        for index, fitter in enumerate(self.fitters):
            dependent, candidate = self.by_role[:, index]
            gradient = flatten([candidate[:, :-1], dependent, self.by_root[:, index]])
            sums[fitter] = Sums(self.losses[:, index], gradient)
        return sums


@torch.no_grad()
def losses_and_gradients(
    roles: Float[Tensor, "role probe feature column"],
    root: Float[Tensor, "special probe column"],
    vectors: Float[Tensor, "word column"],
    special: Float[Tensor, "word special"],
    maps: Float[Tensor, "word other feature"],
    gold: Int[Tensor, "sentence dependent probe"],
    weights: Float[Tensor, "sentence probe"],
) -> tuple[Float[Tensor, "sentence probe"], Tensor, Tensor]:
    """Compute the losses of sentences of one length for several probes, and their gradients.

    The gradients are written out.  One product of the maps gives the scores of all probes, and
    another one the derivatives by the weights of all words.

    Parameters
    ----------
    roles
        The weights of a word as the dependent, and as a candidate.
    root
        The weights of the score of ROOT.
    vectors
        The vector of each word.
    special, maps
        As from `ProbeData.maps`.
    gold
        The heads.
    weights
        The weight of each sentence in the gradients.

    Returns
    -------
    losses
        The sum over the words of each sentence, for each probe.
    by_role, by_root
        The gradients of the weighted sums, in the shapes of ``roles`` and ``root``.
    """
    n_words, n, features = maps.shape
    n_probes = root.shape[1]
    word_roles = (vectors @ roles.flatten(0, 2).T).view(n_words, -1, features)
    halves = word_roles @ maps.transpose(1, 2)  # [word, role and probe, other]
    halves = halves.view(-1, n, 2, n_probes, n)
    root_scores = (special @ root.flatten(1)).view(n_words, n_probes, -1) @ vectors[:, :, None]
    scores = torch.empty(len(weights), n, n_probes, n + 1)
    scores[..., 0] = root_scores.view(-1, n, n_probes)
    # A word's half as a candidate is in its own row.
    torch.add(halves[:, :, 0], halves[:, :, 1].transpose(1, 3), out=scores[..., 1:])
    scores.diagonal(1, dim1=1, dim2=3).fill_(-torch.inf)  # no word is its own head
    log_p = scores.log_softmax(-1)
    losses = -log_p.gather(3, gold[..., None]).sum((1, 3), dtype=torch.float64)
    slopes = log_p.exp_()  # by each score: its probability, minus one for the gold head
    slopes.scatter_add_(3, gold[..., None], -torch.ones(*gold.shape, 1))
    slopes *= weights[:, None, :, None]
    word_slopes = slopes[..., 1:]
    half_slopes = torch.stack([word_slopes, word_slopes.transpose(1, 3)], dim=2)
    by_word_role = half_slopes.view(n_words, -1, n) @ maps
    by_role = by_word_role.flatten(1).T @ vectors
    root_slopes = slopes[..., 0].reshape(n_words, n_probes, 1)
    by_root = special.T @ (root_slopes * vectors[:, None]).flatten(1)
    return losses, by_role.view_as(roles), by_root.view_as(root)


@dataclass(eq=False)
class LinearProbeFitter:
    """Fits a linear probe.

    Three methods are generators.  If they need the losses at the present parameters of the probe,
    they yield a `Request` and are sent the `Sums`.

    Parameters
    ----------
    probe, data
        The probe, and the sentences with their maps.
    workers
        The threads that compute preconditioners.
    l2
        The penalty; None if it is to be chosen.
    passes
        Passes over the data until now.
    """

    probe: LinearProbe
    data: ProbeData
    workers: Executor
    l2: float | None = None
    passes: int = 0

    @property
    def sentences(self) -> list[int]:
        """The train sentences."""
        return shuffled(self.data.splits["train"])

    def gold(self, batch: list[int]) -> Int[Tensor, "sentence dependent"]:
        """Stack the syntactic heads of sentences of one length."""
        return torch.from_numpy(np.stack([self.data.parses[index].heads for index in batch]))

    def choose_penalty(self) -> Search:
        """Fit with ever smaller penalties, and keep the best on a held-out slice of train."""
        training, validation = validation_slice(self.sentences)
        best_loss = np.inf
        for l2 in L2:
            self.l2 = l2
            losses, _ = yield from self.minimise(training, ROUGH_TOLERANCE)
            held_out_loss = losses[validation].sum().item()
            if held_out_loss > best_loss:
                break
            best_loss = held_out_loss
            best_l2 = l2
            best_state = deepcopy(self.probe.state_dict())
        self.l2 = best_l2
        self.probe.load_state_dict(best_state)

    def fit(self) -> Search:
        """Fit to all of train, and return the `Fit`."""
        if not self.passes:
            yield from self.minimise(self.sentences, ROUGH_TOLERANCE)
        losses, gradient = yield from self.minimise(self.sentences, EXACT_TOLERANCE)
        parameters = list(self.probe.parameters())
        pairs = zip(parameters, self.probe.units, strict=True)
        units = flatten([row_units.expand_as(parameter) for parameter, row_units in pairs])
        l2 = cast("float", self.l2)  # it is chosen
        penalised = gradient / units + l2 * flatten(parameters).detach() * units
        mean_loss = losses.sum().item() / self.data.n_words(self.sentences)
        return Fit(self.probe, l2, mean_loss, penalised.abs().max().item(), self.passes)

    def minimise(self, sentences: Sentences, tolerance: float) -> Search:
        """Move the probe to the optimum for some sentences, by L-BFGS; return the `Sums` there."""
        weights = torch.zeros(len(self.data.parses), dtype=torch.float64)
        weights[sentences] = 1 / self.data.n_words(sentences)
        preconditioners = self.preconditioners(sentences[:SCALE_SENTENCES])
        scale = flatten(preconditioner.curvature_scale for preconditioner in preconditioners)
        sizes = [preconditioner.curvature_scale.numel() for preconditioner in preconditioners]

        def set_parameters(coordinates: Tensor) -> None:
            parts = zip(preconditioners, coordinates.split(sizes), strict=True)
            flat = flatten(preconditioner.transform(part) for preconditioner, part in parts)
            vector_to_parameters(flat.float(), self.probe.parameters())

        def penalised_loss(coordinates: Tensor) -> Search:
            set_parameters(coordinates)
            self.passes += 1
            sums = yield self, weights
            parts = zip(preconditioners, sums.gradient.split(sizes), strict=True)
            gradient = flatten(preconditioner.gradient(part) for preconditioner, part in parts)
            l2 = cast("float", self.l2)
            scaled = coordinates / scale
            value = weights @ sums.losses + l2 / 2 * scaled.square().sum()
            return lbfgs.Point(coordinates, value.item(), gradient + l2 * scaled / scale, sums)

        start = flatten(preconditioner.coordinates() for preconditioner in preconditioners)
        optimum = yield from lbfgs.minimise(penalised_loss, start, tolerance)
        set_parameters(optimum.position)
        return optimum.details

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

    def preconditioners(self, sentences: Sentences) -> list[Preconditioner]:
        """Compute a preconditioner for each parameter, from the curvature of the loss."""
        candidate = torch.zeros(())
        dependent = torch.zeros(())
        root = torch.zeros(())
        curvatures = self.workers.map(self.batch_curvatures, self.data.batches(sentences))
        for candidate_products, dependent_products, dependent_means, root_products in curvatures:
            candidate = candidate + candidate_products
            dependent = dependent + dependent_products - dependent_means
            root = root + root_products
        words = self.data.n_words(sentences)
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
            curvature_scale = (products + self.l2).sqrt()
            by_parameter.append(Preconditioner(parameter, units, rows, columns, curvature_scale))
        return by_parameter
