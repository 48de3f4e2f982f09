"""Coreference: three formats, head words, folders, and the corpora."""

import csv
import gzip
import json
import os
from collections import Counter
from pathlib import Path

import other_languages
import pytest
from annotated_files import CONLL_2012, CZECH
from toy_corpora import write

from helpers.data.coreference import (
    coreference_corpus,
    head_word,
    one_mention_per_span,
    read_documents,
)
from helpers.errors import CorpusError
from helpers.metrics.coreference import document_mentions


def test_read_documents_of_conll_2012_have_parts_and_crossing_mentions(tmp_path):
    path = write(tmp_path, "x.v4_gold_conll", CONLL_2012)
    first, second, third = read_documents(path, Counter())
    assert first.words == ("Ann", "Lee", "saw", "her", "dog", "It")
    assert first.tags == ("PROPN", "PROPN", "VERB", "PRON", "NOUN", "PRON")
    assert first.spans == ((0, 2, 1), (1, 3, 2), (3, 4, 1), (3, 5, 3), (5, 6, 3))
    assert first.sentence_starts == (True, False, False, False, False, True)
    assert (first.source, second.source) == ("nw/x part 000", "nw/x part 001")
    assert third.spans == ((0, 1, 1),)
    documents = coreference_corpus(path).records()
    assert [mention.head for mention in documents[0].mentions][-3:] == [3, 4, 5]  # of a parse
    assert [document.split for document in documents] == ["train", "train", "dev"]


@pytest.mark.parametrize("name", ["cs.conllu", "cs.conllu.gz"])
def test_read_documents_of_corefud_leave_out_empty_nodes_and_gaps(tmp_path, name):
    content = gzip.compress(CZECH.encode()) if name.endswith(".gz") else CZECH
    path = write(tmp_path, name, content)
    counts = Counter()
    (document,) = read_documents(path, counts)
    assert document.words == (
        *["Anna", "spí", "Vidí", "dům", "s", "dnes", "zahradou", "Má", "ho", "dům"],
    )
    assert document.spans == ((0, 1, 1), (5, 6, 2), (7, 9, 3), (8, 9, 4), (9, 10, 4))
    assert document.heads == (1, -1, -1, 2, 6, 2, 3, -1, 7, 7)
    assert counts == {"mentions dropped: of empty nodes only": 2, "mentions dropped: with gaps": 1}
    (with_heads,) = coreference_corpus(path).records()
    assert [mention.chain for mention in with_heads.mentions] == [None, None, None, 4, 4]
    assert [mention.head for mention in with_heads.mentions] == [0, 5, 7, 8, 9]


def test_read_documents_of_gum_have_the_chains_of_groups(tmp_path):
    gum = CZECH.replace("eid-", "GRP-").replace("(e", "(").replace("=e", "=")
    (document,) = read_documents(write(tmp_path, "gum.conllu", gum), Counter())
    assert [chain for *_, chain in document.spans] == [1, 2, 3, 4, 4]


def row_2012(word, coreference):
    return f"#begin document (a); part 000\na 0 0 {word} NN * - - - - * {coreference}\n"


def broken_czech(old, new):
    assert CZECH.count(old) == 1
    return CZECH.replace(old, new)


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("a.conllu", broken_czech("eid-etype-head-other", "etype-eid"), 3),
        ("a.conllu", broken_czech("Entity=e2[1/2])", "Entity=e2)"), 10),
        ("a.conllu", broken_czech("Entity=(e3-time-1-)", "Entity=(e3-time-1-"), 11),
        ("a.conllu", broken_czech("Entity=(e3-time-1-)", "Entity=((e3)"), 11),
        ("a.conllu", broken_czech("5\tcase", "9\tcase"), 10),
        ("a_gold_conll", row_2012("[WORD]", "-"), 2),
        ("a_gold_conll", row_2012("x", "(1"), 2),
        ("a_gold_conll", row_2012("x", "()"), 2),
        ("a.txt", "# a b\n[x]1 ]2\n", 2),
        ("a.txt", "# a b\nfine\n[x\n", 3),
        ("a.txt", "# a b\n[x] [ ]\n", 2),
        ("a.txt", "\nx\n# a b\n", 2),
        ("a.txt", "# a\n[x]\n", 1),
    ],
)
def test_coreference_corpus_names_the_line_of_a_broken_document(tmp_path, name, text, line):
    path = write(tmp_path, name, text)
    with pytest.raises(CorpusError) as error:
        coreference_corpus(path).records()
    assert str(error.value).startswith(f"{path}:{line}: ")


