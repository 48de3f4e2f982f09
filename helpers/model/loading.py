"""A loaded model: one that returns attention maps, its tokenizer, and the key of both.

`load_model` reads all of it.  The key is computed from the files alone (`model_key`), so that
finished stores and tables of a model are found without its weights.

Weights come only from safetensors, because other formats can run code when they are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from helpers.data.text_files import file_fingerprint
from helpers.errors import ModelError
from helpers.files import json_digest, sha256, slugify
from helpers.model.checkpoint import (
    BUILT_IN,
    DEFAULT,
    as_model_error,
    built_in_folder,
    check_objects,
    foreign_weights,
    weight_files,
)

if TYPE_CHECKING:
    from tokenizers import Encoding
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

DType = Literal["float32", "float16", "bfloat16"]
Lens = Literal["attention", "norm"]

CONFIG_FILES = ("*.json", "*.txt", "*.model")  # configuration and tokenizer


@dataclass(frozen=True, eq=False)
class Model:
    """A loaded model and its tokenizer.

    Attributes
    ----------
    name : str
        The name that it was loaded by: a bundled model, a folder or a hub name.
    key : mapping
        What decides its maps and gradients (`model_key`).  A control of matched entropies has
        ``matched to`` besides.
    model : PreTrainedModel
        The model, with its masked-LM or causal-LM head if the checkpoint has a trained one.
    tokenizer : PreTrainedTokenizerFast
        It treats names of special tokens in a text as text.
    objective : str
        The objective whose gradient section 3.2 uses: "masked-lm", "next-token" or "contrastive".
    architecture : str
        The class of the checkpoint in config.json, such as ``BertForMaskedLM``; it can be empty.
    layer_numbers : list of int
        The numbers, from 1, of the layers that return attention maps.
    heads : int
        Number of attention heads in each of these layers.
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
        `helpers.data.records.Visible`.
    has_sink : bool
        Whether the softmax has a learned score besides those of the keys, as in GPT-OSS.  The
        weights of a row then sum to less than one, and the rest is the share of the sink.
    temperatures : list of list of float, optional
        Factors for the scores of each layer's heads, in a control of matched entropies.
    """

    name: str
    key: Mapping[str, Any]
    model: PreTrainedModel = field(repr=False)
    tokenizer: PreTrainedTokenizerFast = field(repr=False)
    objective: str
    architecture: str
    layer_numbers: list[int]
    heads: int
    special_tokens: Mapping[str, str | None]
    special_ids: list[int]
    word_prefix: str
    takes_token_types: bool
    max_length: int
    visible: Sequence[Mapping[str, Any]]
    has_sink: bool
    temperatures: Sequence[Sequence[float]] | None = None

    @property
    def layers(self) -> int:
        """Number of layers that return attention maps."""
        return len(self.layer_numbers)

    @property
    def slug(self) -> str:
        """The model's name as a folder name."""
        return key_slug(self.key)

    @property
    def is_decoder(self) -> bool:
        """Whether no token sees a later one, in any layer."""
        return all(layer["causal"] for layer in self.visible)

    def with_temperatures(
        self, temperatures: Sequence[Sequence[float]], matched_to: Mapping[str, Any]
    ) -> Model:
        """Give the heads of a copy of the model temperatures; the weights are shared.

        Parameters
        ----------
        temperatures : sequence of sequence of float, shape (layer, head)
            Factors for the scores of each layer's heads (`sites.temperatures`).
        matched_to : mapping
            What the temperatures are computed from, besides this model: the key of the model that
            has the entropies, and that of the texts.

        Returns
        -------
        Model
            Its key has ``matched to``.
        """
        from helpers.model.sites import copy_with_temperatures  # late: it imports torch

        return replace(
            self,
            key={**self.key, "matched to": matched_to},
            model=copy_with_temperatures(self.model, temperatures),
            temperatures=temperatures,
        )

    def with_reordered_layers(self, seed: int) -> Model:
        """Copy the model with its layers in random order; the weights are shared.

        It is a control that is trained: every weight is what training made it, but no layer reads
        what it was trained to read.

        Parameters
        ----------
        seed : int
            Seed of the order.

        Returns
        -------
        Model
            Its key has ``layer order``.
        """
        from helpers.model.sites import copy_with_layers  # late: it imports torch

        order = np.random.default_rng(seed).permutation(self.layers).tolist()
        return replace(
            self,
            key={**self.key, "layer order": {"seed": seed}},
            model=copy_with_layers(self.model, order),
            visible=[self.visible[layer] for layer in order],
        )

    def encode_words(self, words: Sequence[str], spaces: Sequence[bool] = ()) -> Encoding:
        """Tokenize words one by one, with the special tokens of a single text around them.

        Parameters
        ----------
        words : sequence of str
            The words of one text.
        spaces : sequence of bool
            Whether a space stands before each word; if it is empty, one does.  Vocabularies without
            a ``word_prefix`` do not ask.

        Returns
        -------
        Encoding
            ``encoding.word_ids`` has the index of the word of each token, None for special tokens.
        """
        prefixes = [self.word_prefix if space else "" for space in spaces or [True] * len(words)]
        marked_words = [prefix + word for prefix, word in zip(prefixes, words, strict=True)]
        return self.tokenizer.backend_tokenizer.encode(marked_words, is_pretokenized=True)


