"""The effect of fine-tuning, and of disabling heads (Kovaleva et al. 2019, 4.3, 4.4 and 4.6)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch
from torch.nn import functional as F

from helpers.cache import cached
from helpers.data.treebank import parsed_words
from helpers.metrics.heads import head_rows
from helpers.metrics.statistics import ratio
from helpers.metrics.surface import Sums
from helpers.progress import progress
from helpers.store.store import Store
from helpers.studies.common import head_removal
from helpers.studies.common.classifier import BAG_OF_WORDS, MAJORITY, baselines
from helpers.studies.common.fine_tune import FineTuningRun, table_by_task
from helpers.studies.common.tasks import FINE_TUNED, PRETRAINED, RANDOM, Pair
from helpers.studies.kovaleva2019.maps import (
    Maps,
    PerHead,
    WordMaps,
    concat_model_tables,
    sentence_maps,
    text_maps,
)

if TYPE_CHECKING:
    from spacy.tokens import Doc

COMPARED_EXAMPLES = 200  # test examples of a task whose maps are compared
DISABLING_EXAMPLES = 300  # test examples that a model without one head is scored on
WHOLE_LAYER = 0  # the value of the column ``head`` in the row of a layer
MAX_SENTENCES = 300  # of the treebank
SPECIAL = ("cls", "sep")
WORDS = ("noun", "verb", "pronoun", "subject", "object", "negation")
TOKEN_TYPES = (*SPECIAL, *WORDS)
UNIFORM = "uniform"  # the value of the column ``weights`` in the row of uniform attention
NO_TASK = "none"  # the value of the column ``task`` before fine-tuning
PRONOUN_TAGS = {"PRP", "PRP$", "WP", "WP$"}
OBJECT_RELATIONS = {"dobj", "obj", "iobj", "dative"}
NEGATIONS = {"not", "n't", "n’t", "no", "never", "none", "nobody", "nothing", "neither", "nor"}


def accuracy_table(
    runs: Sequence[FineTuningRun], random_runs: Sequence[FineTuningRun], *, seed: int
) -> pd.DataFrame:
    """Compare the accuracy of fine-tuned models with that of baselines (section 4.3).

    Parameters
    ----------
    runs
        One run from pretrained weights per task.
    random_runs
        One run from random weights per task, in the same order.
    seed
        Seed of the bootstrap.

    Returns
    -------
    pandas.DataFrame
        One row per task and classifier.  Columns: task; start (`PRETRAINED`, `RANDOM`, or a
        baseline of `classifier.baselines`); accuracy (percent) with its 95% bootstrap interval
        (accuracy_low, accuracy_high); learned (whether the task is: the interval of `PRETRAINED` is
        above the accuracies of the most frequent label and of a bag of words); train and test
        (counts of examples).
    """

    def compute() -> pd.DataFrame:
        rows = []
        for run, random_run in zip(runs, random_runs, strict=True):
            predictions = {PRETRAINED: run.predictions, RANDOM: random_run.predictions}
            predictions |= baselines(run.encoder, run.task, max_tokens=run.recipe.max_tokens)
            examples = np.ones(len(run.labels))
            accuracies = {}
            for start, predicted in predictions.items():
                accuracies[start] = ratio(predicted == run.labels, examples, seed=seed).scaled(100)
            to_beat = max(accuracies[MAJORITY].value, accuracies[BAG_OF_WORDS].value)
            columns = {
                "learned": accuracies[PRETRAINED].low > to_beat,
                "train": len(run.task.train),
                "test": len(run.task.test),
            }
            for start, accuracy in accuracies.items():
                of_start = {"start": start, **accuracy.columns("accuracy")}
                rows.append({"task": run.task.name, **of_start, **columns})
        return pd.DataFrame(rows)

    run_names = [run.folder.name for run in (*runs, *random_runs)]
    return cached("task-accuracy", compute, inputs={"runs": run_names, "seed": seed})


def similarity_table(runs: Sequence[FineTuningRun]) -> pd.DataFrame:
    """Measure the cosine similarity of each head's maps before and after fine-tuning.

    Parameters
    ----------
    runs
        One run per task.

    Returns
    -------
    pandas.DataFrame
        One row per task and head.  Columns: task, layer, head and similarity, a mean over the first
        `COMPARED_EXAMPLES` test examples.
    """

    def compute(run: FineTuningRun) -> pd.DataFrame:
        examples = run.task.test[:COMPARED_EXAMPLES]
        longest = run.recipe.max_tokens
        before = text_maps(run.encoder, examples, max_tokens=longest)
        after = text_maps(run.fine_tuned_encoder(), examples, max_tokens=longest)
        bar = progress(before, f"maps before and after ({run.task.name})")
        similarities = []
        for maps_before, maps_after in zip(bar, after, strict=True):
            similarities.append(map_similarity(maps_before.attention, maps_after.attention))
        mean = np.mean(similarities, axis=0)
        return head_rows(run.encoder.layers, run.encoder.heads, similarity=mean)

    return table_by_task(runs, "finetuning-similarity", compute)


def map_similarity(before: Maps, after: Maps) -> PerHead:
    """Compute the cosine similarity of two maps of each head, flattened to vectors."""
    vectors_before = torch.from_numpy(before).double().flatten(2)
    vectors_after = torch.from_numpy(after).double().flatten(2)
    return F.cosine_similarity(vectors_before, vectors_after, dim=-1).numpy()


def feature_table(runs: Sequence[FineTuningRun], store: Store, *, seed: int) -> pd.DataFrame:
    """Measure the share of each head's attention that each type of token gets.

    Parameters
    ----------
    runs
        Fine-tuned models, one per task, of the same encoder.
    store
        Maps of a treebank, whose sentences are used (`MAX_SENTENCES` at most).
    seed
        Seed of the sample of sentences.

    Returns
    -------
    pandas.DataFrame
        One row per model and head.  Columns: task (`NO_TASK` before fine-tuning), weights
        (`PRETRAINED`, `FINE_TUNED` or `UNIFORM`), layer, head, and those of `mean_shares`.  The row
        of `UNIFORM` attention has layer and head 0.
    """
    encoder = runs[0].encoder
    order = np.random.default_rng(seed).permutation(len(store))
    chosen = sorted(order[:MAX_SENTENCES].tolist())

    def compute() -> pd.DataFrame:
        words = [store[index].record["words"] for index in chosen]
        sentences = list(parsed_words(words))
        maps = {(NO_TASK, PRETRAINED): sentence_maps(encoder, words)}
        for run in runs:
            maps[run.task.name, FINE_TUNED] = sentence_maps(run.fine_tuned_encoder(), words)
        maps[NO_TASK, UNIFORM] = map(_uniform_maps, words)
        table = concat_model_tables(maps, partial(mean_shares, sentences), encoder.device)
        table.loc[table["weights"] == UNIFORM, ["layer", "head"]] = 0
        return table

    inputs = {"runs": [run.folder.name for run in runs], "store": store.key, "seed": seed}
    return cached("token-features", compute, inputs=inputs)


def _uniform_maps(words: Sequence[str]) -> WordMaps:
    """Make the map of a single head with uniform attention over [CLS], words and [SEP]."""
    length = len(words) + 2
    attention = np.full((1, 1, length, length), 1 / length)
    return attention, slice(1, length - 1)


def token_types(sentence: Doc, words: slice, length: int) -> dict[str, list[int]]:
    """List the positions of each of `TOKEN_TYPES` in an input of ``length`` tokens.

    ``words`` is where the words are; [CLS] comes before them and [SEP] after them.
    """
    positions = {name: [] for name in TOKEN_TYPES}
    positions["cls"] += range(words.start)
    positions["sep"] += range(words.stop, length)
    for position, word in enumerate(sentence, words.start):
        relation = word.dep_.lower()
        is_type = {
            "noun": word.tag_.startswith("NN"),
            "verb": word.tag_.startswith(("VB", "MD")),
            "pronoun": word.tag_ in PRONOUN_TAGS,
            "subject": relation.startswith(("nsubj", "csubj")),
            "object": relation in OBJECT_RELATIONS,
            "negation": relation == "neg" or word.lower_ in NEGATIONS,
        }
        for name in WORDS:
            if is_type[name]:
                positions[name].append(position)
    return positions


def mean_shares(sentences: Sequence[Doc], maps: Iterable[WordMaps]) -> pd.DataFrame:
    """Compute the mean share (0-1) of a row's attention that each type of token gets, per head.

    There is one column for each of `TOKEN_TYPES`; its mean is over the rows of the maps of the
    sentences that have such a token.
    """
    sums = Sums(TOKEN_TYPES)
    for sentence, (attention, words) in zip(sentences, maps, strict=True):
        shares = {}
        for name, positions in token_types(sentence, words, attention.shape[-1]).items():
            if positions:
                shares[name] = attention[..., positions].sum(axis=-1).mean(axis=-1)
        sums.add(shares)
    layers, heads = attention.shape[:2]
    return head_rows(layers, heads, **{name: sums.mean(name) for name in TOKEN_TYPES})


def disabling_table(runs: Sequence[FineTuningRun], *, seed: int) -> pd.DataFrame:
    """Measure the accuracy when the attention of a head, or of all heads of a layer, is uniform.

    Parameters
    ----------
    runs
        Fine-tuned models, one per task.
    seed
        Seed of `split_test`.

    Returns
    -------
    pandas.DataFrame
        One row per task and head, scored on `DISABLING_EXAMPLES` test examples; and one row per
        layer, scored on all.  Columns: task, layer, head (from 1; `WHOLE_LAYER` for a layer), and
        those of `accuracy_changes`.
    """

    def compute(run: FineTuningRun) -> pd.DataFrame:
        heads = head_rows(run.encoder.layers, run.encoder.heads)
        layers = head_rows(run.encoder.layers, 1).assign(head=WHOLE_LAYER)
        _, scored = head_removal.split_test(run, seed)
        changes = [
            _uniform_changes(run, scored[:DISABLING_EXAMPLES], heads),
            _uniform_changes(run, run.task.test, layers),
        ]
        return pd.concat(changes, ignore_index=True)

    return table_by_task(runs, "disabling", compute, seed=seed)


def _uniform_changes(
    run: FineTuningRun, pairs: Sequence[Pair], targets: pd.DataFrame
) -> pd.DataFrame:
    """Add the change of accuracy to each row of ``targets`` (layer, head)."""
    interventions = []
    for row in targets.itertuples():
        layer = row.layer - 1
        head = None if row.head == WHOLE_LAYER else row.head - 1
        context = partial(head_removal.uniform_attention, layer=layer, head=head)
        interventions.append(head_removal.Intervention(layer, context))
    scores = head_removal.evaluate_interventions(run, pairs, interventions, "uniform attention")
    return targets.join(head_removal.accuracy_changes(scores))
