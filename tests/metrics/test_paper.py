"""Claims of the paper: their numbers, their measures, and their verdicts."""

from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from committed import committed_figures
from made_up_runs import run_like_the_paper, with_intervals

from helpers.claims import measures
from helpers.metrics.paper import (
    COLUMNS,
    FIGURE_5,
    NOT_MEASURED,
    NOT_SUPPORTED,
    SUPPORTED,
    Claim,
    check_claims,
    paper_table1,
    paper_table2,
    read_claims,
    values_of,
)
from helpers.metrics.statistics import Estimate, p_value
from helpers.studies.registry import later_claims

FIGURES = committed_figures()
# Chosen on the data that they are scored on; without differences on the same articles.
NOT_IN_CLAIMS = ("coreference", "dependency_heads", "probes")
MIDDLE_CLAIM = "Over half of the attention in middle layers goes to one special token"


def claims_file():
    """Read the claims and the paper's numbers, by id."""
    return pd.read_csv(Path(measures.__file__).with_name("claims.csv"), index_col="id")


def claims_table(tables):
    """Test the paper's claims on tables, to which intervals are added."""
    table = check_claims(with_intervals(tables), measures.clark_claims())
    assert tuple(table) == COLUMNS
    return table.set_index("claim")


@pytest.mark.parametrize("run", ["minilm", "minilm-random-0", "mpnet"])
def test_committed_tables_give_committed_verdicts(run):
    files = (FIGURES / run / "tables").glob("*.csv")
    tables = {path.stem: pd.read_csv(path, dtype={"section": str}) for path in files}
    of_clark = check_claims(tables, measures.clark_claims())
    of_later_papers = check_claims(tables, later_claims())
    measured_later = of_later_papers[of_later_papers["verdict"] != NOT_MEASURED]
    recomputed = pd.concat([of_clark, measured_later], ignore_index=True)
    recomputed["due_to_training"] = recomputed["due_to_training"].replace(
        "", np.nan
    )  # as pandas reads it
    pd.testing.assert_frame_equal(
        recomputed, tables["claims"], rtol=1e-4, atol=1e-6, check_dtype=False
    )


def test_read_claims_refuses_a_claim_without_its_measure():
    functions = dict(measures.MEASURES)
    del functions["within of next layers"]
    with pytest.raises(ValueError, match=r"claims\.csv: .*within of next layers"):
        read_claims(measures.__file__, functions, measures.THRESHOLDS)


def test_read_claims_refuses_a_measure_without_its_claim():
    functions = {**measures.MEASURES, "unheard of": measures.times_uniform}
    with pytest.raises(ValueError, match=r"claims\.csv: .*unheard of"):
        read_claims(measures.__file__, functions, measures.THRESHOLDS)


def test_read_claims_refuses_a_claim_without_its_threshold():
    functions = dict(measures.THRESHOLDS)
    del functions["cls broad in last layer"]
    with pytest.raises(ValueError, match=r"claims\.csv: .*cls broad in last layer"):
        read_claims(measures.__file__, measures.MEASURES, functions)


def test_read_claims_refuses_a_threshold_without_its_claim():
    functions = {**measures.THRESHOLDS, "unheard of": measures.broad_entropy}
    with pytest.raises(ValueError, match=r"claims\.csv: .*unheard of"):
        read_claims(measures.__file__, measures.MEASURES, functions)


@pytest.fixture
def paper_values():
    """The paper's number of each claim, by id."""
    return claims_file()["paper"].to_dict()


def test_paper_values_of_heads_are_those_of_table_1(paper_values):
    table1 = paper_table1()
    leads = table1["accuracy"] - table1["baseline"]
    of_single_relations = leads.drop("All")
    expected = {
        "all relations": leads["All"],
        "beyond offset": of_single_relations.mean(),
        "by far": (of_single_relations > measures.BY_FAR).sum(),
        "lowest of named": table1.loc[list(measures.NAMED), "accuracy"].min(),
    }
    for relation in FIGURE_5:
        expected[f"own head of {relation}"] = leads[relation]
    for name, value in expected.items():
        assert paper_values[name] == pytest.approx(value), name


