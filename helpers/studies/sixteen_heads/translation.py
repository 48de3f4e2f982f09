"""Which kind of attention a translation model can spare: Michel et al. (2019), section 5.

The task makes itself: numbers in English words become digits, which are words of their own, so
that a translation can be nearly right ("three thousand two hundred and five" is "3 2 0 5").  The
model is a small one of Marian's architecture, trained here once.  Its attention is of three kinds:
the encoder's, the decoder's, and the decoder's to the encoder (cross-attention).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import NamedTuple

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
from helpers.studies.fine_tune import Recipe, gradient_steps, shuffled_epochs, warmup_and_decay
from helpers.studies.head_removal import head_mask, side_by_side
from helpers.studies.jobs import StepDone, run_jobs
from helpers.studies.sixteen_heads import pruning

KINDS = ("encoder", "cross", "decoder")
LONGEST = 6  # digits
EXAMPLES = 2000  # of the other tasks: no more than these count
TRAIN_TIMES = 10  # numbers to train on, for each training example of the other tasks
WEIGHED = 300  # training pairs behind the importance of heads
SPECIAL = ("<pad>", "</s>", "<unk>")  # the first words of a vocabulary
PAD_ID, END_ID, UNKNOWN_ID = range(3)
IGNORED = -100  # what cross-entropy counts as no label
BATCH_SIZE = 64
ROOM = 8  # tokens that a translation may be longer than its source


class Translation(NamedTuple):
    """A sentence and its translation."""

    source: str
    target: str


@dataclass(frozen=True)
class TranslationRecipe(Recipe):
    """The model's size and how it is trained."""

    epochs: int = 6
    batch_size: int = 128
    learning_rate: float = 3e-3
    layers: int = 3
    heads: int = 4
    width: int = 64


class Translator:
    """A Marian model with random weights, and its vocabulary: the words of both languages."""

    def __init__(self, pairs: Sequence[Translation], recipe: TranslationRecipe) -> None:
        words = {word for pair in pairs for text in pair for word in text.split()}
        self.words = (*SPECIAL, *sorted(words))
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
        """Return the ids of a sentence's words, and of the end of a sentence."""
        return [*(self._ids.get(word, UNKNOWN_ID) for word in text.split()), END_ID]

    def text(self, ids: Sequence[int]) -> str:
        """Return the words of some ids."""
        return " ".join(self.words[i] for i in ids if i not in (PAD_ID, END_ID))

    def batch(self, pairs: Sequence[Translation]) -> dict[str, Int[Tensor, "example token"]]:
        """Return a padded batch: input_ids, attention_mask, labels (`IGNORED`: padding)."""
        sources = [torch.tensor(self.ids(pair.source)) for pair in pairs]
        targets = [torch.tensor(self.ids(pair.target)) for pair in pairs]
        ids = pad_sequence(sources, batch_first=True, padding_value=PAD_ID)
        labels = pad_sequence(targets, batch_first=True, padding_value=IGNORED)
        return {"input_ids": ids, "attention_mask": (ids != PAD_ID).long(), "labels": labels}


def translation_pruning(*, examples: int | None, seed: int) -> pd.DataFrame:
    """Return `pruning_curves` of a model that is trained here.

    It learns `TRAIN_TIMES` as many numbers as there are ``examples``: at most `EXAMPLES`, which
    None stands for.
    """
    examples = capped(examples, EXAMPLES)

    def compute() -> pd.DataFrame:
        tested = max(examples // 4, 1)
        pairs = number_pairs(TRAIN_TIMES * examples + tested, seed=seed)
        test, train = pairs[:tested], pairs[tested:]
        translator = train_translator(train, TranslationRecipe(seed=seed))
        return pruning_curves(translator, train[:WEIGHED], test)

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
    """Return a number in words, without commas and hyphens, and its digits with spaces."""
    source = num2words(number).replace(",", "").replace("-", " ")
    return Translation(source, " ".join(str(number)))


def number_pairs(count: int, *, seed: int) -> list[Translation]:
    """Return different numbers: one to six digits, equally likely until the short ones run out."""
    generator, found = np.random.default_rng(seed), {}
    while len(found) < count:
        digits = generator.integers(1, LONGEST + 1, size=count)
        lowest = np.where(digits == 1, 0, 10 ** (digits - 1))
        found |= dict.fromkeys(generator.integers(lowest, 10**digits).tolist())
    return [translation_of(int(own)) for own in generator.permutation(list(found)[:count])]


def train_translator(pairs: Sequence[Translation], recipe: TranslationRecipe) -> Translator:
    """Return a model trained on some pairs, on one thread."""
    translator, steps = Translator(pairs, recipe), recipe.steps(len(pairs))
    model = translator.model

    def loss(chosen: Sequence[int]) -> Tensor:
        return model(**translator.batch([pairs[index] for index in chosen])).loss

    batches = shuffled_epochs(recipe, [len(pair.source.split()) for pair in pairs])
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate)
    rates = warmup_and_decay(optimizer, steps)

    def train(done: StepDone) -> None:
        gradient_steps(model, batches, loss, optimizer, rates, what="translation", step_done=done)

    run_jobs([train], model.device, label="training a translator", unit="step", total=steps)
    model.requires_grad_(False)
    return translator


