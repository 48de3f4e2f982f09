"""Readers of dependency trees in columns, and the treebanks that are made of them."""

import gzip
from collections import Counter

import pytest
import toy_corpora
from annotated_files import CONLLU, CONLLX, PLAIN

from helpers.data.columns import detect_format, read_trees
from helpers.data.records import REPEATED, cluster_of
from helpers.data.treebank import check_relations, treebank
from helpers.errors import CorpusError, InputError


@pytest.fixture
def write(tmp_path):
    return lambda content, name="trees.txt": toy_corpora.write(tmp_path, name, content)


def trees_of(path):
    return list(read_trees(path, Counter()))


def row(number, head, form="w"):
    return f"{number}\t{form}\t_\t_\t_\t_\t{head}\tdep\t_\t_\n"


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (CONLLU, "x.conllu"),
        ("\ufeff" + CONLLU.replace("\n", "\r\n"), "x.conllu"),
        (gzip.compress(CONLLU.encode(), mtime=0), "x.conllu.gz"),
    ],
)
def test_read_trees_of_conllu(write, content, name):
    first, second, third = trees_of(write(content, name))
    assert first[:3] == (("do", "n't", "go"), (3, 3, 0), ("aux", "advmod", "root"))
    assert (first.tags, second.words, second.tags) == (("AUX", None, "VERB"), ("Her", "_"), ())
    assert [tree.source for tree in (first, second, third)] == [
        "x.conllu, document first, sentence a-1",
        "x.conllu, document second, sentence b-1",
        "x.conllu, document second, sentence 3",
    ]


def test_read_trees_of_conllx_and_the_plain_format(write):
    path = write(CONLLX)
    assert detect_format(path) == "conllx"
    first, second = trees_of(path)
    assert first[:3] == (("cats", "sleep"), (2, 0), ("nsubj", "root"))
    assert second[:3] == (("No", "!"), (0, 0), ("root", "root"))
    path = write(PLAIN)
    assert detect_format(path) == "plain"
    assert [tree.words for tree in trees_of(path)] == [("cats", "sleep"), ("#", "1")]
    assert trees_of(path)[0] == first


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        (row(1, 0) + "\n" + row(1, 3) + row(2, 0), 3, "'w' has the head '3'"),
        (row(1, 2) + row(2, 1), 1, "circle"),
        (row(1, 0) + row(2, 3) + row(3, 2), 2, "circle"),
        (row(1, 0) + row(2, 0), 2, "second root"),
        (row(1, 0, "_") + "\n" + row(1, 2, "_") + row(2, 0, "_"), 3, "left out"),
        (row(1, 0) + "2\tw\t_\n", 2, "found 3"),
        (row(1, 0) + row(3, 1), 2, "expected word 2"),
        (row(1, 0).encode() + row(2, 1, "caf").encode() + b"\xe9\n", 3, "UTF-8"),
    ],
)
def test_read_trees_names_the_line_and_the_word_of_a_broken_tree(write, content, line, message):
    path = write(content, "x.conllu")
    with pytest.raises(CorpusError, match=message) as caught:
        trees_of(path)
    assert str(caught.value).startswith(f"{path}:{line}: ")


def many(n, newdoc_every=1000):
    """Write ``n`` sentences of two words each, with a new document at every so many."""
    text = ""
    for i in range(n):
        mark = f"# newdoc id = {i}\n" if i and i % newdoc_every == 0 else ""
        text += f"{mark}# sent_id = {i}\n{row(1, 0, f'w{i}')}{row(2, 1)}\n"
    return text


def number_of(sentence):
    """Return the number of a sentence that `many` wrote."""
    return int(sentence.words[0][1:])


def test_treebank_of_two_files_has_train_before_dev(write):
    train = write(many(3), "en-train.conllu")
    corpus = treebank(f"{train},{write(many(2), 'en-dev.conllu')}")
    assert [(sentence.split, sentence.source) for sentence in corpus.records()] == [
        *(("train", f"en-train.conllu, sentence {i}") for i in range(3)),
        *(("dev", f"en-dev.conllu, sentence {i}") for i in range(2)),
    ]
    folder = treebank(train.parent)
    assert (folder.records(), folder.fingerprint) == (corpus.records(), corpus.fingerprint)
    train.rename(train.with_name("en-train-a.conllu"))
    write(gzip.compress(many(3).encode()), "en-train-b.conllu.gz")
    assert len(treebank(train.parent).records()) == 3 + 3 + 2  # parts of one treebank
    write(many(2), "b-train.conllu")
    with pytest.raises(CorpusError, match=r"b-train.conllu, en-train-a.conllu, en-train-b"):
        treebank(train.parent)


