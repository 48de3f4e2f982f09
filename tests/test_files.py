"""Files and folders that are written whole or not at all."""

from __future__ import annotations

import errno
import os
import shutil

import pytest

from helpers import files as paths
from helpers.errors import StoreError


def test_write_whole_on_a_full_disk_names_the_free_bytes(tmp_path, monkeypatch):
    def refuse(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    usage = shutil.disk_usage(tmp_path)._replace(free=1234)
    monkeypatch.setattr(paths.os, "fsync", refuse)
    monkeypatch.setattr(paths.shutil, "disk_usage", lambda folder: usage)
    with pytest.raises(StoreError, match=r"No space .*; 1,234 bytes are free\); make room"):
        paths.write_atomic(tmp_path / "file", b"x" * 5000)
    assert not list(tmp_path.iterdir())


def write_half(temporary):
    (temporary / "half").write_text("x")
    raise ValueError("interrupted")


def write_file(temporary):
    (temporary / "file").write_text("x")


def write_again(temporary):
    pytest.fail("written twice")


def test_write_once_writes_again_after_a_failure(tmp_path):
    folder = tmp_path / "runs" / "one"
    with pytest.raises(ValueError, match="interrupted"):
        paths.build_folder(folder, write_half)
    assert not folder.exists()
    paths.build_folder(folder, write_file)
    assert {path.name for path in folder.iterdir()} == {"file"}


def test_write_once_writes_once(tmp_path):
    folder = tmp_path / "runs" / "one"
    paths.build_folder(folder, write_file)
    paths.build_folder(folder, write_again)
    assert {path.name for path in folder.iterdir()} == {"file"}


def test_write_once_removes_what_a_killed_process_left(tmp_path):
    folder = tmp_path / "one"
    leftover = tmp_path / "one.tmp" / "leftover"
    leftover.parent.mkdir()
    leftover.touch()
    paths.build_folder(folder, write_file)
    assert {path.name for path in folder.iterdir()} == {"file"}
    assert not leftover.parent.exists()


def test_given_path_prefers_the_working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert paths.resolve_user_path("README.md") == paths.PROJECT_ROOT / "README.md"
    (tmp_path / "README.md").touch()
    assert paths.resolve_user_path("README.md").resolve() == tmp_path / "README.md"