def pruning_curves(
    translator: Translator, weighed: Sequence[Translation], test: Sequence[Translation]
) -> pd.DataFrame:
    """Return how well ``test`` is translated as the heads of each kind are pruned.

    They go by their importance for ``weighed``, ``E|dL/dxi|`` divided by the l2 norm of the
    layer.  Columns: kind (encoder, cross, decoder), kept (share of heads, 0-1), heads (left),
    pairs (translated), bleu (0-100) and exact (percent of translations right to the last word).
    """
    work, shares = [], pruning.SHARES
    for kind in KINDS:
        scores = normalize(np.abs(slopes(translator, weighed, kind)).mean(axis=0))
        masks = pruning.masks_along(pruning.pruning_order(scores), scores.shape, shares)
        work += [(kind, 1 - share, mask) for share, mask in zip(shares, masks, strict=True)]
    sources = [pair.source for pair in test]

    def job(model: MarianMTModel, one: tuple[str, float, np.ndarray]) -> tuple:
        kind, kept, mask = one
        with masked(model, torch.from_numpy(mask).float(), kind):
            texts = translate(model, translator, sources)
        return kind, round(kept, 1), int(mask.sum()), len(test), *translation_scores(texts, test)

    rows = side_by_side(translator.model, work, job, "pruning the translation model")
    return pd.DataFrame(rows, columns=["kind", "kept", "heads", "pairs", "bleu", "exact"])


def slopes(
    translator: Translator, pairs: Sequence[Translation], kind: str
) -> Float[np.ndarray, "example layer head"]:
    """Return ``dL/dxi[layer, head]`` of one kind of attention, for each pair alone.

    L is the cross-entropy of the reference translation, the mean over its words, in nats.
    """
    model, batches = translator.model, [translator.batch([pair]) for pair in pairs]
    return pruning.mask_gradients(
        model, [(batch, batch["labels"], None) for batch in batches],
        lambda model, batch, _labels: model(**batch).loss,
        (model.config.encoder_layers, model.config.encoder_attention_heads),
        f"importance ({kind})", partial(masked, kind=kind),
    )  # fmt: skip


def masked(
    model: MarianMTModel, mask: Float[Tensor, "layer *example head"], kind: str
) -> AbstractContextManager[None]:
    """Scale the heads of one kind of attention by ``mask`` inside the context."""
    part = model.get_encoder() if kind == "encoder" else model.get_decoder()
    return head_mask(part, mask, cross=kind == "cross")


@torch.inference_mode()
def translate(model: MarianMTModel, translator: Translator, sources: Sequence[str]) -> list[str]:
    """Return a model's greedy translations (the likeliest word at each step), in order."""
    lengths, found = [len(translator.ids(text)) for text in sources], {}
    for chosen in length_batches(lengths, size=BATCH_SIZE):
        batch = translator.batch([Translation(sources[index], "") for index in chosen])
        ids = model.generate(
            batch["input_ids"], attention_mask=batch["attention_mask"], num_beams=1,
            do_sample=False, max_new_tokens=lengths[chosen[-1]] + ROOM,
        )  # fmt: skip
        found.update(zip(chosen, map(translator.text, ids.tolist()), strict=True))
    return [found[index] for index in range(len(sources))]


def translation_scores(found: list[str], pairs: Sequence[Translation]) -> tuple[float, float]:
    """Return corpus BLEU (0-100; sacrebleu's defaults, 13a tokens) and exact matches in percent."""
    references = [pair.target for pair in pairs]
    same = sum(own == gold for own, gold in zip(found, references, strict=True))
    return BLEU().corpus_score(found, [references]).score, 100 * same / len(pairs)
