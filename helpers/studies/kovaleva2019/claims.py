"""The claims of Kovaleva et al. (2019), *Revealing the Dark Secrets of BERT*.

Claims are measured only on tasks that the fine-tuned model learns: the interval of its accuracy is
above the accuracies of the most frequent label and of a bag of words.  On other tasks the
measurements would show the effect of training on noise.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from helpers.claims.engine import Family
from helpers.claims.tables import NotMeasurable, Tables, rows_of
from helpers.metrics.heads import by_head
from helpers.metrics.statistics import (
    Estimate,
    difference,
    exact,
    mean_interval,
    wilson_proportion,
)
from helpers.studies.common import tasks
from helpers.studies.kovaleva2019.fine_tuning import FROM_CLS, SPECIAL, UNIFORM, WHOLE_LAYER, WORDS
from helpers.studies.kovaleva2019.links import ALPHA, linked_heads
from helpers.studies.kovaleva2019.patterns import ANY_COLUMN, SPECIAL_COLUMN

KOVALEVA = Family("Kovaleva et al.")
claim = KOVALEVA.claim
LAST_PART = 1 / 6  # share of the layers that count as the last ones: two of BERT's twelve


@claim(
    "Kovaleva et al. 4.1",
    "At least a third of the maps are columns: attention to a few tokens",
    how_measured=(
        "smallest share of vertical and vertical + diagonal maps of a fine-tuned task; bootstrap "
        "interval over heads"
    ),
    above=1 / 3,
    about_training=True,
)
def smallest_share_of_columns(tables: Tables) -> Estimate:
    """Find the smallest share of maps with a column, over tasks."""
    return _smallest_pattern_share(tables, ANY_COLUMN)


@claim(
    "Kovaleva et al. 4.1",
    "The darkest column is mostly a special token",
    how_measured=(
        "of the maps told as vertical, with or without diagonal, the share whose column of the "
        "largest mean weight is a special token, smallest over fine-tuned tasks; bootstrap "
        "interval over heads; holds above half (random weights have next to no columns to compare "
        "with)"
    ),
    above=0.5,
)
def smallest_share_of_special_columns(tables: Tables) -> Estimate:
    """Find the smallest share of columns that are a special token, over tasks."""
    return _smallest_pattern_share(tables, SPECIAL_COLUMN)


@claim(
    "Kovaleva et al. 4.2",
    "A few heads attend along semantic links more than their distance explains",
    how_measured=(
        "heads with more attention on links than on random pairs at the same distance (bootstrap-t "
        "over articles, p < 0.05 over all heads by Holm); holds from one on"
    ),
    above=0,
    paper=2,  # section 4.2: of 144
    about_training=True,
)
def count_linked_heads(tables: Tables) -> Estimate:
    """Count the heads that attend along links significantly more than to random pairs."""
    rows = rows_of(tables, "semantic_links", "p_holm")
    return exact(len(linked_heads(rows)))


@claim(
    "Kovaleva et al. 4.2",
    "Such heads are few",
    how_measured="the same, as a share of all heads; Wilson's interval; threshold: a tenth",
    below=0.1,
    paper=0.0138889,  # section 4.2: 2 of 144
)
def share_of_linked_heads(tables: Tables) -> Estimate:
    """Compute the share of the heads of `count_linked_heads`."""
    rows = rows_of(tables, "semantic_links", "p_holm")
    return wilson_proportion(len(linked_heads(rows)), len(rows))


@claim(
    "Kovaleva et al. 4.3",
    "Fine-tuning changes the attention of the last layers most, in every task",
    how_measured=(
        "mean similarity of maps before and after in the last sixth of the layers (at least one) "
        "minus that of the other layer where it is lowest, largest over tasks; interval over heads "
        "(Student's t of each of the two); one run a task; holds below 0"
    ),
    below=0,
    about_training=True,
)
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


@claim(
    "Kovaleva et al. 4.3",
    "Pretraining is what fine-tuning builds on: random weights do worse in every task",
    how_measured=(
        "smallest difference of test accuracy, percentage points, of the run of median accuracy "
        "and one from random weights; ends: smallest and largest distance that the 95% intervals "
        "of the two leave"
    ),
    above=0,
)
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


@claim(
    "Kovaleva et al. 4.4",
    "Heads attend to [CLS] and [SEP] more than to words of any one kind",
    how_measured=(
        "share of attention to the two together, minus that to nouns, verbs, pronouns, subjects, "
        "objects or negation, whichever is largest, each over its share of uniform attention; "
        "smallest over fine-tuned tasks; Student's t interval over heads, the kind of words chosen "
        "once from all"
    ),
    above=0,
    about_training=True,
)
def special_over_words(tables: Tables) -> Estimate:
    """Compute the attention to special tokens minus that to words, smallest over tasks.

    Both are multiples of uniform attention.
    """
    return min(_attention_over_words(tables, rows_from="", tokens=SPECIAL))


@claim(
    "Kovaleva et al. 4.5",
    "In most tasks [CLS] attends in the last layer to [SEP] more than to words of any kind",
    how_measured=(
        "share of attention to [SEP] minus that to the kind of words that gets most, as above; the "
        "least that more than half of the fine-tuned tasks have; Student's t interval over the "
        "heads of the last layer"
    ),
    above=0,
    about_training=True,
)
def sep_from_cls(tables: Tables) -> Estimate:
    """Compute the attention from [CLS] to [SEP] minus that to words: a value that most tasks reach.

    Both are multiples of uniform attention, in the last layer.
    """
    differences = sorted(_attention_over_words(tables, rows_from=FROM_CLS, tokens=["sep"]))
    return differences[(len(differences) - 1) // 2]


@claim(
    "Kovaleva et al. 4.6",
    "Some heads can be disabled with a gain that is beyond chance",
    how_measured=(
        "heads whose gain with uniform attention is significant (McNemar on 300 test examples, p < "
        "0.05 over the number of heads of a task); holds from one on"
    ),
    above=0,
)
def count_heads_with_gain(tables: Tables) -> Estimate:
    """Count the heads whose disabling raises the accuracy significantly (Bonferroni, by task)."""
    rows = _single_heads(tables, "disabling", "change", "p_value")
    heads_in_task = rows.groupby("task")["p_value"].transform("size")
    corrected = rows["p_value"] * heads_in_task
    return exact(((rows["change"] > 0) & (corrected < ALPHA)).sum())


@claim(
    "Kovaleva et al. 4.6",
    "In every task most heads can be disabled",
    how_measured=(
        "share of heads with whose attention made uniform accuracy is shown to change by less than "
        "two points (equivalence test at 5%, on 300 test examples), smallest over tasks; Wilson's "
        "interval; holds above half"
    ),
    above=0.5,
)
def share_of_removable_heads(tables: Tables) -> Estimate:
    """Compute the share of heads that are removable with uniform attention, smallest over tasks."""
    return tasks.smallest_share(tables, "disabling", "removable", select=_single_heads)


@claim(
    "Kovaleva et al. 4.6",
    "In some task, a whole layer can be disabled with a gain",
    how_measured=(
        "largest gain with the uniform attention of a layer with p < 0.05 over the number of "
        "layers and tasks (McNemar), percentage points; 0 where there is none"
    ),
    above=0,
    paper=3.2,  # section 4.6: percentage points, the first layer in RTE
)
def largest_gain_without_layer(tables: Tables) -> Estimate:
    """Find the largest significant gain of accuracy when a layer is disabled (percentage points).

    It is 0 if no gain is significant (Bonferroni, over layers and tasks).  There is no interval,
    because a task is trained once.
    """
    rows = tasks.learned_rows(tables, "disabling", "head", "change", "p_value")
    layers = rows[rows["head"] == WHOLE_LAYER]
    is_significant = layers["p_value"] * len(layers) < ALPHA
    significant_changes = layers.loc[is_significant, "change"]
    return Estimate(max([0.0, *significant_changes]))


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


def _smallest_pattern_share(tables: Tables, pattern: str) -> Estimate:
    """Find the smallest share of a pattern over fine-tuned tasks."""
    return tasks.minimum_over_tasks(
        tables, "pattern_shares", "share", weights=tasks.FINE_TUNED, pattern=pattern
    )


CLAIMS = KOVALEVA.claims
