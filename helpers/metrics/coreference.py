"""Antecedents picked by single attention heads and by rules: Table 2 of the paper (section 4.3).

An antecedent of a mention is an earlier mention of the same chain.  Mentions are ordered by their
first word, then by their last one.  The nearest antecedent is the last one before the mention.

The third sieve of the rules asks whether two mentions agree in number, gender and person, as far as
the words of ``mention_words.csv`` and the endings of nouns show it.  Each attribute has the values
that are possible for a mention.  Two mentions agree if every attribute has a value in common.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache, partial
from itertools import product
from typing import Literal, NamedTuple, get_args

import numpy as np
import pandas as pd
from jaxtyping import Bool

from helpers.data.links import NO_MENTION, Links, ordered_mentions, read_links
from helpers.data.records import Record
from helpers.metrics.head_counts import (
    HeadCounts,
    between_words,
    cached_counts,
    count_rows,
    join_rows,
)
from helpers.metrics.heads import DIRECTIONS, head_label, is_right, picked_words, sees_answer
from helpers.metrics.reference import HERE, paper_table2
from helpers.metrics.statistics import Estimate, Real, ratio
from helpers.progress import progress
from helpers.store.store import Example, Store

# Words that a head can pick: head words of all other mentions, or all other words.
Candidates = Literal["mentions", "words"]
CANDIDATES: tuple[Candidates, ...] = get_args(Candidates)
Attributes = Mapping[str, str]  # by the name of the attribute

MENTION_TYPES = ("pronoun", "proper", "nominal")  # columns of Table 2
UNKNOWN = "unknown"  # the type of a mention whose head word has no tag
# By the head word's tag; any other tag makes a mention nominal.
TYPES_BY_TAG = {"PRON": "pronoun", "PROPN": "proper", None: UNKNOWN, "_": UNKNOWN}
UNMATCHED = "nominal without match"  # no earlier mention has the same head word
TYPES = ("all", *MENTION_TYPES, UNMATCHED)
HEAD = "head"
HELD_OUT = "head of the type (chosen on train, scored on dev)"


def antecedents(store: Store) -> dict[Candidates, HeadCounts]:
    """Let every attention head pick an antecedent for each mention of a store, once (4.3).

    Parameters
    ----------
    store : Store
        Word-level maps of coreference documents.

    Returns
    -------
    dict of str to HeadCounts
        What `count_antecedents` returns for each set of candidates.
    """
    counts: dict[Candidates, HeadCounts] = {}
    for candidates in CANDIDATES:
        documents = progress(store, f"antecedents among {candidates}", unit="document")
        compute = partial(count_antecedents, documents, candidates)
        inputs = {"store": store.key, "candidates": candidates}
        counts[candidates] = cached_counts("antecedents", compute, inputs)
    return counts


def count_antecedents(examples: Iterable[Example], candidates: Candidates) -> HeadCounts:
    """Count the mentions for which every attention head picks an antecedent.

    A head picks the candidate that the mention's head word attends to most.  It is right if that is
    the head word of an earlier mention of the same chain.  The mention's own head word, special
    tokens and words that the layer's mask hides are never candidates.

    Parameters
    ----------
    examples : iterable of Example
        Word-level maps of coreference documents, such as ``Study().coreference_store()``.
    candidates : {"mentions", "words"}
        Words that a head can pick.

    Returns
    -------
    HeadCounts
        A row for each document and each of `TYPES`.  A mention counts in the layers in which it
        sees the head word of an antecedent.  The rivals are each of `RULES`.

    Raises
    ------
    InputError
        If no mention has an antecedent.
    """
    parts = []
    for number, example in enumerate(examples):
        links, types, rules = _judge_rules(example.record)
        if not len(links.word):  # the maps of a document without antecedents are not needed
            continue
        maps, visible = between_words(example)
        allowed = links.candidates
        if candidates == "words":
            allowed = links.query[:, None] != np.arange(links.gold.shape[1])
        picked = picked_words(maps, links.query, candidates=allowed, visible=visible)
        counts = sees_answer(links, visible[:, 0], DIRECTIONS[0])  # [layer, mention]
        by_rules = counts[:, None] & rules
        marks = (counts[None], by_rules[None], is_right(picked, links)[None])  # in one direction
        parts.append(count_rows(example.record, number, types, *marks, example.layer_numbers))
    return join_rows(parts)


def count_rules(records: Iterable[Record]) -> HeadCounts:
    """Count the mentions for which each of `RULES` selects an antecedent.

    As `count_antecedents`, with the rules in place of the heads of one layer.  A rule sees all
    mentions, and has no rivals.
    """
    parts = []
    for number, record in enumerate(records):
        _, types, rules = _judge_rules(record)
        right = rules[None, None]  # [direction, layer, rule, mention]
        all_count = np.ones_like(right[:, :, 0])
        parts.append(count_rows(record, number, types, all_count, right[:, :, :0], right))
    return join_rows(parts)


def _judge_rules(
    record: Record,
) -> tuple[Links, dict[str, Bool[np.ndarray, " mention"]], Bool[np.ndarray, "rule mention"]]:
    """Read the mentions that have an antecedent: links, marks by type, and which rules find one."""
    links = read_links(record)
    is_mention = links.mention != NO_MENTION
    links = Links(*(values[is_mention] for values in links))
    mentions = document_mentions(record) if is_mention.any() else []
    types = []
    has_match = []
    finds = []
    for index in links.mention.tolist():
        picks = {rule: select_antecedent(rule, mentions, index) for rule in RULES}
        chain = mentions[index].chain
        finds.append([pick is not None and pick.chain == chain for pick in picks.values()])
        has_match.append(picks["head match"] is not None)
        types.append(mentions[index].type)
    rows = {"all": np.ones(len(types), bool)}
    rows |= {name: np.array(types) == name for name in MENTION_TYPES}
    rows[UNMATCHED] = rows["nominal"] & ~np.array(has_match, bool)
    return links, rows, np.array(finds, bool).reshape(-1, len(RULES)).T


def best_head(counts: HeadCounts, mention_type: str = "all") -> tuple[int, int]:
    """Find the attention head that picks most antecedents of a type of mention.

    Parameters
    ----------
    counts : HeadCounts
        What `count_antecedents` returns.
    mention_type : str
        One of `TYPES`.  The head for a type without mentions is chosen on mentions of all types.

    Returns
    -------
    layer, head : int
        Indices from 0.
    """
    if not counts.size(mention_type):
        mention_type = "all"
    n_right = counts.by_article(counts.right[:, 0], mention_type).sum(axis=0)  # [layer, head]
    layer, head = np.unravel_index(n_right.argmax(), n_right.shape)
    return int(layer), int(head)


def has_both_splits(counts: HeadCounts) -> bool:
    """Whether a head can be chosen on train and scored on dev."""
    return {"train", "dev"} <= set(counts.split)


def coreference_table(heads: Mapping[Candidates, HeadCounts], rules: HeadCounts) -> pd.DataFrame:
    """Compute Table 2: the accuracy of heads and rules, with intervals over documents.

    There is a row for each system, set of candidates and type of mention.  The systems are the
    rules, the head that is best on all mentions of all documents, as in the paper (5-4 there), and
    the head that is best on the type in train, scored on dev, if both splits exist.  The paper does
    not say whether a head picks among mentions or, as in section 4.1, among all words: the rows of
    both have its figure.

    Parameters
    ----------
    heads : mapping of str to HeadCounts
        What `count_antecedents` returns, by its candidates.
    rules : HeadCounts
        What `count_rules` returns.

    Returns
    -------
    DataFrame
        Columns ``system``, ``head``, ``candidates``, ``type``, ``n`` (mentions; of those of a head,
        the ones that see an antecedent), ``accuracy`` in percent, with a 95% bootstrap interval,
        and ``paper_accuracy``.
    """
    rows = []
    for (index, rule), mention_type in product(enumerate(RULES), TYPES):
        row = {"system": rule, "head": "", "candidates": "earlier mentions", "type": mention_type}
        rows.append(row | _accuracy(rules, mention_type, (0, index)))
    for system, (candidates, counts), mention_type in product(
        (HEAD, HELD_OUT), heads.items(), TYPES
    ):
        if system == HEAD:
            best = best_head(counts)
        elif has_both_splits(counts):
            best = best_head(counts.of_split("train"), mention_type)
            counts = counts.of_split("dev")
        else:
            continue
        rows.append({
            "system": system, "head": head_label(*best, counts.layer_numbers),
            "candidates": candidates, "type": mention_type,
            **_accuracy(counts, mention_type, best),
        })  # fmt: skip
    in_paper = paper_table2().stack().rename("paper_accuracy")
    return pd.DataFrame(rows).join(in_paper, on=["system", "type"])


def _accuracy(counts: HeadCounts, mention_type: str, head: tuple[int, int]) -> dict[str, Real]:
    """Name the columns of the accuracy of a head, or of a rule."""
    right, total = counts.right_of_head(mention_type, (0, *head))
    return {"n": total.sum(), **ratio(right, total).columns("accuracy")}


def coreference_held_out(heads: Mapping[Candidates, HeadCounts]) -> pd.DataFrame:
    """Compute the margin over each rule of the head that is best on train, on the dev documents.

    The head is the one that is best on all mentions, as in the paper.  Head and rule are paired in
    the interval of the margin.

    Parameters
    ----------
    heads : mapping of str to HeadCounts
        What `count_antecedents` returns, by its candidates.

    Returns
    -------
    DataFrame
        Columns ``candidates``, ``head``, ``type``, ``against`` (the rule), ``n`` and ``margin`` in
        percentage points, with a 95% bootstrap interval over documents.  The table is
        empty if the corpus has not both splits.
    """
    rows = []
    for (candidates, counts), (index, rule) in product(heads.items(), enumerate(RULES)):
        if not has_both_splits(counts):
            continue
        best = best_head(counts.of_split("train"))
        dev = counts.of_split("dev")
        for mention_type in TYPES:
            leads, total = dev.leads_of_head(mention_type, (0, *best), index)
            row = {"candidates": candidates, "head": head_label(*best, counts.layer_numbers)}
            row |= {"type": mention_type, "against": rule, "n": total.sum()}
            rows.append(row | ratio(leads, total).columns("margin", df=True))
    names = ["candidates", "head", "type", "against", "n"]
    return pd.DataFrame(rows, columns=[*names, *Estimate(0).columns("margin", df=True)])


class DocumentMention(NamedTuple):
    """A mention of a document, with what the rules compare.

    Attributes
    ----------
    chain : int or None
        Number of the coreference chain; None for a mention without one.
    type : str
        One of `MENTION_TYPES`, or `UNKNOWN`.
    string : list of str
        Words, in lower case.
    head_string : str
        Head word, in lower case.
    attributes : dict of str to str
        Values that its ``number`` ("s", "p"), ``gender`` ("m", "f", "n") and ``person`` can have,
        one letter for each.
    """

    chain: int | None
    type: str
    string: list[str]
    head_string: str
    attributes: Attributes


def document_mentions(record: Record) -> list[DocumentMention]:
    """List the mentions of a document's record (``words``, ``tags``, ``mentions``) in order."""
    words = [word.lower() for word in record["words"]]
    tags = record["tags"]
    mentions = []
    for start, end, chain, head in ordered_mentions(record):
        string = words[start:end]
        values = attributes(string, tags[start:end], head - start)
        mention_type = TYPES_BY_TAG.get(tags[head], "nominal")
        mentions.append(DocumentMention(chain, mention_type, string, words[head], values))
    return mentions


