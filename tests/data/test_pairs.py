"""Labelled pairs of words in JSON lines: reading, splitting, shuffling, and bad files."""

import gzip
import json
import os
import re
from collections import Counter
from pathlib import Path

import pytest

from helpers.data.columns import read_trees
from helpers.data.pairs import paired_corpus, read_pairs
from helpers.data.treebank import shuffled_words, treebank
from helpers.errors import CorpusError
from helpers.metrics.heads import labelled_pairs

CORPORA = os.environ.get("CORPORA_DIR")

SENTENCE = {"words": ["She", "reads", "books"], "pairs": [[0, 1, "nsubj"], [2, 1, "obj"]]}


def lines_of(*texts):
    """Write texts as JSON lines."""
    return "".join(f"{json.dumps(text)}\n" for text in texts)


@pytest.fixture
def write(tmp_path):
    """Return a function that writes a file of pairs."""

    def write_file(content, name="x.jsonl"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write_file


def test_read_pairs_keeps_partners_documents_and_tags(write):
    contact = {
        "words": ["A", "B"], "pairs": [[0, 1, "contact"], [0, 1, "contact"], [1, 1, "root"]],
        "document": "1abc", "tags": ["X", None],
    }  # fmt: skip
    counts = Counter()
    path = write(lines_of(SENTENCE) + "\n" + lines_of(contact, {"words": ["C"], "pairs": []}))
    first, second = read_pairs(path, counts)
    assert first.pairs == ((0, 1, "nsubj"), (2, 1, "obj"))
    assert (first.source, first.tags) == ("x.jsonl, sentence 1", ())
    assert second.pairs == ((0, 1, "contact"), (1, 1, "root"))  # each once
    assert (second.source, second.tags) == ("x.jsonl, document 1abc, sentence 3", ("X", None))
    assert counts["sentences dropped: no pair"] == 1


def test_read_pairs_reads_packed_files_and_replaces_invisible_words(write):
    text = {"words": ["a", "\u200b"], "pairs": [[0, 1, "x"]]}
    path = write(gzip.compress(lines_of(text).encode()), "x.jsonl.gz")
    (sentence,) = read_pairs(path, Counter())
    assert sentence.words == ("a", "_")
    assert sentence.source == "x.jsonl, sentence 1"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{broken", "is no JSON"),
        ("[1]", "is no object with words and pairs"),
        ("[" * 100_000, "is no JSON"),
        ({"words": ["a"]}, "is no object with words and pairs"),
        ({"words": [], "pairs": []}, '"words" must be a list of words'),
        ({"words": "a b", "pairs": []}, '"words" must be a list of words'),
        ({"words": ["a", 1], "pairs": []}, '"words" must be a list of words'),
        ({"words": ["a"], "pairs": {}}, '"pairs" must be a list of pairs'),
        ({"words": ["a"], "pairs": [[0, 0]]}, "give all three"),
        ({"words": ["a"], "pairs": [[0, 0, ""]]}, "give all three"),
        ({"words": ["a", "b"], "pairs": [[0, 2, "x"]]}, "has the word 2, but the words are 0 to 1"),
        ({"words": ["a", "b"], "pairs": [[-1, 0, "x"]]}, "count words from 0"),
        ({"words": ["a", "b"], "pairs": [[True, 0, "x"]]}, "count words from 0"),
        ({"words": ["a", "b"], "pairs": [[0, 1.0, "x"]]}, "count words from 0"),
        ({**SENTENCE, "tags": ["X"]}, "1 tags for 3 words"),
        ({**SENTENCE, "tags": "XYZ"}, '"tags" must be a list'),
        ({**SENTENCE, "document": 7}, "document 7 is no text"),
        ({**SENTENCE, "heads": [2, 0, 2]}, "there is no field 'heads'"),
    ],
)
def test_read_pairs_names_the_line_of_a_broken_file(write, text, message):
    broken = text if isinstance(text, str) else json.dumps(text)
    path = write(f"{lines_of(SENTENCE)}{broken}\n")
    with pytest.raises(CorpusError) as error:
        list(read_pairs(path, Counter()))
    assert str(error.value).startswith(f"{path}:2: ")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_read_pairs_refuses_files_without_a_pair_and_folders(write, tmp_path):
    with pytest.raises(CorpusError, match="has no sentence with a pair; expected one JSON object"):
        list(read_pairs(write(""), Counter()))
    with pytest.raises(CorpusError, match="is a folder"):
        paired_corpus(tmp_path)
    with pytest.raises(CorpusError, match=r"missing\.jsonl: does not exist"):
        paired_corpus(tmp_path / "missing.jsonl")


def test_pairs_are_split_by_document_as_trees_are(write, tmp_path):
    """The same documents become dev whether trees or their pairs are given."""
    texts = []
    trees = []
    for number in range(40):
        document = f"d{number // 4}"
        texts.append({**SENTENCE, "document": document})
        begins = f"# newdoc id = {document}\n" if number % 4 == 0 else ""
        rows = "1\tShe\t_\t_\t_\t_\t2\tnsubj\t_\t_\n2\treads\t_\t_\t_\t_\t0\troot\t_\t_\n"
        trees.append(f"{begins}{rows}\n")
    pairs = paired_corpus(write(lines_of(*texts)), seed=3).records()
    tree_path = tmp_path / "t.conllu"
    tree_path.write_text("".join(trees))
    splits = [sentence.split for sentence in treebank(tree_path, seed=3).records()]
    assert [text.split for text in pairs] == splits
    assert splits.count("dev") == 8
    sample = paired_corpus(write(lines_of(*texts)), sentences=10).records()
    assert [text.split for text in sample] == ["train"] * 8 + ["dev"] * 2


@pytest.mark.skipif(not CORPORA, reason="CORPORA_DIR is not set")
def test_sentences_of_ewt_are_the_same_as_pairs(tmp_path):
    """Documents, splits and samples are the same, so that tables of section 4.2 are, too."""
    path = Path(CORPORA) / "ud_english_ewt" / "en_ewt-ud-dev.conllu"
    texts = []
    for tree in read_trees(path, Counter()):
        pairs = labelled_pairs(tree._asdict())
        document = re.search("document (.+), sentence", tree.source)[1]
        texts.append({"words": tree.words, "pairs": pairs, "document": document, "tags": tree.tags})
    pairs_path = tmp_path / "ewt.jsonl"
    pairs_path.write_text(lines_of(*texts))
    for size in (None, 300):
        trees = treebank(path, sentences=size, seed=1).records()
        sentences = paired_corpus(pairs_path, sentences=size, seed=1).records()
        assert len(trees) == len(sentences)
        for tree, sentence in zip(trees, sentences, strict=True):
            assert tree.words == sentence.words and tree.split == sentence.split
            assert labelled_pairs(tree._asdict()) == labelled_pairs(sentence._asdict())
            assert tree.tags == sentence.tags


def test_shuffled_pairs_stay_with_their_words(write):
    text = {**SENTENCE, "tags": ["PRON", "VERB", "NOUN"]}
    corpus = paired_corpus(write(lines_of(*[text] * 10)))
    for sentence in shuffled_words(corpus, seed=1).records():
        words = sentence.words
        assert {(words[i], words[j], label) for i, j, label in sentence.pairs} == {
            ("She", "reads", "nsubj"),
            ("books", "reads", "obj"),
        }
        assert dict(zip(words, sentence.tags, strict=True))["reads"] == "VERB"
