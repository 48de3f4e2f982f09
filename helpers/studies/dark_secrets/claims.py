"""The claims of Kovaleva et al. (2019), *Revealing the Dark Secrets of BERT*.

A task counts where the fine-tuned model beats its most frequent label and a bag of words beyond
its interval: what is shown for any other is what training on noise does.
"""

from __future__ import annotations

import pandas as pd

from helpers.analysis.claims import Claim, Estimate, NotMeasurable, Tables, rows_of
from helpers.analysis.paper import values_of
from helpers.studies.dark_secrets.fine_tuning import WHOLE_LAYER
from helpers.studies.dark_secrets.links import linked_heads
from helpers.studies.dark_secrets.pattern_features import ANY_COLUMN
from helpers.studies.dark_secrets.token_features import (
    AFTER,
    FEATURES,
    FROM_CLS,
    SPECIAL,
    UNIFORM,
    WORDS,
)
from helpers.studies.estimates import mean_interval
from helpers.studies.runs import PRETRAINED

PAPER = "Kovaleva et al."
A_THIRD = 1 / 3
LAST_PART = 1 / 6  # of the layers: the last two of BERT's twelve
ALPHA = 0.05


def finetuning_claims() -> list[Claim]:
    """Return the claims about patterns, fine-tuning, semantic links and disabled heads."""
    return [*_patterns(), *_links(), *_changes(), *_features(), *_disabling()]


def _patterns() -> list[Claim]:
    paper = values_of("Kovaleva")
    return [
        Claim(
            f"{PAPER} 4.1",
            "The same few patterns come back in all tasks: no task is mostly heterogeneous maps",
            "largest share of heterogeneous maps of a fine-tuned task, corrected for the maps that "
            "the classifier takes for others; threshold: the paper's largest",
            lambda t: Estimate(*_class_shares(t, "heterogeneous").max()),
            paper=paper["largest share of heterogeneous maps"],
            threshold=paper["largest share of heterogeneous maps"],
            below=True,
        ),
        Claim(
            f"{PAPER} 4.1",
            "At least a third of the maps are columns: attention to a few tokens, mostly special",
            "smallest share of vertical and vertical + diagonal maps of a fine-tuned task, "
            "corrected likewise",
            lambda t: Estimate(*_class_shares(t, ANY_COLUMN).min()),
            threshold=A_THIRD,
        ),
    ]


def _links() -> list[Claim]:
    paper = values_of("Kovaleva")
    return [
        Claim(
            f"{PAPER} 4.2",
            "A few heads attend along semantic links more than their distance explains",
            "heads with more attention on links than on random pairs at the same distance, 95% "
            "interval of all heads together above zero; holds from one on",
            _heads_with_links,
            threshold=0,
            paper=paper["heads with frame-semantic links"],
        ),
        Claim(
            f"{PAPER} 4.2",
            "Such heads are few",
            "the same, as a share of all heads; threshold: a tenth",
            lambda t: _heads_with_links(t) / len(rows_of(t, "semantic_links", "head")),
            threshold=0.1,
            paper=paper["heads with frame-semantic links"] / paper["heads of the model"],
            below=True,
        ),
    ]


def _changes() -> list[Claim]:
    return [
        Claim(
            f"{PAPER} 4.3",
            "Fine-tuning changes the attention of the last layers most",
            "share of tasks in which the last sixth of the layers (at least one) has a lower mean "
            "similarity than each other layer; holds above half",
            _last_layers_change_most,
            threshold=0.5,
        ),
        Claim(
            f"{PAPER} 4.3",
            "Pretraining is what fine-tuning builds on: random weights do worse in every task",
            "smallest difference of test accuracy, percentage points; ends: smallest and largest "
            "distance that the 95% intervals of the two leave",
            _pretraining,
            threshold=0,
        ),
    ]


def _features() -> list[Claim]:
    return [
        Claim(
            f"{PAPER} 4.4",
            "Heads attend to [CLS] and [SEP] more than to words of any one kind",
            "share of attention to the two together, less that to nouns, verbs, pronouns, "
            "subjects, objects or negation, whichever is largest, each over its share of uniform "
            "attention; smallest over fine-tuned tasks",
            _special_over_words,
            threshold=0,
        ),
        Claim(
            f"{PAPER} 4.5",
            "In most tasks [CLS] attends in the last layer to [SEP] more than to words of any kind",
            "share of fine-tuned tasks; kinds as above, each over its share of uniform attention",
            _sep_from_cls,
            threshold=0.5,
        ),
    ]


