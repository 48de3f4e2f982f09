"""Files that are there whole or not at all."""

from __future__ import annotations

import errno
import os
import shutil

import pytest

from helpers import files
from helpers.errors import StoreError


def test_a_full_disk_is_named_with_its_bytes(tmp_path, monkeypatch):
    def full(_descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files.os, "fsync", full)
    monkeypatch.setattr(files.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(9, 8, 1234))
    with pytest.raises(StoreError, match=r"it needs 5,000 bytes and 1,234 are free; make room"):
        files.write_whole(tmp_path / "file", b"x" * 5000)
    assert not list(tmp_path.iterdir())


def test_other_errors_of_the_system_are_not_taken_for_a_full_disk(tmp_path):
    with pytest.raises(FileNotFoundError):
        files.write_whole(tmp_path / "nowhere" / "file", b"x")
