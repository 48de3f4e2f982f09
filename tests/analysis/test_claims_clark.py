"""Every claim of the paper is measured, can hold, can fail, and can be out of reach."""

import re

import numpy as np
import pandas as pd
import pytest
from made_up_runs import (
    LAYERS,
    TO_DEPENDENT,
    TO_HEAD,
    held_out,
    run_like_the_paper,
    with_intervals,
)

from helpers.analysis import claims_clark
from helpers.analysis.claims import (
    COLUMNS,
    Claim,
    Estimate,
    NotMeasurable,
    at_depth,
    check_claims,
    column,
    judge,
)
from helpers.analysis.claims_clark import clark_claims
from helpers.analysis.paper import paper_table1, paper_table2, values_of


def put(table, name, values):
    """Return a change that gives a column of a table other values, one or one a layer."""

    def change(tables):
        frame = tables[table]
        given = np.ravel(values)
        per_row = len(given) in (1, len(frame))
        frame[name] = np.resize(given, len(frame)) if per_row else np.repeat(given, 2)

    return change


def score(table, key, value, column):
    """Return a change that gives the rows whose columns are ``key`` another value."""

    def change(tables):
        frame = tables[table]
        rows = np.all([frame[name] == wanted for name, wanted in key.items()], axis=0)
        assert rows.any()
        frame.loc[rows, column] = value

    return change


def lower(name, accuracy):
    """Return a change that gives a relation's head another accuracy on dev."""

    def change(tables):
        frame = tables["dependency_heads_held_out"]
        (row,) = frame.index[frame["relation"] == name]
        given = held_out(name, accuracy, frame.loc[row, "baseline"], frame.loc[row, "direction"])
        frame.loc[row, list(given)] = list(given.values())

    return change


def coreference(kind, against, margin):
    """Return a change that gives the head chosen on train another margin over a rule."""
    key = {"type": kind, "against": against, "candidates": "mentions"}

    def change(tables):
        for name, value in (("margin", margin), ("ci_low", margin - 1), ("ci_high", margin + 1)):
            score("coreference_held_out", key, value, name)(tables)

    return change


def spearman(ranks, other_ranks):
    return np.corrcoef(ranks, other_ranks)[0, 1]


def difference(probe, other, value):
    def change(tables):
        for own, given in (("difference", value), ("ci_low", value - 1), ("ci_high", value + 1)):
            score("probe_differences", {"probe": probe, "other": other}, given, own)(tables)

    return change


def _no_function(tables):
    """Other rows, which the claim is not about, may say anything."""
    frame = tables["no_op"]
    for name in ("difference", "difference_low", "difference_high"):
        frame[name] = 0.09
        frame.loc[frame["relation"].isin(["All", "compound"]), name] = 1.0


RISING = np.arange(1, LAYERS + 1) / 10
FALLING = RISING[::-1].copy()


def _later_heads(tables):
    for name in ("previous", "next"):
        put("relative_position", name, [0, 0, 0, 0, 0.6, 0.6])(tables)


def _never_by_far(tables):
    for name in ("margin", "margin_low", "margin_high"):
        put("dependency_heads_held_out", name, 19)(tables)


