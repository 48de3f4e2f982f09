"""Averages by layer with intervals over articles, from the table ``averages_by_article``."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from helpers.analysis.statistics import percentiles, resampled_sums


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
