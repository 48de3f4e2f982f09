"""Text: its articles or documents, and segments, two consecutive paragraphs as in pre-training.

Plain text is a file or a folder of files.  Blank lines separate paragraphs, whose lines are joined.
In a file without a blank line inside, each line is a paragraph.  A file is a document.  Intervals
are drawn over documents, and train and dev consist of different ones.  Therefore a single file is
divided into blocks of its paragraphs.

WikiExtractor writes files such as ``AA/wiki_00``, which mark where an article begins.  A paragraph
is a line, and only paragraphs of prose are kept::

    <doc id="12" url="https://en.wikipedia.org/wiki?curid=12" title="Bridge">
    Bridge

    A bridge is a structure that ...
    </doc>

In WikiText, ``= Bridge =`` begins an article, ``= = History = =`` a section, and words have spaces
between them (``19 @-@ 20 , for``).
"""

from __future__ import annotations

import html
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain, groupby, islice
from pathlib import Path
from typing import NamedTuple

from helpers.data.records import Corpus, Segment, reservoir
from helpers.data.text_files import (
    EXPECTED,
    corpus_name,
    existing_file,
    file_fingerprint,
    lines,
    one_line,
    quoted,
    refuse_other_formats,
    text_paths,
    visible,
)
from helpers.errors import CorpusError
from helpers.progress import progress

# The line that begins an article of WikiExtractor, or of WikiText, with its title.
ARTICLE_MARK = re.compile(r'<doc (?:.*\btitle="([^"]*)")?.*>$|= ([^=].*) =$')
SENTENCE_END = re.compile(r"[.!?…。！？؟।][\"'”’»)\]]{0,3}$")
WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W_]++")  # a CJK character counts as a word
# Tags, wiki links and templates, rows of tables, headings of Markdown, LaTeX, character references.
_MARKUP = re.compile(
    r"</?[A-Za-z][^<>]*>|\[\[|\]\]|\{\{|\}\}|^\|.*\||^#{1,6} |\\[a-z]{2,20}\{|&[a-z]{2,10};"
)
# How lines of code and data begin or end, and prose hardly does.
_CODE = re.compile(
    r"^\S*[\\{}<>|=@#~^*_`]|^\[?\d+[-/:]\d"  # a first word with a mark in it, a date, a time
    r"""|["']\s?[,;:|]\s?[\w.]*$|[{}\[\]<>|\\;=]$"""  # a quoted cell before an unquoted one
)
# The bundled sample of English Wikipedia (101 articles).
SAMPLE = Path(__file__).with_name("wikipedia-sample.txt.bz2")


class Article(NamedTuple):
    """The prose paragraphs of one article or document, cleaned of markup."""

    title: str
    paragraphs: tuple[str, ...]


def articles(path: Path, *, counts: Counter[str] | None = None) -> Iterator[Article]:
    """Yield the articles or documents of a text file or folder, in order.

    Parameters
    ----------
    path : Path
        The file or folder.
    counts : Counter, optional
        Receives the numbers of articles and paragraphs that were read, and of what was dropped,
        by reason.

    Yields
    ------
    Article
        For files of WikiExtractor and WikiText: an article with its paragraphs of prose.  For plain
        text: each file of a folder, or each block of a single file, with every visible paragraph.

    Raises
    ------
    CorpusError
        For a file that begins as one in another format.
    """
    counts = Counter() if counts is None else counts
    files = text_paths(path)
    for file in files:
        refuse_other_formats(file, "text")
        first_line = next((line.strip() for _, line in lines(file) if line.strip()), "")
        if ARTICLE_MARK.match(first_line):
            documents = _marked_articles(file, counts)
        elif len(files) > 1:
            documents = [(file.relative_to(path).as_posix(), list(_paragraphs(file)))]
        else:
            documents = _file_blocks(file)
        for title, paragraphs in documents:
            counts["articles"] += 1
            counts["paragraphs kept"] += len(paragraphs)
            yield Article(title, tuple(paragraphs))