def select_antecedent(
    system: str, mentions: Sequence[DocumentMention], index: int
) -> DocumentMention | None:
    """Select the nearest earlier mention that passes the first sieve that any mention passes.

    Parameters
    ----------
    system : str
        One of `RULES`.
    mentions : sequence of DocumentMention
        Mentions of a document, in order.
    index : int
        The mention that looks for an antecedent.

    Returns
    -------
    DocumentMention or None
        The selected mention; None if no earlier mention passes.
    """
    for sieve in RULES[system]:
        for earlier in reversed(mentions[:index]):
            if sieve(mentions[index], earlier):
                return earlier
    return None


def _same_words(mention: DocumentMention, earlier: DocumentMention) -> bool:
    return mention.string == earlier.string


def _same_head_word(mention: DocumentMention, earlier: DocumentMention) -> bool:
    return mention.head_string == earlier.head_string


def _agree(mention: DocumentMention, earlier: DocumentMention) -> bool:
    """Whether every attribute has a value that both mentions can have."""
    return all(
        set(values) & set(earlier.attributes[name]) for name, values in mention.attributes.items()
    )


def _any_mention(mention: DocumentMention, earlier: DocumentMention) -> bool:
    return True


# The sieves of each baseline, in the order in which they are tried.  Those of the rules are the
# sieves of section 4.3, after Lee et al. (2011).  The paper does not have `MATCH_ELSE_NEAREST`:
# head match finds nothing for most pronouns, so a lead over it says little where pronouns are many.
MATCH_ELSE_NEAREST = "match, else nearest"
RULES = {
    "nearest mention": (_any_mention,),
    "head match": (_same_head_word,),
    MATCH_ELSE_NEAREST: (_same_head_word, _any_mention),
    "rule-based": (_same_words, _same_head_word, _agree, _any_mention),
}

