"""Table 3 (section 5): every probe's attachment scores, and the tables of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import call

import numpy as np
import pandas as pd
from jaxtyping import Float, Int, Shaped
from torch import nn

from helpers.data.glove import Embeddings
from helpers.metrics.heads import head_rows
from helpers.metrics.reference import COMPARED, UAS_WITHOUT_PUNCTUATION, UUAS, values_of
from helpers.metrics.statistics import Estimate, paired_difference, with_seed_noise
from helpers.probes.data import (
    N_SPECIAL_POSITIONS,
    Counts,
    Parse,
    ProbeData,
    WordVectors,
    prepare,
)
from helpers.probes.distances import fit_distances
from helpers.probes.linear import Fit, fit_linear
from helpers.probes.structural import fit_structural, prepare_states
from helpers.probes.training import predicted_heads
from helpers.store.store import Store
from helpers.torch_utils import one_thread, thread_map

RIGHT_BRANCHING = "Right-branching"
DISTANCES_GLOVE = "Distances + GloVe"
RANDOM_ATTN = "Random-init Attn"
RANDOM_ATTN_GLOVE = "Random-init Attn + GloVe"
ATTN = "Attn"
ATTN_GLOVE = "Attn + GloVe"
STRUCTURAL = "Structural probe"

UAS = "UAS"
UNDIRECTED = "UAS, undirected"  # comparable with UUAS
CONTROL_TASK = "control task"
SELECTIVITY = "selectivity"
COLUMNS = ["probe", "metric", "value", "value_low", "value_high", "n_train", "n_dev", "paper_value"]
# The pairs of probes that section 5 compares.
COMPARISONS = (
    (ATTN, RIGHT_BRANCHING), (ATTN_GLOVE, ATTN), (ATTN_GLOVE, DISTANCES_GLOVE),
    (ATTN, DISTANCES_GLOVE), (ATTN_GLOVE, RANDOM_ATTN_GLOVE), (STRUCTURAL, ATTN_GLOVE),
)  # fmt: skip

PARTS = (0.1, 0.25, 0.5, 1.0)  # of the train sentences, for the learning curves


@dataclass(frozen=True)
class ProbeResult:
    """The scores of a probe on dev.

    Parameters
    ----------
    probe
        Name of the probe in Table 3.
    counts
        Correct attachments of each dev sentence, by metric.
    n_train
        Number of sentences that the probe was fitted to.
    articles
        The article of each dev sentence.
    fits
        The fit of a linear probe to each task: UAS or the control task.
    """

    probe: str
    counts: Mapping[str, Counts]
    n_train: int
    articles: Shaped[np.ndarray, " sentence"]
    fits: Mapping[str, Fit] = field(default_factory=dict, repr=False)


def table3(
    store: Store, random_stores: Iterable[Store], vectors: Embeddings, *, seeds: int
) -> dict[str, pd.DataFrame]:
    """Fit and score every probe of Table 3.

    Parameters
    ----------
    store
        Word-level maps and hidden states of a treebank with train and dev sentences.
    random_stores
        The maps of the model with random weights, a store for each initialisation.
    vectors
        The static vectors of words.
    seeds
        Number of trainings of each probe that depends on a seed.

    Returns
    -------
    dict of DataFrame
        The tables of section 5 by name; see `probe_table`, `seed_table`, `fit_table`,
        `head_weights`, `difference_table`, and `structural_probe.fit_layers` for
        ``structural_layers``.
    """
    structural, structural_of_embeddings, layers = structural_results(store, seeds)
    data = prepare(store, vectors.vectors)
    distances = distances_results(data, seeds)
    attention_curve = linear_results(data, ATTN, PARTS)
    attention = attention_curve[-1]
    glove_curve = linear_results(data, ATTN_GLOVE, PARTS)
    attention_glove = glove_curve[-1]
    weights = attention.fits[UAS].probe.dependent.detach()[:, -1].numpy()  # w, then u
    heads = head_weights(weights, data)
    baseline = right_branching(data)
    del data  # its maps, before those of the controls are read
    random_attention, random_by_seed = control_results(random_stores, vectors.vectors)

    results = [structural, baseline]
    for trained in (distances, stack_seeds(random_by_seed), attention, attention_glove):
        results.append(with_selectivity(trained))
    by_name = {result.probe: result for result in results}
    of_control = {
        **by_name,
        ATTN: random_attention,
        ATTN_GLOVE: random_by_seed[0],
        STRUCTURAL: structural_of_embeddings,
    }
    curves = [*attention_curve, *glove_curve]
    curve_table = probe_table(curves)
    return {
        "probes": probe_table(results),
        "probe_seeds": seed_table(results),
        "probe_fits": fit_table([*curves, random_attention, *random_by_seed]),
        "probe_heads": heads,
        "learning_curves": curve_table[curve_table["metric"] != CONTROL_TASK],
        "structural_layers": layers,
        "probe_differences": difference_table(by_name),
        "random_probe_differences": difference_table(of_control),
    }


def structural_results(store: Store, seeds: int) -> tuple[ProbeResult, ProbeResult, pd.DataFrame]:
    """Score the structural probe on its best layer and on the embeddings; return also the layers.

    Random weights share the embeddings, which are therefore the control.
    """
    states = prepare_states(store)
    best_layer, embeddings, layers = fit_structural(states, seeds=seeds)
    n_train = len(states.splits["train"])
    structural = ProbeResult(STRUCTURAL, {UUAS: best_layer}, n_train, states.dev_articles)
    return structural, replace(structural, counts={UUAS: embeddings}), layers


def distances_results(data: ProbeData, seeds: int) -> ProbeResult:
    """Score Distances + GloVe: several seeds on the heads, one on the control task."""
    jobs = [partial(distances_result, data, seed) for seed in range(seeds)]
    jobs.append(partial(distances_result, data, 0, control_task=True))
    return stack_seeds(thread_map(call, jobs, label=DISTANCES_GLOVE, unit="fit"))


def linear_results(
    data: ProbeData,
    probe: str,
    parts: Sequence[float] = (1.0,),
    *,
    l2: float | None = None,
    control_task: bool = True,
) -> list[ProbeResult]:
    """Fit Attn or Attn + GloVe to parts of train.

    Parameters
    ----------
    data
        The sentences and their maps.
    probe
        Name of the probe in Table 3.
    parts
        Fractions of train, in ascending order; the last is 1.  The parts are the same for every
        probe, and each lies within the next larger one.
    l2
        The penalty; None to choose it on all of train.  On a fraction p of train it is divided by
        p, so that its weight relative to the summed loss is constant.
    control_task
        Fit all of train to the control task, too, with the same penalty.

    Returns
    -------
    list of ProbeResult
        A result for each part, in their order.
    """
    order = np.random.default_rng(0).permutation(data.splits["train"]).tolist()
    fit = partial(fit_linear, data, with_words=probe in (ATTN_GLOVE, RANDOM_ATTN_GLOVE))
    full_fit = fit(order, l2=l2)
    previous_fit = full_fit
    results = []
    for part in sorted(parts, reverse=True):
        sentences = order[: max(1, round(part * len(order)))]
        fits = {UAS: full_fit}
        if part < 1:  # the optimum is near that of the next larger part
            previous_fit = fit(sentences, l2=full_fit.l2 / part, start=previous_fit.probe)
            fits[UAS] = previous_fit
        elif control_task:
            fits[CONTROL_TASK] = fit(sentences, l2=full_fit.l2, control_task=True)
        counts = {}
        for task, of_task in fits.items():
            counts.update(scores_on_dev(data, of_task.probe, control_task=task == CONTROL_TASK))
        results.append(ProbeResult(probe, counts, len(sentences), data.dev_articles, fits))
    return results[::-1]


def control_results(
    stores: Iterable[Store], vectors: WordVectors
) -> tuple[ProbeResult, list[ProbeResult]]:
    """Fit the probes to maps of random weights.

    Parameters
    ----------
    stores
        The maps of each initialisation.
    vectors
        Function of words that returns their static vectors.

    Returns
    -------
    attention
        Attn on the first initialisation.
    attention_glove
        Attn + GloVe on each initialisation.  The penalty is chosen on the first one, and only that
        is fitted to the control task.
    """
    attention = None
    results = []
    l2 = None
    for store in stores:
        data = prepare(store, vectors)
        is_first = l2 is None
        if is_first:
            (attention,) = linear_results(data, RANDOM_ATTN, control_task=False)
        results += linear_results(data, RANDOM_ATTN_GLOVE, l2=l2, control_task=is_first)
        l2 = results[0].fits[UAS].l2
        del data  # before the next is read
    return attention, results


@one_thread()
def distances_result(data: ProbeData, seed: int, *, control_task: bool = False) -> ProbeResult:
    """Train and score Distances + GloVe with one seed, on the heads or on the control task."""
    sentences = data.splits["train"]
    model = fit_distances(data, sentences, seed, control_task=control_task)
    counts = scores_on_dev(data, model, control_task=control_task)
    return ProbeResult(DISTANCES_GLOVE, counts, len(sentences), data.dev_articles)


def right_branching(data: ProbeData) -> ProbeResult:
    """Score the baseline whose head is always the next word; the head of the last word is ROOT."""
    parses = [data.parses[index] for index in data.splits["dev"]]
    heads = [np.append(np.arange(2, len(parse) + 1), 0) for parse in parses]
    return ProbeResult(RIGHT_BRANCHING, attachment(parses, heads), 0, data.dev_articles)


def scores_on_dev(
    data: ProbeData, model: nn.Module, *, control_task: bool = False
) -> dict[str, Counts]:
    """Compute the `attachment` of the heads that a probe predicts on dev."""
    indices = data.splits["dev"]
    heads = predicted_heads(model, data, indices)
    return attachment([data.parses[index] for index in indices], heads, control_task=control_task)


def attachment(
    parses: Sequence[Parse],
    heads: Sequence[Int[np.ndarray, " word"]],
    *,
    control_task: bool = False,
) -> dict[str, Counts]:
    """Count the correct attachments of each sentence.

    Parameters
    ----------
    parses
        The sentences' parses.
    heads
        The predicted heads of each sentence; 0 is ROOT, words count from 1.
    control_task
        Compare with the heads of the control task.

    Returns
    -------
    dict of Counts
        Correct heads with and without punctuation, and edges without punctuation: an edge between
        two words is found if either is the predicted head of the other, as UUAS counts it.  For the
        control task, only correct heads without punctuation (Hewitt and Liang 2019, section 2.2).
    """
    right_rows = []
    total_rows = []
    for predicted, parse in zip(heads, parses, strict=True):
        is_right = predicted == (parse.control if control_task else parse.heads)
        is_word = ~parse.punctuation
        dependents, governors = parse.edges()
        is_found = predicted[dependents] == governors + 1
        is_found |= predicted[governors] == dependents + 1
        right_rows.append([is_right.sum(), is_right[is_word].sum(), is_found.sum()])
        total_rows.append([len(predicted), is_word.sum(), len(dependents)])
    right = np.array(right_rows).T  # [metric, sentence]
    total = np.array(total_rows).T
    if control_task:
        return {CONTROL_TASK: Counts(right[1][None], total[1])}
    metrics = (UAS, UAS_WITHOUT_PUNCTUATION, UNDIRECTED)
    return {metric: Counts(right[row][None], total[row]) for row, metric in enumerate(metrics)}


def stack_seeds(results: Sequence[ProbeResult]) -> ProbeResult:
    """Stack results on the same sentences as seeds; a result may lack some metrics."""
    counts: dict[str, Counts] = {}
    for result in results:
        for metric, of_seed in result.counts.items():
            if metric in counts:
                right = np.concatenate([counts[metric].right, of_seed.right])
                counts[metric] = Counts(right, counts[metric].total)
            else:
                counts[metric] = of_seed
    return replace(results[0], counts=counts)


def with_selectivity(result: ProbeResult) -> ProbeResult:
    """Add selectivity: UAS minus the accuracy of the control task, both without punctuation."""
    of_heads = result.counts[UAS_WITHOUT_PUNCTUATION]
    of_control_task = result.counts[CONTROL_TASK]
    selectivity = Counts(of_heads.right - of_control_task.right, of_heads.total)
    return replace(result, counts={**result.counts, SELECTIVITY: selectivity})


def probe_table(results: Iterable[ProbeResult]) -> pd.DataFrame:
    """Make the table probes.csv: the score of each probe by each metric.

    Returns
    -------
    DataFrame
        ``value`` is in percent, a mean over seeds.  The 95% interval covers the choice of dev
        articles and the noise of training (`Counts.estimate`), but not the choice of training data.
        ``paper_value`` is given for the metrics of Table 3, which leave punctuation out.
    """
    rows = []
    paper = values_of("Table 3")
    for result in results:
        for metric, counts in result.counts.items():
            estimate = counts.estimate(result.articles)
            paper_value = paper.get(result.probe, np.nan) if metric in COMPARED else np.nan
            sizes = (result.n_train, len(result.articles))
            rows.append((result.probe, metric, *estimate, *sizes, paper_value))
    return pd.DataFrame(rows, columns=COLUMNS)


def difference_table(results: Mapping[str, ProbeResult]) -> pd.DataFrame:
    """Make the table probe_differences.csv: the `COMPARISONS`, in percentage points.

    Parameters
    ----------
    results
        The result of each probe, by name.

    Returns
    -------
    DataFrame
        Differences in UAS; with the structural probe, its UUAS minus the share of edges that the
        other probe finds.  Punctuation is left out.  The 95% interval covers the choice of dev
        articles, by a bootstrap that gives both probes the same ones, and the noise of training of
        both (`with_seed_noise`).
    """
    rows = []
    for probe, baseline in COMPARISONS:
        first = results[probe]
        second = results[baseline]
        if probe == STRUCTURAL:
            minuend = first.counts[UUAS]
            subtrahend = second.counts[UNDIRECTED]
        else:
            minuend = first.counts[UAS_WITHOUT_PUNCTUATION]
            subtrahend = second.counts[UAS_WITHOUT_PUNCTUATION]
        over_articles = paired_difference(
            minuend.by_article(first.articles), subtrahend.by_article(second.articles)
        )
        percentages = Estimate(*(100 * share for share in over_articles))
        estimate = with_seed_noise(percentages, minuend.by_seed, subtrahend.by_seed)
        rows.append((probe, baseline, *estimate))
    return pd.DataFrame(
        rows, columns=["probe", "other", "difference", "difference_low", "difference_high"]
    )


def seed_table(results: Iterable[ProbeResult]) -> pd.DataFrame:
    """Make the table probe_seeds.csv: the spread of scores over seeds.

    Returns
    -------
    DataFrame
        Columns probe, metric, seeds, mean, sd (of a sample), min and max.
    """
    by_seed = []
    for result in results:
        for metric, counts in result.counts.items():
            for value in counts.by_seed:
                by_seed.append((result.probe, metric, value))
    scores = pd.DataFrame(by_seed, columns=["probe", "metric", "value"])
    statistics = ["count", "mean", "std", "min", "max"]
    grouped = scores.groupby(["probe", "metric"], sort=False)["value"]
    table = grouped.agg(statistics).reset_index()
    return table.rename(columns={"count": "seeds", "std": "sd"})


def fit_table(results: Iterable[ProbeResult]) -> pd.DataFrame:
    """Make the table probe_fits.csv: the optimum of each linear probe.

    Returns
    -------
    DataFrame
        Columns probe, task ("UAS" or "control task"), n_train, and those of `Fit`.
    """
    rows = []
    for result in results:
        for task, fit in result.fits.items():
            rows.append((result.probe, task, result.n_train, *fit[1:]))
    return pd.DataFrame(rows, columns=["probe", "task", "n_train", *Fit._fields[1:]])


def head_weights(weight: Float[np.ndarray, " feature"], data: ProbeData) -> pd.DataFrame:
    """Make the table probe_heads.csv: the weights that Attn gives each attention head.

    Parameters
    ----------
    weight
        The weight of each feature.
    data
        The sentences and their maps.

    Returns
    -------
    DataFrame
        ``w`` weighs the attention from the candidate head to the word, ``u`` that from the word to
        the candidate.  A head that gives words little attention needs a large weight to matter, so
        ``w_gain`` and ``u_gain`` are its contributions to the score: the weight times the
        `attention_contrast`.  Rows are sorted by the larger of the two gains.
    """
    shape = (2, data.layers, data.heads)
    w, u = weight.reshape(shape)
    w_gain, u_gain = (weight * attention_contrast(data)).reshape(shape)
    table = head_rows(data.layers, data.heads, w=w, u=u, w_gain=w_gain, u_gain=u_gain)
    order = table[["w_gain", "u_gain"]].max(axis=1).sort_values(ascending=False, kind="stable")
    return table.loc[order.index].reset_index(drop=True)


def attention_contrast(data: ProbeData) -> Float[np.ndarray, " feature"]:
    """Compute each feature's mean on gold heads minus its mean on the other candidate words.

    The means are over dev words that have a word as head and at least one other candidate.
    """
    contrast = np.zeros(data.features)
    words = 0
    for index in data.splits["dev"]:
        block = data.blocks[index][:, N_SPECIAL_POSITIONS:]
        maps = block.astype(np.float32)  # [dependent, candidate, feature]
        length = len(maps)
        heads = data.parses[index].heads
        if length < 3:
            continue
        with_head = np.flatnonzero(heads)
        gold = maps[with_head, heads[with_head] - 1]
        other_candidates = maps[with_head].sum(1) - maps[with_head, with_head] - gold
        contrast += (gold - other_candidates / (length - 2)).sum(0, dtype=np.float64)
        words += len(with_head)
    return contrast / max(words, 1)
