"""Section 3 in numbers that are compared: means over layers, and numbers of single heads.

`relation_summary` does the same for section 4.2.  Intervals are over articles.  "Middle layers" are
those at 45-85% of the depth (layers 6 to 10 of 12).  The "special token" is the one of [SEP] and
[CLS] with more attention in the middle layers, or the first token if the model has neither.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal, TypeAlias

import numpy as np
import pandas as pd
from jaxtyping import Float, Shaped

from helpers.metrics.models import TRAINED
from helpers.metrics.reference import BROAD
from helpers.metrics.statistics import (
    DRAWS,
    Estimate,
    Real,
    bootstrap_estimate,
    effective_clusters,
    resampled_ratios,
)
from helpers.metrics.surface import Sums

# Draws of articles: number 0 is all of them, and the others are bootstrap resamples.
Numbers: TypeAlias = float | pd.Series  # one that is exact, or one for each draw
Layers: TypeAlias = pd.Series | pd.DataFrame  # a number for each layer, or layer and draw
Means = Callable[[str], Float[np.ndarray, "draw layer head"]]  # of a measure
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
        The sums over the text of the model, "trained", which comes first, and of its controls.

    Returns
    -------
    DataFrame
        ``model``, ``quantity``, ``value`` with its interval (``value_low``, ``value_high``,
        ``value_df``) and, in rows of controls, ``lead``: the trained model's number minus the
        control's, with its interval.  Models are paired by the names of articles.  The entropy-
        matched control has the quantities of section 3.3 only.  A number that is exact has an
        interval without width, and no degrees of freedom.  Quantities that a model does not have,
        such as those of [SEP], have no row.
    """
    articles = np.unique(np.concatenate([sums.articles for sums in sums_by_model.values()]))
    rows = []
    trained: dict[str, Numbers] = {}
    n_articles = np.inf
    for model, sums in sums_by_model.items():
        numbers = numbers_of_model(sums, articles, only_entropies=model == "entropy-matched")
        counts = sums.by_article("entropy")[1].max(axis=(1, 2))
        n_articles = min(n_articles, effective_clusters(counts))
        if model == TRAINED:
            trained = numbers | thresholds(sums)
            numbers = trained
        for quantity, draws in numbers.items():
            row = {"model": model, "quantity": quantity, **columns(draws, "value", n_articles)}
            if model != TRAINED and quantity in trained:
                row |= columns(trained[quantity] - draws, "lead", n_articles)
            rows.append(row)
    table = pd.DataFrame(rows)
    return table[table["quantity"].isin(trained)]


def thresholds(sums: Sums) -> dict[str, Numbers]:
    """Compute the thresholds that depend on the text."""
    uniform = sums.mean("uniform")
    return {
        "uniform share of two tokens": float(2 / np.exp(uniform.mean())),
        "entropy of a broad head, last layer": float(BROAD * uniform[-1].mean()),
    }


def columns(numbers: Numbers, name: str, n_articles: float) -> dict[str, Real]:
    """Name a number and its interval, which has no width if the number is exact."""
    if isinstance(numbers, float | int):
        return Estimate(numbers, numbers, numbers).columns(name)
    return bootstrap_estimate(numbers[0], numbers[1:], n_articles).columns(name, df=True)


def numbers_of_model(
    sums: Sums, articles: Shaped[np.ndarray, " article"], *, only_entropies: bool
) -> dict[str, Numbers]:
    """Compute the quantities that a model has, in draws of the articles."""
    means = partial(draw_means, sums, articles)
    layers = {name: by_layer(means(name)) for name in sums.names}
    numbers = entropies_of_layers(layers) | entropies_of_heads(means)
    if not only_entropies:
        numbers |= shares_of_layers(layers) | shares_of_heads(means)
    return {name: draws for name, draws in numbers.items() if not np.isnan(np.ravel(draws)[0])}


