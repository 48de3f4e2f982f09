"""Translation models of Marian's architecture, with their vocabularies: new, or published."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from huggingface_hub import snapshot_download
from transformers import MarianConfig, MarianMTModel, MarianTokenizer

from helpers.attention.checkpoints import weights_identity
from helpers.errors import ModelError

Kind = Literal["encoder", "cross", "decoder"]
PAD, END, UNKNOWN = "<pad>", "</s>", "<unk>"
MARIAN_FILES = [
    "config.json", "generation_config.json", "model*.safetensors", "*.spm", "vocab.json",
    "tokenizer_config.json", "special_tokens_map.json",
]  # fmt: skip


class Codec(Protocol):
    """Turns sentences into token ids and back; ids end with the end-of-sentence token."""

    def source_ids(self, text: str) -> list[int]:
        """Return the ids of a sentence to translate."""

    def target_ids(self, text: str) -> list[int]:
        """Return the ids of a translation."""

    def text(self, ids: Sequence[int]) -> str:
        """Return the translation that ids stand for, without special tokens."""


class WordCodec:
    """A vocabulary of whole words, the same for both languages."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = (PAD, END, UNKNOWN, *sorted(set(words)))
        self._ids = {word: index for index, word in enumerate(self.words)}

    def source_ids(self, text: str) -> list[int]:
        """Return the ids of a sentence's words."""
        unknown = self._ids[UNKNOWN]
        return [*(self._ids.get(word, unknown) for word in text.split()), self._ids[END]]

    target_ids = source_ids

    def text(self, ids: Sequence[int]) -> str:
        """Return the words of some ids."""
        return " ".join(self.words[index] for index in ids if self.words[index] not in (PAD, END))


class MarianCodec:
    """The tokenizer of a published Marian model, with a vocabulary for each language."""

    def __init__(self, tokenizer: MarianTokenizer) -> None:
        self._tokenizer = tokenizer

    def source_ids(self, text: str) -> list[int]:
        """Return the ids of a sentence in the source language."""
        return self._tokenizer(text)["input_ids"]

    def target_ids(self, text: str) -> list[int]:
        """Return the ids of a sentence in the target language."""
        return self._tokenizer(text_target=text)["input_ids"]

    def text(self, ids: Sequence[int]) -> str:
        """Return the sentence in the target language."""
        return self._tokenizer.decode(ids, skip_special_tokens=True)


@dataclass(frozen=True)
class Translator:
    """A model in evaluation mode with its vocabulary; ``identity`` tells its weights apart."""

    name: str
    model: MarianMTModel = field(repr=False)
    codec: Codec = field(repr=False)
    identity: dict[str, object]

    def shape(self, kind: Kind) -> tuple[int, int]:
        """Return the layers and heads of a kind of attention."""
        config = self.model.config
        if kind == "encoder":
            return config.encoder_layers, config.encoder_attention_heads
        return config.decoder_layers, config.decoder_attention_heads


def new_marian(words: Sequence[str], *, layers: int, heads: int, width: int) -> MarianMTModel:
    """Return a Marian model with random weights (torch's seed) for a `WordCodec` of ``words``."""
    config = MarianConfig(
        vocab_size=len(WordCodec(words).words), d_model=width, max_position_embeddings=64,
        encoder_layers=layers, decoder_layers=layers, encoder_ffn_dim=2 * width,
        decoder_ffn_dim=2 * width, encoder_attention_heads=heads, decoder_attention_heads=heads,
        pad_token_id=0, eos_token_id=1, decoder_start_token_id=0, forced_eos_token_id=None,
        dropout=0.0, scale_embedding=True, init_std=0.05,
    )  # fmt: skip
    return MarianMTModel(config)


def load_marian(name: str, *, revision: str | None = None) -> Translator:
    """Load a published Marian model: a local folder, or a hub name (at ``revision``).

    Raises:
        ModelError: it is not there, not a Marian model, or has no safetensors weights.
    """
    folder = _marian_folder(name, revision)
    if not list(folder.glob("*.safetensors")):
        raise ModelError(
            f"model {name!r}: there are no *.safetensors weights; convert it once with "
            "MarianMTModel.from_pretrained(...).save_pretrained(folder) and give that folder"
        )
    try:
        model = MarianMTModel.from_pretrained(folder, trust_remote_code=False, use_safetensors=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # recommends a package that is not needed
            codec = MarianCodec(MarianTokenizer.from_pretrained(folder, trust_remote_code=False))
    except Exception as error:  # a broken checkpoint makes the library fail anywhere
        raise ModelError(
            f"model {name!r}: cannot be loaded as a Marian model ({type(error).__name__}: "
            f"{str(error).splitlines()[0][:200] if str(error) else 'no reason given'})"
        ) from error
    identity = {"name": name, **weights_identity(name, folder)}
    return Translator(name, model.eval().requires_grad_(False), codec, identity)


def _marian_folder(name: str, revision: str | None) -> Path:
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder
    if folder.exists() or name.startswith((".", "/", "~")):
        raise ModelError(f"model {name!r}: not a folder; give a model folder or a hub name")
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=MARIAN_FILES))
    except (OSError, ValueError) as error:
        raise ModelError(
            f"model {name!r}: not a local folder, not in the local cache, and not to be had from "
            "the hub; is the name right (such as Helsinki-NLP/opus-mt-en-de), and is there a "
            "network? Or leave it out: a small model is trained then"
        ) from error
