"""The test of claims on a run's tables: the table claims.csv.

A claim is asked two questions.  Is it supported: is its number beyond the threshold?  Is it due to
training: is its number beyond those of the controls with random weights?
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd

from beyond.claims.claim import Claim
from beyond.claims.power import POWER_COLUMNS, Comparison, power_table
from beyond.claims.tables import NotMeasurable, Tables
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
# A trained model that reads shuffled sentences says nothing about training.  It is shown, and a
# claim that it passes, too, says nothing about training either.
SHUFFLED_COLUMNS = {"shuffled_": "shuffled_control"}
COLUMNS = (
    "id", "section", "claim", "reason", "least_effect", "paper_value", "value", "value_low",
    "value_high", "threshold", "p_adjusted", "verdict", "control", "entropy_matched_control",
    "shuffled_control", "due_to_training", "how_measured", "unit", "cases", "adjusted_low",
    "adjusted_high", "turns_at", "threshold_source", "power_at_paper",
)  # fmt: skip
TEXT_COLUMNS = (
    "id", "section", "claim", "reason", "verdict", "due_to_training", "how_measured", "unit",
    "threshold_source",
)  # fmt: skip
NUMERIC_COLUMNS = tuple(name for name in COLUMNS if name not in TEXT_COLUMNS)
TEST_COLUMNS = ("p_adjusted", "adjusted_low", "adjusted_high", "turns_at", "verdict")
UNDEFINED = "its number is not defined on the tables of this run"
LEAST_POWER = 0.2  # at the paper's number; a claim with less is not tested
UNSEEN = "could not have been seen here"
EXPLORATORY = "exploratory: shown, not tested"
ROUNDING = 1e-6  # of numbers in tables, so that two thirds do not pass two thirds
SHUFFLED_PASSES = "shuffled sentences pass the threshold, too, so it says nothing about training"


@dataclass(frozen=True)
class Measurement:
    """A claim's number and threshold on some tables, or the reason why it has none."""

    estimate: Estimate
    threshold: float
    reason: str = ""


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
        A row for each claim in the given order, with the columns `COLUMNS`.  ``verdict`` is
        "supported" or "not supported" where the measure is significantly beyond or short of the
        threshold.  It would turn at the threshold ``turns_at``, the nearer end of the adjusted
        interval; both are empty for a number whose p-value was counted.  For a claim that is
        "not measured", ``reason`` says why.  ``due_to_training`` compares with the controls in the
        same way: "yes" if the measure is beyond all controls that there are, "no" if it is short
        of one, empty if the claim is not supported, not about training, or there is no control.
        It is also empty, and ``reason`` says so, if ``shuffled_control``, the number of the same
        model on shuffled sentences, is beyond the threshold, too: a head's lead over a fixed offset
        grows when the order of words is destroyed, because then an offset finds little.
        ``power_at_paper`` and ``least_effect`` are those of
        `power_table`.  A claim that is exploratory, or whose power at the paper's number is below
        `LEAST_POWER`, is "not measured" with its number: it is shown, and not tested.  Its power
        follows from its standard error, before any p-value is known.

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
    exploratory = [claim.id for claim in claims if claim.is_exploratory]
    run_tables, tables_by_control = _split_tables(tables)
    rows = []
    with_thresholds = []
    with_controls = []
    for claim in claims:
        measured = measure(claim, run_tables)
        row = _describe(claim, measured)
        comparison = Comparison(
            claim.id, claim.family, claim.sign, measured.estimate, measured.threshold
        )
        with_thresholds.append(comparison)
        for control_column, control_tables in tables_by_control.items():
            if not control_tables:
                continue
            control = measure(claim, control_tables).estimate
            row[control_column] = control.value if claim.shows_controls else np.nan
            if claim.about_training and control_column not in SHUFFLED_COLUMNS.values():
                lead = difference(measured.estimate, control)
                with_controls.append(comparison._replace(estimate=lead, threshold=0.0))
        rows.append(row)
    table = pd.DataFrame(rows, columns=COLUMNS).set_index("id", drop=False)
    power = power_table(
        [row for row in with_thresholds if row.id not in exploratory],
        {claim.id: claim.paper for claim in claims},
    )
    for name in POWER_COLUMNS:
        table[name] = power[name]
    untested = dict.fromkeys(power.index[power["power_at_paper"] < LEAST_POWER], UNSEEN)
    untested |= dict.fromkeys(exploratory, EXPLORATORY)
    tests = _test([row for row in with_thresholds if row.id not in untested])
    for name in TEST_COLUMNS:
        table[name] = tests[name]
    table["verdict"] = table["verdict"].fillna(NOT_MEASURED)
    for claim_id, reason in untested.items():
        table.loc[claim_id, "reason"] = table.loc[claim_id, "reason"] or reason
    control_tests = _test([row for row in with_controls if row.id not in untested])
    due_to_training = _due_to_training(control_tests, table["verdict"])
    signs = pd.Series({claim.id: claim.sign for claim in claims}, dtype=float)
    shuffled_lead = signs * (table["shuffled_control"] - table["threshold"])
    shuffled_passes = shuffled_lead > ROUNDING
    is_answered = due_to_training != ""
    table["due_to_training"] = due_to_training.mask(shuffled_passes, "")
    table.loc[is_answered & shuffled_passes, "reason"] = SHUFFLED_PASSES
    return table.reset_index(drop=True).astype(dict.fromkeys(NUMERIC_COLUMNS, float))


