"""A corpus of many shards, small stores, and work for processes of their own, for tests."""

from __future__ import annotations

import os
import sys
from collections import Counter
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from toy_corpora import PARAGRAPHS, corpus_of

from helpers.data.records import Corpus, Segment
from helpers.errors import InputError
from helpers.files import sha256
from helpers.model.loading import load_model
from helpers.store import extract as extraction
from helpers.store.extract import examples

EXAMPLES_PER_SHARD = 4
MAX_TOKENS = 60


def many_segments(count: int) -> Corpus[Segment]:
    """Return segments of different texts and lengths."""
    texts = list(chain.from_iterable(PARAGRAPHS))
    segments = []
    for number in range(count):
        first = texts[number % 8]
        second = texts[(number // 8 + 3 * number) % 8]
        segments.append(Segment(first, second, title=f"article {number}"))
    return corpus_of(segments, "toy-many")


def token_records(encoder, corpus: Corpus) -> list[dict]:
    """Return the records of a corpus as a store of tokens has them."""
    return list(examples(encoder, corpus, MAX_TOKENS, Counter()))


@contextmanager
def cache_at(root: Path):
    """Make ``root`` the cache, and shards of token-level stores four examples small."""
    small_shards = mock.patch.dict(extraction.EXAMPLES_PER_SHARD, token=EXAMPLES_PER_SHARD)
    with mock.patch.dict(os.environ, ATTENTION_CACHE=str(root)), small_shards:
        yield


def extract_small(encoder, root: Path, count: int, **options):
    """Extract ``count`` segments in shards of four."""
    with cache_at(root):
        return extraction.extract(encoder, many_segments(count), max_tokens=MAX_TOKENS, **options)


def assert_same(examples, expected_examples):
    """Compare examples bit by bit."""
    for example, expected in zip(examples, expected_examples, strict=True):
        assert example.index == expected.index
        assert example.record == expected.record
        assert example.offset == expected.offset
        for name in ("stored_attention", "hidden"):
            tensor = np.array(getattr(example, name))
            expected_tensor = np.array(getattr(expected, name))
            assert tensor.dtype == expected_tensor.dtype
            np.testing.assert_array_equal(tensor, expected_tensor)


def flip(path: Path) -> None:
    """Change a bit near the end of a file."""
    contents = bytearray(path.read_bytes())
    contents[-9] ^= 2
    path.write_bytes(bytes(contents))


def truncate(path: Path) -> None:
    """Cut a file to its first 50 bytes."""
    path.write_bytes(path.read_bytes()[:50])


def content(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file in a folder."""
    return {path.name: sha256(path) for path in sorted(folder.iterdir())}


def only_folder(root: Path) -> Path:
    """Return the only folder in another one."""
    (folder,) = [path for path in root.iterdir() if path.is_dir()]
    return folder


def extract_in_child(model: str, root: Path, count: int) -> None:
    """Extract segments in a process of its own, as ``python -m helpers`` does.

    Its exit status is 0, or 2 after an InputError; its messages go to the file ``messages``.
    """
    torch.set_num_threads(1)
    root.mkdir(parents=True, exist_ok=True)
    sys.stderr = (root / "messages").open("a", buffering=1)
    try:
        extract_small(load_model(model, device="cpu"), root, count)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
