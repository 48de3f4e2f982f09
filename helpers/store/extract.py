"""Extract attention maps of a corpus into a store, or list its examples and compute maps lazily.

The list of examples is written first, one JSON record per line, truncated and counted.  Every
later step (a resumed run, a worker on another machine) reads the same list.  Then the shards that
are missing are computed.
"""

from __future__ import annotations

import json
import math
import shutil
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from helpers.data.records import Corpus, Record
from helpers.errors import InputError
from helpers.files import atomic_file, check_free, folder_lock, json_digest, sha256, write_atomic
from helpers.model.loading import Model
from helpers.progress import progress
from helpers.store.cluster import map_shards
from helpers.store.examples import ComputedStore, examples, shard_tensors
from helpers.store.store import (
    EXAMPLES,
    STORED,
    Level,
    Store,
    Tensors,
    find_store,
    is_listed,
    shard_path,
    store_folder,
    store_inputs,
    write_manifest,
)

DIGEST_SUFFIX = ".sha256"  # of a file with the digest of the shard before it
EXAMPLES_PER_SHARD: dict[Level, int] = {"token": 32, "word": 256}  # of `USUAL_TOKENS` or less
USUAL_TOKENS = 128
MAX_MAP_BYTES = 256 << 20  # of an example; longer texts are cut


def extract(encoder: Model, corpus: Corpus, *, stream: bool = False, **options: Any) -> Store:
    """Return the store of a model's maps over a corpus, after computing the maps it lacks.

    One process at a time fills a store, from the first unfinished shard on; a second one waits.

    Parameters
    ----------
    encoder
        Model whose maps are stored.
    corpus
        Segments, sentences or documents.
    stream
        Whether maps are computed when they are read, and none are stored: for corpora whose maps
        are larger than the disk.  Those that are stored are read.
    options
        ``level``, ``lens``, ``max_tokens`` and ``hidden``, as in `store.store_inputs`.

    Returns
    -------
    Store
        The finished store, or the list of its examples.

    Raises
    ------
    InputError
        If the corpus has no example.
    ModelError
        If the rows of a map do not sum to 1.
    StoreError
        If the disk is full or cannot be written to, or the store is damaged.
    """
    inputs = store_inputs(encoder.key, corpus, **options)
    finished = find_store(inputs)
    if finished is not None:
        return finished
    folder = store_folder(inputs)
    with folder_lock(folder):  # another process may have done the work when it is free
        if not is_listed(folder):
            list_examples(folder, encoder, corpus, inputs)
        unfinished = ComputedStore(folder, encoder)
        return unfinished if stream else fill(unfinished)


def in_temporary_folder(make: Callable[[Path], Store]) -> Store:
    """Make a store in a temporary folder, which is removed together with it, or after an error."""
    with ExitStack() as cleanup:
        temporary = TemporaryDirectory(prefix="attention-", ignore_cleanup_errors=True)
        store = make(Path(cleanup.enter_context(temporary)))
        weakref.finalize(store, cleanup.pop_all().close)
    return store


def list_examples(
    folder: Path,
    encoder: Model,
    corpus: Corpus,
    inputs: Mapping[str, Any],
    make_records: Callable[..., Iterable[Record]] = examples,
) -> None:
    """Write the records of a corpus, and the manifest of a store without shards."""
    # A killed process may have left a part, and shards of an unknown list are useless.
    shutil.rmtree(folder, ignore_errors=True)
    whole_maps = longest_whole_maps(encoder.layers, encoder.heads)
    cut_at = min(inputs["max_tokens"], encoder.max_length, whole_maps)
    contents = {
        "key": json_digest(inputs),
        "cut_at": cut_at,
        "examples_per_shard": shard_size(inputs["level"], cut_at),
        "layers": encoder.layer_numbers,
        "heads": encoder.heads,
        "special_tokens": encoder.special_tokens,
        "visible": encoder.visible,
    }
    counts: Counter[str] = Counter()
    records = make_records(encoder, corpus, cut_at, counts)
    write_list(folder, {**inputs, **contents}, records, counts)


