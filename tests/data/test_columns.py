"""Readers of columns, and the treebanks that are made of them."""

import gzip
import os
import re
from collections import Counter

import pytest
import toy_corpora

from helpers.data.columns import detect_format, read_documents, read_trees
from helpers.data.coreference import coreference_corpus
from helpers.data.corpora import resolve_treebank
from helpers.data.records import cluster_of, describe_documents
from helpers.data.text_files import word
from helpers.data.treebank import treebank
from helpers.errors import CorpusError

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
1\tHer\tshe\tPRON\t_\t_\t2\tnmod:poss\t_\tEntity=(2(1)
2\tcats\tcat\tNOUN\t_\t_\t0\troot\t_\tSpaceAfter=No|Entity=2)

1\tShe\tshe\tPRON\t_\t_\t2\tnsubj\t_\tEntity=(1)
2\tran\trun\tVERB\t_\t_\t0\troot\t_\t_
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
    return lambda content, name="trees.txt": toy_corpora.write(tmp_path, name, content)


def row(number: int, head: object, form: str = "w") -> str:
    return f"{number}\t{form}\t_\t_\t_\t_\t{head}\tdep\t_\t_\n"


def row_2012(index, word, tag, coreference, *arguments):
    columns = ["nw/x", "0", str(index), word, tag, "*", "-", "-", "-", "-", "*"]
    return "   ".join([*columns, *arguments, coreference]) + "\n"


def document_2012(*rows, name="nw/x", part="000"):
    return f"#begin document ({name}); part {part}\n{''.join(rows)}\n#end document\n"


# Trees


def trees_of(path):
    return read_trees(path, Counter())


def test_read_trees_of_conllu_skips_ranges_and_names_documents(write):
    first, second, third = trees_of(write(CONLLU, "x.conllu"))
    assert first[:3] == (("do", "n't", "go"), (3, 3, 0), ("aux", "advmod", "root"))
    assert second.relations == ("nmod:poss", "root")
    assert [tree.source for tree in (first, second, third)] == [
        "x.conllu, document first, sentence a-1",
        "x.conllu, document second, sentence b-1",
        "x.conllu, document second, sentence 3",
    ]
    assert first.tags == ("AUX", "PART", "VERB")


def test_read_trees_has_no_tags_where_the_file_has_none(write):
    untagged = CONLLU.replace("NOUN", "_").replace("PRON", "_").replace("AUX", "_")
    first, second, third = trees_of(write(untagged, "x.conllu"))
    assert (first.tags, second.tags, third.tags) == ((None, "PART", "VERB"), (), (None, "VERB"))
    assert {tree.tags for tree in trees_of(write(CONLLX, "x.conllx"))} == {()}
    assert {tree.tags for tree in trees_of(write(PLAIN))} == {()}


def test_read_trees_of_conllx_allows_several_roots(write):
    first, second = trees_of(write(CONLLX))
    assert first[:2] == (("cats", "sleep"), (2, 0))
    assert second.heads == (0, 0)


def test_read_trees_of_the_plain_format_takes_number_signs_for_words(write):
    first, second = trees_of(write(PLAIN))
    assert first[:3] == (("cats", "sleep"), (2, 0), ("nsubj", "root"))
    assert second.words == ("#", "1")


@pytest.mark.parametrize(
    ("name", "content", "format"),
    [
        ("x.conllu", CONLLU, "conllu"),
        ("x.conllu.gz", CONLLU, "conllu"),
        ("x.conllx", f"# sent_id = 1\n{CONLLX}", "conllx"),
        ("x.txt", CONLLX, "conllx"),
        ("x.txt", PLAIN, "plain"),
    ],
)
def test_detect_format_goes_by_the_name_and_the_first_line(write, name, content, format):
    assert detect_format(write(content, name)) == format


def test_read_trees_of_conllx_may_have_comments(write):
    """A comment does not make a file CoNLL-U, which has one root."""
    two_roots = row(1, 2) + row(2, 0) + row(3, 0)
    path = write(f"# sent_id = r0\n{two_roots}", "x.conllx")
    (tree,) = trees_of(path)
    assert tree.heads == (2, 0, 0)
    assert list(trees_of(write(two_roots, "x.conllx"))) == [
        tree._replace(source="x.conllx, sentence 1")
    ]


