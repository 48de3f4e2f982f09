"""Table 3 (section 5): every probe's attachment scores, and the tables of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pandas as pd
from jaxtyping import Float, Shaped
from torch import nn

from helpers.metrics.heads import head_rows
from helpers.metrics.reference import COMPARED, UAS_WITHOUT_PUNCTUATION, UUAS, paper_table3
from helpers.metrics.statistics import difference, ratio, with_seed_noise
from helpers.probes.bilinear import RANKS, choose_layer_and_rank, fit_bilinear
from helpers.probes.data import Counts, ProbeData, WordVectors, prepare
from helpers.probes.distances import fit_distances
from helpers.probes.linear import Fit, LinearProbe, fit_linear
from helpers.probes.structural import fit_layers, undirected_attachment
from helpers.probes.training import CONTROL_TASK, UNDIRECTED, attachment, scores_of, shuffled
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
    articles
        The article of each dev sentence.
    fit
        The fit of a linear probe.
    """

    probe: str
    counts: Mapping[str, Counts]
    n_train: int
    articles: Shaped[np.ndarray, " sentence"]
    fit: Fit | None = None


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
    structural, structural_of_embeddings, structural_layers = structural_results(data, seeds)
    results = [structural, right_branching(data)]
    if vectors:
        results.append(trained_result(data, DISTANCES_GLOVE, fit_distances, seeds))
    bilinear, bilinear_layers = bilinear_results(data, BILINEAR, seeds)
    rank = int(bilinear_layers.query("chosen")["rank"].iloc[0])
    fits = []
    linear = []
    for probe in probes:
        result, control_task = linear_results(data, probe)
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
    }  # fmt: skip


def structural_results(
    data: ProbeData, seeds: int
) -> tuple[ProbeResult, ProbeResult, pd.DataFrame]:
    """Score the structural probe on its best layer and on the embeddings; return also the layers.

    Random weights share the embeddings, which are therefore the control.
    """
    probes, table = fit_layers(data, seeds)
    results = []
    for layer in (int(table["chosen"].argmax()), 0):
        counts = undirected_attachment(data, probes[layer], layer, data.splits["dev"])
        results.append(result_of(data, STRUCTURAL, {UUAS: counts}))
    return (*results, table)


def result_of(data: ProbeData, probe: str, counts: Mapping[str, Counts]) -> ProbeResult:
    """Make the result of a probe that was fitted to all of train."""
    dev_articles = data.articles(data.splits["dev"])
    return ProbeResult(probe, counts, len(data.splits["train"]), dev_articles)


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

    def score(job: tuple[ProbeData, int]) -> ProbeResult:
        task_data, seed = job
        model = fit(task_data, seed)
        return result_of(data, probe, scores_of(model, task_data, data.splits["dev"]))

    jobs = [(data, seed) for seed in range(seeds)]
    jobs.append((data.control_task(), 0))
    *results, control_task = thread_map(score, jobs, label=probe, unit="fit")
    return with_selectivity(stack_seeds(results), control_task)


def bilinear_results(
    data: ProbeData, probe: str, seeds: int, ranks: Sequence[int] = RANKS
) -> tuple[ProbeResult, pd.DataFrame]:
    """Score the bilinear probe with the best layer and rank; return also all layers and ranks."""
    table = choose_layer_and_rank(data, ranks)
    best = table.query("chosen").iloc[0]
    fit = partial(fit_bilinear, layer=int(best["layer"]), rank=int(best["rank"]))
    return trained_result(data, probe, fit, seeds), table


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
    sentences = shuffled(data.splits["train"])
    fit = fit_linear(data, sentences, with_words=probe.endswith(ATTN_GLOVE), l2=l2)
    result = result_of(data, probe, scores_of(fit.probe, data, data.splits["dev"]))
    return replace(result, fit=fit)


