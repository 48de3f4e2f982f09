"""What the tables of pruning say, over heads, test sets, seeds and time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from helpers.analysis.statistics import correlation, mean_interval
from helpers.store.store import Store
from helpers.studies.fine_tune import FineTuned, stacked
from helpers.studies.sixteen_heads import pruning
from helpers.studies.wikipedia_tasks import NUMBER, SHIFT, labelled_pairs, tag_words

SIGNIFICANT = 0.01  # the level of the paper
ARTICLES = "other articles"  # the second test set of a task, in cross_data


def change_table(rows: pd.DataFrame, index: Sequence[str], columns: str) -> pd.DataFrame:
    """Return changes as the paper's Tables 1 to 4 have them: layers down, heads across.

    ``rows`` has ``change``, removable, and what ``index`` and ``columns`` name.  A star marks
    what is not shown to be removable.
    """
    stars = rows["removable"].map({True: "", False: " *"})
    shown = rows.assign(shown=rows["change"].map("{:+.1f}".format) + stars)
    return shown.pivot(index=list(index), columns=columns, values="shown")


def cross_data(
    single: pd.DataFrame, elsewhere: pd.DataFrame | None = None, *, name: str = "", seed: int
) -> pd.DataFrame:
    """Return whether the heads that matter on one test set matter on another (section 3.4).

    ``single`` is `single_ablation`; its two halves are test sets of different articles.
    ``elsewhere`` is the same of the test set ``name``.  Columns: task, set (the second test set),
    one_change and other_change (mean over heads, points), and `correlation` (over heads).
    """
    by_task = dict(list(single.groupby("task", sort=False)))
    pairs = [(t, ARTICLES, own["change_one"], own["change_other"]) for t, own in by_task.items()]
    if elsewhere is not None:
        others = elsewhere.groupby("task", sort=False)
        pairs += [(t, name, by_task[t]["change"], own["change"]) for t, own in others]
    rows = [
        {"task": task, "set": other, "one_change": one.mean(), "other_change": two.mean()}
        | correlation(one.to_numpy(), two.to_numpy(), seed=seed)
        for task, other, one, two in pairs
    ]
    return pd.DataFrame(rows)


def on_treebank(runs: Sequence[FineTuned], store: Store, *, seed: int) -> pd.DataFrame | None:
    """Return `single_ablation` of the tasks of grammar on the sentences of a treebank's store.

    They are tagged and labelled as the tasks are; None where no task can be made of them.
    """
    sentences = tag_words([example.record["words"] for example in store])
    tests = {}
    for run in runs:
        if (name := run.task.name) in (SHIFT, NUMBER):
            count = len(pruning.split_test(run, seed)[1])
            tests[name] = labelled_pairs(name, sentences, count, seed)
    own = [run for run in runs if tests.get(run.task.name)]
    return pruning.single_ablation(own, seed=seed, tests=tests) if own else None


def seed_measures(runs: Mapping[int, Sequence[FineTuned]], *, seed: int) -> pd.DataFrame:
    """Return what depends on the seed of a fine-tuning, whose ``runs`` are given by that seed.

    Columns: task, seed, accuracy (all test examples), removable (heads that are so alone),
    prunable (up to which all steps by importance are removable), all in percent, and correlation
    (Spearman's, of the importance of heads with that of the other seeds, the mean).
    """
    weights = {number: pruning.head_importance(some, seed=seed) for number, some in runs.items()}
    whole, rows = stacked(weights, "seed").set_index(["task", "layer", "head", "seed"]), []
    for number, some in runs.items():
        single = pruning.single_ablation(some, seed=seed).groupby("task")["removable"].mean()
        pruned = pruning.pruning(some, weights[number], seed=seed).set_index("task")
        for run in some:
            task = run.task.name
            steps = pruned.loc[task]
            prunable = steps.loc[steps["removable"].cummin(), "pruned"].max()
            by_seed = whole["normalised"].loc[task].unstack("seed")
            alike = by_seed.corr("spearman")[number].drop(number).mean()
            rows.append((task, number, 100 * run.accuracy, 100 * single[task], prunable, alike))
    columns = ["task", "seed", "accuracy", "removable", "prunable", "correlation"]
    return pd.DataFrame(rows, columns=columns).fillna({"prunable": 0})


def seed_intervals(measures: pd.DataFrame) -> pd.DataFrame:
    """Return the mean of each of `seed_measures` over seeds, with its 95% interval (Student's t).

    Columns: task, measure, seeds (how many), mean, ci_low, ci_high, smallest and largest.
    """
    long = measures.melt(["task", "seed"], var_name="measure")
    rows = [
        (*names, len(values), *mean_interval(values), values.min(), values.max())
        for names, values in long.groupby(["task", "measure"], sort=False)["value"]
    ]
    columns = ["task", "measure", "seeds", "mean", "ci_low", "ci_high", "smallest", "largest"]
    return pd.DataFrame(rows, columns=columns)
