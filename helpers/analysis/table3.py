"""Every row of Table 3 (section 5): how each probe is trained, and what is kept of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from helpers.analysis.probe_data import Batch, ProbeData, Task, WordVectors, prepare
from helpers.analysis.probe_scores import (
    ATTN,
    ATTN_GLOVE,
    DISTANCES_GLOVE,
    RANDOM_ATTN_GLOVE,
    RIGHT_BRANCHING,
    UAS,
    UAS_WITHOUT_PUNCTUATION,
    Counts,
    ProbeResult,
    pool,
    probe_table,
    seed_table,
    with_selectivity,
)
from helpers.analysis.probes import AttentionProbe, AttentionWordsProbe, DistancesWordsProbe, Scores
from helpers.analysis.structural_probe import fit_structural, prepare_states
from helpers.analysis.training import (
    Schedule,
    Setting,
    one_thread,
    side_by_side,
    train,
    validation_slice,
)
from helpers.store.store import Store

PARTS = (0.1, 0.25, 0.5, 1.0)  # of the train sentences, for the learning curves
EVALUATION_BATCH = 64
# What the control of random weights is tried with.
SETTINGS = tuple(Setting(rate, decay) for rate in (0.3, 1.0, 3.0) for decay in (0.0, 3.0, 30.0))

ProbeKind = Literal["attn", "attn_glove", "distances_glove", "random_attn_glove"]
TRAINED: tuple[ProbeKind, ...] = ("attn", "attn_glove")  # those with learning curves


class Kind(NamedTuple):
    """A probe's name in Table 3, how it is built for some seeds, and how it is trained."""

    name: str
    build: Callable[[ProbeData, Sequence[int]], nn.Module]
    schedule: Schedule
    reads_maps: bool = True


KINDS: dict[ProbeKind, Kind] = {
    "attn": Kind(
        ATTN,
        lambda data, seeds: AttentionProbe(data.scales, len(seeds)),
        Schedule(epochs=8, learning_rate=0.02),
    ),
    "attn_glove": Kind(
        ATTN_GLOVE,
        lambda data, seeds: AttentionWordsProbe(data.scales, data.vector_width, len(seeds)),
        Schedule(epochs=8, learning_rate=0.0015, batch_size=16),
    ),
    "distances_glove": Kind(
        DISTANCES_GLOVE,
        lambda data, seeds: DistancesWordsProbe(data.vector_width, seeds),
        Schedule(epochs=5, learning_rate=0.006, batch_size=8),
        reads_maps=False,
    ),
    "random_attn_glove": Kind(
        RANDOM_ATTN_GLOVE,
        lambda data, seeds: AttentionWordsProbe(
            data.scales, data.vector_width, len(seeds), whitened=True
        ),
        Schedule(epochs=8, learning_rate=0.0005, batch_size=16),
    ),
}


def table3(
    store: Store, random_stores: Iterable[Store], vectors: WordVectors, *, seeds: int
) -> dict[str, pd.DataFrame]:
    """Train and score every probe of Table 3.

    Args:
        store: word-level maps and hidden states of a treebank with train and dev sentences.
        random_stores: the maps of the model with random weights, a store for each seed.
        vectors: the static vectors of a sentence's words.
        seeds: training runs of each probe.

    Returns:
        probes (a row for each probe and metric), probe_seeds (their spread over seeds),
        probe_heads (what the attention-only probe makes of each head), learning_curves, and
        structural_layers (how well each layer's vectors do on a slice of train).
    """
    structural, layers = fit_structural(prepare_states(store), seeds=seeds)
    data, seeds = prepare(store, vectors), range(seeds)
    kinds = ("distances_glove", *TRAINED)
    fits = [partial(fit_probe, data, "distances_glove", [seed]) for seed in seeds]
    fits += [partial(fit_probe, data, kind, [0], task="control") for kind in kinds]
    fits += [partial(fit_probe, data, kind, seeds, part) for kind in TRAINED for part in PARTS]
    fitted = side_by_side(fits, "probes")
    distances, fitted = pool(fitted[: len(seeds)], DISTANCES_GLOVE), fitted[len(seeds) :]
    on_control_task, curves = dict(zip(kinds, fitted, strict=False)), fitted[len(kinds) :]
    attention, with_words = curves[len(PARTS) - 1 :: len(PARTS)]
    heads, baseline = head_weights(attention, data), right_branching(data)
    del data, fits  # its maps, before those of the controls are read
    random_weights = fit_controls(random_stores, vectors)
    results = [
        structural,
        baseline,
        with_selectivity(distances, on_control_task["distances_glove"]),
        random_weights[-1],
        with_selectivity(attention, on_control_task["attn"]),
        with_selectivity(with_words, on_control_task["attn_glove"]),
    ]
    return {
        "probes": probe_table(results),
        "probe_seeds": seed_table(results),
        "probe_heads": heads,
        "learning_curves": probe_table([*curves, *random_weights]),
        "structural_layers": layers,
    }


