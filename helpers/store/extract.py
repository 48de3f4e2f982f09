"""Extract attention maps of a corpus into a store, or list its examples and compute maps lazily.

The list of examples is written first, one JSON record per line, truncated and counted.  Every
later step (a resumed run, a worker on another machine) reads the same list.  Then the shards that
are missing are computed.  A finished store is opened without importing torch.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from safetensors.numpy import save_file

from helpers.cache import code_digest
from helpers.data.records import Corpus, Record
from helpers.errors import InputError, ModelError
from helpers.files import (
    atomic_file,
    check_free,
    folder_lock,
    sha256,
    write_atomic,
)
from helpers.model.encoder import Encoder, Lens
from helpers.progress import progress
from helpers.store import CODE
from helpers.store.format import (
    EXAMPLES,
    STORED,
    Level,
    Manifest,
    StoreKey,
    Tensors,
    find_manifest,
    is_finished,
    shard_name,
)
from helpers.store.store import Store

DIGEST_SUFFIX = ".sha256"  # of a file with the digest of the shard before it
EXAMPLES_PER_SHARD: dict[Level, int] = {"token": 32, "word": 256}  # of `USUAL_TOKENS` or less
USUAL_TOKENS = 128

# A function that computes and writes the shards with the given numbers.
Fill = Callable[[Store, Sequence[int]], None]


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
        examples_per_shard=shard_size(level, max_tokens),
        hidden=hidden,
        code=code_digest(CODE),
        **model_key(encoder),
    )


def shard_size(level: Level, max_tokens: int) -> int:
    """Choose the number of examples of a shard: fewer long ones, which take as much memory."""
    times_as_large = max(1, max_tokens / USUAL_TOKENS) ** 2
    return max(1, int(EXAMPLES_PER_SHARD[level] / times_as_large))


def model_key(encoder: Encoder) -> dict[str, Any]:
    """Return the part of a store's key that describes its model and tokenizer."""
    return {
        "model": {**encoder.key, "layers": encoder.layers, "heads": encoder.heads},
        "special_tokens": encoder.special_tokens,
        "visible": encoder.visible,
    }


def fill_here(store: Store, missing: Sequence[int]) -> None:
    """Compute and write shards in this process."""
    label = f"{store.spec.model['name']} over {store.spec.corpus['name']}"
    for number in progress(missing, label, unit="shard"):
        write_shard(store.folder, number, store.compute(number))


def extract(encoder: Encoder, corpus: Corpus, *, fill: Fill = fill_here, **options: Any) -> Store:
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
    manifest = find_manifest(folder)
    if manifest is not None and is_finished(folder, manifest):
        return Store(folder, encoder, manifest=manifest)
    with folder_lock(folder):
        # Another process may have listed the examples, or finished the store, meanwhile.
        manifest = find_manifest(folder) or write_examples(encoder, corpus, key)
        store = Store(folder, encoder, manifest=manifest)
        complete(store, fill)
    return store


