"""Do heads matter beyond one test set (Michel et al. 2019, section 3.4)?"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from helpers.analysis.statistics import correlation
from helpers.store.store import Store
from helpers.studies.fine_tune import FineTuned
from helpers.studies.sixteen_heads.claims import ARTICLES
from helpers.studies.sixteen_heads.pruning import other_pairs, single_ablation
from helpers.studies.wikipedia_tasks import NUMBER, SHIFT, labelled_pairs, tag_words


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
        | correlation(one.to_numpy(), two.to_numpy(), seed=seed)
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
        if run.task.name in (SHIFT, NUMBER)
        and (pairs := labelled_pairs(run.task.name, sentences, len(other_pairs(run, seed)), seed))
    }
    own = [run for run in runs if run.task.name in tests]
    return single_ablation(own, seed=seed, tests=tests) if own else None
