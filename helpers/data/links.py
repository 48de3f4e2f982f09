"""The links of a record: which words are right for which word, according to its annotation.

A link is asked about a word: the parent of a dependent (section 4.2), its partners in pairs of any
relation, or the antecedents of a mention (section 4.3).  `read_links` makes the links of a record
once, as arrays, whichever annotation the record has.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int, Shaped

from helpers.data.records import Pair, Record

COREFERENCE = "coreference"  # the only relation of a coreference corpus
# Names that tables give to rows of their own; "root" is one, too, of a word that has no parent.
RESERVED = frozenset({"All", "every relation", COREFERENCE})
ROOT = "root"
POSSESSIVE_RELATIONS = frozenset({"poss", "nmod:poss"})
NO_MENTION = -1
Link = tuple[str, int, int, np.ndarray, np.ndarray, int]  # a row of each field of `Links`


class Links(NamedTuple):
    """The links of a record; words are counted from 0, without special tokens.

    Attributes
    ----------
    relation : array of shape (link,)
        Syntactic relation, label of a pair, or `COREFERENCE`.
    word : int array of shape (link,)
        The dependent, or the head word of a mention.
    query : int array of shape (link,)
        The word from which a head reads the answer.  This is ``word``, or the 's after a possessor
        (``poss``, ``nmod:poss``), as in the released evaluation.
    gold : bool array of shape (link, word)
        The keys that are right: the syntactic head, all partners in pairs of one label, or the head
        words of the antecedents.  A root has none.
    candidates : bool array of shape (link, word)
        The keys that can be picked: the head words of the other mentions, and otherwise all words.
    mention : int array of shape (link,)
        Index of the mention, in the order of `ordered_mentions`; `NO_MENTION` for a pair of words.
    """

    relation: Shaped[np.ndarray, " link"]
    word: Int[np.ndarray, " link"]
    query: Int[np.ndarray, " link"]
    gold: Bool[np.ndarray, "link word"]
    candidates: Bool[np.ndarray, "link word"]
    mention: Int[np.ndarray, " link"]

    @property
    def is_root(self) -> Bool[np.ndarray, " link"]:
        """The links that no word answers."""
        return ~np.any(self.gold, axis=1)


def read_links(record: Record) -> Links:
    """Read the links of a record from its tree, its pairs or its coreference chains.

    Parameters
    ----------
    record : dict
        A record of a store.

    Returns
    -------
    Links
        One for each word and label of its pairs, roots included, in the order of the pairs; then
        one for each mention that has an antecedent, in the order of the mentions.  There are none
        for a record without annotation.
    """
    links = [*_links_of_pairs(record), *_links_of_mentions(record)]
    relation, word, query, gold, candidates, mention = (
        zip(*links, strict=True) if links else [()] * 6
    )
    shape = (len(links), len(record.get("words", ())))
    return Links(
        relation=np.array(relation, dtype=object),
        word=np.array(word, dtype=int),
        query=np.array(query, dtype=int),
        gold=np.array(gold, dtype=bool).reshape(shape),
        candidates=np.array(candidates, dtype=bool).reshape(shape),
        mention=np.array(mention, dtype=int),
    )


def labelled_pairs(record: Record) -> list[Pair]:
    """List the labelled pairs of words of a sentence; a tree has one for each word.

    Parameters
    ----------
    record : dict
        A record with ``pairs``, or with the ``heads`` and ``relations`` of a tree.

    Returns
    -------
    list of (int, int, str)
        Dependent, parent and label, words from 0.  A root is paired with itself.  The list is empty
        if the record has neither.  A label that is a name of the program's own (`RESERVED`, and
        "root" between two words) is changed: "All" is "All (label)".
    """
    pairs = record.get("pairs")
    if pairs is None:
        arcs = zip(record.get("heads", ()), record.get("relations", ()), strict=True)
        pairs = []
        for word, (head, relation) in enumerate(arcs):
            pairs.append((word, head - 1 if head else word, relation))
    return [(word, parent, _label(word, parent, name)) for word, parent, name in pairs]


def _label(word: int, parent: int, name: str) -> str:
    """Tell a label from the names that tables give to rows of their own."""
    is_root_of_another = name.lower() == ROOT and word != parent
    return f"{name} (label)" if name in RESERVED or is_root_of_another else name


def _links_of_pairs(record: Record) -> Iterator[Link]:
    """Yield a link for each word and label of the pairs of a record; that of a root has no gold."""
    partners: dict[tuple[int, str], list[int]] = defaultdict(list)
    for word, parent, label in labelled_pairs(record):
        partners[word, label].append(parent)
    words = record.get("words", ())
    for (word, label), parents in partners.items():
        next_word = words[word + 1] if word + 1 < len(words) else ""
        is_read_from_mark = label in POSSESSIVE_RELATIONS and next_word in ("'s", "s'")
        query = word + is_read_from_mark
        gold = np.zeros(len(words), dtype=bool)
        gold[parents] = True
        gold[word] = False  # a root is paired with itself
        yield label, word, query, gold, np.ones_like(gold), NO_MENTION


def ordered_mentions(record: Record) -> list[list]:
    """List the mentions of a record, ``[start, end, chain, head]``, by first and last word."""
    return sorted(record.get("mentions", []), key=lambda mention: mention[:2])


def _links_of_mentions(record: Record) -> Iterator[Link]:
    """Yield a link for each mention of a document that has an antecedent."""
    mentions = ordered_mentions(record)
    head_words = [head_word for *_, head_word in mentions]
    for number, (_, _, chain, head_word) in enumerate(mentions):
        antecedents = [head for *_, other, head in mentions[:number] if other == chain]
        if chain is not None and antecedents:
            gold = np.zeros(len(record["words"]), dtype=bool)
            candidates = np.zeros_like(gold)
            gold[antecedents] = True
            candidates[head_words] = True
            gold[head_word] = candidates[head_word] = False
            yield COREFERENCE, head_word, head_word, gold, candidates, number
