"""What a store records, once: what determines it, the digest of each file; which stores there are.

A store is a folder with three kinds of files:

- ``examples.jsonl``: one record a line, the list of work; written first.
- ``shard-00000.safetensors`` ...: the maps of consecutive examples.
- ``manifest.json``: the record.  Until the last shard is there it is called ``unfinished.json``
  and lists the shards so far; renaming it declares the store finished.  A shard is listed before
  it takes its name, so one that is there without being listed, or with another digest, is not
  finished.

No other file is looked at, and nothing is pickled.
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
from helpers.model.encoder import Lens
from helpers.paths import cache_root, only_one, readable, sha256, write_whole
from helpers.work import progress

FORMAT = 2
MANIFEST, UNFINISHED, EXAMPLES = "manifest.json", "unfinished.json", "examples.jsonl"
USED = "used"  # a folder beside the stores, with a file for each: the run that used it last
FILLER = "helpers.store.extract"  # the module that fills stores

STORED = np.float16  # of maps and vectors; computed on in float32 or wider
ROW_SUM_TOLERANCE = 0.02  # what bfloat16 rounding can add up to over a row of a map
Tensors = dict[str, np.ndarray]

Level = Literal["token", "word"]


@dataclass(frozen=True)
class StoreKey:
    """Everything that determines what a store holds, and so names its folder."""

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
    code: str = ""  # the digest of what fills it
    reader: str = ""  # the function that reads the corpus
    format: int = FORMAT

    @property
    def hash(self) -> str:
        """SHA-256 of the key, in hexadecimal."""
        return _digest(asdict(self))

    def folder(self) -> Path:
        """Return the store's folder in the cache: a readable slug and a short hash."""
        seed = self.model.get("random_init")
        control = "" if seed is None else f"-random-{seed}"
        control += "-focused" if "temperatures" in self.model else ""
        lens = "" if self.lens == "attention" else f"-{self.lens}"
        slug = f"{self.model['name']}{control}--{self.corpus['name']}--{self.level}{lens}"
        return cache_root() / f"{readable(slug)}-{self.hash[:10]}"

    def today(self) -> StoreKey:
        """Return the key of a store of the same settings that today's code fills."""
        # A user's corpus is what its ``spec`` says.
        module = f"helpers.{self.reader}".rpartition(".")[0]
        readers = [module] if is_computing(module) else []
        return replace(self, code=code_digest(FILLER, *readers))

    @property
    def maps(self) -> dict[str, Any]:
        """What is computed of each example."""
        return {"level": self.level, "lens": self.lens, "hidden": self.hidden}


class Shard(NamedTuple):
    """A finished shard: examples ``first`` to ``first + count`` in one file."""

    file: str
    first: int
    count: int
    bytes: int
    sha256: str


Listed = Callable[[Shard], None]  # enters a shard in the manifest


@dataclass(frozen=True)
class Manifest:
    """The record of a store, finished or not.

    ``examples`` has the bytes and SHA-256 of ``examples.jsonl``, ``report`` counts what of the
    corpus was dropped or cut, by reason, and ``versions`` are those of the packages.  ``accepted``
    is the code that has filled it, if a user has accepted it in place of the key's.
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
        """SHA-256 of the digests of what the examples are made of: key, records and shards."""
        shards = [shard.sha256 for shard in self.shards]
        return _digest([self.spec.hash, self.examples["sha256"], shards])

    def write(self, path: Path) -> None:
        """Write the facts with a checksum of them, there whole or not at all."""
        own = {field.name: getattr(self, field.name) for field in fields(self)[1:]}
        facts = asdict(self.spec) | own | {"shards": [shard._asdict() for shard in self.shards]}
        facts["checksum"] = _digest(facts)
        write_whole(path, (json.dumps(facts, indent=1) + "\n").encode())


def read_manifest(folder: Path, *, finished: bool = False) -> Manifest:
    """Read the manifest of a store, ``finished`` or either way; StoreError unless it is whole."""
    for name in (MANIFEST,) if finished else (UNFINISHED, MANIFEST):
        with suppress(FileNotFoundError):
            return _read(folder / name)
    raise StoreError(f"{folder}: no {MANIFEST}; the store is unfinished, run extraction again")


def _read(path: Path) -> Manifest:
    try:
        facts = json.loads(path.read_bytes())
        whole = facts.pop("checksum") == _digest(facts) and facts["format"] == FORMAT
        names = facts.keys() & {field.name for field in fields(StoreKey)}
        spec = StoreKey(**{name: facts.pop(name) for name in names})
        shards = tuple(Shard(**entry) for entry in facts.pop("shards"))
        # The one name that a shard can have is also the one that stays inside the folder.
        own = [shard_name(shard.first // spec.examples_per_shard) for shard in shards]
        whole &= own == [shard.file for shard in shards]
        if whole:
            return Manifest(spec, **facts, shards=shards)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    name = path.parent.name
    if is_of_another_format(path.parent):
        raise StoreError(
            f"{path}: written by a version of this project with another format than {FORMAT}; "
            f"'python -m helpers cache --remove {name}' makes room for a new extraction"
        )
    raise StoreError(f"{path}: not a whole manifest; {repair_command(name)}")


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
    """Return what an example's tensor is called in its shard."""
    return f"{name}/{index:06d}"


