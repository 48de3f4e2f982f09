"""How far an automatic parse agrees with a gold tree of another annotation scheme."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import pandas as pd

from helpers.analysis.relations import ALL, relation_table, scheme_of
from helpers.data.records import Sentence
from helpers.data.silver_treebank import parse_words
from helpers.errors import InputError

COMPARABLE = "same conventions"


class _Word(NamedTuple):
    relation: str
    comparable: bool
    agrees: bool
    inverted: bool
    silver_relation: str


def silver_quality(treebank: Iterable[Sentence], *, minimum: int = 1) -> pd.DataFrame | None:
    """Compare spaCy's parses with the dev trees of a treebank; None if those are not UD's."""
    gold = [sentence for sentence in treebank if sentence.split == "dev"]
    if scheme_of({name for tree in gold for name in tree.relations}) != "ud":
        return None
    parses = parse_words([tree.words for tree in gold])
    silver = [
        replace(tree, heads=tuple(parse.heads), relations=tuple(parse.relations))
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
    alike = (known["scheme"] == "ud") & (known["attachment"] == "same")
    same = frozenset(known["relation"][alike])
    words: list[_Word] = []
    for index, (tree, parse) in enumerate(_pairs(gold, silver)):
        if tree.words != parse.words:
            raise InputError(
                f"sentence {index} ({tree.source}) has other words in the parse; "
                "parse the words of the gold tree as they are"
            )
        words.extend(_compare(tree, parse, same))
    if not words:
        raise InputError("no sentence to compare; expected a gold treebank and its parse")
    sizes = Counter(word.relation for word in words)
    groups = {ALL: words, COMPARABLE: [word for word in words if word.comparable]}
    groups |= {
        name: [word for word in words if word.relation == name]
        for name, size in sizes.most_common()
        if size >= minimum
    }
    return pd.DataFrame([_row(name, group) for name, group in groups.items()])


def _pairs(
    gold: Iterable[Sentence], silver: Iterable[Sentence]
) -> Iterable[tuple[Sentence, Sentence]]:
    try:
        yield from zip(gold, silver, strict=True)
    except ValueError as error:
        raise InputError("the gold treebank and its parse differ in length") from error


def _compare(tree: Sentence, parse: Sentence, same: Collection[str]) -> Iterable[_Word]:
    has_copula = {
        head for head, name in zip(tree.heads, tree.relations, strict=True) if name == "cop"
    }
    for position, (head, relation) in enumerate(
        zip(tree.heads, tree.relations, strict=True), start=1
    ):
        yield _Word(
            relation,
            relation in same and position not in has_copula and head not in has_copula,
            parse.heads[position - 1] == head,
            head > 0 and parse.heads[head - 1] == position,
            parse.relations[position - 1],
        )


def _row(name: str, words: Sequence[_Word]) -> dict[str, object]:
    comparable = [word for word in words if word.comparable]
    return {
        "relation": name,
        "count": len(words),
        "comparable": len(comparable),
        "attachment": _percent([word.agrees for word in words]),
        "attachment_comparable": _percent([word.agrees for word in comparable]),
        "inverted": _percent([word.inverted for word in words]),
        "silver_relation": max(
            Counter(word.silver_relation for word in words).items(),
            key=lambda item: item[1],
            default=("", 0),
        )[0],
    }


def _percent(flags: Sequence[bool]) -> float:
    return 100 * sum(flags) / len(flags) if flags else float("nan")
