"""The claims of Kovaleva et al. (2019), *Revealing the Dark Secrets of BERT*.

A task counts where the fine-tuned model beats its most frequent label and a bag of words beyond
its interval: what is shown for any other is what training on noise does.
"""

from __future__ import annotations

from functools import partial

import pandas as pd

from helpers.analysis.claims import Claim, NotMeasurable, Tables, chosen_rows, rows_of
from helpers.analysis.paper import values_of
from helpers.analysis.statistics import Estimate, mean_interval
from helpers.studies.dark_secrets.fine_tuning import FROM_CLS, SPECIAL, UNIFORM, WHOLE_LAYER, WORDS
from helpers.studies.dark_secrets.links import ALPHA, linked_heads
from helpers.studies.dark_secrets.patterns import ANY_COLUMN
from helpers.studies.tasks import FINE_TUNED, PRETRAINED, RANDOM, learned_tasks

LAST_PART = 1 / 6  # of the layers: the last two of BERT's twelve


def finetuning_claims() -> list[Claim]:
    """Return the claims about patterns, fine-tuning, semantic links and disabled heads."""
    paper = values_of("Kovaleva")
    heterogeneous = paper["largest share of heterogeneous maps"]
    linked = paper["heads with frame-semantic links"]
    patterns, links, training, features, from_cls, disabling = (
        partial(Claim, f"Kovaleva et al. 4.{section}") for section in range(1, 7)
    )
    return [
        patterns(
            "The same few patterns come back in all tasks: no task is mostly heterogeneous maps",
            "largest share of heterogeneous maps of a fine-tuned task; threshold: the paper's "
            "largest",
            partial(extreme_share, pattern="heterogeneous", extreme="max"),
            heterogeneous, below=True, paper=heterogeneous),
        patterns(
            "At least a third of the maps are columns: attention to a few tokens, mostly special",
            "smallest share of vertical and vertical + diagonal maps of a fine-tuned task",
            partial(extreme_share, pattern=ANY_COLUMN, extreme="min"), 1 / 3),
        links(
            "A few heads attend along semantic links more than their distance explains",
            "heads with more attention on links than on random pairs at the same distance (sign "
            "flips of articles, p < 0.05 over all heads by Holm); holds from one on",
            heads_with_links, 0, paper=linked),
        links(
            "Such heads are few",
            "the same, as a share of all heads; threshold: a tenth",
            share_with_links, 0.1, below=True, paper=linked / paper["heads of the model"]),
        training(
            "Fine-tuning changes the attention of the last layers most",
            "share of tasks in which the last sixth of the layers (at least one) has a lower mean "
            "similarity than each other layer; holds above half",
            last_layers_change_most, 0.5),
        training(
            "Pretraining is what fine-tuning builds on: random weights do worse in every task",
            "smallest difference of test accuracy, percentage points; ends: smallest and largest "
            "distance that the 95% intervals of the two leave",
            gain_of_pretraining, 0),
        features(
            "Heads attend to [CLS] and [SEP] more than to words of any one kind",
            "share of attention to the two together, less that to nouns, verbs, pronouns, "
            "subjects, objects or negation, whichever is largest, each over its share of uniform "
            "attention; smallest over fine-tuned tasks",
            special_over_words, 0),
        from_cls(
            "In most tasks [CLS] attends in the last layer to [SEP] more than to words of any kind",
            "share of fine-tuned tasks; kinds as above, each over its share of uniform attention",
            sep_from_cls, 0.5),
        disabling(
            "Some heads can be disabled with a gain that is beyond chance",
            "heads whose gain is significant (McNemar, p < 0.05 over the number of heads); holds "
            "from one on",
            heads_with_gain, 0),
        disabling(
            "Most heads can be disabled",
            "share of heads without which accuracy is shown to change by less than two points "
            "(equivalence test at 5%), mean over tasks and its interval (Student's t); threshold: "
            "half",
            removable_heads, 0.5),
        disabling(
            "In some task, a whole layer can be disabled with a gain",
            "largest gain without a layer with p < 0.05 over the number of layers and tasks "
            "(McNemar), percentage points; 0 where there is none",
            largest_gain, 0, paper=paper["largest gain without a layer"]),
    ]  # fmt: skip


def extreme_share(tables: Tables, pattern: str, extreme: str) -> Estimate:
    """Return the largest ("max") or smallest ("min") share of a pattern in a fine-tuned task."""
    columns = ["share", "ci_low", "ci_high"]
    rows = _of_learned(tables, "pattern_shares", "weights", "pattern", *columns)
    chosen = (rows["weights"] == FINE_TUNED) & (rows["pattern"] == pattern)
    return Estimate(*rows.loc[chosen, columns].agg(extreme))


