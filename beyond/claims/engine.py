"""The test of claims on a run's tables: the table claims.csv.

A claim is asked two questions.  Is it supported: is its number beyond the threshold?  Is it larger
than in controls: is the number further in the claim's direction than with random weights?
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple, cast, get_args

import numpy as np
import pandas as pd

from beyond.claims.claim import Claim
from beyond.claims.estimates import ALPHA, TestedEstimate, difference, distance_from, p_value
from beyond.claims.tables import (
    MissingCell,
    NotMeasurable,
    Tables,
    cell,
    estimate_in,
    rows_where,
)
from helpers.metrics import TRAINED, rows_of_model
from helpers.metrics.statistics import holm

Verdict = Literal["supported", "not supported", "inconclusive", "not measured"]
SUPPORTED, NOT_SUPPORTED, INCONCLUSIVE, NOT_MEASURED = get_args(Verdict)
# Whether a number is larger than in controls, by the verdict against one, from best to worst.
LARGER_THAN_IN_CONTROLS = {SUPPORTED: "yes", INCONCLUSIVE: "inconclusive", NOT_SUPPORTED: "no"}
SHUFFLED = "shuffled"  # a trained model that reads shuffled sentences is shown, and does not decide
CONTROL_COLUMNS = {
    "random": "control",
    "entropy-matched": "entropy_matched_control",
    "reordered": "reordered_control",
    SHUFFLED: "shuffled_control",
}
COLUMNS = (
    "id", "section", "claim", "reason", "paper_value", "value", "value_low", "value_high",
    "threshold", "p_adjusted", "verdict", "control", "entropy_matched_control",
    "reordered_control", "shuffled_control", "larger_than_in_controls", "how_measured", "unit",
    "threshold_source",
)  # fmt: skip
UNSEEN = "could not have been seen here"
ROUNDING = 1e-6  # of numbers in tables, so that two thirds do not pass two thirds
SHUFFLED_PASSES = "shuffled sentences pass the threshold, too, so it needs no order of words"


class Comparison(NamedTuple):
    """A number of a claim, and the number that it is compared with; for ``sign`` see `Claim`."""

    id: str
    family: str
    sign: int
    estimate: TestedEstimate
    threshold: float


def check_claims(tables: Tables, claims: Iterable[Claim]) -> pd.DataFrame:
    """Test claims on the tables of a run: the table claims.csv.

    Parameters
    ----------
    tables
        The tables of a run by name, in which a column ``model`` tells controls from the model.
    claims
        The claims to test.

    Returns
    -------
    DataFrame
        A row for each claim that has a number, with the columns `COLUMNS`.  ``verdict`` is
        "supported" or "not supported" if the number is significantly beyond or short of the
        threshold: `p_value` is below 0.05 after Holm's correction over the claims of a family, or
        the number is exact.  It is "not measured", and not tested, if the number says nothing, or
        if its interval is wider than the distance from the paper's number to the threshold;
        ``reason`` says why.  ``larger_than_in_controls`` compares with the controls in the same
        way: "yes" if the number is beyond that of each control, "no" if it is short of one.  It is
        empty if the claim is not supported or not about training, or if the number of the model on
        shuffled sentences is beyond the threshold, too: a head's lead over a fixed offset grows
        when the order of words is destroyed, because then an offset finds little.
    """
    by_model = {}
    for model in (TRAINED, *CONTROL_COLUMNS):
        by_model[model] = {name: rows_of_model(tables[name], model) for name in tables}
    rows = []
    comparisons = []
    with_controls = []
    for claim in claims:
        try:
            comparison = compare(claim, by_model[TRAINED])
        except MissingCell:
            continue
        except NotMeasurable as error:
            rows.append(_describe(claim) | {"reason": str(error)})
            continue
        estimate = comparison.estimate
        row = _describe(claim) | estimate.columns("value") | {"threshold": comparison.threshold}
        rows.append(row)
        if is_unseen(claim, comparison):
            row["reason"] = UNSEEN
        else:
            comparisons.append(comparison)
        for model, column in CONTROL_COLUMNS.items():
            try:
                control = measure(claim, by_model[model])
            except LookupError:
                continue
            row[column] = control.value if claim.shows_controls else np.nan
            if claim.about_training and model != SHUFFLED and comparison in comparisons:
                lead = lead_over(claim, by_model[model], estimate, control)
                with_controls.append(comparison._replace(estimate=lead, threshold=0.0))
    table = pd.DataFrame(rows, columns=COLUMNS).set_index("id", drop=False)
    table = table.astype({"reason": object})
    tests = judge(comparisons)
    table["p_adjusted"] = tests["p_adjusted"]
    table["verdict"] = tests["verdict"].reindex(table.index).fillna(NOT_MEASURED)
    answers = _worst_of_controls(judge(with_controls)["verdict"]).reindex(table.index)
    is_answered = answers.notna() & (table["verdict"] == SUPPORTED)
    signs = np.array([comparison.sign for comparison in comparisons])
    signs = pd.Series(signs, tests.index, dtype=float)
    shuffled_passes = signs * (table["shuffled_control"] - table["threshold"]) > ROUNDING
    table.loc[is_answered & shuffled_passes, "reason"] = SHUFFLED_PASSES
    table["larger_than_in_controls"] = answers.where(is_answered & ~shuffled_passes, "")
    return table.fillna({"reason": ""}).reset_index(drop=True)


def measure(claim: Claim, tables: Tables) -> TestedEstimate:
    """Read or compute the number of a claim from the tables of a model.

    Raises
    ------
    LookupError
        `MissingCell` or `NotMeasurable`.
    """
    if claim.measure:
        estimate = claim.measure(tables)
    else:
        row = rows_where(tables, claim.table, **claim.where).head(1)
        if claim.only_if and row.query(claim.only_if).empty:
            raise NotMeasurable(UNSEEN)
        estimate = estimate_in(row.iloc[0], claim.column)
    if claim.distance_from is not None:
        estimate = distance_from(estimate, claim.distance_from)
    return replace(estimate, limits=claim.limits)


def compare(claim: Claim, tables: Tables) -> Comparison:
    """Measure a claim's number and its threshold on the tables of the model."""
    threshold = cast("float | str", claim.above if claim.below is None else claim.below)
    if isinstance(threshold, str):
        threshold = float(cell(tables, "layer_summary", quantity=threshold).value)
    return Comparison(claim.id, claim.family, claim.sign, measure(claim, tables), threshold)


