"""MediaWiki markup to prose paragraphs, in time linear in the length of the page.

Articles are written by strangers, so nothing here backtracks: one pass over tags, one over
brackets with a bounded stack, one over lines.  What the cleaning cannot turn into prose is left
as a visible residue (``{{``, ``|``, ``<`` ...), and a paragraph with a residue is dropped.

Most templates (citations, boxes, navigation) show nothing inside a sentence.  The few that do
are listed at the end; those whose text would have to be computed become ``GAP``.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator

from helpers.data.text_files import one_line

GAP = "\ufffc"  # stands where the page shows something that has no text, such as a formula
HIDDEN_PREFIXES = frozenset({"file", "image", "media", "category"})  # links that show no text
# fmt: off
SKIPPED_SECTIONS = frozenset({
    "bibliography", "citations", "cited sources", "external links", "footnotes",
    "further reading", "general references", "notes", "notes and references", "references",
    "references and further reading", "references and notes", "see also",
    "selected bibliography", "sources", "works cited",
})
# fmt: on
Show = Callable[[list[str], dict[str, str]], str]  # positional and named arguments to text
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

    Left out: lists, tables, captions, formulas, footnotes, the sections of ``SKIPPED_SECTIONS``.
    ``hidden``: lower-case prefixes of links that show no text (files and categories, in the dump's
    language).  ``counts`` receives what was dropped, by reason.
    """
    counts = Counter() if counts is None else counts
    for raw in _blocks(plain(wikitext, hidden), counts):
        text = tidy(raw)
        if not text:
            continue
        counts["paragraphs"] += 1
        if reason := why_not_prose(text):
            counts[f"paragraphs dropped: {reason}"] += 1
        else:
            yield text


def why_not_prose(text: str) -> str | None:
    """Return why a cleaned paragraph is not running prose, or None where it is."""
    if GAP in text:
        return "formula or other gap"
    if _RESIDUE.search(text):
        return "markup left"
    words = _WORD.findall(text)
    if len(words) < MIN_WORDS:
        return f"fewer than {MIN_WORDS} words"
    if not SENTENCE_END.search(text):
        return "no end of sentence"
    if text[0].islower() or not (text[0].isalnum() or text[0] in "\"'“‘«([¡¿$£€…"):
        return "no start of sentence"
    enough = 0.6 * (len(text) - text.count(" "))
    if len("".join(filter(str.isalpha, words))) < enough and sum(map(str.isalpha, text)) < enough:
        return "mostly not letters"
    return None


def plain(wikitext: str, hidden: Collection[str] = HIDDEN_PREFIXES) -> str:
    """Return the page with tags, templates, tables and links resolved; lines are kept."""
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
    """Return one line with its punctuation closed up: ``Ann ( ; 428 )``: ``Ann (428)``."""
    text = one_line(text)
    if not _UNTIDY.search(text):  # which is most of what there is
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


def _without_elements(text: str) -> str:
    """Remove comments and the elements that hold no prose, content included."""
    last_close: dict[str, int] = {}
    tokens = []
    for match in _ELEMENT.finditer(text):
        name = "!" if match[2] is None else match[2].lower()
        closing = match[0] == "-->" or match[1] == "/"
        if closing:
            last_close[name] = match.start()
        tokens.append((name, closing, match))
    kept, position, inside = [], 0, None
    for name, closing, match in tokens:
        if inside is not None:
            if closing and name == inside:
                inside, position = None, match.end()
        elif match[0].endswith("/>") and not closing:
            kept.append(text[position : match.start()])
            position = match.end()
        elif not closing and last_close.get(name, -1) > match.start():
            kept.append(text[position : match.start()])
            kept.append(GAP if name in _FORMULAS else "")
            inside = name
    return "".join(kept) + text[position:]


def _without_brackets(text: str, hidden: Collection[str]) -> str:
    """Resolve templates, links and tables, the inner ones first; unpaired brackets stay."""
    out: list[str] = []
    stack: list[tuple[str, int]] = []  # opening bracket, its place in `out`
    text, position = f"\n{text}", 1
    for match in _BRACKET.finditer(text):
        found = match[0].removeprefix("\n")
        out.append(text[position : match.end() - len(found)])
        position, bracket = match.end(), found.strip(" :")
        opening = _CLOSES.get(bracket)
        if opening is None:
            if len(stack) == MAX_NESTING:
                del stack[0]  # an opening so far out was never closed
            stack.append((bracket, len(out)))
            out.append(found)
            continue
        depth = next((d for d in reversed(range(len(stack))) if stack[d][0] == opening), None)
        if depth is None:
            out.append(found)
            continue
        start = stack[depth][1]
        content = "".join(out[start + 1 :])
        del out[start:], stack[depth:]
        if opening == "[[":
            out.append(_link(content, hidden))
        else:
            out.append(template_text(content) if opening == "{{" else "\n\n")
    return "".join(out) + text[position:]


