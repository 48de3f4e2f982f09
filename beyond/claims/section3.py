"""Measures of section 3: what heads attend to, by position, by token, and how broadly.

Numbers are means over the heads of layers, or numbers of single heads.  Intervals are over
articles.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Literal, TypeAlias

import numpy as np
import pandas as pd

from beyond.claims.engine import ARTICLES
from beyond.claims.tables import (
    Measure,
    NotMeasurable,
    Tables,
    column,
    estimate_in,
    rows_of,
    select_or_raise,
    with_bounds,
)
from helpers.metrics.reference import BROAD
from helpers.metrics.statistics import (
    Estimate,
    bootstrap_estimate,
    difference,
    distance_from,
    effective_clusters,
    exact,
)
from helpers.metrics.surface import layer_resamples

Numbers: TypeAlias = float | pd.Series  # one, or one for each resample
Layers: TypeAlias = pd.Series | pd.DataFrame  # a number for each layer, or layer and resample
Third = Literal["first", "last"]

SEGMENT_TABLES = ("relative_position", "token_types", "entropy")
MIDDLE_DEPTHS = (0.45, 0.85)  # layers 6 to 10 of 12
LEAST_SEEN_OF_CLS = 0.95  # lengths of texts vary a little around their mean
SPECIAL = "special"  # stands for "cls" or "sep" in names of columns
TO_ITSELF = f"{SPECIAL}_to_{SPECIAL}"
TO_SPECIAL_FROM_OTHERS = f"other_to_{SPECIAL}"


# Numbers of layers, with intervals over articles


def means_by_layer(tables: Tables, name: str) -> pd.Series:
    """Average a column over the heads of each layer, by layer from 1."""
    for table in SEGMENT_TABLES:
        if name in tables.get(table, ()):
            layers = column(tables, table, "layer")
            return column(tables, table, name).groupby(layers).mean()
    raise NotMeasurable(f"the run has no numbers in a column {name}")


def over_layers(tables: Tables, statistic: Callable[..., Numbers], *names: str) -> Estimate:
    """Estimate a statistic of columns' means by layer, with its interval over articles.

    In names of columns, `SPECIAL` stands for the special token with the most attention.  There is
    no interval if the run has no averages by article.
    """
    if SPECIAL in "".join(names):
        token = dominant_special_token(tables)
        names = tuple(name.replace(SPECIAL, token) for name in names)
    value = statistic(*(means_by_layer(tables, name) for name in names))
    if ARTICLES not in tables or np.isnan(value):
        return Estimate(value)
    resamples = [layer_resamples(rows_of(tables, ARTICLES, name), name) for name in names]
    resampled_means, article_counts = zip(*resamples, strict=True)
    return bootstrap_estimate(value, statistic(*resampled_means), min(article_counts))


def layer_measure(statistic: Callable[..., Numbers], *names: str) -> Measure:
    """Make a measure that estimates a statistic as `over_layers` does."""
    return lambda tables: over_layers(tables, statistic, *names)


def mean_of_middle_layers(values: Layers) -> Numbers:
    """Average over layers 6 to 10 of 12, by relative depth."""
    depth = values.index / values.index.max()
    shallowest, deepest = MIDDLE_DEPTHS
    return values[(depth >= shallowest) & (depth <= deepest)].mean()


def third_minus_rest(values: Layers, third: Third) -> Numbers:
    """Subtract from the mean over the first or last third of the layers that over the others."""
    is_third = in_first_third(values.index)
    if third == "last":
        is_third = is_third[::-1] & ~is_third
    return values[is_third].mean() - values[~is_third].mean()


def in_first_third(layers: pd.Index | pd.Series) -> np.ndarray | pd.Series:
    """Mask the layers of the first third."""
    return layers <= np.ceil(layers.max() / 3)


def dominant_special_token(tables: Tables) -> str:
    """Choose the one of [SEP] and [CLS] with more attention in the middle layers of the model.

    A model that has neither has the first token in their place.
    """
    shares = {}
    for name in ("sep", "cls"):
        with suppress(NotMeasurable):
            shares[name] = mean_of_middle_layers(means_by_layer(tables, name))
    if not shares:
        means_by_layer(tables, "first")
        return "first"
    return max(shares, key=shares.__getitem__)


# Numbers of single heads, with intervals over articles


def over_heads(
    rows: pd.DataFrame, tables: Tables, name: str, choose: Literal["max", "median"]
) -> Estimate:
    """Estimate a statistic that is the number of a head, such as the largest or the median.

    The bounds are the statistic of the bounds of all heads.
    """
    averages = rows_of(tables, ARTICLES, "article", "examples", name).dropna(subset=name)
    sizes = averages.groupby("article")["examples"].max().to_numpy(float)
    df = effective_clusters(sizes) - 1
    return Estimate(*rows[with_bounds(name)].agg(choose), df=df)


# Thresholds that depend on the text


def uniform_share_of_two_tokens(tables: Tables) -> float:
    """Compute the uniform share of a token that is twice in a segment of typical length."""
    return 2 / np.exp(column(tables, "entropy", "uniform").mean())


def broad_entropy(tables: Tables) -> float:
    """Compute the entropy in nats above which attention of the last layer counts as broad."""
    return BROAD * means_by_layer(tables, "uniform").iloc[-1]


# Section 3.1: relative positions


def head_at_position(tables: Tables, *, name: str, choose: Literal["max", "median"]) -> Estimate:
    """Estimate the share of attention of a head to a relative position."""
    rows = rows_of(tables, "relative_position", *with_bounds(name))
    column(tables, "relative_position", name)  # raises if it is empty
    return over_heads(rows, tables, name, choose)


def early_minus_late_neighbours(previous: Layers, following: Layers) -> Numbers:
    """Subtract the later layers' attention to neighbouring tokens from that of the first third."""
    return third_minus_rest(previous + following, "first")


