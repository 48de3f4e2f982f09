"""The paper's claims: their numbers, their measures, and their verdicts."""

import re

import numpy as np
import pandas as pd
import pytest
from committed import committed_figures
from made_up_runs import run_like_the_paper, with_intervals

from beyond.claims import section4
from beyond.claims.clark2019 import CLAIMS
from beyond.claims.engine import COLUMNS, EXPLORATORY, TEXT_COLUMNS, UNSEEN, check_claims
from beyond.papers.registry import later_claims
from helpers.metrics.coreference import COMBINATIONS, PAPER_MIX
from helpers.metrics.reference import FIGURE_5, paper_table1, paper_table2

FIGURES = committed_figures()
# Chosen on the data that they are scored on; without differences on the same articles.
NOT_IN_CLAIMS = ("commonest_tokens", "coreference", "dependency_heads", "probes")
PAPER = {claim.id: claim.paper for claim in CLAIMS}
# What the tests of committed tables compare; texts may be reworded.
COMPARED = [name for name in COLUMNS if name not in TEXT_COLUMNS or name.startswith("due_to")]


def claims_table(tables):
    """Test the paper's claims on tables, to which intervals are added."""
    table = check_claims(with_intervals(tables), CLAIMS)
    assert tuple(table) == COLUMNS
    return table.set_index("id")


@pytest.mark.parametrize(
    "run",
    [
        *("minilm-later", "mpnet-later", "smollm2-later", "minilm-arct-later", "minilm-ewt"),
        *("mpnet-ewt", "minilm-norm", "minilm-random-0", "minilm", "mpnet", "smollm2"),
    ],
)
def test_committed_tables_give_committed_verdicts(run):
    files = (FIGURES / run / "tables").glob("*.csv")
    tables = {
        path.stem: pd.read_csv(path, dtype={"section": str, "article": str}) for path in files
    }
    checked = check_claims(tables, [*CLAIMS, *later_claims()]).replace("", np.nan)  # as read
    name = "id" if "id" in tables["claims"] else "claim"
    committed = tables["claims"].set_index(name)
    recomputed = checked.set_index(name).loc[committed.index]
    assert committed["verdict"].equals(recomputed["verdict"])
    is_of_run = checked["section"].isin(tables["claims"]["section"])
    assert set(committed.index) == set(checked.loc[is_of_run, name])
    columns = committed.columns.intersection(COMPARED)
    pd.testing.assert_frame_equal(
        recomputed[columns], committed[columns], rtol=1e-4, atol=1e-6, check_dtype=False
    )


def test_claims_have_ids_and_statements_of_their_own():
    claims = [*CLAIMS, *later_claims()]
    assert len({claim.id for claim in claims}) == len(claims)
    assert len({claim.statement for claim in claims}) == len(claims)
    for claim in claims:
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", claim.id)


def test_paper_values_of_heads_are_those_of_table_1():
    """Statistics of the whole table; without the slip of auxpass."""
    table1 = paper_table1()
    accuracy = table1["notebook_accuracy"].fillna(table1["accuracy"])
    leads = accuracy - table1["notebook_baseline"].fillna(table1["baseline"])
    leads_of_relations = leads.drop("All")
    assert PAPER["sec4-margin-all-words"] == pytest.approx(leads["All"])
    assert PAPER["sec4-margin-mean-in-paper"] == pytest.approx(leads_of_relations.mean())
    assert PAPER["sec4-margin-over-twenty"] == pytest.approx(leads_of_relations.max())
    assert PAPER["sec4-accuracy-of-four"] == accuracy[list(section4.NAMED)].min()
    for relation in FIGURE_5:
        assert PAPER[f"sec4-margin-{relation}"] == pytest.approx(leads[relation])


