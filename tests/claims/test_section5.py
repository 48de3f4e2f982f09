"""The claims of section 5 read the differences of probes, and two of them in either direction."""

import numpy as np
import pandas as pd
import pytest

from helpers.claims.engine import check_claims
from helpers.claims.section5 import SECTION_5
from helpers.metrics.reference import paper_table3
from helpers.metrics.statistics import Estimate
from helpers.probes.table3 import COMPARISONS


def difference_table(**of_probe):
    """Make the table of differences; the value of a probe is by its first word, or 20."""
    rows = []
    for probe, other in COMPARISONS:
        value = of_probe.get(probe.split()[0], 20.0)
        estimate = Estimate(value, value - 1, value + 2, df=17)
        rows.append({"probe": probe, "other": other, **estimate.columns("difference", df=True)})
    return pd.DataFrame(rows)


def claims(**of_probe):
    tables = {
        "probe_differences": difference_table(**of_probe),
        "random_probe_differences": difference_table(Bilinear=-30.0),
    }
    return check_claims(tables, SECTION_5.claims)


def claim_about(table, words):
    (row,) = table[table["claim"].str.contains(words)].itertuples()
    return row


def test_every_comparison_has_a_claim():
    assert len(SECTION_5.claims) == len(COMPARISONS)
    assert claims()["value"].notna().all()


@pytest.mark.parametrize(
    ("difference", "verdict"),
    [(3.0, "supported"), (-3.0, "supported"), (20.0, "not supported"), (-20.0, "not supported"),
     (9.5, "inconclusive"), (-10.5, "inconclusive")],
)  # fmt: skip
def test_hidden_states_are_compared_in_both_directions(difference, verdict):
    row = claim_about(claims(Bilinear=difference), "^Hidden states")
    assert row.value == abs(difference)
    assert row.value_low < row.value < row.value_high
    assert row.verdict == verdict
    assert row.control == 30
    assert row.due_to_training == ""


def test_interval_of_a_small_difference_begins_at_zero():
    row = claim_about(claims(Bilinear=-0.5), "^Hidden states")
    assert (row.value, row.value_low, row.value_high) == (0.5, 0, 1.5)


def test_claims_that_are_true_by_construction_are_not_due_to_training():
    table = claims()
    for words in ("^With attention of random weights", "^Word vectors add"):
        row = claim_about(table, words)
        assert row.verdict == "supported"
        assert row.control == 20
        assert row.due_to_training == ""


def test_paper_values_are_differences_of_uas_in_table_3():
    paper = paper_table3()
    for claim, (probe, other) in zip(SECTION_5.claims[:5], COMPARISONS[:5], strict=True):
        assert claim.paper == paper[probe] - paper[other]
    assert np.isnan([claim.paper for claim in SECTION_5.claims[5:]]).all()