def test_read_documents_of_brackets_separate_words_and_nest_mentions(tmp_path):
    body = "# t-01 tale\n[[Ann\u200b]1's dog]2 didn't eat\n"
    body += "[3.5 well-known [pies]], [she]1 left \u200d.\n"
    counts = Counter()
    (text,) = read_documents(write(tmp_path, "t.txt", "## a comment\n" + body), counts)
    assert " ".join(text.words) == "Ann 's dog did n't eat 3.5 well-known pies , she left _ ."
    assert text.spans == ((0, 1, 1), (0, 3, 2), (6, 9, None), (8, 9, None), (10, 11, 1))
    assert text.source == "t-01 (tale)"
    assert counts == {"words that are empty or invisible, read as _": 1}


def test_one_mention_per_span_joins_the_chains_that_share_one():
    counts = Counter()
    spans = (
        *((0, 1, None), (0, 1, 4), (2, 3, 4), (2, 3, None)),
        *((4, 5, 5), (4, 5, 6), (6, 7, 6), (8, 9, 7), (8, 9, 6), (10, 11, 5)),
    )
    expected = ((0, 1, 4), (2, 3, 4), (4, 5, 7), (6, 7, 7), (8, 9, 7), (10, 11, 7))
    assert one_mention_per_span(spans, counts) == expected
    assert counts == {
        "mentions dropped: listed twice": 4,
        "chains joined: they share a mention": 2,
    }
    assert one_mention_per_span((), counts) == ()


def test_head_word_is_the_nearest_to_the_root():
    # 0 <- 1 <- 2 (root) -> 3 -> 4
    heads = (1, 2, -1, 2, 3)
    assert head_word(0, 2, heads, None) == 1  # the only one with its head outside
    assert head_word(3, 5, heads, None) == 3
    # 0 and 2 attach outside of 0-2; 2 is nearer to the root, which is 4.
    assert head_word(0, 3, (3, 2, 4, 4, -1), None) == 2
    # As near: the first, unless tags say that only the second is a noun.
    assert head_word(0, 2, (2, 2, -1), None) == 0
    assert head_word(0, 2, (2, 2, -1), ("ADP", "NOUN", "VERB")) == 1


def test_coreference_corpus_reads_one_format_of_a_folder(tmp_path):
    with pytest.raises(CorpusError, match="no coreference file"):
        coreference_corpus(tmp_path)
    write(tmp_path, "a.txt", "# a b\nNobody is marked here.\n# b c\n")
    with pytest.raises(CorpusError, match="coreference annotation"):
        coreference_corpus(tmp_path).records()
    path = write(tmp_path, "x.conllu", CZECH)
    write(tmp_path, "y.conllu.gz", gzip.compress(CZECH.replace("= cs", "= csx").encode()))
    corpus = coreference_corpus(tmp_path)
    assert [document.source for document in corpus.records()] == ["cs", "csx"]
    assert list(corpus.spec["files"]) == ["x.conllu", "y.conllu.gz"]
    path.write_text(CZECH.replace("Anna", "Jana"), encoding="utf-8")
    assert coreference_corpus(tmp_path).fingerprint != corpus.fingerprint


@pytest.mark.skipif("CORPORA_DIR" not in os.environ, reason="CORPORA_DIR is not set")
def test_coreference_corpus_has_the_counts_published_with_ontogum():
    folder = Path(os.environ["CORPORA_DIR"]) / "ontogum"
    with (folder / "documents.tsv").open(encoding="utf-8") as file:
        table = {row["document"]: row for row in csv.DictReader(file, delimiter="\t")}
    counts = Counter()
    corpus = coreference_corpus("ontogum")  # whose pinned files are in this folder
    documents = list(corpus.read(counts))
    assert "heads" not in corpus.spec  # no parser decides what a mention's head is
    assert {document.source for document in documents} == set(table) and len(documents) == 83
    # One span of each of these documents is in two chains, which are one chain here.
    joined = ("GUM_bio_galois", "GUM_bio_moreau", "GUM_court_property", "GUM_interview_chomsky")
    assert counts["chains joined: they share a mention"] == len(joined)
    for document in documents:
        row = table[document.source]
        chains = {mention.chain for mention in document.mentions}
        n_joined = document.source in joined
        assert len(document.words) == int(row["tokens"])
        assert len(document.mentions) == int(row["mentions"]) - n_joined
        assert len(chains) == int(row["chains"]) - n_joined
    assert Counter(document.split for document in documents) == {"train": 42, "dev": 41}


@pytest.mark.parametrize("language", other_languages.DOCUMENTS)
def test_mentions_of_another_language_have_no_guessed_types(language, tmp_path):
    path = other_languages.documents(tmp_path, language)
    document = coreference_corpus(path).records()[0]
    assert set(document.tags) == {None}
    for mention in document.mentions:
        assert mention.head == mention.end - 1
    mentions = document_mentions(json.loads(json.dumps(document._asdict())))
    assert {mention.type for mention in mentions} == {"unknown"}
