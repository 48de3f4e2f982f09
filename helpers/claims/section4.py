"""Claims of section 4: heads that find relations, and coreference.

Heads and offsets are chosen on train and scored on dev.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pandas as pd

from helpers.claims.engine import Family
from helpers.claims.tables import (
    NotMeasurable,
    Tables,
    cell,
    estimate_from_table,
    estimate_in,
    rows_of,
    rows_where,
    select_or_raise,
    with_bounds,
)
from helpers.metrics.coreference import ALL_MENTIONS, NOMINAL_MINUS_ALL, OWN_TYPE, PAPER_MIX
from helpers.metrics.dependency_heads import (
    DEPENDENTS_SHARE,
    FUNCTION_MARGIN,
    MEAN_MARGIN,
    MEAN_MARGIN_IN_PAPER,
    SLIGHT_MARGIN,
    SLIGHT_SHARE,
    WITH_FUNCTION,
)
from helpers.metrics.reference import ALL, paper_names, paper_table1
from helpers.metrics.statistics import Estimate

SECTION_4 = Family("section 4")
claim = SECTION_4.claim
BY_FAR = 20  # percentage points
LITTLE_CHANGE = 5  # percentage points
MANY = 0.25  # of the relations
TWO_THIRDS = 2 / 3
MOST = 0.5
NAMED = ("dobj", "det", "pobj", "poss")  # in the introduction
CHOSEN = "head and offset chosen on train, scored on dev"


# Section 4.2: relations


def held_out(tables: Tables) -> pd.DataFrame:
    """Look up the heads chosen on train and scored on dev, with the paper's name of a relation.

    The scheme shows in the names of all relations, so these are looked up together.  ``paper`` is
    empty where the paper has none.
    """
    columns = ["relation", *with_bounds("dev_accuracy"), *with_bounds("margin"), "margin_df"]
    table = rows_of(tables, "dependency_heads_held_out", *columns)
    names = table["relation"].map(paper_names(table["relation"])).fillna("")
    return table.assign(paper=names.where(names.isin(paper_table1().index), ""))


def margin(tables: Tables, name: str) -> Estimate:
    """Read the margin over the offset of a relation, by the paper's name, in percentage points.

    Where several relations correspond to the paper's, it is that of the most frequent one.
    """
    return estimate_in(rows_where(held_out(tables), paper=name).iloc[0], "margin")


def certain_beyond(estimate: Estimate, threshold: float) -> Estimate:
    """Take a count of relations or heads for exact if no resample brings it nearer to a threshold.

    Counts are few, so the bound on the threshold's side may be the count itself.
    """
    nearer_bound = estimate.low if estimate.value > threshold else estimate.high
    return replace(estimate, is_exact=bool(nearer_bound == estimate.value))


def summary(tables: Tables, quantity: str, threshold: float = 0) -> Estimate:
    """Read a quantity of the table relation_summary.csv, which has a threshold."""
    estimate = estimate_from_table(tables, "relation_summary", "value", quantity=quantity)
    return certain_beyond(estimate, threshold)


claim(
    "4.2",
    "The best head for all words outdoes the best fixed offset by less than ten percentage points",
    how_measured=(
        f"accuracy over all words of the best head minus that of the offset, {CHOSEN}; "
        "holds below 10, our reading of 'not much better' (the paper: 34.5 minus 26.3)"
    ),
    below=10,
    paper=8.2,  # Table 1: 34.5 less 26.3
    unit="points",
)(partial(margin, name=ALL))

claim(
    "4.2",
    "The best head of a relation outdoes the best fixed offset, on average over all relations",
    how_measured=f"mean margin over the frequent relations of the corpus, {CHOSEN}; holds above 0",
    above=0,
    threshold_source="paper",
    unit="points",
    about_training=True,
)(partial(summary, quantity=MEAN_MARGIN))

claim(
    "4.2",
    "The best head of a relation outdoes the best fixed offset, on average over the relations of "
    "the paper's Table 1, which are common or well found in BERT",
    how_measured=(
        f"mean margin over those relations, percentage points, {CHOSEN}; holds above 0 (the "
        "paper's figure has auxpass as in the authors' notebook, 94.1 and 82.5, not as in Table 1)"
    ),
    above=0,
    threshold_source="paper",
    paper=21.385714,  # Table 1: mean of its relations
    unit="points",
    about_training=True,
)(partial(summary, quantity=MEAN_MARGIN_IN_PAPER))


@claim(
    "4.2",
    "For some relation of the paper's Table 1, a head outdoes the best fixed offset by over twenty "
    "percentage points",
    how_measured=(
        f"number of those relations with such a margin, and of those whose interval lies below or "
        f"above, {CHOSEN}; holds from one on; 20 is our reading of 'substantially' (the paper's "
        "figure without its slip in auxpass)"
    ),
    above=0,
    paper=6,  # Table 1
    unit="relations",
    about_training=True,
)
def relations_by_far(tables: Tables) -> Estimate:
    """Count the paper's relations whose head leads its offset by more than `BY_FAR`."""
    table = held_out(tables)
    is_single = ~table["paper"].isin(["", ALL])
    rows = select_or_raise(table, is_single, "single relations")
    counts = (rows[with_bounds("margin")] > BY_FAR).sum().astype(float)
    return certain_beyond(Estimate(*counts, df=rows["margin_df"].min()), 0)


