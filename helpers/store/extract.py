"""The maps of a model over a corpus: a store, opened or completed first, or a stream of them.

A stream stores no maps, for corpora larger than the disk.
Nothing heavy is imported for a store that is finished.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypedDict, Unpack, get_args

import numpy as np

from helpers.data.records import Corpus
from helpers.errors import InputError, Interrupted, ModelError
from helpers.model.encoder import Encoder
from helpers.paths import check_free, only_one, remove_temporary, sha256, write_errors
from helpers.progress import progress
from helpers.store.format import (
    EXAMPLES,
    FORMAT,
    MANIFEST,
    STORED,
    UNFINISHED,
    Lens,
    Level,
    Listed,
    Manifest,
    Shard,
    StoreKey,
    check_key,
    damage,
    shard_name,
    write_manifest,
)
from helpers.store.store import Example, Records, Source, Store, make_example

EXAMPLES_PER_SHARD: dict[Level, int] = {"token": 32, "word": 256}
PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "safetensors")

Fill = Callable[[Encoder, Records, Sequence[int], Listed], None]


class StoreOptions(TypedDict, total=False):
    """What a store is made of, beside model and corpus; `store_key` has the defaults."""

    level: Level
    lens: Lens
    max_tokens: int
    hidden: bool


def store_key(
    encoder: Encoder,
    corpus: Corpus,
    *,
    level: Level = "token",
    lens: Lens = "attention",
    max_tokens: int = 128,
    hidden: bool = False,
) -> StoreKey:
    """Return the key of the store that ``extract`` fills with the same arguments.

    ``level`` is ``token`` for segments and ``word`` for treebanks and coreference (section 4.1).
    ``lens`` is what the maps show; ``hidden`` also stores each layer's vectors, for the
    structural probe.

    Raises:
        InputError: there is no such lens.
        ModelError: ``max_tokens`` is more than the model takes.
    """
    if lens not in get_args(Lens):
        raise InputError(f"--lens {lens}: there is {' and '.join(get_args(Lens))}")
    if not 8 <= max_tokens <= encoder.max_length:
        raise ModelError(
            f"model {encoder.name!r}: --max-tokens {max_tokens} is not between 8 and "
            f"{encoder.max_length}, the longest input it takes"
        )
    return StoreKey(
        lens=lens,
        corpus={"name": corpus.name, "fingerprint": corpus.fingerprint},
        level=level,
        dtype=np.dtype(STORED).name,
        max_tokens=max_tokens,
        examples_per_shard=EXAMPLES_PER_SHARD[level],
        hidden=hidden,
        **_encoder_facts(encoder),
    )


def model_facts(encoder: Encoder) -> dict[str, Any]:
    """Return what a store's key says of its model."""
    return {**encoder.identity, "compute_dtype": encoder.dtype}


def _encoder_facts(encoder: Encoder) -> dict[str, Any]:
    return {
        "model": model_facts(encoder),
        "tokenizer_sha256": encoder.tokenizer_sha256,
        "special_tokens": encoder.special_tokens,
    }


def check_model(encoder: Encoder, folder: Path, spec: StoreKey) -> None:
    """Check that an encoder is the one that a store was made with.

    Raises:
        StoreError: it is not; the message names the first difference.
    """
    check_key(folder, spec, replace(spec, **_encoder_facts(encoder)))


def extract(
    encoder: Encoder,
    corpus: Corpus,
    *,
    fill: Fill | None = None,
    **options: Unpack[StoreOptions],
) -> Store:
    """Return the store of a model's maps over a corpus, computing what is not there yet.

    For ``options`` see `store_key`.  ``fill`` computes the shards: in this process (None), or
    where :mod:`helpers.store.cluster` says.  Interrupted work goes on at the first unfinished
    shard.  One process fills a store; a second one waits for it.

    Raises:
        ModelError: ``max_tokens`` is more than the model takes, or its maps are no distributions.
        StoreError: the folder holds something else, is damaged, or the disk is full.
        Interrupted: on Ctrl-C or SIGTERM, once the shard in work is finished.
    """
    key = store_key(encoder, corpus, **options)
    folder = key.folder()
    if not (folder / MANIFEST).is_file():
        prepare(encoder, corpus, key)
        with only_one(folder):
            if not (folder / MANIFEST).is_file():
                complete(encoder, folder, fill)
    return Store.open(folder, key)