# What makes each claim false, by its statement, and the number that is then measured.
COUNTEREXAMPLES = {
    "Most heads put little attention on the current token": (
        put("relative_position", "current", [0.05, 0.05, 0.05, 0.2, 0.2, 0.2]),
        0.5,
    ),
    "Some heads put more than half of their attention on the previous token": (
        put("relative_position", "previous", 0.5),
        0,
    ),
    "Some heads put more than half of their attention on the next token": (
        put("relative_position", "next", 0.5),
        0,
    ),
    "Such positional heads are found especially in earlier layers": (
        _later_heads,
        (5 + 6) / 2 / 6,
    ),
    "Over half of the attention in middle layers goes to one special token": (
        put("token_types", "sep", [0.9, 0.9, 0.49, 0.49, 0.49, 0.9]),
        0.49,
    ),
    "That is many times what uniform attention would give it": (
        put("token_types", "uniform_sep", 3 / 20),  # some models put two between two texts
        (0.6 + 0.7 + 0.7) / 3 / (3 / 20),
    ),
    "That special token is [SEP]": (put("token_types", "cls", 2.55 / 6 - 0.01), 0.01),
    "Early heads attend to [CLS]": (put("token_types", "cls", RISING), 0.15 - 0.45),
    "Deep heads attend to periods and commas": (
        put("token_types", "punctuation", FALLING),
        0.15 - 0.45,
    ),
    "Heads attend to [SEP] even more when the current token is [SEP]": (
        put("token_types", "other_to_sep", 4.48 / 6 - 0.01),
        0.01,
    ),
    "Heads processing [SEP] attend almost entirely to [SEP]": (
        put("token_types", "sep_to_sep", [1, 1, 0.88, 0.89, 0.9, 1]),
        0.89,
    ),
    "Gradients for the special token fall where attention to it rises": (
        put("gradients", "sep", [0.1, 0.2, 0.4, 0.6, 0.6, 0.3]),
        1,
    ),
    "Some heads in lower layers attend very broadly": (
        put("entropy", "entropy", [4.0, 4.0, 4.8, 4.8, 4.8, 4.8]),
        0,
    ),
    "Entropy is highest in lower layers": (
        put("entropy", "entropy", [4.5, 0.5, 2.3, 2.5, 2.5, 2.5]),
        2.5 - 2.45,
    ),
    "In the last layer, [CLS] attends very broadly": (
        put("entropy", "entropy_from_cls", [4.5, 3.4, 2.4, 2.1, 2.1, 3.6]),
        3.6,
    ),
    "In the last layer, [CLS] attends more broadly than tokens do on average": (
        put("entropy", "entropy", [4.6, 3.5, 2.5, 2.0, 2.0, 3.81]),
        0.09,
    ),
    "In most layers before, [CLS] attends about as broadly as tokens do on average": (
        put("entropy", "entropy_from_cls", [4.6, 3.5, 0.5, 0.5, 0.5, 3.9]),
        1.5,
    ),
    "These broad heads spend at most 10% of their attention on any single word": (
        put("entropy", "largest", 0.11),
        0.11,
    ),
    "No single head is good at syntax overall": (lower("All", 60.0), 60 - 26.3),
    "Single heads outdo a fixed offset on single relations": (
        put("dependency_heads_held_out", "p_holm", 0.06),
        0,
    ),
    "Sometimes they outdo it by far": (_never_by_far, 0),
    "Direct objects have a head of their own": (lower("dobj", 41.0), 1),
    "Determiners have a head of their own": (lower("det", 53.0), 53 - 51.7),
    "Objects of prepositions have a head of their own": (lower("pobj", 30.0), 30 - 34.6),
    "Possessives have a head of their own": (lower("poss", 49.7), 2),
    "Passive auxiliaries have a head of their own": (lower("auxpass", 10.0), -30.5),
    "Objects, determiners and possessives are found with more than 75% accuracy": (
        lower("poss", 74.0),
        74,
    ),
    "Dependents attend to heads rather than the reverse": (
        put("dependency_heads_held_out", "direction", TO_DEPENDENT),
        0,
    ),
    "Objects of prepositions are the exception: prepositions attend to them": (
        put("dependency_heads_held_out", "direction", TO_HEAD),
        0,
    ),
    "A head beats string match at coreference by over ten points": (
        coreference("all", "head match", 8.0),
        8,
    ),
    "That head comes close to a rule-based system": (coreference("all", "rule-based", -7.0), -7),
    "It is particularly good at nominal mentions": (coreference("nominal", "head match", 11), 11),
    "Attention alone is far better than right-branching": (
        difference("Attn", "Right-branching", 8),
        8,
    ),
    "Word vectors add to attention": (difference("Attn + GloVe", "Attn", 3), 3),
    "Distances and word vectors alone do worse": (
        difference("Attn + GloVe", "Distances + GloVe", 3),
        3,
    ),
    "Attention of random weights does far worse": (
        difference("Attn + GloVe", "Random-init Attn + GloVe", 7),
        7,
    ),
    "Hidden states hold not much more syntax than attention maps": (
        difference("Structural probe", "Attn + GloVe", 13),
        13,
    ),
    "Heads attend to special tokens where their relation is not there (3.2)": (
        _no_function,
        0.09,
    ),
    "Heads of one layer are closer to each other than to other layers'": (
        put("head_cohesion", "within", 8.8),
        1.1,
    ),
    "The closeness of a layer's heads is no accident": (
        put("head_cohesion", "p_value", 0.05),
        0.05,
    ),
}
CLAIMS = {claim.statement: claim for claim in clark_claims()}
# Which table each claim is out of reach without.
TABLES = {
    "3.1": "relative_position",
    "4.2": "dependency_heads_held_out",
    "4.3": "coreference_held_out",
    "5": "probe_differences",
    "6": "head_cohesion",
}


