"""A store: its inputs, its files, and its examples with their maps, read shard by shard.

A store is a folder, named after the digest of its inputs, with these files:

- ``examples.jsonl``: the list of examples, one record per line; written first.
- ``manifest.json``: the inputs, what the model says about its maps, and the digest of the list;
  written next.
- ``shard-00000.safetensors`` ...: the maps of consecutive examples.  A shard is complete if it
  exists, because it is written under a temporary name and renamed.
- ``shard-00000.safetensors.sha256`` ...: the digest of each shard, written before it.

A store is finished when it has all shards.  A shard that is missing is extracted again by the next
run, so removing it repairs it.  No other file is read, and nothing is pickled.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float, Int
from safetensors import safe_open

from helpers.cache import code_digest
from helpers.data.records import (
    Corpus,
    Record,
    Roles,
    Visible,
    count_used,
    roles,
    visible_mask,
    visible_words,
)
from helpers.errors import StoreError
from helpers.files import (
    cache_root,
    folder_lock,
    json_digest,
    read_json,
    sha256,
    slugify,
    write_atomic,
)
from helpers.model.loading import Lens, key_slug
from helpers.progress import progress
from helpers.store import CODE

FORMAT = 7
MANIFEST = "manifest.json"
EXAMPLES = "examples.jsonl"
CODE_DIGEST = code_digest(CODE)  # of what this process runs

STORED = np.float16  # type of stored maps and vectors; measures compute in float32 or wider
ROW_SUM_TOLERANCE = 0.02  # bfloat16 rounding can add up to this over a row of a map

Level = Literal["token", "word"]
Tensors = dict[str, np.ndarray]  # of a shard, by name
GetTensor = Callable[[str], np.ndarray]


def store_inputs(
    model_key: Mapping[str, Any],
    corpus: Corpus,
    *,
    level: Level = "token",
    lens: Lens = "attention",
    max_tokens: int = 128,
    hidden: bool = False,
) -> dict[str, Any]:
    """List everything that determines the content of a store.

    Parameters
    ----------
    model_key
        What determines the model, its name among it.
    corpus
        Segments, sentences or documents.
    level
        "token" for segments, "word" for treebanks and coreference (section 4.1).
    lens
        "attention" for attention weights, "norm" for the norms of what each weight moves.
    max_tokens
        Length of the longest example, special tokens included.  A model that takes less, or whose
        maps of this length are too large, gets shorter ones.
    hidden
        Also store the vectors of each layer.

    Returns
    -------
    dict
        By name, as in ``manifest.json``.
    """
    return {
        "format": FORMAT,
        "model": dict(model_key),
        "corpus": {"name": corpus.name, "fingerprint": corpus.fingerprint},
        "level": level,
        "lens": lens,
        "max_tokens": max_tokens,
        "hidden": hidden,
        "code": CODE_DIGEST,
    }


def store_folder(inputs: Mapping[str, Any]) -> Path:
    """Name the folder of a store in the cache: a readable slug and a short digest."""
    name = key_slug(inputs["model"])
    lens = "" if inputs["lens"] == "attention" else f"-{inputs['lens']}"
    readable = slugify(f"{name}--{inputs['corpus']['name']}--{inputs['level']}{lens}")
    return cache_root() / f"{readable}-{json_digest(inputs)[:10]}"


def find_store(inputs: Mapping[str, Any]) -> Store | None:
    """Open the finished store of some inputs, without a model; None if there is none.

    StoreError if its manifest is damaged.
    """
    folder = store_folder(inputs)
    store = Store(folder) if is_listed(folder) else None
    return store if store is not None and store.is_finished else None


def open_store(folder: str | Path) -> Store:
    """Open a folder of stored attention maps.

    Parameters
    ----------
    folder : str or Path
        The folder of a finished store.

    Returns
    -------
    Store

    Raises
    ------
    StoreError
        If the store is unfinished, damaged or of another version of this project.
    """
    store = Store(folder)
    if not store.is_finished:
        raise StoreError(f"{folder}: the store is unfinished; run extraction again")
    return store


def is_listed(folder: Path) -> bool:
    """Whether the examples of a store have been listed."""
    return (folder / MANIFEST).is_file() and (folder / EXAMPLES).is_file()


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write the manifest of a store with its checksum, atomically."""
    contents = {**manifest, "checksum": json_digest(manifest)}
    write_atomic(folder / MANIFEST, (json.dumps(contents, indent=1) + "\n").encode())


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest of a store; StoreError if it is missing, damaged or of another format."""
    manifest = read_json(folder / MANIFEST)
    checksum = manifest.pop("checksum", "")
    if manifest.get("format") != FORMAT or checksum != json_digest(manifest):
        problem = f"it is missing, damaged or of another version (its format is not {FORMAT})"
        raise StoreError(f"{folder / MANIFEST}: {problem}; remove its folder, and extract it again")
    return manifest


def check(path: Path, digest: str) -> None:
    """Raise StoreError if a file is missing, or has another SHA-256 than it was written with."""
    if not path.is_file() or sha256(path) != digest:
        problem = (
            f"{path}: the file is missing, or was changed after it was written (by its SHA-256)"
        )
        repair_it = f"python -m helpers verify --repair {path.parent.name}"
        raise StoreError(f"{problem}; repair it with '{repair_it}'")


# Probes read examples in any order; opening a shard takes longer than reading one.
open_shard = lru_cache(maxsize=8)(partial(safe_open, framework="numpy"))
check_once = cache(check)  # a process checks a file when it first reads it


def shard_path(folder: Path, number: int) -> Path:
    """Return the file of a shard."""
    return folder / f"shard-{number:05d}.safetensors"


def digest_path(shard: Path) -> Path:
    """Return the file with the digest of a shard."""
    return shard.with_name(f"{shard.name}.sha256")


def stored_digest(shard: Path) -> str:
    """Read the digest that a shard was written with; empty if there is none."""
    path = digest_path(shard)
    return path.read_text(encoding="ascii", errors="replace") if path.is_file() else ""


def tensor_name(name: str, index: int) -> str:
    """Return the name of an example's tensor in its shard."""
    return f"{name}/{index:06d}"


