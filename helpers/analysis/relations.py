"""Dependency relations of other schemes in the paper's terms: Stanford Dependencies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import Literal

import pandas as pd

Scheme = Literal["stanford", "clear", "ud"]

ALL = "All"
FIGURE_5 = ("dobj", "det", "pobj", "poss", "auxpass")  # the relations that it shows
HERE = Path(__file__).parent
# Relations that only one scheme has.
ONLY_IN = {
    "ud": frozenset({"obj", "obl", "nsubj:pass", "aux:pass", "nmod:poss", "flat"}),
    "clear": frozenset({"compound", "nsubjpass", "relcl", "ROOT", "npadvmod", "nummod"}),
}


@cache
def relation_table() -> pd.DataFrame:
    """Return how CLEAR (spaCy) and Universal Dependencies compare with the paper's scheme.

    One row per scheme and relation.  ``paper`` is the Stanford relation that stands for the same
    thing, empty where there is none; ``fit`` says how well ("exact", "close", "rough"), and
    ``note`` where they part.  ``attachment`` (UD only) compares the head that the word gets with
    CLEAR's: "same", "inverted" (CLEAR's arc runs the other way), "differs".
    """
    return pd.read_csv(HERE / "relations.csv", keep_default_na=False)


def scheme_of(relations: Collection[str]) -> Scheme:
    """Tell which scheme a treebank's relation names are from."""
    names = set(relations)
    if names & ONLY_IN["ud"]:
        return "ud"
    # Stanford has nsubjpass, npadvmod and a root of its own, but neither of these two.
    if names & {"compound", "relcl"} or ("ROOT" in names and not names & {"nn", "rcmod"}):
        return "clear"
    return "stanford"


def paper_names(relations: Collection[str]) -> dict[str, str]:
    """Return the paper's name of each relation that has one; ``All`` stays itself."""
    scheme = scheme_of(relations)
    if scheme == "stanford":
        return {name: name for name in relations}
    table = relation_table()
    rows = table[(table["scheme"] == scheme) & (table["paper"] != "")]
    known = dict(zip(rows["relation"], rows["paper"], strict=True)) | {ALL: ALL}
    return {name: known[name] for name in relations if name in known}


def titles(relations: Collection[str]) -> dict[str, str]:
    """Return `paper_names`, with the relation itself where several share a name."""
    names = paper_names(relations)
    uses = Counter(names.values())
    return {own: name if uses[name] == 1 else own for own, name in names.items()}
