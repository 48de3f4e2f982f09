"""Statements of papers as claims: how one is declared, and how it is tested on a run's tables.

A claim is declared where it is measured: the decorator `Family.claim` holds the statement, and the
function below it computes the number from the tables of a run.  A claim whose tables are missing is
not measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd

from helpers.claims.power import POWER_COLUMNS, power_table
from helpers.claims.tables import Measure, NotMeasurable, Tables
from helpers.metrics.statistics import ALPHA, Estimate, difference, holm, p_value

Verdict = Literal["supported", "not supported", "inconclusive", "not measured"]
SUPPORTED, NOT_SUPPORTED, INCONCLUSIVE, NOT_MEASURED = get_args(Verdict)
DueToTraining = Literal["yes", "no", "inconclusive", ""]
YES = "yes"
# The answer to "due to training?" by the verdict against a control, from the best to the worst.
DUE_TO_TRAINING: Mapping[Verdict, DueToTraining] = {
    SUPPORTED: YES,
    INCONCLUSIVE: "inconclusive",
    NOT_SUPPORTED: "no",
}
ARTICLES = "averages_by_article"  # the table behind intervals over articles
# The column of a control's number in claims.csv, by the prefix of the names of its tables.
CONTROL_COLUMNS = {"random_": "control", "entropy_matched_": "entropy_matched_control"}
COLUMNS = (
    "section", "claim", "paper_value", "value", "value_low", "value_high", "adjusted_low",
    "adjusted_high", "cases", "unit", "threshold", "threshold_source", "turns_at", "p_adjusted",
    "verdict", "power_at_paper", "control", "entropy_matched_control", "due_to_training",
    "how_measured",
)  # fmt: skip
TEXT_COLUMNS = (
    "section", "claim", "unit", "threshold_source", "verdict", "due_to_training", "how_measured",
)  # fmt: skip
NUMERIC_COLUMNS = tuple(name for name in COLUMNS if name not in TEXT_COLUMNS)
TEST_COLUMNS = ("claim", "question", "family", "sign", "estimate", "threshold", "p_value")

Threshold = float | Callable[[Tables], float]


@dataclass(frozen=True)
class Claim:
    """A statement of a paper with its measure and its threshold.

    Parameters
    ----------
    family
        Name of the `Family`.
    section
        Section of the paper, or the name of a later paper and its section.
    statement
        The statement in words.
    measure
        Function of a run's tables.  It returns an `Estimate`, which has an interval where the text
        is a sample and is `exact` for a count, or raises `NotMeasurable`.
    how_measured
        Description of the measure and the threshold.
    above, below
        The threshold; the claim holds on that side of it.  A number, or a function of a run's
        tables, which may raise `NotMeasurable`.
    threshold_source
        Whether the threshold is the paper's ("paper") or "ours".
    paper
        The paper's number.
    unit
        What the number counts: "points", "nats", or for a share of cases their plural, such as
        "heads".
    about_training
        Whether the claim is about training, and therefore compared with controls.  It is not if
        the comparison would be true by construction.
    """

    family: str
    section: str
    statement: str
    measure: Measure
    how_measured: str
    above: Threshold | None = None
    below: Threshold | None = None
    threshold_source: Literal["paper", "ours"] = "ours"
    paper: float = np.nan
    unit: str = ""
    about_training: bool = False


@dataclass(frozen=True)
class Family:
    """The claims of a section or a paper, whose p-values are adjusted together.

    Parameters
    ----------
    name
        Name of the section or the paper.
    claims
        The claims, in the order of their declaration.
    """

    name: str
    claims: list[Claim] = field(default_factory=list)

    def claim(self, section: str, statement: str, **fields: Any) -> Callable[[Measure], Measure]:
        """Declare a claim: a decorator of its measure.

        Parameters
        ----------
        section, statement, **fields
            As in `Claim`.

        Returns
        -------
        callable
            It takes the measure, and returns it as it is.
        """

        def declare(measure: Measure) -> Measure:
            self.claims.append(Claim(self.name, section, statement, measure, **fields))
            return measure

        return declare


def check_claims(tables: Tables, claims: Iterable[Claim]) -> pd.DataFrame:
    """Test claims on the tables of a run: the table claims.csv.

    Parameters
    ----------
    tables
        The tables of a run by name.  The names of its controls' tables begin with the prefixes
        `CONTROL_COLUMNS`.
    claims
        The claims to test.

    Returns
    -------
    DataFrame
        A row for each claim, with the columns `COLUMNS` and those of `power_table`.  ``verdict`` is
        "supported" or "not supported" where the measure is significantly beyond or short of the
        threshold.  It would turn at the threshold ``turns_at``, the nearer end of the adjusted
        interval.  ``due_to_training`` compares with the controls in the same way: "yes" if the
        measure is beyond all controls that there are, "no" if it is short of one, empty if the
        claim is not supported, not about training, or there is no control.

    Raises
    ------
    TypeError
        If a measure returns no `Estimate`; the message has the claim.

    Notes
    -----
    Either verdict is "inconclusive" where `p_value` gives 0.05 or more after Holm's correction, or
    where there is no interval.  The correction is over the claims of a family (a section of the
    paper, or a later paper), separately for the two questions.  The adjusted interval has the level
    at which Holm's method tests the claim, and leaves the threshold out where the verdict is not
    "inconclusive".  A number that is exact is compared without a test.  Bootstrap replicates of
    model and control are paired article by article; see `difference`.
    """
    claims = list(claims)
    rows, tests = _evaluate_claims(tables, claims)
    table = pd.DataFrame(rows, columns=COLUMNS)
    against_threshold = tests[tests["question"] == "verdict"].set_index("claim")
    for column in ("p_adjusted", "adjusted_low", "adjusted_high", "turns_at", "verdict"):
        table[column] = against_threshold[column]
    table["verdict"] = table["verdict"].fillna(NOT_MEASURED)
    against_controls = tests[tests["question"] == "due_to_training"].groupby("claim")["verdict"]
    worst = against_controls.agg(lambda verdicts: max(verdicts, key=list(DUE_TO_TRAINING).index))
    table["due_to_training"] = worst.map(DUE_TO_TRAINING)
    is_answered = (table["verdict"] == SUPPORTED) & table["due_to_training"].notna()
    table["due_to_training"] = table["due_to_training"].where(is_answered, "")
    power = power_table(against_threshold, [claim.paper for claim in claims])
    for column in POWER_COLUMNS:
        table[column] = power[column]
    return table.astype(dict.fromkeys([*NUMERIC_COLUMNS, *POWER_COLUMNS], float))


def _evaluate_claims(
    tables: Tables, claims: Iterable[Claim]
) -> tuple[list[dict[str, str | float]], pd.DataFrame]:
    """Measure claims, and test their numbers as `check_claims` does.

    Returns
    -------
    rows
        The row of each claim without its verdicts.
    tests
        A row for each comparison of a claim's number with its threshold, or with a control's
        number: the columns `TEST_COLUMNS`, ``p_adjusted``, ``verdict``, the adjusted interval and
        ``turns_at``.  ``sign`` is 1 if the claim holds above, and -1 if it holds below.
    """
    run, *controls = _tables_by_model(tables)
    rows = []
    tests = []
    for number, claim in enumerate(claims):
        estimate, threshold = _measure(claim, run)
        comparisons = [("verdict", estimate, threshold)]
        row = {
            "section": claim.section,
            "claim": claim.statement,
            "paper_value": claim.paper,
            **estimate.columns("value"),
            "cases": estimate.cases,
            "unit": claim.unit,
            "threshold": threshold,
            "threshold_source": claim.threshold_source,
            "how_measured": claim.how_measured,
        }
        for column, control in zip(CONTROL_COLUMNS.values(), controls, strict=True):
            of_control, _ = _measure(claim, control)
            row[column] = of_control.value
            if claim.about_training:
                comparisons.append(("due_to_training", difference(estimate, of_control), 0.0))
        rows.append(row)
        sign = 1 if claim.below is None else -1
        for question, tested, limit in comparisons:
            if not np.isnan(tested.value - limit):
                p = p_value(tested, limit)
                tests.append((number, question, claim.family, sign, tested, limit, p))
    return rows, _with_adjustment(pd.DataFrame(tests, columns=TEST_COLUMNS))


def _with_adjustment(tests: pd.DataFrame) -> pd.DataFrame:
    """Adjust tests for the number of those of the same family and question, by Holm's method."""
    by_family = tests.groupby(["family", "question"])["p_value"]
    products = by_family.transform(lambda p_values: holm(p_values, largest=np.inf))
    levels = 1 - ALPHA * tests["p_value"] / products
    estimates = tests["estimate"]
    bounds = [estimate.interval(level) for estimate, level in zip(estimates, levels, strict=True)]
    low, high = np.array(bounds, float).reshape(-1, 2).T
    values = np.array([estimate.value for estimate in estimates], float)
    is_low_nearer = np.abs(low - tests["threshold"]) < np.abs(high - tests["threshold"])
    is_exact = np.array([estimate.is_exact for estimate in estimates], bool)
    is_decided = is_exact | (products < ALPHA)  # NaN is not below
    holds = tests["sign"] * (values - tests["threshold"]) > 0
    return tests.assign(
        p_adjusted=products.clip(upper=1),
        adjusted_low=low,
        adjusted_high=high,
        turns_at=np.select([is_exact, is_low_nearer], [values, low], default=high),
        verdict=np.select([~is_decided, holds], [INCONCLUSIVE, SUPPORTED], default=NOT_SUPPORTED),
    )


