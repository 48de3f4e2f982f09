"""Which kind of attention a translation model can spare: Michel et al. (2019), section 5.

By default the model is a small one of Marian's architecture, trained here to write numbers in
words as digits; a published Marian model by name takes its place, with sentences of its languages.

Train a small Marian model on generated pairs, once: the weights are kept in the cache.

Plain PyTorch: AdamW, a learning rate that rises over the first tenth of the steps and falls to
zero over the others, no dropout.  It computes on one thread, so that the same seed gives the
same weights on any number of threads.  The folder is named by a hash of all that determines the
weights, and renamed when whole.

How good translations are: BLEU by sacrebleu, and how many are right to the last word.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from sacrebleu.metrics import BLEU
from safetensors.torch import save_file
from torch import nn
from transformers import MarianMTModel

from helpers.cache import cached_table
from helpers.errors import InputError
from helpers.model.parallel import StepDone, run_jobs, side_by_side
from helpers.model.weights import read_weights
from helpers.paths import cache_root
from helpers.studies.fine_tune import shuffled_batches, steps_of, warmup_and_decay, write_once
from helpers.studies.sixteen_heads import importance
from helpers.studies.sixteen_heads import translator as seq2seq
from helpers.studies.sixteen_heads.numbers import (
    Translation,
    fingerprint,
    number_pairs,
    read_translations,
)
from helpers.studies.sixteen_heads.translator import (
    KINDS,
    Codec,
    Kind,
    Translator,
    WordCodec,
    batch_of,
    load_marian,
    mask_gradients,
    new_marian,
)
from helpers.study import Study

TRAIN_TIMES = 10  # numbers to train on, for each training example of the other tasks
WEIGHED = 300  # training pairs behind the importance of heads
SHARES = tuple(step / 10 for step in range(11))
Masked = tuple[Kind, Float[np.ndarray, "layer head"]]


def translation_pruning(study: Study, *, model: str = "", sentences: str = "") -> pd.DataFrame:
    """Return how well a model translates as the heads of one kind are pruned, a tenth at a time.

    Args:
        study: its ``seed`` and ``task_examples`` decide the numbers.
        model: a Marian model's folder or hub name; empty for the one trained on numbers.
        sentences: a file of sentence, tab and translation for ``model``; the second half is
            translated, heads are weighed on the first.

    Returns:
        kind (encoder, cross, decoder), kept (share of the heads of that kind, 0-1), heads (how
        many), pairs, bleu (0-100) and exact (percent).  The heads of a kind are pruned in the
        order of their importance ``E|dL/dxi|``, divided by the l2 norm of the layer.

    Raises:
        InputError: a model or a file that is not there or cannot be read.
    """
    if model:
        translator, weighed, test = _published(model, sentences)
    else:
        translator, weighed, test = trained_on_numbers(study)
    weighed = weighed[:WEIGHED]
    return cached_table(
        "translation-pruning",
        lambda: pruning_curves(translator, weighed, test),
        depends_on={
            "translator": translator.identity,
            "pairs": [fingerprint(weighed), fingerprint(test)],
        },
        code="studies.sixteen_heads.translation.pruning_curves",
    )


def trained_on_numbers(
    study: Study,
) -> tuple[Translator, Sequence[Translation], Sequence[Translation]]:
    """Return the small model, the numbers that it was trained on, and others to test it with."""
    train, test = number_pairs(
        TRAIN_TIMES * study.task_examples, max(study.task_examples // 4, 1), seed=study.seed
    )
    recipe = TranslationRecipe(seed=study.seed)
    return train_translator(train, recipe), train, test


def pruning_curves(
    translator: Translator, weighed: Sequence[Translation], test: Sequence[Translation]
) -> pd.DataFrame:
    """Return the table of `translation_pruning`, computed anew."""
    work: list[Masked] = []
    for kind in KINDS:
        shape = translator.shape(kind)
        scores = importance.importance(mask_gradients(translator, weighed, kind))
        order = importance.pruning_order(importance.by_layer_norm(scores))
        work += [(kind, mask) for mask in importance.masks_along(order, shape, SHARES)]
    job = partial(_scores_under, codec=translator.codec, test=test)
    found = side_by_side(translator.model, work, job, "pruning the translation model")
    rows = [
        (kind, round(1 - share, 1), int(mask.sum()), len(test), *scores)
        for (kind, mask), share, scores in zip(work, SHARES * len(KINDS), found, strict=True)
    ]
    return pd.DataFrame(rows, columns=["kind", "kept", "heads", "pairs", "bleu", "exact"])


def importance_table(translator: Translator, pairs: Sequence[Translation]) -> pd.DataFrame:
    """Return the importance of each head: kind, layer, head (from 1), importance, normalised."""
    frames = []
    for kind in KINDS:
        scores = importance.importance(mask_gradients(translator, pairs[:WEIGHED], kind))
        layer, head = np.indices(scores.shape).reshape(2, -1) + 1
        values = {"importance": scores, "normalised": importance.by_layer_norm(scores)}
        columns = {name: value.ravel() for name, value in values.items()}
        frames.append(pd.DataFrame({"kind": kind, "layer": layer, "head": head, **columns}))
    return pd.concat(frames, ignore_index=True)


def _scores_under(
    model: MarianMTModel, work: Masked, *, codec: Codec, test: Sequence[Translation]
) -> tuple[float, float]:
    kind, mask = work
    with seq2seq.masked(model, kind, torch.from_numpy(mask).float().to(model.device)):
        found = seq2seq.translate(model, codec, [pair.source for pair in test])
    return translation_scores(found, [pair.target for pair in test])


def _published(
    model: str, sentences: str
) -> tuple[Translator, Sequence[Translation], Sequence[Translation]]:
    if not sentences:
        raise InputError(
            f"model {model!r}: no sentences to translate; give a file with a sentence, a tab and "
            "its translation on each line"
        )
    translator = load_marian(model)
    pairs = read_translations(Path(sentences).expanduser())
    half = -(-len(pairs) // 2)
    return translator, pairs[:half], pairs[half:] or pairs


FORMAT = 1  # raise it whenever the same settings would give other weights
WEIGHTS, FACTS = "final.safetensors", "run.json"


@dataclass(frozen=True)
class TranslationRecipe:
    """The model's size and how it is trained."""

    seed: int = 0
    layers: int = 3
    heads: int = 4
    width: int = 64
    epochs: int = 6
    batch_size: int = 128
    learning_rate: float = 3e-3