ANY_NUMBER = "sp"


def attributes(words: Sequence[str], tags: Sequence[str | None], head: int) -> Attributes:
    """Derive the attributes of a mention from its words.

    Two nouns joined by "and" are plural.  A common noun that the list does not have is neuter, and
    an unknown name may have any gender.

    Parameters
    ----------
    words, tags : sequence of str
        Words of the mention in lower case, and their universal part-of-speech tags.
    head : int
        Index of the head word in ``words``.

    Returns
    -------
    dict of str to str
        As in `DocumentMention`.
    """
    pronouns = _word_attributes()["pronoun"]
    if len(words) == 1 and words[0] in pronouns:
        return pronouns[words[0]]
    number = _number(words, tags, head)
    return {"number": number, "gender": _gender(words, tags, head), "person": "3"}


def _number(words: Sequence[str], tags: Sequence[str | None], head: int) -> str:
    """Derive the number of a mention."""
    position = head + 1
    while position < len(words) and tags[position] in ("NOUN", "PROPN"):
        position += 1
    # "and" follows the head in "Ann and Bob", but not in "a cup of tea and milk".  The last word
    # cannot join anything.
    is_joined = position + 1 < len(words) and words[position] in ("and", "&")
    word = words[head]
    if is_joined or word in _word_attributes()["plural noun"]:
        return "p"
    if tags[head] == "PROPN":  # names of groups: "the Beatles", "the United Nations"
        return ANY_NUMBER if words[0] == "the" and word.endswith("s") else "s"
    if tags[head] == "NOUN":
        is_singular = not word.endswith("s") or word.endswith(("ss", "us", "is", "ics"))
        return "s" if is_singular else "p"
    return ANY_NUMBER


def _gender(words: Sequence[str], tags: Sequence[str | None], head: int) -> str:
    """Derive the gender of a mention."""
    # The words before a name's head can show its gender: "Mrs Lee", "Ada Lovelace".
    first = 0 if tags[head] == "PROPN" else head
    nouns_and_names = _word_attributes()["noun or name"]
    for word in words[first : head + 1]:
        without_dot = word.rstrip(".")
        if without_dot in nouns_and_names:
            return nouns_and_names[without_dot]["gender"]
    return "n" if tags[head] == "NOUN" else "mfn"


@cache
def _word_attributes() -> Mapping[str, Mapping[str, Attributes]]:
    """Read the attributes of words, by word class and word."""
    table = pd.read_csv(HERE / "mention_words.csv", dtype=str, index_col="kind")
    table["words"] = table["words"].str.split()
    by_word = table.explode("words").set_index("words", append=True)
    return {name: by_word.loc[name].to_dict("index") for name in table.index.unique()}
