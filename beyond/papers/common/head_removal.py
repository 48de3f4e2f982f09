"""Interventions on attention heads, and the test accuracy of a fine-tuned classifier under them.

A forward pre-hook on the output projection (`model.sites`) multiplies each head's output by its
entry of a mask, ``xi[layer, head] * output`` (Michel et al. 2019, section 2.3).  A mask of ones
changes no bit.  A zero has the effect of removing the head's columns from the projection.

A zero also removes what a head always adds, whatever it reads.  The *mean-output ablation* keeps
that: the head's output becomes its average over training texts.  The difference between the two
ablations says how much of a head's cost is a constant.

A head is *removable* if an equivalence test shows it: two one-sided tests at 5%, over the test
examples, that the accuracy changes by less than `MARGIN`.  With few examples no change is
significant, so the absence of significance is not evidence of equivalence.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from beyond.papers.common import CODE
from beyond.papers.common.classifier import LabelledBatch, batches
from beyond.papers.common.fine_tune import FineTuningRun, table_by_task
from beyond.papers.common.statistics import mcnemar
from beyond.papers.common.tasks import Pair
from beyond.papers.common.threads import thread_map
from helpers.metrics.heads import head_rows
from helpers.metrics.statistics import percentiles, resampled_ratios
from helpers.model.sites import (
    Outputs,
    PatchSoftmax,
    Weights,
    base_transformer,
    patch_head_outputs,
    sites,
    softmax_calls,
)
from helpers.progress import batch_threads

MARGIN = 2.0  # percentage points: a smaller change of accuracy counts as no change
LEVEL = 0.05  # the probability of calling a head removable that is not
MEAN_EXAMPLES = 200  # training examples over which the outputs of heads are averaged, at most
HEAD_EXAMPLES = 300  # test examples on which heads are scored one by one, at most
SELECTION_EXAMPLES = 40  # test examples for choices that are scored on the rest; a third at most
LAYER_PATH = re.compile(r"\D+\.\d+")  # the path of a layer; its submodules have longer paths

Model = TypeVar("Model", bound=nn.Module)
Input = TypeVar("Input")
Result = TypeVar("Result")


@contextmanager
def skip_layers(model: nn.Module, outputs: Mapping[nn.Module, Any]) -> Iterator[None]:
    """Make the first layers return known outputs, instead of computing them, inside the context.

    Parameters
    ----------
    model : Module
        A model of transformers.
    outputs : mapping of Module to output
        The first layers, and what they returned when the same input was passed to the model.
    """
    layers = range(len(outputs), base_transformer(model).config.num_hidden_layers)
    try:
        for layer, output in outputs.items():
            layer.forward = lambda *_, output=output, **__: output
        with softmax_calls(layers):
            yield
    finally:
        for layer in outputs:
            layer.__dict__.pop("forward", None)


class Intervention(NamedTuple):
    """An intervention on a model: a context manager, and the first layer (from 0) it affects."""

    layer: int
    context: Callable[[nn.Module], AbstractContextManager]


class Scores(NamedTuple):
    """Correctness and loss (nats) per example.

    Row 0 belongs to the unchanged classifier, row i + 1 to intervention i.
    """

    right: Bool[np.ndarray, "row example"]
    loss: Float[np.ndarray, "row example"]


@contextmanager
def head_mask(
    model: nn.Module,
    mask: Float[Tensor, "layer *example head"],
    means: Float[Tensor, "layer head width"] | None = None,
) -> Iterator[None]:
    """Multiply the output of each head by its entry of a mask inside the context.

    Parameters
    ----------
    model
        An encoder or a decoder.
    mask
        One factor per head, or per example of the batch and head.  Outputs are differentiable in
        it.
    means
        Outputs of each head (`mean_head_outputs`) that take the place of what the mask removes, at
        every position; by default zeros.

    Raises
    ------
    ModelError
        If the attention of the model has unknown parts.
    """

    def scale(layer: int, outputs: Outputs) -> Outputs:
        factors = mask[layer].to(outputs)[..., None, :, None]  # [(example), 1, head, 1]
        scaled = outputs * factors
        return scaled if means is None else scaled + means[layer].to(outputs) * (1 - factors)

    with patch_head_outputs(sites(model), scale):
        yield


@torch.inference_mode()
def mean_head_outputs(run: FineTuningRun, *, seed: int) -> Float[Tensor, "layer head width"]:
    """Average the output of each head over the tokens of `MEAN_EXAMPLES` training examples.

    Parameters
    ----------
    run
        A fine-tuned classifier.
    seed
        Seed of the sample of examples.
    """
    pairs = shuffled(run.task.train, seed)[:MEAN_EXAMPLES]
    sums: dict[int, Tensor] = {}
    n_tokens = 0
    for inputs, _, _ in batches(run.encoder, pairs, max_tokens=run.recipe.max_tokens):
        is_token = inputs["attention_mask"].bool()  # [example, token]

        def add(layer: int, outputs: Outputs, is_token: Tensor = is_token) -> Outputs:
            token_sums = outputs[is_token].double().sum(dim=0)  # [head, width]
            sums[layer] = sums.get(layer, 0) + token_sums
            return outputs

        with patch_head_outputs(sites(run.classifier), add):
            run.classifier(**inputs)
        n_tokens += int(is_token.sum())
    return torch.stack([sums[layer] / n_tokens for layer in sorted(sums)]).float()


def uniform_attention(model: nn.Module, layer: int, head: int) -> AbstractContextManager:
    """Make the attention of one head uniform inside the context.

    Kovaleva et al. (2019, section 4.6) disable a head in this way: it outputs the mean value
    vector of all tokens that are not padding.  Where the layer masks tokens (a decoder's later
    ones, or those outside ModernBERT's window), the mean is over the visible ones.

    Parameters
    ----------
    model
        An encoder or a decoder.
    layer, head
        Counted from 0.
    """

    def flatten(current: int, scores: Weights, softmax: Callable) -> Weights:
        weights = softmax(scores)
        if current == layer:
            visible = (scores > torch.finfo(scores.dtype).min / 2).to(weights)
            # Padding queries may see no token at all.
            uniform = visible / visible.sum(dim=-1, keepdim=True).clamp(min=1)
            weights[:, head] = uniform[:, head]
        return weights

    return PatchSoftmax(model, flatten)


def mask_interventions(
    masks: Float[np.ndarray, "mask layer head"],
    means: Float[Tensor, "layer head width"] | None = None,
) -> list[Intervention]:
    """Make one intervention per mask, which multiplies the heads' outputs by the mask.

    With ``means``, heads whose mask is zero have these outputs instead.
    """
    is_affected = (masks != 1).any(axis=2)  # [mask, layer]
    first_layers = np.where(is_affected.any(axis=1), is_affected.argmax(axis=1), masks.shape[1])
    interventions = []
    for mask, layer in zip(masks, first_layers, strict=True):
        context = partial(head_mask, mask=torch.from_numpy(mask).float(), means=means)
        interventions.append(Intervention(int(layer), context))
    return interventions


def evaluate_interventions(
    run: FineTuningRun, pairs: Sequence[Pair], interventions: Sequence[Intervention]
) -> Scores:
    """Score a classifier on ``pairs``, unchanged and under each intervention."""
    work = list(batches(run.encoder, pairs, max_tokens=run.recipe.max_tokens))

    def job(model: nn.Module, batch: LabelledBatch) -> Float[Tensor, "row example label"]:
        passes = run_interventions(model, partial(model, **batch[0]), interventions)
        return torch.stack(list(passes)).cpu()

    label = f"heads changed ({run.task.name})"
    logits_by_batch = map_over_model_copies(run.classifier, work, job, label)
    right = np.zeros((len(interventions) + 1, len(pairs)), bool)
    loss = np.zeros(right.shape)
    for (_, labels, order), logits in zip(work, logits_by_batch, strict=True):
        targets = labels.cpu().expand(len(logits), -1)  # [row, example]
        right[:, order] = (logits.argmax(dim=-1) == targets).numpy()
        class_logits = logits.double().transpose(1, 2)  # [row, label, example]
        losses = F.cross_entropy(class_logits, targets, reduction="none")
        loss[:, order] = losses.numpy()
    return Scores(right, loss)


def accuracy_changes(scores: Scores) -> pd.DataFrame:
    """Compare the accuracy under each intervention with that of the unchanged classifier.

    Parameters
    ----------
    scores
        From `evaluate_interventions`.

    Returns
    -------
    pandas.DataFrame
        One row per intervention.  Columns: examples, accuracy (percent), change of accuracy
        (percentage points) with its 95% interval (change_low, change_high), removable (never with
        fewer than 150 examples), loss_change (nats) and p_value (`mcnemar`).
    """
    before = scores.right[0]
    after = scores.right[1:]
    changes = 100.0 * (after.astype(int) - before).T  # [example, intervention]
    replicates = resampled_ratios(changes, np.ones_like(changes))
    low, high = percentiles(replicates, len(before))
    # If none of n examples has changed, up to 3 in n still may (the rule of three, at 5%).
    is_enough = -100 * np.log(LEVEL) / len(before) <= MARGIN
    # Two one-sided tests at 5% are an interval of 90%.
    lower, upper = percentiles(replicates, len(before), 1 - 2 * LEVEL)
    is_equivalent = (lower > -MARGIN) & (upper < MARGIN)
    accuracy = 100 * scores.right.mean(axis=1)
    loss = scores.loss.mean(axis=1)
    table = pd.DataFrame({"examples": len(before), "accuracy": accuracy[1:]})
    return table.assign(
        change=accuracy[1:] - accuracy[0],
        change_low=low,
        change_high=high,
        removable=is_enough & is_equivalent,
        loss_change=loss[1:] - loss[0],
        p_value=mcnemar(before, after),
    )


def mean_output_changes(scores: Scores) -> pd.DataFrame:
    """Tabulate the changes of accuracy under mean-output ablation, from its `Scores`.

    The columns are mean_change (percentage points) with its 95% interval, and mean_removable; see
    `accuracy_changes`.
    """
    columns = ["change", "change_low", "change_high", "removable"]
    return accuracy_changes(scores)[columns].add_prefix("mean_")


def single_ablation(runs: Sequence[FineTuningRun], *, seed: int) -> pd.DataFrame:
    """Measure the change of accuracy when the output of each head is zeroed, one at a time.

    Michel et al. (2019), section 3.2.

    Parameters
    ----------
    runs
        Fine-tuned classifiers, one per task.
    seed
        Seed of `split_test`.

    Returns
    -------
    pandas.DataFrame
        One row per task and head, scored on at most `HEAD_EXAMPLES` test examples.  Columns: task,
        layer, head (from 1), those of `accuracy_changes`, and those of `mean_output_changes`, with
        the mean output of the head in place of zeros.
    """

    def ablate_heads(run: FineTuningRun) -> pd.DataFrame:
        _, scored = split_test(run, seed)
        examples = scored[:HEAD_EXAMPLES]
        zeroed = evaluate_interventions(run, examples, single_head_interventions(run))
        means = mean_head_outputs(run, seed=seed)
        averaged = evaluate_interventions(run, examples, single_head_interventions(run, means))
        heads = head_rows(run.encoder.layers, run.encoder.heads)
        return heads.join([accuracy_changes(zeroed), mean_output_changes(averaged)])

    return table_by_task(runs, "heads-ablation", ablate_heads, code=CODE, seed=seed)


def uniform_change(run: FineTuningRun, layer: int, head: int, *, seed: int) -> float:
    """Measure the change of accuracy if the attention of a head is uniform, in percentage points.

    Parameters
    ----------
    run
        A fine-tuned classifier.
    layer, head
        Counted from 0.
    seed
        Seed of `split_test`; the examples are those of `single_ablation`.
    """
    _, scored = split_test(run, seed)
    change = Intervention(layer, partial(uniform_attention, layer=layer, head=head))
    scores = evaluate_interventions(run, scored[:HEAD_EXAMPLES], [change])
    return accuracy_changes(scores)["change"].iloc[0]


def single_head_interventions(
    run: FineTuningRun, means: Float[Tensor, "layer head width"] | None = None
) -> list[Intervention]:
    """Make one intervention per head, which zeroes its output; heads of a layer are adjacent.

    With ``means``, the output becomes its mean instead.
    """
    shape = (run.encoder.layers, run.encoder.heads)
    count = shape[0] * shape[1]
    return mask_interventions((1 - np.eye(count)).reshape(count, *shape), means)


def split_test(run: FineTuningRun, seed: int) -> tuple[list[Pair], list[Pair]]:
    """Split the shuffled test examples into `SELECTION_EXAMPLES` to choose on, and the rest."""
    pairs = shuffled(run.task.test, seed)
    count = min(SELECTION_EXAMPLES, len(pairs) // 3)
    return pairs[:count], pairs[count:]


def shuffled(pairs: Sequence[Pair], seed: int) -> list[Pair]:
    """Shuffle examples."""
    order = np.random.default_rng(seed).permutation(len(pairs))
    return [pairs[index] for index in order]


def map_over_model_copies(
    model: Model, inputs: Sequence[Input], job: Callable[[Model, Input], Result], label: str
) -> list[Result]:
    """Compute ``job(model, input)`` for each input, in order, with several threads.

    Each job computes on one thread, with a copy of the model that no other job uses at that time.
    Therefore results do not depend on the number of threads.  ``label`` names the progress bar.
    """
    device = next(model.parameters()).device
    threads = min(batch_threads(device), len(inputs))
    free_models = [model, *(copy.deepcopy(model) for _ in range(threads - 1))]

    def run_with_copy(job_input: Input) -> Result:
        model_copy = free_models.pop()  # if the job fails, all others end too
        output = job(model_copy, job_input)
        free_models.append(model_copy)
        return output

    return thread_map(run_with_copy, inputs, label=label, unit="batch", threads=threads)


def repeatable_layers(model: nn.Module) -> list[nn.Module]:
    """List the layers of a model in order, or none if their outputs cannot be repeated."""
    layers = [module for path, module in model.named_modules() if LAYER_PATH.fullmatch(path)]
    return layers if len(layers) == len(sites(model)) else []  # in ALBERT one is all layers


def run_interventions(
    model: nn.Module, run: Callable[[], Result], changes: Sequence[Intervention]
) -> Iterator[Result]:
    """Yield the result of a forward pass, unchanged and under each intervention.

    Layers below an intervention are not computed again: they repeat their outputs of the unchanged
    pass.  This halves the time of a sweep over all heads.  Results are those of full passes to the
    last bit.

    Parameters
    ----------
    model
        The model that ``run`` calls.
    run
        Makes one forward pass.
    changes
        The interventions.

    Yields
    ------
    output
        What ``run`` returned.
    """
    layers = repeatable_layers(model)
    layer_outputs = {}

    def store_output(layer: nn.Module, _args: tuple, output: Any) -> None:
        layer_outputs[layer] = output

    with torch.inference_mode(), ExitStack() as hooks:
        for layer in layers:
            hooks.callback(layer.register_forward_hook(store_output).remove)
        unchanged = run()
    yield unchanged
    for first_affected, context in changes:
        reused = {layer: layer_outputs[layer] for layer in layers[:first_affected]}
        with torch.inference_mode(), skip_layers(model, reused), context(model):
            output = run()
        yield output
