"""Claims of section 3: what heads attend to, by position, by token, and how broadly.

Numbers are means over the heads of layers, or numbers of single heads.  Intervals are over
articles.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Literal

import numpy as np
import pandas as pd

from helpers.claims.engine import ARTICLES, Family, Measure
from helpers.claims.tables import (
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
    wilson_proportion,
)
from helpers.metrics.surface import layer_resamples

Numbers = float | pd.Series  # one, or one for each resample
Layers = pd.Series | pd.DataFrame  # a number for each layer, or for each layer and resample
Third = Literal["first", "last"]

SECTION_3 = Family("section 3")
claim = SECTION_3.claim
SEGMENT_TABLES = ("relative_position", "token_types", "entropy")
MIDDLE_DEPTHS = (0.45, 0.85)  # layers 6 to 10 of 12
MIDDLE = "layers at 45-85% of the depth"
SPECIAL = "special"  # stands for "cls" or "sep" in names of columns
MORE_BROADLY = 0.1  # nats: more than random weights differ by


# Numbers of layers, with intervals over articles


def means_by_layer(tables: Tables, name: str) -> pd.Series:
    """Average a column over the heads of each layer, by layer from 1."""
    for table in SEGMENT_TABLES:
        with suppress(NotMeasurable):
            layers = column(tables, table, "layer")
            return column(tables, table, name).groupby(layers).mean()
    raise NotMeasurable(name)


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
    """Choose the one of [SEP] and [CLS] with more attention in the middle layers of the model."""
    shares = {}
    for name in ("sep", "cls"):
        with suppress(NotMeasurable):
            shares[name] = mean_of_middle_layers(means_by_layer(tables, name))
    if not shares:
        raise NotMeasurable("no special token")
    return max(shares, key=shares.__getitem__)


# Numbers of single heads, with intervals over articles


def over_heads(
    rows: pd.DataFrame, tables: Tables, name: str, choose: Literal["max", "median"]
) -> Estimate:
    """Estimate a statistic that is the number of a head, such as the largest or the median.

    The bounds are the statistic of the bounds of all heads.
    """
    values_by_article = rows_of(tables, ARTICLES, "article", name).groupby("article")[name]
    df = (values_by_article.count() > 0).sum() - 1
    return Estimate(*rows[with_bounds(name)].agg(choose), df=df)


# Thresholds that depend on the text


def uniform_share_of_two_tokens(tables: Tables) -> float:
    """Compute the uniform share of a token that is twice in a segment of typical length."""
    return 2 / np.exp(column(tables, "entropy", "uniform").mean())


def broad_entropy(tables: Tables) -> float:
    """Compute the entropy in nats above which attention counts as broad."""
    return BROAD * column(tables, "entropy", "uniform").mean()


# Section 3.1: relative positions


def head_at_position(tables: Tables, *, name: str, choose: Literal["max", "median"]) -> Estimate:
    """Estimate the share of attention of a head to a relative position."""
    rows = rows_of(tables, "relative_position", *with_bounds(name))
    return over_heads(rows, tables, name, choose)


claim(
    "3.1",
    "Most heads put less than a tenth of their attention on the current token",
    how_measured="share of the median head; holds below 10%, our reading of 'little'",
    below=0.1,
)(partial(head_at_position, name="current", choose="median"))

for neighbour, paper_heads in (
    ("previous", "four: in layers 2, 4, 7 and 8"),
    ("next", "five: in layers 1, 2, 2, 3 and 6"),
):
    claim(
        "3.1",
        f"A head puts more than half of its attention on the {neighbour} token",
        how_measured=(
            f"the largest share of a head and its interval; holds above half (of the paper's heads "
            f"{paper_heads})"
        ),
        above=0.5,
        threshold_source="paper",
        about_training=True,
    )(partial(head_at_position, name=neighbour, choose="max"))

claim(
    "3.1",
    "Earlier layers put more attention on neighbouring tokens than later layers do",
    how_measured=(
        "attention to the previous and the next token in the first third of the layers minus that "
        "in the others; holds above 0"
    ),
    above=0,
    about_training=True,
)(
    layer_measure(
        lambda previous, following: third_minus_rest(previous + following, "first"),
        "previous",
        "next",
    )
)


# Section 3.2: separator tokens

claim(
    "3.2",
    "Over half of the attention in middle layers goes to one special token",
    how_measured=f"attention to [SEP] (or [CLS], if that gets more) in {MIDDLE}; holds above half",
    above=0.5,
    threshold_source="paper",
    paper=0.5,  # section 3.2: over half of the attention in layers 6-10
    about_training=True,
)(layer_measure(mean_of_middle_layers, SPECIAL))

claim(
    "3.2",
    "One special token gets many times what uniform attention would give it in middle layers",
    how_measured=(
        f"attention to [SEP] (or [CLS], if that gets more) in {MIDDLE}, as a multiple of its share "
        "of uniform attention; holds above 5, our reading of 'many'"
    ),
    above=5,
    paper=32.0513,  # section 3.2: over half, against around 1/64 for a token that is twice in 128
    unit="times",
    about_training=True,
)(
    layer_measure(
        lambda shares, uniform: mean_of_middle_layers(shares) / uniform.mean(),
        SPECIAL,
        f"uniform_{SPECIAL}",
    )
)

claim(
    "3.2",
    "The special token with the most attention in middle layers is [SEP]",
    how_measured=(
        f"attention to [SEP] minus attention to [CLS] in {MIDDLE}; holds above the share that "
        "uniform attention gives two tokens"
    ),
    above=uniform_share_of_two_tokens,
)(layer_measure(lambda sep, cls: mean_of_middle_layers(sep - cls), "sep", "cls"))

claim(
    "3.2",
    "Heads in early layers attend to [CLS] more than later heads do",
    how_measured=(
        "attention to it in the first third of the layers minus that in the others; holds above "
        "the share that uniform attention gives two tokens"
    ),
    above=uniform_share_of_two_tokens,
    about_training=True,
)(layer_measure(partial(third_minus_rest, third="first"), "cls"))

claim(
    "3.2",
    "Heads in deep layers attend to periods and commas more than earlier heads do",
    how_measured=(
        "attention to them in the last third of the layers minus that in the others; holds above "
        "the share that uniform attention gives two tokens"
    ),
    above=uniform_share_of_two_tokens,
    about_training=True,
)(layer_measure(partial(third_minus_rest, third="last"), "punctuation"))

TO_ITSELF = f"{SPECIAL}_to_{SPECIAL}"
claim(
    "3.2",
    "The special token with the most attention attends to itself more than other tokens do to it",
    how_measured=(
        f"attention from [SEP] to [SEP] minus that from other tokens in {MIDDLE} (of [CLS], if "
        "that gets more attention); holds above the share that uniform attention gives two tokens"
    ),
    above=uniform_share_of_two_tokens,
    about_training=True,
)(
    layer_measure(
        lambda from_itself, from_others: mean_of_middle_layers(from_itself - from_others),
        TO_ITSELF,
        f"other_to_{SPECIAL}",
    )
)

claim(
    "3.2",
    "The special token with the most attention attends almost entirely to itself",
    how_measured=(
        f"attention from [SEP] to [SEP] in {MIDDLE} (of [CLS], if that gets more attention); holds "
        "above 90%"
    ),
    above=0.9,
    threshold_source="paper",
    paper=0.9,  # section 3.2: more than 90%
    about_training=True,
)(layer_measure(mean_of_middle_layers, TO_ITSELF))


def gradient_ratio(tables: Tables, *, ending: str = "") -> Estimate:
    """Divide the gradients of other tokens by the special token's, in the middle layers.

    With the ending "_per_value" they are gradients per unit of value vector.
    """
    name = f"other_over_{dominant_special_token(tables)}{ending}"
    columns = with_bounds(name)
    rows = rows_of(tables, "gradients", "layer", "articles", *columns)
    means = mean_of_middle_layers(rows.set_index("layer")[columns])
    return estimate_in(means, name, df=rows["articles"].iloc[0] - 1)


claim(
    "3.2",
    "The gradient for attention to the special token with the most attention is very small",
    how_measured=(
        "size of the gradient for attention to other tokens as a multiple of that to the special "
        f"token, mean over {MIDDLE} and over their intervals; holds above 5, our reading of 'very'"
    ),
    above=5,
    unit="times",
    about_training=True,
)(gradient_ratio)

claim(
    "3.2",
    (
        "The gradient for attention to the special token with the most attention is also very "
        "small per unit of its value vector"
    ),
    how_measured=(
        "size of the gradient over that of the value vector, which it is a product of, of other "
        f"tokens as a multiple of that of the special token, mean over {MIDDLE} and over their "
        "intervals; holds above 5, as without the division"
    ),
    above=5,
    unit="times",
    about_training=True,
)(partial(gradient_ratio, ending="_per_value"))


# Section 3.3: broad and focused attention


def broad_heads(tables: Tables) -> pd.DataFrame:
    """Look up the heads, whether they attend broadly, and whether they are in the first third."""
    rows = rows_of(tables, "entropy", "layer", "uniform", *with_bounds("entropy"))
    return rows.assign(
        is_broad=rows["entropy"] / rows["uniform"] > BROAD, is_early=in_first_third(rows["layer"])
    )


@claim(
    "3.3",
    "A head in the lower layers attends very broadly",
    how_measured=(
        "the largest entropy of a head in the first third of the layers, as a share of that of "
        "uniform attention; holds above 78%, 3.8 of 4.9 nats"
    ),
    above=BROAD,
)
def largest_early_entropy(tables: Tables) -> Estimate:
    """Estimate the largest entropy of a head of the first third, as a share of uniform entropy."""
    rows = broad_heads(tables).query("is_early")
    return over_heads(rows, tables, "entropy", "max").scaled(1 / rows["uniform"].mean())


@claim(
    "3.3",
    "Heads that attend very broadly are found especially in the lower layers",
    how_measured=(
        "share of the heads of the first third of the layers that are above 78% of uniform entropy "
        "minus that share of the others; Wilson's intervals over heads; holds above 0"
    ),
    above=0,
)
def excess_of_early_broad_heads(tables: Tables) -> Estimate:
    """Subtract the share of later heads that attend broadly from that of heads of the first third.

    Heads are taken for a sample.
    """
    rows = broad_heads(tables)
    shares = []
    for is_early in (True, False):
        is_broad = rows.loc[rows["is_early"] == is_early, "is_broad"]
        if not len(is_broad):
            raise NotMeasurable("a model with one layer has no later ones")
        shares.append(wilson_proportion(is_broad.sum(), len(is_broad)))
    return difference(*shares)


@claim(
    "3.3",
    "Broad heads of the lower layers spend at most a tenth of their attention on any single word",
    how_measured=(
        "mean over tokens of the largest weight of the median head, of those in the first third "
        "above 78% of uniform entropy; holds below 10%"
    ),
    below=0.1,
    threshold_source="paper",
)
def largest_weight_of_broad_heads(tables: Tables) -> Estimate:
    """Estimate the largest attention weight of the median broad head of the first third."""
    heads = broad_heads(tables)
    rows = rows_of(tables, "entropy", *with_bounds("largest"))
    broad_rows = select_or_raise(rows, heads["is_broad"] & heads["is_early"], "broad heads")
    return over_heads(broad_rows, tables, "largest", "median")


def lowest_early_minus_rest(entropies: Layers) -> Numbers:
    """Subtract the mean over later layers from the lowest number of a layer of the first third."""
    is_early = in_first_third(entropies.index)
    return entropies[is_early].min() - entropies[~is_early].mean()


claim(
    "3.3",
    "Every lower layer attends more broadly than the layers after them do on average",
    how_measured=(
        "the lowest mean entropy of a layer of the first third minus the mean of the others, nats; "
        "holds above 0.1, more than random weights differ by (the entropy-matched control has "
        "these entropies by construction)"
    ),
    above=MORE_BROADLY,
    unit="nats",
)(layer_measure(lowest_early_minus_rest, "entropy"))

claim(
    "3.3",
    "In the last layer, [CLS] attends very broadly",
    how_measured="its mean entropy in nats; holds above 78% of that of uniform attention",
    above=broad_entropy,
    paper=3.89,  # section 3.3
    unit="nats",
)(layer_measure(lambda entropies: entropies.iloc[-1], "entropy_from_cls"))

claim(
    "3.3",
    "In the last layer, [CLS] attends more broadly than tokens do on average",
    how_measured=(
        "entropy from [CLS] minus that from all tokens, nats; holds above 0.1, more than random "
        "weights differ by"
    ),
    above=MORE_BROADLY,
    unit="nats",
    about_training=True,
)(layer_measure(lambda cls, tokens: (cls - tokens).iloc[-1], "entropy_from_cls", "entropy"))

claim(
    "3.3",
    "In most layers before the last, [CLS] attends about as broadly as tokens do on average",
    how_measured=(
        "median difference of the two entropies, nats; holds below 0.1, the threshold of 'more "
        "broadly'"
    ),
    below=MORE_BROADLY,
    unit="nats",
)(
    layer_measure(
        lambda cls, tokens: (cls - tokens).iloc[:-1].abs().median(), "entropy_from_cls", "entropy"
    )
)
