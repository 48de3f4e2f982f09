"""Whether a head matters on every data set (Michel et al. 2019, section 3.4).

The paper compares two data sets of one task.  Here the two are halves of the test articles.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from jaxtyping import Bool
from scipy.stats import rankdata

from beyond.papers.common import head_removal
from beyond.papers.common.fine_tune import FineTuningRun, table_by_task
from beyond.papers.common.tasks import Pair
from beyond.papers.sixteen_heads import CODE
from helpers.metrics.statistics import correlation

EXAMPLES = 1000  # test examples of both halves, at most
OUTLIERS = 2  # heads with the largest effects; correlations are computed with and without them
# Values of the column ``heads``.
ALL_HEADS = "all"
WITHOUT_OUTLIERS = f"without the {OUTLIERS} largest effects"


def cross_data(runs: Sequence[FineTuningRun], *, seed: int) -> pd.DataFrame:
    """Correlate, over heads, the changes of accuracy on two halves of the test articles.

    Each head is zeroed alone, and scored on at most `EXAMPLES` test examples.

    Parameters
    ----------
    runs
        Fine-tuned classifiers, one per task.
    seed
        Seed of the sample of examples and of the halves.

    Returns
    -------
    pandas.DataFrame
        One row per task and selection of heads.  Columns: task; heads (`ALL_HEADS`, or
        `WITHOUT_OUTLIERS`: without the two of the largest mean effect); examples; correlation
        (Pearson's) and rank_correlation (Spearman's) with 95% bootstrap intervals over heads.
        Correlations are NaN if no head changes the accuracy.
    """

    def compute(run: FineTuningRun) -> pd.DataFrame:
        pairs = head_removal.shuffled(run.task.test, seed)[:EXAMPLES]
        is_first_half = first_half(pairs, seed)
        without_one_head = head_removal.single_head_interventions(run)
        scores = head_removal.evaluate_interventions(run, pairs, without_one_head)
        changes = pd.DataFrame(scores.right[1:].astype(float) - scores.right[0])
        means = changes.T.groupby(is_first_half).mean()
        by_half = means.reindex([False, True]).T.dropna()  # [head, half]; one article has no halves
        outliers = by_half.sum(axis=1).abs().nlargest(OUTLIERS).index
        selections = {ALL_HEADS: by_half, WITHOUT_OUTLIERS: by_half.drop(outliers)}
        rows = []
        for name, selected in selections.items():
            values = selected.to_numpy()
            rows.append(
                {
                    "heads": name,
                    "examples": len(pairs),
                    **correlation(values).columns("correlation"),
                    **correlation(rankdata(values, axis=0)).columns("rank_correlation"),
                }
            )
        return pd.DataFrame(rows)

    return table_by_task(runs, "heads-halves", compute, code=CODE, seed=seed)


def first_half(pairs: Sequence[Pair], seed: int) -> Bool[np.ndarray, " example"]:
    """Select the examples of about half of the articles, at random.

    An example without a known article counts as an article.
    """
    sources = pd.Series([pair.source or str(number) for number, pair in enumerate(pairs)])
    sizes = sources.value_counts().sort_index()
    shuffled_sizes = sizes.iloc[np.random.default_rng(seed).permutation(len(sizes))]
    limit = max(len(pairs) / 2, shuffled_sizes.iloc[0])
    chosen = shuffled_sizes.index[shuffled_sizes.cumsum() <= limit]
    return sources.isin(chosen).to_numpy()
