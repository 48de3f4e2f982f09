"""Which kind of attention a translation model can spare: Michel et al. (2019), section 5.

The model is a small one of Marian's architecture, trained here to write numbers in words as
digits, once: the weights are kept in the cache, in a folder named by a hash of all that
determines them.  It computes on one thread, so that the same seed gives the same weights on any
number of threads.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from sacrebleu.metrics import BLEU
from torch import Tensor
from transformers import MarianMTModel

from helpers.analysis.heads import head_rows
from helpers.cache import cached_tables
from helpers.model.parallel import StepDone, run_jobs
from helpers.paths import cache_root, write_once
from helpers.studies import training
from helpers.studies.fine_tune import stacked
from helpers.studies.head_removal import compare_accuracies, side_by_side
from helpers.studies.sixteen_heads.importance import (
    by_layer_norm,
    importance,
    masks_along,
    pruning_order,
    with_one_in_layer,
    without_each,
)
from helpers.studies.sixteen_heads.numbers import Translation, fingerprint, number_pairs
from helpers.studies.sixteen_heads.pruning import CHOOSING
from helpers.studies.sixteen_heads.translator import (
    KINDS,
    Kind,
    Translator,
    WordCodec,
    batch_of,
    mask_gradients,
    masked,
    new_marian,
    translate,
)

FORMAT = 2  # raise it whenever the same settings would give other weights, or another file
WEIGHTS, FACTS = "final.safetensors", "run.json"
TRAIN_TIMES = 10  # numbers to train on, for each training example of the other tasks
WEIGHED = 300  # training pairs behind the importance of heads
SHARES = tuple(step / 10 for step in range(11))
Masked = tuple[Kind, Float[np.ndarray, "layer head"]]


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


def translation_tables(*, examples: int, seed: int) -> dict[str, pd.DataFrame]:
    """Return how well a model translates without heads of each kind of attention.

    The model is trained on `TRAIN_TIMES` as many numbers as there are ``examples``.  All tables
    have kind (encoder, cross, decoder), pairs (translated), bleu (0-100) and exact (percent of
    translations that are right to the last word):

    - ``translation_pruning``: more and more heads of a kind pruned, by their importance
      ``E|dL/dxi|`` divided by the l2 norm of the layer; kept (share of heads, 0-1), heads (left);
    - ``translation_ablation``: each head removed alone; layer, head, the change of bleu and
      exact, and removable: whether exact changes by less than two points (see `removals`);
    - ``translation_one_head``: all heads of a layer but one, the one that does best on the first
      `CHOOSING` pairs, scored on the others; columns as for each head.
    """
    train, test = number_pairs(TRAIN_TIMES * examples, max(examples // 4, 1), seed=seed)
    translator = train_translator(train, TranslationRecipe(seed=seed))
    weighed = train[:WEIGHED]
    pairs = [fingerprint(weighed), fingerprint(test)]
    return cached_tables(
        "translation",
        lambda: {
            "translation_pruning": pruning_curves(translator, weighed, test),
            "translation_ablation": each_head(translator, test),
            "translation_one_head": one_head(translator, test),
        },
        depends_on={"translator": translator.identity, "pairs": pairs},
    )


def pruning_curves(
    translator: Translator, weighed: Sequence[Translation], test: Sequence[Translation]
) -> pd.DataFrame:
    """Return the table ``translation_pruning`` of `translation_tables`."""
    work: list[Masked] = []
    for kind in KINDS:
        scores = importance(mask_gradients(translator, weighed, kind))
        order = pruning_order(by_layer_norm(scores))
        work += [(kind, mask) for mask in masks_along(order, scores.shape, SHARES)]
    found = _translations(translator, work, test, "pruning the translation model")
    rows = [
        (kind, round(1 - share, 1), int(mask.sum()), len(test), *translation_scores(texts, test))
        for (kind, mask), share, texts in zip(work, SHARES * len(KINDS), found, strict=True)
    ]
    return pd.DataFrame(rows, columns=["kind", "kept", "heads", "pairs", "bleu", "exact"])


def each_head(translator: Translator, test: Sequence[Translation]) -> pd.DataFrame:
    """Return the table ``translation_ablation`` of `translation_tables`."""
    work = [(kind, mask) for kind in KINDS for mask in without_each(*translator.shape)]
    places = _places(translator)
    return _changes(translator, work, places, test, "heads of the translation model")


def one_head(translator: Translator, test: Sequence[Translation]) -> pd.DataFrame:
    """Return the table ``translation_one_head`` of `translation_tables`."""
    heads, choosing = translator.shape[1], min(CHOOSING, len(test) // 3)
    work = [(kind, mask) for kind in KINDS for mask in with_one_in_layer(*translator.shape)]
    tried = _translations(translator, work, test[:choosing], "one head a layer")
    bleu = [translation_scores(texts, test[:choosing])[0] if choosing else 0.0 for texts in tried]
    best = np.reshape(bleu, (-1, heads)).argmax(axis=1)  # of each layer of each kind
    chosen = np.arange(len(best)) * heads + best
    places = _places(translator).iloc[chosen]
    work = [work[index] for index in chosen]
    return _changes(translator, work, places, test[choosing:], "best head a layer")


def _places(translator: Translator) -> pd.DataFrame:
    return stacked({kind: head_rows(*translator.shape) for kind in KINDS}, "kind")


def _changes(
    translator: Translator,
    work: Sequence[Masked],
    places: pd.DataFrame,
    test: Sequence[Translation],
    what: str,
) -> pd.DataFrame:
    """Return what each mask changes, a row for each of ``places`` (kind, layer, head)."""
    whole = KINDS[0], np.ones(translator.shape)
    found = _translations(translator, [whole, *work], test, what)
    targets = np.array([pair.target for pair in test], object)
    right = np.array(found, object) == targets  # [change, pair]
    _, _, removable = compare_accuracies(right[0], right[1:])
    scores = np.array([translation_scores(texts, test) for texts in found])
    bleu, exact = scores[1:].T
    change, exact_change = (scores[1:] - scores[0]).T
    return places.assign(
        pairs=len(test), bleu=bleu, change=change, exact=exact, exact_change=exact_change,
        removable=removable,
    )  # fmt: skip


def train_translator(pairs: Sequence[Translation], recipe: TranslationRecipe) -> Translator:
    """Train a model on some pairs, or find it in the cache.

    Raises:
        StoreError: the kept weights are damaged, or the disk is full.
    """
    codec = WordCodec([word for pair in pairs for text in pair for word in text.split()])
    facts = {
        "format": FORMAT, "recipe": asdict(recipe), "words": codec.words,
        "pairs": fingerprint(pairs),
    }  # fmt: skip
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    folder = cache_root() / "translators" / f"numbers--{digest[:10]}"

    def write(temporary: Path) -> None:
        model = _new(codec, recipe)
        run_jobs(
            [partial(_train, model, codec, pairs, recipe)],
            model.device,
            label="training",
            unit="step",
            total=_steps(pairs, recipe),
        )
        training.save_weights(model, temporary / WEIGHTS)
        (temporary / FACTS).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")

    write_once(folder, write)
    model = _new(codec, recipe)
    training.read_weights(training.trained(model), folder / WEIGHTS)
    return Translator(model.eval().requires_grad_(False), codec, {"weights": folder.name})


def translation_scores(found: Sequence[str], pairs: Sequence[Translation]) -> tuple[float, float]:
    """Return corpus BLEU (0-100; sacrebleu's defaults, 13a tokens) and exact matches in percent."""
    references = [pair.target for pair in pairs]
    bleu = BLEU().corpus_score(list(found), [references]).score
    same = sum(own == gold for own, gold in zip(found, references, strict=True))
    return float(bleu), 100 * same / len(references)


def _new(codec: WordCodec, recipe: TranslationRecipe) -> MarianMTModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        return new_marian(codec, layers=recipe.layers, heads=recipe.heads, width=recipe.width)


def _train(
    model: MarianMTModel,
    codec: WordCodec,
    pairs: Sequence[Translation],
    recipe: TranslationRecipe,
    step_done: StepDone,
) -> None:
    def batches() -> Iterator[dict[str, Tensor]]:
        lengths = [len(pair.source.split()) for pair in pairs]
        for chosen in training.shuffled_batches(
            lengths, epochs=recipe.epochs, batch_size=recipe.batch_size, seed=recipe.seed
        ):
            yield batch_of(codec, [pairs[i] for i in chosen])

    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate)
    rates = training.warmup_and_decay(optimizer, _steps(pairs, recipe))
    for _ in training.gradient_steps(
        model.train(), batches(), lambda batch: model(**batch).loss, optimizer, rates,
        what="translation of numbers",
    ):  # fmt: skip
        step_done()


def _steps(pairs: Sequence[Translation], recipe: TranslationRecipe) -> int:
    return training.steps_of(len(pairs), epochs=recipe.epochs, batch_size=recipe.batch_size)


def _translations(
    translator: Translator, work: Sequence[Masked], test: Sequence[Translation], what: str
) -> list[list[str]]:
    """Return the translations of ``test`` under each mask."""
    sources = [pair.source for pair in test]

    def job(model: MarianMTModel, one: Masked) -> list[str]:
        kind, mask = one
        with masked(model, kind, torch.from_numpy(mask).float()):
            return translate(model, translator.codec, sources)

    return side_by_side(translator.model, work, job, what)
