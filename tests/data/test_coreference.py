"""Coreference: bracket notation, head words, cuts, folders, and the bundled sample."""

import csv
import json
import os
import re
from collections import Counter
from pathlib import Path

import other_languages
import pytest
from toy_corpora import write

from helpers.data.coreference import (
    coreference_corpus,
    head_candidates,
    one_mention_per_span,
    read_brackets,
)
from helpers.data.records import Mention
from helpers.errors import CorpusError
from helpers.metrics.coreference import SYSTEMS, document_mentions, select_antecedent

CORPORA = os.environ.get("CORPORA_DIR")


def stored(document):
    """Return the record of a document as a store keeps it, in JSON."""
    return json.loads(json.dumps(document._asdict()))


CONLLU = (
    "# newdoc id = pets\n1\tDogs\tdog\tNOUN\t_\t_\t2\tnsubj\t_\tEntity=(1\n"
    "2\tand\tand\tCCONJ\t_\t_\t0\troot\t_\t_\n3\tcats\tcat\tNOUN\t_\t_\t1\tconj\t_\tEntity=(2)1)\n"
)


def test_coreference_corpus_takes_head_words_from_trees(tmp_path):
    counts = Counter()
    (document,) = coreference_corpus(write(tmp_path, "pets.conllu", CONLLU)).read(counts)
    assert document.words == ("Dogs", "and", "cats")
    assert document.mentions == (Mention(0, 3, None, 1), Mention(2, 3, None, 2))  # singletons
    assert (document.tags, document.source) == (("NOUN", "CCONJ", "NOUN"), "pets")
    assert counts["mention heads that needed a tie-break"] == 0


def conll_2012(*rows: str) -> str:
    """Write a document of words with their tags and brackets."""
    lines = []
    for index, row in enumerate(rows):
        word, tag, brackets = row.split()
        lines.append(f"nw/0 0 {index} {word} {tag} - - - - - - {brackets}\n")
    return f"#begin document (nw/0); part 000\n{''.join(lines)}\n#end document\n"


ONCE = conll_2012(
    "Ann NNP (1)", "told VBD -", "herself PRP (1)", "that IN -", "her PRP$ (2|(1)", "ring NN 2)",
    "was VBD -", "lost VBN -",
)  # fmt: skip


@pytest.mark.parametrize(
    ("replacements", "dropped", "joined"),
    [
        ({}, 0, 0),
        ({"herself PRP - - - - - - (1)": "herself PRP - - - - - - (1)|(1)"}, 1, 0),
        ({"NNP - - - - - - (1)": "NNP - - - - - - (1)|(3)",
          "herself PRP - - - - - - (1)": "herself PRP - - - - - - (3)"}, 1, 1),
        ({"NNP - - - - - - (1)": "NNP - - - - - - (3)|(1)",
          "herself PRP - - - - - - (1)": "herself PRP - - - - - - (3)|(1)"}, 2, 1),
    ],
    ids=["once", "twice in a chain", "in two chains", "twice in two chains"],
)  # fmt: skip
def test_coreference_corpus_asks_once_about_a_span(tmp_path, replacements, dropped, joined):
    text = ONCE
    for old, new in replacements.items():
        assert old in text
        text = text.replace(old, new)
    counts = Counter()
    (document,) = coreference_corpus(write(tmp_path, "a_conll", text)).read(counts)
    (expected,) = coreference_corpus(write(tmp_path, "b_conll", ONCE)).records()
    assert [(m.start, m.end, m.head) for m in document.mentions] == [
        (m.start, m.end, m.head) for m in expected.mentions
    ]
    chains = {}
    for mention in document.mentions:
        chains.setdefault(mention.chain, []).append(mention.start)
    assert sorted(chains.values()) == [[0, 2, 4], [4]]
    mentions = document_mentions(stored(document))
    for system in SYSTEMS:  # "herself" has one candidate, which is not a copy of itself
        assert select_antecedent(system, mentions, 1) in (0, None)
    assert counts["mentions dropped: listed twice"] == dropped
    assert counts["chains joined: they share a mention"] == joined
    assert counts["mentions read"] == 4


def test_one_mention_per_span_prefers_a_chain_to_none():
    counts = Counter()
    spans = ((0, 1, None), (0, 1, 4), (2, 3, 4), (2, 3, None), (4, 5, 5), (4, 5, 6), (6, 7, 6))
    assert one_mention_per_span(spans, counts) == ((0, 1, 4), (2, 3, 4), (4, 5, 5), (6, 7, 5))
    assert one_mention_per_span((), counts) == ()


def test_read_brackets_separates_words_and_nests_mentions(tmp_path):
    body = "# t-01 tale\n[[Ann\u200b]1's dog]2 didn't eat\n"
    body += "[3.5 well-known [pies]], [she]1 left \u200d.\n"
    counts = Counter()
    (text,) = read_brackets(write(tmp_path, "t.txt", "## a comment\n" + body), counts)
    assert " ".join(text.words) == "Ann 's dog did n't eat 3.5 well-known pies , she left _ ."
    assert text.spans == ((0, 1, 1), (0, 3, 2), (6, 9, None), (8, 9, None), (10, 11, 1))
    assert text.source == "t-01 (tale)"
    assert counts == {"words that are empty or invisible, read as _": 1}


