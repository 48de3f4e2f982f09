"""Words of files, and their fingerprints: the SHA-256 of all bytes, remembered for large files."""

import hashlib
import os
from collections import Counter

import pytest

from helpers.data import text_files
from helpers.data.text_files import file_fingerprint, lines, word
from helpers.errors import CorpusError

CONTENT = b"The cat sat on the mat.\n" * 400


@pytest.fixture
def hashed(monkeypatch):
    """The names of the large files that were hashed, not remembered."""
    names = []
    original = text_files.sha256

    def spy(path):
        names.append(path.name)
        return original(path)

    monkeypatch.setattr(text_files, "sha256", spy)
    return names


@pytest.fixture
def large_file(tmp_path, own_cache, monkeypatch):
    """A file that counts as large."""
    monkeypatch.setattr(text_files, "LARGE_FILE_BYTES", 1000)
    path = tmp_path / "large.txt"
    path.write_bytes(CONTENT)
    return path


def test_file_fingerprint_hashes_an_unchanged_large_file_once(large_file, hashed):
    expected = hashlib.sha256(CONTENT).hexdigest()
    assert file_fingerprint(large_file) == file_fingerprint(large_file) == expected
    assert hashed == ["large.txt"]


def test_file_fingerprint_changes_with_a_byte_of_a_large_file(large_file, hashed):
    """The time of modification is set back, which programs can do."""
    before = file_fingerprint(large_file)
    status = large_file.stat()
    with large_file.open("r+b") as file:
        file.seek(len(CONTENT) // 2)
        file.write(b"\0")
    os.utime(large_file, ns=(status.st_atime_ns, status.st_mtime_ns))
    after = file_fingerprint(large_file)
    assert hashed == ["large.txt", "large.txt"]
    assert after == hashlib.sha256(large_file.read_bytes()).hexdigest() != before


def test_lines_and_fingerprints_name_a_file_that_is_missing(tmp_path):
    for read in (lambda path: list(lines(path)), file_fingerprint):
        with pytest.raises(CorpusError, match=r"gone\.txt: cannot be read \(No such file"):
            read(tmp_path / "gone.txt")


def test_word_replaces_and_counts_invisible_words():
    counts = Counter()
    for form in ["10\xa0000", "a\u200bb", "\u2014", "שלום", "👩\u200d👧", "e\u0301"]:
        assert word(form, counts) == form
    assert not counts
    for form in ["", "\xa0", "\u200b\u2060", "\u202e", "\u0301", "\ufffd", "\x07", "\U000e0001"]:
        assert word(form, counts) == "_"
    assert counts == {"words that are empty or invisible, read as _": 8}
