"""Which kind of attention a translation model can spare: Michel et al. (2019), section 5.

The task makes itself: numbers in English words become digits, which are words of their own, so
that a translation can be nearly right ("three thousand two hundred and five" is "3 2 0 5").  To
place the zeros, a model has to read the whole number.  The model is a small one of Marian's
architecture, trained here once.  Its attention is of three kinds: the encoder's, the decoder's,
and the decoder's to the encoder (cross-attention); each has a head mask of its own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from num2words import num2words
from sacrebleu.metrics import BLEU
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from transformers import MarianConfig, MarianMTModel

from helpers.cache import cached_table
from helpers.model.parallel import StepDone, length_batches
from helpers.studies.head_mask import head_mask
from helpers.studies.head_removal import side_by_side
from helpers.studies.sixteen_heads.pruning import (
    SHARES,
    by_layer_norm,
    mask_gradients,
    masks_along,
    pruning_order,
)
from helpers.studies.training import (
    Training,
    TrainingRecipe,
    gradient_steps,
    kept_folder,
    read_weights,
    save_weights,
    shuffled_epochs,
    train_once,
    warmup_and_decay,
)

Kind = Literal["encoder", "cross", "decoder"]
KINDS: tuple[Kind, ...] = get_args(Kind)
FORMAT = 2  # raise it whenever the same settings would give other weights, or another file
WEIGHTS = "final.safetensors"
LONGEST = 6  # digits
TRAIN_TIMES = 10  # numbers to train on, for each training example of the other tasks
EXAMPLES = 2000, 20_000  # of the other tasks, where all are asked for; no more than these count
WEIGHED = 300  # training pairs behind the importance of heads
PAD, END, UNKNOWN = "<pad>", "</s>", "<unk>"  # the first words of a vocabulary
PADDING, END_OF_SENTENCE = 0, 1
IGNORED = -100  # what cross-entropy counts as no label
BATCH_SIZE = 64
ROOM = 8  # tokens that a translation may be longer than its source


class Translation(NamedTuple):
    """A sentence and its translation."""

    source: str
    target: str


@dataclass(frozen=True)
class TranslationRecipe(TrainingRecipe):
    """The model's size and how it is trained."""

    epochs: int = 6
    batch_size: int = 128
    learning_rate: float = 3e-3
    layers: int = 3
    heads: int = 4
    width: int = 64


class WordCodec:
    """A vocabulary of whole words, the same for both languages."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = (PAD, END, UNKNOWN, *sorted(set(words)))
        self._ids = {word: index for index, word in enumerate(self.words)}

    def ids(self, text: str) -> list[int]:
        """Return the ids of a sentence's words, and of the end of a sentence."""
        unknown = self._ids[UNKNOWN]
        return [*(self._ids.get(word, unknown) for word in text.split()), self._ids[END]]

    def text(self, ids: Sequence[int]) -> str:
        """Return the words of some ids."""
        return " ".join(self.words[index] for index in ids if self.words[index] not in (PAD, END))

    def batch(self, pairs: Sequence[Translation]) -> dict[str, Int[Tensor, "example token"]]:
        """Return a padded batch: input_ids, attention_mask, labels (`IGNORED`: padding)."""
        sources, targets = (
            [torch.tensor(self.ids(text)) for text in texts] for texts in zip(*pairs, strict=True)
        )
        ids = pad_sequence(sources, batch_first=True, padding_value=PADDING)
        labels = pad_sequence(targets, batch_first=True, padding_value=IGNORED)
        return {"input_ids": ids, "attention_mask": (ids != PADDING).long(), "labels": labels}


class Translator(NamedTuple):
    """A model in evaluation mode with its vocabulary; ``name`` tells its weights apart."""

    model: MarianMTModel
    codec: WordCodec
    name: str = ""