def test_head_candidates_are_in_the_order_of_tags_and_depth():
    # 0 <- 1 <- 2 (root) -> 3 -> 4
    heads = (1, 2, -1, 2, 3)
    assert head_candidates(0, 2, heads, None) == [1]  # the only one with its head outside
    assert head_candidates(3, 5, heads, None) == [3]
    assert head_candidates(0, 1, heads, None) == [0]
    # 0 and 2 attach outside of 0-2; 2 is nearer to the root, which is 4.
    assert head_candidates(0, 3, (3, 2, 4, 4, -1), None) == [2, 0]
    # As near: the first, unless tags say that only the second is a noun.
    assert head_candidates(0, 2, (2, 2, -1), None) == [0, 1]
    assert head_candidates(0, 2, (2, 2, -1), ("ADP", "NOUN", "VERB")) == [1, 0]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("# a b\n[x]1 ]2\n", 2, "closes no mention"),
        ("# a b\nfine\n[x\n", 3, "never closed"),
        ("# a b\n[x] [ ]\n", 2, "put words"),
        ("\nx\n# a b\n", 2, "before the first"),
        ("# a\n[x]\n", 1, "# name genre"),
    ],
)
def test_coreference_corpus_refuses_damage_with_file_and_line(tmp_path, text, line, message):
    path = write(tmp_path, "a.txt", text)
    with pytest.raises(CorpusError) as error:
        coreference_corpus(path).records()
    assert f"{path}:{line}: " in str(error.value)
    assert message in str(error.value)


def test_coreference_corpus_refuses_folders_without_files_or_mentions(tmp_path):
    unmarked = tmp_path / "some"
    unmarked.mkdir()
    for folder in ("missing", "some"):
        with pytest.raises(CorpusError, match="no coreference file"):
            coreference_corpus(tmp_path / folder)
    write(unmarked, "a.txt", "# a b\nNobody is marked here.\n# b c\n")
    with pytest.raises(CorpusError, match="coreference annotation"):
        coreference_corpus(unmarked).records()


def test_coreference_corpus_reads_one_format_of_a_folder(tmp_path):
    write(tmp_path, "LICENSE.txt", "not a corpus")
    path = write(tmp_path, "x.conllu", CONLLU)
    corpus = coreference_corpus(tmp_path)
    assert [document.source for document in corpus.records()] == ["pets"]
    assert list(corpus.spec["files"]) == ["x.conllu"]
    path.write_text(CONLLU.replace("Dogs", "Cows"), encoding="utf-8")
    assert coreference_corpus(tmp_path).fingerprint != corpus.fingerprint


@pytest.mark.skipif(not CORPORA, reason="CORPORA_DIR is not set")
def test_coreference_corpus_has_the_counts_published_with_ontogum():
    folder = Path(CORPORA) / "ontogum"
    with (folder / "documents.tsv").open(encoding="utf-8") as file:
        table = {row["document"]: row for row in csv.DictReader(file, delimiter="\t")}
    counts = Counter()
    documents = list(coreference_corpus(folder / "conllu").read(counts))
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
    assert counts["mention heads that needed a tie-break"] == 8_865 - 8_784
    assert Counter(document.split for document in documents) == {"train": 42, "dev": 41}


def as_corefud(text: str) -> str:
    """Write OntoGUM's brackets as CorefUD does: names of entities, their type and head."""
    written = []
    for line in text.replace("global.Entity = GRP", "global.Entity = eid-etype-head-other").split(
        "\n"
    ):
        before, entity, brackets = line.partition("Entity=")
        if line[:1].isdigit() and entity:
            brackets, *rest = brackets.split("|")
            brackets = re.sub(r"\(([0-9]+)", r"(e\1-person-1-", brackets)
            brackets = re.sub(r"(^|\))([0-9]+)\)", r"\1e\2)", brackets)
            brackets = re.sub(r"(^|\))([0-9]+)\)", r"\1e\2)", brackets)
            line = "|".join([f"{before}{entity}{brackets}", *rest])
        written.append(line)
    return "\n".join(written)


@pytest.mark.skipif(not CORPORA, reason="CORPORA_DIR is not set")
def test_documents_of_ontogum_are_the_same_in_corefud(tmp_path):
    folder = Path(CORPORA) / "ontogum" / "conllu"
    for path in folder.glob("*.conllu"):
        text = as_corefud(path.read_text(encoding="utf-8"))
        assert "Entity=(e" in text
        (tmp_path / path.name).write_text(text, encoding="utf-8")
    documents = coreference_corpus(tmp_path).records()
    assert documents == coreference_corpus(folder).records()
    assert sum(len(document.mentions) for document in documents) > 8_000


@pytest.mark.parametrize("language", other_languages.DOCUMENTS)
def test_mentions_of_another_language_have_no_guessed_types(language, tmp_path):
    path = other_languages.documents(tmp_path, language)
    document = coreference_corpus(path).records()[0]
    assert set(document.tags) == {None}
    for mention in document.mentions:
        assert mention.head == mention.end - 1
    mentions = document_mentions(stored(document))
    assert {mention.type for mention in mentions} == {"unknown"}
