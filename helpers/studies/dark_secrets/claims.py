"""The claims of Kovaleva et al. (2019), *Revealing the Dark Secrets of BERT*.

A task counts where the fine-tuned model beats its most frequent label and a bag of words beyond
its interval: what is shown for any other is what training on noise does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import pandas as pd

from helpers.analysis.heads import by_head
from helpers.analysis.paper import Claim, Measure, NotMeasurable, Tables, read_claims, rows_of
from helpers.analysis.statistics import Estimate, difference, mean_interval, share_of
from helpers.studies import tasks
from helpers.studies.dark_secrets.fine_tuning import FROM_CLS, SPECIAL, UNIFORM, WHOLE_LAYER, WORDS
from helpers.studies.dark_secrets.links import ALPHA, linked_heads
from helpers.studies.dark_secrets.patterns import ANY_COLUMN, SPECIAL_COLUMN

LAST_PART = 1 / 6  # of the layers: the last two of BERT's twelve


def finetuning_claims() -> list[Claim]:
    """Return the claims about patterns, fine-tuning, semantic links and disabled heads."""
    return read_claims(__file__, MEASURES)


def heads_with_links(tables: Tables, *, share: bool) -> int | Estimate:
    """Return how many heads attend along links beyond chance, or their share."""
    rows = rows_of(tables, "semantic_links", "p_holm")
    found = len(linked_heads(rows))
    return share_of(found, len(rows)) if share else found


def last_layers_change_most(tables: Tables) -> Estimate:
    """Return by how much maps of the last layers are more alike than those of any other layer.

    In the task where that is most; the layer to compare with is chosen once, from all heads.
    """
    rows, found = tasks.learned_rows(tables, "finetuning_similarity", "layer", "similarity"), []
    for _, own in rows.groupby("task"):
        similarity = by_head(own, "similarity")  # [layer, head]
        part = max(1, round(LAST_PART * len(similarity)))
        if part == len(similarity):
            raise NotMeasurable("one layer has no last part")
        lowest = similarity[:-part].mean(axis=1).argmin()
        last, other = mean_interval(similarity[-part:].ravel()), mean_interval(similarity[lowest])
        found.append(difference(last, other))
    return max(found)


def gain_of_pretraining(tables: Tables) -> Estimate:
    """Return the smallest difference of accuracy to a model from random weights."""
    rows = tasks.learned_rows(tables, "fine_tuning", "start", "accuracy", "ci_low", "ci_high")
    by_start = {start: own.set_index("task") for start, own in rows.groupby("start")}
    if tasks.RANDOM not in by_start:
        raise NotMeasurable("fine_tuning: nothing was fine-tuned from random weights")
    own, random = by_start[tasks.PRETRAINED], by_start[tasks.RANDOM]
    ends = ("accuracy", "accuracy"), ("ci_low", "ci_high"), ("ci_high", "ci_low")
    return Estimate(*((own[a] - random[b]).min() for a, b in ends))


def special_over_words(tables: Tables) -> Estimate:
    """Return by how much special tokens exceed words, as multiples of uniform attention."""
    return min(_over_words(tables, "", SPECIAL))


def sep_from_cls(tables: Tables) -> Estimate:
    """Return by how much [CLS] attends to [SEP] more than to words: at least that in most tasks."""
    found = sorted(_over_words(tables, FROM_CLS, SPECIAL[1:]))
    return found[(len(found) - 1) // 2]


def heads_with_gain(tables: Tables) -> int:
    """Return how many heads can be disabled with a gain beyond chance (Bonferroni, by task)."""
    rows = _single_heads(tables, "disabling", "change", "p_value")
    corrected = rows["p_value"] * rows.groupby("task")["p_value"].transform("size")
    return ((rows["change"] > 0) & (corrected < ALPHA)).sum()


def largest_gain(tables: Tables) -> float:
    """Return the largest gain without a layer that is beyond chance, in points, or 0."""
    rows = tasks.learned_rows(tables, "disabling", "head", "change", "p_value")
    rows = rows[rows["head"] == WHOLE_LAYER]
    sure = rows.loc[rows["p_value"] * len(rows) < ALPHA, "change"]
    return max([0.0, *sure])


def _over_words(tables: Tables, rows_from: str, tokens: Sequence[str]) -> Iterator[Estimate]:
    """Yield by how much some special tokens exceed words, by task, with intervals over heads.

    Both as multiples of uniform attention; words are of the kind that gets most, of all heads.
    """
    special, words, chosen = ([rows_from + kind for kind in of] for of in (SPECIAL, WORDS, tokens))
    rows = tasks.learned_rows(tables, "token_features", "weights", *special, *words)
    tuned = rows[rows["weights"] == tasks.FINE_TUNED].dropna(subset=special)
    if tuned.empty:
        raise NotMeasurable("a model without [CLS] or [SEP]")
    uniform = tables["token_features"].set_index("weights").loc[UNIFORM]
    for _, own in tuned.groupby("task"):
        ratios = own[words] / uniform[words]
        to_tokens = own[chosen].sum(axis=1) / uniform[chosen].sum()
        yield mean_interval(to_tokens - ratios[ratios.mean().idxmax()])


def _single_heads(tables: Tables, table: str, *columns: str) -> pd.DataFrame:
    rows = tasks.learned_rows(tables, table, "head", *columns)
    return rows[rows["head"] != WHOLE_LAYER]


_shares = partial(tasks.worst, table="pattern_shares", column="share", weights=tasks.FINE_TUNED)
MEASURES: dict[str, Measure] = {
    "fewest columns": partial(_shares, pattern=ANY_COLUMN),
    "special columns": partial(_shares, pattern=SPECIAL_COLUMN),
    "heads with links": partial(heads_with_links, share=False),
    "share with links": partial(heads_with_links, share=True),
    "last layers change": last_layers_change_most,
    "pretraining": gain_of_pretraining,
    "special over words": special_over_words,
    "sep from cls": sep_from_cls,
    "heads with gain": heads_with_gain,
    "removable heads": partial(
        tasks.smallest_share, table="disabling", column="removable", of=_single_heads
    ),
    "layer with gain": largest_gain,
}
