"""Extract attention maps of a corpus: open a store, complete it, or compute maps lazily.

The list of examples is written first, one JSON record per line, truncated and counted.  Every
later step (a resumed run, a worker on another machine) reads the same list.  Then the shards are
computed.  A finished store is opened without importing torch.
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
from helpers.data.records import Corpus, Record
from helpers.errors import InputError, ModelError, StoreError
from helpers.files import atomic_file, check_free, folder_lock, remove_temporary, sha256
from helpers.model.encoder import Device, Encoder, Lens, load
from helpers.progress import progress
from helpers.store.format import (
    EXAMPLES,
    MANIFEST,
    STORED,
    UNFINISHED,
    Level,
    Manifest,
    RecordShard,
    Shard,
    StoreKey,
    Tensors,
    damage_message,
    discard_examples,
    is_of_another_format,
    outdated_stores,
    read_manifest,
    remove,
    shard_name,
    stores,
)
from helpers.store.store import Store

EXAMPLES_PER_SHARD: dict[Level, int] = {"token": 32, "word": 256}
PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "safetensors")

# A function that computes shards by number, and calls `RecordShard` for each when it is written.
Fill = Callable[[Store, Sequence[int], RecordShard], None]


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

    Parameters
    ----------
    encoder
        Model whose maps are stored.
    corpus
        Segments, sentences or documents.
    level
        "token" for segments, "word" for treebanks and coreference (section 4.1).
    lens
        "attention" for attention weights, "norm" for the norms of what each weight moves.
    max_tokens
        Length of the longest example, special tokens included.
    hidden
        Also store the vectors of each layer.

    Returns
    -------
    StoreKey
        Everything that determines the content of the store.

    Raises
    ------
    ModelError
        If the model does not take inputs of this length.
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
        **model_key(encoder),
    ).today()


def model_key(encoder: Encoder) -> dict[str, Any]:
    """Return the part of a store's key that describes its model and tokenizer."""
    return {
        "model": {**encoder.identity, "compute_dtype": encoder.dtype},
        "tokenizer_sha256": encoder.tokenizer_sha256,
        "special_tokens": encoder.special_tokens,
    }


def extract(encoder: Encoder, corpus: Corpus, *, fill: Fill | None = None, **options: Any) -> Store:
    """Return the store of a model's maps over a corpus, after computing the maps it lacks.

    One process at a time fills a store, from the first unfinished shard on; a second one waits.

    Parameters
    ----------
    encoder
        Model whose maps are stored.
    corpus
        Segments, sentences or documents.
    fill
        Function that computes the missing shards, such as `store.cluster.extract_on_cluster`. By
        default this process does.
    options
        ``level``, ``lens``, ``max_tokens`` and ``hidden``, as in `store_key`.

    Returns
    -------
    Store
        The finished store.

    Raises
    ------
    InputError
        If the corpus has no example.
    ModelError
        If the model does not take inputs of this length, or the rows of a map do not sum to 1.
    StoreError
        If the disk is full or cannot be written to, or the store is damaged.
    """
    key = store_key(encoder, corpus, **options)
    folder = key.folder()
    if not (folder / MANIFEST).is_file():
        for old_folder in outdated_stores(key):
            print(
                f"{old_folder.name}: made by other code: extracted again; "
                f"'python -m helpers cache accept {old_folder.name}' keeps it",
                file=sys.stderr,
            )
        store = stream(encoder, corpus, **options)
        with folder_lock(folder):
            if not (folder / MANIFEST).is_file():
                extract_missing(store, fill)
    return Store.open(folder)


def stream(encoder: Encoder, corpus: Corpus, **options: Any) -> Store:
    """Return a store that computes its maps when they are read, and stores none.

    It is for corpora whose maps are larger than the disk. The list of examples is written to the
    folder in which `extract` would store the maps.

    Parameters
    ----------
    encoder
        Model that computes the maps.
    corpus
        Segments, sentences or documents.
    options
        ``level``, ``lens``, ``max_tokens`` and ``hidden``, as in `store_key`.

    Returns
    -------
    Store
        The examples, without stored maps.

    Raises
    ------
    InputError, ModelError, StoreError
        As in `extract`.
    """
    key = store_key(encoder, corpus, **options)
    folder = key.folder()
    if not _is_listed(folder):
        with folder_lock(folder):
            if not _is_listed(folder):
                remove_temporary(folder)  # what a killed process left of the list of work
                write_examples(encoder, corpus, folder, key)
    return Store.open(folder, encoder)


