"""From a corpus to its maps: a store, opened or completed first, or computed when asked for.

The list of work comes first, one JSON record an example, truncated and counted, so that every
later step (a resumed run, a worker on another machine) reads the same list; then the shards.
Nothing heavy is imported for a store that is finished.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from helpers.cache import function_name
from helpers.data.records import Corpus
from helpers.errors import InputError, ModelError, StoreError
from helpers.model.encoder import Device, Encoder, Lens, load
from helpers.paths import check_free, only_one, remove_temporary, sha256, whole_file
from helpers.store.format import (
    EXAMPLES,
    MANIFEST,
    STORED,
    UNFINISHED,
    Level,
    Listed,
    Manifest,
    Shard,
    StoreKey,
    Tensors,
    damage,
    discard_examples,
    is_of_another_format,
    of_other_code,
    read_manifest,
    remove,
    shard_name,
    stores,
)
from helpers.store.store import Store
from helpers.work import progress

EXAMPLES_PER_SHARD: dict[Level, int] = {"token": 32, "word": 256}
PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "safetensors")

Fill = Callable[[Store, Sequence[int], Listed], None]  # computes shards, enters each when written


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

    ``level`` is ``token`` for segments and ``word`` for treebanks and coreference (section 4.1);
    ``hidden`` also stores each layer's vectors.  ModelError where the model takes no such length.
    """
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
        reader=function_name(corpus.reader or corpus.read),
        **encoder_facts(encoder),
    ).today()


def encoder_facts(encoder: Encoder) -> dict[str, Any]:
    """Return what a store's key says of its model and tokenizer."""
    return {
        "model": {**encoder.identity, "compute_dtype": encoder.dtype},
        "tokenizer_sha256": encoder.tokenizer_sha256,
        "special_tokens": encoder.special_tokens,
    }


def extract(encoder: Encoder, corpus: Corpus, *, fill: Fill | None = None, **options: Any) -> Store:
    """Return the store of a model's maps over a corpus, computing what is not there yet.

    For ``options`` see `store_key`.  ``fill`` computes the shards: here (None), or where
    :mod:`helpers.store.cluster` says.  One process fills a store, from the first unfinished shard
    on; a second one waits for it.  InputError where the corpus yields no example; ModelError where
    the model takes no such length, or its maps are no distributions; StoreError as in `paths`.
    """
    key = store_key(encoder, corpus, **options)
    folder = key.folder()
    if not (folder / MANIFEST).is_file():
        for other in of_other_code(key):
            print(
                f"{other.name}: made by other code: extracted again; "
                f"'python -m helpers cache accept {other.name}' keeps it",
                file=sys.stderr,
            )
        store = stream(encoder, corpus, **options)
        with only_one(folder):
            if not (folder / MANIFEST).is_file():
                complete(store, fill)
    return Store.open(folder)


def stream(encoder: Encoder, corpus: Corpus, **options: Any) -> Store:
    """Return a store whose maps are computed when asked for: for corpora larger than the disk.

    The list of work is written first, where the maps would be; errors as in `extract`.
    """
    key = store_key(encoder, corpus, **options)
    folder = key.folder()
    if not _is_listed(folder):
        with only_one(folder):
            if not _is_listed(folder):
                remove_temporary(folder)  # what a killed process left of the list of work
                _list_work(encoder, corpus, folder, key)
    return Store.open(folder, encoder)


def _is_listed(folder: Path) -> bool:
    """Say whether a store has a manifest and a list of examples."""
    return folder in stores() and (folder / EXAMPLES).is_file()


def complete(store: Store, fill: Fill | None = None) -> list[int]:
    """Compute the shards that are missing or damaged; return their numbers.

    The store is finished then.  StoreError where the disk is full.
    """
    folder, manifest = store.folder, read_manifest(store.folder)
    remove_temporary(folder)
    own = progress(manifest.shards, "looking for finished shards", unit="shard")
    shards = {s.file: s for s in own if not damage(folder / s.file, s.bytes, s.sha256)}
    missing = [n for n in range(store.n_shards) if shard_name(n) not in shards]
    check_free(folder, needed_bytes(store, missing))

    def listed(shard: Shard) -> None:
        shards[shard.file] = shard
        own = tuple(sorted(shards.values(), key=lambda shard: shard.first))
        replace(manifest, versions=_versions(), shards=own).write(folder / UNFINISHED)

    if missing:
        (fill or fill_here)(store, missing, listed)
    remove_temporary(folder)
    (folder / UNFINISHED).replace(folder / MANIFEST)
    return missing


def repair_list(folder: Path) -> str:
    """Remove what prevents a store from being opened, and say in a sentence what was removed.

    A run knows the corpus and a store does not, so the next run writes the list of examples again.
    It keeps the maps if it lists the same examples. Without a manifest nothing says what the maps
    belong to, so the whole store is removed. The sentence is empty if manifest and list are whole.
    StoreError if other code has made the store: no run of today's code would complete it.
    """
    with only_one(folder):
        if is_of_another_format(folder):
            read_manifest(folder)  # raises the error that says so
        try:
            manifest = read_manifest(folder)
        except StoreError:
            remove(folder)
            return "manifest unreadable: store removed; the next run that needs it extracts it"
        if not damage(folder / EXAMPLES, manifest.examples["bytes"], manifest.examples["sha256"]):
            return ""
        if not manifest.shards:
            remove(folder)
            return f"{EXAMPLES} damaged: removed; the next run that needs it writes it again"
        _check_code(folder, manifest)
        discard_examples(folder)
        return (
            f"{EXAMPLES} damaged: removed; the next run that needs the store writes it again and "
            "keeps the maps"
        )


