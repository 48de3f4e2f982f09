"""The manifest of a store (its key and the digests of its files), and the listing of stores.

A store is a folder with three types of files:

- ``examples.jsonl``: the list of examples, one record per line; written first.
- ``shard-00000.safetensors`` ...: the maps of consecutive examples.
- ``manifest.json``: the key of the store, and the size and SHA-256 of each file.  Until the last
  shard is written it is called ``unfinished.json`` and lists the shards so far.  Renaming it
  declares the store finished.  A shard is listed before it gets its name, so a shard that is not
  listed, or has another digest, is not finished.

No other file is read, and nothing is pickled.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from helpers.cache import code_digest, is_computing
from helpers.errors import StoreError
from helpers.files import cache_root, folder_lock, sha256, slugify, write_atomic
from helpers.model.encoder import Lens
from helpers.progress import progress

FORMAT = 2
MANIFEST = "manifest.json"
UNFINISHED = "unfinished.json"
EXAMPLES = "examples.jsonl"
USED = "used"  # folder next to the stores: a file per store names the run that used it last
FILLER = "helpers.store.extract"  # the module that fills stores

STORED = np.float16  # type of stored maps and vectors; measures compute in float32 or wider
ROW_SUM_TOLERANCE = 0.02  # bfloat16 rounding can add up to this over a row of a map
Tensors = dict[str, np.ndarray]

Level = Literal["token", "word"]


@dataclass(frozen=True)
class StoreKey:
    """Everything that determines the content of a store; its hash names the store's folder."""

    model: Mapping[str, Any]
    lens: Lens
    corpus: Mapping[str, str]
    level: Level
    dtype: str
    max_tokens: int
    examples_per_shard: int
    tokenizer_sha256: str
    special_tokens: Mapping[str, str | None]
    hidden: bool = False
    code: str = ""  # digest of the code that computes and reads
    reader: str = ""  # name of the function that reads the corpus
    format: int = FORMAT

    @property
    def hash(self) -> str:
        """SHA-256 of the key, in hexadecimal."""
        return _digest(asdict(self))

    def folder(self) -> Path:
        """Return the store's folder in the cache: a readable slug and a short hash."""
        seed = self.model.get("random_init")
        control = "" if seed is None else f"-random-{seed}"
        control += "-entropy-matched" if "temperatures" in self.model else ""
        lens = "" if self.lens == "attention" else f"-{self.lens}"
        slug = f"{self.model['name']}{control}--{self.corpus['name']}--{self.level}{lens}"
        return cache_root() / f"{slugify(slug)}-{self.hash[:10]}"

    def today(self) -> StoreKey:
        """Return the key of a store with the same settings, filled by the current code."""
        # A user's corpus is what its ``spec`` says.
        module = f"helpers.{self.reader}".rpartition(".")[0]
        readers = [module] if is_computing(module) else []
        return replace(self, code=code_digest(FILLER, *readers))

    @property
    def maps(self) -> dict[str, Any]:
        """Options of `store.examples.shards_tensors` that compute this store's tensors."""
        return {"level": self.level, "lens": self.lens, "hidden": self.hidden}


class Shard(NamedTuple):
    """A finished shard: the examples ``first`` to ``first + count`` in one file."""

    file: str
    first: int
    count: int
    bytes: int
    sha256: str


RecordShard = Callable[[Shard], None]  # a function that enters a shard in the manifest