def translation_pruning(*, examples: int, seed: int) -> pd.DataFrame:
    """Return how well a model translates with more and more heads of a kind pruned.

    The model is trained on `TRAIN_TIMES` as many numbers as there are ``examples`` (0: all).
    Heads go by their importance ``E|dL/dxi|`` divided by the l2 norm of the layer.  Columns: kind
    (encoder, cross, decoder), kept (share of heads, 0-1), heads (left), pairs (translated), bleu
    (0-100) and exact (percent of translations that are right to the last word).
    """
    usual, most = EXAMPLES
    examples = min(examples or usual, most)
    train, test = number_pairs(TRAIN_TIMES * examples, max(examples // 4, 1), seed=seed)
    translator = train_translator(train, TranslationRecipe(seed=seed))
    weighed = train[:WEIGHED]
    return cached_table(
        "translation",
        lambda: pruning_curves(translator, weighed, test),
        depends_on={"translator": translator.name, "pairs": _fingerprint([*weighed, *test])},
    )


def translation_of(number: int) -> Translation:
    """Return a number in words, without commas and hyphens, and its digits with spaces."""
    source = num2words(number).replace(",", "").replace("-", " ")
    return Translation(source, " ".join(str(number)))


def number_pairs(
    train: int, test: int, *, seed: int
) -> tuple[tuple[Translation, ...], tuple[Translation, ...]]:
    """Return training and test pairs of different numbers, drawn with a seed.

    Lengths of one to six digits are equally likely, until the short ones are used up.
    """
    generator = np.random.default_rng(seed)
    found: dict[int, None] = {}
    while len(found) < train + test:
        digits = generator.integers(1, LONGEST + 1, size=train + test)
        lowest = np.where(digits == 1, 0, 10 ** (digits - 1))
        found.update(dict.fromkeys(generator.integers(lowest, 10**digits).tolist()))
    chosen = generator.permutation(list(found)[: train + test]).tolist()
    pairs = [translation_of(number) for number in chosen]
    return tuple(pairs[test:]), tuple(pairs[:test])


def pruning_curves(
    translator: Translator, weighed: Sequence[Translation], test: Sequence[Translation]
) -> pd.DataFrame:
    """Return the table of `translation_pruning`."""
    work = []
    for kind in KINDS:
        scores = np.abs(slopes(translator, weighed, kind)).mean(axis=0)
        masks = masks_along(pruning_order(by_layer_norm(scores)), scores.shape, SHARES)
        work += [(kind, 1 - share, mask) for share, mask in zip(SHARES, masks, strict=True)]
    sources = [pair.source for pair in test]

    def job(model: MarianMTModel, one: tuple[Kind, float, np.ndarray]) -> list[str]:
        kind, _, mask = one
        with masked(model, torch.from_numpy(mask).float(), kind):
            return translate(model, translator.codec, sources)

    found = side_by_side(translator.model, work, job, "pruning the translation model")
    rows = [
        (kind, round(kept, 1), int(mask.sum()), len(test), *translation_scores(texts, test))
        for (kind, kept, mask), texts in zip(work, found, strict=True)
    ]
    return pd.DataFrame(rows, columns=["kind", "kept", "heads", "pairs", "bleu", "exact"])


def train_translator(pairs: Sequence[Translation], recipe: TranslationRecipe) -> Translator:
    """Train a model on some pairs, or find it in the cache.

    Raises:
        StoreError: the kept weights are damaged, or the disk is full.
    """
    codec = WordCodec([word for pair in pairs for text in pair for word in text.split()])
    model = new_marian(codec, recipe)
    facts = {"recipe": asdict(recipe), "words": codec.words, "pairs": _fingerprint(pairs)}
    folder = kept_folder("translators", "numbers", facts | {"format": FORMAT})
    write = partial(_train, model, codec, pairs, recipe)
    training = Training(folder, recipe.steps(len(pairs)), write)
    train_once([training], model.device, label="training")
    return Translator(read_weights(model.eval(), folder / WEIGHTS), codec, folder.name)


def new_marian(codec: WordCodec, recipe: TranslationRecipe) -> MarianMTModel:
    """Return a Marian model for a vocabulary, with random weights of the recipe's seed."""
    width = recipe.width
    config = MarianConfig(
        vocab_size=len(codec.words), d_model=width, max_position_embeddings=64,
        encoder_layers=recipe.layers, decoder_layers=recipe.layers, encoder_ffn_dim=2 * width,
        decoder_ffn_dim=2 * width, encoder_attention_heads=recipe.heads,
        decoder_attention_heads=recipe.heads, pad_token_id=PADDING, eos_token_id=END_OF_SENTENCE,
        decoder_start_token_id=PADDING, forced_eos_token_id=None, dropout=0.0, scale_embedding=True,
        init_std=0.05,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        return MarianMTModel(config)


def masked(
    model: MarianMTModel, mask: Float[Tensor, "layer *example head"], kind: Kind
) -> AbstractContextManager[None]:
    """Scale the heads of one kind of attention by ``mask`` inside the context."""
    part = model.get_encoder() if kind == "encoder" else model.get_decoder()
    return head_mask(part, mask, cross=kind == "cross")


@torch.inference_mode()
def translate(model: MarianMTModel, codec: WordCodec, sources: Sequence[str]) -> list[str]:
    """Return greedy translations (the likeliest word at each step), in order."""
    found: dict[int, str] = {}
    lengths = [len(codec.ids(text)) for text in sources]
    for chosen in length_batches(lengths, size=BATCH_SIZE):
        batch = codec.batch([Translation(sources[index], "") for index in chosen])
        room = model.config.max_position_embeddings - 1
        ids = model.generate(
            input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], num_beams=1,
            do_sample=False, max_new_tokens=min(lengths[chosen[-1]] + ROOM, room),
        )  # fmt: skip
        texts = [codec.text(row) for row in ids.tolist()]
        found.update(zip(chosen, texts, strict=True))
    return [found[index] for index in range(len(sources))]


def translation_scores(found: Sequence[str], pairs: Sequence[Translation]) -> tuple[float, float]:
    """Return corpus BLEU (0-100; sacrebleu's defaults, 13a tokens) and exact matches in percent."""
    references = [pair.target for pair in pairs]
    bleu = BLEU().corpus_score(list(found), [references]).score
    same = sum(own == gold for own, gold in zip(found, references, strict=True))
    return float(bleu), 100 * same / len(references)


def slopes(
    translator: Translator, pairs: Sequence[Translation], kind: Kind
) -> Float[np.ndarray, "example layer head"]:
    """Return ``dL/dxi[layer, head]`` of one kind of attention, for each pair alone.

    L is the cross-entropy of the reference translation, the mean over its words, in nats.
    """

    def loss(
        model: MarianMTModel, batch: dict[str, Tensor], labels: Int[Tensor, "example token"]
    ) -> Float[Tensor, ""]:
        logits = model(**batch).logits.float().transpose(1, 2)
        losses = F.cross_entropy(logits, labels, reduction="none", ignore_index=IGNORED)
        return (losses.sum(dim=1) / (labels != IGNORED).sum(dim=1)).sum()

    config, work = translator.model.config, []
    for start in range(0, len(pairs), BATCH_SIZE):
        batch = translator.codec.batch(pairs[start : start + BATCH_SIZE])
        work.append((batch, batch["labels"], None))
    shape, label = (config.encoder_layers, config.encoder_attention_heads), f"importance ({kind})"
    own = partial(masked, kind=kind)
    return np.concatenate(mask_gradients(translator.model, work, loss, shape, label, own))


def _train(
    model: MarianMTModel,
    codec: WordCodec,
    pairs: Sequence[Translation],
    recipe: TranslationRecipe,
    folder: Path,
    step_done: StepDone,
) -> None:
    """Train a model and write its weights to ``folder``."""

    def loss(chosen: Sequence[int]) -> Tensor:
        return model(**codec.batch([pairs[index] for index in chosen])).loss

    batches = shuffled_epochs(recipe, [len(pair.source.split()) for pair in pairs])
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate)
    rates = warmup_and_decay(optimizer, recipe.steps(len(pairs)))
    what = "translation of numbers"
    for _ in gradient_steps(model.train(), batches, loss, optimizer, rates, what=what):
        step_done()
    save_weights(model, folder / WEIGHTS)


def _fingerprint(pairs: Sequence[Translation]) -> str:
    return hashlib.sha256(json.dumps(list(pairs)).encode()).hexdigest()
