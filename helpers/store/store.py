"""Examples with their maps, shard by shard: read from a folder, or computed when they are read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from jaxtyping import Bool, Float
from safetensors import safe_open

from helpers.cache import code_digest
from helpers.data.preview import count_used
from helpers.data.records import Roles, roles
from helpers.data.visible import Visible, visible_mask, visible_words
from helpers.files import json_digest
from helpers.store import CODE
from helpers.store.format import (
    EXAMPLES,
    Manifest,
    Tensors,
    check,
    missing_shards,
    read_manifest,
    shard_name,
    tensor_name,
    unfinished,
)
from helpers.torch_utils import release_freed_memory

if TYPE_CHECKING:
    from helpers.model.encoder import Encoder

GetTensor = Callable[[str], np.ndarray]  # of a shard, by name
REPR_TOKENS = 12  # tokens of an example that its repr shows


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

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The shape of the maps: (layer, head, query, key)."""
        layers, heads, queries, keys = self.stored_attention.shape
        return layers, heads, queries, keys

    @property
    def attention(self) -> Float[np.ndarray, "layer head query key"]:
        """The attention weights in float32, converted each time."""
        return self.stored_attention.astype(np.float32)

    def __len__(self) -> int:
        """Return the number of positions of the maps."""
        return self.shape[-1]

    def __repr__(self) -> str:
        layers, heads, _, positions = self.shape
        text = " ".join(self.tokens[:REPR_TOKENS])
        ending = " ..." if positions > REPR_TOKENS else ""
        maps = f"{layers} x {heads} maps of {positions} positions"
        return f"<{type(self).__name__} {self.index}: {maps}: {text}{ending}>"

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
        return np.stack([self.visible_in(layer) for layer in range(self.shape[0])])

    def visible_in(self, layer: int) -> Bool[np.ndarray, "query key"]:
        """Return the positions that each position can attend to in a layer (from 0)."""
        return self._masks[self.visible[layer] if self.visible else None]

    @cached_property
    def _masks(self) -> dict[Visible | None, Bool[np.ndarray, "query key"]]:
        """The mask of each kind of layer; of all, if every token sees all."""
        _, _, n_queries, n = self.shape
        if not self.visible or self.is_cross:
            full_mask = np.ones((n_queries, n), dtype=bool)
            return dict.fromkeys([None, *self.visible], full_mask)
        groups = self.record.get("inputs", {}).get("groups")  # the word of each token
        masks = {}
        for visible in set(self.visible):
            if groups is None:
                masks[visible] = visible_mask(visible, n)
            else:
                masks[visible] = visible_words(visible_mask(visible, len(groups)), groups)
        return masks

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
    with the memory of one shard.  Shards are read from the store's folder.  A shard that is not
    there is computed by the store's ``encoder``, if it has one: the maps have the same bits without
    the disk space.

    Parameters
    ----------
    folder : str or Path
        The folder of a finished store or, with an ``encoder``, of the list of a store's examples.
    encoder : Encoder, optional
        Model that computes the maps of shards that are not in the folder.
    manifest : Manifest, optional
        The manifest, if it has been read.

    Attributes
    ----------
    manifest : Manifest
        The files of the store.
    spec : StoreKey
        The key of the store: everything that determines its maps.
    layers, heads : int
        Number of layers of the model, and of heads in each.
    special_tokens : mapping
        The model's tokens in the roles "cls" and "sep"; None for one that it lacks.
    visible : list of Visible
        What the tokens of each layer can attend to.
    n_shards : int
        Number of shards.

    Raises
    ------
    StoreError
        If the store is unfinished or damaged.  A shard is checked when it is first read.
    """

    def __init__(
        self,
        folder: str | Path,
        encoder: Encoder | None = None,
        *,
        manifest: Manifest | None = None,
    ) -> None:
        self.folder = Path(folder)
        self.manifest = manifest or read_manifest(self.folder)
        if encoder is None and not self.manifest.shards:
            raise unfinished(self.folder)
        path = self.folder / EXAMPLES
        check(path, self.manifest.examples_sha256)
        with path.open("rb") as file:
            lengths = np.fromiter(map(len, file), dtype=np.int64)
        self._offsets = np.cumsum(lengths) - lengths  # where each line begins
        self.encoder = encoder
        self.spec = self.manifest.spec
        self.layers = self.spec.model["layers"]
        self.heads = self.spec.model["heads"]
        self.special_tokens = self.spec.special_tokens
        self.visible = [Visible(**layer) for layer in self.spec.visible]
        self.n_shards = self.manifest.n_shards

    def __len__(self) -> int:
        return self.manifest.n_examples

    def __repr__(self) -> str:
        corpus = self.spec.corpus["name"]
        maps = f"{self.spec.level}-level maps of {self.layers} layers of {self.heads} heads"
        return f"<Store of {len(self):,} examples of {corpus}: {maps}, {self.folder}>"

    @property
    def used(self) -> dict[str, tuple[int, int]]:
        """The numbers of examples and mentions that are used and read; see `preview.count_used`."""
        return count_used(self.records(), self.manifest.report)

    @property
    def key(self) -> str:
        """The digest of what determines the maps: model, code and examples.

        Cached tables have it among their inputs.
        """
        examples = self.manifest.examples_sha256
        return json_digest([self.spec.hash, examples, code_digest(CODE)])

    def missing_shards(self) -> list[int]:
        """List the numbers of the shards that do not exist in the folder."""
        return missing_shards(self.folder, self.manifest)

    def is_stored(self, number: int) -> bool:
        """Whether a shard is read from the folder, and not computed."""
        return bool(self.manifest.shards) and (self.folder / shard_name(number)).is_file()

    def indices(self, number: int) -> range:
        """Return the indices of the examples of one shard."""
        return self.manifest.indices(number)

    def record(self, index: int) -> dict[str, Any]:
        """Return one example's line of ``examples.jsonl``."""
        index = self._position(index)
        return next(self.records(range(index, index + 1)))

    def records(self, indices: range | None = None) -> Iterator[dict[str, Any]]:
        """Yield the records of consecutive examples (all of them: None), in order."""
        lines = range(len(self)) if indices is None else indices
        with (self.folder / EXAMPLES).open("rb") as file:
            file.seek(int(self._offsets[lines.start]))
            for _ in lines:
                yield json.loads(file.readline())

    def __getitem__(self, index: int) -> Example:
        index = self._position(index)
        get_tensor = self._tensors(index // self.spec.examples_per_shard)
        return self._example(index, self.record(index), get_tensor)

    def _position(self, index: int) -> int:
        """Count a negative index from the end, as a list does."""
        try:
            return range(len(self))[index]
        except IndexError:
            raise IndexError(
                f"there is no example {index} in {self!r}; use 0 to {len(self) - 1}"
            ) from None

    def __iter__(self) -> Iterator[Example]:
        for number in range(self.n_shards):
            yield from self.shard(number)

    def shard(self, number: int) -> list[Example]:
        """Return the examples of one shard."""
        release_freed_memory()  # of the shard before
        get_tensor = self._tensors(number)
        indices = self.indices(number)
        return [
            self._example(index, record, get_tensor)
            for index, record in zip(indices, self.records(indices), strict=True)
        ]

    def _example(self, index: int, record: dict[str, Any], get_tensor: GetTensor) -> Example:
        """Make an example of its record and its tensors."""
        return Example(
            index=index,
            stored_attention=get_tensor(tensor_name("attention", index)),
            record=record,
            offset=record.get("offset", 0),
            special_tokens=self.special_tokens,
            hidden=get_tensor(tensor_name("hidden", index)) if self.spec.hidden else None,
            visible=self.visible,
        )

    def _tensors(self, number: int) -> GetTensor:
        """Return a function that returns the tensors of a shard by name."""
        if self.encoder is not None and not self.is_stored(number):
            return self.compute(number).__getitem__
        path = self.folder / shard_name(number)
        check_once(path, self.manifest.shards[number]["sha256"])
        return open_shard(path).get_tensor

    def compute(self, number: int) -> Tensors:
        """Compute the tensors of a shard with the encoder; see `examples.shard_tensors`."""
        from helpers.store.examples import shard_tensors  # imports torch

        indices = self.indices(number)
        encoder = cast("Encoder", self.encoder)
        return shard_tensors(encoder, self.spec, indices, self.records(indices))


open_store = Store  # its public name: `helpers.open_store`

check_once = cache(check)  # a process checks a shard when it first reads it
# Probes read examples in any order; opening a shard takes longer than reading one.
open_shard = lru_cache(maxsize=8)(partial(safe_open, framework="numpy"))