def measure(claim: Claim, tables: Tables) -> Measurement:
    """Measure a claim's number and its threshold on the tables of one model.

    Raises
    ------
    TypeError
        If the measure returns no `Estimate`.
    """
    threshold = claim.threshold
    try:
        estimate = claim.measure(tables)
        if callable(threshold):
            threshold = threshold(tables)
    except NotMeasurable as error:
        return Measurement(Estimate(np.nan), np.nan, str(error))
    if not isinstance(estimate, Estimate):
        raise TypeError(
            f"the measure of the claim {claim.id} returned {estimate!r}: return an Estimate, or "
            "exact(...) for a count"
        )
    if np.isnan(estimate.value - threshold):
        return Measurement(estimate, threshold, UNDEFINED)
    return Measurement(replace(estimate, limits=claim.limits), threshold)


def _describe(claim: Claim, measured: Measurement) -> dict[str, Any]:
    """Make the row of a claim without its verdicts and without the numbers of controls."""
    return {
        "id": claim.id,
        "section": claim.section,
        "claim": claim.statement,
        "reason": measured.reason,
        "paper_value": claim.paper,
        **measured.estimate.columns("value"),
        "cases": measured.estimate.cases,
        "unit": claim.unit,
        "threshold": measured.threshold,
        "threshold_source": claim.threshold_source,
        "how_measured": claim.how_measured,
    }


def _test(comparisons: Sequence[Comparison]) -> pd.DataFrame:
    """Test numbers against thresholds, adjusted for the number of tests of a family (Holm).

    Returns
    -------
    DataFrame
        A row for each comparison of two numbers that are there, with the claim's id as index.  Its
        columns are those of `Comparison`, ``p_value`` and `TEST_COLUMNS`.
    """
    comparable = [
        comparison
        for comparison in comparisons
        if not np.isnan(comparison.estimate.value - comparison.threshold)
    ]
    tests = pd.DataFrame(comparable, columns=Comparison._fields).set_index("id")
    estimates = tests["estimate"]
    values = np.array([estimate.value for estimate in estimates], float)
    is_exact = np.array([estimate.is_exact for estimate in estimates], bool)
    p_values = [p_value(test.estimate, test.threshold) for test in comparable]
    tests["p_value"] = np.array(p_values, float)
    by_family = tests.groupby("family")["p_value"]
    products = by_family.transform(lambda p_values: holm(p_values, largest=np.inf))
    levels = 1 - ALPHA * tests["p_value"] / products
    bounds = [estimate.interval(level) for estimate, level in zip(estimates, levels, strict=True)]
    low, high = np.array(bounds, float).reshape(-1, 2).T
    # Counted p-values, as of a permutation, need not agree with the ends of a t interval.
    has_own_p = np.array([not np.isnan(estimate.own_p) for estimate in estimates], bool)
    low, high = np.where(has_own_p & ~is_exact, np.nan, [low, high])
    is_low_nearer = np.abs(low - tests["threshold"]) < np.abs(high - tests["threshold"])
    is_decided = is_exact | (products < ALPHA)  # NaN is not below
    holds = tests["sign"] * (values - tests["threshold"]) > 0
    return tests.assign(
        p_adjusted=products.clip(upper=1),
        adjusted_low=low,
        adjusted_high=high,
        turns_at=np.select([is_exact, is_low_nearer], [values, low], default=high),
        verdict=np.select([~is_decided, holds], [INCONCLUSIVE, SUPPORTED], default=NOT_SUPPORTED),
    )