def _disabling() -> list[Claim]:
    paper = values_of("Kovaleva")
    return [
        Claim(
            f"{PAPER} 4.6",
            "Some heads can be disabled with a gain that is beyond chance",
            f"heads whose gain is significant (McNemar, p < {ALPHA} over the number of heads); "
            "holds from one on",
            lambda t: ((_single(t)["change"] > 0) & (_corrected(t) < ALPHA)).sum(),
            threshold=0,
        ),
        Claim(
            f"{PAPER} 4.6",
            "Most heads can be disabled",
            "share of heads without which accuracy is shown to change by less than two points "
            "(equivalence test at 5%), mean over tasks and its interval (Student's t); threshold: "
            "half",
            lambda t: mean_interval(_single(t, "removable").groupby("task")["removable"].mean()),
            threshold=0.5,
        ),
        Claim(
            f"{PAPER} 4.6",
            "In some task, a whole layer can be disabled with a gain",
            f"largest gain without a layer with p < {ALPHA} over the number of layers and tasks "
            "(McNemar), percentage points; 0 where there is none",
            _largest_gain,
            threshold=0,
            paper=paper["largest gain without a layer"],
        ),
    ]


def _of_learned(tables: Tables, rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the tasks that are learned beyond both of their baselines."""
    accuracy = rows_of(tables, "fine_tuning", "task", "start", "learned")
    own = accuracy[(accuracy["start"] == PRETRAINED) & accuracy["learned"].astype(bool)]
    found = rows[rows["task"].isin(own["task"])]
    if found.empty:
        raise NotMeasurable("no task is learned beyond what its words give away")
    return found


def _class_shares(tables: Tables, pattern: str) -> pd.DataFrame:
    """Return a pattern's corrected share and its interval, by fine-tuned task."""
    columns = ["share", "ci_low", "ci_high"]
    rows = rows_of(tables, "pattern_shares", "task", "weights", "pattern", *columns)
    tuned = rows[(rows["weights"] == AFTER) & (rows["pattern"] == pattern)]
    return _of_learned(tables, tuned)[columns]


def _heads_with_links(tables: Tables) -> int:
    return len(linked_heads(rows_of(tables, "semantic_links", "difference", "ci_low")))


def _last_layers_change_most(tables: Tables) -> float:
    rows = rows_of(tables, "finetuning_similarity", "task", "layer", "similarity")
    by_task = _of_learned(tables, rows).pivot_table(
        index="task", columns="layer", values="similarity"
    )
    count = max(1, round(LAST_PART * by_task.columns.max()))
    last = by_task.columns > by_task.columns.max() - count
    if last.all():
        raise NotMeasurable("one layer has no last part")
    return (by_task.loc[:, last].mean(axis=1) < by_task.loc[:, ~last].min(axis=1)).mean()


def _accuracies(tables: Tables, column: str = "accuracy") -> pd.DataFrame:
    """Return test accuracies by task and start."""
    rows = rows_of(tables, "fine_tuning", "task", "start", column)
    found = _of_learned(tables, rows).pivot(index="task", columns="start", values=column)
    if not {"pretrained", "random"} <= set(found):
        raise NotMeasurable("fine_tuning: one of the two starts is missing")
    return found


def _pretraining(tables: Tables) -> Estimate:
    value, low, high = (_accuracies(tables, name) for name in ("accuracy", "ci_low", "ci_high"))
    own, random = "pretrained", "random"
    return Estimate(
        (value[own] - value[random]).min(),
        (low[own] - high[random]).min(),
        (high[own] - low[random]).min(),
    )


def _over_uniform(tables: Tables, prefix: str) -> pd.DataFrame:
    """Return shares of attention by task, each divided by that of uniform attention."""
    columns = {f"{prefix}{name}": name for name in FEATURES}
    rows = rows_of(tables, "token_features", "task", "weights", *columns)
    rows = rows[["task", "weights", *columns]].rename(columns=columns)
    uniform = rows.loc[rows["weights"] == UNIFORM, list(FEATURES)].mean()
    tuned = _of_learned(tables, rows[rows["weights"] == AFTER]).groupby("task")[list(FEATURES)]
    shares = tuned.mean()
    special = list(SPECIAL)
    if shares[special].isna().any(axis=None):
        raise NotMeasurable("a model without [CLS] or [SEP]")
    together = shares[special].sum(axis=1) / uniform[special].sum()
    return (shares / uniform).assign(special=together)


def _special_over_words(tables: Tables) -> float:
    ratios = _over_uniform(tables, "")
    return (ratios["special"] - ratios[list(WORDS)].max(axis=1)).min()


def _sep_from_cls(tables: Tables) -> float:
    ratios = _over_uniform(tables, FROM_CLS)
    return (ratios["sep"] > ratios[list(WORDS)].max(axis=1)).mean()


def _disabled(tables: Tables, *columns: str, whole: bool) -> pd.DataFrame:
    rows = rows_of(tables, "disabling", "task", "layer", "head", "change", "p_value", *columns)
    return _of_learned(tables, rows[(rows["head"] == WHOLE_LAYER) == whole])


def _largest_gain(tables: Tables) -> float:
    rows = _disabled(tables, whole=True)
    sure = rows.loc[rows["p_value"] * len(rows) < ALPHA, "change"]
    return max([0.0, *sure])


def _single(tables: Tables, *columns: str) -> pd.DataFrame:
    return _disabled(tables, *columns, whole=False)


def _corrected(tables: Tables) -> pd.Series:
    """Return the p-values of single heads, times the number of heads of a task (Bonferroni)."""
    rows = _single(tables)
    return rows["p_value"] * rows.groupby("task")["p_value"].transform("size")
