"""Table 3 (section 5): every probe's attachment scores, and the tables of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pandas as pd
from jaxtyping import Float
from torch import nn

from helpers.metrics.heads import head_rows
from helpers.metrics.reference import COMPARED, UAS_WITHOUT_PUNCTUATION, UUAS, paper_table3
from helpers.probes.bilinear import RANKS, choose_layer_and_rank, fit_bilinear
from helpers.probes.data import Counts, ProbeData, WordVectors, prepare
from helpers.probes.distances import fit_distances
from helpers.probes.linear import Fit, LinearProbe, fit_linear
from helpers.probes.structural import StructuralProbe, fit_layers, undirected_attachment
from helpers.probes.training import UAS, UNDIRECTED, attachment, scores_of
from helpers.store.store import Store
from helpers.torch_utils import thread_map

RIGHT_BRANCHING = "Right-branching"
DISTANCES_GLOVE = "Distances + GloVe"
ATTN = "Attn"
ATTN_GLOVE = "Attn + GloVe"
STRUCTURAL = "Structural probe"
BILINEAR = "Bilinear probe on hidden states"
RANDOM_INIT = "Random-init"
ENTROPY_MATCHED = "Entropy-matched"

CONTROL_TASK = "control task"
SELECTIVITY = "selectivity"
# The pairs of probes that section 5 compares.
COMPARISONS = (
    (ATTN, RIGHT_BRANCHING), (ATTN_GLOVE, ATTN), (ATTN_GLOVE, DISTANCES_GLOVE),
    (ATTN, DISTANCES_GLOVE), (ATTN_GLOVE, f"{RANDOM_INIT} {ATTN_GLOVE}"), (STRUCTURAL, ATTN_GLOVE),
    (BILINEAR, ATTN_GLOVE),
)  # fmt: skip


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
    fit
        The fit of a linear probe.
    task
        What the fit is to: the heads (`UAS`), or the control task.
    """

    probe: str
    counts: Mapping[str, Counts]
    n_train: int
    fit: Fit | None = None
    task: str = UAS


def table3(
    store: Store,
    random_stores: Iterable[Store],
    matched_store: Store,
    vectors: WordVectors | None,
    *,
    seeds: int,
) -> dict[str, pd.DataFrame]:
    """Fit and score every probe of Table 3.

    Parameters
    ----------
    store
        Word-level maps and hidden states of a treebank with train and dev sentences.
    random_stores
        The maps of the model with random weights, a store for each initialisation; the first one
        has hidden states.
    matched_store
        The maps and hidden states of the entropy-matched control.
    vectors
        Function of words that returns their static vectors.  Without it there are no probes that
        read them, and the controls are those of Attn.
    seeds
        Number of trainings of each probe that depends on a seed.

    Returns
    -------
    dict of DataFrame
        The tables of section 5 by name; see `probe_table`, `seed_table`, `fit_table`,
        `head_weights`, `difference_table`, `structural.fit_layers` for ``structural_layers``, and
        `bilinear.choose_layer_and_rank` for ``bilinear_layers``.
    """
    probes = (ATTN, ATTN_GLOVE) if vectors else (ATTN,)
    data = prepare(store, vectors)
    by_layer, structural_layers = fit_layers(data, range(data.layers + 1), seeds)
    structural = structural_result(data, by_layer[structural_layers["chosen"].argmax()])
    # Random weights share the embeddings, which are therefore the control.
    structural_of_embeddings = structural_result(data, by_layer[0])
    results = [structural, right_branching(data)]
    if vectors:
        results.append(trained_result(data, DISTANCES_GLOVE, fit_distances, seeds))
    bilinear_layers = choose_layer_and_rank(data, RANKS)
    bilinear = bilinear_result(data, BILINEAR, bilinear_layers, seeds)
    rank = bilinear_layers.query("chosen")["rank"].item()
    fits = []
    linear = []
    for probe in probes:
        result = linear_result(data, probe)
        control_task = linear_control_task(data, result)
        fits += [result, control_task]
        linear.append(with_selectivity(result, control_task))
    heads = head_weights(linear[0].fit.probe, data)
    del data  # its maps, before those of the controls are read

    of_random, random_fits = random_results(random_stores, vectors, rank, probes)
    matched_data = prepare(matched_store, vectors)
    of_matched = control_results(matched_data, ENTROPY_MATCHED, rank, probes)
    results += [of_random[RANDOM_INIT], *linear]
    results += [of_matched[probes[-1]], bilinear, of_random[BILINEAR], of_matched[BILINEAR]]
    of_model = {result.probe: result for result in results}
    of_control = {**of_model, STRUCTURAL: structural_of_embeddings}
    return {
        "probes": probe_table(results),
        "probe_seeds": seed_table(results),
        "probe_fits": fit_table([*fits, *random_fits, *map(of_matched.get, probes)]),
        "probe_heads": heads,
        "structural_layers": structural_layers,
        "bilinear_layers": bilinear_layers,
        "probe_differences": difference_table(of_model),
        "random_probe_differences": difference_table({**of_control, **of_random}),
        "entropy_matched_probe_differences": difference_table({**of_control, **of_matched}),
    }


