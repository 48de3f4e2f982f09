"""The claims of the paper and of later papers: their numbers, and the committed verdicts."""

import re

import pandas as pd
import pytest
from committed import committed_figures

from beyond.claims.clark2019 import CLAIMS, distance_ratio, gradient_ratio
from beyond.claims.engine import COLUMNS, check_claims
from beyond.papers.claims import LATER_CLAIMS
from helpers.metrics.reference import FIGURE_5, paper_table1, paper_table2, paper_table3
from helpers.results import read_tables

FIGURES = committed_figures()
RUNS = sorted(path.parent.parent for path in FIGURES.glob("*/tables/claims.csv"))
ALL_CLAIMS = [*CLAIMS, *LATER_CLAIMS]
PAPER = {claim.id: claim.paper for claim in CLAIMS}
NUMBERS = [name for name in COLUMNS if re.search("value|threshold$|p_adjusted|control$", name)]


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_committed_claims_follow_from_committed_tables(run):
    tables = read_tables(run)
    committed = tables["claims"].set_index("id")
    checked = check_claims(tables, ALL_CLAIMS).set_index("id")
    assert list(checked.index) == list(committed.index)
    for name in ("verdict", "larger_than_in_controls"):
        assert checked[name].eq(committed[name].fillna("")).all()
    pd.testing.assert_frame_equal(
        checked[NUMBERS], committed[NUMBERS], rtol=1e-4, atol=1e-6, check_dtype=False
    )


def test_every_claim_has_a_number_in_some_committed_run():
    measured = set()
    for run in RUNS:
        measured |= set(pd.read_csv(run / "tables/claims.csv")["id"])
    assert measured == {claim.id for claim in ALL_CLAIMS}


def test_claims_have_ids_and_statements_of_their_own():
    assert len({claim.id for claim in ALL_CLAIMS}) == len(ALL_CLAIMS)
    assert len({claim.statement for claim in ALL_CLAIMS}) == len(ALL_CLAIMS)
    for claim in ALL_CLAIMS:
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", claim.id)


def test_paper_values_are_those_of_the_tables():
    """Statistics of the whole of Table 1 are without the slip of auxpass."""
    table1 = paper_table1()
    accuracy = table1["notebook_accuracy"].fillna(table1["accuracy"])
    leads = accuracy - table1["notebook_baseline"].fillna(table1["baseline"])
    assert PAPER["sec4-margin-mean-in-paper"] == pytest.approx(leads.drop("All").mean())
    assert PAPER["sec4-margin-over-twenty"] == pytest.approx(leads.drop("All").max())
    for relation in set(FIGURE_5) - {"auxpass"}:
        assert PAPER[f"sec4-margin-{relation}"] == pytest.approx(leads[relation])
    table3 = paper_table3()
    differences = [claim for claim in CLAIMS if claim.table == "probe_differences"]
    for claim in differences[:5]:
        probe, other = claim.where["probe"], claim.where["other"]
        assert claim.paper == table3[probe] - table3[other]
    assert paper_table2().loc["head", "all"] == 65


def test_gradient_ratio_is_about_the_token_with_the_most_attention():
    types = {"layer": [1, 2, 3], "sep": 0.2, "cls": [0.9, 0.1, 0.9]}
    tables = {"token_types": pd.DataFrame(types)}
    gradients = {"layer": [1, 2, 3], "effective_articles": 9.0}
    for end in ("", "_low", "_high"):
        gradients |= {f"other_over_sep{end}": [7.0, 8, 9], f"other_over_cls{end}": 1.0}
    tables["gradients"] = pd.DataFrame(gradients)
    assert gradient_ratio(tables).value == 8  # layer 2, the only one at 45-85% of the depth
    tables["token_types"]["cls"] = 0.9
    assert gradient_ratio(tables).value == 1


def test_distance_ratio_has_the_two_sided_p_value_of_the_permutations():
    row = {"by": ["layer"], "within": [4.0], "between": [8.0], "p_value": [0.1]}
    ratio = distance_ratio({"cohesion": pd.DataFrame(row)}, by="layer")
    assert (ratio.value, ratio.own_p) == (0.5, 0.2)
