"""How far an automatic parse agrees with a gold tree of another annotation scheme."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import pandas as pd

from helpers.analysis.relations import ALL, relation_table, scheme_of
from helpers.data.records import Sentence
from helpers.data.silver_treebank import parse_words

COMPARABLE = "same conventions"
COLUMNS = ["relation", "comparable", "agrees", "inverted", "silver_relation"]


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
