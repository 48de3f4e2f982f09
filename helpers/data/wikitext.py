"""Conversion of MediaWiki markup to prose paragraphs, in time linear in the length of the page.

Articles are written by strangers, so nothing here backtracks: one pass over tags, one over
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
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from helpers.data.text_files import one_line

GAP = "\ufffc"  # replaces something on the page that has no text, such as a formula
HIDDEN_PREFIXES = frozenset({"file", "image", "media", "category"})  # links that show no text
TABLES = json.loads(Path(__file__).with_name("wikitext.json").read_text(encoding="utf-8"))
SKIPPED_SECTIONS = frozenset(TABLES["skipped_sections"])
_GAP_PREFIXES = ("simplenuclide", "physics", "chem")  # of names of templates
MIN_WORDS = 10  # a shorter paragraph is a title, a label or a fragment

_DROPPED = (
    "ce|chem|gallery|graph|hiero|imagemap|math|poem|pre|ref|references|score|source|"
    "syntaxhighlight|table|timeline"
)
_FORMULAS = ("ce", "chem", "hiero", "math", "score")
_ELEMENT = re.compile(rf"<!--|-->|<(/?)({_DROPPED})\b[^<>]*+>", re.IGNORECASE)
# Alternatives that begin with a character each: re then looks for those, ten times as fast.
_BRACKET = re.compile(r"\{\{|\}\}|\[\[|\]\]|\n[ :]*+\{\||\n[ ]*+\|\}(?!\})")
_CLOSES = {"}}": "{{", "]]": "[[", "|}": "{|"}
MAX_NESTING = 50

_LANGUAGE = re.compile(r"(?:[a-z]{2,3}(?:-[a-z]+)*|simple):")
_EXTERNAL = re.compile(r"\[(?:https?:|ftp:|mailto:)?//[^\s\[\]]*+[ ]?([^\[\]\n]*+)\]")
_SUPERSCRIPT = re.compile(r"<sup>\s?([-−+]?\d{1,4})\s?</sup>", re.IGNORECASE)
_RAISED = str.maketrans("0123456789+-−", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻")
_ITEM_TAG = re.compile(r"<li\b[^<>]*+>", re.IGNORECASE)
_BLOCK_TAG = re.compile(
    r"</?(?:blockquote|center|div|dl|dd|dt|h[1-6]|hr|ol|p|td|th|tr|ul)\b[^<>]*+>", re.IGNORECASE
)
_INLINE_TAG = re.compile(
    r"</?(?:abbr|b|bdi|big|cite|code|del|em|font|i|includeonly|ins|kbd|nobr|noinclude|nowiki|"
    r"onlyinclude|q|s|samp|small|span|strong|sub|sup|tt|u|var|wbr)\b[^<>]*+>",
    re.IGNORECASE,
)
_BREAK_TAG = re.compile(r"<br\b[^<>]*+>", re.IGNORECASE)
_SWITCH = re.compile(r"__[A-Z]{3,20}__")
_LONG_REFERENCE = re.compile(r"&#[0-9]{20,}+;?")  # html.unescape() fails over 4,300 digits
_APOSTROPHES = re.compile(r"'{2,}+")

_RESIDUE = re.compile(r"\{\{|\}\}|\[\[|\]\]|==|''|\||<|>|I(?<=\bI)SBN\b")
_UNTIDY = re.compile(r"[()\[\]]|[ ,;:.][,;:.!?]")
SENTENCE_END = re.compile(r"[.!?…。！？؟।][\"'”’»)\]]{0,3}$")
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W_]++")  # a CJK character counts as a word


def paragraphs(
    wikitext: str, *, hidden: Collection[str] = HIDDEN_PREFIXES, counts: Counter[str] | None = None
) -> Iterator[str]:
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
    counts : Counter, optional
        Receives the numbers of paragraphs and lines that were dropped, by reason.
    """
    counts = Counter() if counts is None else counts
    for raw in _blocks(plain(wikitext, hidden), counts):
        text = tidy(raw)
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
    words = _WORD.findall(text)
    if len(words) < MIN_WORDS:
        return f"fewer than {MIN_WORDS} words"
    if not SENTENCE_END.search(text):
        return "no end of sentence"
    may_start = text[0].isalnum() or text[0] in "\"'“‘«([¡¿$£€…"
    if text[0].islower() or not may_start:
        return "no start of sentence"
    min_letters = 0.6 * (len(text) - text.count(" "))
    letters_in_words = sum(len(word) for word in words if word.isalpha())
    if letters_in_words < min_letters and sum(map(str.isalpha, text)) < min_letters:
        return "mostly not letters"
    return None


