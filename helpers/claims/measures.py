"""The quantity behind each claim of ``claims.csv``, computed from the tables of a run.

A measure takes the tables and returns a number, with its interval where the text is a sample.  In
section 4, heads and offsets are chosen on train and scored on dev.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Literal

import numpy as np
import pandas as pd

from helpers.data.records import PUNCTUATION
from helpers.metrics.heads import DIRECTIONS
from helpers.metrics.paper import (
    ALL,
    ARTICLES,
    BROAD,
    FIGURE_5,
    Claim,
    Measure,
    NotMeasurable,
    Tables,
    column,
    estimate_from_table,
    paper_names,
    paper_table1,
    read_claims,
    row_where,
    rows_of,
    select_or_raise,
    with_bounds,
)
from helpers.metrics.statistics import (
    DRAWS,
    BootstrapEstimate,
    Estimate,
    mean_interval,
    wilson_proportion,
)
from helpers.metrics.surface import layer_resamples

Numbers = float | pd.Series  # one, or one for each resample
Layers = pd.Series | pd.DataFrame  # a number for each layer, or for each layer and resample
Third = Literal["first", "middle", "last"]

SEGMENT_TABLES = ("relative_position", "token_types", "entropy")
MOSTLY = 0.5  # "more than half of their attention"
LITTLE = 0.1  # of their attention
BY_FAR = 20  # percentage points
LITTLE_CHANGE = 5  # percentage points
FEWEST = 5  # heads for a mean
NAMED = ("dobj", "det", "pobj", "poss")  # in the introduction
MIDDLE_DEPTHS = (0.45, 0.85)  # layers 6 to 10 of 12


def clark_claims() -> list[Claim]:
    """Read the claims of Clark et al. (2019), in the order of the paper.

    Returns
    -------
    list of Claim
        Each with its measure and its threshold, for `check_claims`.
    """
    return read_claims(__file__, MEASURES, THRESHOLDS)


# Section 3: layers and heads of the segments


def mean_of_middle_layers(values: Layers) -> Numbers:
    """Average over layers 6 to 10 of 12, by relative depth."""
    depth = values.index / values.index.max()
    shallowest, deepest = MIDDLE_DEPTHS
    return values[(depth >= shallowest) & (depth <= deepest)].mean()


def mean_of_all_layers(values: Layers) -> Numbers:
    """Average over all layers."""
    return values.mean()


def is_in_first_third(layers: pd.Index | pd.Series) -> np.ndarray | pd.Series:
    """Mask the layers of the first third."""
    return layers <= np.ceil(layers.max() / 3)


def depth_contrast(values: Layers, minuend: Third, subtrahend: Third | None = None) -> Numbers:
    """Subtract the mean over a third of the layers, or over all other layers, from another's."""
    is_first = is_in_first_third(values.index)
    is_last = is_first[::-1] & ~is_first
    thirds = {"first": is_first, "middle": ~is_first & ~is_last, "last": is_last}
    is_subtracted = ~thirds[minuend] if subtrahend is None else thirds[subtrahend]
    return values[thirds[minuend]].mean() - values[is_subtracted].mean()


def means_by_layer(tables: Tables, name: str) -> pd.Series:
    """Average a column over the heads of each layer, by layer from 1."""
    table = SEGMENT_TABLES[0]
    for candidate in SEGMENT_TABLES:
        if candidate in tables and name in tables[candidate]:
            table = candidate
            break
    return column(tables, table, name).groupby(column(tables, table, "layer")).mean()


def bootstrap_over_articles(
    tables: Tables, means: Mapping[str, pd.Series], statistic: Callable[..., Numbers]
) -> Estimate:
    """Estimate a statistic of columns' means by layer, with its interval over articles.

    There is no interval if the run has no averages by article.
    """
    value = statistic(*means.values())
    if ARTICLES not in tables or np.isnan(value):
        return Estimate(value)
    resamples = []
    cluster_counts = []
    for name in means:
        resampled_means, clusters = layer_resamples(rows_of(tables, ARTICLES, name), name, DRAWS)
        resamples.append(resampled_means)
        cluster_counts.append(clusters)
    return BootstrapEstimate(value, statistic(*resamples), min(cluster_counts))


def over_layers(tables: Tables, summary: Callable[[Layers], Numbers], name: str) -> Estimate:
    """Estimate a summary of a column's means by layer."""
    means = {name: means_by_layer(tables, name)}
    return bootstrap_over_articles(tables, means, summary)