def longest_whole_maps(layers: int, heads: int) -> int:
    """Compute the number of tokens of the longest example whose whole maps may be kept."""
    return math.isqrt(MAX_MAP_BYTES // (layers * heads * np.dtype(STORED).itemsize))


def write_list(
    folder: Path, contents: Mapping[str, Any], records: Iterable[Record], counts: Counter[str]
) -> None:
    """Write one record per line, and the manifest without shards; InputError without a record.

    ``counts`` has the numbers of dropped and changed examples when the last record has been read.
    """
    n_examples = 0
    with atomic_file(folder / EXAMPLES) as temporary:
        with temporary.open("wb") as file:
            for record in records:
                file.write((json.dumps(record, ensure_ascii=False) + "\n").encode())
                n_examples += 1
        digest = sha256(temporary)
        if n_examples == 0:
            reasons = ", ".join(f"{count} {reason}" for reason, count in counts.items())
            raise InputError(
                f"corpus {contents['corpus']['name']!r}: no example is left "
                f"({reasons or 'it is empty'}); check the path and the format, or raise "
                f"--max-tokens {contents['cut_at']}"
            )
    results = {
        "dtype": np.dtype(STORED).name,
        "n_examples": n_examples,
        "examples_sha256": digest,
        "report": dict(sorted(counts.items())),
        "shards": [],
    }
    write_manifest(folder, {**contents, **results})


def shard_size(level: Level, max_tokens: int) -> int:
    """Choose the number of examples of a shard: fewer long ones, which take as much memory."""
    times_as_large = max(1, max_tokens / USUAL_TOKENS) ** 2
    return max(1, int(EXAMPLES_PER_SHARD[level] / times_as_large))


def fill(store: ComputedStore) -> Store:
    """Compute the missing shards of a store, and open the finished one.

    StoreError if the disk is full.
    """
    check_free(store.folder, needed_bytes(store))
    missing = store.missing_shards()
    shards = map_shards(make_shard, store, missing)
    label = f"{store.model_name} over {store.corpus_name}"
    for _ in progress(shards, label, unit="shard", total=len(missing)):
        pass
    return finish(store)


def needed_bytes(store: Store) -> int:
    """Compute the size in bytes of the tensors of the missing shards, headers of files excluded."""
    n_values = 0
    for number in store.missing_shards():
        width = store.encoder.model.config.hidden_size if store.manifest["hidden"] else 0
        for record in store.records(store.indices(number)):
            tokens = record.get("tokens")
            length = len(tokens) if tokens else record["inputs"]["groups"][-1] + 1
            n_values += store.layers * store.heads * length**2
            n_values += (store.layers + 1) * width * length  # vectors of all layers
    return n_values * np.dtype(STORED).itemsize


def make_shard(store: Store, number: int) -> None:
    """Compute and write one shard."""
    write_shard(store.folder, number, shard_tensors(store, number))


def write_shard(folder: Path, number: int, tensors: Tensors) -> None:
    """Write a shard.  Its digest is written first, so that every complete shard has one.

    The next shard is computed while the system writes this one to the disk.  If the power fails
    meanwhile, the digest shows the damage when the shard is read.
    """
    path = shard_path(folder, number)
    # The file is written from the tensors' memory: bytes in between would hold every map twice.
    with atomic_file(path, sync=False) as temporary:
        save_file(tensors, temporary)
        digest = sha256(temporary).encode("ascii")
        write_atomic(path.with_name(f"{path.name}{DIGEST_SUFFIX}"), digest, sync=False)


def finish(store: Store) -> Store:
    """Write the manifest of a store whose shards all exist, with their digests, and open it."""
    digests = {shard["file"]: shard["sha256"] for shard in store.manifest["shards"]}
    for path in store.folder.glob(f"*{DIGEST_SUFFIX}"):  # they are newer than in the manifest
        digests[path.stem] = path.read_text(encoding="ascii")
    shards = []
    for number in range(store.n_shards):
        path = shard_path(store.folder, number)
        indices = store.indices(number)
        range_of = {"first": indices.start, "count": len(indices)}
        file = {"file": path.name, "bytes": path.stat().st_size, "sha256": digests[path.name]}
        shards.append(file | range_of)
    write_manifest(store.folder, {**store.manifest, "shards": shards})
    # The manifest has the digests now.  Killed processes left the rest; the temporary files of
    # safetensors begin with ``.tmp``.
    for pattern in (f"*{DIGEST_SUFFIX}", "*.tmp", ".tmp*"):
        for leftover in store.folder.glob(pattern):
            leftover.unlink(missing_ok=True)
    return Store(store.folder)