def test_paper_values_of_coreference_are_those_of_table_2():
    table2 = paper_table2()
    over_head_match = table2.loc["head"] - table2.loc["head match"]
    over_rules = table2.loc["head"] - table2.loc["rule-based"]
    assert PAPER["sec4-coref-words-head-match"] == over_head_match["all"]
    for candidates in ("mentions", "words"):
        prefix = f"sec4-coref-{candidates}"
        for claim_id, expected in (
            ("head-match-paper-mix", over_head_match["all"]),
            ("rule-based", over_rules["all"]),
            ("nominal", over_head_match["nominal"] - over_head_match["all"]),
        ):
            assert PAPER[f"{prefix}-{claim_id}"] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("directions", "verdict"),
    [
        ((1, 1, 1, 2e-4), "supported"),
        ((0.9, 0.85, 1, 2e-4), "supported"),
        ((0.6, 0.5, 0.6, 2e-4), "not supported"),
        ((0.9, 0.5, 1, 0.3), "inconclusive"),
    ],
)
def test_shares_of_relations_are_judged_by_counts_of_resamples(directions, verdict):
    """The paper's 13 of 13 relations have an interval without width, and pass."""
    tables = run_like_the_paper()
    summary = tables["relation_summary"]
    is_direction = summary["quantity"] == "share whose dependents attend to heads"
    summary.loc[is_direction, ["value", "value_low", "value_high", "value_p"]] = directions
    assert claims_table(tables).loc["sec4-dependents-attend", "verdict"] == verdict


@pytest.mark.parametrize(
    ("lead", "verdict"), [(5.0, "supported"), (-5.0, "supported"), (30.0, "not supported"),
                          (-30.0, "not supported"), (9.5, "inconclusive")],
)  # fmt: skip
def test_the_head_for_all_words_is_compared_in_both_directions(lead, verdict):
    """A head that is far below the offset is not within ten points of it."""
    tables = with_intervals(run_like_the_paper())
    heads = tables["dependency_heads_held_out"]
    bounds = ["margin", "margin_low", "margin_high", "margin_df"]
    heads.loc[heads["relation"] == "All", bounds] = (lead, lead - 1, lead + 1, 20)
    row = check_claims(tables, CLAIMS).set_index("id").loc["sec4-margin-all-words"]
    assert (row["value"], row["verdict"]) == (abs(lead), verdict)


@pytest.mark.parametrize(
    ("ratio", "verdict"), [(1.2, "supported"), (0.8, "supported"), (2.0, "not supported"),
                           (0.2, "not supported")],
)  # fmt: skip
def test_gradients_per_value_are_compared_in_both_directions(ratio, verdict):
    tables = with_intervals(run_like_the_paper())
    for token in ("cls", "sep"):
        column = f"other_over_{token}_per_value"
        bounds = {column: ratio, f"{column}_low": ratio - 0.1, f"{column}_high": ratio + 0.1}
        tables["gradients"] = tables["gradients"].assign(**bounds)
    row = check_claims(tables, CLAIMS).set_index("id").loc["sec3-gradient-alike-per-value"]
    assert row["value"] == pytest.approx(abs(ratio - 1))
    assert row["verdict"] == verdict


def test_every_claim_of_likeness_has_a_margin_on_both_sides():
    """Sentences that say "within", "alike" or "as ... as" are measured by a distance or a share."""
    two_sided = {
        "sec3-gradient-alike-per-value", "sec3-earlier-cls-alike", "sec4-margin-all-words",
        "sec4-margin-slight", "sec5-hidden-states-alike", "sec5-structural-probe-alike",
        "niven-both-at-chance",
    }  # fmt: skip
    likeness = re.compile(r"\bwithin\b|\babout as\b|\bas large as\b|\balike\b|not much more")
    claims = {claim.id: claim for claim in [*CLAIMS, *later_claims()]}
    found = {claim.id for claim in claims.values() if likeness.search(claim.statement)}
    assert found == two_sided
    for claim_id in two_sided:
        words = claims[claim_id].how_measured.lower()
        assert re.search(r"absolute|either direction|distance|difference of the two|from 50", words)