@dataclass(frozen=True, repr=False)
class Example:
    """The attention maps of one segment, sentence or document.

    Attributes
    ----------
    index
        Number of the example in its store, from 0.
    stored_attention
        Attention weights as they are stored: float16, usually memory-mapped, of shape
        (layer, head, query, key). `attention` has them in float32, of all heads; this one is for
        those who need a few heads.  Each row ``[layer, head, query, :]`` sums to 1 up to rounding,
        which was checked when the map was computed.
    record
        The example's line of ``examples.jsonl``.
    offset
        Position of the first word (word level). The words are at positions ``offset`` to
        ``offset + len(record["words"])``; the positions before and after them are special tokens
        ([CLS] before, [SEP] after, in BERT).
    special_tokens
        The model's tokens in the roles "cls" and "sep"; None for one that it lacks.
    hidden
        Vectors of shape (layers + 1, position, width), if the store has them; the first ones are
        the embeddings.
    visible
        What the tokens of each layer can attend to; empty if every token sees all.
    layer_numbers
        The numbers of the layers, from 1; empty if all layers of the model attend.

    Notes
    -----
    In cross-attention, the queries are tokens of another text than the keys (`is_cross`).
    """

    index: int
    stored_attention: Float[np.ndarray, "layer head query key"]
    record: dict[str, Any]
    offset: int = 1
    special_tokens: Mapping[str, str | None] = field(default_factory=dict)
    hidden: Float[np.ndarray, "state position width"] | None = None
    visible: Sequence[Visible] = ()
    layer_numbers: Sequence[int] = ()

    @property
    def attention(self) -> Float[np.ndarray, "layer head query key"]:
        """The attention weights in float32, converted each time."""
        return self.stored_attention.astype(np.float32)

    def __len__(self) -> int:
        """Return the number of positions of the maps."""
        return self.stored_attention.shape[-1]

    def __repr__(self) -> str:
        layers, heads, _, positions = self.stored_attention.shape
        maps = f"{layers} x {heads} maps of {positions} positions"
        return f"<Example {self.index}: {maps}: {' '.join(self.tokens[:12])} ...>"

    @property
    def is_cross(self) -> bool:
        """Whether the queries are tokens of another text, which are in ``record["queries"]``."""
        return "queries" in self.record

    @property
    def word_positions(self) -> slice:
        """The positions of the words (word level only)."""
        return slice(self.offset, self.offset + len(self.record["words"]))

    @property
    def is_word(self) -> Bool[np.ndarray, " position"]:
        """Which positions are words, and not special tokens (word level only)."""
        mask = np.zeros(len(self), dtype=bool)
        mask[self.word_positions] = True
        return mask

    @property
    def visible_keys(self) -> Bool[np.ndarray, "layer query key"]:
        """The positions that each position can attend to: not those outside a layer's mask.

        A word sees another if any of its tokens does.
        """
        layers, _, queries, keys = self.stored_attention.shape
        if not self.visible or self.is_cross:
            return np.ones((layers, queries, keys), dtype=bool)
        word_of_token = self.record.get("inputs", {}).get("groups", range(len(self)))
        masks = [visible_mask(layer, len(word_of_token)) for layer in self.visible]
        return np.stack([visible_words(mask, word_of_token) for mask in masks])

    @property
    def tokens(self) -> list[str]:
        """The token or word at each position of the maps (of the keys), special tokens included.

        At word level all special tokens before the words have the name of [CLS], or of another
        token that begins a text, and all after them that of [SEP], in the model's vocabulary.
        """
        if "words" not in self.record:
            return list(self.record["tokens"])
        n_after = len(self) - self.word_positions.stop
        first_token = self.special_tokens.get("cls") or self.special_tokens.get("first") or ""
        last_token = self.special_tokens.get("sep") or ""
        return [first_token] * self.offset + list(self.record["words"]) + [last_token] * n_after

    @property
    def roles(self) -> Roles:
        """The role of each position: [CLS], [SEP], punctuation or other (section 3.2)."""
        return roles(self.tokens, self.special_tokens)