def _is_listed(folder: Path) -> bool:
    """Say whether a store has a manifest and a list of examples."""
    return folder in stores() and (folder / EXAMPLES).is_file()


def extract_missing(store: Store, fill: Fill | None = None) -> list[int]:
    """Compute the shards that are missing or damaged; return their numbers.

    The store is finished then.  StoreError if the disk is full.
    """
    folder = store.folder
    manifest = read_manifest(folder)
    remove_temporary(folder)
    shards = _finished_shards(folder, manifest)
    missing = [number for number in range(store.n_shards) if shard_name(number) not in shards]
    check_free(folder, needed_bytes(store, missing))

    def listed(shard: Shard) -> None:
        shards[shard.file] = shard
        in_order = sorted(shards.values(), key=lambda finished: finished.first)
        grown = replace(manifest, versions=_versions(), shards=tuple(in_order))
        grown.write(folder / UNFINISHED)

    if missing:
        compute_shards = fill or extract_locally
        compute_shards(store, missing, listed)
    remove_temporary(folder)
    (folder / UNFINISHED).replace(folder / MANIFEST)
    return missing


def _finished_shards(folder: Path, manifest: Manifest) -> dict[str, Shard]:
    """Return the shards of a manifest that are undamaged, by file name."""
    shards = {}
    for shard in progress(manifest.shards, "looking for finished shards", unit="shard"):
        if not damage_message(folder / shard.file, shard.bytes, shard.sha256):
            shards[shard.file] = shard
    return shards


def repair_list(folder: Path) -> str:
    """Remove what prevents a store from being opened, and say in a sentence what was removed.

    A run knows the corpus and a store does not, so the next run writes the list of examples again.
    It keeps the maps if it lists the same examples. Without a manifest nothing says what the maps
    belong to, so the whole store is removed. The sentence is empty if manifest and list are whole.
    StoreError if other code has made the store: no run of today's code would complete it.
    """
    with folder_lock(folder):
        if is_of_another_format(folder):
            read_manifest(folder)  # raises the error that says so
        try:
            manifest = read_manifest(folder)
        except StoreError:
            remove(folder)
            return "manifest unreadable: store removed; the next run that needs it extracts it"
        if not damage_message(
            folder / EXAMPLES, manifest.examples["bytes"], manifest.examples["sha256"]
        ):
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
    """Extract the damaged shards of a store again, and no others; return a line for each.

    StoreError if the store was made with another model, or by other code.
    """
    with folder_lock(folder):
        store = Store.open(folder, encoder)
        _check_model(encoder, folder, store.manifest)
        if (folder / MANIFEST).is_file():
            (folder / MANIFEST).replace(folder / UNFINISHED)
        numbers = extract_missing(store)
    return [f"{folder / shard_name(number)}: extracted again" for number in numbers]


def load_encoder(folder: Path, *, model: str | None, device: Device = "auto") -> Encoder:
    """Load the encoder that a store was made with.

    A store has the name of a local model folder, but not its path: ``model`` is that path.
    StoreError if ``model`` is another model.
    """
    manifest = read_manifest(folder)
    stored_model = manifest.spec.model
    try:
        encoder = load(
            model or stored_model["name"],
            revision=stored_model.get("revision"),
            device=device,
            dtype=stored_model["compute_dtype"],
            random_init=stored_model["random_init"],
            temperatures=stored_model.get("temperatures"),
        )
    except ModelError as error:
        raise ModelError(f"{error}; say where it is with --model PATH") from error
    _check_model(encoder, folder, manifest)
    return encoder


def _check_model(encoder: Encoder, folder: Path, manifest: Manifest) -> None:
    """Raise StoreError if a store was made with another model than an encoder, or by other code."""
    spec = manifest.spec
    if replace(spec, **model_key(encoder)) != spec:
        raise StoreError(
            f"{folder}: made with another model than {encoder.name!r} as it is now: {spec.model}; "
            "say where that one is with --model PATH"
        )
    _check_code(folder, manifest)


