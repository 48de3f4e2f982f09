"""Summaries of the tables of pruning, over heads, test sets and seeds."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from scipy.stats import rankdata

from helpers.metrics.statistics import correlation, mean_interval
from helpers.store.store import Store
from helpers.studies.common.fine_tune import FineTuningRun, concat_with_keys
from helpers.studies.common.head_removal import INTERIM_SIZES, single_ablation, split_test
from helpers.studies.common.wikipedia_tasks import NUMBER, SHIFT, labelled_pairs, parse_words

SIGNIFICANT = 0.01  # the level of the paper
# Values of the column ``set``: the two test sets of `paired_changes`.
HALVES = "halves of the articles"
OTHER_CORPUS = "another corpus"
# Columns of `paired_changes`: the change on the first test set and on the second.
FIRST_CHANGE = "one_change"
SECOND_CHANGE = "other_change"
OUTLIERS = 2  # heads with the largest effects; correlations are computed with and without them
# Values of the column ``heads``.
ALL_HEADS = "all"
WITHOUT_OUTLIERS = f"without the {OUTLIERS} largest effects"
HEAD_COLUMNS = ["task", "layer", "head"]


def paired_changes(single: pd.DataFrame, elsewhere: pd.DataFrame | None = None) -> pd.DataFrame:
    """Pair the change of accuracy without each head on one test set and on another (section 3.4).

    Parameters
    ----------
    single
        From `single_ablation`.  Its two halves of the articles are a pair of test sets.
    elsewhere
        The same for another corpus, which makes a second pair.

    Returns
    -------
    pandas.DataFrame
        One row per pair of test sets, task and head.  Columns: set (`HALVES` or `OTHER_CORPUS`),
        task, layer, head, and the changes on the two test sets, one_change and other_change
        (percentage points).
    """
    columns = [*HEAD_COLUMNS, FIRST_CHANGE, SECOND_CHANGE]
    halves = single.rename(columns={"change_one": FIRST_CHANGE, "change_other": SECOND_CHANGE})
    tables = {HALVES: halves[columns]}
    if elsewhere is not None:
        second = elsewhere.rename(columns={"first_change": SECOND_CHANGE})
        first = single.rename(columns={"first_change": FIRST_CHANGE})
        corpora = first.merge(second[[*HEAD_COLUMNS, SECOND_CHANGE]], on=HEAD_COLUMNS)
        tables[OTHER_CORPUS] = corpora[columns]
    return concat_with_keys(tables, "set")


def cross_data(changes: pd.DataFrame, *, seed: int) -> pd.DataFrame:
    """Correlate, over heads, the changes of accuracy on two test sets (section 3.4).

    Parameters
    ----------
    changes
        From `paired_changes`.
    seed
        Seed of the bootstrap.

    Returns
    -------
    pandas.DataFrame
        One row per task, pair of test sets and selection of heads.  Columns: task; set; heads
        (`ALL_HEADS`, or `WITHOUT_OUTLIERS`: without the two of the largest mean effect); the mean
        one_change and other_change (percentage points); correlation (Pearson's) and
        rank_correlation (Spearman's) with 95% bootstrap intervals over heads.  Correlations are NaN
        if no head changes the accuracy.
    """
    rows = []
    for (task, test_sets), heads in changes.groupby(["task", "set"], sort=False):
        effects = (heads[FIRST_CHANGE] + heads[SECOND_CHANGE]).abs()
        outliers = effects.nlargest(OUTLIERS).index
        selections = {ALL_HEADS: heads, WITHOUT_OUTLIERS: heads.drop(outliers)}
        for name, selected in selections.items():
            changes_of_heads = selected[[FIRST_CHANGE, SECOND_CHANGE]]
            values = changes_of_heads.to_numpy()
            row = {
                "task": task,
                "set": test_sets,
                "heads": name,
                **changes_of_heads.mean(),
                **correlation(values, seed=seed).columns("correlation"),
                **correlation(rankdata(values, axis=0), seed=seed).columns("rank_correlation"),
            }
            rows.append(row)
    return pd.DataFrame(rows)


def on_treebank(runs: Sequence[FineTuningRun], store: Store, *, seed: int) -> pd.DataFrame | None:
    """Measure `single_ablation` of the tasks of grammar on the sentences of a treebank.

    Parameters
    ----------
    runs
        Fine-tuned classifiers, one per task.
    store
        Maps of the treebank, whose sentences are tagged and labelled like those of the tasks.
    seed
        Seed of the labels and of `single_ablation`.

    Returns
    -------
    pandas.DataFrame or None
        The columns of `single_ablation`; None if the treebank has no examples for any task.
    """
    sentences = parse_words([example.record["words"] for example in store])
    test_pairs = {}
    selected = []
    for run in runs:
        name = run.task.name
        if name not in (SHIFT, NUMBER):
            continue
        _, scored = split_test(run, seed)
        pairs = labelled_pairs(name, sentences, len(scored), seed)
        if pairs:
            test_pairs[name] = pairs
            selected.append(run)
    if not selected:
        return None
    return single_ablation(
        selected, seed=seed, test_pairs=test_pairs, interim_sizes=INTERIM_SIZES[:1]
    )


def seed_intervals(pruned: pd.DataFrame) -> pd.DataFrame:
    """Average the changes of accuracy over fine-tuning seeds.

    Parameters
    ----------
    pruned
        From `pruning.seed_pruning`.

    Returns
    -------
    pandas.DataFrame
        One row per task and share of heads.  Columns: task, pruned (percent of heads), seeds (their
        number), start (mean accuracy before, percent), change with its 95% interval over seeds
        (change_low, change_high; Student's t), smallest and largest change (percentage points).
    """
    rows = []
    for (task, share), seeds in pruned.groupby(["task", "pruned"], sort=False):
        change = seeds["change"]
        row = {
            "task": task,
            "pruned": share,
            "seeds": len(seeds),
            "start": seeds["start"].mean(),
            **mean_interval(change).columns("change"),
            "smallest": change.min(),
            "largest": change.max(),
        }
        rows.append(row)
    return pd.DataFrame(rows)
