"""The registry of open corpora: local folder first, then a download, then a clear error."""

import gzip
import hashlib
import os
import re
from pathlib import Path

import pandas as pd
import pooch
import pytest

from helpers.data import corpora
from helpers.errors import CorpusError, InputError

TREE = "1\tGo\tgo\tVERB\t_\t_\t0\troot\t_\t_\n\n"


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """Set up a registry of one treebank of two files, an empty cache and no network or folder."""
    columns = ["name", "kind", "licence", "citation", "homepage", "url"]
    row = ["tiny", "treebank", "CC0", "nobody", "https://example.org", "https://example.org"]
    files = [
        ("tiny", f"tiny/x-ud-{split}.conllu", split, digest(TREE * n), len(TREE * n))
        for split, n in (("train", 3), ("dev", 2))
    ]
    files = pd.DataFrame(files, columns=["corpus", "path", "upstream_path", "sha256", "bytes"])
    table = pd.DataFrame([row], columns=columns).set_index("name")
    monkeypatch.setattr(corpora, "registry", lambda: table)
    monkeypatch.setattr(corpora, "corpus_files", lambda: files)
    monkeypatch.setenv("ATTENTION_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CORPORA_DIR", raising=False)

    def refuse(*args, **kwargs):
        raise ConnectionError("no network")

    monkeypatch.setattr(pooch.HTTPDownloader, "__call__", refuse)


def serve(monkeypatch, contents: dict[str, str]):
    def download(self, url, output_file, pooch, check_only=False):
        Path(output_file).write_text(contents[url])

    monkeypatch.setattr(pooch.HTTPDownloader, "__call__", download)


def fill(folder: Path, train: str = TREE * 3, dev: str = TREE * 2) -> None:
    (folder / "tiny").mkdir(parents=True)
    (folder / "tiny/x-ud-train.conllu.gz").write_bytes(gzip.compress(train.encode()))
    (folder / "tiny/x-ud-dev.conllu").write_text(dev)


def test_registry_has_pinned_files_of_every_corpus():
    registry = corpora.registry()
    assert {"ud-english-ewt", "ontogum", "arct", "arct-adversarial"} == set(registry.index)
    assert set(corpora.corpus_files()["corpus"]) == set(registry.index)
    assert (registry != "").all(axis=None) and registry.notna().all(axis=None)
    assert registry["url"].str.startswith("https://").all()
    for file in corpora.corpus_files().itertuples():
        assert re.fullmatch("[0-9a-f]{64}", file.sha256) and file.bytes > 0 and file.licence
        assert ".." not in file.path and not Path(file.path).is_absolute()


def test_the_page_of_formats_lists_the_corpora():
    page = (corpora.HERE / "README.md").read_text()
    assert all(f"| [{name}](" in page for name in corpora.registry().index)


def test_fetch_prefers_the_local_folder_and_compares_unpacked_content(tiny, monkeypatch, tmp_path):
    fill(tmp_path / "folder")
    monkeypatch.setenv("CORPORA_DIR", str(tmp_path / "folder"))
    assert corpora.fetch("tiny") == tmp_path / "folder/tiny"
    corpus = corpora.resolve_treebank("tiny")
    assert corpus.name == "tiny"
    assert [s.split for s in corpus.records()] == ["train"] * 3 + ["dev"] * 2
    fill(tmp_path / "other", train=TREE * 4)
    monkeypatch.setenv("CORPORA_DIR", str(tmp_path / "other"))
    with pytest.raises(CorpusError, match="not the pinned version"):
        corpora.fetch("tiny")


def test_fetch_downloads_once_and_verifies(tiny, monkeypatch, tmp_path):
    cache = tmp_path / "cache/corpora/tiny"
    with pytest.raises(InputError, match=r"network.*cache/corpora/tiny/x-ud-train.conllu"):
        corpora.fetch("tiny")
    serve(monkeypatch, {"https://example.org/train": TREE * 3, "https://example.org/dev": TREE * 2})
    assert corpora.fetch("tiny") == cache
    assert (cache / "x-ud-dev.conllu").read_text() == TREE * 2
    serve(monkeypatch, {})  # a second download would be a KeyError
    assert corpora.fetch("tiny") == cache
    monkeypatch.setenv("ATTENTION_CACHE", str(tmp_path / "empty"))
    serve(monkeypatch, {"https://example.org/train": "<html>moved</html>"})
    with pytest.raises(InputError, match=r"hash of .* does not match"):
        corpora.fetch("tiny")
    assert not (tmp_path / "empty/corpora/tiny/x-ud-train.conllu").exists()


def test_fetch_downloads_what_the_local_folder_lacks(tiny, monkeypatch, tmp_path):
    folder = tmp_path / "folder"
    monkeypatch.setenv("CORPORA_DIR", str(folder))
    fill(folder)
    (folder / "tiny/x-ud-dev.conllu").unlink()
    serve(monkeypatch, {"https://example.org/dev": TREE * 2})
    assert len(corpora.resolve_treebank("tiny").records()) == 5
    assert (folder / "tiny/x-ud-dev.conllu").is_file()


def test_find_corpus_refuses_unknown_names_with_those_that_exist(tiny, tmp_path):
    path = tmp_path / "mine.txt"
    path.write_text("[Ann]1 said [she]1 left .\n")
    assert corpora.find_corpus(str(path), "coreference") == path
    assert corpora.resolve_coreference(str(path)).name == "mine"
    with pytest.raises(InputError, match=r"tiny is neither .* coreference"):
        corpora.find_corpus("tiny", "coreference")
    with pytest.raises(InputError, match=r"nowhere is neither .* treebank .*tiny"):
        corpora.resolve_treebank("nowhere")
    with pytest.raises(InputError, match="b,c is neither"):
        corpora.resolve_treebank(f"{path},b,c")


def test_resolve_treebank_takes_files_folders_and_names_with_a_comma(tiny, monkeypatch, tmp_path):
    (tmp_path / "a-train.conllu").write_text(TREE * 3)
    (tmp_path / "a-dev.conllu").write_text(TREE * 2)
    monkeypatch.setenv("HOME", str(tmp_path.parent))
    folder = f"~/{tmp_path.name}"
    for source in (f"{folder}/a-train.conllu,{folder}/a-dev.conllu", folder, str(tmp_path)):
        splits = [sentence.split for sentence in corpora.resolve_treebank(source).records()]
        assert splits == ["train"] * 3 + ["dev"] * 2
    (tmp_path / "Smith, 2020.conllu").write_text(TREE * 4)
    path = str(tmp_path / "Smith, 2020.conllu")
    assert len(corpora.resolve_treebank(path, sentences=2).records()) == 2


@pytest.mark.skipif("CORPORA_DIR" not in os.environ, reason="CORPORA_DIR is not set")
def test_fetch_finds_every_pinned_file_in_the_local_folder():
    for name, annotation in corpora.registry()["kind"].items():
        folder = Path(os.environ["CORPORA_DIR"])
        paths = corpora.corpus_files().query("corpus == @name")["path"]
        assert {folder / Path(path).parent for path in paths} == {corpora.fetch(name)}
        assert corpora.find_corpus(name, annotation) == corpora.fetch(name)
    corpus = corpora.resolve_coreference("ontogum")
    assert corpus.name == "ontogum" and len(corpus.spec["files"]) == 83
    assert "heads" not in corpus.spec  # no parser decides what a mention's head is
