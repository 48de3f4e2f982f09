"""Every row of Table 3 (section 5): how each probe is trained, and what is kept of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from helpers.analysis.probe_data import EVALUATION_BATCH, Batch, ProbeData, WordVectors, prepare
from helpers.analysis.probe_scores import (
    ATTN,
    ATTN_GLOVE,
    CONTROL_TASK,
    DISTANCES_GLOVE,
    RANDOM_ATTN,
    RANDOM_ATTN_GLOVE,
    RIGHT_BRANCHING,
    STRUCTURAL,
    UAS,
    UAS_WITHOUT_PUNCTUATION,
    Counts,
    ProbeResult,
    difference_table,
    pool,
    probe_table,
    seed_table,
    with_selectivity,
)
from helpers.analysis.probes import (
    AttentionProbe,
    AttentionWordsProbe,
    DistancesWordsProbe,
    Scores,
    Seeds,
    head_weights,
)
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
TUNED_ON = 0.5  # of them
# What the control of random weights is tried with.
SETTINGS = tuple(Setting(rate, decay) for rate in (0.3, 1.0, 3.0) for decay in (0.0, 3.0, 30.0))

TRAINED = (ATTN, ATTN_GLOVE)  # those with learning curves


class Kind(NamedTuple):
    """How a probe of Table 3 is built, a member for each seed, and how it is trained."""

    build: Callable[[ProbeData, Seeds], nn.Module]
    schedule: Schedule


KINDS = {
    ATTN: Kind(AttentionProbe, Schedule(epochs=8, learning_rate=0.02)),
    ATTN_GLOVE: Kind(AttentionWordsProbe, Schedule(epochs=8, learning_rate=0.0015, batch_size=16)),
    DISTANCES_GLOVE: Kind(
        DistancesWordsProbe, Schedule(epochs=5, learning_rate=0.006, batch_size=8)
    ),
    RANDOM_ATTN: Kind(
        partial(AttentionProbe, whitened=True), Schedule(epochs=8, learning_rate=0.02)
    ),
    RANDOM_ATTN_GLOVE: Kind(
        partial(AttentionWordsProbe, whitened=True),
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
        probe_heads (what the attention-only probe makes of each head), learning_curves,
        structural_layers (how well each layer's vectors do on a slice of train),
        probe_differences, and control_probe_differences (the same of random weights).
    """
    structural, embeddings, layers = fit_structural(prepare_states(store), seeds=seeds)
    data, seeds = prepare(store, vectors), range(seeds)
    fits = [
        partial(fit_probe, data, DISTANCES_GLOVE, [seed], control_task=seed == 0) for seed in seeds
    ]
    fits += [
        partial(fit_probe, data, probe, seeds, part, control_task=part == PARTS[-1])
        for probe in TRAINED
        for part in PARTS
    ]
    fitted = side_by_side(fits, "probes")
    distances, curves = pool(fitted[: len(seeds)]), fitted[len(seeds) :]
    attention, with_words = curves[len(PARTS) - 1 :: len(PARTS)]
    weights = attention.model.coefficients[: len(seeds)]  # not that of the control task
    heads, baseline = head_weights(weights, data), right_branching(data)
    del data, fits  # its maps, before those of the controls are read
    random_attention, first, random_weights = fit_controls(random_stores, vectors)
    trained = (distances, random_weights[-1], attention, with_words)
    results = [structural, baseline, *map(with_selectivity, trained)]
    by_name = {result.probe: result for result in results}
    control = {ATTN: random_attention, ATTN_GLOVE: first, STRUCTURAL: embeddings}
    drawn = probe_table([*curves, *random_weights])
    return {
        "probes": probe_table(results),
        "probe_seeds": seed_table(results),
        "probe_heads": heads,
        "learning_curves": drawn[drawn["metric"] != CONTROL_TASK],
        "structural_layers": layers,
        "probe_differences": difference_table(by_name),
        "control_probe_differences": difference_table(by_name | control),
    }


