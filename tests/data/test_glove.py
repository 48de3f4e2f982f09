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
        (TEXT, "vectors.3d.txt"),
        ("5 3\n" + TEXT, "vectors.3d.vec"),
        ("\ufeff" + TEXT.replace("\n", " \r\n"), "vectors.3d.txt"),
        (gzip.compress(TEXT.encode(), mtime=0), "vectors.3d.txt.gz"),
    ],
)
def test_read_glove_reads_plain_and_packed_text(tmp_path, content, name):
    embeddings = read_glove(write(tmp_path, name, content))
    assert embeddings.name == "vectors.3d"
    assert embeddings.matrix.shape[1] == 3
    assert embeddings.rows == {"the": 0, ". . .": 1, "café": 2, "The": 3}
    vectors = embeddings.vectors(["the", "The", "THE", "Café", "dog"])
    assert vectors.dtype == np.float32
    expected = [[0.5, -1, 2], [9, 9, 9], [0.5, -1, 2], [0.001, 0, 3], [0, 0, 0]]
    assert np.array_equal(vectors, np.array(expected, np.float32))
    assert embeddings.vectors([]).shape == (0, 3)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("the 1 2 3\ndog 1 2\n", r"vectors\.3d\.txt:2: expected a word and 3 finite numbers"),
        ("the 1 2 3\ndog 1 x 3\n", r":2: expected a word and 3 finite"),
        ("the 1 nan 3\n", r":1: expected a word and 3 finite"),
        ("the\n", r":1: expected a word and some finite"),
        ("", "expected GloVe text"),
    ],
)
def test_read_glove_refuses_bad_files_with_the_line(tmp_path, content, message):
    with pytest.raises(CorpusError, match=message):
        read_glove(write(tmp_path, "vectors.3d.txt", content))


def test_read_glove_finds_a_file_in_the_home_folder(tmp_path, monkeypatch):
    write(tmp_path, "vectors.3d.txt", TEXT)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert read_glove("~/vectors.3d.txt", max_lines=2).rows == {"the": 0, ". . .": 1}


def test_glove_has_the_published_vectors():
    embeddings = glove()
    assert len(embeddings.rows) == embeddings.matrix.shape[0] == 400_000
    assert embeddings.matrix.shape[1] == 50
    the, upper, unknown = embeddings.vectors(["the", "THE", "qqqzzzxx"])
    # The first values of "the" in the published glove.6B.50d.txt.
    assert np.allclose(the[:3], [0.418, 0.24968, -0.41242], atol=1e-6)
    assert np.array_equal(the, upper) and not unknown.any()
    assert embeddings.vectors(["Paris"]).any()
