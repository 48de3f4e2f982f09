"""What the tables of pruning say: summaries, and what goes with being an important head."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from helpers.analysis.statistics import mean_interval
from helpers.studies.sixteen_heads.claims import LEVEL

SCORES = ("best_accuracy", "best_margin", "attachment")  # of a head as a finder of heads of words


def ablation_summary(single: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each task: how many heads can go alone, and what the costliest one costs.

    Columns: task, heads, removable (by the equivalence test), significant (changes with p <
    0.01), adjusted (the same, adjusted for the number of heads), better (heads without which
    accuracy is higher), worst (the head whose removal costs most) and its change (in points).
    """
    rows = {}
    for task, own in single.groupby("task", sort=False):
        worst = own.loc[own["change"].idxmin()]
        rows[task] = {
            "heads": len(own),
            "removable": int(own["removable"].sum()),
            "significant": int((own["p_value"] < LEVEL).sum()),
            "adjusted": int((own["q_value"] < LEVEL).sum()),
            "better": int((own["change"] > 0).sum()),
            "worst": f"{worst['layer']}-{worst['head']}",
            "its change": worst["change"],
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("task").reset_index()


def change_table(rows: pd.DataFrame, index: Sequence[str], columns: str) -> pd.DataFrame:
    """Return changes as the paper's Tables 1 to 4 have them: layers down, heads across.

    ``rows`` has ``change``, removable, and what ``index`` and ``columns`` name.  A star marks
    what is not shown to be removable.
    """
    stars = rows["removable"].map({True: "", False: " *"})
    shown = rows.assign(shown=rows["change"].map("{:+.1f}".format) + stars)
    return shown.pivot(index=list(index), columns=columns, values="shown")


def seed_measures(heads: pd.DataFrame, pruned: pd.DataFrame) -> pd.DataFrame:
    """Return what depends on the seed of a fine-tuning: a row for each task and seed.

    ``heads`` is `pruning.heads_over_seeds`, ``pruned`` `pruning.pruning_over_seeds`.  Columns:
    task, seed, accuracy (all test examples), removable (heads that are so alone), prunable (up to
    which all steps by importance are removable), all in percent, and correlation (Spearman's, of
    the importance of heads with that of the other seeds, the mean).
    """
    rows = []
    for (task, seed), own in heads.groupby(["task", "seed"], sort=False):
        over_seeds = heads[heads["task"] == task].pivot(
            index="seed", columns=["layer", "head"], values="normalised"
        )
        steps = pruned[(pruned["task"] == task) & (pruned["seed"] == seed)].sort_values("pruned")
        alike = over_seeds.T.corr("spearman")[seed].drop(seed).mean()
        rows.append(
            {
                "task": task,
                "seed": seed,
                "accuracy": steps["whole"].iloc[0],
                "removable": 100 * own["removable"].mean(),
                "prunable": steps.loc[steps["removable"].cummin(), "pruned"].max(),
                "correlation": alike,
            }
        )
    return pd.DataFrame(rows).fillna({"prunable": 0})


def seed_intervals(measures: pd.DataFrame) -> pd.DataFrame:
    """Return the mean of each of `seed_measures` over seeds, with its 95% interval (Student's t).

    Columns: task, measure, seeds, mean, ci_low, ci_high, smallest, largest.
    """
    long = measures.melt(["task", "seed"], var_name="measure").groupby(
        ["task", "measure"], sort=False
    )["value"]
    rows = [
        (*names, len(values), *mean_interval(values), values.min(), values.max())
        for names, values in long
    ]
    columns = ["task", "measure", "seeds", "mean", "ci_low", "ci_high", "smallest", "largest"]
    return pd.DataFrame(rows, columns=columns)


def course_summary(course: pd.DataFrame) -> pd.DataFrame:
    """Return how soon the importance of heads is what it will be.

    Columns: trained (percent), correlation (Spearman's, of the normalised importance with that
    at the end) and top_tenth (the share of all importance that the most important tenth of the
    heads has, in percent).
    """
    wide = course.pivot(index="trained", columns=["layer", "head"], values="normalised")
    raw = course.pivot(index="trained", columns=["layer", "head"], values="importance")
    most = max(1, round(raw.shape[1] / 10))
    shares = np.sort(raw.to_numpy(), axis=1)[:, -most:].sum(axis=1) / raw.sum(axis=1)
    return pd.DataFrame(
        {
            "trained": wide.index,
            "correlation": wide.T.corr("spearman").iloc[-1].to_numpy(),
            "top_tenth": 100 * shares.to_numpy(),
        }
    )