def checked(tables):
    table = check_claims(with_intervals(tables), clark_claims())
    assert tuple(table) == COLUMNS
    return table.set_index("claim")


def test_statements_are_unique_and_in_the_order_of_the_paper():
    table = check_claims({}, clark_claims())
    assert table["claim"].is_unique
    assert list(table["section"]) == sorted(table["section"])
    assert set(table["section"]) == {"3.1", "3.2", "3.3", "4.2", "4.3", "5", "6"}
    assert table["how_measured"].str.len().min() > 10


def test_every_claim_holds_of_a_run_like_the_papers():
    table = checked(run_like_the_paper())
    assert list(table.index[table["holds"] != "yes"]) == []
    assert table["here"].notna().all()


def test_every_claim_has_a_counterexample():
    assert set(COUNTEREXAMPLES) == set(CLAIMS)


@pytest.mark.parametrize("statement", COUNTEREXAMPLES)
def test_a_claim_can_fail(statement):
    change, measured = COUNTEREXAMPLES[statement]
    tables = run_like_the_paper()
    change(tables)
    found = judge(CLAIMS[statement], with_intervals(tables))
    assert found.verdict == "no"
    assert found.here == pytest.approx(measured)


def test_nothing_is_measured_without_tables():
    table = checked({})
    assert set(table["holds"]) == {"not measured"}
    assert table["here"].isna().all()


NO_OP = "Heads attend to special tokens where their relation is not there (3.2)"
# Chosen on the data that they are scored on; without differences on the same articles.
NOT_IN_CLAIMS = ("coreference", "dependency_heads", "probes")


@pytest.mark.parametrize("missing", sorted(run_like_the_paper()))
def test_a_missing_table_takes_its_claims_with_it_and_no_others(missing):
    tables = run_like_the_paper()
    del tables[missing]
    table = check_claims(tables, clark_claims()).set_index("claim")
    lost = set(table.index[table["holds"] == "not measured"])
    if missing == "averages_by_article":  # numbers without intervals prove nothing
        assert not lost and (table["holds"] == "cannot be told").sum() > 10
        return
    assert bool(lost) == (missing not in NOT_IN_CLAIMS)
    assert set(table["holds"]) <= {"yes", "not measured"}
    for section, owner in TABLES.items():
        of_section = set(table.index[table["section"] == section]) - {NO_OP}
        assert of_section <= lost if owner == missing else not of_section & lost


@pytest.mark.parametrize(
    ("table", "name"),
    [(table, name) for table, frame in run_like_the_paper().items() for name in frame
     if table not in (*NOT_IN_CLAIMS, "averages_by_article")],
)  # fmt: skip
def test_a_missing_column_is_no_crash(table, name):
    tables = run_like_the_paper()
    tables[table] = tables[table].drop(columns=name)
    check_claims(tables, clark_claims())


def test_a_model_without_separator():
    """Its special token is the first one, and what is said of [SEP] is not measured."""
    tables = run_like_the_paper()
    for name in ("sep", "sep_to_sep", "other_to_sep"):
        put("token_types", name, np.nan)(tables)
    put("gradients", "sep", np.nan)(tables)
    put("token_types", "cls", [0.1, 0.2, 0.6, 0.7, 0.8, 0.9])(tables)
    table = checked(tables)
    assert list(table.index[table["holds"] == "not measured"]) == [
        "That special token is [SEP]",
        "Heads attend to [SEP] even more when the current token is [SEP]",
        "Heads processing [SEP] attend almost entirely to [SEP]",
    ]
    middle = table.loc["Over half of the attention in middle layers goes to one special token"]
    assert (middle["here"], middle["holds"]) == (pytest.approx(0.7), "yes")
    gradient = table.loc["Gradients for the special token fall where attention to it rises"]
    assert gradient["here"] == pytest.approx(-1)


def test_the_special_token_is_picked_in_the_layers_where_it_is_measured():
    """[CLS] gets most over all layers, [SEP] most in the middle ones."""
    tables = run_like_the_paper()
    put("token_types", "cls", [0.9, 0.9, 0.2, 0.2, 0.2, 0.9])(tables)
    put("token_types", "sep", [0.0, 0.0, 0.3, 0.4, 0.5, 0.0])(tables)
    middle = checked(tables).loc[
        "Over half of the attention in middle layers goes to one special token"
    ]
    assert middle["here"] == pytest.approx(0.4)