def _link(content: str, hidden: Collection[str]) -> str:
    target, *labels = content.split("|")
    if target.partition(":")[0].strip().lower() in hidden:
        return ""
    if "\n\n" in content:  # two brackets that do not belong together
        return f"[[{content}]]"
    if labels and labels[0].strip():
        return labels[0]
    if not labels and _LANGUAGE.match(target):
        return ""
    shown = target.strip().lstrip(":#")
    return shown.partition(" (")[0] if labels else shown


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
    """Return what ``{{content}}`` shows in running text: mostly nothing, ``GAP`` if not known."""
    name, *arguments = content.split("|")
    name = name.strip().lower().replace("_", " ")
    positional, named = [], {}
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if equals and key.strip().replace(" ", "").isalnum() and len(key) < 20:
            named[key.strip()] = value.strip()
        else:
            positional.append(argument.strip())
    positional = positional or [named.get("1") or named.get("text") or ""]
    if name.startswith("lang-"):
        return positional[0]
    if name in _GAP_TEMPLATES or name.startswith(("simplenuclide", "physics", "chem")):
        return GAP
    if name in _CONSTANTS:
        return _CONSTANTS[name]
    if name in _SHIPS:
        return f"{name.upper()} {positional[0]}"
    show = _SHOWN.get(name)
    return show(positional, named) if show else ""


def _as_of(positional: list[str], named: dict[str, str]) -> str:
    return f"{'as' if named.get('lc') else 'As'} of {positional[0]}"


def _fraction(positional: list[str], _: dict[str, str]) -> str:
    whole = f"{positional[0]} " if len(positional) == 3 else ""
    return whole + "/".join(positional[-2:] if len(positional) > 1 else ["1", *positional])


def _convert(positional: list[str], _: dict[str, str]) -> str:
    """Show the first quantity of ``{{convert}}``: a number or a range, and its unit."""
    shown = 3 if len(positional) > 3 and positional[1] in _BETWEEN else 1
    numbers = positional[:shown]
    if len(positional) <= shown or not numbers[0].lstrip("-−").replace(",", "")[:1].isdigit():
        return GAP
    unit = positional[shown]
    multiple = _MULTIPLES.get(unit[:2], "")
    unit = unit[2:] if multiple else unit
    return f"{' '.join(numbers)} {multiple}{_UNITS.get(unit, unit)}"


# fmt: off
_UNITS = {
    "C": "°C", "F": "°F", "acre": "acres", "cuft": "cubic feet", "ft": "feet", "ha": "hectares",
    "impgal": "imperial gallons", "in": "inches", "km2": "km²", "km3": "km³", "kph": "km/h",
    "lb": "pounds", "m2": "m²", "m3": "m³", "mi": "miles", "nmi": "nautical miles",
    "sqft": "square feet", "sqkm": "km²", "sqmi": "square miles",
}
_MULTIPLES = {"e3": "thousand ", "e6": "million ", "e9": "billion "}
_BETWEEN = {"to", "and", "or", "by", "x", "-", "–", "+/-", "to(-)", "and(-)"}
_GAP_TEMPLATES = frozenset({
    "e", "eqm", "formatnum", "inflation", "keypress", "math", "mvar", "nuclide", "oldstyledate",
    "railgauge", "sfrac", "su", "tooltip", "track gauge",
})
_FIRST_SHOWN = [
    "abbr", "angbr", "arabic", "as written", "big", "bigger", "em", "flag", "flagcountry",
    "hebrew", "ipa", "larger", "linktext", "nihongo", "nobold", "nobr", "not a typo", "nowrap",
    "nts", "polytonic", "resize", "sc", "script", "small", "smallcaps", "smaller", "strong",
    "sub", "unicode", "val", "vanchor", "visible anchor",
]
_SHIPS = ["hmas", "hms", "rms", "ss", "uss"]
# fmt: on

_CONSTANTS = {
    **dict.fromkeys(["nbsp", "space", "spaces", "thin space", "thinsp"], " "),
    **dict.fromkeys(["ndash", "en dash"], "–"),
    **dict.fromkeys(["snd", "spaced ndash", "spnd"], " – "),
    **dict.fromkeys(["mdash", "mdashb", "em dash"], "—"),
    "'": "'",
    "'s": "'s",
}
_SHOWN: dict[str, Show] = {
    **dict.fromkeys(_FIRST_SHOWN, lambda positional, _: positional[0]),
    **dict.fromkeys(["lang", "transl", "transliteration"], lambda positional, _: positional[-1]),
    **dict.fromkeys(
        ["quote", "blockquote", "cquote", "quotation"],
        lambda positional, _: f"\n\n{positional[0]}\n\n",
    ),
    **dict.fromkeys(["convert", "cvt"], _convert),
    **dict.fromkeys(["frac", "fraction"], _fraction),
    "as of": _as_of,
    "circa": lambda positional, _: f"c. {positional[0]}",
}