def test_paper_values_of_coreference_are_those_of_table_2(paper_values):
    table2 = paper_table2()
    over_head_match = table2.loc["head"] - table2.loc["head match"]
    over_rules = table2.loc["head"] - table2.loc["rule-based"]
    nominal_minus_all = over_head_match["nominal"] - over_head_match["all"]
    for candidates in ("other mentions", "all words"):
        assert paper_values[f"over head match, {candidates}"] == pytest.approx(
            over_head_match["all"]
        )
        assert paper_values[f"close to rules, {candidates}"] == pytest.approx(over_rules["all"])
        assert paper_values[f"nominal over head match, {candidates}"] == pytest.approx(
            nominal_minus_all
        )


def test_paper_values_of_probes_are_those_of_table_3(paper_values):
    probes = values_of("Table 3")
    compared = 0
    for name, reads in claims_file()["reads"].dropna().items():
        table, _, *conditions = reads.split("|")
        if table == "probe_differences":
            probe, baseline = conditions
            difference = probes[probe.removeprefix("probe=")]
            difference -= probes[baseline.removeprefix("other=")]
            assert paper_values[name] == pytest.approx(difference), name
            compared += 1
    assert compared == 6


def test_claims_hold_for_a_run_like_the_papers():
    table = claims_table(run_like_the_paper())
    assert set(table["verdict"]) == {"supported"}
    assert set(table["due_to_training"]) == {""}  # there is no control


def test_claims_are_not_due_to_training_if_the_control_is_the_same():
    tables = run_like_the_paper()
    for name in list(tables):
        tables[f"random_{name}"] = tables[name]
    table = claims_table(tables)
    assert set(table["verdict"]) == {"supported"}
    assert (table["control"] == table["value"]).all()
    assert set(table["due_to_training"]) <= {"", "no", "inconclusive"}


def test_paper_values_meet_the_thresholds():
    table = claims_table(run_like_the_paper())
    is_below = np.array([claim.bound == "below" for claim in measures.clark_claims()])
    margin = (table["paper_value"] - table["threshold"]) * np.where(is_below, -1, 1)
    # "Over half" and "more than 90%" are bounds, not measurements.
    assert set(table.index[margin <= 0]) == {
        MIDDLE_CLAIM,
        "Heads processing [SEP] attend almost entirely to [SEP]",
    }


@pytest.mark.parametrize("missing", sorted(run_like_the_paper()))
def test_claims_of_a_missing_table_or_column_are_not_measured(missing):
    tables = run_like_the_paper()
    claims = measures.clark_claims()
    removed = tables.pop(missing)
    verdicts = check_claims(tables, claims)["verdict"]
    if missing == "averages_by_article":  # numbers without intervals prove nothing
        assert (verdicts == "inconclusive").sum() > 10
        assert "not measured" not in set(verdicts)
        return
    unmeasured = [
        claim for claim, verdict in zip(claims, verdicts, strict=True) if verdict == "not measured"
    ]
    assert bool(unmeasured) == (missing not in NOT_IN_CLAIMS)
    for name in removed:
        tables[missing] = removed.drop(columns=name)
        assert len(check_claims(tables, unmeasured)) == len(unmeasured)


@pytest.mark.parametrize(
    ("tokens", "expected_share", "unmeasured"),
    [(("sep",), 0.7, 3), (("cls", "sep"), np.nan, 10)],
)
def test_claims_about_missing_special_tokens_are_not_measured(tokens, expected_share, unmeasured):
    """Without [SEP], [CLS] is the special token; without both there is none."""
    tables = run_like_the_paper()
    types = tables["token_types"]
    gradients = tables["gradients"]
    types["cls"] = np.repeat([0.1, 0.2, 0.6, 0.7, 0.8, 0.9], 2)
    for token in tokens:
        types[[name for name in types if name.split("_")[-1] == token]] = np.nan
        gradients[[name for name in gradients if f"over_{token}" in name]] = np.nan
    if "cls" in tokens:
        types["sep_to_sep"] = np.nan
        tables["entropy"]["entropy_from_cls"] = np.nan
    table = claims_table(tables)
    assert table.loc[MIDDLE_CLAIM, "value"] == pytest.approx(expected_share, nan_ok=True)
    assert (table["verdict"] == "not measured").sum() == unmeasured


