"""Train a small Marian model on generated pairs, once: the weights are kept in the cache.

Plain PyTorch: AdamW, a learning rate that rises over the first tenth of the steps and falls to
zero over the others, no dropout.  It computes on one thread, so that the same seed gives the
same weights on any number of threads.  The folder is named by a hash of all that determines the
weights, and renamed when whole.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import MarianMTModel

from helpers.attention.jobs import StepDone, run_jobs
from helpers.attention.seq2seq import batch_of
from helpers.attention.training_run import (
    shuffled_batches,
    steps_of,
    warmup_and_decay,
    write_once,
)
from helpers.attention.translators import Codec, Translator, WordCodec, new_marian
from helpers.data.numbers import Translation, fingerprint
from helpers.errors import StoreError
from helpers.paths import cache_root

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