# Section 3.2: separator tokens


def multiple_of_uniform(shares: Layers, uniform_shares: Layers) -> Numbers:
    """Divide the share of attention in the middle layers by that of uniform attention."""
    return mean_of_middle_layers(shares) / uniform_shares.mean()


def middle_difference(minuend: Layers, subtrahend: Layers) -> Numbers:
    """Subtract one share of attention from another in the middle layers."""
    return mean_of_middle_layers(minuend - subtrahend)


def gradient_ratio(tables: Tables, *, ending: str = "") -> Estimate:
    """Divide the gradients of other tokens by the special token's, in the middle layers.

    With the ending "_per_value" they are gradients per unit of value vector.
    """
    reasons = tables.get("gradients", {}).get("reason")
    if reasons is not None:
        raise NotMeasurable(reasons.iloc[0])
    name = f"other_over_{dominant_special_token(tables)}{ending}"
    columns = with_bounds(name)
    rows = rows_of(tables, "gradients", "layer", "effective_articles", *columns)
    means = mean_of_middle_layers(rows.set_index("layer")[columns])
    return estimate_in(means, name, df=rows["effective_articles"].iloc[0] - 1)


def distance_from_equal_gradients(tables: Tables) -> Estimate:
    """Estimate how far the ratio of gradients per value vector is from 1, in either direction."""
    return distance_from(gradient_ratio(tables, ending="_per_value"), 1)


# Section 3.3: broad and focused attention


def broad_heads(tables: Tables) -> pd.DataFrame:
    """Look up the heads, whether they attend broadly, and whether they are in the first third."""
    rows = rows_of(tables, "entropy", "layer", "uniform", *with_bounds("entropy"))
    return rows.assign(
        is_broad=rows["entropy"] / rows["uniform"] > BROAD, is_early=in_first_third(rows["layer"])
    )


def largest_early_entropy(tables: Tables) -> Estimate:
    """Estimate the largest entropy of a head of the first third, as a share of uniform entropy."""
    rows = broad_heads(tables).query("is_early").copy()
    bounds = with_bounds("entropy")
    rows[bounds] = rows[bounds].div(rows["uniform"], axis=0)  # of the head's layer
    return over_heads(rows, tables, "entropy", "max")


def excess_of_early_broad_heads(tables: Tables) -> Estimate:
    """Subtract the share of later heads that attend broadly from that of heads of the first third.

    The shares are exact, because these are all heads of the model.
    """
    rows = broad_heads(tables)
    shares = []
    for is_early in (True, False):
        is_broad = rows.loc[rows["is_early"] == is_early, "is_broad"]
        if not len(is_broad):
            raise NotMeasurable("a model with one layer has no later ones")
        shares.append(exact(is_broad.mean()))
    return difference(*shares)