def test_claims_about_depth_need_more_than_one_layer_and_positional_heads():
    tables = run_like_the_paper()
    for name in ("relative_position", "token_types", "gradients", "entropy"):
        tables[name] = tables[name][tables[name]["layer"] == 1]
    tables["relative_position"][["previous", "next"]] = 0.01
    verdicts = claims_table(tables)["verdict"]
    assert verdicts[MIDDLE_CLAIM] == "not measured"  # the only layer is the last
    statements = claims_file()["statement"]
    assert verdicts[statements["little on current token"]] == "supported"
    assert verdicts[statements["mostly to previous"]] == "not supported"
    assert verdicts[statements["mostly to next"]] == "not supported"
    assert verdicts[statements["positional heads early"]] == "not measured"  # there are none


def test_relations_of_a_universal_dependencies_treebank_are_translated():
    tables = run_like_the_paper()
    names = {"pobj": "case", "compound": "nsubj:pass", "dobj": "obj", "poss": "nmod:poss",
             "auxpass": "aux:pass"}  # fmt: skip
    frame = tables["dependency_heads_held_out"]
    frame["relation"] = frame["relation"].replace(names)
    table = claims_table(tables).query("section == '4.2'")
    assert table.loc["Direct objects have a head of their own", "value"] == pytest.approx(46.8)
    assert table.loc["Possessives have a head of their own", "value"] == pytest.approx(32.8)
    unmeasured = set(table.index[table["verdict"] == "not measured"])
    # UD has no such relation.
    assert "Objects of prepositions have a head of their own" in unmeasured
    assert "Objects of prepositions are the exception: prepositions attend to them" in unmeasured
    assert "Direct objects have a head of their own" not in unmeasured


UNSURE = "inconclusive"


def check_one(measured, threshold, bound="above", **controls):
    """Check a claim whose measure is the table "number" of the run and of each control."""
    claim = Claim(
        section="3",
        statement="A",
        how="how",
        bound=bound,
        threshold=threshold,
        measure=lambda tables: tables.get("number", np.nan),
    )
    return check_claims({"number": measured, **controls}, [claim]).iloc[0]


@pytest.mark.parametrize(
    ("measured", "above", "below"),
    [
        (Estimate(3, 2, 4), SUPPORTED, NOT_SUPPORTED),
        (Estimate(0.2, 0, 0.5), NOT_SUPPORTED, SUPPORTED),
        (Estimate(1, 0, 2), UNSURE, UNSURE),
        (Estimate(1), UNSURE, UNSURE),
        (Estimate(1, 1, 1), NOT_SUPPORTED, NOT_SUPPORTED),
        (0.9, NOT_SUPPORTED, SUPPORTED),  # plain numbers are exact
        (1.0, NOT_SUPPORTED, NOT_SUPPORTED),
        (1.1, SUPPORTED, NOT_SUPPORTED),
        (np.nan, "not measured", "not measured"),
    ],
)  # fmt: skip
def test_verdicts_by_hand(measured, above, below):
    assert check_one(measured, 1)["verdict"] == above
    assert check_one(measured, 1, "below")["verdict"] == below


SMALL = Estimate(1, 0, 2)
LARGE = Estimate(9, 8, 10)
SIMILAR = Estimate(4.9, 4, 5.8)


@pytest.mark.parametrize(
    ("random", "entropy_matched", "expected"),
    [(SMALL, SMALL, "yes"), (SMALL, SIMILAR, UNSURE), (SMALL, LARGE, "no"), (SIMILAR, LARGE, "no"),
     (SMALL, None, "yes"), (None, SIMILAR, UNSURE), (None, None, "")],
)  # fmt: skip
def test_learned_compares_with_every_control(random, entropy_matched, expected):
    controls = {}
    mirrored = {}
    for name, control in (("random_number", random), ("entropy_matched_number", entropy_matched)):
        if control is not None:
            controls[name] = control
            mirrored[name] = Estimate(-control.value, -control.low, -control.high)
    row = check_one(Estimate(5, 4, 6), 2, **controls)
    assert row["verdict"] == "supported"
    assert row["due_to_training"] == expected
    for column, control in (("control", random), ("entropy_matched_control", entropy_matched)):
        value = control.value if control is not None else np.nan
        assert row[column] == pytest.approx(value, nan_ok=True)
    below = check_one(Estimate(-5, -4, -6), -2, "below", **mirrored)
    assert below["due_to_training"] == expected


