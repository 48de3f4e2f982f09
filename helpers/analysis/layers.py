"""Averages by layer with intervals over articles: the bands of Figures 2 to 4."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from helpers.analysis.statistics import bootstrap_intervals, percentiles, resampled_sums
from helpers.data.records import cluster_of

if TYPE_CHECKING:
    from helpers.store.store import Source


def layer_draws(articles: pd.DataFrame, name: str) -> tuple[pd.DataFrame, int]:
    """Return a metric's mean by layer (rows) in each resample of the articles (columns).

    The resamples are the same for every metric.  Beside it stands from how many articles they
    are drawn.  An article without the metric has no part in its means.
    """
    values = articles.pivot(index="article", columns="layer", values=name)
    examples = articles.pivot(index="article", columns="layer", values="examples")
    sums = resampled_sums((values * examples).fillna(0).to_numpy())
    sizes = resampled_sums(examples.where(values.notna(), 0).to_numpy())
    means = pd.DataFrame(sums, columns=values.columns).div(sizes)
    return means.T, int(values.notna().any(axis=1).sum())


def layer_intervals(articles: pd.DataFrame, columns: Iterable[str]) -> pd.DataFrame:
    """Return the 95% intervals of layers' means: layer, and low and high of each column.

    What the bands of Figures 2 and 4 show; how sure the mean of a layer's heads is.
    """
    table = {}
    for name in columns:
        drawn, n_articles = layer_draws(articles, name)
        table[f"{name}_low"], table[f"{name}_high"] = percentiles(drawn.T.to_numpy(), n_articles)
    return pd.DataFrame(table, index=drawn.index).reset_index()


def gradient_table(encoder: Any, source: Source, count: int, *, seed: int) -> pd.DataFrame:
    """Return Figure 3: the mean ``|dL/dA|`` of each layer by type of key, over some examples.

    ``count`` examples (0: all) are spread evenly over a token-level store or stream.  Columns:
    layer (from 1), sep, cls, punctuation, other, objective, and the 95% bootstrap intervals over
    articles (``sep_low`` ...); empty for a token that the model does not have.
    """
    from helpers.model.gradients import KEY_TYPES, gradient_importance

    places = np.linspace(0, len(source) - 1, min(count or len(source), len(source)))
    records = [source.record(int(place)) for place in places]
    values = gradient_importance(encoder, records, seed=seed)  # [example, layer, type]
    articles = [cluster_of(record, index) for index, record in enumerate(records)]
    owner = pd.factorize(np.array(articles))[0]
    present = ~np.isnan(values)
    totals, counts = np.zeros((2, owner.max() + 1, *values.shape[1:]))
    np.add.at(totals, owner, np.where(present, values, 0))
    np.add.at(counts, owner, present)
    sizes = counts.sum(axis=0)
    means = np.divide(totals.sum(axis=0), sizes, out=np.full(sizes.shape, np.nan), where=sizes > 0)
    bounds = bootstrap_intervals(*(part.reshape(len(part), -1) for part in (totals, counts)))
    table = pd.DataFrame(means, columns=list(KEY_TYPES))
    table.insert(0, "layer", range(1, encoder.layers + 1))
    table["objective"] = encoder.objective
    for side, bound in zip(("low", "high"), bounds, strict=True):
        columns = [f"{name}_{side}" for name in KEY_TYPES]
        table[columns] = bound.reshape(means.shape)
    return table
