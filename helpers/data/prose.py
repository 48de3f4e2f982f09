"""Paragraphs of running prose among blocks of text, tidied.

A block with a residue of markup that could not be turned into text (``{{``, ``|``, ``<`` ...) is
dropped, as are titles, labels and fragments.  Every pass takes time linear in the text's length.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterable, Iterator

from helpers.data.text_files import one_line

GAP = "\ufffc"  # replaces something on the page that has no text, such as a formula

# Character references over which html.unescape() fails.
_HUGE_REFERENCE = re.compile(r"&#[0-9]{20,}+;?")
# How the punctuation of a paragraph is closed up: ``Ann ( ; 428 )`` becomes ``Ann (428)``.
_TIDYING = (
    (re.compile(r"\[\d{1,3}\]"), ""),  # footnote numbers typed by hand
    (re.compile(r"([(\[]) ?(?:[;,:] ?)*+"), r"\1"),
    (re.compile(r"(?<![ ;,:])(?: ?[;,:])*+ ?([)\]])"), r"\1"),
    (re.compile(r" ?(?:\(\)|\[\])"), ""),
    (re.compile(r" ([,;:.!?])(?=[\s\"”)]|$)"), r"\1"),
    (re.compile(r",(?: ?,)++"), ","),
    (re.compile(r"[,;:] ?(?=[.;](?:\s|$))"), ""),
    (re.compile(r"(?<=\w)\.\.(?=\s|$)"), "."),
)


_RESIDUE = re.compile(r"\{\{|\}\}|\[\[|\]\]|==|''|\||<|>|I(?<=\bI)SBN\b")
SENTENCE_END = re.compile(r"[.!?…。！？؟।][\"'”’»)\]]{0,3}$")
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W_]++")  # a CJK character counts as a word


def prose(blocks: Iterable[str], counts: Counter[str]) -> Iterator[str]:
    """Yield the paragraphs of running prose among blocks of text, tidied.

    ``counts`` receives the number of blocks, and of those that were dropped, by reason.
    """
    for block in blocks:
        text = tidy(block)
        if not text:
            continue
        counts["paragraphs"] += 1
        reason = why_not_prose(text)
        if reason:
            counts[f"paragraphs dropped: {reason}"] += 1
        else:
            yield text


def why_not_prose(text: str) -> str | None:
    """Give the reason why a cleaned paragraph is not running prose; None if it is."""
    if GAP in text:
        return "formula or other gap"
    if _RESIDUE.search(text):
        return "markup left"
    if len(_WORD.findall(text)) < 10:  # a title, a label or a fragment
        return "fewer than 10 words"
    if not SENTENCE_END.search(text):
        return "no end of sentence"
    if text[0].islower():
        return "no start of sentence"
    if sum(map(str.isalpha, text)) < 0.6 * (len(text) - text.count(" ")):
        return "mostly not letters"
    return None


def unescape(text: str) -> str:
    """Resolve character references such as ``&amp;``."""
    return html.unescape(_HUGE_REFERENCE.sub("\ufffd", text))


def tidy(text: str) -> str:
    """Make one line, with its punctuation closed up (`_TIDYING`)."""
    text = one_line(text)
    for pattern, replacement in _TIDYING:
        text = pattern.sub(replacement, text)
    return text.lstrip(",;:.!? ").strip()
