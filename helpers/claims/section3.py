"""Claims of section 3: what heads attend to, by position, by token, and how broadly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Literal

import numpy as np
import pandas as pd

from helpers.claims.engine import ARTICLES, Family
from helpers.claims.tables import (
    NotMeasurable,
    Tables,
    column,
    estimate_in,
    rows_of,
    select_or_raise,
    with_bounds,
)
from helpers.data.records import PUNCTUATION
from helpers.metrics.reference import BROAD
from helpers.metrics.statistics import (
    DRAWS,
    Estimate,
    bootstrap_estimate,
    exact,
    mean_interval,
)
from helpers.metrics.surface import layer_resamples

Numbers = float | pd.Series  # one, or one for each resample
Layers = pd.Series | pd.DataFrame  # a number for each layer, or for each layer and resample
Third = Literal["first", "middle", "last"]

SECTION_3 = Family("section 3")
claim = SECTION_3.claim
SEGMENT_TABLES = ("relative_position", "token_types", "entropy")
MOSTLY = 0.5  # "more than half of their attention"
LITTLE = 0.1  # of their attention
FEWEST = 5  # heads for a mean
MIDDLE_DEPTHS = (0.45, 0.85)  # layers 6 to 10 of 12


# Numbers of layers, with intervals over articles


def means_by_layer(tables: Tables, name: str) -> pd.Series:
    """Average a column over the heads of each layer, by layer from 1."""
    for table in SEGMENT_TABLES:
        with suppress(NotMeasurable):
            layers = column(tables, table, "layer")
            return column(tables, table, name).groupby(layers).mean()
    raise NotMeasurable(name)


def with_article_interval(
    tables: Tables, value: float, names: Sequence[str], statistic: Callable[..., Numbers]
) -> Estimate:
    """Add the bootstrap interval over articles to a statistic of columns' means by layer.

    There is no interval if the run has no averages by article.
    """
    if ARTICLES not in tables or np.isnan(value):
        return Estimate(value)
    resamples = []
    cluster_counts = []
    for name in names:
        resampled_means, clusters = layer_resamples(rows_of(tables, ARTICLES, name), name, DRAWS)
        resamples.append(resampled_means)
        cluster_counts.append(clusters)
    return bootstrap_estimate(value, statistic(*resamples), min(cluster_counts))


def over_layers(tables: Tables, statistic: Callable[..., Numbers], *names: str) -> Estimate:
    """Estimate a statistic of columns' means by layer."""
    value = statistic(*(means_by_layer(tables, name) for name in names))
    return with_article_interval(tables, value, names, statistic)


def mean_of_middle_layers(values: Layers) -> Numbers:
    """Average over layers 6 to 10 of 12, by relative depth."""
    depth = values.index / values.index.max()
    shallowest, deepest = MIDDLE_DEPTHS
    return values[(depth >= shallowest) & (depth <= deepest)].mean()


def mean_difference(minuend: Layers, subtrahend: Layers) -> Numbers:
    """Subtract one column's mean over all layers from another's."""
    return (minuend - subtrahend).mean()


def is_in_first_third(layers: pd.Index | pd.Series) -> np.ndarray | pd.Series:
    """Mask the layers of the first third."""
    return layers <= np.ceil(layers.max() / 3)


def third_contrast(
    tables: Tables, name: str, minuend: Third, subtrahend: Third | None = None
) -> Estimate:
    """Subtract from a column's mean over a third of the layers that over another, or all others."""

    def contrast(values: Layers) -> Numbers:
        is_first = is_in_first_third(values.index)
        is_last = is_first[::-1] & ~is_first
        thirds = np.select([is_first, is_last], ["first", "last"], default="middle")
        is_minuend = thirds == minuend
        is_subtrahend = ~is_minuend if subtrahend is None else thirds == subtrahend
        return values[is_minuend].mean() - values[is_subtrahend].mean()

    return over_layers(tables, contrast, name)