def repair(encoder: Encoder, folder: Path) -> list[str]:
    """Extract the damaged shards of a store again, and no others; return a line for each."""
    with only_one(folder):
        store = Store.open(folder, encoder)
        _check_model(encoder, folder, store.manifest)
        if (folder / MANIFEST).is_file():
            (folder / MANIFEST).replace(folder / UNFINISHED)
        numbers = complete(store)
    return [f"{folder / shard_name(number)}: extracted again" for number in numbers]


def load_encoder(folder: Path, *, model: str | None, device: Device = "auto") -> Encoder:
    """Load the encoder that a store was made with; StoreError where ``model`` is another one.

    A store knows the name of a local folder, not its place: that is ``model``.
    """
    manifest = read_manifest(folder)
    facts = manifest.spec.model
    try:
        encoder = load(
            model or facts["name"],
            revision=facts.get("revision"),
            device=device,
            dtype=facts["compute_dtype"],
            random_init=facts["random_init"],
            temperatures=facts.get("temperatures"),
        )
    except ModelError as error:
        raise ModelError(f"{error}; say where it is with --model PATH") from error
    _check_model(encoder, folder, manifest)
    return encoder


def _check_model(encoder: Encoder, folder: Path, manifest: Manifest) -> None:
    """Raise StoreError where a store was made with another model than an encoder, or other code."""
    spec = manifest.spec
    if replace(spec, **encoder_facts(encoder)) != spec:
        raise StoreError(
            f"{folder}: made with another model than {encoder.name!r} as it is now: {spec.model}; "
            "say where that one is with --model PATH"
        )
    _check_code(folder, manifest)


def _check_code(folder: Path, manifest: Manifest) -> None:
    """Raise StoreError where other code has made a store."""
    spec = manifest.spec
    if manifest.accepted or spec.today() != spec:
        raise StoreError(
            f"{folder}: made by other code than is here; after 'python -m helpers cache --remove "
            f"{folder.name}' it is extracted again"
        )


def fill_here(store: Store, missing: Sequence[int], listed: Listed) -> None:
    """Compute shards in this process; the next one is begun before one is written."""
    from helpers.store.examples import shards_tensors  # whose imports are heavy

    spec = store.spec
    label = f"{spec.model['name']} over {spec.corpus['name']}"
    with closing(shards_tensors(store.encoder, store.work(missing), **spec.maps)) as computed:
        bar = progress(zip(missing, computed, strict=True), label, unit="shard", total=len(missing))
        for number, (indices, tensors) in bar:
            write_shard(store.folder, number, tensors, indices, listed)
            tensors.clear()  # the loop and its bar hold them while the next ones are collected


def needed_bytes(store: Store, numbers: Sequence[int]) -> int:
    """Return how many bytes these shards will take (headers left out)."""
    spec, width = store.spec, getattr(store.encoder.model.config, "hidden_size", 0)
    maps = spec.model["layers"] * spec.model["heads"]
    vectors = (spec.model["layers"] + 1) * width if spec.hidden else 0
    needed = 0
    for _, examples in store.work(numbers):
        for record in examples:
            special = record.get("offset", 0) + (spec.special_tokens["sep"] is not None)
            n = len(record["tokens"]) if "tokens" in record else len(record["words"]) + special
            needed += (maps * n**2 + vectors * n) * np.dtype(STORED).itemsize
    return needed


def _versions() -> dict[str, str]:
    return {package: version(package) for package in PACKAGES}


def _list_work(encoder: Encoder, corpus: Corpus, folder: Path, key: StoreKey) -> None:
    """Write one record a line, and the manifest of a store without shards.

    If only the list was missing and the new one has the same bytes, the manifest stays as it is,
    and with it the shards.
    """
    from helpers.store.examples import examples

    counts: Counter[str] = Counter()
    path, written = folder / EXAMPLES, 0
    with whole_file(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        for record in examples(encoder, corpus, key.max_tokens, counts):
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
            written += 1
        if not written:
            dropped = ", ".join(f"{count} {reason}" for reason, count in counts.items())
            raise InputError(
                f"corpus {corpus.name!r}: no example left to analyse ({dropped or 'it is empty'}); "
                f"check the path and the format, or raise --max-tokens {key.max_tokens}"
            )
    list_digest = {"bytes": path.stat().st_size, "sha256": sha256(path)}
    with suppress(StoreError):
        if read_manifest(folder).examples == list_digest:
            return
    manifest = Manifest(key, written, list_digest, dict(sorted(counts.items())), _versions())
    manifest.write(folder / UNFINISHED)


def write_shard(
    folder: Path, number: int, tensors: Tensors, indices: range, listed: Listed
) -> Shard:
    """Write the shard of the examples ``indices``; ``listed`` is called before it has its name."""
    dense = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    path = folder / shard_name(number)
    # Straight from the tensors' memory: bytes in between would hold every map two times more.
    with whole_file(path) as temporary:
        save_file(dense, temporary)
        size, digest = temporary.stat().st_size, sha256(temporary)
        shard = Shard(path.name, indices.start, len(indices), size, digest)
        listed(shard)
    return shard
