"""Conversion of MediaWiki markup to prose paragraphs, in time linear in the length of the page.

Articles are written by strangers, so every pass takes linear time: one over elements, one over
brackets with a bounded stack, one over lines.  Markup that the cleaning cannot turn into prose
stays as a visible residue (``{{``, ``|``, ``<`` ...), and a paragraph with a residue is dropped.

Most templates (citations, boxes, navigation) show nothing inside a sentence.  ``wikitext.json`` has
the few that do, by what they show, where "{first}" and "{last}" are arguments of the template;
those whose text would have to be computed show ``GAP``.
"""

from __future__ import annotations

import html
import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from helpers.data.text_files import one_line

GAP = "\ufffc"  # replaces something on the page that has no text, such as a formula
HIDDEN_PREFIXES = frozenset({"file", "image", "media", "category"})  # links that show no text
TABLES = json.loads(Path(__file__).with_name("wikitext.json").read_text(encoding="utf-8"))
SKIPPED_SECTIONS = frozenset(TABLES["skipped_sections"])
# What each template shows, by its name.
_TEMPLATE_TEXTS = {name: text for text, names in TABLES["templates"].items() for name in names}
_GAP_PREFIXES = ("simplenuclide", "physics", "chem")  # of names of templates
MIN_WORDS = 10  # a shorter paragraph is a title, a label or a fragment

_DROPPED = (
    "ce|chem|gallery|graph|hiero|imagemap|math|poem|pre|ref|references|score|source|"
    "syntaxhighlight|table|timeline"
)
_FORMULAS = ("ce", "chem", "hiero", "math", "score")
# A comment, or an element with its content; one that is never closed goes on to the end.
_ELEMENT = re.compile(
    rf"<!--.*?(?:-->|\Z)|<({_DROPPED})\b[^<>]*+(?:(?<=/)>|>.*?(?:</\1\b[^<>]*+>|\Z))",
    re.IGNORECASE | re.DOTALL,
)
# The bracket of a table is at the beginning of a line.
_BRACKET = re.compile(r"\{\{|\}\}|\[\[|\]\]|^[ :]*+\{\||^[ ]*+\|\}(?!\})", re.MULTILINE)
_CLOSES = {"}}": "{{", "]]": "[[", "|}": "{|"}
MAX_NESTING = 50