claim(
    "4.2",
    "For at least a quarter of all relations, the best head outdoes the best fixed offset by at "
    "most five percentage points",
    how_measured=(
        f"share of the frequent relations of the corpus with a margin of at most {SLIGHT_MARGIN} "
        f"points, {CHOSEN}; holds above a quarter; both are our reading of 'many relations for "
        "which BERT only slightly improves over the simple baseline'"
    ),
    above=MANY,
)(partial(summary, quantity=SLIGHT_SHARE, threshold=MANY))

for name, plural, paper_margin, note in (
    ("dobj", "direct objects", 46.8, ""),  # Table 1: 86.8 less 40.0
    ("det", "determiners", 42.6, ""),  # 94.3 less 51.7
    ("pobj", "objects of prepositions", 41.7, ""),  # 76.3 less 34.6
    ("poss", "possessives", 32.8, ""),  # 80.5 less 47.7
    (
        "auxpass",
        "passive auxiliaries",
        11.6,  # 94.1 less 82.5
        " (the paper's figure is that of the authors' notebook: Table 1 has the offset's 82.5 as "
        "the head's)",
    ),
):
    claim(
        "4.2",
        f"For {plural}, a head outdoes the best fixed offset by over ten percentage points",
        how_measured=(
            f"accuracy of the best head minus that of the offset, {CHOSEN}; holds above "
            f"10, which is ours: more than what the paper calls not much better{note}"
        ),
        above=10,
        paper=paper_margin,
        unit="points",
        about_training=True,
    )(partial(margin, name=name))


@claim(
    "4.2",
    "Heads find direct objects, determiners, objects of prepositions and possessives with more "
    "than 75% accuracy",
    how_measured=(
        "the lowest accuracy of the four, with its interval, head chosen on train, scored on dev; "
        "holds above 75; not measured if the corpus lacks one of them, as Universal Dependencies "
        "lack pobj (the paper's heads are scored on the data that chose them)"
    ),
    above=75,
    threshold_source="paper",
    paper=76.3,  # Table 1: pobj; section 1 says >75%
    unit="percent",
    about_training=True,
)
def lowest_of_named(tables: Tables) -> Estimate:
    """Find the lowest accuracy of the relations of the introduction."""
    rows = held_out(tables)
    named = rows[rows["paper"].isin(NAMED)]
    if set(named["paper"]) != set(NAMED):
        raise NotMeasurable("the relations of the introduction")
    return estimate_in(named.loc[named["dev_accuracy"].idxmin()], "dev_accuracy")


claim(
    "4.2",
    "Dependents attend to their heads rather than the reverse, in over two thirds of the relations "
    "of the paper's Table 1 except objects of prepositions",
    how_measured=(
        "share of those relations whose best head on train reads that way, over resamples of the "
        "train articles that choose heads again; holds above two thirds, which is ours (the paper: "
        "all)"
    ),
    above=TWO_THIRDS,
    paper=1,  # Table 1: all but pobj
    about_training=True,
)(partial(summary, quantity=DEPENDENTS_SHARE, threshold=TWO_THIRDS))

claim(
    "4.2",
    "The head of possessives finds what is possessed from the 's rather than from the possessor, "
    "and more often than the word after the 's does",
    how_measured=(
        "its accuracy from the 's minus that from the possessor, minus the same difference of a "
        "fixed offset of +1, over possessors of dev that have an 's, head chosen on train; "
        "holds above 0"
    ),
    above=0,
    threshold_source="paper",
    unit="points",
    about_training=True,
)(cell("possessives", "beyond_next_word"))