def test_a_model_without_special_tokens():
    tables = run_like_the_paper()
    for name in ("cls", "sep", "sep_to_sep", "other_to_sep"):
        put("token_types", name, np.nan)(tables)
    put("entropy", "entropy_from_cls", np.nan)(tables)
    table = checked(tables)
    of_tokens = table[table["section"] == "3.2"]
    assert list(of_tokens.index[of_tokens["holds"] != "not measured"]) == [
        "Deep heads attend to periods and commas"
    ]
    assert not table[table.index.str.contains("[CLS]", regex=False)]["here"].notna().any()


def test_without_positional_heads_their_depth_is_not_measured():
    tables = run_like_the_paper()
    for name in ("previous", "next"):
        put("relative_position", name, 0.01)(tables)
    table = checked(tables).query("section == '3.1'")
    assert list(table["holds"]) == ["yes", "no", "no", "not measured"]


def test_random_weights_meet_few_claims():
    """Nearly uniform attention, whose differences are those of chance."""
    tables, rng = run_like_the_paper(), np.random.default_rng(0)
    for table in ("relative_position", "token_types"):
        for name in tables[table].columns.difference(["layer", "head"]):
            put(table, name, rng.uniform(0.007, 0.009, LAYERS))(tables)
    for name, number in (("uniform_cls", 1), ("uniform_sep", 2)):
        put("token_types", name, number / 128)(tables)
    for name in ("sep", "sep_to_sep", "other_to_sep"):
        put("token_types", name, rng.uniform(0.014, 0.018, LAYERS))(tables)
    for name in ("entropy", "entropy_from_cls"):
        put("entropy", name, np.log(128) - rng.uniform(0.01, 0.05, LAYERS))(tables)
    table = checked(tables)[lambda table: table["section"] < "4"]
    assert set(table.index[table["holds"] == "yes"]) <= {
        "Most heads put little attention on the current token",
        "Gradients for the special token fall where attention to it rises",
        "Some heads in lower layers attend very broadly",
        "In the last layer, [CLS] attends very broadly",
        "In most layers before, [CLS] attends about as broadly as tokens do on average",
    }


def test_a_constant_has_no_correlation_to_measure():
    tables = run_like_the_paper()
    put("gradients", "sep", 0.1)(tables)
    row = checked(tables).loc["Gradients for the special token fall where attention to it rises"]
    assert row["holds"] == "not measured"


def test_a_model_of_one_layer_is_no_crash():
    tables = run_like_the_paper()
    for name in ("relative_position", "token_types", "gradients", "entropy"):
        tables[name] = tables[name][tables[name]["layer"] == 1]
    table = checked(tables)
    assert table["holds"].iloc[0] == "yes"
    middle = table.loc["Over half of the attention in middle layers goes to one special token"]
    assert middle["holds"] == "not measured"  # its only layer is the last


def test_a_universal_dependencies_treebank_is_read_in_the_papers_terms():
    tables = run_like_the_paper()
    names = {"pobj": "case", "compound": "nsubj:pass", "dobj": "obj", "poss": "nmod:poss",
             "auxpass": "aux:pass"}  # fmt: skip
    frame = tables["dependency_heads_held_out"]
    frame["relation"] = frame["relation"].replace(names)
    table = checked(tables).query("section == '4.2'").drop(NO_OP)
    assert table.loc["Direct objects have a head of their own", "here"] == pytest.approx(46.8)
    assert table.loc["Possessives have a head of their own", "here"] == pytest.approx(32.8)
    assert list(table.index[table["holds"] == "not measured"]) == [
        "Objects of prepositions have a head of their own",  # UD has no such relation
        "Objects of prepositions are the exception: prepositions attend to them",
    ]


def test_relations_that_the_paper_does_not_have_do_not_count():
    tables = run_like_the_paper()
    statement = "Single heads outdo a fixed offset on single relations"
    before = checked(tables).loc[statement, "here"]
    extra = pd.DataFrame([held_out(name, 10, 40) for name in ("punct", "case", "conj")])
    rows = [tables["dependency_heads_held_out"], extra]
    tables["dependency_heads_held_out"] = pd.concat(rows, ignore_index=True)
    assert checked(tables).loc[statement, "here"] == before


