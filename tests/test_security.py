"""Files from strangers cannot take the memory or the machine; ``test_repository.py`` has the rest.

What a store may not do is in ``attention/test_store.py``, what a page may not do in
``test_viewer.py``, models in ``attention/test_models.py``, downloads in ``data/test_corpora.py``.
"""

import bz2
import gzip
import os
import re
import subprocess
import sys

import pytest
from faults import at_most

from helpers.data import text_files
from helpers.data.coreference import coreference_corpus
from helpers.data.glove import read_glove
from helpers.data.records import file_fingerprint
from helpers.data.treebank import treebank
from helpers.data.wikipedia import articles, pages
from helpers.errors import CorpusError, InputError, ModelError
from helpers.model import checkpoint, encoder
from helpers.studies.dark_secrets.framenet import framenet_sentences

TREE = "1\tx\t_\tX\t_\t_\t0\troot\t_\tEntity=(1)\n\n"
# Of each format that has lines: a file name, a reader, and a part that may be repeated.
READERS = {
    "plain text": ("a.txt", lambda path: list(articles(path)), "A line of text.\n\n"),
    "CoNLL-U": ("a.conllu", lambda path: treebank(path).records(), TREE),
    "CoNLL-X": ("a.conllx", lambda path: treebank(path).records(), TREE),
    "OntoGUM": ("a.conllu", lambda path: coreference_corpus(path).records(), TREE),
    "GloVe": ("a.txt", read_glove, "word 0.1 0.2 0.3\n"),
    "brackets": ("a.txt", lambda path: coreference_corpus(path).records(), "# a b\n[x]1\n"),
    "CoNLL-2012": (
        "a_conll",
        lambda path: coreference_corpus(path).records(),
        "#begin document (a);\n#end document\n",
    ),
    "OntoGUM columns": (
        "a.conll",
        lambda path: coreference_corpus(path).records(),
        "# begin document\n# end document\n",
    ),
}


@pytest.fixture
def soon():
    """Fail a test that takes longer than twenty seconds."""
    with at_most(20):
        yield


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress])
@pytest.mark.parametrize("reader", READERS)
def test_a_bomb_is_refused_by_every_reader_of_lines(reader, pack, tmp_path, monkeypatch):
    monkeypatch.setattr(text_files, "FREE_EXPANSION", 1 << 16)
    name, read, part = READERS[reader]
    path = tmp_path / name
    filler = part if reader == "GloVe" else "\n"  # elsewhere a blank line is nothing to refuse
    path.write_bytes(pack((part + (filler * (1 << 20))[: 1 << 20]).encode()))
    with pytest.raises(CorpusError, match="set ATTENTION_MAX_EXPANSION higher"):
        read(path)


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress])
@pytest.mark.parametrize("reader", READERS)
def test_a_few_bytes_of_blank_lines_are_refused_at_once(reader, pack, tmp_path, soon):
    name, read, part = READERS[reader]
    path = tmp_path / name
    path.write_bytes(pack(part.encode() + b"\n" * (40 << 20)))
    with pytest.raises(CorpusError, match=r"set ATTENTION_MAX_EXPANSION higher|values where the"):
        read(path)


@pytest.mark.parametrize("reader", [reader for reader in READERS if reader != "GloVe"])
def test_blank_lines_are_read_fast(reader, tmp_path):
    name, read, part = READERS[reader]
    path = tmp_path / name
    path.write_bytes(part.encode() + b"\n" * (20 << 20) + b"\0")
    with (
        at_most(4),
        pytest.raises(CorpusError, match=rf":{part.count(chr(10)) + (20 << 20) + 1}: NUL"),
    ):
        read(path)


@pytest.mark.parametrize("reader", [*READERS, "dump", "FrameNet", "fingerprint"])
def test_only_regular_files_are_read(reader, tmp_path, soon):
    others = {
        "dump": ("a.xml", pages),
        "FrameNet": ("a.xml", framenet_sentences),
        "fingerprint": ("a", file_fingerprint),
    }
    name, read = (others.get(reader) or READERS[reader])[:2]
    os.mkfifo(tmp_path / name)
    (tmp_path / "zero").mkdir()
    (tmp_path / "zero" / name).symlink_to("/dev/zero")
    for path in (tmp_path / name, tmp_path / "zero" / name):
        with pytest.raises(CorpusError, match=r"not a regular file|no such file|does not exist"):
            list(read(path))


