"""The claims of Kovaleva et al. (2019), *Revealing the Dark Secrets of BERT*.

Claims are measured only on tasks that the fine-tuned model learns: the interval of its accuracy is
above the accuracies of the most frequent label and of a bag of words.  On other tasks the
measurements would show the effect of training on noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pandas as pd

from helpers.metrics.heads import by_head
from helpers.metrics.paper import Claim, Measure, NotMeasurable, Tables, read_claims, rows_of
from helpers.metrics.statistics import Estimate, difference, mean_interval, wilson_proportion
from helpers.studies.common import tasks
from helpers.studies.kovaleva2019.fine_tuning import FROM_CLS, SPECIAL, UNIFORM, WHOLE_LAYER, WORDS
from helpers.studies.kovaleva2019.links import ALPHA, linked_heads
from helpers.studies.kovaleva2019.patterns import ANY_COLUMN, SPECIAL_COLUMN

LAST_PART = 1 / 6  # share of the layers that count as the last ones: two of BERT's twelve


def finetuning_claims() -> list[Claim]:
    """Read the claims about patterns, fine-tuning, semantic links and disabled heads.

    Returns
    -------
    list of Claim
        With the functions that measure them.
    """
    return read_claims(__file__, MEASURES)


def count_linked_heads(tables: Tables) -> int:
    """Count the heads that attend along links significantly more than to random pairs."""
    rows = rows_of(tables, "semantic_links", "p_holm")
    return len(linked_heads(rows))


def share_of_linked_heads(tables: Tables) -> Estimate:
    """Compute the share of the heads of `count_linked_heads`."""
    rows = rows_of(tables, "semantic_links", "p_holm")
    return wilson_proportion(len(linked_heads(rows)), len(rows))


def last_layers_change_most(tables: Tables) -> Estimate:
    """Compute the similarity of the last layers' maps minus that of another layer's.

    The similarity is between maps before and after fine-tuning.  The other layer is the one with
    the lowest mean similarity.  Of the tasks, the one with the largest difference counts.
    """
    rows = tasks.learned_rows(tables, "finetuning_similarity", "layer", "similarity")
    differences = []
    for _, task_rows in rows.groupby("task"):
        similarity = by_head(task_rows, "similarity")  # [layer, head]
        last_count = max(1, round(LAST_PART * len(similarity)))
        last_layers = similarity[-last_count:]
        earlier_layers = similarity[:-last_count]
        if len(earlier_layers) == 0:
            raise NotMeasurable("a model with one layer has no last part")
        lowest = earlier_layers.mean(axis=1).argmin()
        last = mean_interval(last_layers.ravel())
        earlier = mean_interval(earlier_layers[lowest])
        differences.append(difference(last, earlier))
    return max(differences)


def gain_of_pretraining(tables: Tables) -> Estimate:
    """Compute the accuracy from pretrained minus that from random weights, smallest over tasks."""
    rows = tasks.learned_rows(
        tables, "fine_tuning", "start", "accuracy", "accuracy_low", "accuracy_high"
    )
    by_start = {start: start_rows.set_index("task") for start, start_rows in rows.groupby("start")}
    if tasks.RANDOM not in by_start:
        raise NotMeasurable("fine_tuning: nothing was fine-tuned from random weights")
    pretrained = by_start[tasks.PRETRAINED]
    random = by_start[tasks.RANDOM]
    return Estimate(
        value=(pretrained["accuracy"] - random["accuracy"]).min(),
        low=(pretrained["accuracy_low"] - random["accuracy_high"]).min(),
        high=(pretrained["accuracy_high"] - random["accuracy_low"]).min(),
    )


def special_over_words(tables: Tables) -> Estimate:
    """Compute the attention to special tokens minus that to words, smallest over tasks.

    Both are multiples of uniform attention.
    """
    return min(_attention_over_words(tables, rows_from="", tokens=SPECIAL))


def sep_from_cls(tables: Tables) -> Estimate:
    """Compute the attention from [CLS] to [SEP] minus that to words: a value that most tasks reach.

    Both are multiples of uniform attention, in the last layer.
    """
    differences = sorted(_attention_over_words(tables, rows_from=FROM_CLS, tokens=["sep"]))
    return differences[(len(differences) - 1) // 2]


def count_heads_with_gain(tables: Tables) -> int:
    """Count the heads whose disabling raises the accuracy significantly (Bonferroni, by task)."""
    rows = _single_heads(tables, "disabling", "change", "p_value")
    heads_in_task = rows.groupby("task")["p_value"].transform("size")
    corrected = rows["p_value"] * heads_in_task
    return ((rows["change"] > 0) & (corrected < ALPHA)).sum()


def largest_gain_without_layer(tables: Tables) -> float:
    """Find the largest significant gain of accuracy when a layer is disabled (percentage points).

    It is 0 if no gain is significant (Bonferroni, over layers and tasks).
    """
    rows = tasks.learned_rows(tables, "disabling", "head", "change", "p_value")
    layers = rows[rows["head"] == WHOLE_LAYER]
    is_significant = layers["p_value"] * len(layers) < ALPHA
    significant_changes = layers.loc[is_significant, "change"]
    return max([0.0, *significant_changes])


def _attention_over_words(
    tables: Tables, *, rows_from: str, tokens: Sequence[str]
) -> list[Estimate]:
    """Compute the attention to some special tokens minus that to words, for each task.

    Both are multiples of uniform attention.  Words are those of the type with the most attention
    over all heads.  Intervals are over heads.
    """
    special_columns = [rows_from + name for name in SPECIAL]
    word_columns = [rows_from + name for name in WORDS]
    token_columns = [rows_from + name for name in tokens]
    rows = tasks.learned_rows(tables, "token_features", "weights", *special_columns, *word_columns)
    fine_tuned = rows[rows["weights"] == tasks.FINE_TUNED].dropna(subset=special_columns)
    if fine_tuned.empty:
        raise NotMeasurable("the model has no [CLS] or no [SEP]")
    uniform = tables["token_features"].set_index("weights").loc[UNIFORM]
    differences = []
    for _, heads in fine_tuned.groupby("task"):
        to_words = heads[word_columns] / uniform[word_columns]
        most_attended = to_words.mean().idxmax()
        to_tokens = heads[token_columns].sum(axis=1) / uniform[token_columns].sum()
        differences.append(mean_interval(to_tokens - to_words[most_attended]))
    return differences


def _single_heads(tables: Tables, table: str, *columns: str) -> pd.DataFrame:
    """Select the rows of single heads of the tasks that are learned."""
    rows = tasks.learned_rows(tables, table, "head", *columns)
    return rows[rows["head"] != WHOLE_LAYER]


def _smallest_pattern_share(tables: Tables, *, pattern: str) -> Estimate:
    """Find the smallest share of a pattern over fine-tuned tasks."""
    return tasks.minimum_over_tasks(
        tables, "pattern_shares", "share", weights=tasks.FINE_TUNED, pattern=pattern
    )


def share_of_removable_heads(tables: Tables) -> Estimate:
    """Compute the share of heads that are removable with uniform attention, smallest over tasks."""
    return tasks.smallest_share(tables, "disabling", "removable", select=_single_heads)


MEASURES: dict[str, Measure] = {
    "fewest columns": partial(_smallest_pattern_share, pattern=ANY_COLUMN),
    "special columns": partial(_smallest_pattern_share, pattern=SPECIAL_COLUMN),
    "heads with links": count_linked_heads,
    "share with links": share_of_linked_heads,
    "last layers change": last_layers_change_most,
    "pretraining": gain_of_pretraining,
    "special over words": special_over_words,
    "sep from cls": sep_from_cls,
    "heads with gain": count_heads_with_gain,
    "removable heads": share_of_removable_heads,
    "layer with gain": largest_gain_without_layer,
}