def test_shares_of_mention_types_give_the_first_column_of_table_2():
    table2 = paper_table2().drop("neural coreference")
    shares = COMBINATIONS[PAPER_MIX]
    mixed = sum(share * table2[mention_type] for mention_type, share in shares.items())
    assert (mixed - table2["all"]).abs().max() < 1.3  # printed without decimals
    assert sum(shares.values()) == pytest.approx(1)


def test_claims_hold_for_a_run_like_the_papers():
    table = claims_table(run_like_the_paper())
    untested = table[table["verdict"] == "not measured"]
    assert set(untested["reason"]) <= {EXPLORATORY, UNSEEN}
    assert untested["value"].notna().all()
    assert set(table["verdict"].drop(untested.index)) == {"supported"}
    assert set(table["due_to_training"]) == {""}  # there is no control


def test_claims_are_not_due_to_training_if_the_control_is_the_same():
    tables = run_like_the_paper()
    for name in list(tables):
        tables[f"random_{name}"] = tables[name]
    table = claims_table(tables).drop(index="sec5-random-weights-worse")
    tested = table[table["verdict"] != "not measured"]
    assert set(tested["verdict"]) == {"supported"}
    assert (table["control"] == table["value"]).all()
    assert set(table["due_to_training"]) <= {"", "no", "inconclusive"}


def test_paper_values_meet_the_thresholds():
    table = claims_table(run_like_the_paper())
    signs = np.array([claim.sign for claim in CLAIMS])
    margin = (table["paper_value"] - table["threshold"]) * signs
    # "Over half" and "more than 90%" are bounds, not measurements.
    assert set(table.index[margin <= 0]) == {
        "sec3-special-half",
        "sec3-special-to-itself-almost-entirely",
    }


@pytest.mark.parametrize("missing", sorted(run_like_the_paper()))
def test_claims_of_a_missing_table_or_column_are_not_measured(missing):
    tables = run_like_the_paper()
    removed = tables.pop(missing)
    verdicts = check_claims(tables, CLAIMS)["verdict"]
    if missing == "averages_by_article":  # numbers without intervals prove nothing
        assert (verdicts == "inconclusive").sum() > 8
        return
    unmeasured = [
        claim for claim, verdict in zip(CLAIMS, verdicts, strict=True) if verdict == "not measured"
    ]
    unmeasured = [claim for claim in unmeasured if not claim.is_exploratory]
    assert bool(unmeasured) == (missing not in NOT_IN_CLAIMS)
    del tables["averages_by_article"]  # without bootstraps, for speed
    for name in removed:
        tables[missing] = removed.drop(columns=name)
        assert len(check_claims(tables, unmeasured)) == len(unmeasured)


