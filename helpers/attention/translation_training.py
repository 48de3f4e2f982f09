"""Train a small Marian model on generated pairs, once: the weights are kept in the cache.

Plain PyTorch: AdamW, a learning rate that rises over the first tenth of the steps and falls to
zero over the others, no dropout.  It computes on one thread, so that the same seed gives the
same weights on any number of threads.  The folder is named by a hash of all that determines the
weights, and renamed when whole.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import MarianMTModel

from helpers.attention.extract import only_one
from helpers.attention.files import write_errors
from helpers.attention.jobs import StepDone, run_jobs
from helpers.attention.seq2seq import batch_of
from helpers.attention.translators import Codec, Translator, WordCodec, new_marian
from helpers.data.numbers import Translation, fingerprint
from helpers.errors import StoreError
from helpers.paths import cache_root

FORMAT = 1  # raise it whenever the same settings would give other weights
WEIGHTS, FACTS = "final.safetensors", "run.json"
WARMUP = 0.1  # of all steps
BUCKET = 16  # batches that are sorted by length together


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
    _read_weights(model, folder)
    identity = {"name": name, "weights": folder.name}
    return Translator(name, model.eval().requires_grad_(False), WordCodec(words), identity)


def _new(words: Sequence[str], recipe: TranslationRecipe) -> MarianMTModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        return new_marian(words, layers=recipe.layers, heads=recipe.heads, width=recipe.width)


def _read_weights(model: MarianMTModel, folder: Path) -> None:
    path, own = folder / WEIGHTS, dict(model.named_parameters())
    way_out = f"remove the folder {folder.name} and run again: it is trained anew"
    try:
        saved = load_file(path)
    except (SafetensorError, OSError) as error:
        raise StoreError(f"{path}: {error}; {way_out}") from error
    if saved.keys() != own.keys() or any(saved[k].shape != own[k].shape for k in own):
        raise StoreError(f"{path}: not the weights of this model; {way_out}")
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(saved[name])


def _make(
    pairs: Sequence[Translation],
    words: Sequence[str],
    recipe: TranslationRecipe,
    folder: Path,
    facts: dict[str, object],
) -> None:
    """Train a model and write its folder, unless another process has."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = folder.with_name(f"{folder.name}.tmp")
    with only_one(folder):
        if folder.is_dir():
            return
        shutil.rmtree(temporary, ignore_errors=True)  # of a run that was killed
        temporary.mkdir()
        try:
            model = _new(words, recipe)
            batches = recipe.epochs * -(-len(pairs) // recipe.batch_size)
            job = [lambda step_done: _train(model, WordCodec(words), pairs, recipe, step_done)]
            run_jobs(job, model.device, label="training", unit="step", total=batches)
            with write_errors(temporary):
                save_file(dict(model.named_parameters()), temporary / WEIGHTS)
                text = json.dumps({k: v for k, v in facts.items() if k != "words"}, indent=1)
                (temporary / FACTS).write_text(text + "\n", encoding="utf-8")
                temporary.rename(folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def _train(
    model: MarianMTModel,
    codec: Codec,
    pairs: Sequence[Translation],
    recipe: TranslationRecipe,
    step_done: StepDone,
) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate)
    steps = recipe.epochs * -(-len(pairs) // recipe.batch_size)
    rising = max(1, round(WARMUP * steps))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / rising, (steps - step) / max(1, steps - rising))
    )
    model.train()
    for chosen in _shuffled(pairs, recipe):
        loss = model(**batch_of(codec, chosen, model.config.pad_token_id)).loss
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        step_done()


def _shuffled(
    pairs: Sequence[Translation], recipe: TranslationRecipe
) -> Iterator[list[Translation]]:
    """Yield the batches of all epochs, in random order, each of sentences of similar length."""
    lengths = np.array([len(pair.source.split()) for pair in pairs])
    for epoch in range(recipe.epochs):
        generator = np.random.default_rng([recipe.seed, epoch])
        order = generator.permutation(len(pairs))
        size = BUCKET * recipe.batch_size
        buckets = np.split(order, range(size, len(order), size))
        ordered = np.concatenate([b[np.argsort(lengths[b], kind="stable")] for b in buckets])
        for start in generator.permutation(range(0, len(ordered), recipe.batch_size)):
            yield [pairs[index] for index in ordered[start : start + recipe.batch_size]]