def test_read_trees_is_the_same_with_compression_byte_order_mark_and_crlf(write):
    plain = list(trees_of(write(CONLLU, "x.conllu")))
    windows = "\ufeff" + CONLLU.replace("\n", "\r\n")
    assert list(trees_of(write(windows, "x.conllu"))) == plain
    assert list(trees_of(write(gzip.compress(CONLLU.encode()), "x.conllu.gz"))) == plain


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        (row(1, 0) + "\n" + row(1, 3) + row(2, 0), 3, "'w' has the head '3' .*at most 2"),
        (row(1, 2) + row(2, 1), 1, "circle"),
        (row(1, 0) + row(2, 0), 2, "second root"),
        (
            row(1, 0) + "\n" + row(1, 2, "_") + row(2, 0, "_"),
            3,
            "words of this corpus are left out",
        ),
        (row(1, 0) + row(2, 3) + row(3, 2), 2, "circle"),
        (row(1, 0) + "2\tw\t_\n", 2, "expected 10 columns, found 3"),
        (row(1, 0) + row(3, 1), 2, "expected word 2"),
        (row(1, 0).encode() + row(2, 1, "caf").encode() + b"\xe9\n", 3, "UTF-8"),
    ],
)
def test_read_trees_names_the_line_of_a_broken_tree(write, content, line, message):
    path = write(content, "x.conllu")
    with pytest.raises(CorpusError, match=message) as caught:
        list(trees_of(path))
    assert str(caught.value).startswith(f"{path}:{line}: ")


def test_read_trees_may_have_an_underscore_as_a_word(write):
    content = row(1, 0, "_") + "\n" + row(1, 2, "_") + row(2, 0, "x")
    assert [tree.words for tree in trees_of(write(content))] == [("_",), ("_", "x")]


# Documents


def test_read_documents_of_conllu_have_trees(write):
    first, second = read_documents(write(CONLLU, "pets.conllu"), Counter())
    assert (first.name, second.name, second.source) == ("first", "second", "second")
    assert second.words == ("Her", "cats", "She", "ran")
    assert second.heads == (1, -1, 3, -1)
    assert second.tags == ("PRON", "NOUN", "PRON", "VERB")
    assert second.spans == ((0, 1, 1), (0, 2, 2), (2, 3, 1))


def test_read_documents_of_conll_2012_have_parts_and_crossing_mentions(write):
    rows = (
        row_2012(0, "Ann", "NNP", "(0"),
        row_2012(1, "Lee", "NNP", "0)|(2"),
        row_2012(2, "saw", "VBD", "2)", "(V*)"),
        row_2012(3, "her", "PRP$", "(1|(0)", "*"),
        row_2012(4, "dog", "NN", "1)", "*") + "\n",
        row_2012(0, "It", "PRP", "(1)"),
    )
    second_part = document_2012(row_2012(0, "Rain", "NN", "-"), part="001")
    second_text = document_2012(row_2012(0, "He", "PRP", "(4)"), name="nw/y")
    path = write(document_2012(*rows) + second_part + second_text, "x.v4_gold_conll")
    first, second, third = read_documents(path, Counter())
    assert first.words == ("Ann", "Lee", "saw", "her", "dog", "It")
    assert first.tags == ("PROPN", "PROPN", "VERB", "PRON", "NOUN", "PRON")
    assert first.spans == ((0, 2, 0), (1, 3, 2), (3, 4, 0), (3, 5, 1), (5, 6, 1))
    assert first.sentence_starts == (True, False, False, False, False, True)
    assert (first.source, second.source) == ("nw/x part 000", "nw/x part 001")
    assert third.spans == ((0, 1, 4),)
    documents = coreference_corpus(path).records()
    assert [mention.head for mention in documents[0].mentions][-3:] == [3, 4, 5]  # of a parse
    assert [document.split for document in documents] == ["train", "train", "dev"]


