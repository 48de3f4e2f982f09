"""The paper's numbers, and its names of relations.

Numbers are in ``paper.toml``.  The paper's scheme is Stanford Dependencies; ``relations.csv``
compares CLEAR (spaCy) and Universal Dependencies with it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

ALL = "All"
EVERY_RELATION = "every relation"  # the words of all relations together
UAS_WITHOUT_PUNCTUATION = "UAS without punctuation"
UUAS = "UUAS"
COMPARED = (UAS_WITHOUT_PUNCTUATION, UUAS)  # the metrics of Table 3
FIGURE_5 = ("dobj", "det", "pobj", "poss", "auxpass")  # the relations of that figure
HERE = Path(__file__).parent
ONLY_IN_UD = frozenset({"obj", "obl", "nsubj:pass", "aux:pass", "nmod:poss", "flat"})
BROAD = 0.78  # of the entropy of uniform attention: 3.8 nats at 128 tokens


@cache
def printed_numbers() -> dict[str, dict[str, Any]]:
    """Read what the paper prints, as in ``paper.toml``: by table or figure, and by row.

    A number has the decimals that the paper prints: 27 is an integer, and 40.0 is none.
    """
    return tomllib.loads((HERE / "paper.toml").read_text(encoding="utf-8"))


def paper_numbers() -> dict[str, float]:
    """List the paper's numbers by name, such as "table1.det.accuracy" or "table3.Attn"."""
    by_name = pd.json_normalize(printed_numbers(), sep=".").iloc[0]
    return {name: value for name, value in by_name.items() if pd.api.types.is_number(value)}


@cache
def paper_table1() -> pd.DataFrame:
    """Read Table 1 (BERT-base uncased, WSJ, Stanford Dependencies): accuracies in percent.

    Returns
    -------
    DataFrame
        Indexed by relation; columns ``head``, ``accuracy``, ``baseline`` and ``baseline_offset``.
        The figures are as printed, also where the released Syntax_Analysis.ipynb has others
        (auxpass), which are in ``notebook_accuracy`` and ``notebook_baseline``.
    """
    table = pd.DataFrame.from_dict(printed_numbers()["table1"], orient="index")
    return table.rename_axis("row")


def paper_table2() -> pd.DataFrame:
    """Read Table 2 (CoNLL-2012): accuracies in percent.

    Returns
    -------
    DataFrame
        A row for each system, a column for each mention type.  The paper calls the neural system
        (Wiseman et al. 2015) only roughly comparable, because it reads whole documents and finds
        its own mentions.
    """
    table = pd.DataFrame.from_dict(printed_numbers()["table2"], orient="index", dtype=float)
    return table.rename_axis("row")


def paper_table3() -> dict[str, float | int]:
    """Read Table 3 (Penn Treebank, without punctuation): UAS or UUAS in percent, by probe."""
    return printed_numbers()["table3"]


@cache
def relation_table() -> pd.DataFrame:
    """Read how CLEAR (spaCy) and Universal Dependencies compare with the paper's scheme.

    Returns
    -------
    DataFrame
        ``paper`` is the Stanford relation with the same meaning, if any; ``fit`` grades the match
        ("exact", "close" or "rough") and ``note`` explains it.  ``attachment`` (UD only) compares
        the syntactic head of the word with CLEAR's: "same", "inverted" (the relation runs the other
        way) or "differs".
    """
    return pd.read_csv(HERE / "relations.csv", keep_default_na=False)


@cache
def relation_ends() -> dict[str, tuple[str, str]]:
    """Read names of the dependent and its parent, for the paper's and the commonest relations."""
    table = pd.read_csv(HERE / "relation_ends.csv", index_col="relation")
    return dict(zip(table.index, table.itertuples(index=False, name=None), strict=True))


def scheme_of(relations: Collection[str]) -> str:
    """Recognise the scheme of a treebank's relation names: "stanford", "clear" or "ud"."""
    names = set(relations)
    if names & ONLY_IN_UD:
        return "ud"
    # Stanford has nsubjpass, npadvmod and a root of its own, but neither of these two.
    if names & {"compound", "relcl"} or ("ROOT" in names and not names & {"nn", "rcmod"}):
        return "clear"
    return "stanford"


def paper_names(relations: Collection[str]) -> dict[str, str]:
    """Translate relation names into the paper's, for those that have one; ``All`` stays itself."""
    scheme = scheme_of(relations)
    if scheme == "stanford":
        return dict(zip(relations, relations, strict=True))
    rows = relation_table().query("scheme == @scheme and paper != ''")
    translations = dict(zip(rows["relation"], rows["paper"], strict=True))
    translations[ALL] = ALL
    return {name: translations[name] for name in relations if name in translations}
