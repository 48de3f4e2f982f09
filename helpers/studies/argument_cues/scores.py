"""How many arguments training runs get right, on each half of a test set, beside the paper."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from helpers.analysis.paper import values_of
from helpers.analysis.statistics import bootstrap_interval
from helpers.studies.argument_cues.arguments import MARK, Argument
from helpers.studies.argument_cues.cues import HALVES

STATISTICS = ("mean", "median", "max")
# What a model was trained and validated on: originals; these and the same with their warrants
# swapped, validated on both halves as in the paper; originals and counterparts (claims negated).
TRAINING = ORIGINAL, SWAPPED, MIRRORED = "original", "swapped", "mirrored"


def score_table(
    choices: Int[np.ndarray, "seed argument"], arguments: Sequence[Argument], *, seed: int = 0
) -> pd.DataFrame:
    """Return the accuracy of several training runs on each half of ``arguments``.

    Args:
        choices: which warrant each run chooses, 0 or 1.
        arguments: originals, and the counterparts of some or all of them.
        seed: decides the bootstrap.

    Returns:
        test ("original", "adversarial", or "both": the originals that have a counterpart, with
        it), arguments, seeds, mean, median, max and std over runs (std NaN for one run), and the
        bootstrap interval of the mean over arguments, with their counterparts where there are
        both (ci_low, ci_high); all accuracies in percent.  A half without arguments has no row.
    """
    right = np.asarray(choices) == np.array([argument.label for argument in arguments])
    rows = [
        {"test": half, **_scores(right[:, columns], sizes, seed)}
        for half, columns, sizes in _halves(arguments)
        if len(columns)
    ]
    return pd.DataFrame(rows)


def seed_table(
    choices: Int[np.ndarray, "seed argument"], arguments: Sequence[Argument]
) -> pd.DataFrame:
    """Return the accuracy (percent) of each training run: test, seed, accuracy."""
    right = np.asarray(choices) == np.array([argument.label for argument in arguments])
    rows = [
        (half, seed, 100 * accuracy)
        for half, columns, _ in _halves(arguments)
        if len(columns)
        for seed, accuracy in enumerate(right[:, columns].mean(axis=1))
    ]
    return pd.DataFrame(rows, columns=["test", "seed", "accuracy"])


def with_paper(table: pd.DataFrame) -> pd.DataFrame:
    """Add the paper's figures of ARCT: paper_mean, paper_median and paper_max (percent).

    ``table`` has model, train, inputs and test.  The paper's encoder is BERT Large; its figures
    on both halves (Table 4) are those of training with the warrants swapped and validating on
    both.  The authors have since corrected what they concluded from them: trained on negated
    claims, `MIRRORED` here, models do better than chance.
    """
    paper = values_of("Niven")
    comparable = (table["test"] == HALVES[0]) & (table["train"] == ORIGINAL)
    comparable |= (table["test"] == HALVES[2]) & (table["train"] == SWAPPED)
    names = table["model"] + ", " + table["inputs"] + ", " + table["test"]
    for statistic in STATISTICS:
        values = (names + f", {statistic}").map(paper).where(comparable)
        table = table.assign(**{f"paper_{statistic}": values.astype(float)})
    return table


def _scores(
    right: Bool[np.ndarray, "seed argument"], sizes: Int[np.ndarray, " cluster"], seed: int
) -> dict[str, float]:
    accuracies = 100 * right.mean(axis=1)
    mean: Float[np.ndarray, " argument"] = right.mean(axis=0)
    # "both" lists all originals and then, in the same order, all counterparts.
    low, high = bootstrap_interval(mean.reshape(-1, len(sizes)).sum(axis=0), sizes, seed=seed)
    return {
        "arguments": right.shape[1],
        "seeds": len(right),
        "mean": accuracies.mean(),
        "median": float(np.median(accuracies)),
        "max": accuracies.max(),
        "std": accuracies.std(ddof=1) if len(right) > 1 else np.nan,
        "ci_low": 100 * low,
        "ci_high": 100 * high,
    }


def _halves(
    arguments: Sequence[Argument],
) -> list[tuple[str, list[int], Int[np.ndarray, " cluster"]]]:
    """Return each half's arguments, and how many of them each cluster has."""
    place = {argument.id: index for index, argument in enumerate(arguments)}
    original = [i for i, argument in enumerate(arguments) if not argument.adversarial]
    counterparts = [i for i, argument in enumerate(arguments) if argument.adversarial]
    paired = [i for i in original if arguments[i].id + MARK in place]
    both = paired + [place[arguments[i].id + MARK] for i in paired]
    return [
        (HALVES[0], original, np.ones(len(original), int)),
        (HALVES[1], counterparts, np.ones(len(counterparts), int)),
        (HALVES[2], both, np.full(len(paired), 2)),
    ]
