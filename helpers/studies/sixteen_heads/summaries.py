"""What the tables of pruning say: summaries, and what goes with being an important head."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pandas as pd
from jaxtyping import Float

from helpers.analysis.head_counts import HeadCounts, count_heads
from helpers.analysis.heads import by_head, head_rows
from helpers.analysis.relations import ALL
from helpers.cache import cached_table
from helpers.store.store import Store
from helpers.studies.sixteen_heads.claims import LEVEL
from helpers.studies.sixteen_heads.importance import rank_correlation
from helpers.studies.tables import mean_interval

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


def task_correlations(weights: pd.DataFrame, single: pd.DataFrame, *, seed: int) -> pd.DataFrame:
    """Return whether the heads that matter for one task matter for another (section 3.4).

    Columns: score ("importance", or "loss change" of single ablation), task, other, correlation
    (Spearman's over all heads), p_value (permutation test), within_layers and p_within (the
    same, where only heads of one layer are compared).  No rows where there is one task.
    """
    rows = []
    for score, table, column in (
        ("importance", weights, "normalised"), ("loss change", single, "loss_change"),
    ):  # fmt: skip
        arrays = {task: by_head(part, column) for task, part in table.groupby("task", sort=False)}
        for (task, one), (other, two) in combinations(arrays.items(), 2):
            rows.append({"score": score, "task": task, "other": other, **_related(one, two, seed)})
    columns = ["score", "task", "other", "correlation", "p_value", "within_layers", "p_within"]
    return pd.DataFrame(rows, columns=columns)


def head_syntax_scores(store: Store, *, minimum: int) -> pd.DataFrame:
    """Return how well each head does syntax, beside notebook 04: see `head_scores`.

    ``store`` holds word-level maps of a treebank; a relation takes ``minimum`` words to count.
    """
    return cached_table(
        "head-syntax",
        lambda: head_scores(count_heads(store), minimum=minimum),
        depends_on={"store": store.key, "minimum": minimum},
    )


def syntax_and_importance(
    syntactic: pd.DataFrame, weights: pd.DataFrame, *, seed: int
) -> pd.DataFrame:
    """Return whether the heads that do syntax are the ones that matter.

    Columns: syntax (the score of `head_syntax_scores`), task ("all tasks" is the mean of their
    normalised importance), correlation, p_value, within_layers, p_within, as in
    `task_correlations`.
    """
    by_task = {
        task: by_head(rows, "normalised") for task, rows in weights.groupby("task", sort=False)
    }
    by_task["all tasks"] = np.mean(list(by_task.values()), axis=0)
    rows = [
        {"syntax": score, "task": task, **_related(by_head(syntactic, score), values, seed)}
        for score in SCORES
        for task, values in by_task.items()
    ]
    return pd.DataFrame(rows)


def _related(
    one: Float[np.ndarray, "layer head"], other: Float[np.ndarray, "layer head"], seed: int
) -> dict[str, float]:
    over_all, p_value = rank_correlation(one, other, seed=seed)
    within, p_within = rank_correlation(one, other, within_layers=True, seed=seed)
    return {
        "correlation": over_all, "p_value": p_value, "within_layers": within, "p_within": p_within,
    }  # fmt: skip


def head_scores(counts: HeadCounts, *, minimum: int) -> pd.DataFrame:
    """Return three scores of each head as a finder of syntactic heads, in percent.

    Columns: layer, head (both from 1), relation (the one that it finds best), best_accuracy (at
    that one), best_margin (the largest lead over a relation's best fixed offset, in points; it
    is not misled by relations that are easy) and attachment (of all words, the better of the two
    directions).  Relations with fewer than ``minimum`` words are left out.
    """
    relations = [name for name in counts.frequent(minimum) if name != ALL]
    best = {name: counts.accuracy(name).max(axis=0) for name in (ALL, *relations)}
    attachment = best.pop(ALL)
    accuracies = np.stack(list(best.values()))  # [relation, layer, head]
    offsets = [counts.offset_accuracy(name).max() for name in relations]
    return head_rows(
        *attachment.shape,
        relation=np.array(relations)[accuracies.argmax(axis=0)],
        best_accuracy=accuracies.max(axis=0),
        best_margin=(accuracies - np.array(offsets)[:, None, None]).max(axis=0),
        attachment=attachment,
    )
