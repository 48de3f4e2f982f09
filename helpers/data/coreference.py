"""Coreference corpora: documents with mentions, their chains and their head words (section 4.3).

Corpora are the bundled sample, CoNLL-2012, CoNLL-U with ``Entity=`` in the last column (CorefUD,
GUM, OntoGUM), and text in brackets, a notation that people can write::

    ## A comment.
    # tale-01 story
    [Ann]1 lost [[her]1 ring]2, and [a magpie] found [it]2.

A header line names a document and its genre; its text follows, over as many lines as it takes.
``[...]7`` is a mention of chain 7, ``[...]`` a mention that nothing else refers to.  Mentions
nest.  The reader separates words, punctuation and clitics (``'s``, ``n't``) as the Penn Treebank
does.

The head word of a mention comes from the dependency trees of the corpus, if it has any, and
otherwise from spaCy's parse of its words.  That parser is English.  In another language the last
word of a mention is taken for its head, and the tags are those of the file, if it has any.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import Any

import pandas as pd

from helpers.data.columns import Format, Row, read_blocks, read_tree, rows_of_words, spaces_before
from helpers.data.records import (
    AnnotatedText,
    Corpus,
    Document,
    Mention,
    Span,
    document_of,
    name_chains,
)
from helpers.data.text_files import (
    clean_word,
    corpus_name,
    file_fingerprint,
    files_below,
    find_corpus,
    is_english,
    lines,
    one_line,
    plain_name,
    quoted,
    refuse_other_formats,
)
from helpers.data.treebank import parser_versions, pipeline, spacy_doc
from helpers.errors import CorpusError
from helpers.progress import progress

SAMPLE = Path(__file__).with_name("coreference-sample.txt")
# A folder may hold one corpus in several formats: the first ending that is found is read.
FILE_ENDINGS = (".conllu", "gold_conll", "conll", ".txt")
# A mention begins with a bracket, the name of its chain and, in CoNLL-U, a part of a mention with
# gaps ("[1/2]") and attributes; it ends with the name, the part and a bracket.
_BRACKET = re.compile(
    r"\((?P<opened>[^-()|\[\]]+(?:\[\d+/\d+\])?)(?:-[^()|]*)?(?P<single>\)?)"
    r"|(?P<closed>[^-()|\[\]]+(?:\[\d+/\d+\])?)\)"
)
_PIECE = re.compile(
    r"""
    (\[) | (\]([0-9]{1,9})?)          # the end of a mention has its chain
  | ((?:Mr|Mrs|Ms|Dr|St)\.
  | \d+(?:[.,:]\d+)+                 # 1,200  3.5  10:30
  | \w+(?=n't\b) | n't\b | '(?:s|re|ve|ll|d|m)\b
  | \w+(?:-\w+)* | \.{3} | [^\w\s])  # well-known
    """,
    re.VERBOSE,
)


def coreference_corpus(source: str | Path = "") -> Corpus[Document]:
    """Read a coreference corpus, once its documents are asked for (section 4.3).

    Every second document, in order of name, is in train, the others in dev.  Names start with the
    genre, so that both halves have the same mixture.  Parts of one document stay together.

    Parameters
    ----------
    source : str or Path
        What the user names by ``--coref``: a corpus by its name, a file, or a folder that is
        searched through, of CoNLL-2012 (``*_conll``), CorefUD, GUM or OntoGUM (``.conllu`` with
        ``Entity=``) or bracket notation (``.txt``); empty for the bundled sample.

    Returns
    -------
    Corpus of Document

    Raises
    ------
    CorpusError
        For a missing file, and for one in another format; when the corpus is read, for a damaged
        file and for a corpus without mentions.
    """
    path = find_corpus(str(source), "coreference") if source else SAMPLE
    files = _files(path)
    for file in files:
        refuse_other_formats(file, "coreference")
    folder = path.parent if path.is_file() else path
    digests = {file.relative_to(folder).as_posix(): file_fingerprint(file) for file in files}
    spec: dict[str, Any] = {"kind": "coreference", "files": digests}
    if not plain_name(files[0]).endswith(".conllu"):
        spec["heads"] = parser_versions()

    def read(counts: Counter[str]) -> Iterator[Document]:
        texts: list[AnnotatedText] = []
        for file in progress(files, "Reading documents", unit=" files"):
            texts += read_documents(file, counts)
        if not any(text.spans for text in texts):
            problem = "no document has a mention; use a corpus with coreference annotation"
            raise CorpusError(path, problem)
        english = is_english(" ".join(text.words) for text in texts)
        splits: dict[str, str] = {}
        for text in texts:
            name = document_of({"source": text.source}) or text.source
            split = splits.setdefault(name, "dev" if len(splits) % 2 else "train")
            yield _with_heads(text, split, counts, english=english)

    return Corpus(corpus_name(path, source), spec, read)


def _files(source: Path) -> list[Path]:
    """List the files of a corpus: a file, or those of the first format found in a folder."""
    for ending in FILE_ENDINGS:
        files = [source] if source.is_file() else files_below(source, f".*{re.escape(ending)}")
        if files:
            return files
    expected = ", *".join(FILE_ENDINGS)
    raise CorpusError(source, f"no coreference file and no folder with one; expected *{expected}")


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
    return Document(text.words, tags, name_chains(mentions), split, text.source, text.spaces)


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


@cache
def universal_tags() -> dict[str, str]:
    """Read the universal tags of Penn Treebank tags (Marcus et al. 1993).

    Tags that are not in the list are left to the tagger.
    """
    tags = pd.read_csv(Path(__file__).with_name("penn_tags.csv"), index_col="penn")
    return tags["universal"].to_dict()


def read_documents(path: Path, counts: Counter[str]) -> Iterator[AnnotatedText]:
    """Yield the documents of a coreference file; each part of a document is one (CoNLL-2012).

    Parameters
    ----------
    path : Path
        A file of CoNLL-U, with trees, if its suffix is ``.conllu``, of brackets for ``.txt``, and
        otherwise of CoNLL-2012 (Pradhan et al. 2012).  In CoNLL-U a mention keeps its words and
        loses its empty nodes, which are not in the text; one of empty nodes only is dropped, and so
        is one with gaps.
    counts : Counter
        Receives the number of words and mentions that were changed or dropped, by reason.

    Raises
    ------
    CorpusError
        With the line, for what breaks the format.
    """
    if plain_name(path).endswith(".txt"):
        yield from read_brackets(path, counts)
        return
    format: Format = "conllu" if plain_name(path).endswith(".conllu") else "conll2012"
    documents: list[tuple[str, list[list[Row]]]] = []
    for marks, rows in read_blocks(path, format, counts):
        mark = marks.get("newdoc", marks.get("begin document"))
        if mark is not None or not documents:
            documents.append((mark or "", []))
        first_field = marks.get("global.Entity", "eid").partition("-")[0]
        if first_field not in ("eid", "GRP"):  # the name of the chain, in CorefUD and in GUM
            problem = f"# global.Entity begins with {quoted(first_field)}; expected eid or GRP"
            raise CorpusError(path, problem, rows[0].line)
        documents[-1][1].append(rows)
    for mark, sentences in documents:
        yield _document(path, format, mark, sentences, counts)


def _document(
    path: Path, format: Format, mark: str, sentences: Sequence[list[Row]], counts: Counter[str]
) -> AnnotatedText:
    """Make a document of its sentences.

    The trees of CoNLL-U give the heads of words; CoNLL-2012 has phrase structure instead.
    """
    name, _, part = mark.removeprefix("(").partition(");")  # (name); part 000
    source = (name or Path(plain_name(path)).stem) + part
    # Words, and empty nodes between them.
    nodes = [row for sentence in sentences for row in sentence if row.mark != "-"]
    rows = rows_of_words(nodes)
    words = tuple(row.word for row in rows)
    if format == "conll2012":
        spans = _read_spans(path, nodes, lambda row: row.cells[-1].strip("-_"), counts)
        tags = tuple(universal_tags().get(row.cells[4]) for row in rows)
        first_lines = {sentence[0].line for sentence in sentences}
        starts = tuple(row.line in first_lines for row in rows)
        return AnnotatedText(source, words, spans, tags, sentence_starts=starts)
    heads: list[int] = []  # their indices in the document, -1 for a root
    spaces: list[bool] = []
    for sentence in sentences:
        tree, _ = read_tree(path, rows_of_words(sentence), format)
        spaces += spaces_before(sentence)
        heads += [len(heads) + head - 1 if head else -1 for head in tree]
    entity = re.compile(r"(?:^|\|)Entity=([^|]*)")
    spans = _read_spans(path, nodes, lambda row: "".join(entity.findall(row.cells[9])), counts)
    tags = tuple(row.cells[3] for row in rows)
    known_spaces = () if all(spaces) else tuple(spaces)
    return AnnotatedText(source, words, spans, tags, tuple(heads), spaces=known_spaces)


def _read_spans(
    path: Path, nodes: Sequence[Row], read_brackets: Callable[[Row], str], counts: Counter[str]
) -> tuple[Span, ...]:
    """Read the mentions of a document from the brackets of its rows, in order; chains may cross."""
    mentions: list[tuple[int, int, str]] = []
    open_mentions: dict[str, list[tuple[int, Row]]] = defaultdict(list)  # the innermost one last
    n_words = 0
    for node in nodes:
        cell = read_brackets(node)
        if _BRACKET.sub("", cell).strip("|"):
            problem = "expected brackets with names of chains such as (3|(4) or 3)"
            raise CorpusError(path, f"coreference {quoted(cell)}; {problem}", node.line)
        n_before = n_words
        n_words += not node.mark
        for bracket in _BRACKET.finditer(cell):
            name = bracket["opened"] or bracket["closed"]
            if bracket["opened"]:
                open_mentions[name].append((n_before, node))
                if not bracket["single"]:
                    continue
            if not open_mentions[name]:
                problem = f"{quoted(name)}) closes no mention; remove it, or open the mention"
                raise CorpusError(path, problem, node.line)
            start, _ = open_mentions[name].pop()
            if name.endswith("]"):
                counts["mentions dropped: with gaps"] += "[1/" in name
            elif start == n_words:
                counts["mentions dropped: of empty nodes only"] += 1
            else:
                mentions.append((start, n_words, name))
    for unclosed in filter(None, open_mentions.values()):
        problem = "a mention that begins here is never closed in this document; close it"
        raise CorpusError(path, problem, unclosed[0][1].line)
    return _number_chains(sorted(mentions, key=itemgetter(0, 1)))


def _number_chains(mentions: Iterable[tuple[int, int, str]]) -> tuple[Span, ...]:
    """Number the chains of mentions in their order."""
    numbers: dict[str, int] = {}
    spans: list[Span] = []
    for start, end, name in mentions:
        spans.append((start, end, numbers.setdefault(name, len(numbers) + 1)))
    return tuple(spans)


def read_brackets(path: Path, counts: Counter[str]) -> Iterator[AnnotatedText]:
    """Yield the documents of a file in bracket notation; invisible words are counted."""
    documents: list[tuple[str, list[tuple[int, str]]]] = []  # the source, numbered lines
    for number, line in lines(path):
        if line.startswith("##") or not line.strip():
            continue
        header = re.fullmatch(r"# (\S+) (\S.*)", line.rstrip())
        if header:
            documents.append((f"{header[1]} ({header[2]})", []))
        elif line.startswith("#") or not documents:
            problem = f"expected a document's header, '# name genre', and not {quoted(line)}"
            raise CorpusError(path, f"{problem} (CoNLL-2012: name the file *_conll)", number)
        else:
            documents[-1][1].append((number, one_line(line)))
    for source, text in documents:
        words, spans = _words_and_spans(path, text, counts)
        yield AnnotatedText(source, words, spans, tags=(None,) * len(words))


def _words_and_spans(
    path: Path, text: list[tuple[int, str]], counts: Counter[str]
) -> tuple[tuple[str, ...], tuple[Span, ...]]:
    """Separate the words of a document and read its mentions, in order."""
    words: list[str] = []
    spans: list[Span] = []
    open_mentions: list[tuple[int, int]] = []  # first word and line
    for number, line in text:
        for opening, _, chain_name, piece in _PIECE.findall(line):
            if opening:
                open_mentions.append((len(words), number))
            elif piece:
                words.append(clean_word(piece, counts))
            else:
                start, _ = open_mentions.pop() if open_mentions else (len(words), number)
                if start == len(words):
                    problem = "']' closes no mention with words; remove it, or put words before it"
                    raise CorpusError(path, problem, number)
                spans.append((start, len(words), int(chain_name) if chain_name else None))
    if open_mentions:
        problem = "'[' is never closed in this document; add its ']'"
        raise CorpusError(path, problem, open_mentions[-1][1])
    return tuple(words), tuple(sorted(spans, key=itemgetter(0, 1)))