@dataclass(frozen=True)
class Manifest:
    """The key of a store and its files, finished or not.

    ``examples`` has the size in bytes and the SHA-256 of ``examples.jsonl``.  ``report`` counts, by
    reason, the examples that were dropped or cut.  ``versions`` are those of the packages.  If a
    user has accepted a store of other code, ``accepted`` is the digest of the code that filled it.
    """

    spec: StoreKey
    n_examples: int
    examples: Mapping[str, Any]
    report: Mapping[str, int]
    versions: Mapping[str, str]
    shards: tuple[Shard, ...] = ()
    accepted: str = ""

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the key and of the digests of records and shards."""
        shard_digests = [shard.sha256 for shard in self.shards]
        return _digest([self.spec.hash, self.examples["sha256"], shard_digests])

    def write(self, path: Path) -> None:
        """Write the manifest with its checksum, atomically."""
        contents = asdict(self.spec)
        contents["n_examples"] = self.n_examples
        contents["examples"] = self.examples
        contents["report"] = self.report
        contents["versions"] = self.versions
        contents["shards"] = [shard._asdict() for shard in self.shards]
        contents["accepted"] = self.accepted
        contents["checksum"] = _digest(contents)
        write_atomic(path, (json.dumps(contents, indent=1) + "\n").encode())


def read_manifest(folder: Path, *, finished: bool = False) -> Manifest:
    """Read the manifest of a store, or only of a ``finished`` one.

    StoreError if it is missing or damaged.
    """
    names = [MANIFEST] if finished else [UNFINISHED, MANIFEST]
    for name in names:
        with suppress(FileNotFoundError):
            return _read(folder / name)
    raise StoreError(f"{folder}: no {MANIFEST}; the store is unfinished, run extraction again")


def _read(path: Path) -> Manifest:
    """Read a manifest; StoreError if it is damaged or of another format."""
    try:
        return _parse(path.read_bytes())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        name = path.parent.name
        if is_of_another_format(path.parent):
            raise StoreError(
                f"{path}: written by a version of this project with another format than {FORMAT}; "
                f"'python -m helpers cache --remove {name}' makes room for a new extraction"
            ) from error
        raise StoreError(f"{path}: not a whole manifest; {repair_command(name)}") from error


def _parse(text: bytes) -> Manifest:
    """Parse a manifest; ValueError or another error of its type if it is damaged."""
    contents = json.loads(text)
    checksum = contents.pop("checksum")
    if checksum != _digest(contents) or contents["format"] != FORMAT:
        raise ValueError("not a whole manifest of this format")
    key_names = {field.name for field in fields(StoreKey)} & contents.keys()
    spec = StoreKey(**{name: contents.pop(name) for name in key_names})
    shards = tuple(Shard(**entry) for entry in contents.pop("shards"))
    for shard in shards:
        # The only name that a shard can have is also one that stays inside the folder.
        if shard.file != shard_name(shard.first // spec.examples_per_shard):
            raise ValueError(f"no name of a shard: {shard.file}")
    return Manifest(spec, **contents, shards=shards)


def is_of_another_format(folder: Path) -> bool:
    """Say whether a store's manifest is undamaged, but of another version of this project."""
    for name in (UNFINISHED, MANIFEST):
        try:
            contents = json.loads((folder / name).read_bytes())
            checksum = contents.pop("checksum")
            return contents["format"] != FORMAT and checksum == _digest(contents)
        except FileNotFoundError:
            continue
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return False
    return False


def tensor_name(name: str, index: int) -> str:
    """Return the name of an example's tensor in its shard."""
    return f"{name}/{index:06d}"


def shard_name(number: int) -> str:
    """Return the file name of a shard."""
    return f"shard-{number:05d}.safetensors"


def note_use(folder: Path, run: str) -> None:
    """Write down the run that used a store last, if the cache can be written to."""
    with suppress(OSError):
        path = folder.parent / USED / folder.name
        path.parent.mkdir(exist_ok=True)
        path.write_text(run, encoding="utf-8")


def damage_message(path: Path, size: int, digest: str = "") -> str | None:
    """Describe the damage of a file, and the remedy; None if it has this size and SHA-256.

    The SHA-256 is not checked if it is empty.
    """
    actual_size = path.stat().st_size if path.is_file() else 0
    if actual_size != size:
        problem = f"{actual_size:,} bytes, expected {size:,}"
    elif digest and sha256(path) != digest:
        problem = "its SHA-256 is not that of what was written"
    else:
        return None
    return f"{path}: {problem}; {repair_command(path.parent.name)}"


def repair_command(name: str) -> str:
    """Return the advice to repair a store, for the end of an error message."""
    return f"repair it with 'python -m helpers verify --repair {name}'"


def check(path: Path, size: int, digest: str = "") -> None:
    """Raise StoreError if a file is missing or damaged."""
    problem = damage_message(path, size, digest)
    if problem:
        raise StoreError(problem)


def stores() -> list[Path]:
    """Return the folders of the stores in the cache, finished or not."""
    folders = set()
    for name in (UNFINISHED, MANIFEST):
        folders.update(path.parent for path in cache_root().glob(f"*/{name}"))
    return sorted(folders)


