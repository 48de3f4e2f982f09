"""Section 3 in numbers that are compared: means over layers, and numbers of single heads.

`relation_summary` does the same for section 4.2.  Intervals are over articles.  "Middle layers" are
those at 45-85% of the depth (layers 6 to 10 of 12).  The "special token" is the one of [SEP] and
[CLS] with more attention in the middle layers, or the first token if the model has neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import pandas as pd
from jaxtyping import Shaped

from helpers.metrics import TRAINED
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

Numbers: TypeAlias = float | pd.Series  # one that is exact, or one for each draw
Layers: TypeAlias = pd.Series | pd.DataFrame  # a number for each layer, or layer and draw


@dataclass(frozen=True)
class Draws:
    """Means of measures in draws of articles: number 0 is all, the others are resamples.

    Attributes
    ----------
    sums : Sums
        The sums over a text.
    articles : array of str, shape (article,)
        The articles that are drawn from, in order of their names; the text may lack some of them.
    """

    sums: Sums
    articles: Shaped[np.ndarray, " article"]

    def of_heads(self, name: str) -> pd.DataFrame:
        """Average a measure: a row for each head, labelled by its layer, a column for a draw."""
        sums_and_counts = self.sums.by_article(name)
        all_articles = np.zeros((2, len(self.articles), *sums_and_counts.shape[2:]))
        all_articles[:, np.searchsorted(self.articles, self.sums.articles)] = sums_and_counts
        totals, counts = all_articles
        replicates = resampled_ratios(totals, counts, DRAWS)  # [draw, layer, head]
        means = np.concatenate([self.sums.mean(name)[None], replicates])
        layer, _ = np.indices(means.shape[1:])
        return pd.DataFrame(means.reshape(len(means), -1).T, layer.ravel() + 1)

    def of_layers(self, name: str) -> pd.DataFrame:
        """Average a measure over heads: a row for each layer (from 1), a column for each draw."""
        return self.of_heads(name).groupby(level=0).mean()


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
        counts = sums.by_article("entropy")[1].max(axis=(1, 2))
        n_articles = min(n_articles, effective_clusters(counts))
        draws = Draws(sums, articles)
        numbers = entropies(draws)
        if model != "entropy-matched":
            numbers |= shares(draws)
        if model == TRAINED:  # the thresholds that depend on the text
            uniform = sums.mean("uniform")
            numbers |= {
                "uniform share of two tokens": float(2 / np.exp(uniform.mean())),
                "entropy of a broad head, last layer": float(BROAD * uniform[-1].mean()),
            }
        for quantity, number in numbers.items():
            if np.isnan(np.ravel(number)[0]):
                continue
            row = {"model": model, "quantity": quantity, **columns(number, "value", n_articles)}
            if quantity in trained:
                row |= columns(trained[quantity] - number, "lead", n_articles)
            rows.append(row)
        trained = trained or numbers
    table = pd.DataFrame(rows)
    trained_quantities = table.loc[table["model"] == TRAINED, "quantity"]
    return table[table["quantity"].isin(trained_quantities)]


def columns(numbers: Numbers, name: str, n_articles: float) -> dict[str, Real]:
    """Name a number and its interval, which has no width if the number is exact."""
    if isinstance(numbers, float | int):
        return Estimate(numbers, numbers, numbers).columns(name)
    return bootstrap_estimate(numbers[0], numbers[1:], n_articles).columns(name, df=True)


def shares(draws: Draws) -> dict[str, Numbers]:
    """Compute the numbers of sections 3.1 and 3.2."""
    cls = draws.of_layers("cls")
    sep = draws.of_layers("sep")
    special = dominant_special_token(pd.DataFrame({"sep": sep[0], "cls": cls[0]}))
    to_special = mean_of_middle_layers(draws.of_layers(special))
    to_itself = mean_of_middle_layers(draws.of_layers(f"{special}_to_{special}"))
    from_others = mean_of_middle_layers(draws.of_layers(f"other_to_{special}"))
    neighbours = draws.of_layers("previous") + draws.of_layers("next")
    punctuation = draws.of_layers("punctuation")[::-1]  # from the last layer to the first
    return {
        "previous and next token, first third of the layers minus the rest": (
            third_minus_rest(neighbours)
        ),
        "special token, middle layers": to_special,
        "special token, middle layers, as a multiple of uniform": (
            to_special / draws.of_layers(f"uniform_{special}").mean()
        ),
        "[SEP] minus [CLS], middle layers": mean_of_middle_layers(sep - cls),
        "[CLS], first third of the layers minus the rest": third_minus_rest(cls),
        "punctuation, last third of the layers minus the rest": third_minus_rest(punctuation),
        "special token from itself minus from other tokens, middle layers": to_itself - from_others,
        "special token from itself, middle layers": to_itself,
        "share of the median head on the current token": draws.of_heads("current").median(),
        "largest share of a head on the previous token": draws.of_heads("previous").max(),
        "largest share of a head on the next token": draws.of_heads("next").max(),
    }


def entropies(draws: Draws) -> dict[str, Numbers]:
    """Compute the numbers of section 3.3.

    Shares of heads are exact, because these are all heads of the model.
    """
    entropy = draws.of_layers("entropy")
    uniform = draws.of_layers("uniform")
    from_cls = draws.of_layers("entropy_from_cls")
    n_early = first_third(uniform)
    above_uniform = entropy - uniform
    numbers = {
        "lowest entropy of an early layer minus the mean of the rest, above uniform": (
            above_uniform.iloc[:n_early].min() - above_uniform.iloc[n_early:].mean()
        ),
        "entropy from [CLS], last layer": from_cls.iloc[-1],
    }
    # The uniform share of [CLS] times the number of tokens that a query sees.  If layers have a
    # window, [CLS] sees less than others do, and they are not compared.
    seen_of_cls = draws.of_layers("uniform_cls")[0] * np.exp(uniform[0])
    if not (seen_of_cls < 0.95).any():  # lengths of texts vary a little around their mean
        minus_all = from_cls - entropy
        numbers |= {
            "entropy from [CLS] minus that of all tokens, last layer": minus_all.iloc[-1],
            "entropy from [CLS] and of all tokens, median distance before the last layer": (
                minus_all.iloc[:-1].abs().median()
            ),
        }
    relative = draws.of_heads("entropy") / draws.of_heads("uniform")
    is_broad = relative[0] > BROAD  # by layer, as all numbers of heads
    largest = draws.of_heads("largest")[is_broad.to_numpy()]
    return numbers | {
        "largest entropy of an early head, as a share of uniform": relative.loc[:n_early].max(),
        "broad heads of the first third of the layers minus those of the rest": (
            float(is_broad.loc[:n_early].mean() - is_broad.loc[n_early + 1 :].mean())
        ),
        "largest weight of the median broad head of the first third of the layers": (
            largest.loc[:n_early].median()
        ),
    }


def dominant_special_token(averages: pd.DataFrame) -> Literal["sep", "cls", "first"]:
    """Choose the special token from the averages by layer, see the top of this module."""
    shares = pd.Series(mean_of_middle_layers(averages[["sep", "cls"]]))
    return "first" if shares.isna().all() else shares.idxmax()


def mean_of_middle_layers(values: Layers) -> Numbers:
    """Average over layers 6 to 10 of 12, by relative depth."""
    depth = values.index / values.index.max()
    return values[(depth >= 0.45) & (depth <= 0.85)].mean()


def first_third(values: Layers) -> int:
    """Count the layers of the first third."""
    return -(-len(values) // 3)


def third_minus_rest(values: Layers) -> Numbers:
    """Subtract from the mean over the first third of the rows that over the others."""
    n_first = first_third(values)
    return values.iloc[:n_first].mean() - values.iloc[n_first:].mean()
