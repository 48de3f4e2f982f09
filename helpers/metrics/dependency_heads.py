"""Single attention heads as syntactic classifiers: Table 1 of the paper (section 4.2)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from helpers.data.links import POSSESSIVE_RELATIONS, read_links
from helpers.data.records import cluster_of
from helpers.metrics.head_counts import OFFSETS, HeadCounts
from helpers.metrics.heads import (
    DIRECTIONS,
    Direction,
    by_dependent,
    head_label,
    head_rows,
    is_right,
    parse_head,
    picked_words,
    sees_answer,
)
from helpers.metrics.reference import ALL, paper_names, paper_table1, relation_table, scheme_of
from helpers.metrics.statistics import (
    DRAWS,
    LEVEL,
    Clusters,
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
    weighted_ratios,
)
from helpers.store.store import Example

COLUMNS = (
    "relation", "count", "head", "direction", "accuracy", "accuracy_low", "accuracy_high",
    "baseline", "baseline_offset", "paper_head", "paper_accuracy", "paper_baseline", "p_best",
)  # fmt: skip
OF_HEAD = ["relation", "head", "direction"]
HELD_OUT_COLUMNS = (
    *OF_HEAD, "train_accuracy", "dev_accuracy", "dev_accuracy_low", "dev_accuracy_high",
    "dev_accuracy_df", "train_count", "dev_count", "baseline", "baseline_offset", "margin",
    "margin_low", "margin_high", "margin_df", "p_holm",
)  # fmt: skip
# Quantities of `relation_summary`.
MEAN_MARGIN = "mean margin"
MEAN_MARGIN_IN_PAPER = "mean margin over the paper's relations"
SLIGHT_SHARE = "share with a slight margin"
DEPENDENTS_SHARE = "share whose dependents attend to heads"
LARGEST_MARGIN_IN_PAPER = "largest margin of the paper's relations"
SLIGHT_MARGIN = 5  # percentage points
SLIGHT_THRESHOLD = 0.25  # of the claim about `SLIGHT_SHARE`
DEPENDENTS_THRESHOLD = 2 / 3  # of the claim about `DEPENDENTS_SHARE`
FROM_POSSESSIVES = "possessives from the 's, beyond the next word"
LITTLE_CHANGE = "share of heads that special tokens change little"
LITTLE = 5  # percentage points
WITH_FUNCTION = "heads with a function"  # the last row of `no_op_table`
FUNCTION_MARGIN = 10  # percentage points


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
          `helpers.metrics.reference.relation_table` gives;
        - ``p_best``: p-value of the best head against that offset, corrected for the selection
          among all heads and both directions.
    """
    rows = []
    for relation in counts.frequent(minimum):
        row = _score_best(counts, counts, relation, minimum, column="accuracy")
        offsets = _best_offsets(counts, relation)
        is_frequent = counts.visible_size(relation) >= max(minimum, 1)
        _, p_best = bootstrap_t_test(_leads(counts, relation, offsets)[:, is_frequent])
        rows.append({**row, "p_best": p_best})
    names = paper_names(counts.names)
    in_paper = paper_table1().add_prefix("paper_")
    in_paper = in_paper.reindex(names.get(row["relation"]) for row in rows).reset_index()
    return pd.concat([pd.DataFrame(rows), in_paper], axis=1).reindex(columns=COLUMNS)


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
    train = counts.of_split("train")
    dev = counts.of_split("dev")
    rows = []
    for relation in _frequent_in_both(train, dev, minimum):
        row = _score_best(train, dev, relation, minimum, column="dev_accuracy")
        direction, layer, _ = _head_index(dev, row)
        rows.append(
            {
                **row,
                "train_accuracy": np.nanmax(train.accuracy(relation, minimum=minimum)),
                "train_count": train.visible_size(relation)[direction, layer],
                "dev_count": row["count"],
            }
        )
    table = pd.DataFrame(rows, columns=[*HELD_OUT_COLUMNS, "p_value"])
    table["p_holm"] = holm(table.pop("p_value"))
    return table


