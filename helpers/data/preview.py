"""Descriptions of what a run reads: for a dry run, and for the head of a report."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice, pairwise

from helpers.data.links import labelled_pairs
from helpers.data.prose import SENTENCE_END
from helpers.data.records import Record
from helpers.data.text_files import quoted
from helpers.data.wikipedia import Article

PREVIEW_WORDS = 60
NOTED_PARAGRAPHS = 500  # the beginning of a text that its notes are about
# Tags, wiki links and templates, rows of tables, headings of Markdown, LaTeX, character references.
_MARKUP = re.compile(
    r"</?[A-Za-z][^<>]*>|\[\[|\]\]|\{\{|\}\}|^\|.*\||^#{1,6} |\\[a-z]{2,20}\{|&[a-z]{2,10};"
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
        One line: the source and at most `PREVIEW_WORDS` tokens or words.  A word of a sentence has
        its relation and its parent, and mentions of a document are in brackets with their chains.
    """
    if "relations" in record or "pairs" in record:
        pieces = _words_with_partners(record)
    elif "mentions" in record:
        pieces = _words_with_mentions(record)
    else:
        pieces = record["tokens"]
    text = " ".join(pieces[:PREVIEW_WORDS])
    ending = " ..." if len(pieces) > PREVIEW_WORDS else ""
    return f"{record.get('title') or record.get('source') or 'text'}: {text}{ending}"


def _words_with_partners(record: Record) -> list[str]:
    """Write each word of a sentence with its parent or its pairs, as in ``She/nsubj<reads``."""
    pieces = list(record["words"])
    for dependent, parent, label in labelled_pairs(record):
        partner = f"<{record['words'][parent]}" if parent != dependent else ""
        pieces[dependent] += f"/{label}{partner}"
    return pieces


def _words_with_mentions(record: Record) -> list[str]:
    """Write the words of a document with brackets around its mentions, as in ``[Ann]1``."""
    openings: dict[int, str] = defaultdict(str)
    closings: dict[int, str] = defaultdict(str)
    # An outer mention opens before and closes after those inside.
    for start, end, chain, _ in sorted(record["mentions"], key=lambda mention: -mention[1]):
        openings[start] += "["
        closings[end - 1] = f"]{'' if chain is None else chain}{closings[end - 1]}"
    return [
        f"{openings[index]}{word}{closings[index]}" for index, word in enumerate(record["words"])
    ]


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
        if "relations" in record or "pairs" in record:
            used["sentences"] += 1
        elif "mentions" in record:
            used["documents"] += 1
            used["mentions"] += len(record["mentions"])
        else:
            used["segments"] += 1
    n_segments = report.get("segments", 0) - report.get("segments not sampled", 0)
    n_read = {"segments read": n_segments, **report}
    return {
        unit: (count, n_read.get(f"{unit} read") or count) for unit, count in used.items() if count
    }


def describe_used(counts: Mapping[str, tuple[int, int]]) -> str:
    """Write the counts of `count_used` as text, as in "18 of 40 sentences are used"."""
    parts = [f"{used:,} of {read:,} {unit}" for unit, (used, read) in counts.items()]
    return f"{' and '.join(parts)} are used"


def unknown_share(
    records: Iterable[Record], unknown: Collection[str | int], special: Collection[str | int]
) -> float:
    """Compute the share of unknown tokens among the tokens of a text, special tokens excluded.

    Parameters
    ----------
    records : iterable of dict
        The records of a store: ``store.records()``.
    unknown : collection of str and int
        The unknown token of the tokenizer, and its number.
    special : collection of str and int
        The special tokens, and their numbers.  An example's first token is left out in any case,
        because decoders may begin a text with the token that is the unknown one elsewhere.

    Returns
    -------
    float
        From 0 to 1; 0 if there is no token.
    """
    n_unknown = 0
    n_tokens = 0
    for record in records:
        tokens = record["tokens"] if "tokens" in record else record["inputs"]["input_ids"]
        for token in tokens[1:]:
            n_unknown += token in unknown
            n_tokens += token in unknown or token not in special
    return n_unknown / max(n_tokens, 1)


def note_unknown(share: float, name: str) -> str:
    """Write a warning about the share of unknown tokens in a corpus; empty if it is small.

    Parameters
    ----------
    share : float
        The share of `unknown_share`.
    name : str
        Name of the corpus.
    """
    if share < 0.05:
        return ""
    return (
        f"{name}: {share:.0%} of the tokens are unknown to the model, which sees one and the same "
        "token for all of them. Use a model of this language and script; if it is one, compare the "
        "vocabulary with the tokenizer's do_lower_case."
    )


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
    pairs = list(islice(_paragraphs_with_next(articles), NOTED_PARAGRAPHS))
    n_paragraphs = len(pairs)
    n_continued = 0
    for paragraph, following in pairs:
        n_continued += following[:1].islower() and not SENTENCE_END.search(paragraph)
    with_markup = [paragraph for paragraph, _ in pairs if _MARKUP.search(paragraph)]
    notes = []
    if len(with_markup) > 0.05 * n_paragraphs:
        notes.append(
            f"{len(with_markup):,} of the first {n_paragraphs:,} paragraphs have markup, such as "
            f"{quoted(with_markup[0])}. Remove it from the text."
        )
    if n_continued > 0.3 * n_paragraphs:
        notes.append(
            f"{n_continued:,} of the first {n_paragraphs:,} paragraphs end within a sentence, "
            "because each line is taken for one. Put a blank line between paragraphs."
        )
    return notes


def _paragraphs_with_next(articles: Iterable[Article]) -> Iterator[tuple[str, str]]:
    """Yield each paragraph with the next one of its article, which is empty after the last."""
    for article in articles:
        yield from pairwise([*article.paragraphs, ""])