class Store:
    """Examples with their maps, in shards.

    ``len(store)`` is the number of examples, ``store[i]`` is one of them, and iterating yields all
    with the memory of one shard.  Shards are read from the store's folder;
    `extract.ComputedStore` computes those that are not there.

    Parameters
    ----------
    folder : str or Path
        The folder of the store.
    encoder : Model, optional
        The model of an `extract.ComputedStore`.

    Attributes
    ----------
    key : str
        The digest of what determines the maps: model, text and code.  Cached tables have it among
        their inputs.
    model_name, corpus_name, level, lens : str
        What was extracted.
    cut_at : int
        Length of the longest example that was not cut, special tokens included.
    layers, heads : int
        Number of layers that attend, and of heads in each.
    layer_numbers : list of int
        The numbers of these layers in the model, from 1.
    special_tokens : mapping
        The model's tokens in the roles "cls" and "sep"; None for one that it lacks.
    visible : list of Visible
        What the tokens of each layer can attend to.
    report : mapping
        The numbers of examples that were dropped or cut, by reason.
    n_shards : int
        Number of shards.
    is_finished : bool
        Whether all shards are in the folder.

    Raises
    ------
    StoreError
        If the store is unfinished or damaged.  A file is checked when it is first read.
    """

    def __init__(self, folder: str | Path, encoder: Any = None) -> None:
        self.encoder = encoder
        self.folder = Path(folder).expanduser().absolute()  # for processes elsewhere
        self.manifest = read_manifest(self.folder)
        self.key: str = self.manifest["key"]
        self.model_name: str = self.manifest["model"]["name"]
        self.corpus_name: str = self.manifest["corpus"]["name"]
        self.level: Level = self.manifest["level"]
        self.lens: Lens = self.manifest["lens"]
        self.cut_at: int = self.manifest["cut_at"]
        self.layer_numbers: list[int] = self.manifest["layers"]
        self.layers = len(self.layer_numbers)
        self.heads: int = self.manifest["heads"]
        self.special_tokens: dict[str, str | None] = self.manifest["special_tokens"]
        self.visible = [Visible(**layer) for layer in self.manifest["visible"]]
        self.report: dict[str, int] = self.manifest["report"]
        self.n_shards = -(-len(self) // self.manifest["examples_per_shard"])

    def __len__(self) -> int:
        return self.manifest["n_examples"]

    def __repr__(self) -> str:
        maps = f"{self.level}-level maps of {self.layers} layers of {self.heads} heads"
        return f"<Store of {len(self):,} examples of {self.corpus_name}: {maps}, {self.folder}>"

    @property
    def is_decoder(self) -> bool:
        """Whether no token sees a later one, in any layer."""
        return all(layer.causal for layer in self.visible)

    @property
    def used(self) -> dict[str, tuple[int, int]]:
        """The numbers of examples and mentions that are used and read; see `preview.count_used`."""
        return count_used(self.records(), self.report)

    @property
    def is_finished(self) -> bool:
        """Whether all shards are in the folder."""
        return not self.missing_shards()

    def missing_shards(self) -> list[int]:
        """List the numbers of the shards that do not exist in the folder."""
        numbers = range(self.n_shards)
        return [number for number in numbers if not shard_path(self.folder, number).is_file()]

    def indices(self, number: int) -> range:
        """Return the indices of the examples of one shard."""
        size = self.manifest["examples_per_shard"]
        return range(len(self))[number * size : (number + 1) * size]

    def record(self, index: int) -> Record:
        """Return one example's line of ``examples.jsonl``."""
        index = range(len(self))[index]
        return next(self.records(range(index, index + 1)))

    def records(self, indices: range | None = None) -> Iterator[Record]:
        """Yield the records of consecutive examples (all of them: None), in order."""
        lines = range(len(self)) if indices is None else indices
        with (self.folder / EXAMPLES).open("rb") as file:
            file.seek(int(self._line_starts[lines.start]))
            for _ in lines:
                yield json.loads(file.readline())

    @cached_property
    def _line_starts(self) -> Int[np.ndarray, " example"]:
        """The byte at which each line of ``examples.jsonl`` begins."""
        path = self.folder / EXAMPLES
        check_once(path, self.manifest["examples_sha256"])
        with path.open("rb") as file:
            lengths = np.fromiter(map(len, file), dtype=np.int64)
        return np.cumsum(lengths) - lengths

    def __getitem__(self, index: int) -> Example:
        index = range(len(self))[index]
        return self._read(range(index, index + 1))[0]

    def __iter__(self) -> Iterator[Example]:
        for number in range(self.n_shards):
            yield from self.shard(number)

    def shard(self, number: int) -> list[Example]:
        """Return the examples of one shard."""
        return self._read(self.indices(number))

    def _read(self, indices: range) -> list[Example]:
        """Return consecutive examples of one shard."""
        get_tensor = self._tensors(indices.start // self.manifest["examples_per_shard"])
        has_vectors = self.manifest["hidden"]
        return [
            Example(
                index=index,
                stored_attention=get_tensor(tensor_name("attention", index)),
                record=record,
                offset=record.get("offset", 0),
                special_tokens=self.special_tokens,
                hidden=get_tensor(tensor_name("hidden", index)) if has_vectors else None,
                visible=self.visible,
                layer_numbers=self.layer_numbers,
            )
            for index, record in zip(indices, self.records(indices), strict=True)
        ]

    def _tensors(self, number: int) -> GetTensor:
        """Return a function that returns the tensors of a shard by name."""
        path = shard_path(self.folder, number)
        check_once(path, stored_digest(path))
        return open_shard(path).get_tensor


def stores() -> list[Path]:
    """Return the folders of the stores in the cache, finished or not."""
    return sorted(path.parent for path in cache_root().glob(f"*/{MANIFEST}"))


def verify(folder: Path) -> dict[Path, str]:
    """Check every byte of a store against its digests; return a line for each damaged file."""
    try:
        store = Store(folder)
    except StoreError as error:
        return {folder / MANIFEST: str(error)}
    digests = {folder / EXAMPLES: store.manifest["examples_sha256"]}
    for number in range(store.n_shards):
        path = shard_path(folder, number)
        if path.is_file() or digest_path(path).is_file():  # else it was not extracted yet
            digests[path] = stored_digest(path)
    problems = {}
    for path, digest in progress(digests.items(), f"checking {folder.name}", unit="file"):
        try:
            check(path, digest)
        except StoreError as error:
            problems[path] = str(error)
    return problems


def repair(folder: Path) -> None:
    """Remove the damaged files of a store.

    The next run that needs the store makes them again: only a run knows where the corpus is.
    StoreError if the manifest is damaged or of another format: nothing says what belongs to it.
    """
    with folder_lock(folder):
        read_manifest(folder)
        for path in verify(folder):
            path.unlink(missing_ok=True)
