"""The atlas of heads: what each attention head does, in a few words, and its strongest numbers."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd

from helpers.metrics import rows_of_model
from helpers.metrics.clustering import THRESHOLDS, coreference_head
from helpers.metrics.heads import DIRECTIONS, head_label
from helpers.metrics.reference import BROAD, paper_names, relation_ends

HEAD = ["layer", "head"]
# The tables with one row per head, and the columns of each that the atlas has.
SOURCES = {
    "relative_position": ["previous", "current", "next"],
    "token_types": ["cls", "sep", "first", "punctuation"],
    "entropy": ["entropy", "uniform"],
    "repeated_tokens": ["same", "after_same"],
}
RELATION_COLUMNS = (
    "relation", "direction", "among", "nearest", "lead", "lead_low", "lead_high", "coreference",
)  # fmt: skip
COLUMNS = (
    *HEAD, "kind", "name", "number", *chain.from_iterable(SOURCES.values()), *RELATION_COLUMNS,
)  # fmt: skip
# Kinds of heads, in the order in which they are tried.
KINDS = (
    "relation", "coreference", "induction", "same token", "position", "special token",
    "punctuation", "broad", "mixed",
)  # fmt: skip
RELATION, COREFERENCE, INDUCTION, SAME, POSITION, SINK, PUNCTUATION, BROAD_HEAD, MIXED = KINDS
OF_REPEATED = 0.3  # share of the attention from a repeated token; random weights have up to 0.04
NO_NAME = "–"
# Kinds and names by what a share of attention goes to; the names of special tokens are the model's.
POSITIONS = {"previous": "previous token", "current": "itself", "next": "next token"}
KIND_OF_TARGET = dict.fromkeys(POSITIONS, POSITION) | {"punctuation": PUNCTUATION}


def head_atlas(
    tables: Mapping[str, pd.DataFrame],
    special_tokens: Mapping[str, str | None],
    heads_of_relations: pd.DataFrame,
) -> pd.DataFrame:
    """Name every attention head of a run, and collect its numbers.

    The name is the first of these that is true of the head:

    1. ``relation``: among the words of one part of speech, it finds more partners than the nearest
       word of that part of speech does, on the same words of dev, and the lower bound of the
       difference is above zero (`helpers.metrics.tags_and_places.class_heads`).  "object to verb"
       attends from a dependent to its parent, "verb to object" from the parent to the dependent.
    2. ``coreference``: it is the best head of coreference, and its accuracy is above that of
       matching head words, with the whole 95% interval.
    3. ``induction``, ``same token``: from a token that occurred before, it gives `OF_REPEATED` to
       the token after that occurrence, or to the occurrence (`repeated_tokens.csv`).
    4. ``position``: at least half of its attention goes to the previous, the same or the next
       token.
    5. ``special token``, ``punctuation``: at least 60% go to [CLS], to [SEP] or the first token,
       or to periods and commas.
    6. ``broad``: its entropy is at least `BROAD` times that of uniform attention.
    7. ``mixed``: none of these; its number is the largest share of its attention.

    Thresholds are those of Figure 6 (`helpers.metrics.clustering.THRESHOLDS`).

    Parameters
    ----------
    tables : mapping of str to DataFrame
        The tables of a run: those of `SOURCES` and ``coreference``, as far as it has them.
    special_tokens : mapping of str to str or None
        The model's tokens for [CLS] ("cls") and [SEP] ("sep").
    heads_of_relations : DataFrame
        For each head, the relation that it does best (`tags_and_places.class_heads`), and its
        accuracy on ``coreference``.

    Returns
    -------
    DataFrame
        A row for each head: ``layer`` and ``head`` (from 1), ``kind`` (one of `KINDS`), ``name``,
        ``number`` (a text: "81% (nearest 74%)" are the accuracies of the head among the words of a
        class and of the nearest of them), and the columns of `SOURCES` and `RELATION_COLUMNS`.
        Cells are empty if the run lacks the table.
    """
    merged = heads_of_relations.filter([*HEAD, *RELATION_COLUMNS])
    for name, columns in SOURCES.items():
        if name in tables:
            by_head = rows_of_model(tables[name]).filter([*HEAD, *columns])
            merged = merged.merge(by_head, on=HEAD, how="outer")
    heads = merged.reindex(columns=COLUMNS)  # an outer merge is in the order of the heads
    relations = set(heads["relation"].dropna())
    if "dependency_heads" in tables:  # more names tell more surely which scheme it is
        relations |= set(tables["dependency_heads"]["relation"])
    names = paper_names(relations) if relations else {}
    antecedents = coreference_head(tables)
    targets = POSITIONS | {role: token for role, token in special_tokens.items() if token}
    targets["first"] = "first token"
    named = [_name(row, names, targets, antecedents) for row in heads.to_dict("records")]
    heads[["kind", "name", "number"]] = pd.DataFrame(named, index=heads.index, columns=range(3))
    return heads


def _name(
    head: Mapping[Any, Any],
    relations: Mapping[str, str],
    targets: Mapping[str, str],
    antecedents: str,
) -> tuple[str, str, str]:
    """Name a head: its kind, its name and its strongest number.

    ``relations`` has the paper's names of relations, ``targets`` those of what a share of attention
    goes to, and ``antecedents`` the label of the head of coreference.
    """
    if head["lead_low"] > 0:
        number = f"{head['among']:.0f}% (nearest {head['nearest']:.0f}%)"
        return RELATION, _relation_name(head, relations), number
    if head_label(head["layer"] - 1, head["head"] - 1) == antecedents:
        return COREFERENCE, "mention to antecedent", f"{head['coreference']:.0f}%"
    for name, column in ((INDUCTION, "after_same"), (SAME, "same")):
        if head[column] >= OF_REPEATED:
            return name, name, f"{head[column]:.0%}"
    shares = {name: head[name] for name in THRESHOLDS if head[name] > 0}
    for name, share in shares.items():
        if share >= THRESHOLDS[name]:
            return KIND_OF_TARGET.get(name, SINK), targets.get(name, name), f"{share:.0%}"
    if head["entropy"] >= BROAD * head["uniform"]:
        return BROAD_HEAD, "broad", f"{np.exp(head['entropy']):.0f} tokens"
    if not shares:
        return MIXED, NO_NAME, ""
    largest = max(shares, key=shares.__getitem__)
    return MIXED, NO_NAME, f"{shares[largest]:.0%} {targets.get(largest, largest)}"


def _relation_name(head: Mapping[Any, Any], relations: Mapping[str, str]) -> str:
    """Name a relation by its ends, in the direction in which the head attends."""
    relation = head["relation"]
    ends = relation_ends().get(relations.get(relation, relation), (relation, "parent"))
    attends, attended = ends if head["direction"] == DIRECTIONS[0] else reversed(ends)
    return f"{attends} to {attended}"