def over_layer_differences(
    tables: Tables, summary: Callable[[Layers], Numbers], minuend: str, subtrahend: str
) -> Estimate:
    """Estimate a summary of one column's means by layer minus another's."""
    means = {name: means_by_layer(tables, name) for name in (minuend, subtrahend)}
    return bootstrap_over_articles(tables, means, lambda a, b: summary(a - b))


def contrast_estimate(
    tables: Tables, name: str, minuend: Third, subtrahend: Third | None = None
) -> Estimate:
    """Estimate the `depth_contrast` of a column."""
    summary = partial(depth_contrast, minuend=minuend, subtrahend=subtrahend)
    return over_layers(tables, summary, name)


def count_with_interval(
    tables: Tables, table: str, name: str, count: Callable[[pd.Series], float]
) -> Estimate:
    """Apply a count to a column of a table, and to the bounds of its interval."""
    value_column, low_column, high_column = with_bounds(name)
    value = float(count(column(tables, table, value_column)))
    at_low = float(count(column(tables, table, low_column)))
    at_high = float(count(column(tables, table, high_column)))
    return Estimate(value, min(at_low, at_high), max(at_low, at_high))


def share_with_little_current(tables: Tables) -> Estimate:
    """Count heads with little attention to the current token, as a share of all heads."""
    return count_with_interval(
        tables, "relative_position", "current", lambda shares: (shares < LITTLE).mean()
    )


def heads_mostly_to(tables: Tables, position: Literal["previous", "next"]) -> Estimate:
    """Count heads with more than half of their attention on a neighbouring token."""
    return count_with_interval(
        tables, "relative_position", position, lambda shares: (shares > MOSTLY).sum()
    )


def depth_of_positional_heads(tables: Tables) -> Estimate:
    """Average the relative depth of positional heads; the interval is over these heads."""
    heads = rows_of(tables, "relative_position", "layer", "previous", "next")
    is_positional = (heads[["previous", "next"]] > MOSTLY).any(axis=1)
    if is_positional.sum() < FEWEST:
        raise NotMeasurable("too few positional heads")
    return mean_interval(heads["layer"][is_positional] / heads["layer"].max())


def dominant_special_token(tables: Tables) -> str:
    """Choose the one of [SEP] and [CLS] with more attention in the middle layers of the model."""
    shares = {}
    for name in ("sep", "cls"):
        with suppress(NotMeasurable):
            shares[name] = mean_of_middle_layers(means_by_layer(tables, name))
    if not shares:
        raise NotMeasurable("no special token")
    return max(shares, key=shares.__getitem__)


def attention_to_special_token(tables: Tables) -> Estimate:
    """Estimate the attention to the dominant special token in the middle layers."""
    return over_layers(tables, mean_of_middle_layers, dominant_special_token(tables))


def times_uniform(tables: Tables) -> Estimate:
    """Divide the attention to the dominant special token by its share of uniform attention."""
    name = dominant_special_token(tables)
    means = {
        name: means_by_layer(tables, name),
        f"uniform_{name}": means_by_layer(tables, f"uniform_{name}"),
    }
    return bootstrap_over_articles(
        tables, means, lambda actual, uniform: mean_of_middle_layers(actual) / uniform.mean()
    )


def punctuation_frequency_ratio(tables: Tables) -> float:
    """Divide the frequency of the rarer of period and comma by that of the next commonest token.

    The token "the" is left out, as in the paper.
    """
    rows = rows_of(tables, "commonest_tokens", "token", "count").set_index("token")["count"]
    marks = rows.reindex(PUNCTUATION, fill_value=0)
    return marks.min() / rows.drop([*PUNCTUATION, "the"], errors="ignore").max()


def gradient_ratio_other_to_special(tables: Tables) -> Estimate:
    """Divide the gradients of other tokens by the special token's, in the middle layers."""
    columns = with_bounds(f"other_over_{dominant_special_token(tables)}")
    rows = rows_of(tables, "gradients", "layer", *columns)
    value, low, high = mean_of_middle_layers(rows.set_index("layer")[columns])
    return Estimate(value, low, high)


def is_broad_early_head(tables: Tables, entropies: pd.Series) -> pd.Series:
    """Mask the nearly uniform heads of the first third of the layers."""
    uniform = column(tables, "entropy", "uniform")
    layers = column(tables, "entropy", "layer")
    return (entropies / uniform > BROAD) & is_in_first_third(layers)


