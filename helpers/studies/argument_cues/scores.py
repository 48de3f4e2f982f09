"""How many arguments training runs get right, on each half of a test set, beside the paper."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from jaxtyping import Bool, Int

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
    """Return the accuracy of several training runs on each half of ``arguments`` that there is.

    ``choices`` says which warrant each run chooses, 0 or 1.  Columns: test ("original",
    "adversarial", or "both": the originals that have a counterpart, with it), arguments, seeds,
    mean, median, max and std over runs (std NaN for one run), and the bootstrap interval of the
    mean over arguments, with their counterparts where there are both (ci_low, ci_high); all
    accuracies in percent.
    """
    rows = []
    for half, right in _by_half(choices, arguments).items():
        accuracies = pd.Series(100 * right.mean(axis=(1, 2)))
        sizes = np.full(right.shape[1], right.shape[2])
        low, high = bootstrap_interval(right.mean(axis=0).sum(axis=1), sizes, seed=seed)
        rows.append(
            {
                "test": half, "arguments": sizes.sum(), "seeds": len(right),
                **accuracies.agg(["mean", "median", "max", "std"]),
                "ci_low": 100 * low, "ci_high": 100 * high,
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


def seed_table(
    choices: Int[np.ndarray, "seed argument"], arguments: Sequence[Argument]
) -> pd.DataFrame:
    """Return the accuracy (percent) of each training run: test, seed, accuracy."""
    rows = [
        (half, seed, 100 * accuracy)
        for half, right in _by_half(choices, arguments).items()
        for seed, accuracy in enumerate(right.mean(axis=(1, 2)))
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


def _by_half(
    choices: Int[np.ndarray, "seed argument"], arguments: Sequence[Argument]
) -> dict[str, Bool[np.ndarray, "seed cluster argument"]]:
    """Return which choices are right in each half, an argument with its counterpart a cluster."""
    right = np.asarray(choices) == np.array([argument.label for argument in arguments])
    place = {argument.id: index for index, argument in enumerate(arguments)}
    halves = (
        [[place[a.id]] for a in arguments if not a.adversarial],
        [[place[a.id]] for a in arguments if a.adversarial],
        [[place[a.id], place[a.id + MARK]] for a in arguments if a.id + MARK in place],
    )
    return {half: right[:, own] for half, own in zip(HALVES, halves, strict=True) if own}
