"""The claims of section 5 read the differences of probes, and two of them in either direction."""

import numpy as np
import pandas as pd
import pytest

from beyond.claims.clark2019 import CLAIMS
from beyond.claims.engine import check_claims
from helpers.metrics.reference import paper_table3
from helpers.metrics.statistics import Estimate
from helpers.probes.table3 import COMPARISONS

SECTION_5 = [claim for claim in CLAIMS if claim.family == "section 5"]


def difference_table(**of_probe):
    """Make the table of differences; the value of a probe is by its first word, or 20."""
    rows = []
    for probe, other in COMPARISONS:
        value = of_probe.get(probe.split()[0], 20.0)
        estimate = Estimate(value, value - 1, value + 2, df=17)
        rows.append({"probe": probe, "other": other, **estimate.columns("difference", df=True)})
    return pd.DataFrame(rows)


def check_section_5(**of_probe):
    """Check the claims of section 5 on a table of differences, by id."""
    tables = {
        "probe_differences": difference_table(**of_probe),
        "random_probe_differences": difference_table(Bilinear=-30.0),
    }
    return check_claims(tables, SECTION_5).set_index("id")


def test_every_comparison_has_a_claim():
    assert len(SECTION_5) == len(COMPARISONS)
    assert check_section_5()["value"].notna().all()


@pytest.mark.parametrize(
    ("difference", "verdict"),
    [(1.0, "supported"), (-1.0, "supported"), (20.0, "not supported"), (-20.0, "not supported"),
     (4.5, "inconclusive"), (-5.5, "inconclusive")],
)  # fmt: skip
def test_hidden_states_are_compared_in_both_directions(difference, verdict):
    row = check_section_5(Bilinear=difference).loc["sec5-hidden-states-alike"]
    assert row.value == abs(difference)
    assert row.value_low < row.value < row.value_high
    assert row.verdict == verdict
    assert row.control == 30
    assert row.due_to_training == ""


def test_interval_of_a_small_difference_begins_at_zero():
    row = check_section_5(Bilinear=-0.5).loc["sec5-hidden-states-alike"]
    assert (row.value, row.value_low, row.value_high) == (0.5, 0, 1.5)


def test_claims_that_are_true_by_construction_are_not_due_to_training():
    table = check_section_5()
    for claim_id in ("sec5-random-weights-worse", "sec5-glove-adds"):
        row = table.loc[claim_id]
        assert row.verdict == "supported"
        assert (row.control == 20) == (claim_id == "sec5-glove-adds")  # the other has none
        assert row.due_to_training == ""


def test_paper_values_are_differences_of_uas_in_table_3():
    paper = paper_table3()
    for claim, (probe, other) in zip(SECTION_5[:5], COMPARISONS[:5], strict=True):
        assert claim.paper == paper[probe] - paper[other]
    assert np.isnan([claim.paper for claim in SECTION_5[5:]]).all()