def plain(wikitext: str, hidden: Collection[str] = HIDDEN_PREFIXES) -> str:
    """Resolve the tags, templates, tables and links of a page; its lines stay."""
    text = _without_brackets(_without_elements(wikitext), hidden)
    text = _EXTERNAL.sub(r"\1", text)
    text = _SUPERSCRIPT.sub(lambda match: match[1].translate(_RAISED), text)
    text = _BREAK_TAG.sub(" ", text)
    text = _ITEM_TAG.sub("\n*", text)
    text = _BLOCK_TAG.sub("\n\n", text)
    text = _SWITCH.sub("", _INLINE_TAG.sub("", text))
    text = html.unescape(_LONG_REFERENCE.sub("\ufffd", text))
    return _APOSTROPHES.sub(lambda run: "'" if len(run[0]) == 4 else "", text)


def tidy(text: str) -> str:
    """Make one line with its punctuation closed up: ``Ann ( ; 428 )`` becomes ``Ann (428)``."""
    text = one_line(text)
    if not _UNTIDY.search(text):  # as in most paragraphs
        return text.lstrip(",;:.!? ")
    text = re.sub(r"\[\d{1,3}\]", "", text)  # footnote numbers typed by hand
    text = re.sub(r"([(\[]) ?(?:[;,:] ?)*+", r"\1", text)
    text = re.sub(r"(?<![ ;,:])(?: ?[;,:])*+ ?([)\]])", r"\1", text)
    text = re.sub(r" ?(?:\(\)|\[\])", "", text)
    text = re.sub(r" ([,;:.!?])(?=[\s\"”)]|$)", r"\1", text)
    text = re.sub(r",(?: ?,)++", ",", text)
    text = re.sub(r"[,;:] ?(?=[.;](?:\s|$))", "", text)
    text = re.sub(r"(?<=\w)\.\.(?=\s|$)", ".", text)
    return text.lstrip(",;:.!? ").strip()


class _Tag(NamedTuple):
    """A tag, or a mark of a comment (name "!"), in a page."""

    name: str
    is_closing: bool
    is_empty: bool  # such as <ref name="a" />
    start: int
    end: int


def _tags(text: str) -> list[_Tag]:
    """Find the tags of elements without prose, and the marks of comments, in order."""
    tags = []
    for match in _ELEMENT.finditer(text):
        name = "!" if match[2] is None else match[2].lower()
        is_closing = match[0] == "-->" or match[1] == "/"
        is_empty = match[0].endswith("/>") and not is_closing
        tags.append(_Tag(name, is_closing, is_empty, match.start(), match.end()))
    return tags


def _without_elements(text: str) -> str:
    """Remove comments and the elements that hold no prose, content included."""
    tags = _tags(text)
    last_close = {tag.name: tag.start for tag in tags if tag.is_closing}
    pieces = []
    position = 0
    inside = None  # the name of the element that is being removed
    for tag in tags:
        if inside is not None:
            if tag.is_closing and tag.name == inside:
                inside = None
                position = tag.end
        elif tag.is_empty:
            pieces.append(text[position : tag.start])
            position = tag.end
        elif not tag.is_closing and last_close.get(tag.name, -1) > tag.start:
            pieces.append(text[position : tag.start])
            pieces.append(GAP if tag.name in _FORMULAS else "")
            inside = tag.name
    return "".join(pieces) + text[position:]