def universal_relations(counts: HeadCounts, *, minimum: int) -> pd.DataFrame:
    """Score every attention head by the universal parts of relations: ``nsubj:pass`` is ``nsubj``.

    With this table of several treebanks, the command ``compare`` scores the head that one of them
    chooses on the others.

    Parameters
    ----------
    counts : HeadCounts
        What `helpers.metrics.head_counts.count_heads` returns for Universal Dependencies.
    minimum : int
        Number of words that a relation needs in train.  It also needs a word in dev.

    Returns
    -------
    DataFrame
        A row for each relation, direction and head: ``train_accuracy`` in percent, and ``margin``,
        the accuracy on dev minus that of the fixed offset that is best on train, in percentage
        points.  At least one relation has to be frequent.
    """
    parts = [name.partition(":")[0] for name in counts.names]
    names, indices = np.unique(parts, return_inverse=True)
    counts = replace(counts, names=tuple(names), relation=indices[counts.relation])
    scores = _score_every_head(counts, minimum)
    return scores[["layer", "head", "direction", "relation", "train_accuracy", "margin"]]


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

        - `MEAN_MARGIN` and `MEAN_MARGIN_IN_PAPER`: the mean margin over the offset in percentage
          points, over all relations and over those of the paper's Table 1;
        - `LARGEST_MARGIN_IN_PAPER`: the largest margin of the latter, with bounds that allow for
          the choice;
        - `SLIGHT_SHARE`: the share of all relations with a margin of at most `SLIGHT_MARGIN` in
          either direction;
        - `DEPENDENTS_SHARE`: the share of the paper's relations except pobj whose dependents
          attend to their heads.  A mask that hides later words decides this, so there is no such
          row.
    """
    single = held_out[held_out["relation"] != ALL]
    if single.empty:
        return pd.DataFrame(columns=["quantity", *Estimate(0).columns("value", df=True)])
    names = single["relation"].map(paper_names(counts.names))
    in_paper = names.isin(paper_table1().index).to_numpy()
    leads, totals = _leads_of_heads(counts.of_split("dev"), single)
    rows = {
        MEAN_MARGIN: weighted_ratios(leads, totals).columns("value", df=True),
        SLIGHT_SHARE: _slight_share(leads, totals),
    }
    if in_paper.any():
        in_paper_only = (leads[:, in_paper], totals[:, in_paper])
        rows[MEAN_MARGIN_IN_PAPER] = weighted_ratios(*in_paper_only).columns("value", df=True)
        rows[LARGEST_MARGIN_IN_PAPER] = _largest_margin(*in_paper_only).columns("value", df=True)
    is_other = in_paper & (names != "pobj").to_numpy()
    train = counts.of_split("train")
    if is_other.any() and _sees_both_ways(train):
        rows[DEPENDENTS_SHARE] = _dependents_share(train, single[is_other])
    return pd.DataFrame([{"quantity": quantity, **row} for quantity, row in rows.items()])


def _leads_of_heads(dev: HeadCounts, held_out: pd.DataFrame) -> tuple[Clusters, Clusters]:
    """Sum by how much held-out heads lead their offsets, in percent of words, and the words.

    Both have a row for each article and a column for each relation.
    """
    leads = []
    totals = []
    for row in held_out.to_dict("records"):
        relation = row["relation"]
        direction, layer, head = _head_index(dev, row)
        is_offset = row["baseline_offset"] == OFFSETS
        at_offset = dev.offset_right[:, direction, layer, is_offset][:, 0]
        right = dev.right[:, direction, layer, head]
        lead = right.astype(int) - at_offset
        leads.append(100 * dev.by_article(lead, relation))
        totals.append(dev.by_article(dev.visible_total[:, direction, layer], relation))
    return np.column_stack(leads), np.column_stack(totals)


def _largest_margin(leads: Clusters, totals: Clusters) -> Estimate:
    """Estimate the largest margin of some relations, with bounds that allow for the choice.

    The bounds are the largest of those of all relations, each with a share of the 5% (Bonferroni).
    """
    margins = divide(leads.sum(axis=0), totals.sum(axis=0))
    level = 1 - (1 - LEVEL) / len(margins)
    n_articles = effective_clusters(totals)
    low, high = percentiles(resampled_ratios(leads, totals, DRAWS), n_articles, level)
    return Estimate(margins.max(), low.max(), high.max(), df=n_articles[margins.argmax()] - 1)


def _slight_share(leads: Clusters, totals: Clusters) -> dict[str, Any]:
    """Estimate the share of relations whose head is close to its offset, in either direction."""
    margins = divide(leads.sum(axis=0), totals.sum(axis=0))
    is_slight = np.abs(margins) <= SLIGHT_MARGIN
    slight_in_resamples = np.abs(resampled_ratios(leads, totals, DRAWS)) <= SLIGHT_MARGIN
    n_articles = effective_clusters_of_ratios(totals, np.ones(len(margins)))
    return _share(is_slight, slight_in_resamples, n_articles, SLIGHT_THRESHOLD)


def _dependents_share(train: HeadCounts, held_out: pd.DataFrame) -> dict[str, Any]:
    """Estimate the share of relations whose head is read from dependent to parent.

    Every resample of the train articles chooses heads again.
    """
    attends = (held_out["direction"] == DIRECTIONS[0]).to_numpy()
    in_resamples = []
    for relation in held_out["relation"]:
        right = train.by_article(train.right, relation)
        total = train.by_article(train.visible_total, relation)[..., None]
        accuracy = np.nan_to_num(resampled_ratios(right, total, DRAWS))
        in_resamples.append(accuracy.max(axis=(2, 3)).argmax(axis=1) == 0)
    n_articles = effective_clusters(train.by_article(train.total, ALL))
    return _share(attends, np.column_stack(in_resamples), n_articles, DEPENDENTS_THRESHOLD)


def _share(
    marks: Bool[np.ndarray, " relation"],
    in_resamples: Bool[np.ndarray, "resample relation"],
    n_articles: Real,
    threshold: float,
) -> dict[str, Any]:
    """Estimate the share of relations that are marked; its p-value counts resamples.

    Shares take few values, so that Student's t would not suit.
    """
    shares = in_resamples.mean(axis=1)
    share = bootstrap_estimate(marks.mean(), shares, n_articles).columns("value", df=True)
    on_fewer_side = min((shares <= threshold).sum(), (shares >= threshold).sum())
    return {**share, "value_p": min(1.0, 2 * (on_fewer_side + 1) / (len(shares) + 1))}


def _head_index(counts: HeadCounts, row: Mapping[str, Any]) -> tuple[int, int, int]:
    """Read the direction, the layer and the head of a row as indices, all from 0."""
    return (DIRECTIONS.index(row["direction"]), *parse_head(row["head"], counts.layer_numbers))


def _sees_both_ways(counts: HeadCounts) -> bool:
    """Whether as many words count in one direction as in the other."""
    return np.array_equal(counts.visible_total[:, 0], counts.visible_total[:, 1])


def each_head(counts: HeadCounts, *, minimum: int) -> pd.DataFrame:
    """Score every attention head on the relation that it does best.

    The relation and the direction are chosen on train: those for which the head is furthest above
    the best fixed offset of the relation.  They are scored on dev.

    Parameters
    ----------
    counts : HeadCounts
        What `helpers.metrics.head_counts.count_heads` returns.
    minimum : int
        Number of words that a relation needs in train.

    Returns
    -------
    DataFrame
        A row for each head: ``layer`` and ``head`` (from 1), ``relation``, ``direction``,
        ``accuracy`` in percent, and ``margin`` over the offset in percentage points.  Only
        ``layer`` and ``head`` if no relation is frequent enough; these are empty in a layer in
        which none is.
    """
    heads = head_rows(*counts.right.shape[2:], numbers=counts.layer_numbers)
    scores = _score_every_head(counts, minimum).query("relation != @ALL")
    if scores.empty:
        return heads
    best = scores.groupby(["layer", "head"])["train_margin"].idxmax()
    columns = ["layer", "head", "relation", "direction", "accuracy", "margin"]
    return heads.merge(scores.loc[best, columns], how="left")


def _score_every_head(counts: HeadCounts, minimum: int) -> pd.DataFrame:
    """Score every attention head on every frequent relation, in both directions.

    Returns
    -------
    DataFrame
        ``relation``, ``direction``, ``layer`` and ``head`` (from 1); ``train_accuracy`` and, on
        dev, ``accuracy`` in percent; ``train_margin`` and ``margin`` over the fixed offset that is
        best on train, in percentage points.  There is no row where fewer than ``minimum`` words
        of train count.
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
            baseline = np.take_along_axis(sentences.offset_accuracy(relation), offsets, axis=-1)
            table[f"{prefix}accuracy"] = accuracy.ravel()
            table[f"{prefix}margin"] = (accuracy - baseline).ravel()
        is_enough = ~np.isnan(train.accuracy(relation, minimum=minimum)).ravel()
        tables.append(table[is_enough].assign(relation=relation))
    return pd.concat(tables, ignore_index=True)


