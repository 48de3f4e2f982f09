"""Descriptions of what a run reads, before it reads it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from itertools import chain, islice
from operator import itemgetter

import numpy as np

from helpers.data.links import labelled_pairs, read_links
from helpers.data.records import Corpus, Record
from helpers.data.text_files import quoted
from helpers.data.wikipedia import Article
from helpers.errors import InputError

# Tags, wiki links and templates, rows of tables, headings of Markdown, LaTeX, character references.
_MARKUP = re.compile(
    r"</?[A-Za-z][^<>]*>|\[\[|\]\]|\{\{|\}\}|^\|.*\||^#{1,6} |\\[a-z]{2,20}\{|&[a-z]{2,10};"
)
# How lines of code and data begin or end, and prose hardly does.
_CODE = re.compile(
    r"^\S*[\\{}<>|=@#~^*_`]|^\[?\d+[-/:]\d"  # a first word with a mark in it, a date, a time
    r"""|["']\s?[,;:|]\s?[\w.]*$|[{}\[\]<>|\\;=]$"""  # a quoted cell before an unquoted one
)


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


def count_used(records: Iterable[Record], report: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Count the records of a store that are used, and those that the reader found.

    Parameters
    ----------
    records : iterable of dict
        The records of a store: ``store.records()``.
    report : Mapping
        What was counted while its corpus was read: ``store.report``.

    Returns
    -------
    dict of str to (int, int)
        The numbers used and read of "segments", of "sentences", or of "documents" and "mentions".
        A sentence over the limit of tokens is read and not used, and so is a mention beyond it.
    """
    used: Counter[str] = Counter()
    for record in records:
        if "mentions" in record:
            used["documents"] += 1
            used["mentions"] += len(record["mentions"])
        else:
            used["sentences" if "words" in record else "segments"] += 1
    n_segments = report.get("segments", 0) - report.get("segments not sampled", 0)
    n_read = {"segments read": n_segments, **report}
    return {unit: (count, n_read.get(f"{unit} read") or count) for unit, count in used.items()}


def describe_used(counts: Mapping[str, tuple[int, int]]) -> str:
    """Write the counts of `count_used` as text, as in "18 of 40 sentences are used"."""
    parts = [f"{used:,} of {read:,} {unit}" for unit, (used, read) in counts.items()]
    return f"{' and '.join(parts)} are used"


def note_unknown(
    records: Iterable[Record], unknown: Collection[str | int], special: Collection[str | int]
) -> str:
    """Write a warning if over a twentieth of the tokens of a corpus are unknown; empty otherwise.

    Parameters
    ----------
    records : iterable of dict
        The records of a store: ``store.records()``.
    unknown : collection of str and int
        The unknown token of the tokenizer, and its number.
    special : collection of str and int
        The special tokens, and their numbers, which do not count.  An example's first token is left
        out in any case, because decoders may begin a text with the token that is the unknown one
        elsewhere.
    """
    n_tokens: Counter[str | int] = Counter()
    for record in records:
        tokens = record["tokens"] if "tokens" in record else record["inputs"]["input_ids"]
        n_tokens.update(tokens[1:])
    n_unknown = sum(n_tokens[token] for token in unknown)
    n_known = sum(n for token, n in n_tokens.items() if token not in {*unknown, *special})
    share = n_unknown / max(n_unknown + n_known, 1)
    if share < 0.05:
        return ""
    problem = f"{share:.0%} of the tokens are unknown to the model"
    remedy = "Use a model of this language and script, and compare its do_lower_case"
    return f"{problem}, which sees one and the same token for all of them. {remedy}."


def note_text(articles: Iterable[Article]) -> list[str]:
    """Describe what is not prose at the beginning of a text: markup, and lines that are wrapped.

    Parameters
    ----------
    articles : iterable of Article
        The documents of the text: ``wikipedia.articles(path)``.

    Returns
    -------
    list of str
        One sentence for the problem and one for the remedy of each; empty for prose.
    """
    all_paragraphs = chain.from_iterable(article.paragraphs for article in articles)
    paragraphs = list(islice(all_paragraphs, 500))
    beginning = f"of the first {len(paragraphs):,} paragraphs"
    with_markup = list(filter(_MARKUP.search, paragraphs))
    with_code = list(filter(_CODE.search, paragraphs))
    n_continued = sum(text[0].islower() for text in paragraphs)
    notes = []
    if len(with_markup) > 0.05 * len(paragraphs):
        problem = f"{len(with_markup):,} {beginning} have markup, such as {quoted(with_markup[0])}."
        notes.append(f"{problem} Remove it from the text.")
    elif len(with_code) > 0.2 * len(paragraphs):
        problem = f"{len(with_code):,} {beginning} begin or end as code or data do,"
        notes.append(f"{problem} such as {quoted(with_code[0])}. Keep the prose only.")
    if n_continued > 0.3 * len(paragraphs):
        problem = f"{n_continued:,} {beginning} begin within a sentence, because each line is one."
        notes.append(f"{problem} Put a blank line between paragraphs.")
    return notes


def check_relations(treebank: Corpus, minimum_count: int) -> None:
    """Raise InputError if no relation has the words that Table 1 asks for."""
    pairs = chain.from_iterable(labelled_pairs(text._asdict()) for text in treebank.records())
    counts = Counter(label for word, parent, label in pairs if word != parent)
    label, count = max(counts.items(), key=itemgetter(1), default=("none", 0))
    if count < minimum_count:
        problem = f"the most frequent relation of {treebank.name}, {label!r}, has {count:,} words"
        raise InputError(f"{problem}; lower --minimum-count to {count}, or use a larger treebank")
