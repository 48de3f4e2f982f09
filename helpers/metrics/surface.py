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
from helpers.metrics.heads import LayerNumbers, PerHead, head_rows, layer_number
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
SECTION_3 = (*RELATIVE_POSITION, *TOKEN_TYPES, *ENTROPY)
ENTROPY_SMOOTHING = 1e-4  # keeps the logarithm finite where attention underflows to zero
# Columns of gradients.csv: the ending of their names by what is differentiated.
GRADIENT_MEASURES = {"gradients": "", "per_value": "_per_value", "per_score": "_per_score"}
OVER_SPECIAL = ("sep", "cls", "first")  # keys whose gradients others are compared with

Maps = Float[np.ndarray, "layer head query key"]
Masks = Bool[np.ndarray, "layer query key"]


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
    visible = all_if_none(visible, attention)
    shares = {}
    for name, offset in OFFSETS.items():
        share = attention.diagonal(offset, -2, -1).sum(axis=-1) / attention.shape[-1]
        is_seen = np.any(visible.diagonal(offset, -2, -1), axis=-1)  # [layer]
        shares[name] = np.where(is_seen[:, None], share, np.nan)
    return shares


def token_types(
    attention: Maps, roles: Roles, visible: Masks | None = None, *, cross: bool = False
) -> dict[str, PerHead]:
    """Compute the share of attention to [CLS], [SEP] and punctuation (section 3.2, Figure 2).

    Parameters
    ----------
    attention : array, shape (layer, head, query, key)
        The attention maps of one example.
    roles : Roles
        Masks over its tokens.
    visible : bool array, shape (layer, query, key), optional
        The keys that each query sees.  By default all.
    cross : bool
        Whether queries are tokens of another text.  The roles are those of the keys, and measures
        from one token type to another are NaN.

    Returns
    -------
    dict of str to array, shape (layer, head)
        The measures `TOKEN_TYPES`; NaN for a type of token that the model does not have.

        - ``first``, ``cls``, ``sep`` and ``punctuation``: the share of all attention that these
          tokens get.  The first token may be [CLS] or not.
        - ``sep_to_sep``: the share that the average [SEP] gives to all [SEP]; ``cls_to_cls`` and
          ``first_to_first`` likewise.  NaN where it sees nothing else.
        - ``other_to_sep``: the share that the average other token gives to all [SEP];
          ``other_to_cls`` and ``other_to_first`` likewise.
        - ``uniform_first``, ``uniform_cls`` and ``uniform_sep``: the share that the tokens would
          get if every query attended equally to the keys that it sees.
        - ``sink``: the mass that rows lack to a sum of one.  Tables have it if the model's softmax
          has a sink besides the keys.
    """
    visible = all_if_none(visible, attention)
    uniform = visible / visible.sum(axis=-1, keepdims=True)
    shares: dict[str, PerHead] = dict.fromkeys(TOKEN_TYPES, np.full(attention.shape[:2], np.nan))
    is_first = np.arange(attention.shape[-1]) == 0
    for name, mask in (("first", is_first), ("cls", roles.cls), ("sep", roles.sep)):
        if mask is None:
            continue
        to_token = attention[..., mask].sum(axis=-1)  # [layer, head, query]
        shares[name] = to_token.mean(axis=-1)
        uniform_share = uniform[..., mask].sum(axis=-1).mean(axis=-1)  # [layer]
        shares[f"uniform_{name}"] = np.broadcast_to(uniform_share[:, None], attention.shape[:2])
        if not cross:
            sees_others = np.any(visible[:, mask][..., ~mask], axis=(1, 2))
            shares[f"{name}_to_{name}"] = mean_of_queries(to_token[..., mask], sees_others)
            shares[f"other_to_{name}"] = mean_of_queries(to_token[..., ~mask])
    shares["punctuation"] = attention[..., roles.punctuation].sum(axis=-1).mean(axis=-1)
    shares["sink"] = 1 - attention.sum(axis=-1).mean(axis=-1)
    return shares


def entropy(
    attention: Maps, roles: Roles, visible: Masks | None = None, *, cross: bool = False
) -> dict[str, PerHead]:
    """Compute the entropy of the attention distributions of each head (section 3.3, Figure 4).

    ``H[i] = -sum_j p[j] ln p[j]`` with ``p[j] = 0.9999 A[i, j] + 0.0001 V[i, j] / sum_k V[i, k]``,
    where V is 1 for keys that query i sees and 0 for others.

    Parameters
    ----------
    attention : array, shape (layer, head, query, key)
        The attention maps of one example.
    roles : Roles
        Masks over its tokens.
    visible : bool array, shape (layer, query, key), optional
        The keys that each query sees.  By default all.
    cross : bool
        Whether queries are tokens of another text; ``entropy_from_cls`` is then NaN.

    Returns
    -------
    dict of str to array, shape (layer, head)
        ``entropy``: the mean over all queries, in nats.  ``entropy_from_cls``: the entropy of
        [CLS], NaN if the model has no such token, or it sees nothing else.  ``uniform``: the
        entropy of uniform attention, the mean over queries of the logarithm of the number of keys
        that they see.  ``largest``: the mean over queries of the largest weight, a share of
        attention.
    """
    visible = all_if_none(visible, attention)
    n_visible = visible.sum(axis=-1)  # [layer, query]
    uniform = (visible / n_visible[..., None])[:, None].astype(attention.dtype)
    p = (1 - ENTROPY_SMOOTHING) * attention + ENTROPY_SMOOTHING * uniform
    logarithms = np.log(p + ~visible[:, None])  # 0 where a key is hidden, as 0 ln 0 is 0
    entropies = -(p * logarithms).sum(axis=-1)  # [layer, head, query]
    is_cls = np.zeros(n_visible.shape[1], dtype=bool)
    if roles.cls is not None and not cross:
        is_cls = roles.cls
    uniform_entropy = np.log(n_visible).mean(axis=-1)  # [layer]
    return {
        "entropy": entropies.mean(axis=-1),
        "entropy_from_cls": mean_of_queries(
            entropies[..., is_cls], np.any(n_visible[:, is_cls] > 1, axis=-1)
        ),
        "uniform": np.broadcast_to(uniform_entropy[:, None], attention.shape[:2]),
        "largest": attention.max(axis=-1).mean(axis=-1),
    }


