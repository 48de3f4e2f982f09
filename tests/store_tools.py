"""What the tests of stores share: a corpus of many shards, and work to be done in a process."""

from __future__ import annotations

import hashlib
import os
import sys
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pandas as pd
import torch
from toy_corpora import PARAGRAPHS, corpus_of

from helpers.cache import cached
from helpers.data.records import Corpus, Segment
from helpers.errors import InputError
from helpers.model.encoder import load
from helpers.store import extract as extraction
from helpers.store.examples import examples

EXAMPLES_PER_SHARD = 4
MAX_TOKENS = 60


def many_segments(count: int) -> Corpus[Segment]:
    """Return segments of different texts and lengths."""
    texts = [text for pair in PARAGRAPHS for text in pair]
    segments = [
        Segment(texts[i % 8], texts[(i // 8 + 3 * i) % 8], title=f"article {i}")
        for i in range(count)
    ]
    return corpus_of(segments, "toy-many")


def token_records(encoder, corpus: Corpus) -> list[dict]:
    """Return the records of a corpus as a store of tokens has them."""
    return list(examples(encoder, corpus, MAX_TOKENS, Counter()))


@contextmanager
def cache_at(root: Path):
    """Make ``root`` the folder of the stores, and shards so small that examples fill several."""
    small = mock.patch.dict(extraction.EXAMPLES_PER_SHARD, token=EXAMPLES_PER_SHARD)
    with mock.patch.dict(os.environ, ATTENTION_CACHE=str(root)), small:
        yield


def extract_small(encoder, root: Path, count: int, **options):
    """Extract ``count`` segments in shards of four."""
    with cache_at(root):
        return extraction.extract(encoder, many_segments(count), max_tokens=MAX_TOKENS, **options)


def flip(path: Path) -> None:
    """Change a bit near the end of a file."""
    data = bytearray(path.read_bytes())
    data[-9] ^= 2
    path.write_bytes(bytes(data))


def content(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file in a folder."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.iterdir())
    }


def extract_in_child(model: str, root: Path, count: int) -> None:
    """Do what ``python -m helpers`` does, in a process of its own: 0 done, 2 stopped.

    What it has to say goes to ``messages`` in ``root``.
    """
    torch.set_num_threads(1)
    root.mkdir(parents=True, exist_ok=True)
    sys.stderr = (root / "messages").open("a", buffering=1)
    try:
        extract_small(load(model, device="cpu"), root, count)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


def repair_in_child(model: str, root: Path, count: int) -> None:
    """Repair the only store of a folder, in a process of its own."""
    torch.set_num_threads(1)
    (folder,) = (path for path in root.iterdir() if path.is_dir())
    extraction.repair(load(model, device="cpu"), folder)


def keep_tables(_model: str, root: Path, count: int) -> None:
    """Keep tables in the cache, in a process of its own."""
    os.environ["ATTENTION_CACHE"] = str(root)
    for i in range(count // 4):
        tables = {name: pd.DataFrame({"x": range(1000)}) for name in "ab"}
        cached(f"t{i}", lambda: tables, inputs={}, module="helpers.data.records")  # noqa: B023
