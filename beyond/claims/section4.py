"""Measures of section 4: heads that find relations, and coreference.

Heads and offsets are chosen on train and scored on dev.
"""

from __future__ import annotations

from functools import partial

import pandas as pd

from beyond.claims.tables import (
    UNDER_CAUSAL_MASK,
    Measure,
    NotMeasurable,
    Tables,
    cell,
    estimate_in,
    has_causal_mask,
    rows_of,
    select_or_raise,
    with_bounds,
)
from helpers.metrics.coreference import (
    ALL_MENTIONS,
    MATCH_ELSE_NEAREST,
    NOMINAL_MINUS_ALL,
    OWN_TYPE,
    PAPER_MIX,
)
from helpers.metrics.dependency_heads import (
    DEPENDENTS_SHARE,
    LARGEST_MARGIN_IN_PAPER,
    MEAN_MARGIN,
    MEAN_MARGIN_IN_PAPER,
    SLIGHT_SHARE,
)
from helpers.metrics.nearest_words import EVERY_RELATION, MEAN_LEAD, NOT_ADJACENT
from helpers.metrics.reference import ALL, paper_names, paper_table1
from helpers.metrics.statistics import Estimate, distance_from, exact

LITTLE_CHANGE = 5  # percentage points
TOO_FEW = "the corpus has no words with the relation {}, or too few"
NAMED = ("dobj", "det", "pobj", "poss")  # in the introduction


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
    table = held_out(tables)
    rows = select_or_raise(table, table["paper"] == name, TOO_FEW.format(name))
    return estimate_in(rows.iloc[0], "margin")


def distance_from_offset(tables: Tables, name: str) -> Estimate:
    """Estimate how far a head's accuracy is from that of the best offset, in either direction."""
    return distance_from(margin(tables, name), 0)


def lowest_of_named(tables: Tables) -> Estimate:
    """Find the lowest accuracy of the relations of the introduction."""
    rows = held_out(tables)
    named = rows[rows["paper"].isin(NAMED)]
    missing = set(NAMED) - set(named["paper"])
    if missing:
        raise NotMeasurable(TOO_FEW.format(", ".join(sorted(missing))))
    return estimate_in(named.loc[named["dev_accuracy"].idxmin()], "dev_accuracy")


def share_unaffected_by_special_tokens(tables: Tables) -> Estimate:
    """Compute the share of heads whose accuracy falls by at most `LITTLE_CHANGE` points.

    The change is that of a head that may pick special tokens, too.  The share is exact, because
    these are all heads of the model.
    """
    changes = rows_of(tables, "special_candidates", "layer", "change")["change"]
    if (changes == 0).all():
        raise NotMeasurable("the model's sentences have no special tokens")
    return exact((changes >= -LITTLE_CHANGE).mean())


def share_of_attending_dependents(tables: Tables) -> Estimate:
    """Look up the share of the paper's relations whose dependents attend to their heads."""
    if has_causal_mask(tables):
        raise NotMeasurable(UNDER_CAUSAL_MASK)
    return relation_summary(quantity=DEPENDENTS_SHARE)(tables)


# Makers of measures that read a cell of a table
relation_summary = partial(cell, "relation_summary", "value")
best_head_margin = partial(cell, "coreference_held_out", "margin", chosen_for=ALL_MENTIONS)
among_mentions = partial(best_head_margin, candidates="mentions")
among_words = partial(best_head_margin, candidates="words")
best_of_type_margin = partial(
    cell, "coreference_held_out", "margin", candidates="mentions", chosen_for=OWN_TYPE
)

MEASURES: dict[str, Measure] = {
    # Section 4.2: relations
    "sec4-margin-all-words": partial(distance_from_offset, name=ALL),
    "sec4-margin-mean": relation_summary(quantity=MEAN_MARGIN),
    "sec4-margin-mean-in-paper": relation_summary(quantity=MEAN_MARGIN_IN_PAPER),
    "sec4-margin-over-twenty": relation_summary(quantity=LARGEST_MARGIN_IN_PAPER),
    "sec4-margin-slight": relation_summary(quantity=SLIGHT_SHARE),
    "sec4-margin-dobj": partial(margin, name="dobj"),
    "sec4-margin-det": partial(margin, name="det"),
    "sec4-margin-pobj": partial(margin, name="pobj"),
    "sec4-margin-poss": partial(margin, name="poss"),
    "sec4-margin-auxpass": partial(margin, name="auxpass"),
    "sec4-accuracy-of-four": lowest_of_named,
    "sec4-nearest-of-its-class": relation_summary(quantity=MEAN_LEAD),
    "sec4-nearest-is-not-the-parent": cell("disagreement", "difference", relation=NOT_ADJACENT),
    "sec4-nearest-and-far-parents": cell(
        "accuracy_by_distance", "head_lead", relation=EVERY_RELATION, distance="over 5"
    ),
    "sec4-dependents-attend": share_of_attending_dependents,
    "sec4-possessive-from-s": cell("possessives", "beyond_next_word"),
    "sec4-special-left-out": share_unaffected_by_special_tokens,
    # Section 4.3: coreference
    "sec4-coref-mentions-match-else-nearest": among_mentions(
        type="all", against=MATCH_ELSE_NEAREST
    ),
    "sec4-coref-mentions-head-match-paper-mix": among_mentions(
        type=PAPER_MIX, against="head match"
    ),
    "sec4-coref-mentions-rule-based": among_mentions(type="all", against="rule-based"),
    "sec4-coref-mentions-nominal": among_mentions(type=NOMINAL_MINUS_ALL, against="head match"),
    "sec4-coref-words-head-match": among_words(type="all", against="head match"),
    "sec4-coref-words-head-match-paper-mix": among_words(type=PAPER_MIX, against="head match"),
    "sec4-coref-words-rule-based": among_words(type="all", against="rule-based"),
    "sec4-coref-words-nominal": among_words(type=NOMINAL_MINUS_ALL, against="head match"),
    "sec4-coref-nominal-head": best_of_type_margin(type=NOMINAL_MINUS_ALL, against="head match"),
    "sec4-coref-nominal-without-match": best_of_type_margin(
        type="nominal without match", against="nearest mention"
    ),
}