def broad_heads(tables: Tables) -> Estimate:
    """Count the nearly uniform heads of the first third of the layers."""
    return count_with_interval(
        tables, "entropy", "entropy", lambda entropies: is_broad_early_head(tables, entropies).sum()
    )


def largest_weight_of_broad_heads(tables: Tables) -> Estimate:
    """Average the largest attention weight of nearly uniform early heads."""
    is_broad = is_broad_early_head(tables, column(tables, "entropy", "entropy"))
    means = []
    for name in with_bounds("largest"):
        values = select_or_raise(column(tables, "entropy", name), is_broad, "broad heads")
        means.append(values.mean())
    value, low, high = means
    return Estimate(value, low, high)


def last_layer(values: Layers) -> Numbers:
    """Select the value of the last layer."""
    return values.iloc[-1]


def median_abs_before_last_layer(values: Layers) -> Numbers:
    """Compute the median absolute value over the layers before the last."""
    return values.iloc[:-1].abs().median()


# Section 4: heads and relations


def held_out(tables: Tables) -> pd.DataFrame:
    """Look up the heads chosen on train and scored on dev, with the paper's name of a relation.

    The scheme shows in the names of all relations, so these are looked up together.  ``paper`` is
    empty where the paper has none.
    """
    columns = ["relation", "direction", *with_bounds("dev_accuracy"), *with_bounds("margin")]
    table = rows_of(tables, "dependency_heads_held_out", *columns)
    names = table["relation"].map(paper_names(table["relation"])).fillna("")
    return table.assign(paper=names.where(names.isin(paper_table1().index), ""))


def single_relations(tables: Tables, without: str = ALL) -> pd.DataFrame:
    """Select the single relations that are in the paper, too."""
    rows = held_out(tables)
    is_single = ~rows["paper"].isin(["", ALL, without])
    return select_or_raise(rows, is_single, "single relations")


def margin(tables: Tables, name: str) -> Estimate:
    """Read the lead of a relation's head over the fixed offset, in percentage points.

    Where several relations correspond to the paper's, it is that of the most frequent one.
    """
    return estimate_from_table({"held out": held_out(tables)}, "held out", "margin", paper=name)


def mean_margin(tables: Tables) -> Estimate:
    """Average the leads of single relations' heads over their fixed offsets."""
    return mean_interval(single_relations(tables)["margin"])


def relations_by_far(tables: Tables) -> Estimate:
    """Count the relations whose head leads its offset by more than `BY_FAR`."""
    rows = {"relations": single_relations(tables)}
    return count_with_interval(
        rows, "relations", "margin", lambda margins: (margins > BY_FAR).sum()
    )


def share_unaffected_by_special_tokens(tables: Tables) -> Estimate:
    """Estimate the share of relations that special tokens as candidates hardly change.

    Their accuracy changes by at most `LITTLE_CHANGE`.
    """
    changes = column(tables, "special_candidates", "change").abs()
    return wilson_proportion((changes <= LITTLE_CHANGE).sum(), len(changes))


def share_where_dependents_attend(tables: Tables) -> Estimate:
    """Estimate the share of relations other than pobj whose dependents attend to their heads."""
    directions = single_relations(tables, without="pobj")["direction"]
    return wilson_proportion((directions == DIRECTIONS[0]).sum(), len(directions))


def head_attends(tables: Tables, name: str) -> float:
    """Compute 1 if a relation's syntactic head attends to its dependent, 0 if not."""
    return float(row_where(held_out(tables), paper=name)["direction"] == DIRECTIONS[1])


def lowest_of_named(tables: Tables) -> Estimate:
    """Find the lowest accuracy of the relations of the introduction."""
    rows = held_out(tables)
    named = select_or_raise(rows, rows["paper"].isin(NAMED), "the relations of the introduction")
    lowest = named.loc[named["dev_accuracy"].idxmin()]
    return Estimate(lowest["dev_accuracy"], lowest["dev_accuracy_low"], lowest["dev_accuracy_high"])


def no_op_difference(tables: Tables) -> Estimate:
    """Average how much more attention special tokens get where a relation is absent.

    The mean is over relations.  Averaging the bounds is conservative, because the interval of the
    mean is no wider.
    """
    columns = with_bounds("difference")
    table = rows_of(tables, "no_op", "relation", *columns)
    rows = select_or_raise(table, table["relation"].notna(), "no special token")
    value, low, high = rows[columns].mean()
    return Estimate(value, low, high)