def fit_controls(stores: Iterable[Store], vectors: WordVectors) -> list[ProbeResult]:
    """Train Attn + GloVe on the maps of random weights: a result for each part of train.

    Each store has an initialisation of its own.  The first decides how the probes are trained,
    and does the control task.
    """
    by_store, setting, on_control_task = [], None, None
    for seed, store in enumerate(stores):
        data = prepare(store, vectors)
        setting = setting or choose_setting(data, "random_attn_glove")
        fit = partial(fit_probe, data, "random_attn_glove", [seed], setting=setting)
        by_store.append(side_by_side([partial(fit, part) for part in PARTS], RANDOM_ATTN_GLOVE))
        on_control_task = on_control_task or fit(task="control")
        del data, fit  # before the next is read
    *parts, whole = [pool(fits, RANDOM_ATTN_GLOVE) for fits in zip(*by_store, strict=True)]
    return [*parts, with_selectivity(whole, on_control_task)]


@one_thread()
def fit_probe(
    data: ProbeData,
    kind: ProbeKind,
    seeds: Sequence[int],
    part: float = 1.0,
    *,
    task: Task = "tree",
    setting: Setting | None = None,
) -> ProbeResult:
    """Train a probe on (a part of) the train sentences, once a seed, and score it on dev.

    The seeds are members of one model.  Each decides its initial values and the slice of train
    that its training stops by; the order of the batches is the first one's.  The sentences of a
    part are the same for every seed and probe, and each part lies within the next larger one.
    ``setting`` changes the probe's own schedule.

    Raises ``InputError`` where a probe of words finds no word vectors in ``data``.
    """
    recipe = KINDS[kind]
    sentences, dev = training_sentences(data, part), data.splits["dev"]
    settings = [setting] * len(seeds) if setting else []
    model = _fit(data, recipe, sentences, seeds, task, settings)
    predicted = predict(model, data, dev, maps=recipe.reads_maps)
    counts = score(data, predicted, dev, task)
    return ProbeResult(recipe.name, counts, len(sentences), len(dev), model)


@one_thread()
def choose_setting(data: ProbeData, kind: ProbeKind) -> Setting:
    """Return the setting whose probe does best on the slice of train that training stops by.

    All are tried at once, as members of one model.
    """
    recipe, sentences = KINDS[kind], training_sentences(data, 1.0)
    model = _fit(data, recipe, sentences, [0] * len(SETTINGS), "tree", SETTINGS)
    order = np.random.default_rng(0)
    _, held = validation_slice(sentences, recipe.schedule.validation_share, order)
    predicted = predict(model, data, held, maps=recipe.reads_maps)
    right = score(data, predicted, held)[UAS_WITHOUT_PUNCTUATION].right
    return SETTINGS[int(right.sum(1).argmax())]


def training_sentences(data: ProbeData, part: float) -> list[int]:
    """Return the first part of the train sentences in an order fixed once for all parts."""
    order = np.random.default_rng(0).permutation(data.splits["train"]).tolist()
    return order[: max(1, round(part * len(order)))]


def right_branching(data: ProbeData) -> ProbeResult:
    """Score the baseline whose head is always the next word; the last word's is ROOT."""
    dev = data.splits["dev"]
    predicted = [np.append(np.arange(2, len(data.parses[i]) + 1), 0) for i in dev]
    return ProbeResult(RIGHT_BRANCHING, score(data, [predicted], dev), 0, len(dev))


def predict(
    model: nn.Module, data: ProbeData, indices: Sequence[int], *, maps: bool = True
) -> list[list[Int[np.ndarray, " word"]]]:
    """Return each member's likeliest head of every word of the sentences (1-based, 0 is ROOT)."""
    heads: dict[int, np.ndarray] = {}
    with torch.no_grad():
        for batch in data.batches(indices, size=EVALUATION_BATCH, maps=maps):
            best = candidate_scores(model, batch).argmax(-1).numpy()
            for row, index in enumerate(batch.indices):
                heads[index] = best[:, row, : len(data.parses[index])]
    return [list(member) for member in zip(*(heads[index] for index in indices), strict=True)]