# CorefUD in Czech: a zero subject is an empty node, and one mention has a gap.
CZECH = """\
# newdoc id = cs
# global.Entity = eid-etype-head-other
# text = Anna spí.
1\tAnna\tAnna\tPROPN\t_\t_\t2\tnsubj\t_\tEntity=(e1-person-1-)
2\tspí\tspát\tVERB\t_\t_\t0\troot\t_\t_

# text = Vidí dům s dnes zahradou.
0.1\t_\ton\tPRON\t_\t_\t_\t_\t1:nsubj\tEntity=(e1-person-1-)
1\tVidí\tvidět\tVERB\t_\t_\t0\troot\t_\t_
2\tdům\tdům\tNOUN\t_\t_\t1\tobj\t_\tEntity=(e2[1/2]-thing-1-
3\ts\ts\tADP\t_\t_\t5\tcase\t_\tEntity=e2[1/2])
4\tdnes\tdnes\tADV\t_\t_\t1\tadvmod\t_\tEntity=(e3-time-1-)
5\tzahradou\tzahrada\tNOUN\t_\t_\t2\tnmod\t_\tEntity=(e2[2/2])

1\tMá\tmít\tVERB\t_\t_\t0\troot\t_\tEntity=(e4-event-1-
1.1\t_\ton\tPRON\t_\t_\t_\t_\t_\tEntity=(e1-person-1-%28x%29)
2\tho\ton\tPRON\t_\t_\t1\tobj\t_\tBridge=e2<e1:part|Entity=e4)(e2-thing-1-)
"""
# CorefUD in French: "au" is two words, and chains have names without numbers.
FRENCH = """\
# newdoc id = fr
# global.Entity = eid-etype-head-other
1\tLéa\tLéa\tPROPN\t_\t_\t2\tnsubj\t_\tEntity=(lea-person-1-)
2\tva\taller\tVERB\t_\t_\t0\troot\t_\t_
3-4\tau\t_\t_\t_\t_\t_\t_\t_\t_
3\tà\tà\tADP\t_\t_\t5\tcase\t_\t_
4\tle\tle\tDET\t_\t_\t5\tdet\t_\tEntity=(marché-place-2-
5\tmarché\tmarché\tNOUN\t_\t_\t2\tobl\t_\tEntity=marché)

1\tElle\til\tPRON\t_\t_\t2\tnsubj\t_\tEntity=(lea-person-1-)
2\trit\trire\tVERB\t_\t_\t0\troot\t_\t_
"""


def test_read_documents_of_corefud_leave_out_empty_nodes_and_fill_gaps(write):
    counts = Counter()
    (document,) = read_documents(write(CZECH, "cs.conllu"), counts)
    assert document.words == ("Anna", "spí", "Vidí", "dům", "s", "dnes", "zahradou", "Má", "ho")
    # "dům s ... zahradou" is read as "dům s", which has its head by the file.
    assert document.spans == ((0, 1, 1), (3, 5, 2), (5, 6, 3), (7, 9, 4), (8, 9, 2))
    assert counts["mentions dropped: of empty nodes only"] == 2
    assert counts["mentions with gaps, read as the part with their head"] == 1
    (again,) = coreference_corpus(write(CZECH, "cs.conllu")).records()
    assert [mention.chain for mention in again.mentions] == [None, 2, None, None, 2]
    assert [mention.head for mention in again.mentions] == [0, 3, 5, 7, 8]
    last_part = CZECH.replace("(e2[1/2]-thing-1-", "(e2[1/2]-thing-3-")
    (document,) = read_documents(write(last_part, "cs.conllu"), Counter())
    assert (6, 7, 2) in document.spans


def test_read_documents_of_corefud_have_the_words_of_multiword_tokens(write):
    (document,) = coreference_corpus(write(FRENCH, "fr.conllu")).records()
    assert document.words == ("Léa", "va", "à", "le", "marché", "Elle", "rit")
    assert document.mentions == ((0, 1, 1, 0), (3, 5, None, 4), (5, 6, 1, 5))
    assert document.tags[3] == "DET"


