"""Table 3 (section 5): every probe's attachment scores, and the tables of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain

import numpy as np
import pandas as pd
from jaxtyping import Float, Int, Shaped
from torch import nn

from helpers.analysis.distance_probe import fit_distances
from helpers.analysis.heads import head_rows
from helpers.analysis.paper import COMPARED, UAS_WITHOUT_PUNCTUATION, UUAS, values_of
from helpers.analysis.probe_data import PLACES, Counts, Parse, ProbeData, WordVectors, prepare
from helpers.analysis.probes import Fit, fit_linear
from helpers.analysis.statistics import Estimate, paired_interval, with_seed_noise
from helpers.analysis.structural_probe import fit_structural, prepare_states
from helpers.analysis.training import one_thread, predicted_heads, side_by_side
from helpers.data.glove import Embeddings
from helpers.store.store import Store

RIGHT_BRANCHING = "Right-branching"
DISTANCES_GLOVE = "Distances + GloVe"
RANDOM_ATTN = "Random-init Attn"
RANDOM_ATTN_GLOVE = "Random-init Attn + GloVe"
ATTN = "Attn"
ATTN_GLOVE = "Attn + GloVe"
STRUCTURAL = "Structural probe"

UAS = "UAS"
UNDIRECTED = "UAS, undirected"  # what compares with UUAS
CONTROL_TASK = "control task"
SELECTIVITY = "selectivity"
COLUMNS = ["probe", "metric", "value", "ci_low", "ci_high", "n_train", "n_dev", "paper_value"]
# What section 5 says of two probes.
COMPARISONS = (
    (ATTN, RIGHT_BRANCHING), (ATTN_GLOVE, ATTN), (ATTN_GLOVE, DISTANCES_GLOVE),
    (ATTN, DISTANCES_GLOVE), (ATTN_GLOVE, RANDOM_ATTN_GLOVE), (STRUCTURAL, ATTN_GLOVE),
)  # fmt: skip

PARTS = (0.1, 0.25, 0.5, 1.0)  # of the train sentences, for the learning curves


@dataclass(frozen=True)
class ProbeResult:
    """The scores of one probe on dev, by metric, and how it was fitted to each task, if it was.

    ``articles`` has the article of each dev sentence.
    """

    probe: str
    counts: Mapping[str, Counts]
    n_train: int
    articles: Shaped[np.ndarray, " sentence"]
    fits: Mapping[str, Fit] = field(default_factory=dict, repr=False)

    def by_article(self, metric: str) -> tuple[np.ndarray, np.ndarray]:
        """Return how many are right in each article, a mean over seeds, and out of how many."""
        return self.counts[metric].by_article(self.articles)


def table3(
    store: Store, random_stores: Iterable[Store], vectors: Embeddings, *, seeds: int
) -> dict[str, pd.DataFrame]:
    """Fit and score every probe of Table 3.

    ``store`` has word-level maps and hidden states of a treebank with train and dev sentences,
    ``random_stores`` the maps of the model with random weights, a store for each initialisation;
    ``vectors`` gives the static vectors of words; networks are trained with so many ``seeds``.
    Returned are the tables of section 5 by name, of which ``structural_layers`` says how well each
    layer's vectors do on a slice of train.
    """
    states = prepare_states(store)
    found, embeddings, layers = fit_structural(states, seeds=seeds)
    sizes = len(states.splits["train"]), states.dev_articles
    structural, shared = (
        ProbeResult(STRUCTURAL, {UUAS: own}, *sizes) for own in (found, embeddings)
    )
    del states
    data = prepare(store, vectors.vectors)
    runs = [partial(distances_result, data, seed) for seed in range(seeds)]
    runs.append(partial(distances_result, data, 0, control_task=True))
    distances = pool(side_by_side(runs, DISTANCES_GLOVE))
    curves = [linear_results(data, probe, PARTS) for probe in (ATTN, ATTN_GLOVE)]
    attention, with_words = (curve[-1] for curve in curves)
    weights = attention.fits[UAS].probe.dependent.detach()[:, -1].numpy()  # w, then u
    heads = head_weights(weights, data)
    baseline = right_branching(data)
    del data, runs  # its maps, before those of the controls are read
    random_attention, controls = control_results(random_stores, vectors.vectors)
    trained = (distances, pool(controls), attention, with_words)
    results = [structural, baseline, *map(with_selectivity, trained)]
    by_name = {result.probe: result for result in results}
    of_control = {ATTN: random_attention, ATTN_GLOVE: controls[0], STRUCTURAL: shared}
    linear = [result for curve in curves for result in curve]
    learned = probe_table(linear)
    return {
        "probes": probe_table(results),
        "probe_seeds": seed_table(results),
        "probe_fits": fit_table([*linear, random_attention, *controls]),
        "probe_heads": heads,
        "learning_curves": learned[learned["metric"] != CONTROL_TASK],
        "structural_layers": layers,
        "probe_differences": difference_table(by_name),
        "control_probe_differences": difference_table(by_name | of_control),
    }


def linear_results(
    data: ProbeData,
    probe: str,
    parts: Sequence[float] = (1.0,),
    *,
    l2: float | None = None,
    control_task: bool = True,
) -> list[ProbeResult]:
    """Fit Attn or Attn + GloVe to parts of train, the last of which is all of it.

    The penalty is chosen on all of train, and asked of the control task, too.  On a part it is as
    many times larger as the part is smaller: the same, beside the loss of all its words.  The parts
    are the same for every probe, and each lies within the next larger one.
    """
    order = np.random.default_rng(0).permutation(data.splits["train"]).tolist()
    fit = partial(fit_linear, data, with_words=probe in (ATTN_GLOVE, RANDOM_ATTN_GLOVE))
    whole = found = fit(order, l2=l2)
    results = []
    for part in sorted(parts, reverse=True):
        own, fits = order[: max(1, round(part * len(order)))], {UAS: whole}
        if part < 1:  # near the optimum for the next larger part
            fits[UAS] = found = fit(own, l2=whole.l2 / part, start=found.probe)
        elif control_task:
            fits[CONTROL_TASK] = fit(own, l2=whole.l2, control_task=True)
        counts = {}
        for task, one in fits.items():
            counts |= scores_on_dev(data, one.probe, control_task=task == CONTROL_TASK)
        results.append(ProbeResult(probe, counts, len(own), data.dev_articles, fits))
    return results[::-1]


def control_results(
    stores: Iterable[Store], vectors: WordVectors
) -> tuple[ProbeResult, list[ProbeResult]]:
    """Return Attn on the first initialisation's maps, and Attn + GloVe on each, of one penalty."""
    attention, results, l2 = None, [], None
    for store in stores:
        data, first = prepare(store, vectors), l2 is None
        if first:
            (attention,) = linear_results(data, RANDOM_ATTN, control_task=False)
        results += linear_results(data, RANDOM_ATTN_GLOVE, l2=l2, control_task=first)
        l2 = results[0].fits[UAS].l2
        del data  # before the next is read
    return attention, results


