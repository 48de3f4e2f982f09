"""Do heads matter beyond one test set, and are those that do syntax missed where it is asked for?

The first question is of Michel et al. (2019, section 3.4): one fine-tuned model on two test sets.
The second is whether *number of the subject* needs the heads that find subjects and objects.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.stats import PermutationMethod, pearsonr

from helpers.analysis.dependency_heads import held_out_heads
from helpers.analysis.head_counts import count_heads
from helpers.analysis.heads import parse_head
from helpers.analysis.statistics import bootstrap_intervals
from helpers.cache import cached_table
from helpers.store.store import Store
from helpers.studies.fine_tune import FineTuned
from helpers.studies.grammar_tasks import LABELS, labelled_pairs, tag_words
from helpers.studies.removals import masking, scores_under
from helpers.studies.sixteen_heads.claims import ARTICLES
from helpers.studies.sixteen_heads.importance import without_each
from helpers.studies.sixteen_heads.pruning import articles_of, other_pairs, single_ablation
from helpers.studies.tables import mean_interval
from helpers.studies.tasks import Pair

PERMUTATIONS = 9999
ARGUMENTS = ("nsubj", "nsubjpass", "nsubj:pass", "dobj", "obj")
COMPARED = (
    "relation", "head", "found", "task", "change", "others", "difference", "ci_low", "ci_high",
    "loss_change", "loss_others", "loss_difference", "loss_ci_low", "loss_ci_high", "rank",
    "examples",
)  # fmt: skip


def cross_data(
    single: pd.DataFrame, elsewhere: pd.DataFrame | None = None, *, name: str = "", seed: int
) -> pd.DataFrame:
    """Return whether the heads that matter on one test set matter on another (section 3.4).

    ``single`` is `single_ablation`; its two halves are test sets of different articles.
    ``elsewhere`` is the same of the test set ``name``.  Columns: task, set (the second test
    set), one_change and other_change (mean over heads, points), correlation (Pearson's, over
    heads, of the accuracies without each) with ci_low and ci_high, and p_value (permutation).
    """
    pairs = [
        (task, ARTICLES, own["change_one"], own["change_other"])
        for task, own in single.groupby("task", sort=False)
    ]
    if elsewhere is not None:
        pairs += [
            (task, name, single.loc[single["task"] == task, "change"], own["change"])
            for task, own in elsewhere.groupby("task", sort=False)
        ]
    rows = [
        {"task": task, "set": other, "one_change": one.mean(), "other_change": two.mean()}
        | _pearson(one.to_numpy(), two.to_numpy(), seed)
        for task, other, one, two in pairs
    ]
    return pd.DataFrame(rows)


def on_treebank(runs: Sequence[FineTuned], store: Store, *, seed: int) -> pd.DataFrame | None:
    """Return `single_ablation` of the tasks of grammar on the sentences of a treebank's store.

    They are tagged and labelled as the tasks are; None where no task can be made of them.
    """
    sentences = tag_words([example.record["words"] for example in store])
    tests = {
        run.task.name: pairs
        for run in runs
        if run.task.name in LABELS
        and (pairs := labelled_pairs(run.task.name, sentences, len(other_pairs(run, seed)), seed))
    }
    own = [run for run in runs if run.task.name in tests]
    return single_ablation(own, seed=seed, tests=tests) if own else None


def argument_heads(run: FineTuned, store: Store, *, minimum: int, seed: int) -> pd.DataFrame:
    """Return what a task loses without the heads that find subjects and objects.

    The heads are chosen on the train half of a treebank's ``store``, before any fine-tuning; each
    is compared with the other heads of its layer.  Columns: relation, head, found (its accuracy
    on dev, percent), task, change and loss_change (without it), others and loss_others (without
    another head of its layer, the mean), difference (change less others, points) and
    loss_difference (nats), with 95% bootstrap intervals over articles (ci_low ...), and rank (of
    its loss among its layer's, 1: the most missed).  No rows where the treebank has neither
    relation ``minimum`` times.
    """
    return cached_table(
        "argument-heads",
        lambda: _compared(run, _finders(store, minimum), other_pairs(run, seed), seed),
        depends_on={
            "run": run.folder.name, "store": store.key, "minimum": minimum, "seed": seed
        }
    )  # fmt: skip


def arguments_over_seeds(arguments: pd.DataFrame, heads: pd.DataFrame) -> pd.DataFrame:
    """Return ``loss_difference`` of `argument_heads` over the seeds of the fine-tuning.

    ``heads`` is `pruning.heads_over_seeds`.  Columns: relation, head, task, seeds, more (of how
    many the head is missed more than the others), loss_difference (mean, nats) and its 95%
    interval (ci_low, ci_high; Student's t).
    """
    rows = []
    for row in arguments.itertuples():
        layer, head = (place + 1 for place in parse_head(row.head))
        layer_rows = heads[(heads["task"] == row.task) & (heads["layer"] == layer)]
        costs = layer_rows.pivot(index="seed", columns="head", values="loss_change")
        differences = costs[head] - costs.drop(columns=head).mean(axis=1)
        more = int((differences > 0).sum())
        found = mean_interval(differences)
        rows.append((row.relation, row.head, row.task, len(differences), more, *found))
    columns = ["relation", "head", "task", "seeds", "more", "loss_difference", "ci_low", "ci_high"]
    return pd.DataFrame(rows, columns=columns)


def _finders(store: Store, minimum: int) -> pd.DataFrame:
    table = held_out_heads(count_heads(store), minimum=minimum)
    return table.loc[table["relation"].isin(ARGUMENTS), ["relation", "head", "dev_accuracy"]]


def _compared(
    run: FineTuned, finders: pd.DataFrame, pairs: Sequence[Pair], seed: int
) -> pd.DataFrame:
    layers, heads = run.encoder.layers, run.encoder.heads
    needed = sorted({parse_head(head)[0] for head in finders["head"]})
    masks = without_each(layers, heads).reshape(layers, heads, layers, heads)[needed]
    changes = [masking(mask) for mask in masks.reshape(-1, layers, heads)]
    scores = scores_under(run, pairs, changes, "heads of subjects and objects")
    article = articles_of(pairs)
    effects = {
        "": 100 * (scores.right[1:].astype(float) - scores.right[0]),
        "loss_": scores.loss[1:] - scores.loss[0],
    }
    rows = []
    for finder in finders.itertuples():
        layer, head = parse_head(finder.head)
        row = {
            "relation": finder.relation, "head": finder.head, "found": finder.dev_accuracy,
            "task": run.task.name,
        }  # fmt: skip
        for kind, effect in effects.items():
            own = effect.reshape(len(needed), heads, -1)[needed.index(layer)]  # [head, example]
            others = np.delete(own, head, axis=0).mean(axis=0)
            clusters = np.bincount(article, own[head] - others)[:, None]
            low, high = bootstrap_intervals(clusters, np.bincount(article)[:, None], seed=seed)
            row |= {
                f"{kind}change": own[head].mean(),
                f"{kind}others": others.mean(),
                f"{kind}difference": (own[head] - others).mean(),
                f"{kind}ci_low": low[0],
                f"{kind}ci_high": high[0],
            }
        rank = int((own.mean(axis=1) > own[head].mean()).sum()) + 1
        rows.append(row | {"rank": rank, "examples": len(pairs)})
    return pd.DataFrame(rows, columns=COMPARED)


def _pearson(one: np.ndarray, other: np.ndarray, seed: int) -> dict[str, float]:
    if min(len(one) - 3, np.ptp(one), np.ptp(other)) <= 0:
        return dict.fromkeys(("correlation", "ci_low", "ci_high", "p_value"), np.nan)
    shuffled = PermutationMethod(n_resamples=PERMUTATIONS, rng=np.random.default_rng(seed))
    interval = pearsonr(one, other).confidence_interval()
    return {
        "correlation": float(pearsonr(one, other).statistic),
        "ci_low": interval.low,
        "ci_high": interval.high,
        "p_value": float(pearsonr(one, other, method=shuffled).pvalue),
    }