def prepare(encoder: Encoder, corpus: Corpus, key: StoreKey) -> Records:
    """Write the list of work, unless it is there, and return it.

    Raises:
        InputError: the corpus yields no example.
        StoreError: the list is damaged, or the disk is full.
    """
    folder = key.folder()
    with write_errors(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
    if not _begun(folder):
        with only_one(folder):
            if not _begun(folder):
                _list_work(encoder, corpus, folder, key)
    return Records.read(folder, key)


def _list_work(encoder: Encoder, corpus: Corpus, folder: Path, key: StoreKey) -> None:
    from helpers.store.examples import write_examples

    _mention_old(folder, key)
    path = folder / EXAMPLES
    with write_errors(path):
        folder.mkdir(exist_ok=True)
        count, report = write_examples(encoder, corpus, path, key.max_tokens)
    facts = {"bytes": path.stat().st_size, "sha256": sha256(path)}
    manifest = Manifest(key, count, facts, dict(sorted(report.items())), _versions())
    write_manifest(folder / UNFINISHED, manifest)


def complete(encoder: Encoder, folder: Path, fill: Fill | None = None) -> list[int]:
    """Compute the shards of a store that are missing or damaged, and declare it finished.

    Returns:
        The numbers of the shards that were computed.

    Raises:
        Interrupted: not all were.
    """
    remove_temporary(folder)
    records = Records.read(folder)
    manifest = records.manifest
    shards = {shard.file: shard for shard in _intact(folder, manifest.shards)}
    missing = [n for n in range(records.n_shards) if shard_name(n) not in shards]
    check_free(folder, needed_bytes(encoder, records, missing))

    def listed(shard: Shard) -> None:
        shards[shard.file] = shard
        own = tuple(sorted(shards.values(), key=lambda shard: shard.first))
        write_manifest(folder / UNFINISHED, replace(manifest, versions=_versions(), shards=own))

    if fill is None:  # whose imports are heavy
        from helpers.store.shards import fill_here as fill
    if missing:
        fill(encoder, records, missing, listed)
    if len(shards) < records.n_shards:
        raise Interrupted(
            f"stopped after {len(shards)} of {records.n_shards} shards of {folder.name}; "
            "run the same command again to go on from there"
        )
    remove_temporary(folder)
    (folder / UNFINISHED).replace(folder / MANIFEST)
    return missing


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


def needed_bytes(encoder: Encoder, records: Records, numbers: Sequence[int]) -> int:
    """Return how many bytes these shards will take (headers left out)."""
    spec, width = records.spec, getattr(encoder.model.config, "hidden_size", 0)
    maps = spec.model["layers"] * spec.model["heads"]
    vectors = (spec.model["layers"] + 1) * width if spec.hidden else 0
    needed = 0
    for _, examples in records.work(numbers):
        for record in examples:
            special = record.get("offset", 0) + (spec.special_tokens["sep"] is not None)
            n = len(record["tokens"]) if "tokens" in record else len(record["words"]) + special
            needed += (maps * n**2 + vectors * n) * np.dtype(STORED).itemsize
    return needed


def _begun(folder: Path) -> bool:
    return any((folder / name).is_file() for name in (UNFINISHED, MANIFEST))


def _intact(folder: Path, shards: Sequence[Shard]) -> Iterator[Shard]:
    """Yield the shards whose files are as they were written."""
    for shard in progress(shards, "looking for finished shards", unit="shard"):
        if damage(folder / shard.file, shard.bytes, shard.sha256) is None:
            yield shard


def _mention_old(folder: Path, key: StoreKey) -> None:
    """Say which stores of an earlier format take room for nothing."""
    for old in folder.parent.glob(f"{key.slug}-{'?' * 10}/key.json"):
        print(
            f"{old.parent.name}: a store of an earlier format than {FORMAT}, extracted again; "
            f"'python -m helpers cache --remove {old.parent.name}' makes room",
            file=sys.stderr,
        )


def _versions() -> dict[str, str]:
    return {package: version(package) for package in PACKAGES}