def no_op_table(examples: Iterable[Example], held_out: pd.DataFrame) -> pd.DataFrame:
    """Compare a head's attention to special tokens with and without its relation (section 3.2).

    The paper suggests that a head with a function attends to special tokens where the function does
    not apply.  The difference does not show this: words without the relation are mostly of another
    part of speech, and within one part of speech it vanishes in MiniLM (-0.009, -0.024 to 0.017).
    Therefore no claim reads this table.

    Parameters
    ----------
    examples : iterable of Example
        Word-level maps of a treebank; only dev is read.
    held_out : DataFrame
        What `held_out_heads` returns.

    Returns
    -------
    DataFrame
        A row for each of its heads, except that of "All".  Columns:

        - ``relation``, ``head``, ``direction``;
        - ``count``: number of words of dev that the relation is read from;
        - ``with``: share of the attention of these words that special tokens get, of what is left
          without that to the words which the relation leads to.  A head that finds its relation has
          less attention for all others, which says nothing about special tokens;
        - ``without``: the same from words that none of the head's relations is read from, which
          have nothing to subtract;
        - ``difference``: ``without`` minus ``with``.

        The last row, `WITH_FUNCTION`, has the means over the relations whose head has a function:
        its margin over the offset is above `FUNCTION_MARGIN` percentage points, and ``p_holm``
        below 0.05.  There is no such row without such a relation.  Shares have 95% bootstrap
        intervals over articles.  There is no row if the model has no special tokens.
    """
    held_out = held_out[held_out["relation"] != ALL]
    rows = held_out[OF_HEAD]
    if rows.empty:
        return rows
    sums = _sum_by_article(examples, partial(_special_token_sums, rows=rows))
    if not sums[:, [0, 2]].any():  # no special tokens
        return rows.iloc[:0]
    groups = [(row, [number]) for number, row in enumerate(rows.to_dict("records"))]
    has_function = (held_out["margin"] > FUNCTION_MARGIN) & (held_out["p_holm"] < 0.05)
    if has_function.any():
        groups.append(({"relation": WITH_FUNCTION}, np.flatnonzero(has_function).tolist()))
    table = []
    for labels, indices in groups:
        with_relation, rest, without, count_without, count_with = np.moveaxis(
            sums[..., indices], 1, 0
        )  # each [article, relation]
        values = np.hstack([without, with_relation])
        totals = np.hstack([count_without, rest])
        signs = np.repeat([1, -1], len(indices)) / len(indices)
        row = {**labels, "count": int(count_with.sum())}
        row |= weighted_ratios(with_relation, rest).columns("with")
        row |= weighted_ratios(without, count_without).columns("without")
        row |= weighted_ratios(values, totals, signs).columns("difference", df=True)
        table.append(row)
    return pd.DataFrame(table)


