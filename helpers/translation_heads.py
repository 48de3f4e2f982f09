"""Which kind of attention a translation model can spare: Michel et al. (2019), section 5.

By default the model is a small one of Marian's architecture, trained here to write numbers in
words as digits; a published Marian model by name takes its place, with sentences of its languages.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from transformers import MarianMTModel

from helpers.analysis import importance, translation
from helpers.analysis.translation import translation_scores
from helpers.attention import ablation, projections, seq2seq, translation_training, translators
from helpers.attention.seq2seq import KINDS, mask_gradients
from helpers.attention.side_by_side import side_by_side
from helpers.attention.translation_training import train_translator
from helpers.attention.translators import Codec, Kind, Translator, load_marian
from helpers.cached import cached_table
from helpers.data.numbers import Translation, fingerprint, number_pairs, read_translations
from helpers.errors import InputError
from helpers.study import Study

# What the numbers depend on besides weights and sentences.
CODE = (
    ablation, importance, projections, seq2seq, translation, translators, sys.modules[__name__],
)  # fmt: skip

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
        code=CODE,
    )


def trained_on_numbers(
    study: Study,
) -> tuple[Translator, Sequence[Translation], Sequence[Translation]]:
    """Return the small model, the numbers that it was trained on, and others to test it with."""
    train, test = number_pairs(
        TRAIN_TIMES * study.task_examples, max(study.task_examples // 4, 1), seed=study.seed
    )
    recipe = translation_training.TranslationRecipe(seed=study.seed)
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