def heads_with_links(tables: Tables) -> int:
    """Return how many heads attend along links beyond chance."""
    return len(linked_heads(rows_of(tables, "semantic_links", "p_holm")))


def share_with_links(tables: Tables) -> float:
    """Return the share of such heads."""
    return heads_with_links(tables) / len(tables["semantic_links"])


def last_layers_change_most(tables: Tables) -> float:
    """Return the share of tasks whose last layers have the least similarity."""
    rows = _of_learned(tables, "finetuning_similarity", "layer", "similarity")
    by_task = rows.pivot_table("similarity", "task", "layer")
    last = by_task.columns > by_task.columns.max() - max(1, round(LAST_PART * by_task.shape[1]))
    if last.all():
        raise NotMeasurable("one layer has no last part")
    return (by_task.loc[:, last].mean(axis=1) < by_task.loc[:, ~last].min(axis=1)).mean()


def gain_of_pretraining(tables: Tables) -> Estimate:
    """Return the smallest difference of accuracy to a model from random weights."""
    rows = _of_learned(tables, "fine_tuning", "start", "accuracy", "ci_low", "ci_high")
    if RANDOM not in set(rows["start"]):
        raise NotMeasurable("fine_tuning: nothing was fine-tuned from random weights")
    own, random = (rows[rows["start"] == start].set_index("task") for start in (PRETRAINED, RANDOM))
    ends = ("accuracy", "accuracy"), ("ci_low", "ci_high"), ("ci_high", "ci_low")
    return Estimate(*((own[a] - random[b]).min() for a, b in ends))


def special_over_words(tables: Tables) -> float:
    """Return by how much special tokens exceed words, as multiples of uniform attention."""
    words, _, both = _over_uniform(tables, "")
    return (both - words).min()


def sep_from_cls(tables: Tables) -> float:
    """Return the share of tasks in which [CLS] attends to [SEP] more than to words."""
    words, sep, _ = _over_uniform(tables, FROM_CLS)
    return (sep > words).mean()


def heads_with_gain(tables: Tables) -> int:
    """Return how many heads can be disabled with a gain beyond chance (Bonferroni, by task)."""
    rows = _disabled(tables, whole=False)
    corrected = rows["p_value"] * rows.groupby("task")["p_value"].transform("size")
    return ((rows["change"] > 0) & (corrected < ALPHA)).sum()


def removable_heads(tables: Tables) -> Estimate:
    """Return the share of heads that can be disabled, over tasks."""
    rows = _disabled(tables, "removable", whole=False)
    return Estimate(*mean_interval(rows.groupby("task")["removable"].mean()))


def largest_gain(tables: Tables) -> float:
    """Return the largest gain without a layer that is beyond chance, in points, or 0."""
    rows = _disabled(tables, whole=True)
    sure = rows.loc[rows["p_value"] * len(rows) < ALPHA, "change"]
    return max([0.0, *sure])


def _of_learned(tables: Tables, table: str, *columns: str) -> pd.DataFrame:
    """Return the rows of the tasks that are learned beyond both of their baselines."""
    rows = rows_of(tables, table, "task", *columns)
    chosen = rows["task"].isin(learned_tasks(tables))
    return chosen_rows(rows, chosen, "no task is learned beyond what its words give away")


def _over_uniform(tables: Tables, prefix: str) -> tuple[pd.Series, pd.Series, pd.Series]:
    """Return attention by task, divided by uniform attention's.

    To words of the kind that gets most, to [SEP], and to [CLS] and [SEP] together.
    """
    special, words = ([f"{prefix}{name}" for name in names] for names in (SPECIAL, WORDS))
    rows = _of_learned(tables, "token_features", "weights", *special, *words)
    tuned = rows[rows["weights"] == FINE_TUNED].groupby("task")[special + words].mean()
    if tuned[special].isna().any(axis=None):
        raise NotMeasurable("a model without [CLS] or [SEP]")
    own = tables["token_features"]
    uniform = own.loc[own["weights"] == UNIFORM, special + words].mean()
    ratios = tuned / uniform
    both = tuned[special].sum(axis=1) / uniform[special].sum()
    return ratios[words].max(axis=1), ratios[special[1]], both


def _disabled(tables: Tables, *columns: str, whole: bool) -> pd.DataFrame:
    rows = _of_learned(tables, "disabling", "layer", "head", "change", "p_value", *columns)
    return rows[(rows["head"] == WHOLE_LAYER) == whole]