def structural_result(data: ProbeData, probes: Sequence[StructuralProbe]) -> ProbeResult:
    """Score structural probes of several seeds."""
    counts = undirected_attachment(data, probes, data.splits["dev"])
    return ProbeResult(STRUCTURAL, {UUAS: counts}, len(data.splits["train"]))


def score(data: ProbeData, probe: str, model: nn.Module, fit: Fit | None = None) -> ProbeResult:
    """Score a probe that was fitted to all of train."""
    counts = scores_of(model, data, data.splits["dev"])
    return ProbeResult(probe, counts, len(data.splits["train"]), fit)


def trained_result(
    data: ProbeData, probe: str, fit: Callable[[ProbeData, int], nn.Module], seeds: int
) -> ProbeResult:
    """Train and score a probe: several seeds on the heads, one on the control task.

    Parameters
    ----------
    data
        The sentences.
    probe
        Name of the probe in Table 3.
    fit
        Function of the data and a seed that trains the probe on train.
    seeds
        Number of seeds.
    """

    def fit_and_score(job: tuple[ProbeData, int]) -> ProbeResult:
        task_data, seed = job
        return score(task_data, probe, fit(task_data, seed))

    jobs = [(data, seed) for seed in range(seeds)]
    jobs.append((data.control_task(), 0))
    *results, control_task = thread_map(fit_and_score, jobs, label=probe, unit="fit")
    return with_selectivity(stack_seeds(results), control_task)


def bilinear_result(
    data: ProbeData, probe: str, candidates: pd.DataFrame, seeds: int
) -> ProbeResult:
    """Train and score the bilinear probe with the layer and rank that are chosen among some."""
    (best,) = candidates.query("chosen").itertuples()
    fit = partial(fit_bilinear, layer=best.layer, rank=best.rank)
    return trained_result(data, probe, fit, seeds)


def linear_result(data: ProbeData, probe: str, *, l2: float | None = None) -> ProbeResult:
    """Fit Attn or Attn + GloVe to train and score it on dev.

    Parameters
    ----------
    data
        The sentences and their maps.
    probe
        Name of the probe in Table 3, with the words' vectors if it ends with "GloVe".
    l2
        The penalty, as for `fit_linear`.
    """
    fit = fit_linear(data, with_words=probe.endswith(ATTN_GLOVE), l2=l2)
    return score(data, probe, fit.probe, fit)


def linear_control_task(data: ProbeData, result: ProbeResult) -> ProbeResult:
    """Fit a linear probe to the control task, with the penalty of its fit to the heads."""
    control_task = linear_result(data.control_task(), result.probe, l2=result.fit.l2)
    return replace(control_task, task=CONTROL_TASK)


def random_results(
    stores: Iterable[Store], vectors: WordVectors | None, rank: int, probes: Sequence[str]
) -> tuple[dict[str, ProbeResult], list[ProbeResult]]:
    """Fit the probes to maps and hidden states of random weights.

    Parameters
    ----------
    stores
        The maps of each initialisation; the first one has hidden states.
    vectors
        As for `table3`.
    rank
        Rank of the bilinear probe.
    probes
        The linear probes.

    Returns
    -------
    results
        `control_results` of the first initialisation and, under `RANDOM_INIT`, the last linear
        probe on all of them.  Its penalty is chosen on the first one, and only that is fitted to
        the control task.
    fits
        The results of linear probes, one by one.
    """
    first_store, *other_stores = stores
    data = prepare(first_store, vectors)
    results = control_results(data, RANDOM_INIT, rank, probes)
    first = results[probes[-1]]
    control_task = linear_control_task(data, first)
    by_initialisation = [first]
    for store in other_stores:
        data = prepare(store, vectors)
        by_initialisation.append(linear_result(data, first.probe, l2=first.fit.l2))
    results[RANDOM_INIT] = with_selectivity(stack_seeds(by_initialisation), control_task)
    return results, [*map(results.get, probes), control_task, *by_initialisation[1:]]


def control_results(
    data: ProbeData, prefix: str, rank: int, probes: Sequence[str]
) -> dict[str, ProbeResult]:
    """Fit the linear probes and the bilinear probe to a control; return the results by probe.

    The layer of the bilinear probe is chosen for the control, too; its rank is given.
    """
    results = {}
    for probe in probes:
        results[probe] = linear_result(data, f"{prefix} {probe}")
    layers = choose_layer_and_rank(data, [rank])
    results[BILINEAR] = bilinear_result(data, f"{prefix} bilinear probe", layers, seeds=1)
    return results