def _sum_by_article(
    examples: Iterable[Example], sums_of: Callable[[Example], np.ndarray]
) -> Clusters:
    """Sum a function's arrays over the dev sentences of each article."""
    by_article: defaultdict[str, Any] = defaultdict(int)
    for example in examples:
        if example.record.get("split") == "dev":
            by_article[cluster_of(example.record, example.index)] += sums_of(example)
    return np.array(list(by_article.values()))


def _special_token_sums(example: Example, rows: pd.DataFrame) -> Float[np.ndarray, "part row"]:
    """Sum attention to special tokens over the words of a sentence, for the head of each row.

    The parts: attention from the words that the relation is read from to special tokens, and to all
    but the words that it leads to; attention from the words that none of the head's relations is
    read from to special tokens, and their number; and the number of the former words.
    """
    links = read_links(example.record)
    words = example.word_positions
    n_words = links.gold.shape[1]
    is_with = []
    to_answers = []
    to_special = []
    for row in rows.itertuples():
        weights = example.stored_attention[parse_head(row.head, example.layer_numbers)][
            words
        ].astype(np.float32)
        is_asked = links.relation == row.relation
        leads_to = np.zeros((n_words, n_words), dtype=bool)  # [dependent, parent]
        leads_to[links.word[is_asked]] = links.gold[is_asked]
        leads_to = by_dependent(leads_to, row.direction)  # [query, answer]
        is_with.append(leads_to.any(axis=1))
        to_answers.append((weights[:, words] * leads_to).sum(axis=1))
        to_special.append(weights[:, ~example.is_word].sum(axis=1))
    is_with, to_answers, to_special = map(np.array, (is_with, to_answers, to_special))
    labels = rows["head"].to_numpy()
    is_without = ~((labels[:, None] == labels) @ is_with)
    parts = (
        to_special * is_with, (1 - to_answers) * is_with, to_special * is_without, is_without,
        is_with,
    )  # fmt: skip
    return np.array([part.sum(axis=1) for part in parts])


