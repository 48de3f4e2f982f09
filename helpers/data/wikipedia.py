"""Wikipedia segments: two consecutive paragraphs of one article, as in BERT's pre-training.

The same reader takes a MediaWiki dump (``.xml``, or packed as ``.xml.bz2`` or ``.xml.gz``), of
which one page is in memory at a time, and plain text (see :mod:`helpers.data.plain_text`).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from helpers.data import plain_text, text_files
from helpers.data.records import Corpus, Segment, reservoir
from helpers.data.wikitext import HIDDEN_PREFIXES, paragraphs
from helpers.errors import CorpusError
from helpers.paths import readable
from helpers.work import progress

SAMPLE = "test/test_data/enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2"
SAMPLE_NAME = "wikipedia-sample"
EXPECTED = (
    "expected a MediaWiki dump, or plain text: one paragraph a line and a blank line between "
    "documents, or wrapped lines and a blank line between paragraphs"
)
ARTICLES = "0"  # their namespace
# How many segments are read to find faults; markup is cleaned at about 300 of them a second.
CHECKED_SEGMENTS = {"dump": 200, "text": 100_000}
HIDING = ("6", "14", "-2")  # namespaces whose links show no text: files, categories, media


class Article(NamedTuple):
    """The prose paragraphs of one article or document, cleaned of markup."""

    title: str
    paragraphs: tuple[str, ...]


def sample_path() -> Path:
    """Return the sample of English Wikipedia (107 articles) that the gensim package ships."""
    found = find_spec("gensim")  # importlib.resources would import all of it
    path = Path(found.origin if found else "gensim").parent / SAMPLE
    if not path.is_file():
        raise CorpusError(path, "gensim's sample dump is missing; install gensim 4 again")
    return path


def corpus_name(path: Path) -> str:
    """Return a readable slug for a corpus file: its name up to the first dot."""
    if path.name == Path(SAMPLE).name:
        return SAMPLE_NAME
    return readable(path.name.partition(".")[0].lower()) or "corpus"


def articles(path: str | Path, *, counts: Counter[str] | None = None) -> Iterator[Article]:
    """Yield the articles of a dump, or the documents of a text file or folder, in order.

    Of a dump: pages of the main namespace that are not redirects, with their usable paragraphs.
    Of plain text: every paragraph that shows something.  ``counts`` receives what was read and
    dropped.
    """
    path = text_files.existing_file(path, folder=True)
    counts = Counter() if counts is None else counts
    read = _dump_articles if _is_dump(path) else plain_text.documents
    for title, found in read(path, counts):
        counts["articles"] += 1
        counts["paragraphs kept"] += len(found)
        yield Article(title, tuple(found))


def how_read(path: str | Path) -> str:
    """Say in a line how a text of the user's is read."""
    path = text_files.existing_file(path, folder=True)
    return f"{path.name}: {'a MediaWiki dump' if _is_dump(path) else plain_text.how_read(path)}"


def segments(
    path: str | Path | None = None, *, count: int | None = 1000, seed: int = 0
) -> Corpus[Segment]:
    """Return the corpus of segments of ``path`` (default: gensim's sample of Wikipedia).

    A segment is a pair of consecutive paragraphs; pairs do not overlap.  At most ``count`` of them
    are chosen with ``seed``, in the order of the corpus; ``None`` takes all.  CorpusError where the
    file is missing, damaged, or holds no segment.
    """
    path = sample_path() if path is None else text_files.existing_file(path, folder=True)
    spec = {
        "reader": "wikipedia",
        "format": 1,
        "file": text_files.file_fingerprint(path),
        "count": count,
        "seed": seed if count is not None else None,
    }

    def read(counts: Counter[str]) -> Iterator[Segment]:
        found = progress(_all_segments(path, counts), f"Reading {path.name}", unit=" segments")
        if count is None:
            yield from found
            return
        chosen, total = reservoir(enumerate(found), count, random.Random(seed))
        counts["segments not sampled"] += total - len(chosen)
        yield from (segment for _, segment in sorted(chosen, key=itemgetter(0)))

    def check() -> None:
        beginning = CHECKED_SEGMENTS["dump" if _is_dump(path) else "text"]
        for _ in islice(_all_segments(path, Counter()), beginning):
            pass

    return Corpus(corpus_name(path), spec, read, check=check)


def _all_segments(path: Path, counts: Counter[str]) -> Iterator[Segment]:
    empty = True
    for article in articles(path, counts=counts):
        found = article.paragraphs
        counts["segments"] += len(found) // 2
        counts["paragraphs without a partner"] += len(found) % 2
        for first, second in zip(found[::2], found[1::2], strict=False):
            empty = False
            yield Segment(first, second, article.title)
    if empty:
        raise CorpusError(path, f"no segment of two consecutive paragraphs; {EXPECTED}")


def _is_dump(path: Path) -> bool:
    if path.is_dir():
        return False
    with text_files.unpacked(path) as file:
        start = file.read(1024).removeprefix(b"\xef\xbb\xbf").lstrip()
    return start.startswith((b"<?xml", b"<mediawiki")) or ".xml" in path.suffixes


def _dump_articles(path: Path, counts: Counter[str]) -> Iterator[Article]:
    hidden = set(HIDDEN_PREFIXES)
    for element in text_files.xml_elements(path, "mediawiki", ("namespace", "page")):
        if element.tag == "namespace":
            if element.get("key") in HIDING and element.text:
                hidden.add(element.text.strip().lower())
            continue
        revisions = [text.text or "" for text in element.iter("text")]
        wikitext = revisions[-1] if revisions else ""
        redirect = element.find("redirect") is not None or wikitext[:9].upper() == "#REDIRECT"
        if redirect or element.findtext("ns", ARTICLES).strip() != ARTICLES:
            counts["pages skipped: redirect or not an article"] += 1
            continue
        title = " ".join(element.findtext("title", "").split())
        yield Article(title, tuple(paragraphs(wikitext, hidden=hidden, counts=counts)))
