"""What examples are read from: the parts that a store and a stream have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from helpers.attention.example import Example
from helpers.attention.files import check_size, line_offsets, read_lines
from helpers.attention.manifest import (
    EXAMPLES,
    Level,
    StoreKey,
    check_key,
    read_key,
    shard_examples,
)
from helpers.attention.memory import trim


@dataclass(frozen=True)
class Records:
    """The records of ``examples.jsonl``, in shards: the list of work of an extraction."""

    folder: Path
    spec: StoreKey = field(repr=False)
    offsets: Int[np.ndarray, " line"] = field(repr=False, compare=False)

    @staticmethod
    def read(folder: Path, wanted: StoreKey | None = None) -> Records:
        """Find the lines of the ``examples.jsonl`` in a folder.

        Raises:
            StoreError: it is missing, shorter or longer than written, or not for ``wanted``.
        """
        spec, examples = read_key(folder)
        if wanted is not None:
            check_key(folder, spec, wanted)
        check_size(folder / EXAMPLES, examples["bytes"])
        return Records(folder, spec, line_offsets(folder / EXAMPLES))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def n_shards(self) -> int:
        """Number of shards."""
        return -(-len(self) // self.spec.examples_per_shard)

    def shard_examples(self, number: int) -> range:
        """Return the indices of a shard's examples."""
        if not 0 <= number < self.n_shards:
            raise IndexError(f"shard {number} of {self.n_shards}")
        return shard_examples(number, self.spec.examples_per_shard, len(self))

    def record(self, index: int) -> dict[str, Any]:
        """Return one example's line of ``examples.jsonl``."""
        if not 0 <= index < len(self):
            raise IndexError(f"example {index} of {len(self)}")
        return next(self.records(range(index, index + 1)))

    def records(self, indices: range | None = None) -> Iterator[dict[str, Any]]:
        """Yield the records of consecutive examples (all of them: None), in order."""
        every = range(len(self))
        yield from read_lines(
            self.folder / EXAMPLES, self.offsets, every if indices is None else indices
        )


@dataclass(frozen=True)
class Source(Records, ABC):
    """Examples with their maps, in shards.

    ``len(source)`` is the number of examples, ``source[i]`` one of them; iterating gives all,
    one at a time, with the memory of one shard.
    """

    @abstractmethod
    def shard(self, number: int) -> Iterator[Example]:
        """Yield the examples of one shard."""

    @abstractmethod
    def __getitem__(self, index: int) -> Example:
        """Return one example."""

    def by_shard(self, numbers: Iterable[int] | None = None) -> Generator[list[Example]]:
        """Yield the examples of each shard (all shards: None) together."""
        for number in range(self.n_shards) if numbers is None else numbers:
            yield list(self.shard(number))

    def __iter__(self) -> Iterator[Example]:
        for examples in self.by_shard():
            yield from examples

    @property
    def key(self) -> str:
        """The hash of everything that determines the maps."""
        return self.spec.hash

    @property
    def level(self) -> Level:
        """``token`` or ``word``."""
        return self.spec.level

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


def tokens_of(source: Source, example: Example) -> list[str]:
    """Return the token or word at each position of an example's maps, special tokens included."""
    record = example.record
    if "words" not in record:
        return list(record["tokens"])
    after = len(example) - example.word_positions.stop
    cls, sep = (source.special_tokens.get(role) or "" for role in ("cls", "sep"))
    return [cls] * example.offset + list(record["words"]) + [sep] * after


def read_ahead(source: Source, numbers: Iterable[int] | None = None) -> Generator[list[Example]]:
    """Yield the examples of each shard, while the next shard is read (or computed) beside."""
    shards = source.by_shard(numbers)
    with ThreadPoolExecutor(1, thread_name_prefix="read-ahead") as reader:
        upcoming = reader.submit(next, shards, None)
        try:
            while (examples := upcoming.result()) is not None:
                upcoming = reader.submit(next, shards, None)
                yield examples
                trim()
        finally:
            reader.submit(shards.close)