def test_an_interval_across_the_threshold_cannot_be_told():
    tables = run_like_the_paper()
    put("dependency_heads_held_out", "margin_low", 9)(tables)
    row = checked(tables).loc["Direct objects have a head of their own"]
    assert (row["holds"], row["ci_low"], row["threshold"]) == ("cannot be told", 9, 10)


def claim(measure, **how):
    return Claim("1", "A statement", "how", lambda tables: measure, **how)


@pytest.mark.parametrize(
    ("low", "high", "above", "below"),
    [(2, 4, "yes", "no"), (0, 1, "no", "yes"), (0, 2, "cannot be told", "cannot be told"),
     (np.nan, np.nan, "cannot be told", "cannot be told"), (1, 1, "no", "no")],
)  # fmt: skip
def test_verdicts_by_hand(low, high, above, below):
    estimate = Estimate(1.0, low, high)
    assert judge(claim(estimate, threshold=1), {}).verdict == above
    assert judge(claim(estimate, threshold=1, below=True), {}).verdict in (below, "cannot be told")


def test_a_number_without_error_is_compared_as_it_is():
    assert judge(claim(0.01, threshold=0.05, below=True), {}).verdict == "yes"
    assert judge(claim(0.05, threshold=0.05, below=True), {}).verdict == "no"
    assert judge(claim(np.nan, threshold=0), {}).verdict == "not measured"


def test_what_the_control_passes_too_is_no_evidence():
    tables = run_like_the_paper()
    table = check_claims(tables, clark_claims(), control=tables).set_index("claim")
    assert set(table["holds"]) == {"no evidence"}
    assert (table["control"] == table["here"]).all()
    fails = run_like_the_paper()
    lower("dobj", 41.0)(fails)
    table = check_claims(tables, clark_claims(), control=fails).set_index("claim")
    row = table.loc["Direct objects have a head of their own"]
    assert (row["control"], row["holds"]) == (pytest.approx(1), "yes")


def test_control_tables_of_a_run_are_found_by_their_names():
    tables = run_like_the_paper()
    named = tables | {"control_head_cohesion": tables["head_cohesion"]}
    table = check_claims(named, clark_claims()).set_index("section")
    assert set(table.loc["6", "holds"]) == {"yes", "no evidence"}  # one is about articles too
    assert set(table.drop(index="6")["holds"]) == {"yes"}


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
        "gradients": table.assign(sep=[0.2, 0.1], cls=[0.1, 0.2]),
        "entropy": table.assign(
            entropy=[4.4, 1.0], entropy_from_cls=[4.0, 3.0], uniform=np.log([100, 100])
        ),
    }  # fmt: skip
    here = checked(tables)["here"].dropna().to_list()
    expected = [
        1 / 2,  # heads with little on the current token
        1, 0,  # heads mostly to the previous and the next token
        1 / 2,  # the layer of the only positional head, of 2
        0.4,  # to [SEP] in layer 1, the only one at 45-85% of the depth
        0.4 / (2 / 100),
        0.45 - 0.15,  # to [SEP] less to [CLS]
        0.1 - 0.2,  # to [CLS] in layer 1 less in layer 2
        0.1 - 0.0,  # to punctuation in layer 2 less in layer 1
        0.8 - 0.3,  # from [SEP] and from others
        0.7,
        -1,  # attention rises, gradient falls
        1,  # 4.4 nats are 95% of ln 100
        4.4 - 1.0,
        3.0,
        3.0 - 1.0,
        0.4,  # |4.0 - 4.4|
    ]  # fmt: skip
    assert here == pytest.approx(expected)