@one_thread()
def distances_result(data: ProbeData, seed: int, *, control_task: bool = False) -> ProbeResult:
    """Train Distances + GloVe with one seed, for the heads or those of the control task."""
    sentences = data.splits["train"]
    model = fit_distances(data, sentences, seed, control_task=control_task)
    counts = scores_on_dev(data, model, control_task=control_task)
    return ProbeResult(DISTANCES_GLOVE, counts, len(sentences), data.dev_articles)


def right_branching(data: ProbeData) -> ProbeResult:
    """Score the baseline whose head is always the next word; the last word's is ROOT."""
    parses = [data.parses[index] for index in data.splits["dev"]]
    heads = [np.append(np.arange(2, len(parse) + 1), 0) for parse in parses]
    return ProbeResult(RIGHT_BRANCHING, attachment(parses, heads), 0, data.dev_articles)


def scores_on_dev(
    data: ProbeData, model: nn.Module, *, control_task: bool = False
) -> dict[str, Counts]:
    """Return the `attachment` of the heads that a probe predicts on dev."""
    indices = data.splits["dev"]
    heads = predicted_heads(model, data, indices)
    return attachment([data.parses[index] for index in indices], heads, control_task=control_task)


def attachment(
    parses: Sequence[Parse],
    heads: Sequence[Int[np.ndarray, " word"]],
    *,
    control_task: bool = False,
) -> dict[str, Counts]:
    """Count the right heads of each sentence, with and without punctuation, and the edges found.

    An edge between two words is found where either is the other's head, as UUAS counts it.  The
    control task leaves punctuation out (Hewitt and Liang 2019, section 2.2).
    """
    rows = []
    for own, parse in zip(heads, parses, strict=True):
        spoken = ~parse.punctuation
        right = own == (parse.control if control_task else parse.heads)
        words = np.flatnonzero(spoken & (parse.heads > 0))
        words = words[spoken[parse.heads[words] - 1]]
        governors = parse.heads[words]
        edges = (own[words] == governors) | (own[governors - 1] == words + 1)
        found = [right.sum(), right[spoken].sum(), edges.sum()]
        rows.append((found, [len(own), spoken.sum(), len(words)]))
    right, sizes = np.array(rows).transpose(1, 2, 0)  # [metric, sentence] both
    counts = [Counts(own[None], total) for own, total in zip(right, sizes, strict=True)]
    if control_task:
        return {CONTROL_TASK: counts[1]}
    return dict(zip((UAS, UAS_WITHOUT_PUNCTUATION, UNDIRECTED), counts, strict=True))


def pool(results: Sequence[ProbeResult]) -> ProbeResult:
    """Join results on the same sentences as if they were seeds; not each has all metrics."""
    counts: dict[str, Counts] = {}
    for metric, own in chain.from_iterable(result.counts.items() for result in results):
        first = counts.get(metric)
        right = np.concatenate([first.right, own.right]) if first else own.right
        counts[metric] = Counts(right, (first or own).total)
    return replace(results[0], counts=counts)


