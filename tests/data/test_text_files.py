"""Fingerprints of files: the SHA-256 of all their bytes, remembered for large files."""

from __future__ import annotations

import hashlib
import json
import os

import pytest

from helpers.data import text_files
from helpers.data.text_files import file_fingerprint, lines
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


def replace_middle(path, byte):
    """Change one byte in the middle of a file, in place, and set the time of modification back."""
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(len(CONTENT) // 2)
        file.write(byte)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_file_fingerprint_is_the_sha256_of_a_small_and_a_large_file(large_file, monkeypatch):
    expected = hashlib.sha256(CONTENT).hexdigest()
    assert file_fingerprint(large_file) == expected
    monkeypatch.setattr(text_files, "LARGE_FILE_BYTES", 1 << 30)
    assert file_fingerprint(large_file) == expected


def test_file_fingerprint_changes_with_a_byte_in_the_middle_of_a_large_file(large_file, hashed):
    before = file_fingerprint(large_file)
    replace_middle(large_file, b"\0")
    after = file_fingerprint(large_file)
    assert hashed == ["large.txt", "large.txt"]
    assert after == hashlib.sha256(large_file.read_bytes()).hexdigest() != before


def test_file_fingerprint_hashes_an_unchanged_large_file_once(large_file, hashed):
    assert file_fingerprint(large_file) == file_fingerprint(large_file)
    assert hashed == ["large.txt"]


def test_file_fingerprint_hashes_a_copy_under_another_name(large_file, hashed):
    copy = large_file.with_name("copy.txt")
    copy.write_bytes(CONTENT)
    assert file_fingerprint(copy) == file_fingerprint(large_file)
    assert hashed == ["copy.txt", "large.txt"]


def test_file_fingerprint_hashes_a_file_that_took_the_place_of_another(large_file, hashed):
    file_fingerprint(large_file)
    replacement = large_file.with_name("new.txt")
    replacement.write_bytes(CONTENT[::-1])
    replacement.replace(large_file)
    assert file_fingerprint(large_file) == hashlib.sha256(CONTENT[::-1]).hexdigest()
    assert len(hashed) == 2


@pytest.mark.parametrize("damage", ["", "{", '"0"'])
def test_file_fingerprint_hashes_again_if_what_it_remembered_is_damaged(
    damage, large_file, hashed, own_cache
):
    expected = file_fingerprint(large_file)
    (remembered,) = own_cache.glob("derived/fingerprint-*/value.json")
    assert json.loads(remembered.read_bytes()) == expected
    remembered.write_text(damage)
    assert file_fingerprint(large_file) == expected
    assert len(hashed) == 2


@pytest.mark.parametrize("name", ["zip", "7-Zip", "xz", "Zstandard"])
def test_lines_name_an_archive_that_is_not_read(tmp_path, name):
    path = tmp_path / "vectors.txt"
    beginnings = {archive: magic for magic, archive in text_files._ARCHIVES.items()}
    path.write_bytes(beginnings[name] + b"rest")
    with pytest.raises(CorpusError, match=f"vectors.txt: is a {name} archive.*unpack it"):
        list(lines(path))


def test_lines_and_fingerprints_name_a_file_that_is_missing(tmp_path):
    for read in (lambda path: list(lines(path)), file_fingerprint):
        with pytest.raises(
            CorpusError, match=r"gone\.txt: cannot be read \(No such file .*check the"
        ):
            read(tmp_path / "gone.txt")
