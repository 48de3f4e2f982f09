"""Pruning the heads of a translation model, by kind of attention (Michel et al. 2019, section 5).

The task needs no annotation: numbers in English words are translated to digits, one word per digit
("three thousand two hundred and five" is "3 2 0 5"), so that a translation can be partly right.
The model is a small one with Marian's architecture, trained once.  It has three kinds of attention:
the encoder's, the decoder's, and cross-attention from the decoder to the encoder.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from num2words import num2words
from sacrebleu.metrics import BLEU
from sklearn.preprocessing import normalize
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import MarianConfig, MarianMTModel

from helpers.cache import cached
from helpers.model.forward import length_batches
from helpers.settings import capped
from helpers.studies.common.classifier import Batch
from helpers.studies.common.fine_tune import (
    Recipe,
    gradient_steps,
    shuffled_epochs,
    warmup_and_decay,
)
from helpers.studies.common.head_removal import head_mask, map_over_model_copies
from helpers.studies.michel2019 import pruning
from helpers.torch_utils import one_thread

ATTENTION_KINDS = ("encoder", "cross", "decoder")
MAX_DIGITS = 6  # of a number
MAX_EXAMPLES = 2000  # a larger setting for the examples of a task does not count here
TRAINING_FACTOR = 10  # numbers to train on, per training example of the other tasks
IMPORTANCE_PAIRS = 300  # training pairs for the importance of heads
SPECIAL_WORDS = ("<pad>", "</s>", "<unk>")  # the first words of a vocabulary
PAD_ID = 0
END_ID = 1
UNKNOWN_ID = 2
IGNORED_LABEL = -100  # cross-entropy leaves out words with this label
BATCH_SIZE = 64
EXTRA_TOKENS = 8  # a translation may have so many tokens more than its source


class Translation(NamedTuple):
    """A sentence and its translation."""

    source: str
    target: str


@dataclass(frozen=True)
class TranslationRecipe(Recipe):
    """The size of the model and the settings of its training."""

    epochs: int = 6
    batch_size: int = 128
    learning_rate: float = 3e-3
    layers: int = 3
    heads: int = 4
    width: int = 64


class PrunedHeads(NamedTuple):
    """A mask for the heads of one kind of attention, and the share (0-1) of heads that it keeps."""

    attention_kind: str
    share_kept: float
    mask: Float[np.ndarray, "layer head"]


class Translator:
    """A Marian model with random weights, and its vocabulary: the words of both languages."""

    def __init__(self, pairs: Sequence[Translation], recipe: TranslationRecipe) -> None:
        words = set()
        for pair in pairs:
            words.update(pair.source.split())
            words.update(pair.target.split())
        self.words = (*SPECIAL_WORDS, *sorted(words))
        self._ids = {word: index for index, word in enumerate(self.words)}
        config = MarianConfig(
            vocab_size=len(self.words), d_model=recipe.width, dropout=0.0, init_std=0.05,
            encoder_layers=recipe.layers, encoder_attention_heads=recipe.heads,
            decoder_layers=recipe.layers, decoder_attention_heads=recipe.heads,
            encoder_ffn_dim=2 * recipe.width, decoder_ffn_dim=2 * recipe.width,
            max_position_embeddings=recipe.max_tokens, scale_embedding=True, pad_token_id=PAD_ID,
            eos_token_id=END_ID, decoder_start_token_id=PAD_ID, forced_eos_token_id=None,
        )  # fmt: skip
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(recipe.seed)
            self.model = MarianMTModel(config).eval()  # there is no dropout

    def ids(self, text: str) -> list[int]:
        """Convert a sentence to the ids of its words and of the end of a sentence."""
        word_ids = [self._ids.get(word, UNKNOWN_ID) for word in text.split()]
        return [*word_ids, END_ID]

    def text(self, ids: Sequence[int]) -> str:
        """Convert ids to a sentence, without padding and the end of the sentence."""
        return " ".join(self.words[index] for index in ids if index not in (PAD_ID, END_ID))

    def batch(self, pairs: Sequence[Translation]) -> dict[str, Int[Tensor, "example token"]]:
        """Make a padded batch: input_ids, attention_mask, labels (padding: `IGNORED_LABEL`)."""
        sources = [torch.tensor(self.ids(pair.source)) for pair in pairs]
        targets = [torch.tensor(self.ids(pair.target)) for pair in pairs]
        ids = pad_sequence(sources, batch_first=True, padding_value=PAD_ID)
        labels = pad_sequence(targets, batch_first=True, padding_value=IGNORED_LABEL)
        return {"input_ids": ids, "attention_mask": (ids != PAD_ID).long(), "labels": labels}


def translation_pruning(*, examples: int | None, seed: int) -> pd.DataFrame:
    """Train a translation model and measure `pruning_curves`.

    Parameters
    ----------
    examples
        The number of training examples of the other tasks (None: no limit); `MAX_EXAMPLES` at most
        count.  The model learns `TRAINING_FACTOR` times as many numbers.
    seed
        Seed of the numbers and of the training.

    Returns
    -------
    pandas.DataFrame
        See `pruning_curves`.
    """
    examples = capped(examples, MAX_EXAMPLES)

    def compute() -> pd.DataFrame:
        test_size = max(examples // 4, 1)
        pairs = number_pairs(TRAINING_FACTOR * examples + test_size, seed=seed)
        test = pairs[:test_size]
        train = pairs[test_size:]
        translator = train_translator(train, TranslationRecipe(seed=seed))
        return pruning_curves(translator, train[:IMPORTANCE_PAIRS], test)

    return cached(
        "translation",
        compute,
        inputs={
            "examples": examples,
            "seed": seed,
            "versions": [version(library) for library in ("num2words", "sacrebleu")],
        },
        module=__name__,
    )


def translation_of(number: int) -> Translation:
    """Write a number in words, without commas and hyphens, and in digits with spaces."""
    source = num2words(number).replace(",", "").replace("-", " ")
    return Translation(source, " ".join(str(number)))


def number_pairs(count: int, *, seed: int) -> list[Translation]:
    """Make translations of different random numbers.

    Numbers have one to six digits.  All lengths are equally likely until the short numbers run out.
    """
    generator = np.random.default_rng(seed)
    numbers = {}  # a dictionary, because it keeps the order
    while len(numbers) < count:
        digits = generator.integers(1, MAX_DIGITS + 1, size=count)
        lowest = np.where(digits == 1, 0, 10 ** (digits - 1))
        drawn = generator.integers(lowest, 10**digits)
        numbers.update(dict.fromkeys(drawn.tolist()))
    first = list(numbers)[:count]
    return [translation_of(int(number)) for number in generator.permutation(first)]


def train_translator(pairs: Sequence[Translation], recipe: TranslationRecipe) -> Translator:
    """Train a model on translations, on one thread."""
    translator = Translator(pairs, recipe)
    steps = recipe.steps(len(pairs))
    model = translator.model

    def loss(chosen: Sequence[int]) -> Tensor:
        batch = translator.batch([pairs[index] for index in chosen])
        return model(**batch).loss

    lengths = [len(pair.source.split()) for pair in pairs]
    batches = shuffled_epochs(recipe, lengths)
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate)
    rates = warmup_and_decay(optimizer, steps)

    with one_thread():
        gradient_steps(model, batches, loss, optimizer, rates, description="translation")
    model.requires_grad_(False)
    return translator


def pruning_curves(
    translator: Translator, importance_pairs: Sequence[Translation], test: Sequence[Translation]
) -> pd.DataFrame:
    """Measure how well ``test`` is translated as the heads of each kind of attention are pruned.

    Heads are pruned by their importance for ``importance_pairs``, the lowest first: ``E|dL/dxi|``
    divided by the l2 norm of the layer.

    Returns
    -------
    pandas.DataFrame
        One row per kind of attention and share of heads.  Columns: kind (encoder, cross, decoder),
        kept (share of heads, 0-1), heads (that are left), pairs (the number of translations), bleu
        (0-100) and exact (percent of translations without an error).
    """
    work = []
    for attention_kind in ATTENTION_KINDS:
        gradients = head_gradients(translator, importance_pairs, attention_kind)
        importance = normalize(np.abs(gradients).mean(axis=0))
        order = pruning.pruning_order(importance)
        masks = pruning.masks_along(order, importance.shape, pruning.SHARES)
        for share, mask in zip(pruning.SHARES, masks, strict=True):
            work.append(PrunedHeads(attention_kind, 1 - share, mask))
    sources = [pair.source for pair in test]

    def job(model: MarianMTModel, pruned: PrunedHeads) -> dict[str, Any]:
        mask = torch.from_numpy(pruned.mask).float()
        with mask_attention_kind(model, mask, pruned.attention_kind):
            texts = translate(model, translator, sources)
        bleu, exact = translation_scores(texts, test)
        return {
            "kind": pruned.attention_kind,
            "kept": round(pruned.share_kept, 1),
            "heads": int(pruned.mask.sum()),
            "pairs": len(test),
            "bleu": bleu,
            "exact": exact,
        }

    rows = map_over_model_copies(translator.model, work, job, "pruning the translation model")
    return pd.DataFrame(rows)


def head_gradients(
    translator: Translator, pairs: Sequence[Translation], attention_kind: str
) -> Float[np.ndarray, "example layer head"]:
    """Compute ``dL/dxi[layer, head]`` for one kind of attention, for each pair separately.

    L is the cross-entropy of the reference translation, the mean over its words, in nats.
    """
    work = []
    for pair in pairs:
        batch = translator.batch([pair])
        work.append((batch, batch["labels"], None))

    def loss(model: MarianMTModel, batch: Batch, _labels: Tensor) -> Float[Tensor, ""]:
        return model(**batch).loss

    config = translator.model.config
    return pruning.mask_gradients(
        translator.model,
        work,
        loss,
        shape=(config.encoder_layers, config.encoder_attention_heads),
        label=f"importance ({attention_kind})",
        masked=partial(mask_attention_kind, attention_kind=attention_kind),
    )


def mask_attention_kind(
    model: MarianMTModel, mask: Float[Tensor, "layer *example head"], attention_kind: str
) -> AbstractContextManager[None]:
    """Multiply the outputs of the heads of one kind of attention by a mask inside the context."""
    part = model.get_encoder() if attention_kind == "encoder" else model.get_decoder()
    return head_mask(part, mask, cross=attention_kind == "cross")


@torch.inference_mode()
def translate(model: MarianMTModel, translator: Translator, sources: Sequence[str]) -> list[str]:
    """Translate sentences greedily (the likeliest word at each step), in order."""
    lengths = [len(translator.ids(text)) for text in sources]
    translations = {}
    for chosen in length_batches(lengths, size=BATCH_SIZE):
        batch = translator.batch([Translation(sources[index], "") for index in chosen])
        longest = lengths[chosen[-1]]
        generated = model.generate(
            batch["input_ids"],
            attention_mask=batch["attention_mask"],
            num_beams=1,
            do_sample=False,
            max_new_tokens=longest + EXTRA_TOKENS,
        )
        for index, ids in zip(chosen, generated.tolist(), strict=True):
            translations[index] = translator.text(ids)
    return [translations[index] for index in range(len(sources))]


def translation_scores(
    translations: list[str], pairs: Sequence[Translation]
) -> tuple[float, float]:
    """Compute corpus BLEU (0-100; sacrebleu's defaults, 13a tokens) and exact matches (percent)."""
    references = [pair.target for pair in pairs]
    exact_matches = 0
    for translation, reference in zip(translations, references, strict=True):
        exact_matches += translation == reference
    bleu = BLEU().corpus_score(translations, [references]).score
    return bleu, 100 * exact_matches / len(pairs)