def with_selectivity(result: ProbeResult) -> ProbeResult:
    """Add how far a probe's UAS is above its control task's accuracy, both without punctuation."""
    own, random = (result.counts[name] for name in (UAS_WITHOUT_PUNCTUATION, CONTROL_TASK))
    above = Counts(own.right - random.right, own.total)
    return replace(result, counts={**result.counts, SELECTIVITY: above})


def probe_table(results: Iterable[ProbeResult]) -> pd.DataFrame:
    """Return probes.csv: a row for every probe and metric, in percent; a mean over seeds.

    The 95% interval covers the choice of dev articles and the noise of training
    (`Counts.estimate`), but not the choice of training data.  The paper's value stands next to the
    metric that it is in: punctuation is left out.
    """
    rows, paper = [], values_of("Table 3")
    for result in results:
        for metric, counts in result.counts.items():
            estimate = counts.estimate(result.articles)
            sizes = result.n_train, len(result.articles)
            known = paper.get(result.probe, np.nan) if metric in COMPARED else np.nan
            rows.append((result.probe, metric, *estimate, *sizes, known))
    return pd.DataFrame(rows, columns=COLUMNS)


def difference_table(results: Mapping[str, ProbeResult]) -> pd.DataFrame:
    """Return how far apart the probes of `COMPARISONS` are, in points, punctuation left out.

    It is their UAS; beside the structural probe's UUAS, the share of edges that the other finds.
    The 95% interval covers the choice of dev articles, by a bootstrap in which both probes have the
    same ones, and the noise of training of both (`with_seed_noise`).
    """
    rows = []
    for pair in COMPARISONS:
        directed = all(UAS_WITHOUT_PUNCTUATION in results[name].counts for name in pair)
        metrics = [UAS_WITHOUT_PUNCTUATION] * 2 if directed else [UUAS, UNDIRECTED]
        sides = [results[n].by_article(m) for n, m in zip(pair, metrics, strict=True)]
        one, other = (right.sum() / (total.sum() or np.nan) for right, total in sides)
        low, high = paired_interval(*sides)
        over_articles = Estimate(100 * (one - other), 100 * low[0], 100 * high[0])
        by_seed = [results[n].counts[m].by_seed for n, m in zip(pair, metrics, strict=True)]
        rows.append((*pair, *with_seed_noise(over_articles, *by_seed)))
    return pd.DataFrame(rows, columns=["probe", "other", "difference", "ci_low", "ci_high"])


def seed_table(results: Iterable[ProbeResult]) -> pd.DataFrame:
    """Return the spread over seeds: probe, metric, seeds, mean, sd (of a sample), min, max."""
    by_seed = [
        (result.probe, metric, value)
        for result in results
        for metric, counts in result.counts.items()
        for value in counts.by_seed
    ]
    table = pd.DataFrame(by_seed, columns=["probe", "metric", "value"])
    spread = ["count", "mean", "std", "min", "max"]
    table = table.groupby(["probe", "metric"], sort=False)["value"].agg(spread).reset_index()
    return table.rename(columns={"count": "seeds", "std": "sd"})


def fit_table(results: Iterable[ProbeResult]) -> pd.DataFrame:
    """Return the optimum of each linear probe: see `Fit`; ``task`` is UAS or the control task."""
    rows = [
        (result.probe, task, result.n_train, *fit[1:])
        for result in results
        for task, fit in result.fits.items()
    ]
    return pd.DataFrame(rows, columns=["probe", "task", "n_train", *Fit._fields[1:]])


def head_weights(weight: Float[np.ndarray, " feature"], data: ProbeData) -> pd.DataFrame:
    """Return what the Attn probe made of each head: layer, head, w, u, w_gain, u_gain.

    ``w`` weighs the attention from the candidate head to the word, ``u`` that from the word to
    the candidate.  A head that gives words little attention needs a large weight to matter at all,
    so ``w_gain`` and ``u_gain`` are what it adds to the score: the weight times the
    `attention_contrast`.  Sorted by the larger of the two gains.
    """
    gains = weight * attention_contrast(data)
    (w, u), (w_gain, u_gain) = (v.reshape(2, data.layers, data.heads) for v in (weight, gains))
    table = head_rows(data.layers, data.heads, w=w, u=u, w_gain=w_gain, u_gain=u_gain)
    order = table[["w_gain", "u_gain"]].max(axis=1).sort_values(ascending=False, kind="stable")
    return table.loc[order.index].reset_index(drop=True)


def attention_contrast(data: ProbeData) -> Float[np.ndarray, " feature"]:
    """Return each feature's mean on gold heads less its mean on the other candidate words.

    The means are over the dev words that have a word as head and another that is not it.
    """
    contrast, words = np.zeros(data.features), 0
    for index in data.splits["dev"]:
        maps = data.blocks[index][:, PLACES:].astype(np.float32)  # [dependent, candidate, feature]
        n, heads = len(maps), data.parses[index].heads
        if n < 3:
            continue
        usable = np.flatnonzero(heads)
        gold = maps[usable, heads[usable] - 1]
        others = maps[usable].sum(1) - maps[usable, usable] - gold
        contrast += (gold - others / (n - 2)).sum(0, dtype=np.float64)
        words += len(usable)
    return contrast / max(words, 1)
