"""The links of a record: which words are right for which word, according to its annotation.

A link is asked about a word: the parent of a dependent (section 4.2), its partners in pairs of any
relation, or the antecedents of a mention (section 4.3).  `read_links` makes the links of a record
once, as arrays, whichever annotation the record has.

Pairs of any relation come from a file with one JSON object per line, which has the words of a
sentence and its pairs::

    {"words": ["She", "reads", "books"], "pairs": [[0, 1, "nsubj"], [2, 1, "obj"]]}

A pair has a dependent, a parent and a label; words are counted from 0.  A word that is paired with
itself is a root, which no pick finds.  A word may have several partners, and a pick is right if it
is any of them.  Optional are ``document``, a name, and ``tags``, a class for each word or null.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int, Shaped

from helpers.data.records import Pair, PairedText, Record
from helpers.data.text_files import clean_word, lines, plain_name
from helpers.errors import CorpusError

COREFERENCE = "coreference"  # the only relation of a coreference corpus
# Names that tables give to rows of their own; "root" is one, too, of a word that has no parent.
RESERVED = frozenset({"All", "every relation", COREFERENCE})
ROOT = "root"
POSSESSIVE_RELATIONS = frozenset({"poss", "nmod:poss"})
NO_MENTION = -1
EXPECTED_LINE = (
    'expected one JSON object per line, such as {"words": ["She", "reads"], '
    '"pairs": [[0, 1, "nsubj"]], "document": "d1", "tags": ["PRON", null]}'
)
Link = tuple[str, int, int, np.ndarray, np.ndarray, int]  # a row of each field of `Links`
LINK_TYPES = (object, int, int, bool, bool, int)


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
    columns = list(zip(*links, strict=True)) or [()] * len(LINK_TYPES)
    relation, word, query, gold, candidates, mention = map(np.array, columns, LINK_TYPES)
    shape = (len(links), len(record.get("words", ())))
    return Links(relation, word, query, gold.reshape(shape), candidates.reshape(shape), mention)


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
    plain = re.sub(r"( \(label\))+$", "", name)  # "All (label)" could be a label, too
    is_root_of_another = plain.lower() == ROOT and word != parent
    return f"{name} (label)" if plain in RESERVED or is_root_of_another else name


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


def read_pairs(path: Path, counts: Counter[str]) -> Iterator[PairedText]:
    """Yield the sentences of a file of pairs that have one, in order, without a split.

    Parameters
    ----------
    path : Path
        The file.
    counts : Counter
        Receives the numbers of words that were changed, and of sentences without a pair.

    Raises
    ------
    CorpusError
        With the line, for what breaks the format, and if no sentence has a pair.
    """
    n_texts = 0
    for number, line in lines(path):
        if not line.strip():
            continue
        try:
            text = _read_object(line)
            pairs = dict.fromkeys(read_pair(pair, len(text["words"])) for pair in text["pairs"])
        except (ValueError, TypeError, RecursionError) as error:
            problem = f"this line cannot be read ({error})"
            raise CorpusError(path, f"{problem}; {EXPECTED_LINE}", number) from error
        if not pairs:
            counts["sentences dropped: no pair"] += 1
            continue
        n_texts += 1
        document = f", document {text['document']}" if text["document"] else ""
        words = tuple(clean_word(form, counts) for form in text["words"])
        source = f"{plain_name(path)}{document}, sentence {number}"
        yield PairedText(words, tuple(pairs), "", source, tuple(text["tags"]))
    if not n_texts:
        raise CorpusError(path, f"has no sentence with a pair; {EXPECTED_LINE}")


def _read_object(line: str) -> dict[str, Any]:
    """Read the JSON object of a line; ValueError for one with other fields than the format has."""
    text = {"document": "", "tags": [], **json.loads(line)}
    types = {name: type(value) for name, value in text.items()}
    if types != {"document": str, "tags": list, "words": list, "pairs": list}:
        raise ValueError("other fields, or fields of another type")
    if set(map(type, text["words"])) != {str}:
        raise ValueError("no words, or a word is no text")
    if len(text["tags"]) not in (0, len(text["words"])):
        raise ValueError("not a tag for each word")
    if not set(map(type, text["tags"])) <= {str, type(None)}:
        raise ValueError("a tag is neither text nor null")
    return text


def read_pair(pair: Any, n_words: int) -> Pair:
    """Check a pair of words and its label.

    Parameters
    ----------
    pair : list
        Dependent, parent and label.
    n_words : int
        Number of words of the sentence.

    Returns
    -------
    (int, int, str)

    Raises
    ------
    ValueError
        With the problem and the remedy, for words that the sentence does not have, or another form.
    """
    if not (isinstance(pair, (list, tuple)) and len(pair) == 3):
        raise ValueError(f"the pair {pair!r} is not [dependent, parent, label]")
    dependent, parent, label = pair
    if not (isinstance(label, str) and label.strip()):
        raise ValueError(f"the pair {pair!r} has no label")
    for index in (dependent, parent):
        if type(index) is not int or not 0 <= index < n_words:
            words = f"whole numbers from 0 to {n_words - 1}"
            raise ValueError(f"the pair {list(pair)} has the word {index!r}; words are {words}")
    return dependent, parent, label


def describe_record(record: Record) -> str:
    """Write a segment, sentence or document of a store as text, as the model reads it.

    Parameters
    ----------
    record : dict
        A line of ``examples.jsonl``: ``store.record(0)`` is the first.

    Returns
    -------
    str
        One line: the source, at most 60 tokens or words, and the first links of its annotation, as
        in ``nsubj: She > reads``.
    """
    words = record["words"] if "words" in record else record["tokens"]
    ending = " ..." if len(words) > 60 else ""
    links = read_links(record)
    pieces = []
    for relation, word, gold in zip(links.relation, links.word, links.gold, strict=True):
        answers = " or ".join(words[index] for index in np.flatnonzero(gold))
        pieces.append(f"{relation}: {words[word]} > {answers or 'none'}")
    source = record.get("title") or record.get("source") or "text"
    annotation = f" ({'; '.join(pieces[:20])})" if pieces else ""
    return f"{source}: {' '.join(words[:60])}{ending}{annotation}"