def _measure(claim: Claim, tables: Tables) -> tuple[Estimate, float]:
    """Measure a claim's number and its threshold; NaN where that is not possible."""
    threshold = claim.above if claim.below is None else claim.below
    try:
        estimate = claim.measure(tables)
        if callable(threshold):
            threshold = threshold(tables)
    except NotMeasurable:
        return Estimate(np.nan), np.nan
    if not isinstance(estimate, Estimate):
        raise TypeError(
            f"the measure of {claim.statement!r} ({claim.section}) returned {estimate!r}: return "
            "an Estimate, or exact(...) for a count"
        )
    return estimate, threshold


def _tables_by_model(tables: Tables) -> list[dict[str, pd.DataFrame]]:
    """Split tables into those of the run and those of each control, without their prefixes.

    Articles that a model has no averages of are added to them, so that models share resamples.
    """
    by_model = []
    for prefix in ("", *CONTROL_COLUMNS):
        names = [name for name in tables if name.startswith(prefix)]
        by_model.append({name.removeprefix(prefix): tables[name] for name in names})
    with_articles = [of_model for of_model in by_model if ARTICLES in of_model]
    if with_articles:
        articles = pd.concat([of_model[ARTICLES]["article"] for of_model in with_articles])
    for of_model in with_articles:
        averages = of_model[ARTICLES].merge(articles.drop_duplicates(), how="outer")
        of_model[ARTICLES] = averages.fillna({"layer": 1, "examples": 0})
    return by_model


def count_verdicts(verdict: pd.Series, due_to_training: pd.Series) -> str:
    """Count in words the supported claims, and those of them that are due to training."""
    n_supported = (verdict == SUPPORTED).sum()
    n_measured = (verdict != NOT_MEASURED).sum()
    n_due_to_training = (due_to_training == YES).sum()  # of the supported ones
    return (
        f"{n_supported} of {n_measured} measured claims are supported, "
        f"{n_due_to_training} of them due to training"
    )