# Section 6: distances between heads


def within_to_adjacent_layer_ratio(tables: Tables) -> Estimate:
    """Divide the distance of heads within layers by that between neighbouring layers.

    Its p-value is at least the two-sided one of the permutation test over heads.
    """
    columns = ("by", "within", "between", "p_value")
    row = row_where(rows_of(tables, "head_cohesion", *columns), by="next layer, words")
    if pd.isna(row["p_value"]):
        raise NotMeasurable("two layers of two heads")
    means = {
        "within_layers_words": pd.Series([row["within"]]),
        "neighbouring_layers_words": pd.Series([row["between"]]),
    }
    estimate = bootstrap_over_articles(
        tables, means, lambda within, between: (within / between).iloc[0]
    )
    if not isinstance(estimate, BootstrapEstimate):
        return estimate
    permutation_p = 2 * min(row["p_value"], 1 - row["p_value"])
    return BootstrapEstimate(
        estimate.value, estimate.replicates, estimate.clusters, p_value_floor=permutation_p
    )


MEASURES: dict[str, Measure] = {
    "little on current token": share_with_little_current,
    "mostly to previous": partial(heads_mostly_to, position="previous"),
    "mostly to next": partial(heads_mostly_to, position="next"),
    "positional heads early": depth_of_positional_heads,
    "middle to special token": attention_to_special_token,
    "times uniform": times_uniform,
    "special token is sep": partial(
        over_layer_differences, summary=mean_of_all_layers, minuend="sep", subtrahend="cls"
    ),
    "early to cls": partial(contrast_estimate, name="cls", minuend="first"),
    "deep to punctuation": partial(contrast_estimate, name="punctuation", minuend="last"),
    "more from sep": partial(
        over_layer_differences,
        summary=mean_of_all_layers,
        minuend="sep_to_sep",
        subtrahend="other_to_sep",
    ),
    "from sep to sep": partial(over_layers, summary=mean_of_middle_layers, name="sep_to_sep"),
    "commonest tokens": punctuation_frequency_ratio,
    "small gradients": gradient_ratio_other_to_special,
    "broad heads": broad_heads,
    "largest of broad heads": largest_weight_of_broad_heads,
    "entropy early": partial(
        contrast_estimate, name="entropy", minuend="first", subtrahend="middle"
    ),
    "entropy early not late": partial(
        contrast_estimate, name="entropy", minuend="first", subtrahend="last"
    ),
    "cls broad in last layer": partial(over_layers, summary=last_layer, name="entropy_from_cls"),
    "cls broader than tokens": partial(
        over_layer_differences,
        summary=last_layer,
        minuend="entropy_from_cls",
        subtrahend="entropy",
    ),
    "cls as broad before": partial(
        over_layer_differences,
        summary=median_abs_before_last_layer,
        minuend="entropy_from_cls",
        subtrahend="entropy",
    ),
    "all relations": partial(margin, name=ALL),
    "beyond offset": mean_margin,
    "by far": relations_by_far,
    **{f"own head of {name}": partial(margin, name=name) for name in FIGURE_5},
    "lowest of named": lowest_of_named,
    "dependents attend": share_where_dependents_attend,
    "prepositions attend": partial(head_attends, name="pobj"),
    "footnote 2": share_unaffected_by_special_tokens,
    "no-op": no_op_difference,
    "within of next layers": within_to_adjacent_layer_ratio,
}


def uniform_share_of_two_tokens(tables: Tables) -> float:
    """Compute the uniform share of a token that is twice in a segment of typical length."""
    return 2 / np.exp(column(tables, "entropy", "uniform").mean())


def uniform_share_of_sep(tables: Tables) -> float:
    """Read the uniform share of [SEP], which some models have three times in a segment."""
    return column(tables, "token_types", "uniform_sep").mean()


def broad_entropy(tables: Tables) -> float:
    """Compute the entropy in nats above which attention counts as broad."""
    return BROAD * column(tables, "entropy", "uniform").mean()


THRESHOLDS: dict[str, Callable[[Tables], float]] = {
    "special token is sep": uniform_share_of_sep,
    "early to cls": uniform_share_of_two_tokens,
    "deep to punctuation": uniform_share_of_two_tokens,
    "more from sep": uniform_share_of_two_tokens,
    "cls broad in last layer": broad_entropy,
}
