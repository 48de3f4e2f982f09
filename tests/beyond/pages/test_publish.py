"""A committed run is compared, or copied to ``figures/<run>/`` on request."""

import numpy as np
import pandas as pd
import pytest

from beyond.pages import publish
from beyond.pages.publish import compare_tables
from helpers.errors import InputError
from helpers.results import Results, read_tables, remove_contents
from helpers.settings import Settings


@pytest.fixture
def run(figures):
    """Save a table as a run called "mpnet"."""

    def run(number, table="entropy"):
        results = Results(Settings(name="mpnet"))
        results.save_table(pd.DataFrame({"layer": [1, 2], "entropy": [number, 4.0]}), table)
        (results.build / "03.ipynb").write_text("{}")
        return results

    return run


def published_entropy(results):
    return read_tables(results.published)["entropy"]["entropy"][0]


def test_publish_copies_tables_figures_and_record_and_nothing_else(run):
    results = run(3.0)
    assert "1 tables" in publish.publish(results, replace=True)
    (results.published / "old.png").touch()
    publish.publish(run(2.0), replace=True)
    names = {path.name for path in results.published.rglob("*")}
    assert names == {"tables", "entropy.csv", "run.json"}
    assert published_entropy(results) == 2.0


def test_publish_writes_to_figures_only_on_request(run):
    results = run(3.0)
    assert str(results.build) in publish.publish(results)
    assert not results.published.exists()
    publish.publish(results, replace=True)
    assert "all 1 tables agree" in publish.publish(run(3.001))
    line = publish.publish(run(3.1))
    assert "entropy.csv: entropy differs by 0.1 in 1 rows" in line
    assert published_entropy(results) == 3.0
    publish.publish(results, replace=True)
    assert published_entropy(results) == 3.1


def test_publish_leaves_a_run_that_is_none_of_the_committed_in_build(figures):
    results = Results(Settings(name="mine"))
    results.save_table(table(layer=[1]), "anything")
    assert str(results.build) in publish.publish(results)
    with pytest.raises(InputError, match="mine is none of the committed runs"):
        publish.publish(results, replace=True)
    assert not figures.exists()


def test_publish_refuses_to_replace_a_run_by_a_part_of_it(run):
    results = run(3.0)
    with results.edited_record() as record:
        record["seconds"] = {"01_relative_position": 5.0, "03_focused_vs_broad": 6.0, "gone": 1.0}
    publish.publish(results, replace=True)
    with results.edited_record() as record:
        record["seconds"] = {"03_focused_vs_broad": 6.0}
    run(2.0)
    with pytest.raises(InputError, match="also has the results of 01_relative_position; run these"):
        publish.publish(results, replace=True)
    assert published_entropy(results) == 3.0
    publish.check_publishable(results, ["01_relative_position"])  # which is to be executed


def test_publish_says_that_a_committed_table_has_other_columns(run):
    results = run(3.0)
    publish.publish(results, replace=True)
    path = results.published / "tables" / "entropy.csv"
    path.write_text("layer\n")
    assert "entropy.csv: other columns" in publish.publish(run(3.0))
    assert path.read_text() == "layer\n"


def test_publish_compares_the_claims_of_the_sections_that_this_run_has(run):
    claims = table(id=["a", "b", "c"], section=[3.1, 3.3, 3.3], unit="share", value=[0.5, 0.2, 0.1])
    results = run(3.0)
    results.save_table(claims, "claims")
    publish.publish(results, replace=True)
    results.save_table(claims.query("section == 3.3"), "claims")
    assert "all 2 tables agree" in publish.publish(results)
    results.save_table(claims.query("id == 'b'"), "claims")
    assert "claims.csv: other columns or rows (2 and 1 rows)" in publish.publish(results)


def test_publish_compares_the_tables_that_this_run_wrote(run):
    results = run(3.0)
    run(3.0, "gradients")
    publish.publish(results, replace=True)
    remove_contents(results.build)  # a run of one notebook
    assert "all 1 tables agree" in publish.publish(run(3.0))
    assert "new.csv: not in the committed run" in publish.publish(run(3.0, "new"))


def table(**columns):
    return pd.DataFrame(columns)


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        (
            "entropy",
            table(layer=[1, 2], entropy=[4.0, 1.0]),
            table(layer=[1, 2], entropy=[4, 1.003]),
        ),
        (
            "random_probes",
            table(probe=["Attn"], value=[60.0]),
            table(probe=["Attn"], value=[60.19]),
        ),
        (
            "probes",
            table(probe=["Structural probe"], value=[60.0]),
            table(probe=["Structural probe"], value=[61.9]),
        ),
        ("no_op", table(p_value=[0.051]), table(p_value=[0.0555])),
        ("each_head", table(head=["1-1"], accuracy=[9.0]), table(head=["1-2"], accuracy=[9.1])),
        (
            "anything",
            table(relation=["a", "b"], x=[1.0, 2.0]),
            table(relation=["b", "a"], x=[2.0, 1.0]),
        ),
        (
            "claims",
            table(
                id=["a", "b"], section=["3.1", "5"], unit=["share", "percent"], value=[0.5, 60.0]
            ),
            table(
                id=["b", "a"], section=["5", "3.1"], unit=["percent", "share"], value=[61.0, 0.505]
            ),
        ),
        (
            "probe_fits",
            table(loss=[0.8356], gradient=[0.0012], passes=[93]),
            table(loss=[0.8358], gradient=[0.0014], passes=[88]),
        ),
        ("probe_heads", table(layer=[1, 2], gain=[2.0, 1.0]), table(layer=[2, 1], gain=[1.0, 2.0])),
    ],
)
def test_compare_tables_allows_the_tolerance_of_the_unit(name, before, after):
    assert compare_tables(before, after, name) == ""


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        (
            "entropy",
            table(layer=[1, 2], entropy=[4.0, 1.0]),
            table(layer=[1, 2], entropy=[4, 1.005]),
        ),
        ("probes", table(probe=["Attn"], value=[60.0]), table(probe=["Attn"], value=[60.3])),
        ("probes", table(probe=["Attn"], value=[60.0]), table(probe=["Attn"], value=[np.nan])),
        ("no_op", table(p_value=[0.051]), table(p_value=[0.058])),
        ("anything", table(word=["a"]), table(word=["b"])),
        (
            "anything",
            table(relation=["a", "b"], x=[1.0, 2.0]),
            table(relation=["b", "a"], x=[1.0, 2.0]),
        ),
        (
            "claims",
            table(id=["a"], section=["4.2"], unit=["percent"], value=[60.0], verdict=["supported"]),
            table(
                id=["a"], section=["4.2"], unit=["percent"], value=[60.0], verdict=["not supported"]
            ),
        ),
        ("anything", table(word=["a"]), table(word=["a", "a"])),
        ("anything", table(word=["a"]), table(text=["a"])),
    ],
)
def test_compare_tables_names_what_differs_by_more(name, before, after):
    assert compare_tables(before, after, name)
