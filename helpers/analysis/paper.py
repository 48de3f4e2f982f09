"""The papers' own numbers, from ``paper.csv``, and the paper's relations beside other schemes'.

The paper's scheme is Stanford Dependencies; ``relations.csv`` compares CLEAR (spaCy) and Universal
Dependencies with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Literal

import pandas as pd

from helpers.data.records import Sentence
from helpers.data.silver_treebank import parse_words

Scheme = Literal["stanford", "clear", "ud"]

ALL = "All"
UAS_WITHOUT_PUNCTUATION = "UAS without punctuation"
UUAS = "UUAS"
COMPARED = (UAS_WITHOUT_PUNCTUATION, UUAS)  # what Table 3 is in, of the metrics of section 5
FIGURE_5 = ("dobj", "det", "pobj", "poss", "auxpass")  # the relations that it shows
HERE = Path(__file__).parent
# Relations that only one scheme has.
ONLY_IN = {
    "ud": frozenset({"obj", "obl", "nsubj:pass", "aux:pass", "nmod:poss", "flat"}),
    "clear": frozenset({"compound", "nsubjpass", "relcl", "ROOT", "npadvmod", "nummod"}),
}
COMPARABLE = "same conventions"
COLUMNS = ["relation", "comparable", "agrees", "inverted", "silver_relation"]


@cache
def _numbers() -> pd.DataFrame:
    return pd.read_csv(HERE / "paper.csv")


def _rows(table: str) -> pd.DataFrame:
    return _numbers()[_numbers()["table"] == table]


@cache
def values_of(paper: str) -> dict[str, float]:
    """Return the numbers by name that the paper's "text" or "Table 3" states, or another paper.

    "Kovaleva", "Michel" and "Niven" are the others.  Those of Table 3 (Penn Treebank, without
    punctuation) are percentages by probe: UAS or UUAS.
    """
    rows = _rows(paper)
    return dict(zip(rows["row"], rows["value"].astype(float), strict=True))


@cache
def paper_table1() -> pd.DataFrame:
    """Return Table 1 (BERT-base uncased, WSJ, Stanford Dependencies): accuracies in percent.

    Indexed by relation; columns head, accuracy, baseline, baseline_offset.  The figures are as
    printed, also where the authors' notebook has others (auxpass: 94.1 against 82.5).
    """
    table = _table("Table 1")
    return table.astype({"accuracy": float, "baseline": float, "baseline_offset": int})


@cache
def paper_table2() -> pd.DataFrame:
    """Return Table 2 (CoNLL-2012) in percent: a row per system, a column per mention type.

    The paper calls the neural system (Wiseman et al. 2015) only roughly comparable: its documents
    are whole and its mentions its own.
    """
    return _table("Table 2").astype(float)


def _table(name: str) -> pd.DataFrame:
    rows = _rows(name)
    wide = rows.pivot(index="row", columns="column", values="value")
    return wide.loc[rows["row"].unique(), rows["column"].unique()].rename_axis(None, axis=1)


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


def silver_quality(treebank: Iterable[Sentence], *, minimum: int = 1) -> pd.DataFrame | None:
    """Compare spaCy's parses with the dev trees of a treebank; None if those are not UD's."""
    gold = [sentence for sentence in treebank if sentence.split == "dev"]
    if scheme_of({name for tree in gold for name in tree.relations}) != "ud":
        return None
    return attachment_agreement(gold, parse_words([tree.words for tree in gold]), minimum=minimum)


def attachment_agreement(
    gold: Sequence[Sentence], silver: Sequence[Sentence], *, minimum: int = 1
) -> pd.DataFrame:
    """Compare the heads of a CLEAR parse (spaCy) with those of a Universal Dependencies tree.

    The schemes disagree about what a head is: UD attaches a preposition to its noun and a copula
    to its predicate, CLEAR the other way round, and names, coordination and punctuation differ
    too.  The score over all words therefore mixes errors with conventions.  A word is
    *comparable* where both schemes would give it the same head: its relation is marked "same" in
    `relation_table`, and neither it nor its gold head has a copula, whose place at the top of
    the clause may move the arc.

    Returns:
        One row for "All" words, one for those of "same conventions", then one per gold relation
        with at least ``minimum`` words, most frequent first.  Columns: relation, count,
        comparable (how many of them), attachment (unlabelled, in percent, over all of the row's
        words), attachment_comparable (over the comparable ones), inverted (percent whose gold
        head is attached to the word), silver_relation (what the parse calls them most often).
    """
    known = relation_table()
    same = set(known["relation"][(known["scheme"] == "ud") & (known["attachment"] == "same")])
    rows = []
    for tree, parse in zip(gold, silver, strict=True):
        arcs = list(zip(tree.heads, tree.relations, strict=True))
        has_copula = {head for head, name in arcs if name == "cop"}
        for word, (head, name) in enumerate(arcs, start=1):
            comparable = name in same and not {word, head} & has_copula
            agrees = parse.heads[word - 1] == head
            inverted = head > 0 and parse.heads[head - 1] == word
            rows.append((name, comparable, agrees, inverted, parse.relations[word - 1]))
    words = pd.DataFrame(rows, columns=COLUMNS)
    groups = {ALL: words, COMPARABLE: words[words["comparable"]]}
    for name, size in Counter(words["relation"]).most_common():
        if size >= minimum:
            groups[name] = words[words["relation"] == name]
    return pd.DataFrame([_row(name, group) for name, group in groups.items()])


def _row(name: str, words: pd.DataFrame) -> dict[str, object]:
    called = Counter(words["silver_relation"]).most_common(1)
    return {
        "relation": name,
        "count": len(words),
        "comparable": words["comparable"].sum(),
        "attachment": 100 * words["agrees"].mean(),
        "attachment_comparable": 100 * words["agrees"][words["comparable"]].mean(),
        "inverted": 100 * words["inverted"].mean(),
        "silver_relation": called[0][0] if called else "",
    }