def test_read_documents_of_gum_have_the_chains_of_groups(write):
    text = CONLLU.replace("# newdoc id = first", "# newdoc id = first\n# global.Entity = GRP-etype")
    text = text.replace("Entity=(2(1)", "Entity=(2-animal-new(1-person-acc:inf-cf1-1-coref)")
    _, document = read_documents(write(text, "gum.conllu"), Counter())
    assert document.spans == ((0, 1, 1), (0, 2, 2), (2, 3, 1))


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("eid-etype-head-other", "etype-eid", 4, "begins with 'etype'; expected eid or GRP"),
        ("Entity=(e2[2/2])", "_", 10, "the last part of e2[1/2] is missing"),
        ("Entity=e2[1/2])", "Entity=e2)", 11, "e2) closes no mention"),
        ("Entity=(e3-time-1-)", "Entity=(e3-time-1-", 12, "(e3 is never closed"),
        ("Entity=(e3-time-1-)", "Entity=((e3)", 12, "expected brackets with names of chains"),
    ],
)
def test_read_documents_of_corefud_name_the_line_of_damage(write, old, new, line, message):
    assert old in CZECH
    path = write(CZECH.replace(old, new), "cs.conllu")
    with pytest.raises(CorpusError) as error:
        list(read_documents(path, Counter()))
    assert str(error.value).startswith(f"{path}:{line}: ")
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("name", "text", "line", "message"),
    [
        ("a_gold_conll", document_2012(row_2012(0, "[WORD]", "NN", "-")), 2, "skeleton"),
        ("a_gold_conll", document_2012(row_2012(0, "x", "NN", "(1")), 2, "never closed"),
        ("a.conllu", row(1, 2, "_") + row(2, 0, "_"), 1, "left out"),
        ("a_gold_conll", document_2012(row_2012(0, "x", "NN", "(one)")), 2, "'(one)'"),
        ("a.conllu", CONLLU.replace("Entity=(1)", "Entity=(1"), 14, "never closed"),
        ("a.conllu", CONLLU.replace("Entity=(1)", "Entity=(1\u200d"), 14, r"(1\u200d is never"),
        ("a.conllu", CONLLU.replace("Entity=(1)", f"Entity={'x' * 999})"), 14, "; remove it"),
    ],
)
def test_read_documents_names_the_line_of_a_broken_document(write, name, text, line, message):
    path = write(text, name)
    with pytest.raises(CorpusError) as error:
        list(read_documents(path, Counter()))
    assert f"{path}:{line}: " in str(error.value)
    assert message in str(error.value)


# Words


def test_word_replaces_and_counts_invisible_words():
    counts = Counter()
    for form in ["10\xa0000", "a\u200bb", "\u2014", "שלום", "👩\u200d👧", "e\u0301"]:
        assert word(form, counts) == form
    assert not counts
    for form in ["", "\xa0", "\u200b\u2060", "\u202e", "\u0301", "\ufffd", "\x07", "\U000e0001"]:
        assert word(form, counts) == "_"
    assert counts == {"words that are empty or invisible, read as _": 8}


# A treebank as a corpus


def many(n: int, newdoc_every: int | None = None) -> str:
    """Write ``n`` sentences of one word each, with a new document at every so many."""
    sentences = []
    for i in range(n):
        begins_document = newdoc_every and i % newdoc_every == 0
        mark = f"# newdoc id = {i}\n" if begins_document else ""
        sentences.append(f"{mark}# sent_id = {i}\n{row(1, 0, f'w{i}')}")
    return "\n".join(sentences)


def number_of(sentence) -> int:
    """Return the number of a sentence that `many` wrote."""
    return int(sentence.words[0][1:])


def test_treebank_of_two_files_has_train_before_dev(write):
    train = write(many(3), "en-train.conllu")
    dev = write(many(2), "en-dev.conllu")
    corpus = treebank(train, dev)
    assert [(s.split, s.source) for s in corpus.records()] == [
        *(("train", f"en-train.conllu, sentence {i}") for i in range(3)),
        *(("dev", f"en-dev.conllu, sentence {i}") for i in range(2)),
    ]
    folder = treebank(train.parent)
    assert (folder.records(), folder.fingerprint) == (corpus.records(), corpus.fingerprint)
    write(many(2), "b-train.conllu")
    with pytest.raises(CorpusError, match=r"b-train.conllu, en-train.conllu"):
        treebank(train.parent)