@pytest.mark.parametrize(
    ("tokens", "expected_share", "unmeasured"),
    [(("sep",), 0.7, 1), (("cls", "sep"), np.nan, 11)],
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
        tables["entropy"]["entropy_from_cls"] = np.nan
    table = claims_table(tables)
    assert table.loc["sec3-special-half", "value"] == pytest.approx(expected_share, nan_ok=True)
    assert table["value"].isna().sum() == unmeasured


def test_claims_about_depth_need_more_than_one_layer():
    tables = run_like_the_paper()
    for name in ("relative_position", "token_types", "gradients", "entropy"):
        tables[name] = tables[name][tables[name]["layer"] == 1]
    tables["relative_position"][["previous", "next"]] = 0.01
    verdicts = claims_table(tables)["verdict"]
    in_section_3 = verdicts[verdicts.index.str.startswith("sec3-")]
    assert in_section_3["sec3-special-half"] == "not measured"  # the only layer is the last
    assert (in_section_3 == "not measured").sum() == 13
    for side in ("previous", "next"):
        assert verdicts[f"sec3-{side}-head"] == "not supported"


def test_relations_of_a_universal_dependencies_treebank_are_translated():
    tables = run_like_the_paper()
    names = {"pobj": "case", "compound": "nsubj:pass", "dobj": "obj", "poss": "nmod:poss",
             "auxpass": "aux:pass"}  # fmt: skip
    frame = tables["dependency_heads_held_out"]
    frame["relation"] = frame["relation"].replace(names)
    table = claims_table(tables).query("section == '4.2'")
    assert table.loc["sec4-margin-dobj", "value"] == pytest.approx(46.8)
    assert table.loc["sec4-margin-poss", "value"] == pytest.approx(32.8)
    unmeasured = table[table["verdict"] == "not measured"]
    assert {"sec4-margin-pobj", "sec4-accuracy-of-four"} <= set(unmeasured.index)
    assert unmeasured.loc["sec4-margin-pobj", "reason"] == section4.TOO_FEW.format("pobj")
    assert "sec4-margin-dobj" not in unmeasured.index


def test_measures_of_section_3_by_hand():
    """Three layers of one head: every number can be read off the table."""
    table = pd.DataFrame({"layer": [1, 2, 3], "head": 1})
    tables = {
        "relative_position": table.assign(
            previous=[0.6, 0.2, 0.1], current=[0.05, 0.3, 0.2], next=[0.1, 0.1, 0.1]
        ),
        "token_types": table.assign(
            cls=[0.1, 0.4, 0.3], sep=[0.4, 0.5, 0.1], punctuation=[0.0, 0.1, 0.2],
            sep_to_sep=[0.7, 0.9, 0.1], other_to_sep=[0.3, 0.2, 0.1],
            cls_to_cls=0.1, other_to_cls=0.1, uniform_cls=0.01, uniform_sep=0.02,
        ),
        "gradients": table.assign(
            effective_articles=9.0, other_over_sep=[7.0, 8, 9], other_over_sep_low=6,
            other_over_sep_high=10,
            other_over_sep_per_value=[1.0, 2, 3], other_over_sep_per_value_low=0.5,
            other_over_sep_per_value_high=4,
        ),
        "entropy": table.assign(
            entropy=[4.4, 1.0, 3.0], entropy_from_cls=[4.0, 3.0, 2.0], uniform=np.log(100),
            largest=[0.06, 0.5, 0.5],
        ),
        "head_cohesion": pd.DataFrame({
            "by": ["layer", "next layer, words"], "within": [4.0, 3.0], "between": [8.0, 4.0],
            "p_value": 0.1,
        }),
    }  # fmt: skip
    expected = [
        0.2,  # the median of the current token
        0.6,
        0.1,
        0.7 - (0.3 + 0.2) / 2,
        0.5,  # layer 2, the only one at 45-85% of the depth
        0.5 / 0.02,
        0.5 - 0.4,
        0.1 - (0.4 + 0.3) / 2,
        0.2 - (0.0 + 0.1) / 2,
        0.9 - 0.2,
        0.9,
        8,
        2 - 1,  # from equal gradients
        4.4 / np.log(100),
        1 - 0,
        0.06,
        4.4 - 2.0,
        2.0,
        2.0 - 3.0,
        (0.4 + 2.0) / 2,  # |4.0 - 4.4| and |3.0 - 1.0|
        4 / 8,
        3 / 4,
    ]
    measured = claims_table(tables)
    of_sections = measured[measured["section"].str[0].isin(["3", "6"])]
    assert of_sections["value"].tolist() == pytest.approx(expected)


def test_special_rows_follow_the_token_with_the_most_attention():
    """In MiniLM [CLS] is that token; the rows on itself and on gradients are about it."""
    tables = run_like_the_paper()
    tables["token_types"]["cls"] = 0.9
    tables["token_types"]["cls_to_cls"] = 0.97
    tables["gradients"]["other_over_cls"] = 99.0
    table = claims_table(tables)
    assert table.loc["sec3-special-to-itself-almost-entirely", "value"] == pytest.approx(0.97)
    assert table.loc["sec3-gradient-small", "value"] == 99
    assert table.loc["sec3-special-is-sep", "verdict"] == "not supported"
