"""Maps straight from the model, none of them stored: for corpora larger than the disk."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Unpack

from helpers.data.records import Corpus
from helpers.model.encoder import Encoder
from helpers.store.extract import StoreOptions, prepare, store_key
from helpers.store.store import Example, Records, Source, make_example


@dataclass(frozen=True)
class Stream(Source):
    """Examples whose maps are computed when asked for, by whole shards: a store's bits.

    Its folder is the one that the store would have, and holds the records alone.
    """

    encoder: Encoder = field(repr=False, compare=False)

    @classmethod
    def open(cls, encoder: Encoder, corpus: Corpus, **options: Unpack[StoreOptions]) -> Stream:
        """Return the stream of a model's maps over a corpus; for ``options`` see `store_key`.

        Raises ModelError: ``max_tokens`` is more than the model takes; StoreError: the folder holds
        something else, is damaged, or the disk is full.
        """
        return cls.over(encoder, prepare(encoder, corpus, store_key(encoder, corpus, **options)))

    @classmethod
    def over(cls, encoder: Encoder, records: Records) -> Stream:
        """Return the stream over records that are open."""
        # The folder may hold a store too, whose shards are not what is read here.
        manifest = replace(records.manifest, versions={}, shards=())
        return cls(records.folder, manifest, records.offsets, encoder)

    def read_shard(self, number: int, indices: range) -> Iterator[Example]:
        """Yield examples of a shard; all of it is computed, for the same bits."""
        (examples,) = self._computed([number])
        yield from (example for example in examples if example.index in indices)

    def by_shard(self) -> Generator[list[Example]]:
        """Yield the examples of each shard together; the next one is begun before."""
        yield from self._computed(range(self.n_shards))

    def _computed(self, numbers: Sequence[int]) -> Generator[list[Example]]:
        from helpers.store.shards import shards_tensors  # torch, for those who ask for maps

        shards = shards_tensors(self.encoder, self.work(numbers), **self.spec.maps)
        with closing(shards):
            for indices, tensors in shards:
                yield [
                    make_example(index, record, tensors, tensors.__getitem__)
                    for index, record in zip(indices, self.records(indices), strict=True)
                ]
