"""What the tables of pruning say, over heads, test sets and seeds."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from scipy.stats import rankdata

from helpers.analysis.statistics import correlation, mean_interval
from helpers.store.store import Store
from helpers.studies.fine_tune import FineTuned, stacked
from helpers.studies.head_removal import LOOKS, single_ablation, split_test
from helpers.studies.wikipedia_tasks import NUMBER, SHIFT, labelled_pairs, tag_words

SIGNIFICANT = 0.01  # the level of the paper
HALVES = "halves of the articles"  # of one task's test set: the two sets of `paired_changes`
OTHER_CORPUS = "another corpus"
ONE, OTHER = "one_change", "other_change"
LARGEST = 2  # effects that a correlation is told without, too
ALL, REST = "all", f"without the {LARGEST} largest effects"


def paired_changes(single: pd.DataFrame, elsewhere: pd.DataFrame | None = None) -> pd.DataFrame:
    """Return what each head's removal changes on one test set, and on another (section 3.4).

    ``single`` is `single_ablation`; its `HALVES` are test sets of different articles.
    ``elsewhere`` is the same of another corpus.  Columns: set (what the two are), task, layer,
    head, one_change and other_change (points).
    """
    place = ["task", "layer", "head"]
    both = {HALVES: single.rename(columns={"change_one": ONE, "change_other": OTHER})}
    if elsewhere is not None:
        there = elsewhere[[*place, "first_change"]].rename(columns={"first_change": OTHER})
        both[OTHER_CORPUS] = single.rename(columns={"first_change": ONE}).merge(there, on=place)
    return stacked({key: table[[*place, ONE, OTHER]] for key, table in both.items()}, "set")


def cross_data(changes: pd.DataFrame, *, seed: int) -> pd.DataFrame:
    """Return whether the heads that matter on one test set matter on another (section 3.4).

    ``changes`` is `paired_changes`.  Columns: task, set, heads (all, or all but the two of the
    largest mean effect), one_change and other_change (mean over heads, points), correlation
    (Pearson's) and rank_correlation (Spearman's) with 95% bootstrap intervals over heads; NaN
    where no head changes anything.
    """
    rows = []
    for (task, name), own in changes.groupby(["task", "set"], sort=False):
        costliest = (own[ONE] + own[OTHER]).abs().nlargest(LARGEST).index
        for heads, some in ((ALL, own), (REST, own.drop(costliest))):
            values = some[[ONE, OTHER]].to_numpy()
            row = {"task": task, "set": name, "heads": heads} | some[[ONE, OTHER]].mean().to_dict()
            row |= correlation(values, seed=seed).columns("correlation")
            ranks = correlation(rankdata(values, axis=0), seed=seed)
            rows.append(row | ranks.columns("rank_correlation"))
    return pd.DataFrame(rows)


def on_treebank(runs: Sequence[FineTuned], store: Store, *, seed: int) -> pd.DataFrame | None:
    """Return `single_ablation` of the tasks of grammar on the sentences of a treebank's store.

    They are tagged and labelled as the tasks are; None where no task can be made of them.
    """
    sentences = tag_words([example.record["words"] for example in store])
    tests = {}
    for run in runs:
        if (name := run.task.name) in (SHIFT, NUMBER):
            count = len(split_test(run, seed)[1])
            tests[name] = labelled_pairs(name, sentences, count, seed)
    own = [run for run in runs if tests.get(run.task.name)]
    return single_ablation(own, seed=seed, tests=tests, looks=LOOKS[:1]) if own else None


def seed_intervals(pruned: pd.DataFrame) -> pd.DataFrame:
    """Return the mean change of `pruning.seed_pruning` over seeds, and its 95% interval (t).

    Columns: task, pruned (percent of heads), seeds (how many), start (mean accuracy before),
    change with ci_low and ci_high, smallest and largest (points).
    """
    rows = [
        {"task": task, "pruned": step, "seeds": len(own), "start": own["start"].mean()}
        | mean_interval(own["change"]).columns("change", "ci")
        | {"smallest": own["change"].min(), "largest": own["change"].max()}
        for (task, step), own in pruned.groupby(["task", "pruned"], sort=False)
    ]
    return pd.DataFrame(rows)
