"""Wikipedia segments: two consecutive paragraphs of one article, as in BERT's pre-training.

The text is plain text, or in files that mark articles (see :mod:`helpers.data.plain_text`).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from helpers.data import plain_text, text_files
from helpers.data.other_formats import EXPECTED
from helpers.data.records import Corpus, Segment, reservoir
from helpers.errors import CorpusError
from helpers.files import slugify
from helpers.progress import progress

SAMPLE = Path(__file__).with_name("wikipedia_sample.txt.bz2")
SAMPLE_NAME = "wikipedia-sample"


class Article(NamedTuple):
    """The prose paragraphs of one article or document, cleaned of markup."""

    title: str
    paragraphs: tuple[str, ...]


def sample_path() -> Path:
    """Return the path of the bundled sample of English Wikipedia (101 articles)."""
    return SAMPLE


def corpus_name(path: Path) -> str:
    """Make a readable slug for a corpus file: its name up to the first dot."""
    if path == SAMPLE:
        return SAMPLE_NAME
    return slugify(path.name.partition(".")[0].lower()) or "corpus"


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
        text: a document, with every visible paragraph.
    """
    counts = Counter() if counts is None else counts
    for title, article_paragraphs in plain_text.documents(path, counts):
        counts["articles"] += 1
        counts["paragraphs kept"] += len(article_paragraphs)
        yield Article(title, tuple(article_paragraphs))


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
    path = sample_path() if path is None else text_files.existing_file(path)
    spec = {
        "kind": "segments",
        "file": text_files.file_fingerprint(path),
        "count": count,
        "seed": seed if count is not None else None,
    }

    def read(counts: Counter[str]) -> Iterator[Segment]:
        bar = progress(_all_segments(path, counts), f"Reading {path.name}", unit=" segments")
        if count is None:
            yield from bar
            return
        chosen = reservoir(enumerate(bar), count, random.Random(seed))
        counts["segments not sampled"] = counts["segments"] - len(chosen)
        yield from (segment for _, segment in sorted(chosen, key=itemgetter(0)))

    return Corpus(corpus_name(path), spec, read)


def _all_segments(path: Path, counts: Counter[str]) -> Iterator[Segment]:
    """Yield every pair of consecutive paragraphs; CorpusError if there is none."""
    for article in articles(path, counts=counts):
        n_paragraphs = len(article.paragraphs)
        counts["segments"] += n_paragraphs // 2
        counts["paragraphs without a partner"] += n_paragraphs % 2
        pairs = zip(article.paragraphs[::2], article.paragraphs[1::2], strict=False)
        for first, second in pairs:
            yield Segment(first, second, article.title)
    if not counts["segments"]:
        raise CorpusError(path, f"has no two consecutive paragraphs; expected {EXPECTED['text']}")