def outdated_stores(key: StoreKey) -> list[Path]:
    """Return the finished stores of the same settings that other code has filled."""
    folders = []
    for folder in stores():
        with suppress(StoreError):
            spec = read_manifest(folder, finished=True).spec
            if spec != key and replace(spec, code=key.code, reader=key.reader) == key:
                folders.append(folder)
    return folders


def accept(folder: Path) -> Path:
    """Mark a finished store as valid for the current code, and return its new folder.

    StoreError if the store is damaged, unfinished or has no recorded reader, or if the current code
    has extracted the same store.
    """
    manifest = read_manifest(folder, finished=True)
    if not manifest.spec.reader:
        raise StoreError(f"{folder.name}: does not say who read its corpus; extract it again")
    check(folder / EXAMPLES, manifest.examples["bytes"], manifest.examples["sha256"])
    key = manifest.spec.today()
    target = key.folder()
    if target == folder:
        raise StoreError(f"{folder.name}: made by today's code, or accepted for it")
    with folder_lock(target):
        if (target / MANIFEST).is_file():
            raise StoreError(f"{target.name}: extracted already; remove one of the two")
        if target.exists():
            shutil.rmtree(target)  # an extraction by the current code that has not ended
        filled_by = manifest.accepted or manifest.spec.code
        replace(manifest, spec=key, accepted=filled_by).write(folder / MANIFEST)
        folder.rename(target)
    return target


def describe(folder: Path) -> dict[str, Any]:
    """Describe a store for a table: corpus, examples, state, date and last run."""
    try:
        manifest = read_manifest(folder)
        corpus = manifest.spec.corpus["name"]
        examples = f"{manifest.n_examples:,}"
        state = _state(folder, manifest)
    except StoreError:
        corpus = ""
        examples = ""
        state = "damaged, or of another format: see verify"
    return {
        "corpus": corpus,
        "examples": examples,
        "finished": state,
        "written": date(folder),
        "last run": last_run(folder),
    }


def _state(folder: Path, manifest: Manifest) -> str:
    """Return the word for a store's state in a table of stores."""
    if manifest.spec.today() != manifest.spec:
        return "made by other code"
    if (folder / MANIFEST).is_file():
        return "accepted" if manifest.accepted else "yes"
    return "no" if manifest.shards else "records alone"


def discard_examples(folder: Path) -> None:
    """Remove a store's damaged list of examples, so that the next run writes the list again.

    The maps stay. The store counts as unfinished until then.
    """
    if (folder / MANIFEST).is_file():
        (folder / MANIFEST).replace(folder / UNFINISHED)
    (folder / EXAMPLES).unlink(missing_ok=True)


def remove(folder: Path) -> None:
    """Remove a store's folder, its lock and the note of its last run."""
    shutil.rmtree(folder)
    folder.with_name(f"{folder.name}.lock").unlink(missing_ok=True)
    (folder.parent / USED / folder.name).unlink(missing_ok=True)


def last_run(folder: Path) -> str:
    """Return the name and date of the run that used a store last; empty if none has."""
    path = folder.parent / USED / folder.name
    try:
        return f"{path.read_text(encoding='utf-8')} ({date(path)})"
    except (OSError, ValueError):
        return ""


def date(path: Path) -> str:
    """Return the day when a file or folder was last changed."""
    return datetime.fromtimestamp(path.stat().st_mtime).strftime("%Y-%m-%d")


def verify(folder: Path) -> list[str]:
    """Check every byte of a store against its manifest; return a line for each problem."""
    try:
        manifest = read_manifest(folder)
        if manifest.shards:  # a stream leaves records only, which are no unfinished store
            manifest = read_manifest(folder, finished=True)
    except StoreError as error:
        return [str(error)]
    files = [(EXAMPLES, manifest.examples["bytes"], manifest.examples["sha256"])]
    for shard in manifest.shards:
        files.append((shard.file, shard.bytes, shard.sha256))
    problems = []
    for name, size, digest in progress(files, f"checking {folder.name}", unit="file"):
        problem = damage_message(folder / name, size, digest)
        if problem:
            problems.append(problem)
    return problems


def _digest(value: object) -> str:
    """Return the SHA-256 of a value's JSON."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