@claim(
    "4.2",
    "Leaving special tokens out changes the accuracy of most attention heads by at most five "
    "percentage points (footnote 2)",
    how_measured=(
        f"share of all heads whose accuracy over all words, in their better direction, falls by at "
        f"most {LITTLE_CHANGE} points where they may pick special tokens, and of those whose "
        "interval lies on one side; holds above half; 5 is ours"
    ),
    above=MOST,
    threshold_source="paper",
)
def share_unaffected_by_special_tokens(tables: Tables) -> Estimate:
    """Estimate the share of heads whose accuracy special tokens as candidates hardly change."""
    changes = rows_of(tables, "special_candidates", "layer", *with_bounds("change"))
    shares = (changes[with_bounds("change")] >= -LITTLE_CHANGE).mean()
    return certain_beyond(Estimate(*shares), MOST)


claim(
    "4.2",
    "Heads that have a function attend more to special tokens where their relations are not there "
    "(3.2)",
    how_measured=(
        "attention to them from words without any relation of the head minus from words with its "
        f"relation, mean over the relations whose head leads its offset by over {FUNCTION_MARGIN} "
        "points with an adjusted p below 0.05, words of dev; holds above 0; the choice of these "
        "relations is ours"
    ),
    above=0,
    threshold_source="paper",
    about_training=True,
)(cell("no_op", "difference", relation=WITH_FUNCTION))


# Section 4.3: coreference

held_out_margin = partial(cell, "coreference_held_out", "margin")
for candidates, long_name in (
    ("mentions", "other mentions' head words"),
    ("words", "all other words"),
):
    one_head = partial(held_out_margin, candidates=candidates, chosen_for=ALL_MENTIONS)
    reading = f"candidates: {long_name}"
    for mention_type, mix, explanation in (
        ("all", "", "over all mentions of the dev documents"),
        (
            PAPER_MIX,
            " with the paper's mix of mention types",
            "the margins at pronouns, names and nominal mentions of the dev documents, weighted by "
            "0.48, 0.32 and 0.20, the shares that Table 2 implies",
        ),
    ):
        claim(
            "4.3",
            f"The best head for coreference beats head-word match by over ten percentage "
            f"points{mix} ({reading})",
            how_measured=(
                f"head chosen on train minus head-word match, {explanation}; holds above "
                "10, which is ours"
            ),
            above=10,
            paper=13,  # Table 2: 65 less 52
            unit="points",
            about_training=True,
        )(one_head(type=mention_type, against="head match"))
    claim(
        "4.3",
        f"The best head for coreference comes within five percentage points of the rule-based "
        f"system ({reading})",
        how_measured=(
            "head chosen on train minus rule-based sieves, over all mentions of the dev "
            "documents; holds above -5, which is ours: the paper's -4 and one"
        ),
        above=-5,
        paper=-4,  # Table 2: 65 less 69
        unit="points",
        about_training=True,
    )(one_head(type="all", against="rule-based"))
    claim(
        "4.3",
        f"The best head for coreference leads head-word match by more at nominal mentions than at "
        f"all ({reading})",
        how_measured=(
            "lead over head-word match at nominal mentions minus that at all, of one head chosen "
            "on train for all mentions, percentage points, on the same resamples of the dev "
            "documents; holds above 0"
        ),
        above=0,
        threshold_source="paper",
        paper=5,  # Table 2: 58 less 40, less 65 less 52
        unit="points",
        about_training=True,
    )(one_head(type=NOMINAL_MINUS_ALL, against="head match"))

by_type = partial(held_out_margin, candidates="mentions", chosen_for=OWN_TYPE)
claim(
    "4.3",
    "The best head for nominal mentions leads head-word match by more than the best head for all "
    "mentions does (candidates: other mentions' head words)",
    how_measured=(
        "lead over head-word match at nominal mentions, with the head that is best at these on "
        "train, minus that at all, on the same resamples of the dev documents; holds above "
        "0; the paper has one head"
    ),
    above=0,
    threshold_source="paper",
    unit="points",
    about_training=True,
)(by_type(type=NOMINAL_MINUS_ALL, against="head match"))
claim(
    "4.3",
    "A head finds more antecedents of nominal mentions that string match cannot find than the "
    "nearest mention does (candidates: other mentions' head words)",
    how_measured=(
        "head minus nearest mention, on the dev documents, at nominal mentions whose head "
        "word no earlier mention has, head that is best at these on train; holds above 0"
    ),
    above=0,
    threshold_source="paper",
    unit="points",
    about_training=True,
)(by_type(type="nominal without match", against="nearest mention"))