def largest_weight_of_broad_heads(tables: Tables) -> Estimate:
    """Estimate the largest attention weight of the median broad head of the first third."""
    heads = broad_heads(tables)
    rows = rows_of(tables, "entropy", *with_bounds("largest"))
    is_chosen = heads["is_broad"] & heads["is_early"]
    reason = "no head of the first third of the layers attends broadly"
    return over_heads(select_or_raise(rows, is_chosen, reason), tables, "largest", "median")


def lowest_early_minus_rest(entropies: Layers, uniform: Layers) -> Numbers:
    """Subtract the mean over later layers from the lowest number of a layer of the first third.

    The numbers are entropies minus those of uniform attention, because a layer with a window sees
    fewer keys.
    """
    above_uniform = entropies - uniform
    is_early = in_first_third(entropies.index)
    return above_uniform[is_early].min() - above_uniform[~is_early].mean()


def last_layer(entropies: Layers) -> Numbers:
    """Look up the number of the last layer."""
    return entropies.iloc[-1]


def last_layer_difference(minuend: Layers, subtrahend: Layers) -> Numbers:
    """Subtract one number of the last layer from another."""
    return (minuend - subtrahend).iloc[-1]


def median_distance_before_last(minuend: Layers, subtrahend: Layers) -> Numbers:
    """Compute the median distance of two numbers over the layers before the last."""
    return (minuend - subtrahend).iloc[:-1].abs().median()


def cls_against_tokens(tables: Tables, statistic: Callable[..., Numbers]) -> Estimate:
    """Compare the entropy of [CLS] with the mean entropy of all tokens.

    Raises
    ------
    NotMeasurable
        If layers have a window, under which the first token sees fewer tokens than others do.
    """
    estimate = over_layers(tables, statistic, "entropy_from_cls", "entropy")
    # The uniform share of [CLS] times the number of tokens that a query sees: 1 without a window.
    seen_of_cls = means_by_layer(tables, "uniform_cls") * np.exp(means_by_layer(tables, "uniform"))
    if (seen_of_cls < LEAST_SEEN_OF_CLS).any():
        raise NotMeasurable("[CLS] sees fewer tokens than others do, because layers have a window")
    return estimate


THRESHOLDS = {
    "uniform share of two tokens": uniform_share_of_two_tokens,
    "broad entropy": broad_entropy,
}
MEASURES: dict[str, Measure] = {
    "sec3-current-little": partial(head_at_position, name="current", choose="median"),
    "sec3-previous-head": partial(head_at_position, name="previous", choose="max"),
    "sec3-next-head": partial(head_at_position, name="next", choose="max"),
    "sec3-neighbours-early": layer_measure(early_minus_late_neighbours, "previous", "next"),
    "sec3-special-half": layer_measure(mean_of_middle_layers, SPECIAL),
    "sec3-special-many-times": layer_measure(multiple_of_uniform, SPECIAL, f"uniform_{SPECIAL}"),
    "sec3-special-is-sep": layer_measure(middle_difference, "sep", "cls"),
    "sec3-cls-early": layer_measure(partial(third_minus_rest, third="first"), "cls"),
    "sec3-punctuation-deep": layer_measure(partial(third_minus_rest, third="last"), "punctuation"),
    "sec3-special-to-itself-more": layer_measure(
        middle_difference, TO_ITSELF, TO_SPECIAL_FROM_OTHERS
    ),
    "sec3-special-to-itself-almost-entirely": layer_measure(mean_of_middle_layers, TO_ITSELF),
    "sec3-gradient-small": gradient_ratio,
    "sec3-gradient-alike-per-value": distance_from_equal_gradients,
    "sec3-early-head-broad": largest_early_entropy,
    "sec3-broad-heads-early": excess_of_early_broad_heads,
    "sec3-broad-heads-largest-weight": largest_weight_of_broad_heads,
    "sec3-early-layers-broader": layer_measure(lowest_early_minus_rest, "entropy", "uniform"),
    "sec3-last-cls-broad": layer_measure(last_layer, "entropy_from_cls"),
    "sec3-last-cls-broader": partial(cls_against_tokens, statistic=last_layer_difference),
    "sec3-earlier-cls-alike": partial(cls_against_tokens, statistic=median_distance_before_last),
}