def draw_means(
    sums: Sums, articles: Shaped[np.ndarray, " article"], name: str
) -> Float[np.ndarray, "draw layer head"]:
    """Average a measure over the examples of each draw of some articles."""
    sums_and_counts = sums.by_article(name)
    all_articles = np.zeros((2, len(articles), *sums_and_counts.shape[2:]))
    all_articles[:, np.searchsorted(articles, sums.articles)] = sums_and_counts
    totals, counts = all_articles
    return np.concatenate([sums.mean(name)[None], resampled_ratios(totals, counts, DRAWS)])


def by_layer(means: Float[np.ndarray, "draw layer head"]) -> pd.DataFrame:
    """Average over the heads of each layer: a row for each layer (from 1), a column for a draw."""
    table = pd.DataFrame(means.mean(axis=2).T)
    return table.set_axis(table.index + 1)


def by_head(means: Float[np.ndarray, "draw layer head"]) -> pd.DataFrame:
    """Make a row for each head, labelled by its layer, and a column for each draw."""
    _, layers, heads = means.shape
    return pd.DataFrame(means.reshape(len(means), -1).T, np.repeat(np.arange(layers) + 1, heads))


def dominant_special_token(averages: pd.DataFrame) -> SpecialToken:
    """Choose the special token from the averages by layer, see the top of this module."""
    shares = pd.Series(mean_of_middle_layers(averages[["sep", "cls"]]))
    return "first" if shares.isna().all() else shares.idxmax()


# Numbers of layers


def shares_of_layers(means: Mapping[str, Layers]) -> dict[str, Numbers]:
    """Compute the numbers of sections 3.1 and 3.2 from the means of each measure by layer."""
    special = dominant_special_token(pd.DataFrame({"sep": means["sep"][0], "cls": means["cls"][0]}))
    special_shares = means[special]
    to_itself = means[f"{special}_to_{special}"]
    neighbours = means["previous"] + means["next"]
    return {
        "previous and next token, first third of the layers minus the rest": (
            third_minus_rest(neighbours, "first")
        ),
        "special token, middle layers": mean_of_middle_layers(special_shares),
        "special token, middle layers, as a multiple of uniform": (
            mean_of_middle_layers(special_shares) / means[f"uniform_{special}"].mean()
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


def entropies_of_layers(means: Mapping[str, Layers]) -> dict[str, Numbers]:
    """Compute the numbers of section 3.3 from the means of each measure by layer."""
    from_cls = means["entropy_from_cls"]
    numbers = {
        "lowest entropy of an early layer minus the mean of the rest, above uniform": (
            lowest_early_minus_rest(means["entropy"] - means["uniform"])
        ),
        "entropy from [CLS], last layer": from_cls.iloc[-1],
    }
    # The uniform share of [CLS] times the number of tokens that a query sees.
    seen_of_cls = means["uniform_cls"][0] * np.exp(means["uniform"][0])
    if not (seen_of_cls < LEAST_SEEN_OF_CLS).any():  # otherwise layers have a window
        last, before = CLS_AGAINST_TOKENS
        from_cls_minus_all = from_cls - means["entropy"]
        numbers[last] = from_cls_minus_all.iloc[-1]
        numbers[before] = from_cls_minus_all.iloc[:-1].abs().median()
    return numbers


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


def shares_of_heads(means: Means) -> dict[str, Numbers]:
    """Compute the numbers of single heads in section 3.1."""
    return {
        "share of the median head on the current token": by_head(means("current")).median(),
        "largest share of a head on the previous token": by_head(means("previous")).max(),
        "largest share of a head on the next token": by_head(means("next")).max(),
    }


def entropies_of_heads(means: Means) -> dict[str, Numbers]:
    """Compute the numbers of single heads in section 3.3.

    Shares of heads are exact, because these are all heads of the model.
    """
    relative = by_head(means("entropy") / means("uniform"))
    is_early = in_first_third(relative.index)
    is_broad = relative[0] > BROAD
    return {
        "largest entropy of an early head, as a share of uniform": relative[is_early].max(),
        "broad heads of the first third of the layers minus those of the rest": (
            float(is_broad[is_early].mean() - is_broad[~is_early].mean())
        ),
        "largest weight of the median broad head of the first third of the layers": (
            by_head(means("largest"))[is_early & is_broad.to_numpy()].median()
        ),
    }
