"""The papers' own numbers, from ``paper*.csv``, and the paper's relations beside other schemes'.

The paper's scheme is Stanford Dependencies; ``relations.csv`` compares CLEAR (spaCy) and Universal
Dependencies with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from pathlib import Path

import pandas as pd

from helpers.data.records import Sentence
from helpers.data.treebank import parse_words

ALL = "All"
UAS_WITHOUT_PUNCTUATION = "UAS without punctuation"
UUAS = "UUAS"
COMPARED = (UAS_WITHOUT_PUNCTUATION, UUAS)  # what Table 3 is in, of the metrics of section 5
FIGURE_5 = ("dobj", "det", "pobj", "poss", "auxpass")  # the relations that it shows
HERE = Path(__file__).parent
ONLY_IN_UD = frozenset({"obj", "obl", "nsubj:pass", "aux:pass", "nmod:poss", "flat"})


def values_of(paper: str) -> dict[str, float]:
    """Return the numbers by name that the paper's "text" or "Table 3" states, or another paper.

    "Kovaleva" and "Niven" are the others.  Those of Table 3 (Penn Treebank, without punctuation)
    are percentages by probe: UAS or UUAS.  What only claims compare with is in ``claims.csv``.
    """
    numbers = pd.read_csv(HERE / "paper.csv", index_col="row")
    return numbers.query("table == @paper")["value"].to_dict()


@cache
def paper_table1() -> pd.DataFrame:
    """Return Table 1 (BERT-base uncased, WSJ, Stanford Dependencies): accuracies in percent.

    Indexed by relation; columns head, accuracy, baseline, baseline_offset, note.  The figures are
    as printed, also where the released Syntax_Analysis.ipynb has others (auxpass).
    """
    return pd.read_csv(HERE / "paper_table1.csv", index_col="row")


def paper_table2() -> pd.DataFrame:
    """Return Table 2 (CoNLL-2012) in percent: a row per system, a column per mention type.

    The paper calls the neural system (Wiseman et al. 2015) only roughly comparable: its documents
    are whole and its mentions its own.
    """
    return pd.read_csv(HERE / "paper_table2.csv", index_col="row").astype(float)


@cache
def relation_table() -> pd.DataFrame:
    """Return how CLEAR (spaCy) and Universal Dependencies compare with the paper's scheme.

    One row per scheme and relation.  ``paper`` is the Stanford relation that stands for the same
    thing, empty where there is none; ``fit`` says how well ("exact", "close", "rough"), and
    ``note`` where they part.  ``attachment`` (UD only) compares the head that the word gets with
    CLEAR's: "same", "inverted" (CLEAR's arc runs the other way), "differs".
    """
    return pd.read_csv(HERE / "relations.csv", keep_default_na=False)


def scheme_of(relations: Collection[str]) -> str:
    """Tell which scheme a treebank's relation names are from: "stanford", "clear" or "ud"."""
    names = set(relations)
    if names & ONLY_IN_UD:
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
    rows = relation_table().query("scheme == @scheme and paper != ''")
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

    The schemes disagree about what a head is (UD attaches a preposition to its noun, CLEAR the
    other way round): over all words, errors mix with conventions.  A word is *comparable* where
    both would give it the same head: its relation is marked "same" in `relation_table`, and
    neither it nor its gold head has a copula, whose place at the top of the clause may move the
    arc.

    Returns:
        One row for "All" words, one for those of "same conventions", then one per gold relation
        with at least ``minimum`` words, most frequent first.  Columns: relation, count,
        comparable (how many of them), attachment (unlabelled, in percent, over all of the row's
        words), attachment_comparable (over the comparable ones), inverted (percent whose gold
        head is attached to the word), silver_relation (what the parse calls them most often).
    """
    same = set(relation_table().query("scheme == 'ud' and attachment == 'same'")["relation"])
    rows = []
    for tree, parse in zip(gold, silver, strict=True):
        arcs = list(zip(tree.heads, tree.relations, strict=True))
        has_copula = {head for head, name in arcs if name == "cop"}
        for word, (head, name) in enumerate(arcs, start=1):
            comparable = name in same and not {word, head} & has_copula
            agrees = parse.heads[word - 1] == head
            inverted = head > 0 and parse.heads[head - 1] == word
            rows.append((name, comparable, agrees, inverted, parse.relations[word - 1]))
    columns = ["relation", "comparable", "agrees", "inverted", "silver_relation"]
    words = pd.DataFrame(rows, columns=columns)
    groups = {ALL: words, "same conventions": words[words["comparable"]]}
    for name, size in Counter(words["relation"]).most_common():
        if size >= minimum:
            groups[name] = words[words["relation"] == name]
    return pd.DataFrame(
        {
            "relation": name,
            "count": len(own),
            "comparable": own["comparable"].sum(),
            "attachment": 100 * own["agrees"].mean(),
            "attachment_comparable": 100 * own["agrees"][own["comparable"]].mean(),
            "inverted": 100 * own["inverted"].mean(),
            "silver_relation": next(iter(dict(Counter(own["silver_relation"]).most_common(1))), ""),
        }
        for name, own in groups.items()
    )