def train_translator(
    pairs: Sequence[Translation],
    recipe: TranslationRecipe | None = None,
    *,
    name: str = "numbers",
    root: Path | None = None,
) -> Translator:
    """Train a model on some pairs, or find it in the cache (or in ``root``).

    Raises:
        StoreError: the kept weights are damaged, or the disk is full.
    """
    recipe = recipe or TranslationRecipe()
    words = sorted({word for pair in pairs for text in pair for word in text.split()})
    facts = {
        "format": FORMAT, "recipe": asdict(recipe), "words": words, "pairs": fingerprint(pairs),
    }  # fmt: skip
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    folder = (root or cache_root()) / "translators" / f"{name}--{digest[:10]}"
    if not folder.is_dir():
        _make(pairs, words, recipe, folder, facts)
    model = _new(words, recipe)
    read_weights(dict(model.named_parameters()), folder / WEIGHTS)
    identity = {"name": name, "weights": folder.name}
    return Translator(name, model.eval().requires_grad_(False), WordCodec(words), identity)


def _new(words: Sequence[str], recipe: TranslationRecipe) -> MarianMTModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        return new_marian(words, layers=recipe.layers, heads=recipe.heads, width=recipe.width)


def _make(
    pairs: Sequence[Translation],
    words: Sequence[str],
    recipe: TranslationRecipe,
    folder: Path,
    facts: dict[str, object],
) -> None:
    """Train a model and write its folder, unless another process has."""

    def write(temporary: Path) -> None:
        model = _new(words, recipe)
        job = [lambda step_done: _train(model, WordCodec(words), pairs, recipe, step_done)]
        total = _steps(pairs, recipe)
        run_jobs(job, model.device, label="training", unit="step", total=total)
        save_file(dict(model.named_parameters()), temporary / WEIGHTS)
        text = json.dumps({k: v for k, v in facts.items() if k != "words"}, indent=1)
        (temporary / FACTS).write_text(text + "\n", encoding="utf-8")

    write_once(folder, write)


def _train(
    model: MarianMTModel,
    codec: Codec,
    pairs: Sequence[Translation],
    recipe: TranslationRecipe,
    step_done: StepDone,
) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate)
    schedule = warmup_and_decay(optimizer, _steps(pairs, recipe))
    model.train()
    lengths = [len(pair.source.split()) for pair in pairs]
    for chosen in shuffled_batches(
        lengths, epochs=recipe.epochs, batch_size=recipe.batch_size, seed=recipe.seed
    ):
        batch = batch_of(codec, [pairs[i] for i in chosen], model.config.pad_token_id)
        loss = model(**batch).loss
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        step_done()


def _steps(pairs: Sequence[Translation], recipe: TranslationRecipe) -> int:
    return steps_of(len(pairs), epochs=recipe.epochs, batch_size=recipe.batch_size)


def translation_scores(found: Sequence[str], references: Sequence[str]) -> tuple[float, float]:
    """Return corpus BLEU (0-100; sacrebleu's defaults, 13a tokens) and exact matches in percent.

    Raises:
        InputError: not as many translations as references, or none.
    """
    if len(found) != len(references) or not references:
        raise InputError(f"{len(found)} translations for {len(references)} references")
    bleu = BLEU().corpus_score(list(found), [list(references)]).score
    same = sum(own == gold for own, gold in zip(found, references, strict=True))
    return float(bleu), 100 * same / len(references)
