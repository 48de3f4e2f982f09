"""Files of any origin: lines, fingerprints, words, other formats, other languages."""

import hashlib
import os
from collections import Counter

import pytest
from toy_corpora import PARAGRAPHS, write

from helpers.data import text_files
from helpers.data.text_files import (
    clean_word,
    file_fingerprint,
    is_english,
    lines,
    refuse_other_formats,
)
from helpers.data.wikipedia import articles
from helpers.errors import CorpusError

ROW = "1\tAnn\t_\tPROPN\t_\t_\t0\troot\t_\t_\n"
PROSE = "My aunt read the report, which was short."


def test_fingerprint_of_a_large_file_is_computed_once_for_its_content(
    tmp_path, own_cache, monkeypatch
):
    """The time of modification is set back, which programs can do."""
    monkeypatch.setattr(text_files, "LARGE_FILE_BYTES", 1000)
    sha256 = text_files.sha256
    hashed = []
    monkeypatch.setattr(text_files, "sha256", lambda path: hashed.append(path) or sha256(path))
    path = write(tmp_path, "large.txt", "The cat sat on the mat.\n" * 400)
    before = file_fingerprint(path)
    assert before == file_fingerprint(path) == hashlib.sha256(path.read_bytes()).hexdigest()
    assert len(hashed) == 1
    status = path.stat()
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert file_fingerprint(path) == hashlib.sha256(path.read_bytes()).hexdigest() != before


def test_files_that_are_missing_or_packed_otherwise_are_named(tmp_path):
    for read in (lambda path: list(lines(path)), file_fingerprint):
        with pytest.raises(CorpusError, match=r"gone\.txt: cannot be read \(No such file"):
            read(tmp_path / "gone.txt")
    for magic in (b"PK\x03\x04", b"7z\xbc\xaf", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd"):
        path = write(tmp_path, "vectors.txt", magic + b"rest")
        with pytest.raises(CorpusError, match=r"vectors.txt: is an archive"):
            list(lines(path))


def test_word_replaces_and_counts_invisible_words():
    counts = Counter()
    for form in ["10\xa0000", "a\u200bb", "\u2014", "שלום", "👩\u200d👧", "e\u0301"]:
        assert clean_word(form, counts) == form
    assert not counts
    for form in ["", "\xa0", "\u200b\u2060", "\u202e", "\u0301", "\ufffd", "\x07", "\U000e0001"]:
        assert clean_word(form, counts) == "_"
    assert counts.total() == 8


@pytest.mark.parametrize(
    ("purpose", "content", "format"),
    [
        ("coreference", '{"id": "d0", "mention_clusters": [[[0, 0, 1]]]}\n', "JSON"),
        ("coreference", f"# global.columns = ID FORM\n{ROW}", "CoNLL-U Plus"),
        ("treebank", "#begin document (nw/0); part 000\nnw/0 0 0 Ann NNP\n", "CoNLL-2012"),
        ("treebank", "\n( (S (NP (NNP Ann)) (VP (VBD left)) (. .)) )\n", "phrase structure"),
        ("text", f'{{"id": 0, "text": "{PROSE}"}}\n' * 2, "JSON"),
        ("text", f'["{PROSE}",\n"{PROSE}"]\n', "JSON"),
        ("text", f"{{\\rtf1\\ansi\n{PROSE}\\par\n", "RTF"),
        ("text", ">a protein\nMKTAYIAKQ\nRQIS\n>b\nMKT\n", "FASTA"),
        ("text", f"1\n00:00:01,000 --> 00:00:02,000\n{PROSE}\n", "subtitles"),
        ("text", f'Review Text,Star Rating\n"{PROSE}",5\n"{PROSE}\n\n{PROSE}",1\n', "a table"),
        ("text", "The text,its class\n" + "It is red.,no\n" * 4, "a table"),
        ("text", f'"id";"text"\n0;"{PROSE}"\n', "a table"),
        ("text", f"# text = Ann\n{ROW}{ROW}", "a table"),
        ("text", f"<!DOCTYPE html>\n<html><p>{PROSE}</p></html>\n", "XML or HTML"),
        ("text", "<mediawiki>\n<page/></mediawiki>\n", "a MediaWiki dump"),
        ("text", "654:0:Bridge\n654:1:Road\n", "the index of a dump"),
    ],
)
def test_other_formats_are_refused_by_their_beginning(purpose, content, format, tmp_path):
    path = write(tmp_path, "x.txt", content)
    with pytest.raises(CorpusError, match=f"looks like {format}") as error:
        refuse_other_formats(path, purpose)
    assert str(error.value).startswith(f"{path}:1: ")


@pytest.mark.parametrize(
    "content",
    [
        "Yes, no, perhaps\nbread, water and salt\n",
        "One,two\nthree\n",
        "One\ttwo\nthree\tfour\n" + f"{PROSE}\n" * 2,
        "10:30: the train\n11:40: the bus\n",
        "# Title\n# Title again\nAnn left.\n",
        "(She left.)\n[He stayed.]\n",
        "\tIndented.\n\tIndented.\n",
        "Rose, thorn\nLily, corn\nBee, horn\nTree, born\nSea, morn\n",
        '"Yes," she said.\n"No", he said.\n',
    ],
)
def test_text_that_looks_a_little_like_data_is_read(tmp_path, content):
    path = write(tmp_path, "a.txt", content)
    paragraphs = [text for article in articles(path) for text in article.paragraphs]
    assert paragraphs == [" ".join(line.split()) for line in content.splitlines()]


@pytest.mark.parametrize(
    ("text", "english"),
    [
        ("De rivier was in dat jaar zo hoog dat men niet meer langs het water kon lopen. Op een "
         "morgen zagen de kinderen hoe het in de tuin kwam, en zij riepen hun vader.", False),
        ("那一年河水很高，人们不能在岸边行走。一天早上，孩子们看见水流进了花园。", False),
        (" ".join(map(" ".join, PARAGRAPHS)), True),
        ("Alas, poor Yorick!", True),  # too short to tell
        ("the the" + " cat" * 18, True),  # a tenth of frequent words
        ("the" + " cat" * 19, False),
    ],
)  # fmt: skip
def test_is_english(text, english):
    assert is_english([text]) == english
