"""Section 3 in numbers that are compared: means over layers, and numbers of single heads.

`relation_summary` does the same for section 4.2.  Intervals are over articles.  "Middle layers" are
those at 45-85% of the depth (layers 6 to 10 of 12).  The "special token" is the one of [SEP] and
[CLS] with more attention in the middle layers, or the first token if the model has neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

import numpy as np
import pandas as pd

from helpers.metrics.models import TRAINED
from helpers.metrics.reference import BROAD
from helpers.metrics.statistics import Estimate, bootstrap_estimate, difference, exact
from helpers.metrics.surface import (
    ENTROPY,
    SECTION_3,
    Sums,
    article_table,
    head_table,
    layer_resamples,
)

Numbers: TypeAlias = float | pd.Series  # one, or one for each resample
Layers: TypeAlias = pd.Series | pd.DataFrame  # a number for each layer, or layer and resample
Means: TypeAlias = Mapping[str, Layers] | pd.DataFrame  # of each measure
SpecialToken = Literal["sep", "cls", "first"]

MIDDLE_DEPTHS = (0.45, 0.85)
LEAST_SEEN_OF_CLS = 0.95  # lengths of texts vary a little around their mean
# Quantities without a meaning if layers have a window, because [CLS] then sees less than others do.
CLS_AGAINST_TOKENS = (
    "entropy from [CLS] minus that of all tokens, last layer",
    "entropy from [CLS] and of all tokens, median distance before the last layer",
)


def layer_summary(sums_by_model: Mapping[str, Sums]) -> pd.DataFrame:
    """Summarise section 3 for a model and its controls.

    Parameters
    ----------
    sums_by_model : mapping of str to Sums
        The sums over the text of the model, "trained", and of its controls.

    Returns
    -------
    DataFrame
        For its columns see `summarise_layers`.
    """
    heads = {}
    articles = {}
    for model, sums in sums_by_model.items():
        columns = ENTROPY if model == "entropy-matched" else SECTION_3
        heads[model] = head_table(sums, columns)
        articles[model] = article_table(sums)
    return summarise_layers(heads, articles)


def summarise_layers(
    heads: Mapping[str, pd.DataFrame], articles: Mapping[str, pd.DataFrame]
) -> pd.DataFrame:
    """Summarise the tables of section 3.

    Parameters
    ----------
    heads : mapping of str to DataFrame
        The columns of relative_position, token_types and entropy by model, "trained" first.  A
        control that has those of entropy only has only the quantities of section 3.3.
    articles : mapping of str to DataFrame
        Their averages by article, from `surface.article_table`.

    Returns
    -------
    DataFrame
        ``model``, ``quantity``, ``value`` with its interval (``value_low``, ``value_high``,
        ``value_df``) and, in rows of controls, ``lead``: the trained model's number minus the
        control's, with its interval.  Numbers of layers are paired by the names of articles.
        A number that is exact has an interval without width, and no degrees of freedom.
        Quantities that a model does not have, such as those of [SEP], have no row.
    """
    names = pd.concat([table["article"] for table in articles.values()])
    rows = []
    trained: dict[str, Estimate] = {}
    for model in heads:
        estimates = estimate_quantities(heads[model], articles[model], names)
        trained = trained or estimates | thresholds(heads[model])
        for quantity, estimate in (trained if model == TRAINED else estimates).items():
            row = {"model": model, "quantity": quantity, **estimate.columns("value", df=True)}
            if model == TRAINED:
                rows.append(row)
            elif quantity in trained:
                lead = difference(trained[quantity], estimate)
                rows.append(row | lead.columns("lead", df=True))
    return pd.DataFrame(rows).replace(np.inf, np.nan)


def thresholds(heads: pd.DataFrame) -> dict[str, Estimate]:
    """Compute the thresholds that depend on the text."""
    uniform = heads.groupby("layer")["uniform"].mean()
    return {
        "uniform share of two tokens": exact(2 / np.exp(heads["uniform"].mean())),
        "entropy of a broad head, last layer": exact(BROAD * uniform.iloc[-1]),
    }


def estimate_quantities(
    heads: pd.DataFrame, articles: pd.DataFrame, names: Iterable[str]
) -> dict[str, Estimate]:
    """Estimate the quantities that a model has, on resamples of the articles with these names."""
    averages = heads.groupby("layer").mean()
    resamples = {}
    for name in averages.columns.intersection(articles.columns):
        resamples[name], _ = layer_resamples(articles, name, names)
    _, n_articles = layer_resamples(articles, "entropy", names)
    df = n_articles - 1
    by_layer = entropies_of_layers(averages)
    replicates = entropies_of_layers(resamples)
    estimates = entropies_of_heads(heads, df=df)
    if "previous" in heads:
        special = dominant_special_token(averages)
        by_layer |= shares_of_layers(averages, special)
        replicates |= shares_of_layers(resamples, special)
        estimates |= shares_of_heads(heads, df=df)
        # The uniform share of [CLS] times the number of tokens that a query sees.
        seen_of_cls = averages["uniform_cls"] * np.exp(averages["uniform"])
        if (seen_of_cls < LEAST_SEEN_OF_CLS).any():  # layers have a window
            for quantity in CLS_AGAINST_TOKENS:
                del by_layer[quantity]
    for quantity, value in by_layer.items():
        if not np.isnan(value):
            estimates[quantity] = bootstrap_estimate(value, replicates[quantity], n_articles)
    return {name: number for name, number in estimates.items() if not np.isnan(number.value)}


def dominant_special_token(averages: pd.DataFrame) -> SpecialToken:
    """Choose the special token from the averages by layer, see the top of this module."""
    shares = pd.Series(mean_of_middle_layers(averages[["sep", "cls"]]))
    return "first" if shares.isna().all() else shares.idxmax()


# Numbers of layers


def shares_of_layers(means: Means, special: SpecialToken) -> dict[str, Numbers]:
    """Compute the numbers of sections 3.1 and 3.2 from the means of each measure by layer."""
    of_special = means[special]
    to_itself = means[f"{special}_to_{special}"]
    neighbours = means["previous"] + means["next"]
    return {
        "previous and next token, first third of the layers minus the rest": (
            third_minus_rest(neighbours, "first")
        ),
        "special token, middle layers": mean_of_middle_layers(of_special),
        "special token, middle layers, as a multiple of uniform": (
            mean_of_middle_layers(of_special) / means[f"uniform_{special}"].mean()
        ),
        "[SEP] minus [CLS], middle layers": mean_of_middle_layers(means["sep"] - means["cls"]),
        "[CLS], first third of the layers minus the rest": third_minus_rest(means["cls"], "first"),
        "punctuation, last third of the layers minus the rest": (
            third_minus_rest(means["punctuation"], "last")
        ),
        "special token from itself minus from other tokens, middle layers": (
            mean_of_middle_layers(to_itself - means[f"other_to_{special}"])
        ),
        "special token from itself, middle layers": mean_of_middle_layers(to_itself),
    }


def entropies_of_layers(means: Means) -> dict[str, Numbers]:
    """Compute the numbers of section 3.3 from the means of each measure by layer."""
    from_cls = means["entropy_from_cls"]
    from_cls_minus_all = from_cls - means["entropy"]
    last, before = CLS_AGAINST_TOKENS
    return {
        "lowest entropy of an early layer minus the mean of the rest, above uniform": (
            lowest_early_minus_rest(means["entropy"] - means["uniform"])
        ),
        "entropy from [CLS], last layer": from_cls.iloc[-1],
        last: from_cls_minus_all.iloc[-1],
        before: from_cls_minus_all.iloc[:-1].abs().median(),
    }


def mean_of_middle_layers(values: Layers) -> Numbers:
    """Average over layers 6 to 10 of 12, by relative depth."""
    depth = values.index / values.index.max()
    shallowest, deepest = MIDDLE_DEPTHS
    return values[(depth >= shallowest) & (depth <= deepest)].mean()


def in_first_third(layers: pd.Index | pd.Series) -> np.ndarray | pd.Series:
    """Mask the layers of the first third."""
    return layers <= np.ceil(layers.max() / 3)


def third_minus_rest(values: Layers, third: Literal["first", "last"]) -> Numbers:
    """Subtract from the mean over the first or last third of the layers that over the others."""
    is_third = in_first_third(values.index)
    if third == "last":
        is_third = is_third[::-1] & ~is_third
    return values[is_third].mean() - values[~is_third].mean()


def lowest_early_minus_rest(values: Layers) -> Numbers:
    """Subtract the mean over later layers from the lowest number of a layer of the first third."""
    is_early = in_first_third(values.index)
    return values[is_early].min() - values[~is_early].mean()


# Numbers of heads.  The bounds are the statistic of the bounds of all heads.


def shares_of_heads(heads: pd.DataFrame, *, df: float) -> dict[str, Estimate]:
    """Compute the numbers of single heads in section 3.1."""
    return {
        "share of the median head on the current token": (
            estimate_head(heads, "current", "median", df)
        ),
        "largest share of a head on the previous token": (
            estimate_head(heads, "previous", "max", df)
        ),
        "largest share of a head on the next token": estimate_head(heads, "next", "max", df),
    }


def entropies_of_heads(heads: pd.DataFrame, *, df: float) -> dict[str, Estimate]:
    """Compute the numbers of single heads in section 3.3.

    Shares of heads are exact, because these are all heads of the model.
    """
    is_early = in_first_third(heads["layer"])
    relative = heads[["entropy", "entropy_low", "entropy_high"]].div(heads["uniform"], axis=0)
    is_broad = relative["entropy"] > BROAD
    return {
        "largest entropy of an early head, as a share of uniform": (
            estimate_head(relative[is_early], "entropy", "max", df)
        ),
        "broad heads of the first third of the layers minus those of the rest": (
            exact(is_broad[is_early].mean() - is_broad[~is_early].mean())
        ),
        "largest weight of the median broad head of the first third of the layers": (
            estimate_head(heads[is_early & is_broad], "largest", "median", df)
        ),
    }


def estimate_head(
    heads: pd.DataFrame, column: str, choose: Literal["max", "median"], df: float
) -> Estimate:
    """Estimate a statistic that is the number of a head, such as the largest."""
    bounds = heads[[column, f"{column}_low", f"{column}_high"]]
    return Estimate(*bounds.agg(choose), df=df)