def count_with_interval(
    tables: Tables, table: str, name: str, count: Callable[[pd.Series], float]
) -> Estimate:
    """Apply a count to a column of a table, and to the bounds of its interval."""
    value, *bounds = [float(count(column(tables, table, end))) for end in with_bounds(name)]
    return Estimate(value, min(bounds), max(bounds))


# Thresholds that depend on the text


def uniform_share_of_two_tokens(tables: Tables) -> float:
    """Compute the uniform share of a token that is twice in a segment of typical length."""
    return 2 / np.exp(column(tables, "entropy", "uniform").mean())


def uniform_share_of_sep(tables: Tables) -> float:
    """Read the uniform share of [SEP], which some models have three times in a segment."""
    return column(tables, "token_types", "uniform_sep").mean()


def broad_entropy(tables: Tables) -> float:
    """Compute the entropy in nats above which attention counts as broad."""
    return BROAD * column(tables, "entropy", "uniform").mean()


# Section 3.1: relative positions


@claim(
    "3.1",
    "Most heads put little attention on the current token",
    how_measured="share of heads with less than 10% on it; holds above half",
    above=0.5,
)
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


@claim(
    "3.1",
    "Some heads put more than half of their attention on the previous token",
    how_measured="number of heads; holds from one on",
    above=0,
    paper=4,  # section 3.1: in layers 2, 4, 7 and 8
    about_training=True,
)
def heads_mostly_to_previous(tables: Tables) -> Estimate:
    """Count heads with more than half of their attention on the previous token."""
    return heads_mostly_to(tables, "previous")


@claim(
    "3.1",
    "Some heads put more than half of their attention on the next token",
    how_measured="number of heads; holds from one on",
    above=0,
    paper=5,  # section 3.1: in layers 1, 2, 2, 3 and 6
    about_training=True,
)
def heads_mostly_to_next(tables: Tables) -> Estimate:
    """Count heads with more than half of their attention on the next token."""
    return heads_mostly_to(tables, "next")


@claim(
    "3.1",
    "Such positional heads are found especially in earlier layers",
    how_measured=(
        "their mean layer as a share of the depth, interval over these heads, of which there have "
        "to be five; holds below half"
    ),
    below=0.5,
    paper=0.32,  # section 3.1: mean of the nine layers listed, of 12
)
def depth_of_positional_heads(tables: Tables) -> Estimate:
    """Average the relative depth of positional heads; the interval is over these heads."""
    heads = rows_of(tables, "relative_position", "layer", "previous", "next")
    is_positional = (heads[["previous", "next"]] > MOSTLY).any(axis=1)
    if is_positional.sum() < FEWEST:
        raise NotMeasurable("too few positional heads")
    return mean_interval(heads["layer"][is_positional] / heads["layer"].max())


# Section 3.2: separator tokens


def dominant_special_token(tables: Tables) -> str:
    """Choose the one of [SEP] and [CLS] with more attention in the middle layers of the model."""
    shares = {}
    for name in ("sep", "cls"):
        with suppress(NotMeasurable):
            shares[name] = mean_of_middle_layers(means_by_layer(tables, name))
    if not shares:
        raise NotMeasurable("no special token")
    return max(shares, key=shares.__getitem__)


@claim(
    "3.2",
    "Over half of the attention in middle layers goes to one special token",
    how_measured=(
        "attention to [SEP] (or [CLS], whichever gets more there) in layers at 45-85% of the depth"
        "; holds above half"
    ),
    above=0.5,
    paper=0.5,  # section 3.2: over half of the attention in layers 6-10
    about_training=True,
)
def attention_to_special_token(tables: Tables) -> Estimate:
    """Estimate the attention to the dominant special token in the middle layers."""
    return over_layers(tables, mean_of_middle_layers, dominant_special_token(tables))


@claim(
    "3.2",
    "That is many times what uniform attention would give it",
    how_measured=(
        "the same, as a multiple of what uniform attention gives that token; holds above 10, a "
        "third of the paper's"
    ),
    above=10,
    paper=32.0513,  # section 3.2: over half, against around 1/64 for a token that is twice in 128
    about_training=True,
)
def times_uniform(tables: Tables) -> Estimate:
    """Divide the attention to the dominant special token by its share of uniform attention."""
    name = dominant_special_token(tables)
    return over_layers(
        tables,
        lambda actual, uniform: mean_of_middle_layers(actual) / uniform.mean(),
        name,
        f"uniform_{name}",
    )


