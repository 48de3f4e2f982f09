"""Files and folders that are written whole or not at all."""

import errno
import os

import pytest

from helpers import files
from helpers.errors import StoreError


def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path, monkeypatch):
    def refuse(path, data):
        path.touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files.Path, "write_bytes", refuse)
    with pytest.raises(StoreError, match=r"^\S+/file: .*No space .* bytes are free.*$"):
        files.write_atomic(tmp_path / "file", b"x" * 5000)
    assert not list(tmp_path.iterdir())


def test_a_folder_is_written_once_and_again_after_a_failure(tmp_path):
    folder = tmp_path / "runs" / "one"
    leftover = tmp_path / "runs" / "one.tmp" / "leftover"  # of a process that was killed
    leftover.parent.mkdir(parents=True)
    leftover.touch()

    def write(temporary, fails=False):
        (temporary / "file").write_text("x")
        if fails:
            raise ValueError("interrupted")

    with pytest.raises(ValueError, match="interrupted"):
        files.build_folder(folder, lambda temporary: write(temporary, fails=True))
    assert not folder.exists()
    files.build_folder(folder, write)
    files.build_folder(folder, lambda temporary: pytest.fail("written twice"))
    assert [path.name for path in folder.iterdir()] == ["file"] and not leftover.exists()


def test_a_path_is_that_in_the_working_folder_or_else_in_the_project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert files.resolve_user_path("README.md") == files.PROJECT_ROOT / "README.md"
    (tmp_path / "README.md").touch()
    assert files.resolve_user_path("README.md").resolve() == tmp_path / "README.md"