def possessive_summary(examples: Iterable[Example], held_out: pd.DataFrame) -> pd.DataFrame:
    """Compare reading the head of possessives from the 's and from the possessor (section 4.2).

    Parameters
    ----------
    examples : iterable of Example
        Word-level maps of a treebank; only dev is read.
    held_out : DataFrame
        What `held_out_heads` returns.

    Returns
    -------
    DataFrame
        The row `FROM_POSSESSIVES` of `relation_summary`, or none without a possessor that has an
        's.  Its value is the accuracy in percent from the 's minus that from the possessor, minus
        the same difference of a fixed offset of +1: from the possessor this offset finds the 's, so
        it is never right.  The interval is over articles.
    """
    columns = ["quantity", *Estimate(0).columns("value", df=True)]
    chosen = held_out.loc[held_out["relation"].isin(POSSESSIVE_RELATIONS), OF_HEAD].head(1)
    if chosen.empty:
        return pd.DataFrame(columns=columns)
    (row,) = chosen.to_dict("records")
    sums = _sum_by_article(examples, partial(_possessive_sums, **row))
    mark, possessor, next_word, count = sums.T  # each [article]
    if not count.any():
        return pd.DataFrame(columns=columns)
    gain = ratio(100 * (mark - possessor - next_word), count)
    return pd.DataFrame([{"quantity": FROM_POSSESSIVES, **gain.columns("value", df=True)}])


def _possessive_sums(
    example: Example, *, relation: str, head: str, direction: Direction
) -> Int[np.ndarray, " sum"]:
    """Count right picks from the 's, from the possessor, and of the word after the 's; and all."""
    layer_and_head = parse_head(head, example.layer_numbers)
    words = example.word_positions
    weights = example.stored_attention[layer_and_head].astype(np.float32)[words, words]
    visible = example.visible_keys[layer_and_head[0], words, words]
    from_mark = read_links(example.record)
    from_possessor = from_mark._replace(query=from_mark.word)
    counts = (from_mark.relation == relation) & (from_mark.query != from_mark.word)
    right = []
    for links in (from_mark, from_possessor):
        counts &= sees_answer(links, visible, direction)
        picked = picked_words(weights, links.query, direction=direction, visible=visible)
        right.append(is_right(picked, links))
    right.append(is_right(from_mark.query + 1, from_mark))
    return np.array([marks[counts].sum() for marks in (*right, counts)])