def _due_to_training(control_tests: pd.DataFrame, verdicts: pd.Series) -> pd.Series:
    """Answer whether each supported claim is due to training, by the worst of its controls."""
    by_claim = control_tests.groupby(level="id")["verdict"]
    worst = by_claim.agg(lambda verdicts: max(verdicts, key=list(DUE_TO_TRAINING).index))
    answers = worst.map(DUE_TO_TRAINING).reindex(verdicts.index)
    return answers.where(verdicts == SUPPORTED).fillna("")


def _split_tables(
    tables: Tables,
) -> tuple[dict[str, pd.DataFrame], dict[str, dict[str, pd.DataFrame]]]:
    """Split tables into those of the run and those of each control, without their prefixes.

    Articles that a model has no averages of are added to them, so that models share resamples.

    Returns
    -------
    run_tables
        The tables of the run, by name.
    tables_by_control
        The tables of each control, by the column of its number in claims.csv.
    """
    run_tables = dict(tables)
    tables_by_control = {}
    for prefix, control_column in (CONTROL_COLUMNS | SHUFFLED_COLUMNS).items():
        names = [name for name in tables if name.startswith(prefix)]
        tables_by_control[control_column] = {
            name.removeprefix(prefix): tables[name] for name in names
        }
    with_articles = [
        model_tables
        for model_tables in (run_tables, *tables_by_control.values())
        if ARTICLES in model_tables
    ]
    if not with_articles:
        return run_tables, tables_by_control
    if len({model_tables[ARTICLES]["article"].dtype for model_tables in with_articles}) > 1:
        for model_tables in with_articles:  # names that are all digits are read as numbers
            model_tables[ARTICLES] = model_tables[ARTICLES].astype({"article": str})
    articles = pd.concat([model_tables[ARTICLES]["article"] for model_tables in with_articles])
    for model_tables in with_articles:
        averages = model_tables[ARTICLES].merge(articles.drop_duplicates(), how="outer")
        model_tables[ARTICLES] = averages.fillna({"layer": 1, "examples": 0})
    return run_tables, tables_by_control


def merge_claims(
    checked: pd.DataFrame, saved: pd.DataFrame | None = None, *, section: str = ""
) -> pd.DataFrame:
    """Put newly checked claims into the table that was saved earlier.

    Parameters
    ----------
    checked
        What `check_claims` returns for claims that are tested together.
    saved
        The table claims.csv as it was read, if there is one.  Its rows of the checked sections are
        replaced, because p-values are adjusted over all of them, and the others stay.
    section
        The beginning of the sections whose rows are added, for example "3.2".  By default all
        checked rows are.

    Returns
    -------
    DataFrame
        The rows in the order of the sections, and in a section in the order of ``checked``.  The
        columns are `COLUMNS`.
    """
    earlier = checked.head(0) if saved is None else saved
    earlier = earlier.reindex(columns=COLUMNS)
    # pandas reads an empty text as NaN, and a section such as "5" as a number.
    texts = earlier[list(TEXT_COLUMNS)].astype(object).fillna("").astype(str)
    earlier[list(TEXT_COLUMNS)] = texts.assign(section=texts["section"].str.removesuffix(".0"))
    is_added = checked["section"].str.startswith(section)
    is_replaced = checked["section"].isin(earlier["section"])
    is_of_others = ~earlier["section"].isin(checked["section"])
    table = pd.concat([checked[is_added | is_replaced], earlier[is_of_others]])
    return table.sort_values("section", kind="stable", ignore_index=True)


def count_verdicts(verdict: pd.Series, due_to_training: pd.Series) -> str:
    """Count in words the supported claims, and those of them that are due to training."""
    n_supported = (verdict == SUPPORTED).sum()
    n_measured = (verdict != NOT_MEASURED).sum()
    n_due_to_training = (due_to_training == YES).sum()  # of the supported ones
    return (
        f"{n_supported} of {n_measured} measured claims are supported, "
        f"{n_due_to_training} of them due to training"
    )
