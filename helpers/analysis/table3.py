"""Every row of Table 3 (section 5): how each probe is trained, and what is kept of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from helpers.analysis.probe_data import PLACES, Batch, ProbeData, WordVectors, prepare
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
)
from helpers.analysis.probes import AttentionProbe, AttentionWordsProbe, DistancesWordsProbe, Scores
from helpers.analysis.structural_probe import fit_structural, prepare_states
from helpers.analysis.training import Schedule, one_thread, train, validation_slice
from helpers.progress import progress
from helpers.store.store import Store

PARTS = (0.1, 0.25, 0.5)  # of the train sentences, for the learning curves
EVALUATION_BATCH = 64

ProbeKind = Literal["attn", "attn_glove", "distances_glove"]


class Kind(NamedTuple):
    """A probe's name in Table 3, how it is built, and how it is trained."""

    name: str
    build: Callable[[ProbeData], nn.Module]
    schedule: Schedule
    reads_maps: bool = True


KINDS: dict[ProbeKind, Kind] = {
    "attn": Kind(
        ATTN, lambda data: AttentionProbe(data.scales), Schedule(epochs=8, learning_rate=0.02)
    ),
    "attn_glove": Kind(
        ATTN_GLOVE,
        lambda data: AttentionWordsProbe(data.scales, data.vector_width),
        Schedule(epochs=8, learning_rate=0.0015, batch_size=16),
    ),
    "distances_glove": Kind(
        DISTANCES_GLOVE,
        lambda data: DistancesWordsProbe(data.vector_width),
        Schedule(epochs=5, learning_rate=0.006, batch_size=8),
        reads_maps=False,
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
    data = prepare(store, vectors)
    attention = fit_probe(data, "attn", range(seeds))
    control = pool(
        [
            fit_probe(prepare(random, vectors), "attn_glove", [seed])
            for seed, random in enumerate(random_stores)
        ],
        RANDOM_ATTN_GLOVE,
    )
    structural, layers = fit_structural(prepare_states(store), seeds=seeds)
    with_words = fit_probe(data, "attn_glove", range(seeds))
    results = [
        structural,
        right_branching(data),
        fit_probe(data, "distances_glove", range(seeds)),
        control,
        attention,
        with_words,
    ]
    curves = [fit_probe(data, kind, [0], part) for kind in ("attn", "attn_glove") for part in PARTS]
    return {
        "probes": probe_table(results),
        "probe_seeds": seed_table(results),
        "probe_heads": head_weights(attention, data),
        "learning_curves": probe_table([*curves, attention, with_words]),
        "structural_layers": layers,
    }


@one_thread()
def fit_probe(
    data: ProbeData, kind: ProbeKind, seeds: Sequence[int], train_fraction: float = 1.0
) -> ProbeResult:
    """Train a probe on the train sentences, once a seed, and score it on dev.

    A seed decides the initial values, the order of the batches and the slice of train that
    training stops by.  ``train_fraction`` trains on so much of train (the same sentences for
    every seed and probe, each fraction within the next larger one).

    Raises ``InputError`` where a probe of words finds no word vectors in ``data``.
    """
    recipe = KINDS[kind]
    sentences = training_sentences(data, train_fraction)
    models = [_fit(data, recipe, sentences, seed) for seed in progress(seeds, recipe.name)]
    dev = data.splits["dev"]
    predicted = [predict(model, data, dev, maps=recipe.reads_maps) for model in models]
    return ProbeResult(recipe.name, score(data, predicted), len(sentences), len(dev), models)


def right_branching(data: ProbeData) -> ProbeResult:
    """Score the baseline whose head is always the next word; the last word's is ROOT."""
    dev = data.splits["dev"]
    predicted = [np.append(np.arange(2, len(data.parses[i]) + 1), 0) for i in dev]
    return ProbeResult(RIGHT_BRANCHING, score(data, [predicted]), 0, len(dev))


def training_sentences(data: ProbeData, fraction: float) -> list[int]:
    """Return the first part of the train sentences in an order fixed once for all fractions."""
    if not 0 < fraction <= 1:
        raise ValueError(f"train_fraction is {fraction}, expected more than 0 and at most 1")
    order = np.random.default_rng(0).permutation(data.splits["train"]).tolist()
    return order[: max(1, round(fraction * len(order)))]


def predict(
    model: nn.Module, data: ProbeData, indices: Sequence[int], *, maps: bool = True
) -> list[Int[np.ndarray, " word"]]:
    """Return the likeliest head of every word of the sentences (1-based, 0 is ROOT)."""
    heads: dict[int, np.ndarray] = {}
    with torch.no_grad():
        for batch in data.batches(indices, size=EVALUATION_BATCH, maps=maps):
            best = candidate_scores(model, batch).argmax(-1).numpy()
            for row, index in enumerate(batch.indices):
                heads[index] = best[row, : len(data.parses[index])]
    return [heads[index] for index in indices]


def score(
    data: ProbeData, predicted: Sequence[Sequence[Int[np.ndarray, " word"]]]
) -> dict[str, Counts]:
    """Count right heads on dev, with and without punctuation.

    ``predicted[seed][sentence]`` are the heads of the dev sentences, in their order.
    """
    dev = [data.parses[i] for i in data.splits["dev"]]
    right = [
        [heads == parse.heads for heads, parse in zip(run, dev, strict=True)] for run in predicted
    ]
    counts = {}
    for metric, left_out in ((UAS, False), (UAS_WITHOUT_PUNCTUATION, True)):
        kept = [~(parse.punctuation & left_out) for parse in dev]
        hits = [[hit[k].sum() for hit, k in zip(run, kept, strict=True)] for run in right]
        counts[metric] = Counts(np.array(hits), np.array([k.sum() for k in kept]))
    return counts


def candidate_scores(model: nn.Module, batch: Batch) -> Scores:
    """Return the logits, minus infinity for padding and for a word as its own head."""
    return model(batch).masked_fill(~batch.candidates(), -torch.inf)


def loss(model: nn.Module, batch: Batch, *, total: bool = False) -> Tensor:
    """Return ``-log p(head | word)`` in nats: the mean over the words, or their sum."""
    return F.cross_entropy(
        candidate_scores(model, batch).flatten(0, 1),
        batch.heads.flatten(),
        ignore_index=-1,
        reduction="sum" if total else "mean",
    )


def head_weights(result: ProbeResult, data: ProbeData) -> pd.DataFrame:
    """Return what the Attn probe made of each head: layer, head, w, u, w_gain, u_gain.

    ``w`` weighs the attention from the candidate head to the word, ``u`` that from the word to
    the candidate; means over seeds.  A head that gives words little attention needs a large
    weight to matter at all, so ``w_gain`` and ``u_gain`` are what it adds to the score: the
    weight times the mean, over dev words with a head, of the attention between word and gold
    head less its mean over the other words.  Sorted by the larger of the two gains.
    """
    weight = np.mean([model.coefficients.detach().numpy() for model in result.models], axis=0)
    w, u = weight.reshape(2, data.layers, data.heads)
    w_gain, u_gain = (weight * attention_contrast(data)).reshape(2, data.layers, data.heads)
    layer, head = np.indices(w.shape) + 1
    columns = {"layer": layer, "head": head, "w": w, "u": u, "w_gain": w_gain, "u_gain": u_gain}
    table = pd.DataFrame({name: values.ravel() for name, values in columns.items()})
    order = table[["w_gain", "u_gain"]].max(axis=1).sort_values(ascending=False, kind="stable")
    return table.loc[order.index].reset_index(drop=True)


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
        contrast += torch.einsum("sdp,sdfp->f", pairs, batch.maps[..., PLACES:]).double()
        words += int(usable.sum())
    return (contrast / max(words, 1)).numpy()


def _fit(data: ProbeData, recipe: Kind, sentences: list[int], seed: int) -> nn.Module:
    """Train one model."""
    schedule, order = recipe.schedule, np.random.default_rng(seed)
    kept, held = validation_slice(sentences, schedule.validation_share, order)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = recipe.build(data)

    def batches(
        indices: list[int], size: int, order: np.random.Generator | None = None
    ) -> Iterable[Batch]:
        return data.batches(indices, size=size, order=order, maps=recipe.reads_maps)

    def validate() -> float:
        words = sum(len(data.parses[index]) for index in held)
        return (
            sum(loss(model, batch, total=True).item() for batch in batches(held, EVALUATION_BATCH))
            / words
        )

    train(
        model,
        batches=lambda: batches(kept, schedule.batch_size, order),
        loss=lambda batch: loss(model, batch),
        validate=validate,
        epochs=schedule.epochs_for(len(kept)),
        schedule=schedule,
    )
    return model
