"""Labelled pairs of words in JSON lines: reading, splitting, shuffling, and bad files."""

import gzip
import json
from collections import Counter

import pytest
from toy_corpora import write

from helpers.data.links import read_pairs
from helpers.data.treebank import paired_corpus
from helpers.errors import CorpusError

SENTENCE = {"words": ["She", "reads", "books"], "pairs": [[0, 1, "nsubj"], [2, 1, "obj"]]}


def lines_of(*texts):
    """Write texts as JSON lines."""
    return "".join(f"{json.dumps(text)}\n" for text in texts)


def test_read_pairs_keeps_partners_documents_and_tags(tmp_path):
    pairs = [[0, 1, "contact"], [0, 1, "contact"], [1, 1, "root"]]
    contact = {"words": ["A", "\u200b"], "pairs": pairs, "document": "1abc", "tags": ["X", None]}
    counts = Counter()
    content = lines_of(SENTENCE) + "\n" + lines_of(contact, {"words": ["C"], "pairs": []})
    path = write(tmp_path, "x.jsonl.gz", gzip.compress(content.encode()))
    first, second = read_pairs(path, counts)
    assert first.pairs == ((0, 1, "nsubj"), (2, 1, "obj"))
    assert (first.source, first.tags) == ("x.jsonl, sentence 1", ())
    assert (second.words, second.tags) == (("A", "_"), ("X", None))
    assert second.pairs == ((0, 1, "contact"), (1, 1, "root"))  # each once
    assert second.source == "x.jsonl, document 1abc, sentence 3"
    assert counts["sentences dropped: no pair"] == 1


@pytest.mark.parametrize(
    "text",
    [
        "{broken",
        "[1]",
        "[" * 100_000,
        {"words": ["a"]},
        {"words": [], "pairs": []},
        {"words": "a b", "pairs": []},
        {"words": ["a", 1], "pairs": []},
        {"words": ["a"], "pairs": [3]},
        {"words": ["a"], "pairs": [[0, 0]]},
        {"words": ["a"], "pairs": [[0, 0, ""]]},
        {"words": ["a", "b"], "pairs": [[0, 2, "x"]]},
        {"words": ["a", "b"], "pairs": [[-1, 0, "x"]]},
        {"words": ["a", "b"], "pairs": [[True, 0, "x"]]},
        {**SENTENCE, "tags": ["X"]},
        {**SENTENCE, "tags": [1, 2, 3]},
        {**SENTENCE, "document": 7},
        {**SENTENCE, "heads": [2, 0, 2]},
    ],
)
def test_read_pairs_names_the_line_of_a_broken_file(tmp_path, text):
    broken = text if isinstance(text, str) else json.dumps(text)
    path = write(tmp_path, "x.jsonl", f"{lines_of(SENTENCE)}{broken}\n")
    with pytest.raises(CorpusError) as error:
        list(read_pairs(path, Counter()))
    assert str(error.value).startswith(f"{path}:2: ") and "\n" not in str(error.value)


def test_paired_corpus_refuses_files_without_a_pair_and_folders(tmp_path):
    for path in (write(tmp_path, "x.jsonl", ""), tmp_path, tmp_path / "missing.jsonl"):
        with pytest.raises(CorpusError):
            paired_corpus(path).records()
