"""The claims of Kovaleva et al. (2019), *Revealing the Dark Secrets of BERT*.

Claims are measured only on tasks that the fine-tuned model learns: the interval of its accuracy is
above the accuracies of the most frequent label and of a bag of words.  On other tasks the
measurements would show the effect of training on noise.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd

from helpers.claims.engine import Family
from helpers.claims.tables import NotMeasurable, Tables, cell, rows_of
from helpers.metrics.heads import by_head
from helpers.metrics.statistics import Estimate, difference, mean_interval, wilson_proportion
from helpers.studies.common import tasks
from helpers.studies.kovaleva2019.fine_tuning import WHOLE_LAYER
from helpers.studies.kovaleva2019.links import EXCESS, linked_heads
from helpers.studies.kovaleva2019.patterns import ANY_COLUMN, SPECIAL_COLUMN, TEXT

KOVALEVA = Family("Kovaleva et al.")
claim = KOVALEVA.claim
LAST_LAYERS = 2  # that change most in the paper
LINKS = "a verb and its subject or object, two words apart or more, in a treebank's trees"


def smallest_pattern_share(tables: Tables, pattern: str) -> Estimate:
    """Find the smallest share of a pattern over fine-tuned tasks."""
    shares = tasks.estimates_by_task(
        tables, "pattern_shares", "share", weights=tasks.FINE_TUNED, pattern=pattern
    )
    return tasks.smallest_over_tasks(shares.values())


claim(
    "Kovaleva et al. 4.1",
    (
        "On the short texts of fine-tuning tasks (made up by default), at least a third of the "
        "maps are columns: attention to a few tokens"
    ),
    how_measured=(
        "smallest share of vertical and vertical + diagonal maps, as told by a classifier, of the "
        "fine-tuned models on texts of at most 64 tokens; bootstrap interval over heads"
    ),
    above=1 / 3,
    about_training=True,
)(partial(smallest_pattern_share, pattern=ANY_COLUMN))

claim(
    "Kovaleva et al. 4.1",
    "On whole segments of the text, too, at least a third of the maps are columns",
    how_measured=(
        "share of vertical and vertical + diagonal maps of the model before fine-tuning on "
        "segments of two paragraphs; bootstrap interval over heads"
    ),
    above=1 / 3,
)(cell("pattern_shares", "share", df=np.inf, task=TEXT, pattern=ANY_COLUMN))

claim(
    "Kovaleva et al. 4.1",
    (
        "In maps with columns, the darkest column is mostly a special token, in every fine-tuning "
        "task (made up by default)"
    ),
    how_measured=(
        "of the maps told as vertical, with or without diagonal, the share whose column of the "
        "largest mean weight is a special token, smallest over fine-tuned tasks; bootstrap "
        "interval over heads; threshold: half (random weights have next to no columns to compare "
        "with)"
    ),
    above=0.5,
)(partial(smallest_pattern_share, pattern=SPECIAL_COLUMN))


@claim(
    "Kovaleva et al. 4.2",
    (
        "Some head attends from verbs to their subjects and objects by 0.05 more than their "
        "distance explains"
    ),
    how_measured=(
        f"largest weight on a link ({LINKS}; the paper has FrameNet's arguments) minus that on "
        "random pairs at the same distance, mean over sentences, of the head where it is largest; "
        "interval over articles, widened for the number of heads; threshold: 0.05 of attention"
    ),
    above=EXCESS,
    about_training=True,
)
def largest_excess_on_links(tables: Tables) -> Estimate:
    """Find the largest difference between attention on links and on random pairs of a head."""
    return _largest_effect(rows_of(tables, "semantic_links", "difference"), "difference")


@claim(
    "Kovaleva et al. 4.2",
    "Few heads attend from verbs to their subjects and objects by 0.05 more than distance explains",
    how_measured=(
        f"share of heads whose weight on a link ({LINKS}) is 0.05 larger than on random pairs at "
        "the same distance; Wilson's interval over heads; threshold: a tenth (the paper finds 2 of "
        "144 in averaged maps, for FrameNet's arguments)"
    ),
    below=0.1,
    unit="heads",
)
def share_of_linked_heads(tables: Tables) -> Estimate:
    """Compute the share of the heads with more attention on links."""
    rows = rows_of(tables, "semantic_links", "difference")
    return wilson_proportion(len(linked_heads(rows)), len(rows))


@claim(
    "Kovaleva et al. 4.3",
    (
        "Fine-tuning changes the attention maps of the last two layers most, in most tasks (made "
        "up by default)"
    ),
    how_measured=(
        "mean similarity of maps before and after in the earlier layer where it is lowest minus "
        "that in the last two layers, the least that more than half of the tasks have; interval "
        "over heads (Student's t of each of the two); one training per task"
    ),
    above=0,
    about_training=True,
)
def last_layers_change_most(tables: Tables) -> Estimate:
    """Compute by how much the last layers' maps are less similar than those of any other layer.

    The similarity is between maps before and after fine-tuning; more than half of the tasks have at
    least this difference.
    """
    rows = tasks.learned_rows(tables, "finetuning_similarity", "layer", "similarity")
    differences = []
    for _, task_rows in rows.groupby("task"):
        similarity = by_head(task_rows, "similarity")  # [layer, head]
        last_layers = similarity[-LAST_LAYERS:]
        earlier_layers = similarity[:-LAST_LAYERS]
        if len(earlier_layers) == 0:
            raise NotMeasurable("a model with two layers has no earlier ones")
        lowest = earlier_layers.mean(axis=1).argmin()
        earlier = mean_interval(earlier_layers[lowest])
        differences.append(difference(earlier, mean_interval(last_layers.ravel())))
    return sorted(differences)[(len(differences) - 1) // 2]


@claim(
    "Kovaleva et al. 4.3",
    (
        "Fine-tuned from random weights, the encoder does nearly as well as from pretrained ones, "
        "in most tasks (made up by default)"
    ),
    how_measured=(
        "test accuracy after the same training (2,000 examples, two epochs) from pretrained minus "
        "that from random weights, percentage points: the most that more than half of the tasks "
        "have; intervals over test examples, combined; threshold: ten points (the paper: random "
        "weights do 'disturbingly well', 80% on SST-2)"
    ),
    below=10,
    unit="points",
)
def gain_of_pretraining(tables: Tables) -> Estimate:
    """Compute the accuracy from pretrained minus that from random weights: a lead in most tasks."""
    by_start = {}
    for start in (tasks.PRETRAINED, tasks.RANDOM):
        by_start[start] = tasks.estimates_by_task(
            tables, "fine_tuning", "accuracy", clusters="test", start=start
        )
    random = by_start[tasks.RANDOM]
    leads = [
        difference(pretrained, random[task])
        for task, pretrained in by_start[tasks.PRETRAINED].items()
    ]
    return sorted(leads)[len(leads) // 2]


GAIN_MEASURE = (
    "largest change of accuracy with uniform attention in place of a {part}, over the learned "
    "tasks (one training each), percentage points; its lower bound is widened for the number of "
    "{part}s and tasks; threshold: one point, which is ours; "
)


@claim(
    "Kovaleva et al. 4.6",
    (
        "Some head can be disabled with a gain of a percentage point or more, in a fine-tuning "
        "task (made up by default)"
    ),
    how_measured=GAIN_MEASURE.format(part="head")
    + "on 300 test examples no gain below about four points can be seen",
    above=1,
    paper=1.2,  # section 4.6: the largest, on MRPC
    unit="points",
)
def largest_gain_without_head(tables: Tables) -> Estimate:
    """Find the largest change of accuracy when a head is disabled (percentage points)."""
    return _largest_effect(_single_heads(tables, "change"), "change")


@claim(
    "Kovaleva et al. 4.6",
    "Most heads can be disabled, over all fine-tuning tasks (made up by default)",
    how_measured=(
        "share of heads, over the learned tasks, with whose attention made uniform accuracy is "
        "shown to change by less than two points (equivalence test at 5%, on 300 test examples; "
        "Michel et al. 3.2 has up to 800); Wilson's interval over heads; threshold: half, which is "
        "ours (the paper says 'many')"
    ),
    above=0.5,
    unit="heads",
)
def share_of_removable_heads(tables: Tables) -> Estimate:
    """Compute the share of heads that are removable with uniform attention, over all tasks."""
    removable = _single_heads(tables, "removable")["removable"]
    return wilson_proportion(removable.sum(), len(removable))


@claim(
    "Kovaleva et al. 4.6",
    (
        "A whole layer can be disabled with a gain of a percentage point or more, in a fine-tuning "
        "task (made up by default)"
    ),
    how_measured=GAIN_MEASURE.format(part="layer") + "on 2,000 test examples",
    above=1,
    paper=3.2,  # section 4.6: the first layer in RTE
    unit="points",
)
def largest_gain_without_layer(tables: Tables) -> Estimate:
    """Find the largest change of accuracy when a layer is disabled (percentage points)."""
    rows = tasks.learned_rows(tables, "disabling", "head", "change")
    return _largest_effect(rows[rows["head"] == WHOLE_LAYER], "change")


def _largest_effect(rows: pd.DataFrame, column: str) -> Estimate:
    """Find the largest number of a column, with bounds that hold for the largest of all rows."""
    values = rows[column]
    lows = values - tasks.bonferroni_factor(len(rows)) * (values - rows[f"{column}_low"])
    return Estimate(values.max(), lows.max(), rows[f"{column}_high"].max())


def _single_heads(tables: Tables, *columns: str) -> pd.DataFrame:
    """Select the rows of single heads of the tasks that are learned."""
    rows = tasks.learned_rows(tables, "disabling", "head", *columns)
    return rows[rows["head"] != WHOLE_LAYER]


CLAIMS = KOVALEVA.claims
