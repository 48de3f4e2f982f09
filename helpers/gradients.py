"""Gradients of the loss by attention weights over a store, computed once (section 3.2)."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd

from helpers.cache import cached
from helpers.data.records import cluster_of
from helpers.metrics.surface import gradient_table as tabulate
from helpers.model.gradients import choose_segments, gradient_importance
from helpers.model.loading import Model
from helpers.store import CODE as STORE_CODE
from helpers.store.store import Store

ONE_ARTICLE = (
    "The contrastive objective needs segments of at least two articles: paragraphs of the same one "
    "are no wrong candidates. Use a longer text."
)


def gradient_table(
    encoder: Model, store: Store, *, count: int | None, seed: int, limit: int | None = None
) -> pd.DataFrame:
    """Compute the gradients of the loss by attention weights (section 3.2, Figure 3).

    Parameters
    ----------
    encoder : Model
        The model, or a control.
    store : Store
        The store of the segments; only its records are read.
    count : int or None
        Number of segments to choose; None: all.
    seed : int
        Seed of the tokens that are masked.
    limit : int, optional
        Largest number of the chosen segments that are used, for a control.

    Returns
    -------
    DataFrame
        One row per layer; for its columns see `helpers.metrics.surface.gradient_table`.  If the
        objective needs several articles, and the text has one: ``layer``, ``objective`` and
        ``reason``.
    """
    articles = np.array([cluster_of(record, i) for i, record in enumerate(store.records())])
    is_contrastive = encoder.objective == "contrastive"
    if is_contrastive and len(set(articles)) < 2:
        columns = {"objective": encoder.objective, "reason": ONE_ARTICLE}
        return pd.DataFrame({"layer": encoder.layer_numbers, **columns})
    choose = partial(choose_segments, contrastive=is_contrastive)
    indices = np.array(choose(articles.tolist(), min(count or len(articles), len(articles))))
    if limit is not None:
        indices = indices[choose(articles[indices].tolist(), limit)]
    records = list(map(store.record, indices.tolist()))
    gradients = cached(
        "gradients",
        partial(gradient_importance, encoder, records, seed=seed),
        inputs={"records": records, "seed": seed, "model": encoder.key},
        code=STORE_CODE,
    )
    used_articles = articles[indices].tolist()
    return tabulate(gradients, used_articles, encoder.objective, encoder.layer_numbers)