def score(
    data: ProbeData,
    predicted: Sequence[Sequence[Int[np.ndarray, " word"]]],
    indices: Sequence[int],
    task: Task = "tree",
) -> dict[str, Counts]:
    """Count right heads in the sentences ``indices``, with and without punctuation.

    ``predicted[seed][sentence]`` are the heads of these sentences, in their order.
    """
    parses = [data.parses[index] for index in indices]
    right = [
        [heads == parse.targets(task) for heads, parse in zip(run, parses, strict=True)]
        for run in predicted
    ]
    counts = {}
    for metric, left_out in ((UAS, False), (UAS_WITHOUT_PUNCTUATION, True)):
        kept = [~(parse.punctuation & left_out) for parse in parses]
        hits = [[hit[k].sum() for hit, k in zip(run, kept, strict=True)] for run in right]
        counts[metric] = Counts(np.array(hits), np.array([k.sum() for k in kept]))
    return counts


def candidate_scores(model: nn.Module, batch: Batch) -> Scores:
    """Return the logits, minus infinity for padding and for a word as its own head."""
    return model(batch).masked_fill(~batch.candidates(), -torch.inf)


def loss(model: nn.Module, batch: Batch) -> Float[Tensor, "member sentence"]:
    """Return ``-log p(head | word)`` in nats, summed over each sentence's words."""
    scores = candidate_scores(model, batch)
    heads = batch.heads.expand(scores.shape[:3])
    lost = F.cross_entropy(scores.flatten(0, 2), heads.flatten(), ignore_index=-1, reduction="none")
    return lost.view(heads.shape).sum(2)


def head_weights(result: ProbeResult, data: ProbeData) -> pd.DataFrame:
    """Return what the Attn probe made of each head: layer, head, w, u, w_gain, u_gain.

    ``w`` weighs the attention from the candidate head to the word, ``u`` that from the word to
    the candidate; means over seeds.  A head that gives words little attention needs a large
    weight to matter at all, so ``w_gain`` and ``u_gain`` are what it adds to the score: the
    weight times the mean, over dev words with a head, of the attention between word and gold
    head less its mean over the other words.  Sorted by the larger of the two gains.
    """
    weight = result.model.coefficients.detach().mean(0).numpy()
    w, u = weight.reshape(2, data.layers, data.heads)
    w_gain, u_gain = (weight * attention_contrast(data)).reshape(2, data.layers, data.heads)
    layer, head = np.indices(w.shape) + 1
    columns = {"layer": layer, "head": head, "w": w, "u": u, "w_gain": w_gain, "u_gain": u_gain}
    table = pd.DataFrame({name: values.ravel() for name, values in columns.items()})
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


def _fit(
    data: ProbeData,
    recipe: Kind,
    sentences: list[int],
    seeds: Sequence[int],
    task: Task,
    settings: Sequence[Setting],
) -> nn.Module:
    """Train a model with a member for each seed, and setting, if there are any."""
    schedule, order = recipe.schedule, np.random.default_rng(seeds[0])
    # Which sentences each member learns from, and which its training stops by.
    kept, held = torch.zeros(2, len(seeds), len(data.parses), dtype=torch.bool)
    for member, seed in enumerate(seeds):
        slices = validation_slice(sentences, schedule.validation_share, np.random.default_rng(seed))
        kept[member, slices[0]], held[member, slices[1]] = True, True
    stopped_by = [index for index in sentences if held[:, index].any()]
    model = recipe.build(data, seeds)
    batches = partial(data.batches, maps=recipe.reads_maps, task=task)

    def mean(batches: Iterable[Batch], chosen: Bool[Tensor, "member sentence"]) -> Tensor:
        """Return each member's mean loss a word over the sentences chosen for it."""
        total, words = torch.zeros(2, len(seeds))
        for batch in batches:
            own = chosen[:, batch.indices]
            total = total + (loss(model, batch) * own).sum(1)
            words = words + (own * batch.lengths).sum(1)
        return total / words.clamp(min=1)

    train(
        model,
        batches=lambda: batches(sentences, size=schedule.batch_size, order=order),
        loss=lambda batch: mean([batch], kept),
        validate=lambda: mean(batches(stopped_by, size=EVALUATION_BATCH), held),
        epochs=schedule.epochs_for(len(sentences)),
        schedule=schedule,
        settings=settings,
    )
    return model
