"""The page "Your sentence" needs npm and the pinned runtime; a book without it says so."""

import pytest

from helpers.errors import InputError
from scripts import browser_page


def test_runtime_of_another_sha512_is_refused(monkeypatch, own_cache, tmp_path):
    npm = tmp_path / "npm"
    npm.write_text("#!/bin/sh\necho another > onnxruntime-web-1.30.0.tgz\n")
    npm.chmod(0o755)
    monkeypatch.setattr(browser_page.shutil, "which", lambda _: str(npm))
    with pytest.raises(InputError, match="SHA-512"):
        browser_page.runtime_folder()


def test_book_without_npm_says_so_and_has_no_link(monkeypatch, own_cache, tmp_path, capsys):
    pytest.importorskip("onnx", reason="needs requirements-book.txt")
    monkeypatch.setattr(browser_page.shutil, "which", lambda _: None)
    (tmp_path / "your-sentence.md").write_text("<!-- page -->\nmissing\n<!-- end -->\n")
    browser_page.add_to_book(tmp_path)
    assert "npm is not installed" in capsys.readouterr().out
    assert "missing" in (tmp_path / "your-sentence.md").read_text()
    assert not (tmp_path / "extra").exists()