def test_treebank_of_one_file_is_split_by_document(write):
    path = write(many(100, newdoc_every=5), "x.conllu")
    documents = {(number_of(tree) // 5, tree.split) for tree in treebank(path, seed=3).records()}
    assert Counter(split for _, split in documents) == {"train": 16, "dev": 4}


def test_treebank_of_one_file_without_documents_is_split_by_blocks(write):
    trees = treebank(write(many(100), "x.conllu")).records()
    dev = [number_of(tree) for tree in trees if tree.split == "dev"]
    assert len(dev) == 20
    assert {number // 10 for number in dev} == {number // 10 for number in dev[::10]}
    assert all(number % 10 == 0 for number in dev[::10]), "not whole blocks of ten"
    with pytest.raises(CorpusError, match="one sentence"):
        treebank(write(many(1), "y.conllu")).records()


def documents_file(sent_id: str, newdoc: str = "") -> str:
    """Write ten documents of four sentences, with ids and marks made from these patterns."""
    text = ""
    for document in range(1, 11):
        for sentence in range(1, 5):
            numbers = {"d": document, "s": sentence, "n": 4 * (document - 1) + sentence}
            if newdoc and sentence == 1:
                text += newdoc.format(**numbers) + "\n"
            if sent_id:
                text += f"# sent_id = {sent_id.format(**numbers)}\n"
            text += row(1, 0) + "\n"
    return text


@pytest.mark.parametrize(
    ("sent_id", "newdoc", "clusters"),
    [
        ("weblog-x_{d}-000{s}", "# newdoc id = weblog-x_{d}", 10),
        ("weblog-x_{d}-000{s}", "", 40),
        ("n010{d:02}0{s}1", "# newdoc id = n010{d:02}", 10),  # PUD
        ("fr-ud-train_{n:05}", "# newdoc id = d{d}", 10),
        ("", "# newdoc id = d{d}", 10),
        ("", "# newdoc", 10),
        ("en_partut-ud-{n}", "# newdoc id = d{d}", 10),
        ("en_partut-ud-{n}", "", 40),  # ParTUT as it is
        ("fr-ud-train_{n:05}", "", 40),
        ("", "", 40),
    ],
)
def test_treebank_documents_are_those_of_newdoc(write, sent_id, newdoc, clusters):
    path = write(documents_file(sent_id, newdoc), "x.conllu")
    records = [tree._asdict() for tree in treebank(path).records()]
    cluster_splits = {}
    for index, record in enumerate(records):
        cluster_splits.setdefault(cluster_of(record, index), set()).add(record["split"])
    assert len(records) == 40 and len(cluster_splits) == clusters
    assert all(len(splits) == 1 for splits in cluster_splits.values()), "a document in both splits"
    stated = describe_documents(records)
    assert (
        stated == "10" if clusters == 10 else stated.startswith("0, and 40 sentences without one")
    )


@pytest.mark.skipif("CORPORA_DIR" not in os.environ, reason="needs the corpora in CORPORA_DIR")
def test_documents_of_ewt_by_newdoc_are_those_by_sentence_id():
    """The committed runs on it were made with clusters by id: their intervals must not change."""
    by_id = []
    by_mark = []
    for index, tree in enumerate(resolve_treebank("ud-english-ewt").records()):
        origin, _, sentence_id = tree.source.rpartition(", sentence ")
        file_name = origin.partition(", document ")[0]
        by_id.append(re.sub(r"(?<=\w)-\d+$", "", f"{file_name}:{sentence_id}"))
        by_mark.append(cluster_of(tree._asdict(), index))
    pairs = sorted(set(zip(by_id, by_mark, strict=True)))
    assert len(pairs) == len(set(by_id)) == len(set(by_mark)) == 540 + 318
    # Resamples are drawn over clusters in the order of their names.
    assert [mark for _, mark in pairs] == sorted(set(by_mark))


def test_treebank_sample_is_seeded_in_order_and_a_fifth_dev(write):
    train = write(many(60), "en-train.conllu")
    dev = write(many(30), "en-dev.conllu")
    counts = Counter()
    corpus = treebank(train, dev, sentences=20, seed=1)
    chosen = list(corpus.read(counts))
    assert Counter(sentence.split for sentence in chosen) == {"train": 16, "dev": 4}
    assert counts == {"sentences outside the sample": 70, "sentences read": 20}
    numbers = [number_of(sentence) for sentence in chosen if sentence.split == "train"]
    assert numbers == sorted(numbers)
    assert chosen == treebank(train, dev, sentences=20, seed=1).records()
    second_seed = treebank(train, dev, sentences=20, seed=2)
    assert chosen != second_seed.records() and corpus.fingerprint != second_seed.fingerprint


def test_treebank_sample_is_limited_by_the_files(write):
    train = write(many(60), "en-train.conllu")
    dev = write(many(30), "en-dev.conllu")
    assert len(treebank(train, dev, sentences=1000).records()) == 60 + 30