def right_branching(data: ProbeData) -> ProbeResult:
    """Score the baseline whose head is always the next word; the head of the last word is ROOT."""
    parses = [data.parses[index] for index in data.splits["dev"]]
    heads = [np.append(np.arange(2, len(parse) + 1), 0) for parse in parses]
    return ProbeResult(RIGHT_BRANCHING, attachment(parses, heads), n_train=0)


def stack_seeds(results: Sequence[ProbeResult]) -> ProbeResult:
    """Stack results of the same probe on the same sentences as seeds."""
    counts = {}
    for metric, of_first in results[0].counts.items():
        right = np.concatenate([result.counts[metric].right for result in results])
        counts[metric] = replace(of_first, right=right)
    return replace(results[0], counts=counts)


def with_selectivity(result: ProbeResult, control_task: ProbeResult) -> ProbeResult:
    """Add the control task, and selectivity: UAS minus its accuracy, both without punctuation.

    In the control task, too, words are counted without punctuation (Hewitt and Liang 2019, section
    2.2).
    """
    of_heads = result.counts[UAS_WITHOUT_PUNCTUATION]
    of_control_task = control_task.counts[UAS_WITHOUT_PUNCTUATION]
    selectivity = replace(of_heads, right=of_heads.right - of_control_task.right)
    counts = {**result.counts, CONTROL_TASK: of_control_task, SELECTIVITY: selectivity}
    return replace(result, counts=counts)


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
    paper = paper_table3()
    for result in results:
        for metric, counts in result.counts.items():
            rows.append({
                "probe": result.probe, "metric": metric, **counts.estimate().columns("value"),
                "n_train": result.n_train, "n_dev": len(counts.articles),
                "paper_value": paper.get(result.probe) if metric in COMPARED else np.nan,
            })  # fmt: skip
    return pd.DataFrame(rows)


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
        if not {probe, baseline} <= results.keys():  # without word vectors
            continue
        minuend = UAS_WITHOUT_PUNCTUATION
        subtrahend = UAS_WITHOUT_PUNCTUATION
        if probe == STRUCTURAL:
            minuend = UUAS
            subtrahend = UNDIRECTED
        estimate = results[probe].counts[minuend].minus(results[baseline].counts[subtrahend])
        columns = estimate.columns("difference", df=True)
        rows.append({"probe": probe, "other": baseline, **columns})
    return pd.DataFrame(rows)


def seed_table(results: Iterable[ProbeResult]) -> pd.DataFrame:
    """Make the table probe_seeds.csv: the spread of scores over seeds.

    Returns
    -------
    DataFrame
        Columns probe, metric, seeds, mean, sd (of a sample), min and max.
    """
    rows = []
    for result in results:
        for metric, counts in result.counts.items():
            scores = pd.Series(counts.by_seed)
            labels = {"probe": result.probe, "metric": metric, "seeds": len(scores)}
            rows.append({**labels, **scores.agg(mean="mean", sd="std", min="min", max="max")})
    return pd.DataFrame(rows)


def fit_table(results: Iterable[ProbeResult]) -> pd.DataFrame:
    """Make the table probe_fits.csv: the optimum of each linear probe.

    Returns
    -------
    DataFrame
        Columns probe, task ("UAS" or "control task"), n_train, and those of `Fit`.
    """
    rows = [(result.probe, result.task, result.n_train, *result.fit[1:]) for result in results]
    return pd.DataFrame(rows, columns=["probe", "task", "n_train", *Fit._fields[1:]])


def head_weights(probe: LinearProbe, data: ProbeData) -> pd.DataFrame:
    """Make the table probe_heads.csv: the weights that Attn gives each attention head.

    Parameters
    ----------
    probe
        Attn.
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
    weights = probe.dependent.detach()[:, -1].numpy()  # w, then u
    shape = (2, data.layers, data.heads)
    w, u = weights.reshape(shape)
    w_gain, u_gain = (weights * attention_contrast(data)).reshape(shape)
    order = np.argsort(-np.maximum(w_gain, u_gain).ravel(), kind="stable")
    table = head_rows(data.layers, data.heads, w=w, u=u, w_gain=w_gain, u_gain=u_gain)
    return table.iloc[order].reset_index(drop=True)


def attention_contrast(data: ProbeData) -> Float[np.ndarray, " feature"]:
    """Compute each feature's mean on gold heads minus its mean on the other candidate words.

    The means are over dev words that have a word as head and at least one other candidate.
    """
    contrasts = []
    for index in data.splits["dev"]:
        heads = data.parses[index].heads
        if len(heads) > 2:
            dependents = np.flatnonzero(heads)
            maps = data.maps([index])[1].numpy()  # [dependent, candidate, feature]
            gold = maps[dependents, heads[dependents] - 1]
            remaining = maps[dependents].sum(1) - maps[dependents, dependents] - gold
            contrasts.append(gold - remaining / (len(heads) - 2))
    return np.concatenate(contrasts).mean(0, dtype=np.float64)
