"""Word vectors: GloVe's text format, bad files, and the published vectors."""

import gzip

import numpy as np
import pytest
from toy_corpora import write

from helpers.data.glove import glove, read_glove
from helpers.errors import CorpusError

TEXT = "the 0.5 -1 2\n. . . 1 1 1\ncafé 1e-3 0 3\nThe 9 9 9\nthe 7 7 7\n"


@pytest.mark.parametrize(
    ("content", "name"),
    [
        ("5 3\n" + TEXT, "vectors.3d.vec"),
        ("\ufeff" + TEXT.replace("\n", " \r\n"), "vectors.3d.txt"),
        (gzip.compress(TEXT.encode(), mtime=0), "vectors.3d.txt.gz"),
    ],
)
def test_read_glove_reads_plain_and_packed_text(tmp_path, monkeypatch, content, name):
    write(tmp_path, name, content)
    monkeypatch.setenv("HOME", str(tmp_path))
    embeddings = read_glove(f"~/{name}")
    assert embeddings.name == "vectors.3d"
    assert embeddings.rows == {"the": 0, ". . .": 1, "café": 2, "The": 3}
    vectors = embeddings.vectors(["The", "THE", "Café", "dog"])
    expected = [[9, 9, 9], [0.5, -1, 2], [0.001, 0, 3], [0, 0, 0]]
    assert np.array_equal(vectors, np.array(expected, np.float32))
    assert embeddings.vectors([]).shape == (0, 3)
    assert len(read_glove(f"~/{name}", max_lines=2).rows) < 3


@pytest.mark.parametrize(
    ("content", "line"),
    [("the 1 2\ndog 1\n", 2), ("the 1 2\ndog 1 x\n", 2), ("a 1 nan\n", 1), ("the\n", 1), ("", 0)],
)
def test_read_glove_refuses_bad_files_with_the_line(tmp_path, content, line):
    path = write(tmp_path, "vectors.txt", content)
    with pytest.raises(CorpusError) as error:
        read_glove(path)
    assert str(error.value).startswith(f"{path}:{line}: " if line else f"{path}: ")


def test_glove_has_the_published_vectors():
    embeddings = glove()
    assert embeddings.matrix.shape == (400_000, 50)
    the, upper, unknown = embeddings.vectors(["the", "THE", "qqqzzzxx"])
    # The first values of "the" in the published glove.6B.50d.txt.
    assert np.allclose(the[:3], [0.418, 0.24968, -0.41242], atol=1e-6)
    assert np.array_equal(the, upper) and not unknown.any()
