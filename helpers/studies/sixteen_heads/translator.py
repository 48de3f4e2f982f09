"""Translation models of Marian's architecture, with their vocabularies: new, or published.

Head masks and greedy translations of encoder-decoder models.

Their attention is of three kinds: the encoder's, the decoder's, and the decoder's to the encoder
(cross-attention).  Each has a head mask of its own, ``xi[layer, head]`` (Michel et al. 2019,
section 5).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import torch
from huggingface_hub import snapshot_download
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F
from transformers import MarianConfig, MarianMTModel, MarianTokenizer

from helpers.errors import ModelError
from helpers.model.checkpoint import weights_identity
from helpers.model.head_mask import head_mask
from helpers.model.parallel import side_by_side
from helpers.studies.sixteen_heads.numbers import Translation

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


KINDS: tuple[Kind, ...] = ("encoder", "cross", "decoder")
IGNORED = -100  # what cross-entropy counts as no label
BATCH_SIZE = 64
ROOM = 8  # tokens that a translation may be longer than its source


@contextmanager
def masked(
    model: MarianMTModel, kind: Kind, mask: Float[Tensor, "layer *example head"]
) -> Iterator[None]:
    """Scale the heads of one kind of attention by ``mask`` inside the context."""
    part = model.get_encoder() if kind == "encoder" else model.get_decoder()
    with head_mask(part, mask, cross=kind == "cross"):
        yield


def batch_of(
    codec: Codec, pairs: Sequence[Translation], pad: int, device: torch.device | str = "cpu"
) -> dict[str, Tensor]:
    """Return a padded batch: input_ids, attention_mask, and labels with `IGNORED` for padding."""
    sources = [codec.source_ids(pair.source) for pair in pairs]
    targets = [codec.target_ids(pair.target) for pair in pairs]
    source, real = _padded(sources, pad), _padded([[1] * len(ids) for ids in sources], 0)
    batch = {"input_ids": source, "attention_mask": real, "labels": _padded(targets, IGNORED)}
    return {name: tensor.to(device) for name, tensor in batch.items()}


@torch.inference_mode()
def translate(
    model: MarianMTModel, codec: Codec, sources: Sequence[str], *, batch_size: int = BATCH_SIZE
) -> list[str]:
    """Return greedy translations (the likeliest word at each step), in order."""
    found: dict[int, str] = {}
    lengths = [len(codec.source_ids(text)) for text in sources]
    order = sorted(range(len(sources)), key=lambda index: lengths[index])
    for start in range(0, len(order), batch_size):
        chosen = order[start : start + batch_size]
        pairs = [Translation(sources[index], "") for index in chosen]
        batch = batch_of(codec, pairs, model.config.pad_token_id, model.device)
        room = model.config.max_position_embeddings - 1
        ids = model.generate(
            input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], num_beams=1,
            do_sample=False, max_new_tokens=min(lengths[chosen[-1]] + ROOM, room),
        )  # fmt: skip
        texts = [codec.text(row) for row in ids.tolist()]
        found.update(zip(chosen, texts, strict=True))
    return [found[index] for index in range(len(sources))]


def mask_gradients(
    translator: Translator, pairs: Sequence[Translation], kind: Kind
) -> Float[np.ndarray, "example layer head"]:
    """Return ``dL/dxi[layer, head]`` of one kind of attention, for each pair alone.

    L is the cross-entropy of the reference translation, the mean over its words, in nats.
    """
    model, codec = translator.model, translator.codec
    starts = range(0, len(pairs), BATCH_SIZE)
    parts = [pairs[start : start + BATCH_SIZE] for start in starts]

    def job(own: MarianMTModel, part: Sequence[Translation]) -> Float[np.ndarray, ...]:
        batch = batch_of(codec, part, own.config.pad_token_id, own.device)
        return _gradients(own, batch, kind, translator.shape(kind))

    return np.concatenate(side_by_side(model, parts, job, f"importance ({kind})"))


def sentence_losses(
    logits: Float[Tensor, "example token word"], labels: Int[Tensor, "example token"]
) -> Float[Tensor, " example"]:
    """Return each example's cross-entropy, the mean over its words, in nats."""
    losses = F.cross_entropy(
        logits.float().transpose(1, 2), labels, reduction="none", ignore_index=IGNORED
    )
    return losses.sum(dim=1) / (labels != IGNORED).sum(dim=1)


def _gradients(
    model: MarianMTModel, batch: dict[str, Tensor], kind: Kind, shape: tuple[int, int]
) -> Float[np.ndarray, "example layer head"]:
    layers, heads = shape
    size = layers, len(batch["labels"]), heads
    mask = torch.ones(size, device=model.device, requires_grad=True)
    with masked(model, kind, mask):
        # Summed: an example's gradient must not depend on how many others share its batch.
        loss = sentence_losses(model(**batch).logits, batch["labels"]).sum()
    (gradient,) = torch.autograd.grad(loss, mask)  # [layer, example, head]
    return gradient.transpose(0, 1).double().cpu().numpy()


def _padded(rows: Sequence[Sequence[int]], value: int) -> Int[Tensor, "example token"]:
    longest = max(len(row) for row in rows)
    return torch.tensor([[*row, *[value] * (longest - len(row))] for row in rows])
