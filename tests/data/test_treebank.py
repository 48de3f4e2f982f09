"""Readers of treebanks: what they yield, and the line that each kind of damage is blamed on."""

import gzip
import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.data.conll import detect_format, read_trees
from helpers.data.treebank import treebank
from helpers.errors import CorpusError, InputError

CONLLU = """\
# newdoc id = first
# sent_id = a-1
# text = don't go
1-2\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
1\tdo\tdo\tAUX\t_\t_\t3\taux\t_\t_
2\tn't\tnot\tPART\t_\t_\t3\tadvmod\t_\t_
3\tgo\tgo\tVERB\t_\t_\t0\troot\t_\t_
3.1\tghost\t_\t_\t_\t_\t_\t_\t_\t_

# newdoc id = second
# sent_id = b-1
1\tHer\tshe\tPRON\t_\t_\t2\tnmod:poss\t_\t_
2\tcats\tcat\tNOUN\t_\t_\t0\troot\t_\t_
"""
CONLLX = """\
1\tcats\t_\tN\tN\t_\t2\tnsubj\t_\t_
2\tsleep\t_\tV\tV\t_\t0\troot\t_\t_

1\tNo\t_\tD\tD\t_\t0\troot
2\t!\t_\t.\t.\t_\t0\troot
"""
PLAIN = "cats 2-nsubj\nsleep 0-root\n\n# 2-dep\n1 0-root\n"


@pytest.fixture
def write(tmp_path):
    def to_file(content: str | bytes, name: str = "trees.txt") -> Path:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return to_file


def row(number: int, head: object, word: str = "w") -> str:
    return f"{number}\t{word}\t_\t_\t_\t_\t{head}\tdep\t_\t_\n"


def test_conllu_skips_ranges_and_empty_nodes_and_keeps_subtypes(write):
    first, second = read_trees(write(CONLLU, "x.conllu"))
    assert first.words == ("do", "n't", "go")
    assert first.heads == (3, 3, 0)
    assert first.relations == ("aux", "advmod", "root")
    assert (first.name, first.document) == ("a-1", 0)
    assert second.relations == ("nmod:poss", "root")
    assert (second.name, second.document) == ("b-1", 1)


def test_conllx_has_eight_or_ten_columns_and_any_number_of_roots(write):
    first, second = read_trees(write(CONLLX))
    assert (first.words, first.heads) == (("cats", "sleep"), (2, 0))
    assert second.heads == (0, 0)


def test_plain_format_takes_words_that_look_like_comments_or_numbers(write):
    first, second = read_trees(write(PLAIN))
    assert (first.words, first.heads, first.relations) == (
        ("cats", "sleep"),
        (2, 0),
        ("nsubj", "root"),
    )
    assert second.words == ("#", "1")


@pytest.mark.parametrize(
    ("content", "name", "format"),
    [
        (CONLLU, "x.conllu", "conllu"),
        (CONLLU, "x.txt", "conllu"),
        (CONLLX, "x.conll", "conllx"),
        (CONLLX.partition("\n\n")[2], "x.conll", "conllx"),
        (PLAIN, "x.txt", "plain"),
        (PLAIN.partition("\n\n")[2], "x.txt", "plain"),
    ],
)
def test_format_is_detected(write, content, name, format):
    assert detect_format(write(content, name)) == format


def test_compression_bom_and_crlf_change_nothing(write):
    plain = list(read_trees(write(CONLLU, "x.conllu")))
    windows = "\ufeff" + CONLLU.replace("\n", "\r\n")
    assert list(read_trees(write(windows, "y.conllu"))) == plain
    assert list(read_trees(write(gzip.compress(CONLLU.encode()), "x.conllu.gz"))) == plain


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        (row(1, 0) + "\n" + row(1, 3) + row(2, 0), 3, "head of 'w' is 3.*2 words"),
        (row(1, 2) + row(2, 1), 1, "no root"),
        (row(1, 0) + row(2, 0), 2, "second root"),
        (row(1, 0) + row(2, 3) + row(3, 2), 2, "cycle"),
        (row(1, 0) + row(2, 2), 2, "cycle"),
        (row(1, 0) + "2\tw\t_\n", 2, "expected 10 columns, found 3"),
        (row(1, 0) + row(2, "_"), 2, "head is '_'"),
        (row(1, 0) + row(2, -1), 2, "head is '-1'"),
        (row(1, 0) + row(2, "9" * 5000), 2, "head is '999"),
        (row(1, 0) + row(3, 1), 2, "expected word 2"),
        (row(1, 0).encode() + row(2, 1, "caf").encode() + b"\xe9\n", 3, "UTF-8"),
    ],
)
def test_a_broken_tree_is_blamed_on_its_line(write, content, line, message):
    path = write(content, "x.conllu")
    with pytest.raises(CorpusError, match=message) as caught:
        list(read_trees(path))
    assert caught.value.line == line
    assert str(caught.value).startswith(f"{path}:{line}: ")


@pytest.mark.parametrize(
    ("content", "line"), [("a 0-root\nb 1\n", 2), ("a 0-root\nb c 1-dep\n", 2), ("a 0-\n", 1)]
)
def test_a_broken_plain_line_is_blamed(write, content, line):
    with pytest.raises(CorpusError) as caught:
        list(read_trees(write(content), format="plain"))
    assert caught.value.line == line