def shard_name(number: int) -> str:
    """Return the file name of a shard."""
    return f"shard-{number:05d}.safetensors"


def note_use(folder: Path, run: str) -> None:
    """Remember which run has used a store last; a cache that cannot be written to forgets it."""
    with suppress(OSError):
        path = folder.parent / USED / folder.name
        path.parent.mkdir(exist_ok=True)
        path.write_text(run, encoding="utf-8")


def damage(path: Path, size: int, digest: str = "") -> str | None:
    """Return what is wrong with a file: its size in bytes or, where it is given, its SHA-256."""
    found = path.stat().st_size if path.is_file() else 0
    if found != size:
        problem = f"{found:,} bytes, expected {size:,}"
    elif digest and sha256(path) != digest:
        problem = "its SHA-256 is not that of what was written"
    else:
        return None
    return f"{path}: {problem}; {repair_command(path.parent.name)}"


def repair_command(name: str) -> str:
    """Return the advice to repair a store, for the end of an error message."""
    return f"repair it with 'python -m helpers verify --repair {name}'"


def check(path: Path, size: int, digest: str = "") -> None:
    """Raise StoreError where a file is missing or damaged."""
    if problem := damage(path, size, digest):
        raise StoreError(problem)


def stores() -> list[Path]:
    """Return the folders of the stores in the cache, finished or not."""
    found = (cache_root().glob(f"*/{name}") for name in (UNFINISHED, MANIFEST))
    return sorted({path.parent for paths in found for path in paths})


def of_other_code(key: StoreKey) -> list[Path]:
    """Return the finished stores of the same settings that other code has filled."""
    found = []
    for folder in stores():
        with suppress(StoreError):
            spec = read_manifest(folder, finished=True).spec
            if spec != key and replace(spec, code=key.code, reader=key.reader) == key:
                found.append(folder)
    return found


def accept(folder: Path) -> Path:
    """Let a finished store stand for one that today's code would fill; return its new folder.

    StoreError where it is damaged, unfinished, does not say who read its corpus, or is in the way.
    """
    manifest = read_manifest(folder, finished=True)
    if not manifest.spec.reader:
        raise StoreError(f"{folder.name}: does not say who read its corpus; extract it again")
    check(folder / EXAMPLES, manifest.examples["bytes"], manifest.examples["sha256"])
    key = manifest.spec.today()
    if (place := key.folder()) == folder:
        raise StoreError(f"{folder.name}: made by today's code, or accepted for it")
    with only_one(place):
        if (place / MANIFEST).is_file():
            raise StoreError(f"{place.name}: extracted already; remove one of the two")
        if place.exists():
            shutil.rmtree(place)  # extraction again, begun
        made = manifest.accepted or manifest.spec.code
        replace(manifest, spec=key, accepted=made).write(folder / MANIFEST)
        folder.rename(place)
    return place


def describe(folder: Path) -> dict[str, Any]:
    """Return what tells a store from others: corpus, examples, whether it is finished, dates."""
    facts = {"corpus": "", "examples": "", "finished": "no"}
    try:
        manifest = read_manifest(folder)
        facts |= {"corpus": manifest.spec.corpus["name"], "examples": f"{manifest.n_examples:,}"}
        if manifest.spec.today() != manifest.spec:
            facts["finished"] = "made by other code"
        elif (folder / MANIFEST).is_file():
            facts["finished"] = "accepted" if manifest.accepted else "yes"
        elif not manifest.shards:
            facts["finished"] = "records alone"
    except StoreError:
        facts["finished"] = "damaged, or of another format: see verify"
    return facts | {"written": date(folder), "last run": last_run(folder)}


def discard_examples(folder: Path) -> None:
    """Remove a store's damaged list of examples, so that the next run writes the list again.

    The maps stay. The store counts as unfinished until then.
    """
    if (folder / MANIFEST).is_file():
        (folder / MANIFEST).replace(folder / UNFINISHED)
    (folder / EXAMPLES).unlink(missing_ok=True)


def remove(folder: Path) -> None:
    """Remove a store's folder and what was noted about it."""
    shutil.rmtree(folder)
    for noted in (folder.with_name(f"{folder.name}.lock"), folder.parent / USED / folder.name):
        noted.unlink(missing_ok=True)


def last_run(folder: Path) -> str:
    """Return the run that has used a store last, and when; empty if none has."""
    path = folder.parent / USED / folder.name
    try:
        return f"{path.read_text(encoding='utf-8')} ({date(path)})"
    except (OSError, ValueError):
        return ""


def date(path: Path) -> str:
    """Return the day when a file or folder was last changed."""
    return datetime.fromtimestamp(path.stat().st_mtime).strftime("%Y-%m-%d")


def verify(folder: Path) -> list[str]:
    """Check every byte of a store against its manifest; return what is wrong, a line each."""
    try:
        manifest = read_manifest(folder)
        if manifest.shards:  # records alone are what a stream leaves: they are no unfinished store
            manifest = read_manifest(folder, finished=True)
    except StoreError as error:
        return [str(error)]
    files = [(EXAMPLES, manifest.examples["bytes"], manifest.examples["sha256"])]
    files += [(shard.file, shard.bytes, shard.sha256) for shard in manifest.shards]
    checked = (
        damage(folder / name, size, digest)
        for name, size, digest in progress(files, f"checking {folder.name}", unit="file")
    )
    return list(filter(None, checked))


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