def test_paper_values_are_those_of_the_data_file():
    one, two, three, text = paper_table1(), paper_table2(), values_of("Table 3"), values_of("text")
    given = check_claims({}, clark_claims()).set_index("claim")["paper_value"].dropna()
    assert given["No single head is good at syntax overall"] == pytest.approx(34.5 - 26.3)
    assert given["Sometimes they outdo it by far"] == 7
    gains = one["accuracy"] - one["baseline"]
    expected = {
        "Some heads put more than half of their attention on the previous token": 4,
        "Some heads put more than half of their attention on the next token": 5,
        "Such positional heads are found especially in earlier layers":
            text["mean relative depth of positional heads"],
        "Over half of the attention in middle layers goes to one special token": 0.5,
        "That is many times what uniform attention would give it": 0.5 / 0.0156,
        "Heads processing [SEP] attend almost entirely to [SEP]": 0.9,
        "In the last layer, [CLS] attends very broadly": 3.89,
        "No single head is good at syntax overall": one.loc["All", "accuracy"]
            - one.loc["All", "baseline"],
        "Single heads outdo a fixed offset on single relations": 1,
        "Sometimes they outdo it by far": 7,
        "Direct objects have a head of their own": gains["dobj"],
        "Determiners have a head of their own": gains["det"],
        "Objects of prepositions have a head of their own": gains["pobj"],
        "Possessives have a head of their own": gains["poss"],
        "Passive auxiliaries have a head of their own": gains["auxpass"],
        "Objects, determiners and possessives are found with more than 75% accuracy": 76.3,
        "Dependents attend to heads rather than the reverse": 1,
        "Objects of prepositions are the exception: prepositions attend to them": 1,
        "A head beats string match at coreference by over ten points": 65 - 52,
        "That head comes close to a rule-based system": 65 - 69,
        "It is particularly good at nominal mentions":
            two.loc["head", "nominal"] - two.loc["head match", "nominal"],
        "Attention alone is far better than right-branching": 61 - 26,
        "Word vectors add to attention": 77 - 61,
        "Distances and word vectors alone do worse": 77 - 58,
        "Attention of random weights does far worse":
            three["Attn + GloVe"] - three["Random-init Attn + GloVe"],
        "Hidden states hold not much more syntax than attention maps": 80 - 77,
    }  # fmt: skip
    assert given.to_dict() == pytest.approx(expected)


def test_the_paper_meets_its_own_claims():
    """Where the paper gives a number, it is on the right side of the threshold."""
    for claim in clark_claims():
        if claim.paper is not None:
            given = claim.threshold
            threshold = given(run_like_the_paper()) if callable(given) else given
            holds = claim.paper < threshold if claim.below else claim.paper > threshold
            # "Over half" and "more than 90%" are bounds, not measurements.
            bound = claim.statement.startswith(("Over half", "Heads processing"))
            assert holds or bound, claim.statement


WORDS = {
    "one": 0, "half": 0.5, "two thirds": 2 / 3, "the paper's 90%": 0.9, "the paper's 75": 75,
    "the uniform share of two tokens": "share_of_two", "the uniform share of [SEP]": "share_of_sep",
    "that of all": "margin_over_match",
    "75% of that of uniform attention": "broad_entropy", "1": 1,
}  # fmt: skip


def test_what_is_said_of_a_threshold_is_what_is_compared():
    """Of the words "holds above ..." in ``claims_clark.csv``."""
    for claim in clark_claims():
        side, said = re.search(r"holds (above|below|from|at) ([^,(]+)", claim.how).groups()
        said = said.removesuffix(" on").removesuffix(" of the attention").strip()
        share = float(said[:-1]) / 100 if re.fullmatch(r"\d+%", said) else said
        expected = WORDS.get(said, share)
        threshold = claim.threshold
        if callable(threshold):
            assert threshold is getattr(claims_clark, expected), claim.statement
        elif side == "at":
            assert threshold == 0.5
        else:
            assert threshold == pytest.approx(float(expected)), claim.statement
        assert claim.below == (side == "below"), claim.statement


def test_layers_by_depth():
    values = pd.Series(np.arange(1.0, 13), index=np.arange(1, 13))
    assert at_depth(values, 0.45, 0.85) == np.mean([6, 7, 8, 9, 10])  # the paper's middle layers
    assert np.isnan(at_depth(values, 0.01, 0.02))


def test_what_a_claim_lacks_is_named():
    tables = {"entropy": pd.DataFrame({"layer": [1], "entropy_from_cls": [np.nan]})}
    with pytest.raises(NotMeasurable, match="token_types: cls"):
        column(tables, "token_types", "cls")
    with pytest.raises(NotMeasurable, match=r"entropy\.entropy_from_cls is empty"):
        column(tables, "entropy", "entropy_from_cls")


def test_no_claims_are_a_table_of_numbers_too():
    """Beside those of later papers that a run has not measured, numbers stay numbers."""
    both = pd.concat([check_claims({}, clark_claims()), check_claims({}, [])])
    for name in ("paper_value", "here", "ci_low", "ci_high", "threshold", "control"):
        assert both[name].dtype == float, name