HOSTILE = {  # what is repeated in small files that unpack to 60 MB and more
    "a.txt.gz": "a\n",
    "b.conllu.gz": "# sent_id=1\n",
    "c.conllu.gz": TREE.replace("\n\n", "\n"),
    "d.xml.gz": "<mediawiki><a b='" + "x" * (60 << 20),
}
MEASURED = """
import resource, sys, time
from pathlib import Path
from helpers.data.treebank import treebank
from helpers.data.wikipedia import segments
from helpers.errors import CorpusError
path, before = Path(sys.argv[1]), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.process_time()
try:
    (treebank if "conllu" in path.name else segments)(path).records()
    print("read 0 0")
except CorpusError as error:
    print("refused", time.process_time() - start,
          (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""


@pytest.mark.parametrize("expansion", ["", "100000"])  # the default; the other limits alone
@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_refused_takes_neither_time_nor_memory(name, expansion, tmp_path):
    part, path = HOSTILE[name].encode(), tmp_path / name
    path.write_bytes(gzip.compress(part * max(1, (60 << 20) // len(part)), 1))
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(path)],
        capture_output=True, text=True, timeout=60,
        env={**os.environ, "ATTENTION_MAX_EXPANSION": expansion},
    )  # fmt: skip
    verdict, seconds, megabytes = done.stdout.split()
    assert verdict == "refused"
    assert float(megabytes) < 500
    assert float(seconds) < (20 if expansion else 5)


def test_long_sentences_of_framenet_are_dropped_in_linear_time(tmp_path, soon):
    words = 3000
    label = '<label name="{}" start="{}" end="{}"/>'
    every = "".join(label.format("X", 2 * i, 2 * i) for i in range(words))
    whole = label.format("Target", 0, 2 * words - 2)
    path = tmp_path / "a.xml"
    path.write_text(
        f"<fullTextAnnotation><sentence ID='1'><text>{'x ' * words}</text>"
        f"<annotationSet><layer name='PENN'>{every}</layer></annotationSet>"
        f"<annotationSet frameName='f'><layer name='Target'>{whole}</layer>"
        f"<layer name='FE'>{whole}{every}</layer></annotationSet></sentence></fullTextAnnotation>"
    )
    with pytest.raises(CorpusError, match="1 sentences dropped: over 12 words"):
        framenet_sentences(path)


@pytest.mark.parametrize("read", [pages, framenet_sentences])
def test_an_attribute_without_end_is_refused(read, tmp_path, monkeypatch):
    monkeypatch.setenv("ATTENTION_MAX_PAGE", "1000000")
    root = "mediawiki" if read is pages else "fullTextAnnotation"
    path = tmp_path / "a.xml"
    path.write_text(f"<{root}><a b='{'x' * 10_000_000}'/></{root}>")
    with pytest.raises(CorpusError, match="longer than 1,000,000 bytes; set ATTENTION_MAX_PAGE"):
        list(read(path))


@pytest.mark.parametrize("reader", READERS)
def test_an_endless_line_is_refused_by_every_reader_of_lines(reader, tmp_path, monkeypatch):
    monkeypatch.setenv("ATTENTION_MAX_LINE", "5000")
    name, read, part = READERS[reader]
    path = tmp_path / name
    path.write_text(part + "x" * 5001, encoding="utf-8")
    line = part.count("\n") + 1
    with pytest.raises(CorpusError, match=rf":{line}: line longer than 5,000 bytes; set ATTENTION"):
        read(path)


@pytest.mark.parametrize("value", ["0", "-1", "1e6", "many", "٣", "9" * 5000])
def test_a_limit_that_is_no_number_is_refused(value, monkeypatch):
    monkeypatch.setenv("ATTENTION_MAX_LINE", value)
    with pytest.raises(InputError, match="expected a whole number above 0"):
        text_files.limit("ATTENTION_MAX_LINE")


@pytest.mark.parametrize(
    "cell", ["9" * 900_000, "(" * 900_000, "(1" * 400_000, "(" + "1" * 900_000], ids=len
)
def test_a_bracket_column_of_a_million_characters_takes_no_time(cell, tmp_path, soon):
    path = tmp_path / "a_conll"
    path.write_text(f"#begin document (a);\nnw/a 0 0 x NN * - - - - * {cell}\n#end document\n")
    with pytest.raises(CorpusError, match=r"a_conll:2: "):
        coreference_corpus(path).records()


def test_a_long_cycle_of_heads_is_found_in_linear_time(tmp_path, soon):
    words = 100_000
    rows = (f"{i}\tx\t_\tX\t_\t_\t{i % words + 1}\tdep\t_\t_" for i in range(1, words + 1))
    path = tmp_path / "a.conllu"
    path.write_text("\n".join(rows), encoding="utf-8")
    for read in (treebank, coreference_corpus):
        with pytest.raises(CorpusError, match=r"has no root|run in a cycle"):
            read(path).records()


def test_pages_share_the_names_of_a_wiki(tmp_path):
    """A set for each page would multiply a long list of names by the number of pages."""
    path = tmp_path / "a.xml"
    names = "".join(f'<namespace key="6">n{i}</namespace>' for i in range(20))
    path.write_text(f"<mediawiki>{names}<page></page><page></page></mediawiki>")
    first, second = pages(path)
    assert first.hidden is second.hidden
    assert "n19" in first.hidden


def test_the_weights_of_the_default_are_verified_at_every_load(tiny_folder, tmp_path, monkeypatch):
    package = tmp_path / "embedded_model"
    (package / "model").mkdir(parents=True)
    (package / "__init__.py").touch()
    for file in tiny_folder("bert").iterdir():
        (package / "model" / file.name).write_bytes(file.read_bytes())
    weights = package / "model" / "model.safetensors"
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(checkpoint, "DEFAULT_PACKAGE", package.name)
    monkeypatch.setattr(checkpoint, "DEFAULT_SHA256", checkpoint.sha256(weights))
    encoder.load(checkpoint.DEFAULT, device="cpu")
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    with pytest.raises(ModelError, match=re.escape("SHA-256 of model.safetensors is")):
        encoder.load(checkpoint.DEFAULT, device="cpu")
