"""Single attention heads as syntactic classifiers: Table 1 of the paper (section 4.2)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from helpers.metrics.head_counts import OFFSETS, HeadCounts
from helpers.metrics.heads import DIRECTIONS, head_indices, head_label, head_rows
from helpers.metrics.reference import ALL, paper_names, paper_table1, relation_table, scheme_of
from helpers.metrics.statistics import (
    DRAWS,
    LEVEL,
    Estimate,
    Real,
    bootstrap_estimate,
    bootstrap_t_test,
    divide,
    effective_clusters,
    effective_clusters_of_ratios,
    holm,
    percentiles,
    ratio,
    resampled_ratios,
    summary_table,
    weighted_ratios,
)

COLUMNS = [
    "relation", "count", "head", "direction", "accuracy", "accuracy_low", "accuracy_high",
    "baseline", "baseline_offset", "paper_head", "paper_accuracy", "paper_baseline",
]  # fmt: skip
HELD_OUT_COLUMNS = [
    "relation", "head", "direction", "train_accuracy", "dev_accuracy", "dev_accuracy_low",
    "dev_accuracy_high", "dev_accuracy_df", "train_count", "dev_count", "baseline",
    "baseline_offset", "margin", "margin_low", "margin_high", "margin_df", "p_holm",
]  # fmt: skip
SLIGHT_MARGIN = 5  # percentage points
LITTLE = 5  # percentage points
FUNCTION_MARGIN = 10  # percentage points, of a head that has a function


def dependency_heads(counts: HeadCounts, *, minimum: int) -> pd.DataFrame:
    """Compute Table 1 as in the paper: the best head of each relation, scored where it is best.

    The interval does not take into account that the head was chosen on the same words:
    `held_out_heads` has the figures to argue with.

    Parameters
    ----------
    counts : HeadCounts
        What `helpers.metrics.head_counts.count_heads` returns.
    minimum : int
        Number of words that a relation needs.

    Returns
    -------
    DataFrame
        A row for each relation except the root, "All" first, then by number of words.  Columns:

        - ``relation``, ``count``, ``head``, ``direction``; the count is of the words whose
          syntactic head can be picked in this layer and direction: all with full attention;
        - ``accuracy`` in percent, with a 95% bootstrap interval over articles;
        - ``baseline`` in percent and ``baseline_offset``: the best fixed offset, under the same
          rules;
        - ``paper_head``, ``paper_accuracy`` and ``paper_baseline`` of the Stanford relation that
          `helpers.metrics.reference.relation_table` gives.
    """
    table = _best_heads(counts, counts, minimum).rename(
        columns=lambda name: name.removeprefix("dev_")
    )
    paper_relations = table["relation"].map(paper_names(counts.names))
    in_paper = paper_table1().add_prefix("paper_").reindex(paper_relations)
    return table.join(in_paper.set_index(table.index))[COLUMNS]


def held_out_heads(counts: HeadCounts, *, minimum: int) -> pd.DataFrame:
    """Score single heads on dev; head, direction and fixed offset are chosen on train.

    Parameters
    ----------
    counts : HeadCounts
        What `helpers.metrics.head_counts.count_heads` returns.
    minimum : int
        Number of words that a relation needs in train.  It also needs a word in dev.

    Returns
    -------
    DataFrame
        A row for each relation, with `HELD_OUT_COLUMNS`: accuracies and ``baseline`` in percent;
        ``margin``, the accuracy of the head minus that of the offset on the same words of dev, in
        percentage points, with a 95% bootstrap interval over articles; ``p_holm``, the p-value of
        a margin above zero, adjusted for the number of relations.

    Raises
    ------
    InputError
        If the treebank has no train or no dev split.
    """
    table = _best_heads(counts.of_split("train"), counts.of_split("dev"), minimum)
    return table.assign(p_holm=holm(table["p_holm"]))


def _best_heads(train: HeadCounts, dev: HeadCounts, minimum: int) -> pd.DataFrame:
    """Choose head and offset of each relation in some sentences, and score them in others.

    The columns are those of `held_out_heads`; the p-values are not adjusted yet.
    """
    rows = []
    for relation in _frequent_in_both(train, dev, minimum):
        train_accuracy = train.accuracy(relation, minimum=minimum)
        best = np.unravel_index(np.nanargmax(train_accuracy), train_accuracy.shape)
        direction, layer, head = best
        offset = _best_offsets(train, relation)[direction, layer]
        leads, words = dev.leads_of_head(relation, best, offset)
        accuracy = ratio(*dev.right_of_head(relation, best))
        row = {
            "relation": relation,
            "head": head_label(layer, head, dev.layer_numbers),
            "direction": DIRECTIONS[direction],
            "train_accuracy": train_accuracy[best],
            "train_count": train.visible_size(relation)[direction, layer],
            "dev_count": words.sum(),
            "baseline": dev.rival_accuracy(relation)[direction, layer, offset],
            "baseline_offset": OFFSETS[offset],
            "p_holm": bootstrap_t_test(leads),
        }
        row |= accuracy.columns("dev_accuracy", df=True)
        rows.append(row | ratio(leads, words).columns("margin", df=True))
    return pd.DataFrame(rows, columns=HELD_OUT_COLUMNS)


def _frequent_in_both(train: HeadCounts, dev: HeadCounts, minimum: int) -> list[str]:
    """List the relations that are frequent enough in train and occur in dev."""
    return [name for name in train.frequent(minimum) if dev.visible_size(name).any()]


def _best_offsets(counts: HeadCounts, relation: str) -> Int[np.ndarray, "direction layer"]:
    """Choose the index of the offset that is most accurate, for each layer and direction."""
    return np.nan_to_num(counts.rival_accuracy(relation)).argmax(axis=-1)


def score_every_head(counts: HeadCounts, *, minimum: int) -> pd.DataFrame:
    """Score every attention head on every frequent relation, in both directions.

    Parameters
    ----------
    counts : HeadCounts
        What `helpers.metrics.head_counts.count_heads` returns.
    minimum : int
        Number of words that must count in train, in a layer and direction.

    Returns
    -------
    DataFrame
        A row for each relation, direction and head: ``layer`` and ``head`` (from 1),
        ``direction``, ``relation``; ``train_accuracy`` and, on dev, ``accuracy`` in percent;
        ``train_margin`` and ``margin`` over the fixed offset that is best on train, in percentage
        points.
    """
    train = counts.of_split("train")
    dev = counts.of_split("dev")
    heads = head_rows(*counts.right.shape[2:], numbers=counts.layer_numbers)
    tables = [heads.head(0).assign(relation="", direction="")]  # without relations, no rows
    for relation in _frequent_in_both(train, dev, minimum):
        offsets = _best_offsets(train, relation)[..., None]
        table = pd.concat([heads.assign(direction=name) for name in DIRECTIONS])
        for sentences, prefix in ((train, "train_"), (dev, "")):
            accuracy = sentences.accuracy(relation)  # [direction, layer, head]
            baseline = np.take_along_axis(sentences.rival_accuracy(relation), offsets, axis=-1)
            table[f"{prefix}accuracy"] = accuracy.ravel()
            table[f"{prefix}margin"] = (accuracy - baseline).ravel()
        is_enough = ~np.isnan(train.accuracy(relation, minimum=minimum)).ravel()
        tables.append(table[is_enough].assign(relation=relation))
    return pd.concat(tables, ignore_index=True)


def relation_summary(counts: HeadCounts, held_out: pd.DataFrame) -> pd.DataFrame:
    """Summarise the held-out heads over relations, with bootstrap intervals over articles.

    Parameters
    ----------
    counts : HeadCounts
        What `helpers.metrics.head_counts.count_heads` returns.
    held_out : DataFrame
        What `held_out_heads` returns.

    Returns
    -------
    DataFrame
        Columns ``quantity``, ``value``, ``value_low``, ``value_high``, ``value_df`` and, for shares
        of relations, which take few values, ``value_p``: the p-value of their claim's threshold by
        counting resamples.  "All" counts nowhere.  The last quantity needs articles of train, from
        which a resample chooses heads again, and the others those of dev:

        - "mean margin" and "mean margin over the paper's relations": the mean margin over the
          offset in percentage points, over all relations and over those of the paper's Table 1;
        - "largest margin of the paper's relations", with bounds that allow for the choice;
        - "share with a slight margin": the share of all relations with a margin of at most
          `SLIGHT_MARGIN` in either direction;
        - "share whose dependents attend to heads", among the paper's relations except pobj.  A mask
          that hides later words decides this, so there is no such row.
    """
    single = held_out[held_out["relation"] != ALL]
    if single.empty:
        return summary_table({})
    train = counts.of_split("train")
    dev = counts.of_split("dev")
    offsets = np.searchsorted(OFFSETS, single["baseline_offset"])
    heads = head_indices(single, counts.layer_numbers).T.tolist()
    chosen = zip(single["relation"], heads, offsets, strict=True)
    sums = [dev.leads_of_head(*relation_head_offset) for relation_head_offset in chosen]
    leads, words = np.array(sums).transpose(1, 2, 0)  # each [article, relation]
    margins = divide(leads.sum(axis=0), words.sum(axis=0))
    replicates = resampled_ratios(leads, words, DRAWS)
    n_articles = effective_clusters_of_ratios(words, np.ones(len(margins)))
    is_slight = np.abs(np.vstack([margins, replicates])) <= SLIGHT_MARGIN
    rows = {
        "mean margin": weighted_ratios(leads, words).columns("value", df=True),
        "share with a slight margin": _share(is_slight, n_articles, threshold=0.25),
    }
    names = single["relation"].map(paper_names(counts.names))
    in_paper = names.isin(paper_table1().index).to_numpy()
    if in_paper.any():
        mean = weighted_ratios(leads[:, in_paper], words[:, in_paper])
        largest = largest_of(margins[in_paper], replicates[:, in_paper], words[:, in_paper])
        rows["mean margin over the paper's relations"] = mean.columns("value", df=True)
        rows["largest margin of the paper's relations"] = largest.columns("value", df=True)
    is_other = in_paper & (names != "pobj").to_numpy()
    sees_both_ways = np.array_equal(train.visible_total[:, 0], train.visible_total[:, 1])
    if is_other.any() and sees_both_ways:
        rows["share whose dependents attend to heads"] = _dependents_share(train, single[is_other])
    return pd.DataFrame([{"quantity": quantity, **row} for quantity, row in rows.items()])


def largest_of(
    values: Float[np.ndarray, " relation"],
    replicates: Float[np.ndarray, "resample relation"],
    words: Int[np.ndarray, "article relation"],
) -> Estimate:
    """Estimate the largest of some values, with bounds that allow for the choice.

    The bounds are the largest of those of all values, each with a share of the 5% (Bonferroni).
    """
    level = 1 - (1 - LEVEL) / len(values)
    n_articles = effective_clusters(words)
    low, high = percentiles(replicates, n_articles, level)
    return Estimate(values.max(), low.max(), high.max(), df=n_articles[values.argmax()] - 1)


def _dependents_share(train: HeadCounts, held_out: pd.DataFrame) -> dict[str, Any]:
    """Estimate the share of relations whose head is read from dependent to parent.

    Every resample of the train articles chooses heads again.
    """
    attends = [held_out["direction"] == DIRECTIONS[0]]
    by_relation = []
    for relation in held_out["relation"]:
        right = train.by_article(train.right, relation)
        total = train.by_article(train.visible_total, relation)[..., None]
        accuracy = np.nan_to_num(resampled_ratios(right, total, DRAWS))
        by_relation.append(accuracy.max(axis=(2, 3)).argmax(axis=1) == 0)
    n_articles = effective_clusters(train.by_article(train.total, ALL))
    marks = np.vstack([attends, np.column_stack(by_relation)])
    return _share(marks, n_articles, threshold=2 / 3)


def _share(
    marks: Bool[np.ndarray, "draw relation"], n_articles: Real, *, threshold: float
) -> dict[str, Any]:
    """Estimate the share of relations that are marked, in the data and in resamples of it.

    The p-value counts resamples: shares take few values, so that Student's t would not suit.
    """
    share, *in_resamples = marks.mean(axis=1)
    shares = np.array(in_resamples)
    estimate = bootstrap_estimate(share, shares, n_articles)
    on_fewer_side = min((shares <= threshold).sum(), (shares >= threshold).sum())
    p_value = min(1.0, 2 * (on_fewer_side + 1) / (len(shares) + 1))
    return {**estimate.columns("value", df=True), "value_p": p_value}


def special_token_summary(counts: HeadCounts, with_special: HeadCounts) -> pd.DataFrame:
    """Compute how many heads find as many words if they may pick special tokens (footnote 2).

    Parameters
    ----------
    counts, with_special : HeadCounts
        What `helpers.metrics.head_counts.count_heads` returns, without and with special tokens.

    Returns
    -------
    DataFrame
        A row of `relation_summary`, "share of heads that special tokens change little": the share
        of all heads whose accuracy over all words, in their better direction, falls by at most
        `LITTLE` percentage points.  It is exact, because these are all heads of the model.  There
        is no row if no accuracy changes, because the sentences have no special tokens.
    """
    accuracy = counts.accuracy(ALL)
    better = accuracy.argmax(axis=0)[None]  # [1, layer, head]
    change = np.take_along_axis(with_special.accuracy(ALL) - accuracy, better, axis=0)
    share = (change >= -LITTLE).mean()
    row = {
        "quantity": "share of heads that special tokens change little",
        **Estimate(share, share, share).columns("value"),
    }
    return pd.DataFrame([row] if change.any() else [], columns=list(row))


def beside_paper(table: pd.DataFrame) -> pd.DataFrame:
    """Select the rows of Table 1 that the paper has, and grade how well relations correspond.

    Parameters
    ----------
    table : DataFrame
        What `dependency_heads` returns.

    Returns
    -------
    DataFrame
        These rows.  ``fit`` is how well the corpus's relation corresponds to the paper's ("exact",
        "close", "rough").
    """
    schemes = relation_table()
    of_scheme = schemes[schemes["scheme"] == scheme_of(table["relation"])]
    fits = dict(zip(of_scheme["relation"], of_scheme["fit"], strict=True))
    rows = table.dropna(subset="paper_accuracy")
    return rows.assign(fit=[fits.get(relation, "exact") for relation in rows["relation"]])