@claim(
    "3.2",
    "That special token is [SEP]",
    how_measured=(
        "attention to [SEP] minus attention to [CLS], all layers; holds above the uniform share of "
        "[SEP]"
    ),
    above=uniform_share_of_sep,
)
def sep_over_cls(tables: Tables) -> Estimate:
    """Subtract the attention to [CLS] from that to [SEP], in all layers."""
    return over_layers(tables, mean_difference, "sep", "cls")


@claim(
    "3.2",
    "Early heads attend to [CLS]",
    how_measured=(
        "attention to it in the first third of the layers minus that in the others; holds above "
        "the uniform share of two tokens"
    ),
    above=uniform_share_of_two_tokens,
    about_training=True,
)
def early_to_cls(tables: Tables) -> Estimate:
    """Subtract the attention to [CLS] in later layers from that in the first third."""
    return third_contrast(tables, "cls", "first")


@claim(
    "3.2",
    "Deep heads attend to periods and commas",
    how_measured=(
        "attention to them in the last third of the layers minus that in the others; holds above "
        "the uniform share of two tokens"
    ),
    above=uniform_share_of_two_tokens,
    about_training=True,
)
def deep_to_punctuation(tables: Tables) -> Estimate:
    """Subtract the attention to periods and commas in earlier layers from the last third's."""
    return third_contrast(tables, "punctuation", "last")


@claim(
    "3.2",
    "Heads attend to [SEP] even more when the current token is [SEP]",
    how_measured=(
        "attention to [SEP] from [SEP] minus that from other tokens, all layers; holds above the "
        "uniform share of two tokens"
    ),
    above=uniform_share_of_two_tokens,
    about_training=True,
)
def from_sep_over_from_others(tables: Tables) -> Estimate:
    """Subtract the attention to [SEP] from other tokens from that from [SEP], in all layers."""
    return over_layers(tables, mean_difference, "sep_to_sep", "other_to_sep")


@claim(
    "3.2",
    "Heads processing [SEP] attend almost entirely to [SEP]",
    how_measured=(
        "attention from [SEP] to [SEP] in layers at 45-85% of the depth; holds above the paper's "
        "90%"
    ),
    above=0.9,
    paper=0.9,  # section 3.2: more than 90%
    about_training=True,
)
def from_sep_to_sep(tables: Tables) -> Estimate:
    """Estimate the attention from [SEP] to [SEP] in the middle layers."""
    return over_layers(tables, mean_of_middle_layers, "sep_to_sep")


@claim(
    "3.2",
    'But for "the", periods and commas are the most common tokens',
    how_measured=(
        "the rarer of the two as a multiple of the most common other token, special ones left out; "
        "holds above 1"
    ),
    above=1,
)
def punctuation_frequency_ratio(tables: Tables) -> Estimate:
    """Divide the frequency of the rarer of period and comma by that of the next commonest token.

    The token "the" is left out, as in the paper.
    """
    rows = rows_of(tables, "commonest_tokens", "token", "count").set_index("token")["count"]
    marks = rows.reindex(PUNCTUATION, fill_value=0)
    return exact(marks.min() / rows.drop([*PUNCTUATION, "the"], errors="ignore").max())


@claim(
    "3.2",
    "Gradients for attention to that special token are very small",
    how_measured=(
        "size of the gradient for attention to other tokens as a multiple of that to the special "
        "token, mean over layers at 45-85% of the depth and over their intervals; holds above 5"
    ),
    above=5,
    about_training=True,
)
def gradient_ratio_other_to_special(tables: Tables) -> Estimate:
    """Divide the gradients of other tokens by the special token's, in the middle layers."""
    name = f"other_over_{dominant_special_token(tables)}"
    columns = with_bounds(name)
    rows = rows_of(tables, "gradients", "layer", *columns)
    return estimate_in(mean_of_middle_layers(rows.set_index("layer")[columns]), name)