def _check_code(folder: Path, manifest: Manifest) -> None:
    """Raise StoreError if other code has made a store."""
    spec = manifest.spec
    if manifest.accepted or spec.today() != spec:
        raise StoreError(
            f"{folder}: made by other code than is here; after 'python -m helpers cache --remove "
            f"{folder.name}' it is extracted again"
        )


def extract_locally(store: Store, missing: Sequence[int], listed: RecordShard) -> None:
    """Compute shards in this process; the next shard is computed while one is written."""
    from helpers.store.examples import shards_tensors  # whose imports are heavy

    spec = store.spec
    label = f"{spec.model['name']} over {spec.corpus['name']}"
    with closing(shards_tensors(store.encoder, store.work(missing), **spec.maps)) as computed:
        bar = progress(zip(missing, computed, strict=True), label, unit="shard", total=len(missing))
        for number, (indices, tensors) in bar:
            write_shard(store.folder, number, tensors, indices, listed)
            tensors.clear()  # the loop and its bar hold them while the next ones are collected


def needed_bytes(store: Store, numbers: Sequence[int]) -> int:
    """Compute the size in bytes of the tensors of some shards, headers of files excluded."""
    spec = store.spec
    n_maps = spec.model["layers"] * spec.model["heads"]
    vector_values = 0  # at each position, over all layers
    if spec.hidden:
        width = getattr(store.encoder.model.config, "hidden_size", 0)
        vector_values = (spec.model["layers"] + 1) * width
    n_values = 0
    for _, records in store.work(numbers):
        for record in records:
            length = _n_positions(record, spec)
            n_values += n_maps * length**2 + vector_values * length
    return n_values * np.dtype(STORED).itemsize


def _n_positions(record: Record, spec: StoreKey) -> int:
    """Return the number of positions of an example's maps."""
    if "tokens" in record:
        return len(record["tokens"])
    n_before = record.get("offset", 0)
    n_after = 0 if spec.special_tokens["sep"] is None else 1
    return n_before + len(record["words"]) + n_after


def _versions() -> dict[str, str]:
    """Return the versions of the packages that determine the maps."""
    return {package: version(package) for package in PACKAGES}


def write_examples(encoder: Encoder, corpus: Corpus, folder: Path, key: StoreKey) -> None:
    """Write one record per line, and the manifest of a store without shards.

    If only the list was missing and the new one has the same bytes, the manifest stays as it is,
    and with it the shards.
    """
    from helpers.store.examples import examples

    counts: Counter[str] = Counter()
    n_examples = 0
    path = folder / EXAMPLES
    with atomic_file(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        for record in examples(encoder, corpus, key.max_tokens, counts):
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
            n_examples += 1
        if n_examples == 0:
            raise _no_examples(corpus, counts, key.max_tokens)
    list_digest = {"bytes": path.stat().st_size, "sha256": sha256(path)}
    with suppress(StoreError):
        if read_manifest(folder).examples == list_digest:
            return
    report = dict(sorted(counts.items()))
    manifest = Manifest(key, n_examples, list_digest, report, _versions())
    manifest.write(folder / UNFINISHED)


def _no_examples(corpus: Corpus, counts: Counter[str], max_tokens: int) -> InputError:
    """Return the error of a corpus of which no example is left."""
    reasons = ", ".join(f"{count} {reason}" for reason, count in counts.items())
    return InputError(
        f"corpus {corpus.name!r}: no example left to analyse ({reasons or 'it is empty'}); "
        f"check the path and the format, or raise --max-tokens {max_tokens}"
    )


def write_shard(
    folder: Path, number: int, tensors: Tensors, indices: range, listed: RecordShard
) -> Shard:
    """Write the shard of the examples ``indices``; ``listed`` is called before it has its name."""
    dense = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    path = folder / shard_name(number)
    # The file is written from the tensors' memory: bytes in between would hold every map twice.
    with atomic_file(path) as temporary:
        save_file(dense, temporary)
        shard = Shard(
            file=path.name,
            first=indices.start,
            count=len(indices),
            bytes=temporary.stat().st_size,
            sha256=sha256(temporary),
        )
        listed(shard)
    return shard