def linear_results(data: ProbeData, probe: str) -> tuple[ProbeResult, ProbeResult]:
    """Fit Attn or Attn + GloVe to the heads, and with the same penalty to the control task."""
    result = linear_result(data, probe)
    return result, linear_result(data.control_task(), probe, l2=result.fit.l2)


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
    l2 = first.fit.l2
    control_task = linear_result(data.control_task(), first.probe, l2=l2)
    by_initialisation = [first]
    for store in other_stores:
        data = prepare(store, vectors)
        by_initialisation.append(linear_result(data, first.probe, l2=l2))
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
    results[BILINEAR], _ = bilinear_results(data, f"{prefix} bilinear probe", 1, [rank])
    return results


def right_branching(data: ProbeData) -> ProbeResult:
    """Score the baseline whose head is always the next word; the head of the last word is ROOT."""
    parses = [data.parses[index] for index in data.splits["dev"]]
    heads = [np.append(np.arange(2, len(parse) + 1), 0) for parse in parses]
    return replace(result_of(data, RIGHT_BRANCHING, attachment(parses, heads)), n_train=0)


def stack_seeds(results: Sequence[ProbeResult]) -> ProbeResult:
    """Stack results of the same probe on the same sentences as seeds."""
    counts = {}
    for metric, of_first in results[0].counts.items():
        right = np.concatenate([result.counts[metric].right for result in results])
        counts[metric] = Counts(right, of_first.total)
    return replace(results[0], counts=counts)


def with_selectivity(result: ProbeResult, control_task: ProbeResult) -> ProbeResult:
    """Add the control task, and selectivity: UAS minus its accuracy, both without punctuation."""
    of_heads = result.counts[UAS_WITHOUT_PUNCTUATION]
    of_control_task = control_task.counts[CONTROL_TASK]
    selectivity = Counts(of_heads.right - of_control_task.right, of_heads.total)
    counts = {**result.counts, **control_task.counts, SELECTIVITY: selectivity}
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
            rows.append(
                {
                    "probe": result.probe,
                    "metric": metric,
                    **counts.estimate(result.articles).columns("value"),
                    "n_train": result.n_train,
                    "n_dev": len(result.articles),
                    "paper_value": paper.get(result.probe) if metric in COMPARED else None,
                }
            )
    return pd.DataFrame(rows).astype({"paper_value": float})


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
        of_probe = UAS_WITHOUT_PUNCTUATION
        of_baseline = UAS_WITHOUT_PUNCTUATION
        if probe == STRUCTURAL:
            of_probe = UUAS
            of_baseline = UNDIRECTED
        minuend = results[probe].counts[of_probe]
        subtrahend = results[baseline].counts[of_baseline]
        articles = results[probe].articles
        over_articles = difference(
            ratio(*minuend.by_article(articles)), ratio(*subtrahend.by_article(articles))
        )
        estimate = with_seed_noise(over_articles.scaled(100), minuend.by_seed, subtrahend.by_seed)
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
            rows.append({
                "probe": result.probe, "metric": metric, "seeds": len(scores),
                "mean": scores.mean(), "sd": scores.std(), "min": scores.min(),
                "max": scores.max(),
            })  # fmt: skip
    return pd.DataFrame(rows)


def fit_table(results: Iterable[ProbeResult]) -> pd.DataFrame:
    """Make the table probe_fits.csv: the optimum of each linear probe.

    Returns
    -------
    DataFrame
        Columns probe, task ("UAS" or "control task"), n_train, and those of `Fit`.
    """
    rows = []
    for result in results:
        task = next(iter(result.counts))
        rows.append((result.probe, task, result.n_train, *result.fit[1:]))
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
        heads = data.parses[index].heads
        if len(heads) < 3:
            continue
        with_head = np.flatnonzero(heads)
        rows = np.arange(len(with_head))
        maps = data.maps([index])[1].numpy()[with_head]  # [dependent, candidate, feature]
        gold = maps[rows, heads[with_head] - 1]
        other_candidates = maps.sum(1) - maps[rows, with_head] - gold
        contrast += (gold - other_candidates / (len(heads) - 2)).sum(0, dtype=np.float64)
        words += len(with_head)
    return contrast / words