def special_token_summary(counts: HeadCounts) -> pd.DataFrame:
    """Compute how many heads find as many words if they may pick special tokens (footnote 2).

    Parameters
    ----------
    counts : HeadCounts
        What `helpers.metrics.head_counts.count_heads` returns.

    Returns
    -------
    DataFrame
        The row `LITTLE_CHANGE` of `relation_summary`: the share of all heads whose accuracy over
        all words, in their better direction, falls by at most `LITTLE` percentage points.  It is
        exact, because these are all heads of the model.  There is no row if no accuracy changes,
        because the sentences have no special tokens.
    """
    accuracy = counts.accuracy(ALL)
    with_special = 100 * counts.right_with_special.sum(axis=0) / counts.visible_size(ALL)[..., None]
    better = accuracy.argmax(axis=0)[None]  # [1, layer, head]
    change = np.take_along_axis(with_special - accuracy, better, axis=0)
    if not change.any():
        return pd.DataFrame(columns=["quantity", "value", "value_low", "value_high"])
    share = (change >= -LITTLE).mean()
    row = {"quantity": LITTLE_CHANGE, "value": share, "value_low": share, "value_high": share}
    return pd.DataFrame([row])


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
    rows = table[table["paper_accuracy"].notna()]
    correspondence = relation_table()
    is_of_scheme = correspondence["scheme"] == scheme_of(table["relation"])
    fit_by_relation = correspondence[is_of_scheme].set_index("relation")["fit"]
    fits = rows["relation"].map(fit_by_relation)
    return rows.assign(fit=fits.astype(object).fillna("exact"))


def _frequent_in_both(train: HeadCounts, dev: HeadCounts, minimum: int) -> list[str]:
    """List the relations that are frequent enough in train and occur in dev."""
    return [name for name in train.frequent(minimum) if dev.visible_size(name).any()]


def _score_best(
    chosen_on: HeadCounts, scored_on: HeadCounts, relation: str, minimum: int, *, column: str
) -> dict[str, Any]:
    """Choose the head and the offset that are most accurate in some sentences; score in others.

    The result is the part of a row that two tables share.  ``column`` has the accuracy of the head,
    and ``p_value`` is that of a margin above zero.
    """
    accuracy = chosen_on.accuracy(relation, minimum=minimum)
    direction, layer, head = np.unravel_index(np.nanargmax(accuracy), accuracy.shape)
    offsets = _best_offsets(chosen_on, relation)
    offset = offsets[direction, layer]
    leads = _leads(scored_on, relation, offsets)[:, direction, layer, head]
    total = scored_on.by_article(scored_on.visible_total[:, direction, layer], relation)
    _, p_value = bootstrap_t_test(leads)
    return {
        "relation": relation,
        "count": scored_on.visible_size(relation)[direction, layer],
        "head": head_label(layer, head, chosen_on.layer_numbers),
        "direction": DIRECTIONS[direction],
        **ratio(*scored_on.right_of_head(relation, (direction, layer, head))).columns(
            column, df=True
        ),
        "baseline": scored_on.offset_accuracy(relation)[direction, layer, offset],
        "baseline_offset": OFFSETS[offset],
        **ratio(100 * leads, total).columns("margin", df=True),
        "p_value": p_value,
    }


def _best_offsets(counts: HeadCounts, relation: str) -> Int[np.ndarray, "direction layer"]:
    """Choose the offset that is most accurate on the words that count in a layer and direction."""
    return np.nan_to_num(counts.offset_accuracy(relation)).argmax(axis=-1)


def _leads(
    counts: HeadCounts, relation: str, offsets: Int[np.ndarray, "direction layer"]
) -> Int[np.ndarray, "article direction layer head"]:
    """Count by how many words of each article every head is ahead of an offset.

    ``offsets`` are indices into `OFFSETS`, which may differ between layers and directions.
    """
    by_offset = counts.by_article(counts.offset_right, relation)
    right_at_offset = np.take_along_axis(by_offset, offsets[None, ..., None], axis=-1)
    return counts.by_article(counts.right, relation) - right_at_offset
