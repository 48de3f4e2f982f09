"""Coreference corpora: documents with mentions, their chains and their head words (section 4.3).

Corpora are the bundled sample, CoNLL-2012, CorefUD, GUM, OntoGUM, and text in brackets (see
`helpers.data.coreference_files`).

The head word of a mention comes from the dependency trees of the corpus, if it has any, and
otherwise from spaCy's parse of its words.  That parser is English.  In another language the last
word of a mention is taken for its head, and the tags are those of the file, if it has any.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from helpers.data.coreference_files import read_documents
from helpers.data.records import (
    AnnotatedText,
    Corpus,
    Document,
    Mention,
    Span,
    document_of,
    name_chains,
)
from helpers.data.text_files import file_fingerprint, is_english, plain_name, refuse_other_formats
from helpers.data.treebank import parser_versions, pipeline, spacy_doc
from helpers.errors import CorpusError
from helpers.progress import progress

SAMPLE = Path(__file__).with_name("coreference_sample.txt")
# A folder may hold one corpus in several formats: the first pattern that matches is read.
FILE_PATTERNS = ("*.conllu", "*gold_conll", "*conll", "*.txt")


def coreference_corpus(path: Path | None = None) -> Corpus[Document]:
    """Read a coreference corpus, once its documents are asked for (section 4.3).

    Every second document, in order of name, is in train, the others in dev.  Names start with the
    genre, so that both halves have the same mixture.  Parts of one document stay together.

    Parameters
    ----------
    path : Path, optional
        A file, or a folder that is searched through, of CoNLL-2012 (``*_conll``), CorefUD, GUM or
        OntoGUM (``.conllu`` with ``Entity=``) or bracket notation (``.txt``); None: the bundled
        sample.

    Returns
    -------
    Corpus of Document

    Raises
    ------
    CorpusError
        For a missing file, and for one in another format; when the corpus is read, for a damaged
        file and for a corpus without mentions.
    """
    source = path or SAMPLE
    files = _files(source)
    for file in files:
        refuse_other_formats(file, "coreference")
    folder = source.parent if source.is_file() else source
    digests = {file.relative_to(folder).as_posix(): file_fingerprint(file) for file in files}
    spec: dict[str, Any] = {"kind": "coreference", "files": digests}
    if not all(plain_name(file).endswith(".conllu") for file in files):
        spec["heads"] = parser_versions()

    def read(counts: Counter[str]) -> Iterator[Document]:
        texts: list[AnnotatedText] = []
        for file in progress(files, "Reading documents", unit=" files"):
            texts += read_documents(file, counts)
        if not any(text.spans for text in texts):
            problem = "no document has a mention; use a corpus with coreference annotation"
            raise CorpusError(source, problem)
        english = is_english(" ".join(text.words) for text in texts)
        names = [document_of({"source": text.source}) or text.source for text in texts]
        splits = dict(zip(dict.fromkeys(names), cycle(("train", "dev")), strict=False))
        for text, name in zip(texts, names, strict=True):
            yield _with_heads(text, splits[name], counts, english=english)

    return Corpus("coreference-sample" if path is None else path.name.partition(".")[0], spec, read)


def _files(source: Path) -> list[Path]:
    """List the files of a corpus: a file, or those of the first format found in a folder."""
    if source.is_file():
        return [source]
    for pattern in FILE_PATTERNS:
        files = sorted(source.rglob(pattern))
        if files:
            return files
    expected = ", ".join(FILE_PATTERNS)
    raise CorpusError(source, f"no coreference file and no folder with one; expected {expected}")


def one_mention_per_span(spans: Sequence[Span], counts: Counter[str]) -> tuple[Span, ...]:
    """Keep each span once; two chains that share a span become one chain.

    Otherwise a mention would be asked about twice, and its copy would be the nearest mention with
    the same head word.

    Parameters
    ----------
    spans : sequence of Span
        The mentions of a document, in order.
    counts : Counter
        Receives the numbers of mentions that were listed twice, and of chains that were joined.

    Returns
    -------
    tuple of Span
        The mentions, in order.  A joined chain has the number of the one that was listed first.
    """
    chains: dict[tuple[int, int], int | None] = {}
    joined = {chain: chain for *_, chain in spans}  # each chain's, or the one that it joined
    for start, end, chain in spans:
        if (start, end) not in chains:
            chains[start, end] = chain
            continue
        counts["mentions dropped: listed twice"] += 1
        first_chain = joined[chains[start, end]]
        chain = joined[chain]
        if first_chain is None:
            chains[start, end] = chain
        elif chain not in (None, first_chain):
            counts["chains joined: they share a mention"] += 1
            for name, root in joined.items():
                joined[name] = first_chain if root == chain else root
    return tuple((start, end, joined[chain]) for (start, end), chain in chains.items())


def _with_heads(
    text: AnnotatedText, split: str, counts: Counter[str], *, english: bool
) -> Document:
    """Settle the head words of mentions, by the document's trees or by spaCy's.

    Without either, each word depends on the next, so that a mention's last word is its head.
    """
    heads = text.heads
    tags = text.tags
    predicted_tags = None
    if heads is None and not english:
        heads = (*range(1, len(text.words)), -1)
    elif heads is None:
        heads, predicted_tags = _parse(text)
        tag_pairs = zip(tags, predicted_tags, strict=True)
        tags = tuple(tag or predicted for tag, predicted in tag_pairs)
    mentions = []
    for start, end, chain in one_mention_per_span(text.spans, counts):
        head = head_word(start, end, heads, predicted_tags)
        mentions.append(Mention(start, end, chain, head))
    counts["documents read"] += 1
    counts["mentions read"] += len(mentions)
    return Document(text.words, tags, name_chains(mentions), split, text.source)


def _parse(text: AnnotatedText) -> tuple[list[int], list[str]]:
    """Parse a document: each word's head (index in the document, -1: a root) and universal tag."""
    parsed = pipeline()(spacy_doc(text.words, text.sentence_starts))
    heads = [-1 if token == token.head else token.head.i for token in parsed]
    return heads, [token.pos_ for token in parsed]


def head_word(start: int, end: int, heads: Sequence[int], tags: Sequence[str] | None) -> int:
    """Find the head word of a mention: its word nearest to the root of the sentence.

    Parameters
    ----------
    start, end : int
        The words of the mention, ``end`` exclusive.
    heads : sequence of int
        Each word's head: its index in the document, -1 for a root.
    tags : sequence of str or None
        Universal tags of a predicted parse.  Nouns and names then go before pronouns and
        numerals, and those before other words: a parser that breaks a mention apart does not make
        "behind" the head of "a tree behind the church".

    Returns
    -------
    int
        Its index in the document.
    """
    tag_ranks = {"NOUN": 0, "PROPN": 0, "PRON": 1, "NUM": 1}

    def rank(word: int) -> tuple[int, int]:
        depth = 0
        ancestor = word
        while heads[ancestor] >= 0:
            ancestor = heads[ancestor]
            depth += 1
        return tag_ranks.get(tags[word], 2) if tags else 0, depth

    return min((word for word in range(start, end) if not start <= heads[word] < end), key=rank)
