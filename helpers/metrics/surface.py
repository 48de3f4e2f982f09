"""Surface-level patterns of attention (section 3): of one example's maps, and over a corpus.

A measure takes whole maps ``attention[layer, head, query, key]`` and gives a number for each head,
``[layer, head]``.  Averages over a corpus are kept by article, as intervals need them: paragraphs
of one article are not independent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Shaped

from helpers.cache import cached
from helpers.data.records import KEY_TYPES, Roles, cluster_of, roles
from helpers.metrics import CODE
from helpers.metrics.heads import LayerNumbers, PerHead, head_rows, layers_from_1
from helpers.metrics.statistics import (
    bootstrap_intervals,
    cluster_sums,
    divide,
    effective_clusters,
)
from helpers.progress import progress
from helpers.store.cluster import map_shards
from helpers.store.store import ROW_SUM_TOLERANCE, Example, Store

OFFSETS = {"previous": -1, "current": 0, "next": 1}  # of the key from the query
RELATIVE_POSITION = tuple(OFFSETS)
TOKEN_TYPES = (
    "first", "cls", "sep", "punctuation", "sep_to_sep", "other_to_sep", "cls_to_cls",
    "other_to_cls", "first_to_first", "other_to_first", "uniform_first", "uniform_cls",
    "uniform_sep", "sink",
)  # fmt: skip
ENTROPY = ("entropy", "entropy_from_cls", "uniform", "largest")
BY_ARTICLE = (*RELATIVE_POSITION, *TOKEN_TYPES, *ENTROPY)
CHANCE_LINES = ("uniform_previous", "uniform_current", "uniform_next", "uniform_punctuation")
SECTION_3 = (*BY_ARTICLE, *CHANCE_LINES)
ENTROPY_SMOOTHING = 1e-4  # keeps the logarithm finite where attention underflows to zero

Maps = Float[np.ndarray, "layer head query key"]
Masks = Bool[np.ndarray, "layer query key"]
Positions = Bool[np.ndarray, " position"] | slice


def relative_position(attention: Maps, visible: Masks | None = None) -> dict[str, PerHead]:
    """Compute the share of attention to the previous, the current and the next token.

    ``previous = sum_i A[i, i-1] / n``, which is at most ``1 - 1/n`` (section 3.1).

    Parameters
    ----------
    attention : array, shape (layer, head, query, key)
        The attention maps of one example.
    visible : bool array, shape (layer, query, key), optional
        The keys that each query sees.  By default all.

    Returns
    -------
    dict of str to array, shape (layer, head)
        The shares ``previous``, ``current`` and ``next``; NaN where no query sees such a token, as
        the next one under a causal mask.
    """
    shares = {}
    for name, offset in OFFSETS.items():
        shares[name] = attention.diagonal(offset, -2, -1).sum(axis=-1) / attention.shape[-1]
        if visible is not None:
            is_seen = np.any(visible.diagonal(offset, -2, -1), axis=-1)  # [layer]
            shares[name] = np.where(is_seen[:, None], shares[name], np.nan)
    return shares


def share(attention: Maps, keys: Positions, queries: Positions = slice(None)) -> PerHead:
    """Compute the share of the attention of some queries that goes to some keys (section 3.2).

    Parameters
    ----------
    attention : array, shape (layer, head, query, key)
        The attention maps of one example.
    keys, queries : bool array of shape (position,), or slice
        Masks over its tokens.  By default the share is that of all queries.

    Returns
    -------
    array, shape (layer, head)
        The mean over the queries; NaN without any.
    """
    return mean_of_queries(attention[:, :, queries][..., keys].sum(axis=-1))


def token_types(attention: Maps, roles: Roles) -> dict[str, PerHead]:
    """Compute the share of attention to [CLS], [SEP] and punctuation (section 3.2, Figure 2).

    Parameters
    ----------
    attention : array, shape (layer, head, query, key)
        The attention maps of one example.
    roles : Roles
        Masks over its keys.

    Returns
    -------
    dict of str to array, shape (layer, head)
        ``first``, ``punctuation`` and, if the model has the token, ``cls`` and ``sep``.  The first
        token may be [CLS] or not.
    """
    masks = special_masks(roles) | {"punctuation": roles.punctuation}
    return {name: share(attention, mask) for name, mask in masks.items()}


def entropy(attention: Maps, visible: Masks) -> PerHead:
    """Compute the entropy of the attention distributions of each head (section 3.3, Figure 4).

    ``H[i] = -sum_j p[j] ln p[j]`` with ``p[j] = 0.9999 A[i, j] + 0.0001 V[i, j] / sum_k V[i, k]``,
    where V is 1 for keys that query i sees and 0 for others.

    Parameters
    ----------
    attention : array, shape (layer, head, query, key)
        The attention maps of one example, or some rows of them.
    visible : bool array, shape (layer, query, key)
        The keys that each query sees.

    Returns
    -------
    array, shape (layer, head)
        The mean over the queries, in nats; NaN without any.
    """
    uniform = (visible / visible.sum(axis=-1, keepdims=True))[:, None].astype(attention.dtype)
    p = (1 - ENTROPY_SMOOTHING) * attention + ENTROPY_SMOOTHING * uniform
    logarithms = np.log(p + ~visible[:, None])  # 0 where a key is hidden, as 0 ln 0 is 0
    return mean_of_queries(-(p * logarithms).sum(axis=-1))


def section_3(
    attention: Maps, roles: Roles, visible: Masks, *, cross: bool = False
) -> dict[str, PerHead]:
    """Compute every measure of section 3 for one example, or for one layer of it.

    Parameters
    ----------
    attention : array, shape (layer, head, query, key)
        The attention maps.
    roles : Roles
        Masks over the keys.
    visible : bool array, shape (layer, query, key)
        The keys that each query sees.
    cross : bool
        Whether queries are tokens of another text.

    Returns
    -------
    dict of str to array, shape (layer, head)
        NaN for what the model does not have, what a mask makes impossible, or, in cross-attention,
        what compares tokens of one text.

        - The shares of `relative_position` and `token_types`, and ``uniform_previous`` and so on:
          those of attention that every query spreads equally over the keys that it sees.
        - ``sep_to_sep``: the share that the average [SEP] gives to all [SEP]; ``cls_to_cls`` and
          ``first_to_first`` likewise.  NaN where it sees nothing else.
        - ``other_to_sep``: the share that the average other token gives to all [SEP];
          ``other_to_cls`` and ``other_to_first`` likewise.
        - ``sink``: the mass that rows lack to a sum of one.  Tables have it if the model's softmax
          has a sink besides the keys.
        - ``entropy``, ``entropy_from_cls`` (of the rows of [CLS]; NaN where it sees nothing else),
          and ``uniform``, the entropy of uniform attention, in nats.
        - ``largest``: the mean over queries of the largest weight.
    """
    n_visible = visible.sum(axis=-1)  # [layer, query]
    uniform = (visible / n_visible[..., None])[:, None]  # [layer, 1, query, key]
    values = token_types(attention, roles)
    uniform_shares = token_types(uniform, roles)
    if not cross:
        values |= relative_position(attention, visible)
        uniform_shares |= relative_position(uniform, visible)
        for name, mask in special_masks(roles).items():
            sees_others = np.any(visible[:, mask][..., ~mask], axis=(1, 2))[:, None]  # [layer, 1]
            to_itself = share(attention, mask, mask)
            values[f"{name}_to_{name}"] = np.where(sees_others, to_itself, np.nan)
            values[f"other_to_{name}"] = share(attention, mask, ~mask)
            if name == "cls":
                from_cls = entropy(attention[:, :, mask], visible[:, mask])
                values["entropy_from_cls"] = np.where(sees_others, from_cls, np.nan)
    for name, value in uniform_shares.items():
        values[f"uniform_{name}"] = value
    values["entropy"] = entropy(attention, visible)
    values["uniform"] = np.log(n_visible).mean(axis=-1, keepdims=True)  # [layer, 1]
    values["largest"] = attention.max(axis=-1).mean(axis=-1)
    values["sink"] = 1 - attention.sum(axis=-1).mean(axis=-1)
    shape = attention.shape[:2]
    return {name: np.broadcast_to(values.get(name, np.nan), shape) for name in SECTION_3}


def special_masks(roles: Roles) -> dict[str, Bool[np.ndarray, " position"]]:
    """Collect the masks of the first token, and of the special tokens that the model has."""
    masks = {"first": np.arange(len(roles.other)) == 0, "cls": roles.cls, "sep": roles.sep}
    return {name: mask for name, mask in masks.items() if mask is not None}


def mean_of_queries(values: Float[np.ndarray, "layer head query"]) -> PerHead:
    """Average over queries; NaN without any."""
    return divide(values.sum(axis=-1), np.array(values.shape[-1]))


def example_values(
    example: Example, special_tokens: Mapping[str, str | None]
) -> dict[str, PerHead]:
    """Compute every measure of section 3 for one example, layer by layer to save memory.

    Parameters
    ----------
    example : Example
        Its maps.
    special_tokens : mapping of str to str or None
        The tokens in the roles ``cls`` and ``sep``; None if the model has none.

    Returns
    -------
    dict of str to array, shape (layer, head)
    """
    token_roles = roles(example.tokens, special_tokens)
    by_layer = []
    for stored, visible in zip(example.stored_attention, example.visible_keys, strict=True):
        attention = stored[None].astype(np.float32)
        values = section_3(attention, token_roles, visible[None], cross=example.is_cross)
        by_layer.append(values)
    return {name: np.concatenate([values[name] for values in by_layer]) for name in SECTION_3}


@dataclass(frozen=True)
class Sums:
    """Sums of measures over the examples of each article.

    Attributes
    ----------
    names : array of str, shape (measure,)
        The measures.
    articles : array of str, shape (article,)
        The articles, in order of their names.
    sums : array, shape (2, article, measure, layer, head)
        The sums, and the numbers of examples that had a value.
    layer_numbers : sequence of int
        The numbers of the layers that attend, from 1; all if there are none.
    """

    names: Shaped[np.ndarray, " measure"]
    articles: Shaped[np.ndarray, " article"]
    sums: Float[np.ndarray, "2 article measure layer head"]
    layer_numbers: LayerNumbers = ()

    def by_article(self, name: str) -> Float[np.ndarray, "2 article layer head"]:
        """Select the sums and counts of one measure."""
        return self.sums[:, :, list(self.names).index(name)]

    def mean(self, name: str) -> PerHead:
        """Average one measure over the examples that have a value; NaN if none has."""
        return divide(*self.by_article(name).sum(axis=1))


def sum_by_article(values: Sequence[Mapping[str, PerHead]], articles: Sequence[str]) -> Sums:
    """Sum the measures of examples over articles.

    Parameters
    ----------
    values : sequence of mappings of str to array, shape (layer, head)
        The same measures of each example; NaN does not count.
    articles : sequence of str
        The article of each example.

    Returns
    -------
    Sums
    """
    measures = np.array([list(measures.values()) for measures in values], dtype=float)
    names = np.unique(articles)
    totals = cluster_sums(np.nan_to_num(measures), np.asarray(articles), names)
    counts = cluster_sums(~np.isnan(measures), np.asarray(articles), names)
    return Sums(np.array(list(values[0])), names, np.stack([totals, counts]))


def shard_values(store: Store, number: int) -> list[dict[str, PerHead]]:
    """Compute every measure of section 3 for each example of a shard."""
    return [example_values(example, store.special_tokens) for example in store.shard(number)]


def sums(store: Store) -> Sums:
    """Sum every measure of section 3 over the articles of a store, once.

    Parameters
    ----------
    store : Store
        Token-level maps of a text.

    Returns
    -------
    Sums
    """

    def compute() -> dict[str, np.ndarray]:
        values = []
        shards = map_shards(shard_values, store, range(store.n_shards))
        for shard in progress(shards, "section 3", unit="shard", total=store.n_shards):
            values += shard
        articles = [cluster_of(record, index) for index, record in enumerate(store.records())]
        numbers = np.array(store.layer_numbers)
        return {**vars(sum_by_article(values, articles)), "layer_numbers": numbers}

    return Sums(**cached("section-3", compute, inputs={"store": store.key}, code=CODE))


def tabulated(sums: Sums, columns: Iterable[str]) -> list[str]:
    """List the measures of a table: a sink only if the model has one."""
    has_sink = sums.mean("sink").max() > ROW_SUM_TOLERANCE
    return [name for name in columns if name != "sink" or has_sink]


def head_table(sums: Sums, columns: Iterable[str]) -> pd.DataFrame:
    """Tabulate the means of measures, one row per attention head.

    Parameters
    ----------
    sums : Sums
        The sums over a corpus.
    columns : iterable of str
        The measures, for example `RELATIVE_POSITION`.

    Returns
    -------
    DataFrame
        ``layer`` and ``head`` (from 1), the mean of each measure, and their 95% bootstrap
        intervals over articles, ``<column>_low`` and ``<column>_high``, which are empty if the
        text has only one article.  What uniform attention would give has no interval, because it
        does not depend on the model.
    """
    means = {name: sums.mean(name) for name in tabulated(sums, columns)}
    bounds = {}
    for name in means:
        if not name.startswith("uniform"):
            low, high = bootstrap_intervals(*sums.by_article(name))
            bounds |= {f"{name}_low": low, f"{name}_high": high}
    return head_rows(*means[name].shape, numbers=sums.layer_numbers, **means, **bounds)


def article_table(sums: Sums) -> pd.DataFrame:
    """Tabulate the averages of each article by layer, from which intervals are made.

    Parameters
    ----------
    sums : Sums
        The sums over a corpus.

    Returns
    -------
    DataFrame
        ``article`` (its name, by which models are paired), ``layer`` (from 1), ``examples``, and
        the measures of section 3 (means over the heads of the layer).
    """
    _, counts = sums.by_article("entropy")  # [article, layer, head]
    layers = layers_from_1(counts.shape[1], sums.layer_numbers)
    index = pd.MultiIndex.from_product([sums.articles, layers], names=["article", "layer"])
    table = pd.DataFrame({"examples": counts.max(axis=2).astype(int).ravel()}, index)
    for name in tabulated(sums, BY_ARTICLE):
        table[name] = divide(*sums.by_article(name)).mean(axis=2).ravel()
    return table.reset_index()


def gradient_table(
    importance: Mapping[str, Float[np.ndarray, "example ..."]],
    articles: Sequence[str],
    objective: str,
    numbers: LayerNumbers = (),
) -> pd.DataFrame:
    """Tabulate the mean ``|dL/dA|`` of each layer by type of key (Figure 3).

    Parameters
    ----------
    importance : mapping of str to array
        The arrays that `gradient_importance` returns for some examples.
    articles : sequence of str
        The article of each example.
    objective : str
        The loss that was differentiated; it becomes a column.
    numbers : sequence of int
        As for `heads.layer_number`.

    Returns
    -------
    DataFrame
        One row per layer: ``layer`` (from 1); ``sep``, ``cls``, ``punctuation`` and ``other``;
        ``objective``; ``loss`` (nats, the mean); ``articles``, their number, and
        ``effective_articles``, which allows for their sizes; ``first``, for the first token, which
        may be [CLS] and is no other one; ``guess``, the loss of a guess (nats); ``sep_per_score``
        and so on, the mean ``|dL/ds|`` of the scores before the softmax; ``sep_per_value`` and so
        on, the gradients divided by the size of the value vector, if it is known;
        ``other_over_sep``, ``other_over_cls``, ``other_over_sep_per_value`` and so on, the ratios
        of the means; and 95% bootstrap intervals over articles (``sep_low`` ...).  Empty for a
        token that the model does not have.
    """
    owners, names = pd.factorize(np.asarray(articles))
    clusters = np.arange(len(names))
    columns: dict[str, Any] = {
        "layer": layers_from_1(importance["gradients"].shape[1], numbers),
        **dict.fromkeys(KEY_TYPES[:4]),  # in the order of Figure 3's legend
        "objective": objective,
        "loss": importance["losses"].mean(),
        "articles": len(names),
        "effective_articles": effective_clusters(np.bincount(owners)),
    }
    endings = {"gradients": "", "per_value": "_per_value", "per_score": "_per_score"}
    for measure, ending in endings.items():
        if measure not in importance:
            continue
        by_key = dict(zip(KEY_TYPES, np.moveaxis(importance[measure], -1, 0), strict=True))
        ratios = {key: (values, ~np.isnan(values)) for key, values in by_key.items()}
        for key in ("sep", "cls", "first"):
            ratios[f"other_over_{key}"] = (by_key["other"], by_key[key])
        for name, values in ratios.items():  # each [example, layer]
            totals, counts = (cluster_sums(np.nan_to_num(v), owners, clusters) for v in values)
            low, high = bootstrap_intervals(totals, counts)
            columns[f"{name}{ending}"] = divide(totals.sum(axis=0), counts.sum(axis=0))
            columns |= {f"{name}{ending}_low": low, f"{name}{ending}_high": high}
    return pd.DataFrame(columns | {"guess": importance["guesses"].mean()})
