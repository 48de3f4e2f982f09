"""Turn a MediaWiki dump into a file that ``--text`` reads: ``clean_dump.py DUMP FOLDER``.

The folder gets a file such as those of WikiExtractor, ``wiki_00``: each article with its title, and
a line for each paragraph of prose.  It needs ``pip install defusedxml``.

Articles are written by strangers, so every pass takes linear time: one over elements, one over
brackets with a bounded stack, one over lines.  Markup that the cleaning cannot turn into prose
stays as a visible residue (``{{``, ``|``, ``<`` ...), and a paragraph with a residue is dropped.

Most templates (citations, boxes, navigation) show nothing inside a sentence.  ``wikitext.json`` has
the few that do, by what they show, where "{first}" and "{last}" are arguments of the template;
those whose text would have to be computed leave a residue.
"""

from __future__ import annotations

import argparse
import html
import json
import re
import sys
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from xml.etree.ElementTree import Element, ParseError

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from helpers.data.text_files import one_line, unpacked  # noqa: E402
from helpers.data.wikipedia import Article, is_prose, unescape  # noqa: E402
from helpers.errors import CorpusError  # noqa: E402
from helpers.progress import progress  # noqa: E402

ARTICLE_NAMESPACE = "0"
HIDDEN_NAMESPACES = ("6", "14", "-2")  # whose links show no text: files, categories, media
HIDDEN_PREFIXES = frozenset({"file", "image", "media", "category"})  # of links, in English
TEMPLATES = json.loads(Path(__file__).with_name("wikitext.json").read_text(encoding="utf-8"))
# What each template shows, by its name.
_TEMPLATE_TEXTS = {name: text for text, names in TEMPLATES.items() for name in names}
RESIDUE = "<>"  # stands for something on the page that has no text, such as a formula

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

_BLOCK_TAG = r"</?(?:blockquote|center|div|[dou]l|d[dt]|h\d|hr|p|t[dhr])\b[^<>]*+>"
# What is replaced in the text of a page, in this order: external links, tags and switches.
_REPLACEMENTS = (
    (re.compile(r"\[(?:https?:|ftp:|mailto:)?//[^\s\[\]]*+[ ]?([^\[\]\n]*+)\]"), r"\1"),
    (re.compile(r"<sup>(?=[-−+]?\d)", re.IGNORECASE), "^"),
    (re.compile(r"<br\b[^<>]*+>", re.IGNORECASE), " "),
    (re.compile(r"<li\b[^<>]*+>", re.IGNORECASE), "\n*"),
    (re.compile(_BLOCK_TAG, re.IGNORECASE), "\n\n"),
    (re.compile(r"</?[a-z][^<>]*+>", re.IGNORECASE), ""),
    (re.compile(r"__[A-Z]{3,20}__"), ""),
)
# How the punctuation of a paragraph is closed up: ``Ann ( ; 428 )`` becomes ``Ann (428)``.
_TIDYING = (
    (re.compile(r"([(\[]) ?(?:[;,:] ?)*+"), r"\1"),
    (re.compile(r"(?<![ ;,:])(?: ?[;,:])*+ ?([)\]])"), r"\1"),
    (re.compile(r" ?(?:\(\)|\[\])"), ""),
    (re.compile(r" ([,;:.!?])(?=[\s\"”)]|$)"), r"\1"),
    (re.compile(r",(?: ?,)++"), ","),
)
_APOSTROPHES = re.compile(r"'{2,}+")


def paragraphs(wikitext: str, hidden: Collection[str], counts: Counter[str]) -> Iterator[str]:
    """Yield the prose paragraphs of a page, in order.

    Lists, tables, captions, formulas and footnotes are left out.

    Parameters
    ----------
    wikitext : str
        The markup of the page.
    hidden : collection of str
        Lower-case prefixes of links that show no text (files and categories, in the language of
        the dump).
    counts : Counter
        Receives the numbers of paragraphs that were kept and dropped.
    """
    for block in _blocks(plain(wikitext, hidden)):
        text = tidy(block)
        if is_prose(text) and not re.search(r"\[\[|\]\]|\}\}", text):
            counts["paragraphs kept"] += 1
            yield text
        elif text:
            counts["paragraphs dropped"] += 1


def tidy(text: str) -> str:
    """Make one line, with its punctuation closed up (`_TIDYING`)."""
    text = one_line(text)
    for pattern, replacement in _TIDYING:
        text = pattern.sub(replacement, text)
    return text.lstrip(",;:.!? ").strip()


