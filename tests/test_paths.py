"""Files that are there whole or not at all."""

from __future__ import annotations

import errno
import os
import shutil

import pytest

from helpers import paths
from helpers.errors import StoreError


def test_a_full_disk_is_named_with_its_bytes(tmp_path, monkeypatch):
    def full(_descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(paths.os, "fsync", full)
    monkeypatch.setattr(paths.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(9, 8, 1234))
    with pytest.raises(StoreError, match=r"No space .*; 1,234 bytes are free\); make room"):
        paths.write_whole(tmp_path / "file", b"x" * 5000)
    assert not list(tmp_path.iterdir())


def test_a_folder_is_written_whole_and_once_or_not_at_all(tmp_path):
    folder = tmp_path / "runs" / "one"

    def broken(temporary):
        (temporary / "half").write_text("x")
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        paths.write_once(folder, broken)
    assert [path.name for path in folder.parent.iterdir() if path.is_dir()] == []
    folder.with_name("one.tmp").mkdir()
    (folder.with_name("one.tmp") / "left").touch()  # by a run that was killed
    paths.write_once(folder, lambda temporary: (temporary / "mine").touch())
    paths.write_once(folder, lambda temporary: pytest.fail("written twice"))
    assert sorted(path.name for path in folder.iterdir()) == ["checksums.json", "mine"]
