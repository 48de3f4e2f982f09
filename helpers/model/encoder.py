"""An encoder: a model that gives attention maps, its tokenizer, and what identifies both.

What identifies an encoder is found by loading it once and kept in the cache, by the hashes of its
files.  From then on `load` reads these hashes alone; the weights are read when something is to be
computed with them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helpers.cache import cached_json
from helpers.errors import StoreError
from helpers.model.checkpoint import (
    DEFAULT,
    Device,
    DType,
    Objective,
    model_folder,
    settings_sha256,
    slug,
    weights_identity,
)
from helpers.model.parallel import torch_device

if TYPE_CHECKING:
    import torch
    from tokenizers import Encoding
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

    from helpers.model.weights import Loaded


@dataclass(frozen=True)
class Encoder:
    """A model in evaluation mode with its tokenizer, both read when first asked for.

    What identifies it, and what inputs it takes, is known without its weights.  ``identity`` goes
    into every store made with it: name, revision or weights SHA-256, SHA-256 of its configuration
    and tokenizer settings, layers, heads, and the seed of a random initialisation.
    """

    name: str  # what it was asked for by: a built-in model, a folder or a hub name
    identity: Mapping[str, Any]
    dtype: DType  # what it computes in
    objective: Objective  # the training objective whose gradient section 3.2 uses
    tokenizer_sha256: str  # of its full definition (vocabulary, normaliser ...)
    special_tokens: Mapping[str, str | None]  # in the parts of "cls" and "sep"; None: it has none
    special_ids: frozenset[int]  # put around and between two texts
    takes_token_types: bool  # whether these tell the two texts of a pair apart
    max_length: int  # of an input in tokens, special tokens included
    read: Callable[[], Loaded] = field(repr=False, compare=False)

    @property
    def layers(self) -> int:
        """Number of layers that return attention maps."""
        return self.identity["layers"]

    @property
    def heads(self) -> int:
        """Number of attention heads in each layer."""
        return self.identity["heads"]

    @property
    def slug(self) -> str:
        """The model's name as a folder name."""
        return slug(self.name, random_seed=self.identity["random_init"])

    @property
    def model(self) -> PreTrainedModel:
        """The model, with its language-modelling head if the checkpoint has a trained one."""
        return self.read().model

    @property
    def tokenizer(self) -> PreTrainedTokenizerFast:
        """The tokenizer; it takes the names of special tokens in a text for text."""
        return self.read().tokenizer

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.model.device

    def encode_words(self, words: Sequence[str]) -> Encoding:
        """Tokenize words one by one, with the special tokens of a single text around them.

        ``encoding.word_ids`` says which word each token belongs to.
        """
        marked = [self._word_prefix + word for word in words]
        return self.tokenizer.backend_tokenizer.encode(marked, is_pretokenized=True)

    @cached_property
    def _word_prefix(self) -> str:
        """What a word needs before it to be tokenized as within a sentence.

        Byte-level vocabularies mark a word by the space before it: there it is that space.
        """
        encode, plain = self.tokenizer.backend_tokenizer.encode, {"add_special_tokens": False}
        apart = encode(["a", "a"], is_pretokenized=True, **plain)
        return "" if apart.tokens == encode("a a", **plain).tokens else " "


def load(
    name: str = DEFAULT,
    *,
    revision: str | None = None,
    device: Device = "auto",
    dtype: DType = "float32",
    random_init: int | None = None,
) -> Encoder:
    """Return an encoder; its weights are read now if they have never been, otherwise when used.

    ``name`` is ``minilm`` (the embedded default) or ``mpnet``, whose SHA-256 is verified every
    time, a local folder, or a hub name (with ``revision``).  ``random_init`` is the seed of the
    control of section 5: embeddings kept, every other weight drawn anew by the model's own scheme.

    Raises:
        ModelError: the model is unknown, has no safetensors weights, no fast tokenizer, or no
            attention maps, or its vocabulary does not fit its weights.
    """
    if device not in ("auto", "cpu"):
        torch_device(device)  # so that a device that is not there is known now
    folder = model_folder(name, revision)
    weights = weights_identity(name, folder)
    how = {"device": device, "dtype": dtype, "random_init": random_init}
    read = _once(name, folder, **how)
    depends_on = {
        "weights": weights,
        "settings": settings_sha256(folder),
        "dtype": dtype,
        "random_init": random_init,
        "versions": [version(package) for package in ("transformers", "tokenizers")],
    }
    facts = _known_facts(read, depends_on)
    identity = {
        "name": slug(name) if Path(name).expanduser().is_dir() else name,
        **weights,
        **facts["identity"],
        "random_init": random_init,
    }
    inputs = {**facts["inputs"], "special_ids": frozenset(facts["inputs"]["special_ids"])}
    return Encoder(name, identity, dtype, **inputs, read=read)


def _known_facts(read: Callable[[], Loaded], depends_on: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a loaded model shows of itself, from the cache if it was loaded before."""

    def compute() -> dict[str, Any]:
        return read().facts

    code = "model.weights.read_encoder"
    try:
        return cached_json("model", compute, code=code, depends_on=depends_on)
    except (OSError, StoreError):  # a cache that cannot be written is no reason not to look
        return compute()


def _once(name: str, folder: Path, **how: Any) -> Callable[[], Loaded]:
    """Return a function that reads the weights when it is first called, from whichever thread."""
    lock, found = threading.Lock(), []

    def read() -> Loaded:
        from helpers.model.weights import read_encoder

        with lock:
            if not found:
                found.append(read_encoder(name, folder, **how))
            return found[0]

    return read
