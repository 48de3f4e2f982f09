"""Table 3 (section 5): every probe's attachment scores, and the tables of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float
from torch import nn

from helpers.metrics.heads import head_rows
from helpers.metrics.models import by_model
from helpers.metrics.reference import COMPARED, UAS_WITHOUT_PUNCTUATION, UUAS, paper_table3
from helpers.probes.bilinear import RANKS, choose_layer_and_rank, fit_bilinear
from helpers.probes.data import Counts, ProbeData, WordVectors, prepare, stack_seeds
from helpers.probes.distances import fit_distances
from helpers.probes.linear import Fit, LinearProbe, Task, fit_linear, fit_together
from helpers.probes.structural import StructuralProbe, fit_layers, undirected_attachment
from helpers.probes.training import ATTACHMENTS, UAS, UNDIRECTED, attachment, scores_of
from helpers.store.store import Example
from helpers.torch_utils import thread_map

RIGHT_BRANCHING = "Right-branching"
DISTANCES_GLOVE = "Distances + GloVe"
ATTN = "Attn"
ATTN_GLOVE = "Attn + GloVe"
STRUCTURAL = "Structural probe"
BILINEAR = "Bilinear probe on hidden states"
RANDOM_INIT = "Random-init "  # names of a control's probes begin with it
ENTROPY_MATCHED = "Entropy-matched "

CONTROL_TASK = "control task"
SELECTIVITY = "selectivity"
# The rows of Table 3, of which a run without word vectors has some.
ROWS = (
    STRUCTURAL, RIGHT_BRANCHING, DISTANCES_GLOVE, RANDOM_INIT + ATTN, RANDOM_INIT + ATTN_GLOVE,
    ATTN, ATTN_GLOVE, ENTROPY_MATCHED + ATTN, ENTROPY_MATCHED + ATTN_GLOVE, BILINEAR,
    RANDOM_INIT + "bilinear probe", ENTROPY_MATCHED + "bilinear probe",
)  # fmt: skip
# The pairs of probes that section 5 compares.
COMPARISONS = (
    (ATTN, RIGHT_BRANCHING), (ATTN_GLOVE, ATTN), (ATTN_GLOVE, DISTANCES_GLOVE),
    (ATTN, DISTANCES_GLOVE), (ATTN_GLOVE, RANDOM_INIT + ATTN_GLOVE), (STRUCTURAL, ATTN_GLOVE),
    (BILINEAR, ATTN_GLOVE),
)  # fmt: skip


ProbeCounts = Mapping[str, Counts]  # correct attachments of each dev sentence, by metric
TaskFits = dict[tuple[str, str], Fit]  # by probe, and `UAS` or `CONTROL_TASK`


def table3(
    examples: Iterable[Example],
    random_examples: Iterable[Iterable[Example]],
    matched_examples: Iterable[Example],
    vectors: WordVectors | None,
    *,
    seeds: int,
) -> dict[str, pd.DataFrame]:
    """Fit and score every probe of Table 3.

    Parameters
    ----------
    examples
        Word-level maps and hidden states of a treebank with train and dev sentences.
    random_examples
        The maps of the model with random weights, a store for each initialisation; the first one
        has hidden states.
    matched_examples
        The maps and hidden states of the entropy-matched control.
    vectors
        Function of words that returns their static vectors.  Without it there are no probes that
        read them, and the controls are those of Attn.
    seeds
        Number of trainings of each probe that depends on a seed.

    Returns
    -------
    dict of DataFrame
        The tables of section 5 by name; see `probe_table`, `head_weights`, `layer_table` and
        `difference_table`.
    """
    linear_probes = (ATTN, ATTN_GLOVE) if vectors else (ATTN,)
    probe = linear_probes[-1]  # the controls of which have a row
    model = model_results(examples, vectors, linear_probes, seeds)
    ranks = model.bilinear_layers.query("chosen")["rank"].tolist()
    random = random_results(random_examples, vectors, linear_probes, ranks)
    matched_data = prepare(matched_examples, vectors)
    matched, _, _ = fit_probes(matched_data, linear_probes, (), ranks, 1)
    by_name = {
        **model.results,
        RANDOM_INIT + probe: random[RANDOM_INIT + probe],
        ENTROPY_MATCHED + probe: matched[probe],
        RANDOM_INIT + "bilinear probe": random[BILINEAR],
        ENTROPY_MATCHED + "bilinear probe": matched[BILINEAR],
    }
    results = {name: by_name[name] for name in ROWS if name in by_name}
    shared = {**results, STRUCTURAL: model.on_embeddings}
    differences = {
        "trained": difference_table(results),
        "random": difference_table({**shared, **random}),
        "entropy-matched": difference_table({**shared, **matched}),
    }
    return {
        "probes": probe_table(results, model.n_train),
        "probe_heads": model.head_weights,
        "probe_layers": layer_table(model.structural_layers, model.bilinear_layers),
        "probe_differences": by_model(differences),
    }


class ModelResults(NamedTuple):
    """The probes of the model itself.

    Attributes
    ----------
    results
        The scores of each probe.
    on_embeddings
        Those of the structural probe on the embeddings, which random weights share with the model;
        they are therefore its control.
    n_train
        Number of sentences that probes are fitted to.
    head_weights
        The table probe_heads.csv.
    structural_layers, bilinear_layers
        The two parts of `layer_table`.
    """

    results: dict[str, ProbeCounts]
    on_embeddings: ProbeCounts
    n_train: int
    head_weights: pd.DataFrame
    structural_layers: pd.DataFrame
    bilinear_layers: pd.DataFrame


def model_results(
    examples: Iterable[Example],
    vectors: WordVectors | None,
    linear_probes: Sequence[str],
    seeds: int,
) -> ModelResults:
    """Fit and score the probes of the model itself; the parameters are as for `table3`.

    Its maps are dropped at the end, before those of a control are read.
    """
    data = prepare(examples, vectors)
    by_layer, structural_layers = fit_layers(data, seeds)
    best_layer = structural_layers["chosen"].argmax()
    results = {
        STRUCTURAL: structural_result(data, by_layer[best_layer]),
        RIGHT_BRANCHING: right_branching(data),
    }
    if vectors:
        results[DISTANCES_GLOVE] = trained_result(data, DISTANCES_GLOVE, fit_distances, seeds)
    fitted, fits, bilinear_layers = fit_probes(data, linear_probes, linear_probes, RANKS, seeds)
    return ModelResults(
        results={**results, **fitted},
        on_embeddings=structural_result(data, by_layer[0]),
        n_train=len(data.splits["train"]),
        head_weights=head_weights(fits[ATTN, UAS].probe, data),
        structural_layers=structural_layers,
        bilinear_layers=bilinear_layers,
    )


def structural_result(data: ProbeData, probes: Sequence[StructuralProbe]) -> ProbeCounts:
    """Score structural probes of several seeds on dev."""
    dev = data.splits["dev"]
    return {UUAS: stack_seeds([undirected_attachment(data, probe, dev) for probe in probes])}


def trained_result(
    data: ProbeData, probe: str, fit: Callable[[ProbeData, int], nn.Module], seeds: int
) -> ProbeCounts:
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

    def fit_and_score(job: tuple[ProbeData, int]) -> ProbeCounts:
        task_data, seed = job
        return scores_of(fit(task_data, seed), task_data, data.splits["dev"])

    jobs = [(data, seed) for seed in range(seeds)]
    jobs.append((data.control_task(), 0))
    *results, control_task = thread_map(fit_and_score, jobs, label=probe, unit="fit")
    return with_selectivity(stack_results(results), control_task[UAS_WITHOUT_PUNCTUATION])


def linear_result(
    data: ProbeData, probe: str, *, l2: float | None = None
) -> tuple[Fit, ProbeCounts]:
    """Fit `ATTN` or `ATTN_GLOVE` to train and score it on dev; ``l2`` is as for `fit_linear`."""
    fit = fit_linear(data, with_words=probe == ATTN_GLOVE, l2=l2)
    return fit, scores_of(fit.probe, data, data.splits["dev"])


def linear_results(
    data: ProbeData, probes: Sequence[str], with_control_task: Sequence[str]
) -> tuple[dict[str, ProbeCounts], TaskFits]:
    """Fit the linear probes to train, all together, and score them on dev; see `fit_probes`."""
    tasks = {}
    for probe in probes:
        tasks[probe, UAS] = Task(with_words=probe == ATTN_GLOVE)
        if probe in with_control_task:
            tasks[probe, CONTROL_TASK] = Task(probe == ATTN_GLOVE, on_control_task=True)
    control_data = data.control_task()
    results = {}
    fits = dict(zip(tasks, fit_together(data, list(tasks.values())), strict=True))
    for (probe, task), fit in fits.items():
        if task == UAS:
            results[probe] = scores_of(fit.probe, data, data.splits["dev"])
        else:
            control_task = scores_of(fit.probe, control_data, data.splits["dev"])
            control_counts = control_task[UAS_WITHOUT_PUNCTUATION]
            results[probe] = with_selectivity(results[probe], control_counts)
    return results, fits


def fit_probes(
    data: ProbeData,
    probes: Sequence[str],
    with_control_task: Sequence[str],
    ranks: Sequence[int],
    seeds: int,
) -> tuple[dict[str, ProbeCounts], TaskFits, pd.DataFrame]:
    """Fit the linear probes and the bilinear probe to the maps and hidden states of a model.

    Parameters
    ----------
    data
        The sentences.
    probes
        The linear probes.
    with_control_task
        Those that are also fitted to the control task, with the penalty of the fit to the heads.
    ranks
        The ranks that the bilinear probe's is chosen from.
    seeds
        Number of trainings of the bilinear probe.

    Returns
    -------
    results
        The scores of each probe.
    fits
        The fits of linear probes.
    layers
        The table of `choose_layer_and_rank`.
    """
    results, fits = linear_results(data, probes, with_control_task)
    layers = choose_layer_and_rank(data, ranks)
    (best,) = layers.query("chosen").itertuples()
    fit_best = partial(fit_bilinear, layer=best.layer, rank=best.rank)
    results[BILINEAR] = trained_result(data, BILINEAR, fit_best, seeds)
    return results, fits, layers


def random_results(
    initialisations: Iterable[Iterable[Example]],
    vectors: WordVectors | None,
    probes: Sequence[str],
    ranks: list[int],
) -> dict[str, ProbeCounts]:
    """Fit the probes to maps and hidden states of random weights.

    Parameters
    ----------
    initialisations
        The maps of each initialisation; the first one has hidden states.
    vectors
        As for `table3`.
    probes, ranks
        As for `fit_probes`, whose results are those of the first initialisation.

    Returns
    -------
    dict
        Also, under its name with the prefix, the last linear probe on all initialisations.  Its
        penalty is chosen on the first one, and only that is fitted to the control task.
    """
    first, *later_initialisations = initialisations
    probe = probes[-1]
    results, fits, _ = fit_probes(prepare(first, vectors), probes, [probe], ranks, 1)
    by_initialisation = [results[probe]]
    for examples in later_initialisations:
        _, result = linear_result(prepare(examples, vectors), probe, l2=fits[probe, UAS].l2)
        by_initialisation.append(result)
    stacked = stack_results(by_initialisation)
    results[RANDOM_INIT + probe] = with_selectivity(stacked, results[probe][CONTROL_TASK])
    return results


def right_branching(data: ProbeData) -> ProbeCounts:
    """Score the baseline whose head is always the next word; the head of the last word is ROOT."""
    parses = [data.parses[index] for index in data.splits["dev"]]
    heads = [np.append(np.arange(2, len(parse) + 1), 0) for parse in parses]
    return attachment(parses, heads)


def stack_results(results: Sequence[ProbeCounts]) -> ProbeCounts:
    """Stack results of the same probe on the same sentences as seeds."""
    stacked = {}
    for metric in ATTACHMENTS:
        stacked[metric] = stack_seeds([counts[metric] for counts in results])
    return stacked


def with_selectivity(result: ProbeCounts, control_task: Counts) -> ProbeCounts:
    """Add the control task, and selectivity: UAS minus its accuracy, both without punctuation.

    In the control task, too, words are counted without punctuation (Hewitt and Liang 2019, section
    2.2).
    """
    attached = result[UAS_WITHOUT_PUNCTUATION]
    selectivity = replace(attached, right=attached.right - control_task.right)
    return {**result, CONTROL_TASK: control_task, SELECTIVITY: selectivity}


def probe_table(results: Mapping[str, ProbeCounts], n_train: int) -> pd.DataFrame:
    """Make the table probes.csv: the score of each probe by each metric.

    Parameters
    ----------
    results
        The counts of each probe, by name.
    n_train
        Number of sentences that probes are fitted to.

    Returns
    -------
    DataFrame
        ``value`` is in percent, a mean over seeds.  The 95% interval covers the choice of dev
        articles and the noise of training (`Counts.estimate`), but not the choice of training data.
        ``paper_value`` is given for the metrics of Table 3, which leave punctuation out.  The
        scores of the ``seeds`` have the standard deviation ``sd`` (of a sample), ``min`` and
        ``max``.
    """
    rows = []
    paper = paper_table3()
    for probe, by_metric in results.items():
        for metric, counts in by_metric.items():
            rows.append({
                "probe": probe, "metric": metric, **counts.estimate().columns("value"),
                "n_train": 0 if probe == RIGHT_BRANCHING else n_train,
                "n_dev": len(counts.articles),
                "paper_value": paper.get(probe) if metric in COMPARED else np.nan,
                "seeds": len(counts.by_seed),
                **pd.Series(counts.by_seed).agg(sd="std", min="min", max="max"),
            })  # fmt: skip
    return pd.DataFrame(rows)


def layer_table(structural: pd.DataFrame, bilinear: pd.DataFrame) -> pd.DataFrame:
    """Make the table probe_layers.csv: the scores of both probes of hidden states, by layer.

    Parameters
    ----------
    structural : DataFrame
        What `structural.fit_layers` returns.
    bilinear : DataFrame
        What `bilinear.choose_layer_and_rank` returns.

    Returns
    -------
    DataFrame
        ``probe``; ``layer``, from 0, the embeddings; ``metric`` (UUAS, or UAS without punctuation)
        and ``validation``, the score in percent on a held-out slice of train, with its interval;
        whether the row is ``chosen``; and the ``rank`` of the bilinear probe.
    """
    parts = []
    for probe, table, metric in (
        ("Structural probe", structural, "UUAS"),
        ("Bilinear probe", bilinear, "UAS"),
    ):
        score = f"validation_{metric.lower()}"
        table = table.rename(columns=lambda name, score=score: name.replace(score, "validation"))
        parts.append(table.assign(probe=probe, metric=metric))
    columns = ["probe", "metric", "layer", "validation", "validation_low", "validation_high"]
    return pd.concat(parts, ignore_index=True)[[*columns, "chosen", "rank"]]


def difference_table(results: Mapping[str, ProbeCounts]) -> pd.DataFrame:
    """Make the table probe_differences.csv: the `COMPARISONS`, in percentage points.

    Parameters
    ----------
    results
        The counts of each probe, by name.

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
        estimate = results[probe][minuend].minus(results[baseline][subtrahend])
        columns = estimate.columns("difference", df=True)
        rows.append({"probe": probe, "other": baseline, **columns})
    return pd.DataFrame(rows)


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