def fit_controls(
    stores: Iterable[Store], vectors: WordVectors
) -> tuple[ProbeResult, ProbeResult, list[ProbeResult]]:
    """Train Attn + GloVe on the maps of random weights: a result for each part of train.

    Each store has an initialisation of its own.  The first decides how the probes are trained,
    and does the control task; before the results of all stand Attn and Attn + GloVe of its own.
    """
    by_store, attention, settings = [], None, None
    for seed, store in enumerate(stores):
        data, is_first = prepare(store, vectors), settings is None
        settings = settings or side_by_side(
            [partial(choose_setting, data, probe) for probe in (RANDOM_ATTN, RANDOM_ATTN_GLOVE)],
            "settings",
        )
        fits = [
            partial(
                fit_probe, data, RANDOM_ATTN_GLOVE, [seed], part, setting=settings[1],
                control_task=is_first and part == PARTS[-1],
            )
            for part in reversed(PARTS)  # the longest first
        ]  # fmt: skip
        if is_first:
            fits.append(partial(fit_probe, data, RANDOM_ATTN, [seed], setting=settings[0]))
        fitted = side_by_side(fits, RANDOM_ATTN_GLOVE)
        by_store.append(fitted[: len(PARTS)][::-1])
        attention = attention or fitted[-1]
        del data, fits  # before the next is read
    return attention, by_store[0][-1], [pool(fits) for fits in zip(*by_store, strict=True)]


@one_thread()
def fit_probe(
    data: ProbeData,
    probe: str,
    seeds: Seeds,
    part: float = 1.0,
    *,
    control_task: bool = False,
    setting: Setting | None = None,
) -> ProbeResult:
    """Train a probe on (a part of) the train sentences, once a seed, and score it on dev.

    The seeds are members of one model.  Each decides its initial values and the slice of train
    that its training stops by; the order of the batches is the first one's.  The sentences of a
    part are the same for every seed and probe, and each part lies within the next larger one.
    With ``control_task`` one more member, of the first seed, learns that.  ``setting`` changes
    the probe's own schedule.

    Raises ``InputError`` where a probe of words finds no word vectors in ``data``.
    """
    members = [*seeds, seeds[0]] if control_task else list(seeds)
    sentences = training_sentences(data, part)
    settings = [setting] * len(members) if setting else []
    model = _fit(data, KINDS[probe], sentences, members, settings, seeds=len(seeds))
    counts = score(model, data, data.splits["dev"], seeds=len(seeds))
    return ProbeResult(probe, counts, len(sentences), data.dev_articles, model)


@one_thread()
def choose_setting(data: ProbeData, probe: str) -> Setting:
    """Return the setting whose probe does best on the slice of train that training stops by.

    All are tried at once, as members of one model, on the part `TUNED_ON` of train.
    """
    recipe, sentences = KINDS[probe], training_sentences(data, TUNED_ON)
    model = _fit(data, recipe, sentences, [0] * len(SETTINGS), SETTINGS)
    order = np.random.default_rng(0)
    _, held = validation_slice(sentences, recipe.schedule.validation_share, order)
    right = score(model, data, held)[UAS_WITHOUT_PUNCTUATION].right
    return SETTINGS[int(right.sum(1).argmax())]


def training_sentences(data: ProbeData, part: float) -> list[int]:
    """Return the first part of the train sentences in an order fixed once for all parts."""
    order = np.random.default_rng(0).permutation(data.splits["train"]).tolist()
    return order[: max(1, round(part * len(order)))]


class RightBranching(nn.Module):
    """The baseline whose head is always the next word; the last word's is ROOT."""

    reads_maps = False

    def forward(self, batch: Batch) -> Scores:
        """Return 1 for that candidate of every word, and 0 for the others."""
        word = torch.arange(1, batch.heads.shape[1] + 1)
        following = torch.where(word < batch.lengths[:, None], word + 1, 0)
        return F.one_hot(following, len(word) + 1)[None].float()