def _marked_articles(file: Path, counts: Counter[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the title of each article, and its paragraphs of running prose.

    ``counts`` receives the number of paragraphs that were dropped.
    """
    title = ""
    texts: list[str] = []
    for _, line in chain(lines(file), [(0, "<doc >")]):  # which ends the last article
        text = one_line(unescape(line))
        mark = ARTICLE_MARK.match(line.strip())
        if mark:
            if texts:
                yield title, texts
            title = unescape("".join(name for name in mark.groups() if name))
            texts = []
            continue
        text = re.sub(r" @([-.,])@ | ([,.;:!?)])(?= |$)", r"\1\2", text)  # of WikiText
        if is_prose(text):
            texts.append(text)
        elif text and text != "</doc>":
            counts["paragraphs dropped: title, list or markup"] += 1


def is_prose(text: str) -> bool:
    """Tell whether a paragraph is running prose: ten words, an end of sentence, no markup."""
    is_sentence = len(WORD.findall(text)) >= 10 and SENTENCE_END.search(text)
    return bool(is_sentence) and not re.search(r"[<>|]|\{\{", text)


def unescape(text: str) -> str:
    """Resolve character references such as ``&amp;``."""
    # Over a huge one html.unescape() fails.
    return html.unescape(re.sub(r"&#[0-9]{20,}+;?", "\ufffd", text))


def _file_blocks(file: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the title and the paragraphs of each block of a file.

    A block is a tenth of the file: an even number of paragraphs, from 2 to 10.
    """
    paragraphs = _paragraphs(file)
    beginning = list(islice(paragraphs, 100))
    size = max(len(beginning) // 20 * 2, 2)
    all_paragraphs = chain(beginning, paragraphs)
    blocks = iter(lambda: list(islice(all_paragraphs, size)), [])
    for number, block in enumerate(blocks, 1):
        yield f"{file.name} {number}", block


def _paragraphs(file: Path) -> Iterator[str]:
    """Yield the paragraphs of a file."""
    has_blank_line = len(list(islice(_blocks(file), 2))) == 2  # between its lines
    for texts in _blocks(file):
        if has_blank_line:
            yield " ".join(texts)
        else:
            yield from texts


def _blocks(file: Path) -> Iterator[Iterator[str]]:
    """Yield the texts of neighbouring lines; lines of which nothing shows count as blank ones."""
    texts = (one_line(line) for _, line in lines(file))
    for has_text, block in groupby(texts, visible):
        if has_text:
            yield block


def segments(
    path: str | Path | None = None, *, count: int | None = 1000, seed: int = 0
) -> Corpus[Segment]:
    """Sample segments from a text: pairs of consecutive paragraphs that do not overlap.

    Parameters
    ----------
    path : str or Path, optional
        A text file or a folder of text files; by default the bundled sample of Wikipedia.
    count : int or None
        Number of segments to choose at random; they stay in the order of the text.  None: all.
    seed : int
        Seed of the choice.

    Returns
    -------
    Corpus of Segment

    Raises
    ------
    CorpusError
        For a file that is missing or damaged, or that holds no segment.
    """
    path = SAMPLE if path is None else existing_file(path)
    spec = {"kind": "segments", "file": file_fingerprint(path), "count": count}
    spec["seed"] = None if count is None else seed

    def read(counts: Counter[str]) -> Iterator[Segment]:
        bar = progress(_all_segments(path, counts), f"Reading {path.name}", unit=" segments")
        if count is None:
            yield from bar
            return
        chosen = reservoir(enumerate(bar), count, random.Random(seed))
        counts["segments not sampled"] = counts["segments"] - len(chosen)
        yield from (segment for _, segment in sorted(chosen))

    return Corpus(corpus_name(path), spec, read)


def _all_segments(path: Path, counts: Counter[str]) -> Iterator[Segment]:
    """Yield every pair of consecutive paragraphs; CorpusError if there is none."""
    for article in articles(path, counts=counts):
        n_paragraphs = len(article.paragraphs)
        counts["segments"] += n_paragraphs // 2
        counts["paragraphs without a partner"] += n_paragraphs % 2
        for index in range(0, n_paragraphs - 1, 2):
            first, second = article.paragraphs[index : index + 2]
            yield Segment(first, second, article.title)
    if not counts["segments"]:
        raise CorpusError(path, f"has no two consecutive paragraphs; expected {EXPECTED['text']}")


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
