"""Table 3 (section 5): every probe's attachment scores, and the tables of them.

`all_heads_add` is a row of additions.csv (section 4.2, beyond the paper).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from helpers.cache import cached
from helpers.data.links import ROOT, read_links
from helpers.metrics import by_model
from helpers.metrics.heads import head_rows, layers_from_1
from helpers.metrics.reference import COMPARED, UAS_WITHOUT_PUNCTUATION, UUAS, paper_table3
from helpers.metrics.statistics import cluster_sums
from helpers.metrics.tags_and_places import UNSEEN, ParentRule, mean_gain
from helpers.probes import CODE
from helpers.probes.data import ProbeData, attention_block, prepare
from helpers.probes.modules import (
    Attn,
    AttnWithRule,
    BilinearProbe,
    DistancesWords,
    StructuralProbe,
)
from helpers.probes.training import (
    CONTROL_TASK,
    UNDIRECTED,
    ProbeCounts,
    attachment,
    predict_heads,
    seeded,
    stack_seeds,
    train,
    with_selectivity,
)

RIGHT_BRANCHING = "Right-branching"
DISTANCES_GLOVE = "Distances + GloVe"
ATTN = "Attn"
ATTN_GLOVE = "Attn + GloVe"
STRUCTURAL = "Structural probe"
BILINEAR = "Bilinear probe on hidden states"
RANDOM_INIT = "Random-init "  # names of a control's probes begin with it
ENTROPY_MATCHED = "Entropy-matched "
ALL_HEADS = "all heads, mean of relations"
HIDDEN = {STRUCTURAL: StructuralProbe, BILINEAR: BilinearProbe}
METRICS = {STRUCTURAL: UUAS}  # of all other probes: UAS without punctuation
# The pairs of probes that section 5 compares.
COMPARISONS = (
    (ATTN, RIGHT_BRANCHING), (ATTN_GLOVE, ATTN), (ATTN_GLOVE, DISTANCES_GLOVE),
    (ATTN, DISTANCES_GLOVE), (ATTN_GLOVE, RANDOM_INIT + ATTN_GLOVE), (STRUCTURAL, ATTN_GLOVE),
    (BILINEAR, ATTN_GLOVE),
)  # fmt: skip

Results = dict[str, ProbeCounts]  # by the name of the probe
Makers = Mapping[str, Callable[[], Any]]  # of untrained probes, by their names


def table3(
    store: Any, random_stores: Sequence[Any], matched_store: Any, embeddings: Any, *, seeds: int
) -> dict[str, pd.DataFrame]:
    """Fit and score every probe of Table 3, once.

    Parameters
    ----------
    store : Store
        Word-level maps and hidden states of a treebank with train and dev sentences.
    random_stores : sequence of Store
        Those of the model with random weights, a store for each initialisation.
    matched_store : Store
        Those of the entropy-matched control.
    embeddings : Embeddings or None
        The vectors of words.  Without them there are no probes that read them, and the controls are
        those of Attn.
    seeds : int
        Number of trainings of each probe whose initial parameters are random.

    Returns
    -------
    dict of DataFrame
        The tables of section 5 by name; see `probe_table`, `head_weights`, `fit_hidden` and
        `difference_table`.
    """
    inputs = {
        "stores": [used_store.key for used_store in (store, *random_stores, matched_store)],
        "vectors": embeddings and (embeddings.name, embeddings.fingerprint),
        "seeds": seeds,
    }
    compute = partial(make_tables, store, random_stores, matched_store, embeddings, seeds)
    return cached("table3", compute, inputs=inputs, code=CODE)


def make_tables(
    store: Any, random_stores: Sequence[Any], matched_store: Any, embeddings: Any, seeds: int
) -> dict[str, pd.DataFrame]:
    """Compute the tables of `table3`."""
    vectors = embeddings and embeddings.vectors
    data = prepare(store, vectors)
    random_data = [prepare(random_store, vectors) for random_store in random_stores]
    matched_data = prepare(matched_store, vectors)
    linear = [ATTN, ATTN_GLOVE] if vectors else [ATTN]
    last = linear[-1]  # the controls of which have a row
    attention, probes = fit_attention(data, linear, with_control_task=linear)
    makers = {DISTANCES_GLOVE: partial(DistancesWords, data)}
    distances = {}
    if vectors:
        distances, _ = fit_probes(makers, data, seeds=seeds, with_control_task=makers)
    structural, structural_layers = fit_hidden(data, STRUCTURAL, seeds)
    bilinear, bilinear_layers = fit_hidden(data, BILINEAR, seeds)

    random, _ = fit_attention(random_data[0], linear, with_control_task=[last])
    random[BILINEAR], _ = fit_hidden(random_data[0], BILINEAR, 1)
    further = [fit_attention(other_data, [last])[0][last] for other_data in random_data[1:]]
    initialisations = stack_seeds([*further, random[last]])
    matched, _ = fit_attention(matched_data, linear)
    matched[BILINEAR], _ = fit_hidden(matched_data, BILINEAR, 1)

    results = {
        STRUCTURAL: structural,
        RIGHT_BRANCHING: right_branching(data),
        **distances,
        RANDOM_INIT + last: with_selectivity(initialisations, random[last][CONTROL_TASK]),
        **attention,
        ENTROPY_MATCHED + last: matched[last],
        BILINEAR: bilinear,
        RANDOM_INIT + "bilinear probe": random[BILINEAR],
        ENTROPY_MATCHED + "bilinear probe": matched[BILINEAR],
    }
    # Random weights keep the embeddings, which are therefore the structural probe's control.
    shared = {**results, STRUCTURAL: fit_at_layer(data, STRUCTURAL, 0, seeds)}
    differences = {
        "trained": difference_table(results),
        "random": difference_table({**shared, **random}),
        "entropy-matched": difference_table({**shared, **matched}),
    }
    return {
        "probes": probe_table(results),
        "probe_heads": head_weights(probes[ATTN], data),
        "probe_layers": pd.concat([structural_layers, bilinear_layers], ignore_index=True),
        "probe_differences": by_model(differences),
    }


def fit_attention(
    data: ProbeData, names: Iterable[str], *, with_control_task: Iterable[str] = ()
) -> tuple[Results, dict[str, Any]]:
    """Train and score `ATTN` or `ATTN_GLOVE` or both: see `fit_probes`."""
    makers = {name: partial(Attn, data, with_words=name == ATTN_GLOVE) for name in names}
    return fit_probes(makers, data, with_control_task=with_control_task)


def fit_probes(
    makers: Makers, data: ProbeData, *, seeds: int = 1, with_control_task: Iterable[str] = ()
) -> tuple[Results, dict[str, Any]]:
    """Train probes on train together, and score them on dev.

    Parameters
    ----------
    makers
        Functions that make the probes, by their names.
    data
        The sentences.
    seeds
        Number of trainings of each probe on the syntactic heads.
    with_control_task
        The probes that are also trained on the control task, once.

    Returns
    -------
    results
        The scores of each probe.
    probes
        The probes of the last seed.
    """
    scores = defaultdict(list)
    for seed in range(seeds):
        probes = {name: seeded(make, seed) for name, make in makers.items()}
        train(list(probes.values()), data, data.splits["train"], seed=seed)
        for name, probe in probes.items():
            scores[name].append(probe.score(data, data.splits["dev"]))
    results = {name: stack_seeds(by_seed) for name, by_seed in scores.items()}
    if with_control_task:
        controls = {name: makers[name] for name in with_control_task}
        for name, counts in fit_probes(controls, data.control_task())[0].items():
            results[name] = with_selectivity(results[name], counts[UAS_WITHOUT_PUNCTUATION])
    return results, probes


def fit_hidden(data: ProbeData, name: str, seeds: int) -> tuple[ProbeCounts, pd.DataFrame]:
    """Choose the layer of a probe of hidden states on a held-out slice of train, and fit it.

    Parameters
    ----------
    data
        The sentences.
    name
        `STRUCTURAL` or `BILINEAR`.
    seeds
        Number of trainings on the chosen layer.

    Returns
    -------
    scores
        Those on dev.
    layers
        Rows of probe_layers.csv: ``probe``; ``layer``, from 0, the embeddings; ``metric`` (UUAS, or
        UAS without punctuation) and ``validation``, the score in percent on the held-out slice,
        with its interval; and whether the row is ``chosen``.
    """
    order = np.random.default_rng(0).permutation(data.splits["train"]).tolist()
    held_out = max(1, len(order) // 10)
    metric = METRICS.get(name, UAS_WITHOUT_PUNCTUATION)
    rows = []
    numbers = [0, *layers_from_1(data.store.layers, data.store.layer_numbers)]
    for layer in range(data.store.layers + 1):
        at_layer = data.at_layer(layer)
        probe = seeded(partial(HIDDEN[name], at_layer), 0)
        train([probe], at_layer, order[held_out:])
        estimate = probe.score(at_layer, order[:held_out])[metric].estimate()
        rows.append({
            "probe": name, "metric": metric, "layer": numbers[layer],
            **estimate.columns("validation"),
        })  # fmt: skip
    layers = pd.DataFrame(rows)
    best = int(layers["validation"].argmax())
    return fit_at_layer(data, name, best, seeds), layers.assign(chosen=layers.index == best)


def fit_at_layer(data: ProbeData, name: str, layer: int, seeds: int) -> ProbeCounts:
    """Train and score `STRUCTURAL` or `BILINEAR` on one layer: see `fit_probes`."""
    at_layer = data.at_layer(layer)
    makers = {name: partial(HIDDEN[name], at_layer)}
    control = {BILINEAR} & {name}
    return fit_probes(makers, at_layer, seeds=seeds, with_control_task=control)[0][name]


def right_branching(data: ProbeData) -> ProbeCounts:
    """Score the baseline whose head is always the next word; the head of the last word is ROOT."""
    parses = data.parses_of(data.splits["dev"])
    heads = [np.append(np.arange(2, len(parse) + 1), 0) for parse in parses]
    return attachment(parses, heads)


def probe_table(results: Results) -> pd.DataFrame:
    """Make the table probes.csv: the score of each probe by each metric.

    Parameters
    ----------
    results
        The counts of each probe, by name.

    Returns
    -------
    DataFrame
        ``value`` is in percent, a mean over seeds.  The 95% interval covers the choice of dev
        articles and the noise of training (`Counts.estimate`), but not the choice of training data.
        ``paper_value`` is given for the metrics of Table 3, which leave punctuation out.  The
        scores of the ``seeds`` have the standard deviation ``sd`` (of a sample).
    """
    rows = []
    paper = paper_table3()
    for probe, by_metric in results.items():
        for metric, counts in by_metric.items():
            rows.append({
                "probe": probe, "metric": metric, **counts.estimate().columns("value"),
                "paper_value": paper.get(probe) if metric in COMPARED else np.nan,
                "seeds": len(counts.by_seed),
                "sd": pd.Series(counts.by_seed).std(),
            })  # fmt: skip
    return pd.DataFrame(rows)


def difference_table(results: Results) -> pd.DataFrame:
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
        minuend = METRICS.get(probe, UAS_WITHOUT_PUNCTUATION)
        subtrahend = UNDIRECTED if probe == STRUCTURAL else UAS_WITHOUT_PUNCTUATION
        if {probe, baseline} <= results.keys():  # some need word vectors
            estimate = results[probe][minuend].minus(results[baseline][subtrahend])
            columns = estimate.columns("difference", df=True)
            rows.append({"probe": probe, "other": baseline, **columns})
    return pd.DataFrame(rows)


def head_weights(probe: Attn, data: ProbeData) -> pd.DataFrame:
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
    weights = probe.weights[0].detach().numpy()  # w, then u
    shape = (2, data.store.layers, data.store.heads)
    w, u = weights.reshape(shape)
    w_gain, u_gain = (weights * attention_contrast(data)).reshape(shape)
    order = np.argsort(-np.maximum(w_gain, u_gain).ravel(), kind="stable")
    table = head_rows(
        *shape[1:], numbers=data.store.layer_numbers, w=w, u=u, w_gain=w_gain, u_gain=u_gain
    )
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
            maps = attention_block(data.store[index])[:, 1:-1]  # [dependent, candidate, feature]
            gold = maps[dependents, heads[dependents] - 1]
            remaining = maps[dependents].sum(1) - maps[dependents, dependents] - gold
            contrasts.append(gold - remaining / (len(heads) - 2))
    return np.concatenate(contrasts).mean(0, dtype=np.float64)


def all_heads_add(store: Any, relations: list[str]) -> pd.DataFrame:
    """Compute what all heads together add to the rule, as a mean over relations, once.

    Parameters
    ----------
    store
        Word-level maps of a treebank with tags.
    relations
        The relations of `helpers.metrics.tags_and_places.addition_table`.

    Returns
    -------
    DataFrame
        The row `ALL_HEADS`, with ``count``, ``rule``, ``with_head`` and ``added`` of the words of
        dev, as in that table.  The rule chooses among all words, whatever the mask.
    """

    def compute() -> pd.DataFrame:
        data = prepare(store)
        log_p = log_p_with_root(store)
        probe = AttnWithRule(data, log_p)
        rule = AttnWithRule(data, log_p)  # not trained, its other weights are zero
        train([probe], data, data.splits["train"])
        dev = data.splits["dev"]
        parses = data.parses_of(dev)
        gold = np.concatenate([parse.heads for parse in parses])
        by_both = np.concatenate(predict_heads(probe, data, dev)) == gold
        by_rule = np.concatenate(predict_heads(rule, data, dev)) == gold
        values = np.column_stack([by_both, by_rule, np.ones_like(gold)])
        relation = np.concatenate([read_links(store.record(index)).relation for index in dev])
        article = np.repeat([parse.article for parse in parses], list(map(len, parses)))
        sums = []
        for name in relations:
            words = relation == name
            sums.append(cluster_sums(values[words], article[words], np.unique(article)))
        return pd.DataFrame([{"relation": ALL_HEADS, **mean_gain(sums, "rule", "added")}])

    inputs = {"store": store.key, "relations": relations}
    return cached("all-heads-add", compute, inputs=inputs, code=CODE)


def log_p_with_root(store: Any) -> list[Float[Tensor, "_word _candidate"]]:
    """Compute ``log P`` of the rule for ROOT and all words; a root's is known from its relation."""
    rule = ParentRule(store)
    tables = []
    for example in store:
        links = read_links(example.record)
        is_root = links.relation == ROOT
        root_log_p = np.log(np.where(is_root, 1, UNSEEN))[:, None]
        word_log_p = rule.log_probabilities(example, links)
        # Of equal words, the nearest counts.
        word_log_p -= 1e-5 * np.abs(links.word[:, None] - np.arange(len(links.word)))
        word_log_p[is_root] = np.log(UNSEEN)
        tables.append(torch.from_numpy(np.hstack([root_log_p, word_log_p]).astype(np.float32)))
    return tables