def right_branching(data: ProbeData) -> ProbeResult:
    """Score the baseline on dev."""
    counts = score(RightBranching(), data, data.splits["dev"])
    return ProbeResult(RIGHT_BRANCHING, counts, 0, data.dev_articles)


@torch.no_grad()
def score(
    model: nn.Module, data: ProbeData, indices: Sequence[int], *, seeds: int | None = None
) -> dict[str, Counts]:
    """Count the right heads in the sentences ``indices``, with and without punctuation.

    A word's likeliest candidate is its head.  Members beyond the first ``seeds`` are asked for
    the heads of the control task.
    """
    places, right, total = {}, [], []
    for batch in data.batches(indices, size=EVALUATION_BATCH, maps=model.reads_maps):
        best = candidate_scores(model, batch).argmax(-1)  # [member, sentence, word]
        spoken = torch.where(batch.punctuation, -1, torch.stack([batch.heads, batch.control]))
        gold = torch.stack([batch.heads, *spoken])  # [metric, sentence, word]
        places |= {index: len(places) + row for row, index in enumerate(batch.indices)}
        right.append((best == gold[:, None]).sum(-1))
        total.append((gold >= 0).sum(-1))
    back = [places[index] for index in indices]
    right, total = (torch.cat(parts, -1)[..., back].numpy() for parts in (right, total))
    counts = {
        UAS: Counts(right[0, :seeds], total[0]),
        UAS_WITHOUT_PUNCTUATION: Counts(right[1, :seeds], total[1]),
    }
    if seeds is not None and seeds < right.shape[1]:
        counts[CONTROL_TASK] = Counts(right[2, seeds:], total[2])
    return counts


def candidate_scores(model: nn.Module, batch: Batch) -> Scores:
    """Return the logits, minus infinity for padding and for a word as its own head."""
    return model(batch).masked_fill(~batch.candidates(), -torch.inf)


def loss(
    model: nn.Module, batch: Batch, seeds: int | None = None
) -> Float[Tensor, "member sentence"]:
    """Return ``-log p(head | word)`` in nats, summed over each sentence's words.

    Members beyond the first ``seeds`` are asked for the heads of the control task.
    """
    scores = candidate_scores(model, batch)
    heads = batch.heads.repeat(len(scores), 1, 1)
    if seeds is not None:
        heads[seeds:] = batch.control
    lost = F.cross_entropy(scores.flatten(0, 2), heads.flatten(), ignore_index=-1, reduction="none")
    return lost.view(heads.shape).sum(2)


def _fit(
    data: ProbeData,
    recipe: Kind,
    sentences: list[int],
    members: Sequence[int],
    settings: Sequence[Setting],
    seeds: int | None = None,
) -> nn.Module:
    """Train a model whose members have these seeds, and settings, if there are any: see `loss`."""
    schedule, order = recipe.schedule, np.random.default_rng(members[0])
    # Which sentences each member learns from, and which its training stops by.
    kept, held = torch.zeros(2, len(members), len(data.parses), dtype=torch.bool)
    for member, seed in enumerate(members):
        slices = validation_slice(sentences, schedule.validation_share, np.random.default_rng(seed))
        kept[member, slices[0]], held[member, slices[1]] = True, True
    stopped_by = [index for index in sentences if held[:, index].any()]
    model = recipe.build(data, members)
    batches = partial(data.batches, maps=model.reads_maps)

    def mean(batches: Iterable[Batch], chosen: Bool[Tensor, "member sentence"]) -> Tensor:
        """Return each member's mean loss a word over the sentences chosen for it."""
        total, words = torch.zeros(2, len(members))
        for batch in batches:
            own = chosen[:, batch.indices]
            total = total + (loss(model, batch, seeds) * own).sum(1)
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