_RAISED = str.maketrans("0123456789+-−", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻")
# What is replaced in the text of a page, in this order: external links, tags and switches.
_REPLACEMENTS = (
    (re.compile(r"\[(?:https?:|ftp:|mailto:)?//[^\s\[\]]*+[ ]?([^\[\]\n]*+)\]"), r"\1"),
    (
        re.compile(r"<sup>\s?([-−+]?\d{1,4})\s?</sup>", re.IGNORECASE),
        lambda match: match[1].translate(_RAISED),
    ),
    (re.compile(r"<br\b[^<>]*+>", re.IGNORECASE), " "),
    (re.compile(r"<li\b[^<>]*+>", re.IGNORECASE), "\n*"),
    (
        re.compile(
            r"</?(?:blockquote|center|div|dl|dd|dt|h[1-6]|hr|ol|p|td|th|tr|ul)\b[^<>]*+>",
            re.IGNORECASE,
        ),
        "\n\n",
    ),
    (
        re.compile(
            r"</?(?:abbr|b|bdi|big|cite|code|del|em|font|i|includeonly|ins|kbd|nobr|noinclude|"
            r"nowiki|onlyinclude|q|s|samp|small|span|strong|sub|sup|tt|u|var|wbr)\b[^<>]*+>",
            re.IGNORECASE,
        ),
        "",
    ),
    (re.compile(r"__[A-Z]{3,20}__"), ""),
)
# Character references over which html.unescape() fails.
_HUGE_REFERENCE = re.compile(r"&#[0-9]{20,}+;?")
_APOSTROPHES = re.compile(r"'{2,}+")
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


def paragraphs(wikitext: str, hidden: Collection[str], counts: Counter[str]) -> Iterator[str]:
    """Yield the prose paragraphs of a page, in order.

    Lists, tables, captions, formulas, footnotes and the sections of ``SKIPPED_SECTIONS`` are left
    out.

    Parameters
    ----------
    wikitext : str
        The markup of the page.
    hidden : collection of str
        Lower-case prefixes of links that show no text (files and categories, in the language of
        the dump).
    counts : Counter
        Receives the numbers of paragraphs and lines that were dropped, by reason.
    """
    yield from prose(_blocks(plain(wikitext, hidden), counts), counts)


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
    if len(_WORD.findall(text)) < MIN_WORDS:
        return f"fewer than {MIN_WORDS} words"
    if not SENTENCE_END.search(text):
        return "no end of sentence"
    if text[0].islower():
        return "no start of sentence"
    if sum(map(str.isalpha, text)) < 0.6 * (len(text) - text.count(" ")):
        return "mostly not letters"
    return None


def plain(wikitext: str, hidden: Collection[str]) -> str:
    """Resolve the tags, templates, tables and links of a page; its lines stay."""
    prose = _ELEMENT.sub(
        lambda element: GAP if (element[1] or "").lower() in _FORMULAS else "", wikitext
    )
    text = _without_brackets(prose, hidden)
    for pattern, replacement in _REPLACEMENTS:
        text = pattern.sub(replacement, text)
    return _APOSTROPHES.sub(lambda run: "'" if len(run[0]) == 4 else "", unescape(text))


def unescape(text: str) -> str:
    """Resolve character references such as ``&amp;``."""
    return html.unescape(_HUGE_REFERENCE.sub("\ufffd", text))


def tidy(text: str) -> str:
    """Make one line, with its punctuation closed up (`_TIDYING`)."""
    text = one_line(text)
    for pattern, replacement in _TIDYING:
        text = pattern.sub(replacement, text)
    return text.lstrip(",;:.!? ").strip()


def _without_brackets(text: str, hidden: Collection[str]) -> str:
    """Resolve templates, links and tables, the inner ones first; unpaired brackets stay."""
    pieces: list[str] = []
    stack: list[tuple[str, int]] = []  # opening bracket, its index in `pieces`
    position = 0
    for match in _BRACKET.finditer(text):
        bracket = match[0].strip(" :")
        pieces.append(text[position : match.start()])
        position = match.end()
        opening = _CLOSES.get(bracket)
        if opening is None:
            # An opening so far out was never closed.
            stack = [*stack[1 - MAX_NESTING :], (bracket, len(pieces))]
            pieces.append(bracket)
            continue
        depths = [depth for depth, (bracket, _) in enumerate(stack) if bracket == opening]
        if not depths:
            pieces.append(bracket)
            continue
        _, start = stack[depths[-1]]
        content = "".join(pieces[start + 1 :])
        del pieces[start:]
        del stack[depths[-1] :]
        if opening == "{{":
            pieces.append(template_text(content))
        elif opening == "{|":
            pieces.append("\n\n")
        else:
            target, *labels = content.split("|")
            label = labels[0] if labels else target.strip().lstrip(":#")
            is_hidden = target.partition(":")[0].strip().lower() in hidden
            pieces.append("" if is_hidden else label)
    return "".join(pieces) + text[position:]


def _blocks(text: str, counts: Counter[str]) -> Iterator[str]:
    """Join lines to paragraphs; leave out headings, lists, table rows and skipped sections."""
    pending: list[str] = []
    skipping = 0  # level of the skipped section's heading, 0 outside one
    for line in map(str.strip, text.split("\n")):
        is_heading = line.startswith("==") and line.endswith("==")
        is_list = line.startswith(tuple("*#:;|!{"))
        if pending and (is_heading or is_list or not line):
            yield " ".join(pending)
            pending = []
        if is_heading:
            level = len(line) - len(line.lstrip("="))
            if not skipping or level <= skipping:
                skipping = level if line.strip("= ").lower() in SKIPPED_SECTIONS else 0
        elif line and not skipping:
            if is_list:
                counts["lines dropped: list or table"] += 1
            else:
                pending.append(line)
    if pending:
        yield " ".join(pending)


def template_text(content: str) -> str:
    """Resolve ``{{content}}`` to the text that it shows: mostly nothing, ``GAP`` if unknown."""
    name, *arguments = content.split("|")
    name = name.strip().lower().replace("_", " ")
    positional: list[str] = []
    named: dict[str, str] = {}
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if equals:
            named[key.strip()] = value.strip()
        else:
            positional.append(argument.strip())
    if not positional:
        positional = [named.get("1") or named.get("text") or ""]
    if name.startswith("lang-"):
        return positional[0]
    if name.startswith(_GAP_PREFIXES):
        return GAP
    if name in ("convert", "cvt"):
        return _convert(positional)
    if name in ("frac", "fraction"):  # 2; 1|2; 3|1|2, with an integer part
        integer_part = f"{positional[0]} " if len(positional) == 3 else ""
        numerator = positional[-2] if len(positional) > 1 else "1"
        return f"{integer_part}{numerator}/{positional[-1]}"
    if name == "as of":
        return f"{'as' if named.get('lc') else 'As'} of {positional[0]}"
    return _TEMPLATE_TEXTS.get(name, "").format(first=positional[0], last=positional[-1])


def _convert(positional: list[str]) -> str:
    """Show the first quantity of ``{{convert}}``: a number or a range, and its unit."""
    is_range = len(positional) > 3 and positional[1] in TABLES["range_words"]
    n_parts = 3 if is_range else 1
    if len(positional) <= n_parts:
        return GAP
    unit = positional[n_parts]
    multiple = TABLES["multiples"].get(unit[:2], "")
    if multiple:
        unit = unit[2:]
    return f"{' '.join(positional[:n_parts])} {multiple}{TABLES['units'].get(unit, unit)}"