def test_p_values_are_adjusted_within_a_section():
    estimates = {
        "3.1": Estimate(1.1, 0, 2), "3.2": Estimate(1.3, 0.1, 2), "4.2": Estimate(1.1, 0, 2)
    }  # fmt: skip
    claims = []
    for section, estimate in estimates.items():
        claims.append(
            Claim(section, "A", "how", "above", 0, partial(read, estimate), about_training=False)
        )
    adjusted = check_claims({}, claims)["p_adjusted"].to_list()
    larger = p_value(estimates["3.1"])
    smaller = p_value(estimates["3.2"])
    alone = p_value(estimates["4.2"])
    assert adjusted == pytest.approx([max(larger, 2 * smaller), 2 * smaller, alone])


def read(estimate, tables):
    """Return an estimate, whatever the tables."""
    return estimate


def article_averages(values):
    """Make the averages by article of a model with one layer."""
    articles = np.arange(len(values))
    return pd.DataFrame({"article": articles, "layer": 1, "examples": 1, "cls": values})


def test_model_and_control_are_compared_article_by_article():
    """Compare with a bootstrap by hand; the control lacks one of the articles."""
    rng = np.random.default_rng(0)
    difficulty = rng.normal(0, 5, 40)
    of_model = difficulty + rng.normal(1, 0.5, 40)
    of_control = difficulty[:-1]
    types = pd.DataFrame({"layer": [1], "head": [1], "cls": [of_model.mean()]})
    tables = {
        "averages_by_article": article_averages(of_model),
        "random_averages_by_article": article_averages(of_control),
        "token_types": types,
        "random_token_types": types.assign(cls=of_control.mean()),
    }
    measure = partial(measures.over_layers, summary=measures.mean_of_all_layers, name="cls")
    row = check_claims(tables, [Claim("3", "A", "how", "above", 0, measure)]).iloc[0]
    resamples = rng.integers(0, 40, (4000, 40))
    in_control = resamples < 39
    control_sums = (of_control[np.minimum(resamples, 38)] * in_control).sum(axis=1)
    differences = of_model[resamples].mean(axis=1) - control_sums / in_control.sum(axis=1)
    assert (differences > 0).mean() > 0.99
    assert row["due_to_training"] == "yes"
    assert row["verdict"] == UNSURE  # the articles differ by more than the two models


def test_measures_by_hand():
    """Two layers of one head: every number can be read off the table."""
    table = pd.DataFrame({"layer": [1, 2], "head": [1, 1]})
    tables = {
        "relative_position": table.assign(
            previous=[0.6, 0.2], current=[0.05, 0.3], next=[0.1, 0.1]
        ),
        "token_types": table.assign(
            cls=[0.1, 0.2], sep=[0.4, 0.5], punctuation=[0.0, 0.1],
            sep_to_sep=[0.7, 0.9], other_to_sep=[0.3, 0.3], uniform_cls=0.01, uniform_sep=0.02,
        ),
        "gradients": table.assign(
            other_over_sep=[7.0, 8], other_over_sep_low=6, other_over_sep_high=9
        ),
        "entropy": table.assign(
            entropy=[4.4, 1.0], entropy_from_cls=[4.0, 3.0], uniform=np.log([100, 100])
        ),
    }  # fmt: skip
    measured = claims_table(tables)["value"].dropna().to_list()
    expected = [
        1 / 2,  # heads with little on the current token
        1, 0,  # heads mostly to the previous and the next token
        0.4,  # to [SEP] in layer 1, the only one at 45-85% of the depth
        0.4 / (2 / 100),
        0.45 - 0.15,  # to [SEP] less to [CLS]
        0.1 - 0.2,  # to [CLS] in layer 1 less in layer 2
        0.1 - 0.0,  # to punctuation in layer 2 less in layer 1
        0.8 - 0.3,  # from [SEP] and from others
        0.7,
        7,  # gradients in layer 1
        1,  # 4.4 nats are 95% of ln 100
        4.4 - 1.0,
        3.0,
        3.0 - 1.0,
        0.4,  # |4.0 - 4.4|
    ]  # fmt: skip
    assert measured == pytest.approx(expected)
