"""Examples with their maps, shard by shard: read from a folder, or computed when asked for."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int
from safetensors import safe_open

from helpers.cache import code_digest
from helpers.errors import MapError
from helpers.store.format import (
    EXAMPLES,
    ROW_SUM_TOLERANCE,
    Manifest,
    Shard,
    StoreKey,
    check,
    read_manifest,
    tensor_name,
)
from helpers.work import in_order, trim

if TYPE_CHECKING:
    from helpers.model.encoder import Encoder

GetTensor = Callable[[str], np.ndarray | None]  # None: there is no tensor of that name


@dataclass(frozen=True)
class Example:
    """The attention maps of one segment, sentence or document.

    ``attention[layer, head, query, key]`` is float16 and usually memory-mapped: compute on it
    in float32 or wider.  ``record`` is the example's line of ``examples.jsonl``.  At word level
    the words stand at positions ``offset`` to ``offset + len(record["words"])``; the positions
    before and after them are special tokens ([CLS] before, [SEP] after, in BERT).
    """

    index: int
    attention: Float[np.ndarray, "layer head query key"]
    record: dict[str, Any]
    token_ids: Int[np.ndarray, " token"] | None = None
    offset: int = 1
    hidden: Float[np.ndarray, "layer position width"] | None = field(default=None, repr=False)

    def __len__(self) -> int:
        """Return the number of positions of the maps."""
        return self.attention.shape[-1]

    @property
    def word_positions(self) -> slice:
        """The positions of the words (word level only)."""
        return slice(self.offset, self.offset + len(self.record["words"]))


@dataclass(frozen=True)
class Store:
    """Examples with their maps, in shards.

    ``len(store)`` is the number of examples, ``store[i]`` one of them; iterating gives all, with
    the memory of one shard.  Shards are read from the store's folder; with an ``encoder`` they are
    computed, and only the records are in the folder: the same bits without the disk space.
    """

    folder: Path
    manifest: Manifest = field(repr=False)
    offsets: Int[np.ndarray, " line"] = field(repr=False, compare=False)
    encoder: Encoder | None = field(default=None, repr=False, compare=False)

    @classmethod
    def open(cls, folder: Path, encoder: Encoder | None = None) -> Store:
        """Open a finished store, or with an ``encoder`` the records of one, finished or not.

        StoreError where it is unfinished or damaged; a shard's digest is checked when it is read.
        """
        manifest = read_manifest(folder, finished=encoder is None)
        if encoder is not None:  # the shards that are there, if any, are not what is read here
            manifest = replace(manifest, versions={}, shards=())
        for shard in manifest.shards:
            check(folder / shard.file, shard.bytes)
        path = folder / EXAMPLES
        check(path, manifest.examples["bytes"], manifest.examples["sha256"])
        with path.open("rb") as file:
            offsets = np.cumsum([0, *(len(line) for line in file)])
        return cls(folder, manifest, offsets, encoder)

    def __len__(self) -> int:
        return self.manifest.n_examples

    @property
    def spec(self) -> StoreKey:
        """What determines the maps."""
        return self.manifest.spec

    @property
    def key(self) -> str:
        """What tables computed from these maps are kept under: manifest and code that reads it."""
        return f"{self.manifest.digest} {code_digest('helpers.store.store')}"

    @property
    def layers(self) -> int:
        """Number of layers of the model."""
        return self.spec.model["layers"]

    @property
    def heads(self) -> int:
        """Number of heads in each layer of the model."""
        return self.spec.model["heads"]

    @property
    def special_tokens(self) -> dict[str, str | None]:
        """The tokens in the parts of [CLS] and [SEP]; None where the model has none."""
        return dict(self.spec.special_tokens)

    @property
    def n_shards(self) -> int:
        """Number of shards."""
        return -(-len(self) // self.spec.examples_per_shard)

    def record(self, index: int) -> dict[str, Any]:
        """Return one example's line of ``examples.jsonl``."""
        index = range(len(self))[index]
        return next(self.records(range(index, index + 1)))

    def records(self, indices: range | None = None) -> Iterator[dict[str, Any]]:
        """Yield the records of consecutive examples (all of them: None), in order."""
        lines = range(len(self)) if indices is None else indices
        with (self.folder / EXAMPLES).open("rb") as file:
            file.seek(int(self.offsets[lines.start]))
            for _ in lines:
                yield json.loads(file.readline())

    def work(self, numbers: Iterable[int]) -> Iterator[tuple[range, list[dict[str, Any]]]]:
        """Yield the indices and records of shards: what they are computed from."""
        size = self.spec.examples_per_shard
        for number in numbers:
            indices = range(len(self))[number * size : (number + 1) * size]
            yield indices, list(self.records(indices))

    def __getitem__(self, index: int) -> Example:
        index = range(len(self))[index]
        with closing(self._tensors([index // self.spec.examples_per_shard])) as shards:
            return _example(index, self.record(index), next(shards))

    def shard(self, number: int) -> list[Example]:
        """Return the examples of one shard."""
        (examples,) = self.by_shard([number])
        return examples

    def by_shard(self, numbers: Iterable[int] | None = None) -> Generator[list[Example]]:
        """Yield the examples of each shard (of all: None) together."""
        numbers = list(range(self.n_shards) if numbers is None else numbers)
        with closing(self._tensors(numbers)) as shards:
            for tensor, (indices, records) in zip(shards, self.work(numbers), strict=True):
                examples = zip(indices, records, strict=True)
                yield [_example(index, record, tensor) for index, record in examples]

    def __iter__(self) -> Iterator[Example]:
        with closing(self.by_shard()) as shards:
            for examples in shards:
                yield from examples

    def _tensors(self, numbers: Iterable[int]) -> Generator[GetTensor]:
        """Yield for each shard what gives its tensors by name."""
        if self.encoder is None:
            for number in numbers:
                yield _opened(self.folder, self.manifest.shards[number])
            return
        from helpers.store.examples import shards_tensors  # torch, for those who ask for maps

        with closing(shards_tensors(self.encoder, self.work(numbers), **self.spec.maps)) as shards:
            for _, tensors in shards:
                yield tensors.get


def checked_maps(example: Example) -> Float[np.ndarray, "layer head query key"]:
    """Return an example's maps in float32; MapError where a row is no distribution over words."""
    attention = example.attention.astype(np.float32)
    place = f"example {example.index}"
    if not attention.size:
        raise MapError(f"{place}: has no tokens")
    if "words" in example.record and len(example) < example.word_positions.stop:
        words = len(example.record["words"])
        raise MapError(f"{place}: expected a map over {words} words; extract the store again")
    if not attention.min() >= 0:
        raise MapError(f"{place}: its attention has a negative or undefined (NaN) weight")
    worst = np.abs(attention.sum(axis=-1) - 1).max()
    if not worst < ROW_SUM_TOLERANCE:
        raise MapError(f"{place}: an attention row is off from summing to 1 by {worst:.3g}")
    return attention


def tokens_of(store: Store, example: Example) -> list[str]:
    """Return the token or word at each position of an example's maps, special tokens included."""
    record = example.record
    if "words" not in record:
        return list(record["tokens"])
    after = len(example) - example.word_positions.stop
    cls, sep = (store.special_tokens.get(role) or "" for role in ("cls", "sep"))
    return [cls] * example.offset + list(record["words"]) + [sep] * after


def read_ahead(store: Store) -> Iterator[list[Example]]:
    """Yield the examples of each shard, while the next shard is read (or computed) beside."""
    with closing(store.by_shard()) as shards:
        reads = (partial(next, shards) for _ in range(store.n_shards))
        with closing(in_order(reads, threads=1, ahead=1)) as examples:
            for shard in examples:
                yield shard
                trim()


def _opened(folder: Path, shard: Shard) -> GetTensor:
    """Return what reads a shard's tensors, checked if this process has not read it as it is now."""
    path = folder / shard.file
    check(path, shard.bytes)
    state = path.stat().st_ino, path.stat().st_mtime_ns
    _check_once(path, shard, state)
    return _open(path, state)


@cache
def _check_once(path: Path, shard: Shard, _state: tuple[int, int]) -> None:
    check(path, shard.bytes, shard.sha256)


@lru_cache(maxsize=1)  # examples that are read are often close
def _open(path: Path, _state: tuple[int, int]) -> GetTensor:
    file = safe_open(path, framework="numpy")
    names = frozenset(file.keys())
    return lambda name: file.get_tensor(name) if name in names else None


def _example(index: int, record: dict[str, Any], tensor: GetTensor) -> Example:
    names = ("attention", "token_ids", "hidden")
    maps, ids, vectors = (tensor(tensor_name(name, index)) for name in names)
    return Example(index, maps, record, ids, record.get("offset", 0), vectors)
