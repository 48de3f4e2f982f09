"""Section 3 in numbers that are compared: means over layers, and numbers of single heads.

`relation_summary` does the same for section 4.2.  Intervals are over articles.  "Middle layers" are
those at 45-85% of the depth (layers 6 to 10 of 12).  The "special token" is the one of [SEP] and
[CLS] with more attention in the middle layers, or the first token if the model has neither.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

import numpy as np
import pandas as pd

from helpers.metrics.models import TRAINED
from helpers.metrics.reference import BROAD
from helpers.metrics.statistics import Estimate, bootstrap_estimate, difference, exact
from helpers.metrics.surface import SECTION_3, Sums, article_table, head_table, layer_resamples

Numbers: TypeAlias = float | pd.Series  # one, or one for each resample
Layers: TypeAlias = pd.Series | pd.DataFrame  # a number for each layer, or layer and resample

MIDDLE_DEPTHS = (0.45, 0.85)
LEAST_SEEN_OF_CLS = 0.95  # lengths of texts vary a little around their mean
# Quantities that are thresholds.
UNIFORM_SHARE = "uniform share of two tokens"
BROAD_ENTROPY = "entropy of a broad head, last layer"


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
    heads = {model: head_table(sums, SECTION_3) for model, sums in sums_by_model.items()}
    articles = {model: article_table(sums) for model, sums in sums_by_model.items()}
    return summarise_layers(heads, articles)


def summarise_layers(
    heads: Mapping[str, pd.DataFrame], articles: Mapping[str, pd.DataFrame]
) -> pd.DataFrame:
    """Summarise the tables of section 3.

    Parameters
    ----------
    heads : mapping of str to DataFrame
        The columns of relative_position, token_types and entropy by model, "trained" first.
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
    names = pd.concat([table["article"] for table in articles.values()]).unique()
    rows = []
    trained: dict[str, Estimate] = {}
    for model in heads:
        estimates = estimate_quantities(heads[model], articles[model], names)
        trained = trained or estimates
        for quantity, estimate in estimates.items():
            row = {"model": model, "quantity": quantity, **estimate.columns("value", df=True)}
            if model != TRAINED and quantity in trained:
                row |= difference(trained[quantity], estimate).columns("lead", df=True)
            rows.append(row)
    return pd.DataFrame(rows).replace(np.inf, np.nan)


def estimate_quantities(
    heads: pd.DataFrame, articles: pd.DataFrame, names: np.ndarray
) -> dict[str, Estimate]:
    """Estimate the quantities that a model has, on resamples of the articles with these names."""
    averages = heads.groupby("layer").mean()
    special = dominant_special_token(averages)
    _, n_articles = layer_resamples(articles, "entropy", names)

    def resampled(name: str) -> pd.DataFrame:
        return layer_resamples(articles, name, names)[0]

    replicates = layer_statistics(resampled, special)
    estimates = {
        quantity: bootstrap_estimate(value, replicates[quantity], n_articles)
        for quantity, value in layer_statistics(averages.__getitem__, special).items()
        if not np.isnan(value)
    }
    estimates |= head_statistics(heads, df=n_articles - 1)
    estimates[UNIFORM_SHARE] = exact(2 / np.exp(heads["uniform"].mean()))
    estimates[BROAD_ENTROPY] = exact(BROAD * averages["uniform"].iloc[-1])
    return estimates


def dominant_special_token(averages: pd.DataFrame) -> Literal["sep", "cls", "first"]:
    """Choose the special token from the averages by layer, see the top of this module."""
    shares = mean_of_middle_layers(averages[["sep", "cls"]])
    return "first" if shares.isna().all() else shares.idxmax()


# Numbers of layers


def layer_statistics(
    mean: Callable[[str], Layers], special: Literal["sep", "cls", "first"]
) -> dict[str, Numbers]:
    """Compute the numbers of layers from the means of each measure by layer."""
    entropy = mean("entropy")
    entropy_from_cls = mean("entropy_from_cls")
    # The uniform share of [CLS] times the number of tokens that a query sees: 1 without a window.
    seen_of_cls = mean("uniform_cls") * np.exp(mean("uniform"))
    if (seen_of_cls < LEAST_SEEN_OF_CLS).to_numpy().any():  # [CLS] sees less than others do
        entropy = entropy * np.nan
    return {
        "previous and next token, first third of the layers minus the rest": (
            third_minus_rest(mean("previous") + mean("next"), "first")
        ),
        "special token, middle layers": mean_of_middle_layers(mean(special)),
        "special token, middle layers, as a multiple of uniform": (
            mean_of_middle_layers(mean(special)) / mean(f"uniform_{special}").mean()
        ),
        "[SEP] minus [CLS], middle layers": mean_of_middle_layers(mean("sep") - mean("cls")),
        "[CLS], first third of the layers minus the rest": third_minus_rest(mean("cls"), "first"),
        "punctuation, last third of the layers minus the rest": (
            third_minus_rest(mean("punctuation"), "last")
        ),
        "special token from itself minus from other tokens, middle layers": (
            mean_of_middle_layers(mean(f"{special}_to_{special}") - mean(f"other_to_{special}"))
        ),
        "special token from itself, middle layers": (
            mean_of_middle_layers(mean(f"{special}_to_{special}"))
        ),
        "lowest entropy of an early layer minus the mean of the rest, above uniform": (
            lowest_early_minus_rest(mean("entropy") - mean("uniform"))
        ),
        "entropy from [CLS], last layer": entropy_from_cls.iloc[-1],
        "entropy from [CLS] minus that of all tokens, last layer": (
            (entropy_from_cls - entropy).iloc[-1]
        ),
        "entropy from [CLS] and of all tokens, median distance before the last layer": (
            (entropy_from_cls - entropy).iloc[:-1].abs().median()
        ),
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


# Numbers of heads


def head_statistics(heads: pd.DataFrame, *, df: float) -> dict[str, Estimate]:
    """Compute the numbers of single heads.

    The bounds are the statistic of the bounds of all heads.  Shares of heads are exact, because
    these are all heads of the model.
    """
    is_early = in_first_third(heads["layer"])
    relative = heads[["entropy", "entropy_low", "entropy_high"]].div(heads["uniform"], axis=0)
    is_broad = relative["entropy"] > BROAD

    def estimate(rows: pd.DataFrame, name: str, choose: Literal["max", "median"]) -> Estimate:
        return Estimate(*rows[[name, f"{name}_low", f"{name}_high"]].agg(choose), df=df)

    estimates = {
        "share of the median head on the current token": estimate(heads, "current", "median"),
        "largest share of a head on the previous token": estimate(heads, "previous", "max"),
        "largest share of a head on the next token": estimate(heads, "next", "max"),
        "largest entropy of an early head, as a share of uniform": (
            estimate(relative[is_early], "entropy", "max")
        ),
        "broad heads of the first third of the layers minus those of the rest": (
            exact(is_broad[is_early].mean() - is_broad[~is_early].mean())
        ),
        "largest weight of the median broad head of the first third of the layers": (
            estimate(heads[is_early & is_broad], "largest", "median")
        ),
    }
    return {name: number for name, number in estimates.items() if not np.isnan(number.value)}