def load_model(
    name: str = DEFAULT,
    *,
    revision: str | None = None,
    device: str = "auto",
    dtype: DType = "float32",
    random_init: int | None = None,
) -> Model:
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

    Returns
    -------
    Model

    Raises
    ------
    ModelError
        If the model is unknown, or does not return attention maps.
    """
    from helpers.model.weights import read_encoder  # late: it imports torch

    key = model_key(name, revision=revision, dtype=dtype, random_init=random_init)
    folder = model_folder(name, key.get("revision"))
    with as_model_error(name, folder):
        attributes = read_encoder(folder, device=device, dtype=dtype, random_init=random_init)
    return Model(name, key, **attributes)


def model_key(
    name: str,
    *,
    revision: str | None = None,
    dtype: DType = "float32",
    random_init: int | None = None,
) -> dict[str, Any]:
    """Compute what decides the maps of a model, without reading its weights.

    Parameters
    ----------
    name, revision, dtype, random_init
        As in `load_model`.

    Returns
    -------
    dict
        The name, the revision or the SHA-256 of the weights, the SHA-256 of the files with
        configuration and tokenizer, the precision, and the seed of random weights.

    Raises
    ------
    ModelError
        If there is no such model, or its weights cannot be used.
    """
    folder = model_folder(name, revision)
    files = sorted(path for pattern in CONFIG_FILES for path in folder.glob(pattern))
    with as_model_error(name, folder):
        check_objects(folder)
        return {
            "name": slug(name) if Path(name).expanduser().is_dir() else name,
            **_weights_identity(name, folder),
            "files": {path.name: sha256(path) for path in files},
            "dtype": dtype,
            "random_init": random_init,
        }


def slug(name: str, *, random_seed: int | None = None) -> str:
    """Convert a model name or path to a folder name (``google/bert`` becomes ``google--bert``)."""
    path = Path(name).expanduser()
    base = path.resolve().name if path.is_dir() else name.replace("/", "--")
    ending = "" if random_seed is None else f"-random-{random_seed}"
    return f"{slugify(base) or 'model'}{ending}"


def key_slug(key: Mapping[str, Any]) -> str:
    """Convert the key of a model to a folder name, which tells its controls apart."""
    ending = "-entropy-matched" if "matched to" in key else ""
    ending += "-reordered" if "layer order" in key else ""
    return f"{slug(key['name'], random_seed=key['random_init'])}{ending}"


def model_folder(name: str, revision: str | None = None) -> Path:
    """Find the folder of a model's files: of a bundled model, a local one, or a hub snapshot."""
    folder = Path(name).expanduser()
    if revision is not None and (name in BUILT_IN or folder.is_dir()):
        raise ModelError(f"model {name!r}: it is not a model of the hub. Leave --revision out.")
    if name in BUILT_IN:
        with as_model_error(name):
            return built_in_folder(name)
    if folder.is_dir():
        return folder
    from huggingface_hub import snapshot_download

    patterns = [*CONFIG_FILES, "model*.safetensors"]
    with as_model_error(name, folder):
        return Path(snapshot_download(name, revision=revision, allow_patterns=patterns))


def _weights_identity(name: str, folder: Path) -> dict[str, str]:
    """Compute what identifies the weights: a hub commit, or the SHA-256 of local files.

    An error if there are none, if an index or the configuration names other files, or if a bundled
    model has other weights.
    """
    foreign_files = foreign_weights(folder)
    if foreign_files:
        problem = f"it names {min(foreign_files)!r} as weights, and not *.safetensors of its folder"
        raise ValueError(f"{problem}. Save it again with model.save_pretrained(folder).")
    digests = [file_fingerprint(path) for path in weight_files(folder)]
    if not digests:
        raise FileNotFoundError(f"no *.safetensors weights in {folder}")
    if name not in BUILT_IN and not Path(name).expanduser().is_dir():
        return {"revision": folder.name}
    digest = digests[0] if len(digests) == 1 else json_digest(digests)
    if name in BUILT_IN and digest != BUILT_IN[name]:
        problem = f"the SHA-256 of the weights in {folder} is {digest}, and not {BUILT_IN[name]}"
        raise ValueError(f"{problem}. Remove this folder, and install its package again.")
    return {"weights_sha256": digest}
