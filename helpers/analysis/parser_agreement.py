"""How far an automatic parse agrees with a gold tree of another annotation scheme."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator

import numpy as np
import pandas as pd

from helpers.analysis.relations import ALL, relation_table, scheme_of
from helpers.data.records import Sentence
from helpers.data.silver_treebank import parse_words
from helpers.errors import InputError

COMPARABLE = "same conventions"


def silver_quality(treebank: Iterable[Sentence], *, minimum: int = 1) -> pd.DataFrame | None:
    """Compare spaCy's parses with the dev trees of a treebank; None if those are not UD's."""
    gold = [sentence for sentence in treebank if sentence.split == "dev"]
    if scheme_of({name for tree in gold for name in tree.relations}) != "ud":
        return None
    parses = parse_words([tree.words for tree in gold])
    silver = [
        tree._replace(heads=tuple(parse.heads), relations=tuple(parse.relations))
        for tree, parse in zip(gold, parses, strict=True)
    ]
    return attachment_agreement(gold, silver, minimum=minimum)


def attachment_agreement(
    gold: Iterable[Sentence], silver: Iterable[Sentence], *, minimum: int = 1
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

    Raises:
        InputError: the two do not have the same sentences, word for word.
    """
    known = relation_table()
    same = set(known["relation"][(known["scheme"] == "ud") & (known["attachment"] == "same")])
    try:
        pairs = list(zip(gold, silver, strict=True))
    except ValueError as error:
        raise InputError("the gold treebank and its parse differ in length") from error
    rows: list[tuple[str, bool, bool, bool, str]] = []
    for index, (tree, parse) in enumerate(pairs):
        if tree.words != parse.words:
            raise InputError(
                f"sentence {index} ({tree.source}) has other words in the parse; "
                "parse the words of the gold tree as they are"
            )
        rows += _compared(tree, parse, same)
    if not rows:
        raise InputError("no sentence to compare; expected a gold treebank and its parse")
    columns = ["relation", "comparable", "agrees", "inverted", "silver_relation"]
    words = pd.DataFrame(rows, columns=columns)
    groups = {ALL: words, COMPARABLE: words[words["comparable"]]}
    groups |= {
        name: words[words["relation"] == name]
        for name, size in Counter(words["relation"]).most_common()
        if size >= minimum
    }
    return pd.DataFrame([_row(name, group) for name, group in groups.items()])


def _compared(
    tree: Sentence, parse: Sentence, same: Collection[str]
) -> Iterator[tuple[str, bool, bool, bool, str]]:
    arcs = list(zip(tree.heads, tree.relations, strict=True))
    has_copula = {head for head, name in arcs if name == "cop"}
    for word, (head, name) in enumerate(arcs, start=1):
        yield (
            name,
            name in same and not {word, head} & has_copula,
            parse.heads[word - 1] == head,
            head > 0 and parse.heads[head - 1] == word,
            parse.relations[word - 1],
        )


def _row(name: str, words: pd.DataFrame) -> dict[str, object]:
    def percent(flags: pd.Series) -> float:
        return 100 * flags.sum() / len(flags) if len(flags) else np.nan

    names = Counter(words["silver_relation"]).most_common(1) or [("", 0)]
    return {
        "relation": name,
        "count": len(words),
        "comparable": words["comparable"].sum(),
        "attachment": percent(words["agrees"]),
        "attachment_comparable": percent(words["agrees"][words["comparable"]]),
        "inverted": percent(words["inverted"]),
        "silver_relation": names[0][0],
    }