def mean_of_queries(
    values: Float[np.ndarray, "layer head query"],
    occurs: Bool[np.ndarray, " layer"] | bool = True,
) -> PerHead:
    """Average over some queries; NaN without any, and in layers in which the value cannot occur."""
    n_queries = values.shape[-1] * np.asarray(occurs)[..., None]
    return divide(values.sum(axis=-1), n_queries)


def all_if_none(visible: Masks | None, attention: Maps) -> Masks:
    """Return the keys that are visible: all, if nothing is known of a mask."""
    n_layers, _, *shape = attention.shape
    return np.ones((n_layers, *shape), dtype=bool) if visible is None else visible


def section_3(
    attention: Maps, roles: Roles, visible: Masks, *, cross: bool = False
) -> dict[str, PerHead]:
    """Compute every measure of section 3; NaN for neighbours in cross-attention."""
    if cross:
        shares = dict.fromkeys(RELATIVE_POSITION, np.full(attention.shape[:2], np.nan))
    else:
        shares = relative_position(attention, visible)
    shares |= token_types(attention, roles, visible, cross=cross)
    return shares | entropy(attention, roles, visible, cross=cross)


def example_values(
    example: Example, special_tokens: Mapping[str, str | None]
) -> dict[str, PerHead]:
    """Compute every measure of section 3 for one example, layer by layer.

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
    for layer, visible in enumerate(example.visible_keys):
        attention = example.stored_attention[layer].astype(np.float32)
        measures = section_3(attention[None], token_roles, visible[None], cross=example.is_cross)
        by_layer.append(measures)
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
    is_measured = ~np.isnan(measures)
    names = np.unique(articles)
    sums = [
        cluster_sums(part, np.asarray(articles), names)
        for part in (np.where(is_measured, measures, 0), is_measured)
    ]
    return Sums(np.array(list(values[0])), names, np.array(sums, dtype=float))


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
        by_article = sum_by_article(values, articles)
        return {name: getattr(by_article, name) for name in ("names", "articles", "sums")}

    arrays = cached("section-3", compute, inputs={"store": store.key}, code=CODE)
    return Sums(**arrays, layer_numbers=store.layer_numbers)


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
    layers = [layer_number(layer, sums.layer_numbers) for layer in range(counts.shape[1])]
    index = pd.MultiIndex.from_product([sums.articles, layers], names=["article", "layer"])
    table = pd.DataFrame({"examples": counts.max(axis=2).astype(int).ravel()}, index)
    for name in tabulated(sums, sums.names):
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
    n_layers = importance["gradients"].shape[1]
    columns: dict[str, Any] = {"layer": [layer_number(i, numbers) for i in range(n_layers)]}
    columns |= dict.fromkeys(KEY_TYPES[:4])  # in the order of Figure 3's legend
    columns |= {"objective": objective, "loss": importance["losses"].mean()}
    columns |= {"articles": len(names)}
    columns |= {"effective_articles": effective_clusters(np.bincount(owners))}
    for name, ending in GRADIENT_MEASURES.items():
        if name not in importance:
            continue
        by_key = dict(zip(KEY_TYPES, np.moveaxis(importance[name], -1, 0), strict=True))
        ratios = {}  # of sums over examples, each [example, layer]
        for key, values in by_key.items():
            ratios[f"{key}{ending}"] = (values, ~np.isnan(values))
        for key in OVER_SPECIAL:
            ratios[f"other_over_{key}{ending}"] = (by_key["other"], by_key[key])
        for column, values in ratios.items():
            totals, counts = (cluster_sums(np.nan_to_num(v), owners, clusters) for v in values)
            low, high = bootstrap_intervals(totals, counts)
            columns[column] = divide(totals.sum(axis=0), counts.sum(axis=0))
            columns |= {f"{column}_low": low, f"{column}_high": high}
    return pd.DataFrame(columns | {"guess": importance["guesses"].mean()})


def table_without_gradients(n_layers: int, objective: str, reason: str) -> pd.DataFrame:
    """Make the table of gradients that could not be measured.

    Parameters
    ----------
    n_layers : int
        The number of layers.
    objective : str
        The loss that was to be differentiated.
    reason : str
        Why there are no gradients; it becomes the column ``reason``.

    Returns
    -------
    DataFrame
        The columns of `gradient_table`, without numbers, and ``reason``.
    """
    importance = {
        "gradients": np.full((1, n_layers, len(KEY_TYPES)), np.nan),
        "losses": np.array([np.nan]),
        "guesses": np.array([np.nan]),
    }
    return gradient_table(importance, [""], objective).assign(reason=reason)
