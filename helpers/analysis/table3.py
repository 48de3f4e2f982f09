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

ProbeKind = Literal["attn", "attn_glove", "distances_glove", "random_attn", "random_attn_glove"]
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
    "random_attn": Kind(
        RANDOM_ATTN,
        lambda data, seeds: AttentionProbe(data.scales, len(seeds), whitened=True),
        Schedule(epochs=8, learning_rate=0.02),
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
        probe_heads (what the attention-only probe makes of each head), learning_curves,
        structural_layers (how well each layer's vectors do on a slice of train),
        probe_differences, and control_probe_differences (the same of random weights).
    """
    structural, embeddings, layers = fit_structural(prepare_states(store), seeds=seeds)
    data, seeds = prepare(store, vectors), range(seeds)
    fits = [
        partial(fit_probe, data, "distances_glove", [seed], control_task=seed == 0)
        for seed in seeds
    ]
    fits += [
        partial(fit_probe, data, kind, seeds, part, control_task=part == PARTS[-1])
        for kind in TRAINED
        for part in PARTS
    ]
    fitted = side_by_side(fits, "probes")
    distances, curves = pool(fitted[: len(seeds)], DISTANCES_GLOVE), fitted[len(seeds) :]
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
    kinds: tuple[ProbeKind, ...] = ("random_attn", "random_attn_glove")
    for seed, store in enumerate(stores):
        data, is_first = prepare(store, vectors), settings is None
        settings = settings or side_by_side(
            [partial(choose_setting, data, kind) for kind in kinds], "settings"
        )
        fits = [
            partial(
                fit_probe, data, kinds[1], [seed], part, setting=settings[1],
                control_task=is_first and part == PARTS[-1],
            )
            for part in reversed(PARTS)  # the longest first
        ]  # fmt: skip
        if is_first:
            fits.append(partial(fit_probe, data, kinds[0], [seed], setting=settings[0]))
        fitted = side_by_side(fits, RANDOM_ATTN_GLOVE)
        by_store.append(fitted[: len(PARTS)][::-1])
        attention = attention or fitted[-1]
        del data, fits  # before the next is read
    pooled = [pool(fits, RANDOM_ATTN_GLOVE) for fits in zip(*by_store, strict=True)]
    return attention, by_store[0][-1], pooled


@one_thread()
def fit_probe(
    data: ProbeData,
    kind: ProbeKind,
    seeds: Sequence[int],
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
    recipe, count = KINDS[kind], len(seeds)
    members = [*seeds, seeds[0]] if control_task else list(seeds)
    sentences, dev = training_sentences(data, part), data.splits["dev"]
    settings = [setting] * len(members) if setting else []
    model = _fit(data, recipe, sentences, members, settings, seeds=count)
    predicted = predict(model, data, dev, maps=recipe.reads_maps)
    counts = score(data, predicted[:count], dev)
    if control_task:
        random = score(data, predicted[count:], dev, [data.parses[i].control for i in dev])
        counts[CONTROL_TASK] = random[UAS_WITHOUT_PUNCTUATION]
    return ProbeResult(recipe.name, counts, len(sentences), data.dev_articles, model)


@one_thread()
def choose_setting(data: ProbeData, kind: ProbeKind) -> Setting:
    """Return the setting whose probe does best on the slice of train that training stops by.

    All are tried at once, as members of one model, on the part `TUNED_ON` of train.
    """
    recipe, sentences = KINDS[kind], training_sentences(data, TUNED_ON)
    model = _fit(data, recipe, sentences, [0] * len(SETTINGS), SETTINGS)
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
    return ProbeResult(RIGHT_BRANCHING, score(data, [predicted], dev), 0, data.dev_articles)


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
    gold: Sequence[Int[np.ndarray, " word"]] | None = None,
) -> dict[str, Counts]:
    """Count right heads in the sentences ``indices``, with and without punctuation.

    ``predicted[seed][sentence]`` are the heads of these sentences, in their order; ``gold``
    what they should be, the tree's where it is left out.
    """
    parses = [data.parses[index] for index in indices]
    gold = [parse.heads for parse in parses] if gold is None else gold
    right = [[heads == own for heads, own in zip(run, gold, strict=True)] for run in predicted]
    counts = {}
    for metric, left_out in ((UAS, False), (UAS_WITHOUT_PUNCTUATION, True)):
        kept = [~(parse.punctuation & left_out) for parse in parses]
        hits = [[hit[k].sum() for hit, k in zip(run, kept, strict=True)] for run in right]
        counts[metric] = Counts(np.array(hits), np.array([k.sum() for k in kept]))
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
    batches = partial(data.batches, maps=recipe.reads_maps)

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
