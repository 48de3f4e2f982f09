"""Maps straight from the model, none of them stored: for corpora larger than the disk."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Unpack

from helpers.data.records import Corpus
from helpers.model.encoder import Encoder
from helpers.store.extract import StoreOptions, check_model, prepare, store_key
from helpers.store.format import Tensors, tensor_name
from helpers.store.part import Part
from helpers.store.store import Example, Records, Source, make_example


@dataclass(frozen=True)
class Stream(Source):
    """Examples whose maps are computed when asked for; the same bits as a store's.

    It reads like a :class:`~helpers.store.store.Store`.  Its folder is the one that the
    store would have, and holds the records alone.
    """

    encoder: Encoder = field(repr=False, compare=False)

    @classmethod
    def open(
        cls,
        encoder: Encoder,
        corpus: Corpus,
        *,
        root: Path | None = None,
        **options: Unpack[StoreOptions],
    ) -> Stream:
        """Return the stream of a model's maps over a corpus; for ``options`` see `store_key`.

        Raises:
            ModelError: ``max_tokens`` is more than the model takes.
            StoreError: the folder holds something else, is damaged, or the disk is full.
        """
        key = store_key(encoder, corpus, **options)
        return cls.over(encoder, prepare(encoder, corpus, key, root))

    @classmethod
    def reopen(cls, encoder: Encoder, folder: Path) -> Stream:
        """Return the stream over the records of a folder, say in another process.

        Raises:
            StoreError: the folder is damaged, or was made with another model.
        """
        records = Records.read(folder)
        check_model(encoder, folder, records.spec)
        return cls.over(encoder, records)

    @classmethod
    def over(cls, encoder: Encoder, records: Records) -> Stream:
        """Return the stream over records that are open."""
        # The folder may hold a store too, whose shards are not what is read here.
        manifest = replace(records.manifest, versions={}, shards=())
        return cls(records.folder, manifest, records.offsets, encoder)

    def __getitem__(self, index: int | slice) -> Example | Part:
        """Return one example; its whole shard is computed, for the same bits."""
        if isinstance(index, slice):
            return Part(self, range(len(self))[index])
        if not 0 <= index < len(self):
            raise IndexError(f"example {index} of {len(self)}")
        number, position = divmod(index, self.spec.examples_per_shard)
        return list(self.shard(number))[position]

    def shard(self, number: int) -> Iterator[Example]:
        """Yield the examples of one shard."""
        for examples in self.by_shard([number]):
            yield from examples

    def by_shard(self, numbers: Iterable[int] | None = None) -> Generator[list[Example]]:
        """Yield the examples of each shard (all shards: None); the next one is begun before."""
        from helpers.store.shards import shards_tensors  # torch, for those who ask for maps

        own = list(range(self.n_shards) if numbers is None else numbers)
        shards = shards_tensors(self.encoder, self.work(own), **self.spec.maps)
        with closing(shards):
            for indices, tensors in shards:
                records = self.records(indices)
                yield [
                    make_example(index, _own(tensors, index), record)
                    for index, record in zip(indices, records, strict=True)
                ]


def _own(tensors: Tensors, index: int) -> Tensors:
    """Return one example's tensors by their short names."""
    names = {name: tensor_name(name, index) for name in ("attention", "token_ids", "hidden")}
    return {short: tensors[name] for short, name in names.items() if name in tensors}