# Section 3.3: broad and focused attention


def is_broad_early_head(tables: Tables, entropies: pd.Series) -> pd.Series:
    """Mask the nearly uniform heads of the first third of the layers."""
    uniform = column(tables, "entropy", "uniform")
    layers = column(tables, "entropy", "layer")
    return (entropies / uniform > BROAD) & is_in_first_third(layers)


@claim(
    "3.3",
    "Some heads in lower layers attend very broadly",
    how_measured=(
        "heads in the first third of the layers above 78% of uniform entropy; holds from one on"
    ),
    above=0,
)
def broad_heads(tables: Tables) -> Estimate:
    """Count the nearly uniform heads of the first third of the layers."""
    return count_with_interval(
        tables, "entropy", "entropy", lambda entropies: is_broad_early_head(tables, entropies).sum()
    )


@claim(
    "3.3",
    "These broad heads spend at most 10% of their attention on any single word",
    how_measured="their largest weight, mean over tokens and heads; holds below 10%",
    below=0.1,
)
def largest_weight_of_broad_heads(tables: Tables) -> Estimate:
    """Average the largest attention weight of nearly uniform early heads."""
    is_broad = is_broad_early_head(tables, column(tables, "entropy", "entropy"))
    rows = rows_of(tables, "entropy", *with_bounds("largest"))
    broad_rows = select_or_raise(rows, is_broad, "broad heads")
    return estimate_in(broad_rows.mean(), "largest")


@claim(
    "3.3",
    "Entropy is higher in lower layers than in the middle",
    how_measured=(
        "mean entropy of the first third of the layers minus that of the middle third, nats; holds "
        "above 0.1, more than random weights differ by (the entropy-matched control has these "
        "entropies by construction)"
    ),
    above=0.1,
)
def early_over_middle_entropy(tables: Tables) -> Estimate:
    """Subtract the entropy of the middle third of the layers from that of the first."""
    return third_contrast(tables, "entropy", "first", "middle")


@claim(
    "3.3",
    "Entropy is higher in lower layers than in the last ones",
    how_measured=(
        "mean entropy of the first third of the layers minus that of the last third, nats; holds "
        "above 0.1, more than random weights differ by (the entropy-matched control has these "
        "entropies by construction)"
    ),
    above=0.1,
)
def early_over_late_entropy(tables: Tables) -> Estimate:
    """Subtract the entropy of the last third of the layers from that of the first."""
    return third_contrast(tables, "entropy", "first", "last")


@claim(
    "3.3",
    "In the last layer, [CLS] attends very broadly",
    how_measured="its mean entropy in nats; holds above 78% of that of uniform attention",
    above=broad_entropy,
    paper=3.89,  # section 3.3
)
def entropy_from_cls_in_last_layer(tables: Tables) -> Estimate:
    """Estimate the entropy of [CLS] in the last layer."""
    return over_layers(tables, lambda entropies: entropies.iloc[-1], "entropy_from_cls")


@claim(
    "3.3",
    "In the last layer, [CLS] attends more broadly than tokens do on average",
    how_measured=(
        "entropy from [CLS] minus that from all tokens, nats; holds above 0.1, more than random "
        "weights differ by"
    ),
    above=0.1,
    about_training=True,
)
def cls_over_tokens_in_last_layer(tables: Tables) -> Estimate:
    """Subtract the entropy of all tokens from that of [CLS], in the last layer."""
    return over_layers(
        tables, lambda cls, tokens: (cls - tokens).iloc[-1], "entropy_from_cls", "entropy"
    )


@claim(
    "3.3",
    "In most layers before, [CLS] attends about as broadly as tokens do on average",
    how_measured="median difference of the two entropies, nats; holds below 0.5",
    below=0.5,
)
def cls_beside_tokens_before(tables: Tables) -> Estimate:
    """Compute the median difference of the two entropies over the layers before the last."""
    return over_layers(
        tables,
        lambda cls, tokens: (cls - tokens).iloc[:-1].abs().median(),
        "entropy_from_cls",
        "entropy",
    )
