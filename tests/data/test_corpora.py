"""The registry of open corpora: local folder first, then a download, then a clear error."""

import gzip
import hashlib
import re
from pathlib import Path

import pandas as pd
import pooch
import pytest

from helpers.data import text_files as corpora
from helpers.data.coreference import coreference_corpus
from helpers.data.treebank import treebank
from helpers.errors import CorpusError, InputError

TREE = "1\tGo\tgo\tVERB\t_\t_\t0\troot\t_\t_\n2\ton\ton\tADP\t_\t_\t1\tprt\t_\t_\n\n"
CONTENTS = {"https://example.org/train": TREE * 3, "https://example.org/dev": TREE * 2}


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """Set up a registry of one treebank of two files, and an empty cache; return its server."""
    files = []
    for url, text in CONTENTS.items():
        split = url.rpartition("/")[2]
        digest = hashlib.sha256(text.encode()).hexdigest()
        files.append(["tiny", f"tiny/x-ud-{split}.conllu", split, digest])
    files = pd.DataFrame(files, columns=["corpus", "path", "upstream_path", "sha256"])
    table = pd.DataFrame({"kind": "treebank", "url": "https://example.org"}, index=["tiny"])
    monkeypatch.setattr(corpora, "registry", lambda: table)
    monkeypatch.setattr(corpora, "corpus_files", lambda: files)
    monkeypatch.setenv("ATTENTION_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CORPORA_DIR", raising=False)
    served = {}

    def download(self, url, output_file, pooch, check_only=False):
        if url not in served:
            raise ConnectionError("no network")
        Path(output_file).write_text(served[url])

    monkeypatch.setattr(pooch.HTTPDownloader, "__call__", download)
    return served


def test_registry_has_pinned_files_of_every_corpus():
    registry = corpora.registry()
    assert set(corpora.corpus_files()["corpus"]) == set(registry.index)
    assert registry["url"].str.startswith("https://").all()
    for file in corpora.corpus_files().itertuples():
        assert re.fullmatch("[0-9a-f]{64}", file.sha256) and file.bytes > 0 and file.licence
        assert ".." not in file.path and not Path(file.path).is_absolute()
    page = (corpora.HERE / "README.md").read_text()
    for name, homepage in registry["homepage"].items():
        assert f"| [{name}]({homepage}) |" in page


def test_fetch_takes_a_local_folder_and_refuses_another_version(tiny, monkeypatch, tmp_path):
    monkeypatch.setenv("CORPORA_DIR", str(tmp_path))
    folder = tmp_path / "tiny"
    folder.mkdir()
    train = folder / "x-ud-train.conllu.gz"
    train.write_bytes(gzip.compress(CONTENTS["https://example.org/train"].encode()))
    tiny["https://example.org/dev"] = TREE * 2  # the folder lacks it
    corpus = treebank("tiny")
    assert corpus.name == "tiny" and len(corpus.records()) == 5
    assert (folder / "x-ud-dev.conllu").is_file()
    train.write_bytes(gzip.compress(b"other"))
    with pytest.raises(CorpusError, match=r"x-ud-train\.conllu\.gz: not the pinned version"):
        treebank("tiny")


def test_fetch_downloads_once_and_checks_the_hash(tiny, tmp_path):
    cache = tmp_path / "cache/corpora/tiny"
    with pytest.raises(InputError, match=f"copy it to {cache}/x-ud-train.conllu"):
        corpora.fetch("tiny")
    tiny.update(dict.fromkeys(CONTENTS, "<html>moved</html>"))
    with pytest.raises(InputError, match=r"hash of .* does not match"):
        corpora.fetch("tiny")
    assert not (cache / "x-ud-train.conllu").exists()
    tiny.update(CONTENTS)
    assert corpora.fetch("tiny") == cache
    assert (cache / "x-ud-dev.conllu").read_text() == TREE * 2
    tiny.clear()  # a second download would be an error
    assert corpora.fetch("tiny") == cache


def test_corpora_are_names_files_folders_or_two_files(tiny, monkeypatch, tmp_path):
    path = tmp_path / "mine.txt"
    path.write_text("[Ann]1 said [she]1 left .\n")
    assert coreference_corpus(str(path)).name == "mine"
    with pytest.raises(InputError, match=r"tiny is neither .* coreference"):
        corpora.find_corpus("tiny", "coreference")
    with pytest.raises(InputError, match=r"nowhere is neither .* treebank .*tiny"):
        treebank("nowhere")
    (tmp_path / "a-train.conllu").write_text(TREE * 3)
    (tmp_path / "a-dev.conllu").write_text(TREE * 2)
    monkeypatch.setenv("HOME", str(tmp_path.parent))
    folder = f"~/{tmp_path.name}"
    for source in (f"{folder}/a-train.conllu,{folder}/a-dev.conllu", folder, str(tmp_path)):
        splits = [sentence.split for sentence in treebank(source).records()]
        assert splits == ["train"] * 3 + ["dev"] * 2
    comma = tmp_path / "Smith, 2020.conllu"
    comma.write_text(TREE * 4)
    assert len(treebank(str(comma), sentences=2).records()) == 2