def stream(encoder: Encoder, corpus: Corpus, **options: Any) -> Store:
    """Return a store that computes its maps when they are read, and stores none.

    It is for corpora whose maps are larger than the disk. The list of examples is written to the
    folder in which `extract` would store the maps.  Maps that `extract` has stored there are read.

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
    manifest = find_manifest(folder)
    if manifest is None:
        with folder_lock(folder):
            manifest = find_manifest(folder) or write_examples(encoder, corpus, key)
    return Store(folder, encoder, manifest=manifest)


def complete(store: Store, fill: Fill) -> None:
    """Compute the shards that are missing, and write the manifest of the finished store.

    StoreError if the disk is full.
    """
    folder = store.folder
    check_free(folder, needed_bytes(store))
    fill(store, store.missing_shards())
    store.manifest = finish(folder, store.manifest)


def finish(folder: Path, manifest: Manifest) -> Manifest:
    """Write the manifest of a folder whose shards all exist, with their sizes and digests."""
    digests = {shard["file"]: shard["sha256"] for shard in manifest.shards}
    for path in folder.glob(f"*{DIGEST_SUFFIX}"):  # they are newer than those of the manifest
        digests[path.stem] = path.read_text(encoding="ascii")
    shards = []
    for number in range(manifest.n_shards):
        name = shard_name(number)
        indices = manifest.indices(number)
        shards.append(
            {
                "file": name,
                "first": indices.start,
                "count": len(indices),
                "bytes": (folder / name).stat().st_size,
                "sha256": digests[name],
            }
        )
    finished = replace(manifest, shards=shards)
    finished.write(folder)
    # The manifest has the digests now.  Killed processes left the rest; the temporary files of
    # safetensors begin with ``.tmp``.
    for pattern in (f"*{DIGEST_SUFFIX}", "*.tmp", ".tmp*"):
        for leftover in folder.glob(pattern):
            leftover.unlink(missing_ok=True)
    return finished


def needed_bytes(store: Store) -> int:
    """Compute the size in bytes of the tensors of the missing shards, headers of files excluded."""
    missing = store.missing_shards()
    if not missing:
        return 0  # without reading the model, which takes seconds
    encoder = cast("Encoder", store.encoder)  # which computes the missing shards
    width = encoder.model.config.hidden_size if store.spec.hidden else 0
    n_values = 0
    for number in missing:
        for record in store.records(store.indices(number)):
            tokens = record.get("tokens")
            length = len(tokens) if tokens else record["inputs"]["groups"][-1] + 1
            n_values += store.layers * store.heads * length**2
            n_values += (store.layers + 1) * width * length  # vectors of all layers
    return n_values * np.dtype(STORED).itemsize


def write_examples(
    encoder: Encoder, corpus: Corpus, key: StoreKey, folder: Path | None = None
) -> Manifest:
    """Write one record per line, and the manifest of a store without shards.

    They are written to the folder of the key, unless another one is given.  InputError if the
    corpus has no example.
    """
    from helpers.store.examples import examples

    folder = folder or key.folder()
    # A killed process may have left a part, and shards of an unknown list are useless.
    shutil.rmtree(folder, ignore_errors=True)
    counts: Counter[str] = Counter()
    return write_records(folder, key, examples(encoder, corpus, key.max_tokens, counts), counts)


def write_records(
    folder: Path, key: StoreKey, records: Iterable[Record], counts: Counter[str]
) -> Manifest:
    """Write one record per line, and the manifest without shards; InputError without a record.

    ``counts`` has the numbers of dropped and changed examples when the last record has been read.
    """
    n_examples = 0
    digest = hashlib.sha256()
    with atomic_file(folder / EXAMPLES) as temporary:
        with temporary.open("wb") as file:
            for record in records:
                line = (json.dumps(record, ensure_ascii=False) + "\n").encode()
                file.write(line)
                digest.update(line)
                n_examples += 1
        if n_examples == 0:
            reasons = ", ".join(f"{count} {reason}" for reason, count in counts.items())
            raise InputError(
                f"corpus {key.corpus['name']!r}: no example is left ({reasons or 'it is empty'}); "
                f"check the path and the format, or raise --max-tokens {key.max_tokens}"
            )
    manifest = Manifest(key, n_examples, digest.hexdigest(), dict(sorted(counts.items())))
    manifest.write(folder)
    return manifest


def write_shard(folder: Path, number: int, tensors: Tensors) -> None:
    """Write a shard.  Its digest is written first, so that every complete shard has one.

    The next shard is computed while the system writes this one to the disk.  If the power fails
    meanwhile, the digest shows the damage when the shard is read.
    """
    path = folder / shard_name(number)
    # The file is written from the tensors' memory: bytes in between would hold every map twice.
    with atomic_file(path, sync=False) as temporary:
        save_file(tensors, temporary)
        digest = sha256(temporary).encode("ascii")
        write_atomic(path.with_name(f"{path.name}{DIGEST_SUFFIX}"), digest, sync=False)