def plain(wikitext: str, hidden: Collection[str]) -> str:
    """Resolve the tags, templates, tables and links of a page; its lines stay."""
    shown = _ELEMENT.sub(
        lambda element: RESIDUE if (element[1] or "").lower() in _FORMULAS else "", wikitext
    )
    text = _without_brackets(shown, hidden)
    for pattern, replacement in _REPLACEMENTS:
        text = pattern.sub(replacement, text)
    return _APOSTROPHES.sub(lambda run: "'" if len(run[0]) == 4 else "", unescape(text))


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


def _blocks(text: str) -> Iterator[str]:
    """Join lines to paragraphs; leave out headings, lists and table rows."""
    pending: list[str] = []
    for line in [*map(str.strip, text.split("\n")), ""]:
        if line and not line.startswith(("==", *"*#:;|!{")):
            pending.append(line)
        elif pending:
            yield " ".join(pending)
            pending = []


def template_text(content: str) -> str:
    """Resolve ``{{content}}`` to the text that it shows: mostly nothing."""
    name, *arguments = content.split("|")
    name = name.strip().lower().replace("_", " ")
    positional = [argument.strip() for argument in arguments if "=" not in argument] or [""]
    text = "{first}" if name.startswith("lang-") else _TEMPLATE_TEXTS.get(name, "")
    return text.format(first=positional[0], last=positional[-1])


def xml_elements(path: Path, items: Collection[str]) -> Iterator[Element]:
    """Yield the elements called one of ``items``, each whole; it is emptied afterwards.

    Tags have no namespaces.

    Raises
    ------
    CorpusError
        With the line, if there is one, for XML that is malformed or declares a document type (and
        with it entities).
    """
    from defusedxml.common import DefusedXmlException
    from defusedxml.ElementTree import iterparse

    with unpacked(path) as file:
        try:
            events = iterparse(file, ("start", "end"), forbid_dtd=True)
            _, root = next(events)
            for event, element in events:
                element.tag = element.tag.rpartition("}")[2]
                if event == "end" and element.tag in items:
                    yield element
                    root.clear()
        except DefusedXmlException as error:
            raise CorpusError(
                path, "declares a document type, which is not read; remove the declaration"
            ) from error
        except (ParseError, LookupError, ValueError) as error:  # the latter two: the encoding
            line = error.position[0] if isinstance(error, ParseError) else None
            problem = f"malformed XML ({str(error)[:80]}); use a complete copy"
            raise CorpusError(path, problem, line) from error


def dump_articles(path: Path, counts: Counter[str]) -> Iterator[Article]:
    """Yield each article of a dump with its usable paragraphs; ``counts`` gets what was dropped."""
    hidden = set(HIDDEN_PREFIXES)
    for element in xml_elements(path, ("namespace", "page")):
        if element.tag == "namespace":
            if element.get("key") in HIDDEN_NAMESPACES and element.text:
                hidden.add(element.text.strip().lower())
            continue
        namespace = element.findtext("ns", ARTICLE_NAMESPACE).strip()
        if element.find("redirect") is not None or namespace != ARTICLE_NAMESPACE:
            counts["pages skipped: redirect or not an article"] += 1
            continue
        title = " ".join(element.findtext("title", "").split())
        wikitext = element.findtext("revision/text", "")
        article = Article(title, tuple(paragraphs(wikitext, hidden, counts)))
        if article.paragraphs:
            counts["articles"] += 1
            yield article


def article_lines(article: Article) -> str:
    """Write an article as WikiExtractor does, with a line for each paragraph."""
    title = html.escape(article.title)
    texts = [html.escape(text, quote=False) for text in article.paragraphs]
    return "\n".join([f'<doc title="{title}">', *texts, "</doc>"]) + "\n"


def main() -> int:
    """Read a dump and write the folder; print what was kept and dropped."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("dump", type=Path, help="a MediaWiki dump, plain or packed (.gz, .bz2)")
    parser.add_argument("folder", type=Path, help="a new folder, which --text then reads")
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    articles = progress(dump_articles(options.dump, counts), options.dump.name, unit="article")
    try:
        options.folder.mkdir(parents=True)
        with (options.folder / "wiki_00").open("w", encoding="utf-8") as file:
            file.writelines(map(article_lines, articles))
    except (CorpusError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for reason, count in counts.items():
        print(f"{reason}: {count:,}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
