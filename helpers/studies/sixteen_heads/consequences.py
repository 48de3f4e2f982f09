"""What goes with being an important head: other tasks, the course of training, syntax.

What taking heads out for good saves: parameters and time (Michel et al. 2019, section 4.3).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from helpers.analysis import dependency_heads
from helpers.analysis.claims import check_claim
from helpers.cache import cached_table
from helpers.errors import ModelError
from helpers.model.head_mask import head_mask
from helpers.model.prune_heads import remove_heads
from helpers.progress import progress
from helpers.studies.classifier import padded_batch, task_inputs
from helpers.studies.fine_tune import FineTuned
from helpers.studies.sixteen_heads import importance
from helpers.studies.sixteen_heads.claims import LEVEL, pruning_claims
from helpers.studies.sixteen_heads.importance import rank_correlation
from helpers.studies.sixteen_heads.pruning import as_array
from helpers.study import Study


def ablation_summary(single: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each task: how many heads can go alone, and what the costliest one costs.

    Columns: task, heads, significant (changes with p < 0.01), adjusted (the same, adjusted for
    the number of heads), better (heads without which accuracy is higher), worst (the head whose
    removal costs most) and its change (in points).
    """
    rows = {}
    for task, own in single.groupby("task", sort=False):
        worst = own.loc[own["change"].idxmin()]
        rows[task] = {
            "heads": len(own),
            "significant": int((own["p_value"] < LEVEL).sum()),
            "adjusted": int((own["q_value"] < LEVEL).sum()),
            "better": int((own["change"] > 0).sum()),
            "worst": f"{worst['layer']}-{worst['head']}",
            "its change": worst["change"],
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("task").reset_index()


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
        arrays = {task: as_array(part, column) for task, part in table.groupby("task", sort=False)}
        for (task, one), (other, two) in combinations(arrays.items(), 2):
            rows.append({"score": score, "task": task, "other": other, **_related(one, two, seed)})
    columns = ["score", "task", "other", "correlation", "p_value", "within_layers", "p_within"]
    return pd.DataFrame(rows, columns=columns)


def head_syntax_scores(study: Study) -> pd.DataFrame:
    """Return how well each head does syntax, beside notebook 04: see `head_syntax.head_scores`."""
    store = study.treebank_store()
    return cached_table(
        "head-syntax",
        lambda: dependency_heads.head_scores(
            dependency_heads.count_heads(store), minimum=study.minimum_count
        ),
        depends_on={"store": store.key, "minimum": study.minimum_count},
        code="studies.sixteen_heads.consequences.head_syntax_scores",
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
        task: as_array(rows, "normalised") for task, rows in weights.groupby("task", sort=False)
    }
    by_task["all tasks"] = np.mean(list(by_task.values()), axis=0)
    rows = [
        {"syntax": score, "task": task, **_related(as_array(syntactic, score), values, seed)}
        for score in dependency_heads.SCORES
        for task, values in by_task.items()
    ]
    return pd.DataFrame(rows)


def beside_paper(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return the paper's statements: its number, the one here, and whether the statement holds."""
    rows = []
    for claim in pruning_claims():
        here, verdict = check_claim(claim, tables)
        rows.append((claim.section, claim.statement, claim.paper, here, verdict))
    return pd.DataFrame(rows, columns=["section", "statement", "paper", "here", "holds here"])


def _related(
    one: Float[np.ndarray, "layer head"], other: Float[np.ndarray, "layer head"], seed: int
) -> dict[str, float]:
    over_all, p_value = rank_correlation(one, other, seed=seed)
    within, p_within = rank_correlation(one, other, within_layers=True, seed=seed)
    return {
        "correlation": over_all, "p_value": p_value, "within_layers": within, "p_within": p_within,
    }  # fmt: skip


PRUNED = (0.5, 0.8)
BATCH_SIZES = (1, 4, 16, 64)
SECONDS = 1.0  # at least, for each pair of models and batch size
COLUMNS = (
    "pruned", "heads", "parameters", "difference", "batch", "full", "removed", "speed_up",
)  # fmt: skip


def removal_speed(run: FineTuned, weights: pd.DataFrame) -> pd.DataFrame:
    """Return the time that a classifier takes with heads pruned by importance and removed.

    Columns: pruned (percent of heads), heads (left), parameters (removed, percent of those of
    all layers), difference (largest, of the logits, from those of the masked classifier), batch
    (its size), full and removed (examples a second on one thread, the best of runs in turn) and
    speed_up (percent).  No rows for a family whose heads can only be masked.
    """

    def compute() -> pd.DataFrame:
        scores = as_array(weights[weights["task"] == run.task.name], "normalised")
        keep = importance.masks_along(importance.pruning_order(scores), scores.shape, PRUNED)
        pairs = zip(PRUNED, keep.astype(bool), strict=True)
        try:
            rows = [{"pruned": 100 * share, **row} for share, k in pairs for row in _rows(run, k)]
        except ModelError:
            rows = []
        return pd.DataFrame(rows, columns=COLUMNS)

    depends = {"run": run.folder.name, "pruned": PRUNED, "batches": BATCH_SIZES}
    return cached_table(
        "head-removal",
        compute,
        depends_on=depends,
        code="studies.sixteen_heads.consequences.removal_speed",
    )


def _rows(run: FineTuned, keep: Bool[np.ndarray, "layer head"]) -> list[dict[str, float]]:
    full, smaller = run.classifier, remove_heads(run.classifier, keep)
    rows = []
    sizes = [size for size in BATCH_SIZES if size <= len(run.task.test)]
    for size in progress(sizes, "removing heads", unit="batch size"):
        batch = _batch(run, size)
        before, after = _examples_a_second((full, smaller), batch)
        rows.append(
            {
                "heads": int(keep.sum()),
                "parameters": 100 * (1 - _layer_parameters(smaller) / _layer_parameters(full)),
                "difference": _difference(full, smaller, keep, batch),
                "batch": size,
                "full": before,
                "removed": after,
                "speed_up": 100 * (after / before - 1),
            }
        )
    return rows


def _batch(run: FineTuned, size: int) -> dict[str, Tensor]:
    """Return a batch of the longest test texts, so that padding plays little part."""
    inputs = task_inputs(run.encoder, run.task.test, run.recipe.max_tokens)
    longest = sorted(range(len(inputs)), key=lambda i: -len(inputs[i]["input_ids"]))
    batch, _, _ = padded_batch(run.encoder, inputs, [0] * len(inputs), longest[:size])
    return batch


@torch.inference_mode()
def _difference(
    full: nn.Module, smaller: nn.Module, keep: Bool[np.ndarray, "layer head"], batch: dict
) -> float:
    with head_mask(full, torch.from_numpy(keep).float()):
        masked = full(**batch)
    return float((masked - smaller(**batch)).abs().max())


@torch.inference_mode()
def _examples_a_second(models: Sequence[nn.Module], batch: dict[str, Tensor]) -> list[float]:
    """Time models in turn, so that what else the machine does falls on all of them.

    One thread, and the best time: several threads wait for each other on a busy machine.
    """
    on_gpu = batch["input_ids"].is_cuda
    width = torch.get_num_threads()
    torch.set_num_threads(1)
    times: list[list[float]] = [[] for _ in models]
    for model in models:
        model(**batch)
    started = time.perf_counter()
    while time.perf_counter() - started < SECONDS or len(times[0]) < 2:
        for model, own in zip(models, times, strict=True):
            before = time.perf_counter()
            model(**batch)
            if on_gpu:
                torch.cuda.synchronize()
            own.append(time.perf_counter() - before)
    torch.set_num_threads(width)
    return [len(batch["input_ids"]) / min(own) for own in times]


def _layer_parameters(classifier: nn.Module) -> int:
    """Return how many parameters a classifier has outside the tables of its embeddings."""
    tables = {
        id(module.weight) for module in classifier.modules() if isinstance(module, nn.Embedding)
    }
    return sum(p.numel() for p in classifier.parameters() if id(p) not in tables)