def is_unseen(claim: Claim, comparison: Comparison) -> bool:
    """Tell whether the paper's number could not be told from the threshold by this interval."""
    low, high = comparison.estimate.low, comparison.estimate.high
    return bool(high - low > claim.sign * (claim.paper - comparison.threshold) > 0)


def lead_over(
    claim: Claim, control_tables: Tables, estimate: TestedEstimate, control: TestedEstimate
) -> TestedEstimate:
    """Read the paired difference from a control, if its table has one, or combine the intervals."""
    if "lead" in control_tables.get(claim.table, ()):
        return cell(control_tables, claim.table, "lead", **claim.where)
    return difference(estimate, control)


def judge(comparisons: Sequence[Comparison]) -> pd.DataFrame:
    """Test numbers against thresholds, adjusted for the number of tests of a family (Holm).

    Returns
    -------
    DataFrame
        ``p_adjusted`` and ``verdict`` of each comparison, with the claim's id as index.
    """
    tests = pd.DataFrame(comparisons, columns=Comparison._fields).set_index("id")
    p_values = [p_value(test.estimate, test.threshold) for test in comparisons]
    values = np.array([test.estimate.value for test in comparisons], float)
    is_exact = np.array([test.estimate.is_exact for test in comparisons], bool)
    tests["p_value"] = np.array(p_values, float)
    tests["p_adjusted"] = tests.groupby("family")["p_value"].transform(holm)
    is_decided = is_exact | (tests["p_adjusted"] < ALPHA)  # NaN is not below
    holds = tests["sign"] * (values - tests["threshold"]) > 0
    verdicts = np.select([~is_decided, holds], [INCONCLUSIVE, SUPPORTED], default=NOT_SUPPORTED)
    return tests[["p_adjusted"]].assign(verdict=verdicts)


def _describe(claim: Claim) -> dict[str, Any]:
    """Make the row of a claim without its numbers."""
    return {
        "id": claim.id,
        "section": claim.section,
        "claim": claim.statement,
        "paper_value": claim.paper,
        "unit": claim.unit,
        "threshold_source": claim.threshold_source,
        "how_measured": claim.how_measured,
    }


def _worst_of_controls(verdicts: pd.Series) -> pd.Series:
    """Answer whether each claim's number is larger than in the control that is nearest to it."""
    order: Mapping[str, int] = {name: rank for rank, name in enumerate(LARGER_THAN_IN_CONTROLS)}
    worst = verdicts.map(order).groupby(level="id").max()
    return worst.map(dict(enumerate(LARGER_THAN_IN_CONTROLS.values())))