@pytest.mark.parametrize("content", ["", "\n\n", "# only a comment\n", "Just some prose here.\n"])
def test_a_file_without_trees_is_refused(write, content):
    with pytest.raises(CorpusError):
        list(read_trees(write(content)))


def test_missing_file(tmp_path):
    with pytest.raises(CorpusError, match="check the path"):
        treebank(tmp_path / "none.conllu")


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                "\n",
                "\t",
                " ",
                "#",
                "1",
                "2",
                "0",
                "-",
                ".",
                "_",
                "w",
                "1\tw\t_\t_\t_\t_\t0\tx\t_\t_\n",
            ]
        ),
        max_size=60,
    ).map("".join)
    | st.text(max_size=80)
)
def test_any_text_is_read_or_refused(tmp_path_factory, text):
    path = tmp_path_factory.getbasetemp() / "any.txt"
    path.write_text(text, newline="")
    try:
        trees = list(read_trees(path))
    except CorpusError:
        return
    for tree in trees:
        assert len(tree.words) == len(tree.heads) == len(tree.relations) > 0
        assert 0 in tree.heads and max(tree.heads) <= len(tree.words)


def many(n: int, newdoc_every: int | None = None) -> str:
    marks = (
        f"# newdoc id = {i}\n" if newdoc_every and i % newdoc_every == 0 else "" for i in range(n)
    )
    return "\n".join(f"{mark}# sent_id = {i}\n{row(1, 0, f'w{i}')}" for i, mark in enumerate(marks))


def test_train_and_dev_files_make_a_corpus_in_order(write):
    train, dev = write(many(3), "en-train.conllu"), write(many(2), "en-dev.conllu")
    corpus = treebank(train, dev)
    assert [(s.split, s.source) for s in corpus.records()] == [
        ("train", "en-train.conllu:0"),
        ("train", "en-train.conllu:1"),
        ("train", "en-train.conllu:2"),
        ("dev", "en-dev.conllu:0"),
        ("dev", "en-dev.conllu:1"),
    ]
    folder = treebank(train.parent)
    assert folder.records() == corpus.records()
    assert folder.fingerprint == corpus.fingerprint


def test_the_papers_folder_of_train_txt_and_dev_txt_works(write, tmp_path):
    write(PLAIN, "train.txt"), write(PLAIN, "dev.txt")
    assert Counter(s.split for s in treebank(tmp_path).records()) == {"train": 2, "dev": 2}


def test_a_folder_without_dev_or_with_two_is_refused(write, tmp_path):
    write(many(2), "a-train.conllu")
    with pytest.raises(CorpusError, match="no dev file"):
        treebank(tmp_path)
    write(many(2), "b-train.conllu")
    with pytest.raises(CorpusError, match=r"a-train.conllu, b-train.conllu"):
        treebank(tmp_path)


def test_one_file_is_split_by_document(write):
    path = write(many(100, newdoc_every=5), "x.conllu")
    parts = {"train": set(), "dev": set()}
    for sentence in treebank(path, seed=3).records():
        parts[sentence.split].add(int(sentence.words[0][1:]) // 5)
    assert not parts["train"] & parts["dev"]
    assert (len(parts["train"]), len(parts["dev"])) == (16, 4)


def test_one_file_without_documents_is_split_by_blocks(write):
    path = write(many(100), "x.conllu")
    dev = [int(s.words[0][1:]) for s in treebank(path).records() if s.split == "dev"]
    assert len(dev) == 20
    assert {i // 10 * 10 for i in dev} == {i for i in dev if i % 10 == 0}  # whole blocks of ten
    with pytest.raises(CorpusError, match="one sentence"):
        treebank(write(many(1), "y.conllu")).records()


def test_a_sample_is_seeded_ordered_counted_and_a_fifth_dev(write):
    train, dev = write(many(60), "en-train.conllu"), write(many(30), "en-dev.conllu")
    counts = Counter()
    corpus = treebank(train, dev, sentences=20, seed=1)
    chosen = list(corpus.read(counts))
    assert Counter(s.split for s in chosen) == {"train": 16, "dev": 4}
    assert counts == {"sentences outside the sample": 70}
    positions = [int(s.words[0][1:]) for s in chosen if s.split == "train"]
    assert positions == sorted(positions)
    assert chosen == treebank(train, dev, sentences=20, seed=1).records()
    other = treebank(train, dev, sentences=20, seed=2)
    assert chosen != other.records()
    assert corpus.fingerprint != other.fingerprint
    assert len(treebank(train, dev, sentences=1000).records()) == 60 + 30
    with pytest.raises(InputError, match="2 or more"):
        treebank(train, dev, sentences=1)


@pytest.mark.skipif("CORPORA_DIR" not in os.environ, reason="CORPORA_DIR is not set")
@pytest.mark.parametrize(
    ("file", "sentences", "words"),
    [
        ("en_ewt-ud-train.conllu.gz", 12_544, 204_577),
        ("en_ewt-ud-dev.conllu", 2_001, 25_147),
        ("en_ewt-ud-test.conllu", 2_077, 25_094),
    ],
)
def test_counts_of_ud_english_ewt(file, sentences, words):
    trees = list(read_trees(Path(os.environ["CORPORA_DIR"], "ud_english_ewt", file)))
    assert (len(trees), sum(len(tree.words) for tree in trees)) == (sentences, words)