def test_treebank_counts_what_is_in_both_splits_and_refuses_copies(write):
    train = write(many(20), "train.conllu")
    for n_repeated, count in ((1, 0), (2, 2)):
        new = "".join(f"{row(1, 0, f'v{number}')}{row(2, 1)}\n" for number in range(11))
        counts = Counter()
        dev = write(new + many(n_repeated), "dev.conllu")
        list(treebank(f"{train},{dev}").read(counts))
        assert counts[REPEATED] == count  # from a tenth on
    copy = write(gzip.compress(many(20).encode()), "copy.conllu.gz")
    for dev in (train, copy):
        with pytest.raises(CorpusError, match="dev has the sentences of train"):
            treebank(f"{train},{dev}").records()


def test_treebank_without_a_parent_or_a_row_of_table_1_is_refused(write):
    with pytest.raises(CorpusError, match="no word has a parent"):
        treebank(write("The 0-root\nbaker 0-root\n\nA 0-root\n\nB 0-root\n")).records()
    trees = treebank(write("a 2-det\nb 0-root\nc 2-det\n\na 2-det\nd 0-root\nc 2-det\n"))
    check_relations(trees, 4)
    with pytest.raises(InputError, match="'det', has 4 words; lower --minimum-count to 4"):
        check_relations(trees, 5)


def test_spaces_before_words_are_those_of_the_text(write):
    """The text is "(don't) du coin." and "Go!", and the second file names no spaces."""
    words = [*["(", "do", "n't", ")", "de", "le", "coin", "."]]
    rows = [row(number, 0 if number == 2 else 2, form) for number, form in enumerate(words, 1)]
    for index in (0, 6):
        rows[index] = rows[index].replace("_\t_\n", "_\tA=b|SpaceAfter=No\n")
    rows.insert(4, "5-6\tdu" + "\t_" * 8 + "\n")
    rows.insert(1, "2-3\tdon't" + "\t_" * 7 + "\tSpaceAfter=No\n")
    text = f"{''.join(rows)}\n{row(1, 0, 'Go')}{row(2, 1, '!')}"
    first, second = trees_of(write(text, "x.conllu"))
    after_space = [word for word, space in zip(words, first.spaces, strict=True) if space]
    assert after_space == ["(", "de", "le", "coin"] and second.spaces == (True, True)
    unknown = [tree.spaces for tree in trees_of(write(text.replace("SpaceAfter", "X"), "y.conllu"))]
    assert unknown == [(), ()]


@pytest.mark.parametrize(("newdoc_every", "block", "n_clusters"), [(5, 5, 20), (1000, 10, 100)])
def test_treebank_of_one_file_is_split_by_documents_or_blocks(
    write, newdoc_every, block, n_clusters
):
    trees = treebank(write(many(100, newdoc_every), "x.conllu"), seed=3).records()
    splits = {(number_of(tree) // block, tree.split) for tree in trees}
    assert len(splits) == 100 // block and sum(tree.split == "dev" for tree in trees) == 20
    train = [number_of(tree) for tree in trees if tree.split == "train"]
    assert train == sorted(train)
    clusters = {cluster_of(tree._asdict(), index) for index, tree in enumerate(trees)}
    assert len(clusters) >= n_clusters


def test_treebank_sample_is_seeded_in_order_and_a_fifth_dev(write):
    files = f"{write(many(60), 'en-train.conllu')},{write(many(30), 'en-dev.conllu')}"
    counts = Counter()
    corpus = treebank(files, sentences=20, seed=1)
    chosen = list(corpus.read(counts))
    assert Counter(sentence.split for sentence in chosen) == {"train": 16, "dev": 4}
    assert counts == {"sentences outside the sample": 70, "sentences read": 20, REPEATED: 30}
    numbers = [number_of(sentence) for sentence in chosen if sentence.split == "train"]
    assert numbers == sorted(numbers)
    assert chosen == treebank(files, sentences=20, seed=1).records()
    second_seed = treebank(files, sentences=20, seed=2)
    assert chosen != second_seed.records() and corpus.fingerprint != second_seed.fingerprint
    assert len(treebank(files, sentences=1000).records()) == 60 + 30
    with pytest.raises(CorpusError, match="one sentence"):
        treebank(write(many(1), "y.conllu")).records()
