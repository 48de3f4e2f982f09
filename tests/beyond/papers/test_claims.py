"""The claims of notebooks 07 to 09, on committed tables that are changed, and by hand."""

import pandas as pd
import pytest
from committed import committed_figures

from beyond.claims.engine import check_claims
from beyond.papers.argument_cues import claims as niven
from beyond.papers.dark_secrets import claims as kovaleva
from beyond.papers.sixteen_heads import claims as michel
from helpers.results import read_tables

OF_TASKS = [*kovaleva.CLAIMS, *michel.CLAIMS]


@pytest.fixture(scope="module")
def tables():
    return read_tables(committed_figures() / "minilm-later")


@pytest.mark.parametrize("value", [-1e3, 1e3])
@pytest.mark.parametrize(
    ("is_learned", "claims"), [(False, OF_TASKS), (True, michel.CLAIMS)], ids=["noise", "no need"]
)
def test_tasks_that_are_not_learned_or_need_no_heads_count_for_no_claim(
    tables, value, is_learned, claims
):
    extended = dict(tables)
    for name, table in tables.items():
        if "task" in table:
            added = table[table["task"] == "bigram shift"].assign(task="added")
            numbers = added.select_dtypes("number").columns.difference(["layer", "head", "pruned"])
            added[numbers] = value
            columns = {"learned": is_learned, "p_value": 1.0}
            added = added.assign(**{key: columns[key] for key in columns if key in added})
            extended[name] = pd.concat([table, added])
    checked = check_claims(extended, claims)
    assert len(checked) == len(claims) and (checked["verdict"] != "not measured").all()
    pd.testing.assert_frame_equal(checked, check_claims(tables, claims))


def test_claims_of_tasks_are_not_measured_if_none_is_learned(tables):
    unlearned = tables["fine_tuning"].assign(learned=False)
    checked = check_claims(tables | {"fine_tuning": unlearned}, OF_TASKS).set_index("id")
    measured = checked.index[checked["verdict"] != "not measured"]
    ending = ("-columns-in-text", "-links-some-head", "-links-few-heads")
    assert len(measured) == 3 and all(name.endswith(ending) for name in measured)


def test_no_claim_is_measured_on_a_planted_cue():
    tables = read_tables(committed_figures() / "minilm-arct-later")
    assert len(check_claims(tables, niven.CLAIMS)) == len(niven.CLAIMS)
    planted = {name: table.assign(corpus="arguments-sample") for name, table in tables.items()}
    assert check_claims(planted, niven.CLAIMS).empty
