"""Every row of Table 3 (section 5): which probes are trained on what, and what is kept of them.

Training and scoring the attention-based probing classifiers (section 5, Table 3).

The structural probe, the last row of Table 3, is in ``structural``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from helpers.analysis.probe_data import Batch, ProbeData, prepare
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
WordVectors = Callable[[list[str]], Float[np.ndarray, "word width"]]


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
    attention = fit_probe(data, "attn", seeds=seeds)
    control = pool(
        [
            fit_probe(prepare(random, vectors), "attn_glove", seeds=[seed])
            for seed, random in enumerate(random_stores)
        ],
        probe=RANDOM_ATTN_GLOVE,
    )
    from_vectors = fit_structural(prepare_states(store), seeds=seeds)
    with_words = fit_probe(data, "attn_glove", seeds=seeds)
    results = [
        from_vectors.result,
        right_branching(data),
        fit_probe(data, "distances_glove", seeds=seeds),
        control,
        attention,
        with_words,
    ]
    curves = learning_curve(data, fractions=PARTS)
    whole = pd.DataFrame([*attention.rows(), *with_words.rows()])
    return {
        "probes": probe_table(results),
        "probe_seeds": seed_table(results),
        "probe_heads": head_weights(attention, data),
        "learning_curves": pd.concat([curves, whole], ignore_index=True),
        "structural_layers": from_vectors.by_layer,
    }


ProbeKind = Literal["attn", "attn_glove", "distances_glove"]

EVALUATION_BATCH = 64


class _Kind(NamedTuple):
    name: str
    build: Callable[[ProbeData], nn.Module]
    schedule: Schedule
    reads_maps: bool = True


KINDS: dict[ProbeKind, _Kind] = {
    "attn": _Kind(
        ATTN, lambda data: AttentionProbe(data.scales), Schedule(epochs=8, learning_rate=0.02)
    ),
    "attn_glove": _Kind(
        ATTN_GLOVE,
        lambda data: AttentionWordsProbe(data.scales, data.vector_width),
        Schedule(epochs=8, learning_rate=0.0015, batch_size=16),
    ),
    "distances_glove": _Kind(
        DISTANCES_GLOVE,
        lambda data: DistancesWordsProbe(data.vector_width),
        Schedule(epochs=5, learning_rate=0.006, batch_size=8),
        reads_maps=False,
    ),
}


def right_branching(data: ProbeData) -> ProbeResult:
    """Score the baseline whose head is always the next word; the last word's is ROOT."""
    dev = data.splits["dev"]
    predicted = [np.append(np.arange(2, len(data.parses[i]) + 1), 0) for i in dev]
    return ProbeResult(RIGHT_BRANCHING, score(data, [predicted]), 0, len(dev))


@one_thread()
def fit_probe(
    data: ProbeData,
    kind: ProbeKind,
    *,
    seeds: int | Sequence[int] = 3,
    train_fraction: float = 1.0,
    schedule: Schedule | None = None,
    name: str | None = None,
) -> ProbeResult:
    """Train a probe on the train sentences, once a seed, and score it on dev.

    A seed decides the initial values, the order of the batches and the slice of train that
    training stops by.  ``train_fraction`` trains on so much of train (the same sentences for
    every seed and probe, each fraction within the next larger one).  ``name`` replaces the name
    of Table 3, for maps that are not the pre-trained model's.

    Raises ``InputError`` where a probe of words finds no word vectors in ``data``.
    """
    recipe = KINDS[kind]
    schedule = schedule or recipe.schedule
    sentences = training_sentences(data, train_fraction)
    seeds = range(seeds) if isinstance(seeds, int) else seeds
    models, epochs, predicted = [], [], []
    for seed in progress(seeds, name or recipe.name, unit="seed"):
        model, losses = _fit(data, recipe, sentences, schedule, seed)
        models.append(model)
        epochs.append(len(losses))
        predicted.append(predict(model, data, data.splits["dev"], maps=recipe.reads_maps))
    return ProbeResult(
        name or recipe.name,
        score(data, predicted),
        len(sentences),
        len(data.splits["dev"]),
        tuple(seeds),
        models,
        epochs,
    )


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
    masks = {
        UAS: [np.ones(len(parse), bool) for parse in dev],
        UAS_WITHOUT_PUNCTUATION: [~parse.punctuation for parse in dev],
    }
    return {
        metric: Counts(
            np.array(
                [
                    [
                        np.sum((heads == parse.heads)[mask])
                        for heads, parse, mask in zip(run, dev, kept, strict=True)
                    ]
                    for run in predicted
                ]
            ),
            np.array([mask.sum() for mask in kept]),
        )
        for metric, kept in masks.items()
    }


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


def learning_curve(
    data: ProbeData,
    kinds: Sequence[ProbeKind] = ("attn", "attn_glove"),
    *,
    fractions: Sequence[float] = (0.1, 0.25, 0.5, 1.0),
    seeds: int | Sequence[int] = 1,
) -> pd.DataFrame:
    """Return the rows of ``probe_table`` for growing parts of train (column ``n_train``)."""
    return pd.DataFrame(
        [
            row
            for kind in kinds
            for fraction in fractions
            for row in fit_probe(data, kind, seeds=seeds, train_fraction=fraction).rows()
        ]
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
        contrast += torch.einsum("sdp,sdfp->f", pairs, batch.maps[..., 2:]).double()
        words += int(usable.sum())
    return (contrast / max(words, 1)).numpy()


def _fit(
    data: ProbeData, recipe: _Kind, sentences: list[int], schedule: Schedule, seed: int
) -> tuple[nn.Module, list[float]]:
    """Train one model; returns it and its validation losses, one an epoch."""
    order = np.random.default_rng(seed)
    kept, held = validation_slice(sentences, schedule.validation_share, order)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = recipe.build(data)

    def validate() -> float:
        batches = list(data.batches(held, size=EVALUATION_BATCH, maps=recipe.reads_maps))
        words = sum(int(batch.lengths.sum()) for batch in batches)
        return sum(loss(model, batch, total=True).item() for batch in batches) / words

    losses = train(
        model,
        batches=lambda: data.batches(
            kept, size=schedule.batch_size, order=order, maps=recipe.reads_maps
        ),
        loss=lambda batch: loss(model, batch),
        validate=validate,
        epochs=schedule.epochs_for(len(kept)),
        schedule=schedule,
    )
    return model, losses