def _without_brackets(text: str, hidden: Collection[str]) -> str:
    """Resolve templates, links and tables, the inner ones first; unpaired brackets stay."""
    pieces: list[str] = []
    stack: list[tuple[str, int]] = []  # opening bracket, its index in `pieces`
    text = f"\n{text}"
    position = 1
    for match in _BRACKET.finditer(text):
        bracket = match[0].removeprefix("\n")
        pieces.append(text[position : match.end() - len(bracket)])
        position = match.end()
        opening = _CLOSES.get(bracket.strip(" :"))
        if opening is None:
            if len(stack) == MAX_NESTING:
                del stack[0]  # an opening so far out was never closed
            stack.append((bracket.strip(" :"), len(pieces)))
            pieces.append(bracket)
            continue
        depth = _last_depth(stack, opening)
        if depth is None:
            pieces.append(bracket)
            continue
        _, start = stack[depth]
        content = "".join(pieces[start + 1 :])
        del pieces[start:]
        del stack[depth:]
        if opening == "[[":
            pieces.append(_link(content, hidden))
        elif opening == "{{":
            pieces.append(template_text(content))
        else:
            pieces.append("\n\n")
    return "".join(pieces) + text[position:]


def _last_depth(stack: list[tuple[str, int]], opening: str) -> int | None:
    """Find the innermost bracket of a kind that is still open."""
    for depth in reversed(range(len(stack))):
        if stack[depth][0] == opening:
            return depth
    return None


def _link(content: str, hidden: Collection[str]) -> str:
    """Resolve ``[[content]]`` to the text that it shows."""
    target, *labels = content.split("|")
    if target.partition(":")[0].strip().lower() in hidden:
        return ""
    if "\n\n" in content:  # two brackets that do not belong together
        return f"[[{content}]]"
    if labels and labels[0].strip():
        return labels[0]
    if not labels and _LANGUAGE.match(target):
        return ""
    title = target.strip().lstrip(":#")
    return title.partition(" (")[0] if labels else title  # the pipe trick: [[a (b)|]]


def _blocks(text: str, counts: Counter[str]) -> Iterator[str]:
    """Join lines to paragraphs; leave out headings, lists, table rows and skipped sections."""
    pending: list[str] = []
    skipping = 0  # level of the skipped section's heading, 0 outside one
    for line in map(str.strip, text.split("\n")):
        heading = line.startswith("==") and line.endswith("==")
        if pending and (heading or not line or line[0] in "*#:;|!{"):
            yield " ".join(pending)
            pending = []
        if heading:
            level = len(line) - len(line.lstrip("="))
            if not skipping or level <= skipping:
                skipping = level if line.strip("= ").lower() in SKIPPED_SECTIONS else 0
        elif not line or skipping:
            continue
        elif line[0] in "*#:;|!{":
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
        if equals and key.strip().replace(" ", "").isalnum() and len(key) < 20:
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
    if name in ("frac", "fraction"):
        return _fraction(positional)
    if name == "as of":
        return f"{'as' if named.get('lc') else 'As'} of {positional[0]}"
    return _TEMPLATE_TEXTS.get(name, "").format(first=positional[0], last=positional[-1])


def _fraction(positional: list[str]) -> str:
    """Show ``{{frac|2}}``, ``{{frac|1|2}}`` or ``{{frac|3|1|2}}``, with an integer part."""
    if len(positional) == 1:
        return f"1/{positional[0]}"
    integer_part = f"{positional[0]} " if len(positional) == 3 else ""
    return integer_part + "/".join(positional[-2:])


def _convert(positional: list[str]) -> str:
    """Show the first quantity of ``{{convert}}``: a number or a range, and its unit."""
    is_range = len(positional) > 3 and positional[1] in TABLES["range_words"]
    n_parts = 3 if is_range else 1
    parts = positional[:n_parts]
    first_digit = parts[0].lstrip("-−").replace(",", "")[:1]
    if len(positional) <= n_parts or not first_digit.isdigit():
        return GAP
    unit = positional[n_parts]
    multiple = TABLES["multiples"].get(unit[:2], "")
    if multiple:
        unit = unit[2:]
    return f"{' '.join(parts)} {multiple}{TABLES['units'].get(unit, unit)}"


def _text_by_template() -> dict[str, str]:
    """Collect what each template shows, by its name."""
    text_by_template = {}
    for text, template_names in TABLES["templates"].items():
        text_by_template.update(dict.fromkeys(template_names, text))
    return text_by_template


_TEMPLATE_TEXTS = _text_by_template()
