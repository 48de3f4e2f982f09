"""Surface-level patterns of attention (section 3): of one example's maps, and over a corpus.

A measure takes whole maps ``attention[layer, head, query, key]`` and gives a number for each head,
``[layer, head]``.  Averages over a corpus are kept by article, as intervals need them: paragraphs
of one article are not independent.

`layer_summary` has the numbers that are compared: means over layers, and numbers of single heads.
"Middle layers" are those at 45-85% of the depth (layers 6 to 10 of 12).  The "special token" is the
one of [SEP] and [CLS] with more attention in the middle layers, or the first token if the model has
neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Shaped

from helpers.cache import cached
from helpers.data.records import KEY_TYPES, Roles, cluster_of
from helpers.metrics import CODE, TRAINED
from helpers.metrics.heads import LayerNumbers, PerHead, head_rows, layers_from_1
from helpers.metrics.reference import BROAD
from helpers.metrics.statistics import (
    DRAWS,
    Estimate,
    Real,
    bootstrap_estimate,
    bootstrap_intervals,
    cluster_sums,
    divide,
    effective_clusters,
    resampled_ratios,
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
CHANCE_LINES = ("uniform_previous", "uniform_current", "uniform_next", "uniform_punctuation")
SECTION_3 = (*RELATIVE_POSITION, *TOKEN_TYPES, *ENTROPY, *CHANCE_LINES)
ENTROPY_SMOOTHING = 1e-4  # keeps the logarithm finite where attention underflows to zero

Maps = Float[np.ndarray, "layer head query key"]
Masks = Bool[np.ndarray, "layer query key"]
Positions = Bool[np.ndarray, " position"] | slice
Numbers: TypeAlias = float | pd.Series  # one that is exact, or one for each draw
Layers: TypeAlias = pd.Series | pd.DataFrame  # a number for each layer, or layer and draw


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
    values = {}
    for prefix, maps in (("", attention), ("uniform_", uniform)):
        shares = token_types(maps, roles)
        if not cross:
            shares |= relative_position(maps, visible)
        values |= {prefix + name: value for name, value in shares.items()}
    for name, mask in {} if cross else special_masks(roles).items():
        sees_others = np.any(visible[:, mask][..., ~mask], axis=(1, 2))[:, None]  # [layer, 1]
        to_itself = share(attention, mask, mask)
        values[f"{name}_to_{name}"] = np.where(sees_others, to_itself, np.nan)
        values[f"other_to_{name}"] = share(attention, mask, ~mask)
        if name == "cls":
            from_cls = entropy(attention[:, :, mask], visible[:, mask])
            values["entropy_from_cls"] = np.where(sees_others, from_cls, np.nan)
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


def example_values(example: Example) -> dict[str, PerHead]:
    """Compute every measure of section 3 for one example, layer by layer to save memory.

    Parameters
    ----------
    example : Example
        Its maps.

    Returns
    -------
    dict of str to array, shape (layer, head)
    """
    token_roles = example.roles
    by_layer = []
    for stored, visible in zip(example.stored_attention, example.visible_keys, strict=True):
        attention = stored[None].astype(np.float32)
        values = section_3(attention, token_roles, visible[None], cross=example.is_cross)
        by_layer.append(list(values.values()))
    return dict(zip(SECTION_3, np.concatenate(by_layer, axis=1), strict=True))


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

    def among(self, articles: Shaped[np.ndarray, " article"]) -> Sums:
        """Add articles that the text lacks; the given ones are all, in order of their names."""
        sums = np.zeros((2, len(articles), *self.sums.shape[2:]))
        sums[:, np.searchsorted(articles, self.articles)] = self.sums
        return replace(self, articles=articles, sums=sums)

    def draws_of_heads(self, name: str) -> pd.DataFrame:
        """Average a measure in draws of articles: number 0 is all, the others are resamples.

        There is a row for each head, labelled by its layer (from 1), and a column for each draw.
        """
        totals, counts = self.by_article(name)
        replicates = resampled_ratios(totals, counts, DRAWS)  # [draw, layer, head]
        means = np.concatenate([self.mean(name)[None], replicates])
        layer, _ = np.indices(means.shape[1:])
        return pd.DataFrame(means.reshape(len(means), -1).T, layer.ravel() + 1)

    def draws_of_layers(self, name: str) -> pd.DataFrame:
        """Average a measure over heads: a row for each layer (from 1), a column for each draw."""
        return self.draws_of_heads(name).groupby(level=0).mean()


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
    return [example_values(example) for example in store.shard(number)]


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
    means = {name: sums.mean(name) for name in columns}
    if "sink" in means and means["sink"].max() <= ROW_SUM_TOLERANCE:  # the model has none
        del means["sink"]
    bounds = {}
    for name in means:
        if not name.startswith("uniform"):
            low, high = bootstrap_intervals(*sums.by_article(name))
            bounds |= {f"{name}_low": low, f"{name}_high": high}
    return head_rows(*means[name].shape, numbers=sums.layer_numbers, **means, **bounds)


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
        for ratio, pair in ratios.items():  # each [example, layer]
            name = ratio + ending
            totals, counts = (cluster_sums(np.nan_to_num(v), owners, clusters) for v in pair)
            low, high = bootstrap_intervals(totals, counts)
            mean = divide(totals.sum(axis=0), counts.sum(axis=0))
            columns |= {name: mean, f"{name}_low": low, f"{name}_high": high}
    return pd.DataFrame(columns | {"guess": importance["guesses"].mean()})


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
        sums = sums.among(articles)
        numbers = entropy_numbers(sums)
        if model != "entropy-matched":
            numbers |= share_numbers(sums)
        if model == TRAINED:  # the thresholds that depend on the text
            uniform = sums.mean("uniform")
            numbers |= {
                "uniform share of two tokens": float(2 / np.exp(uniform.mean())),
                "entropy of a broad head, last layer": float(BROAD * uniform[-1].mean()),
            }
        for quantity, number in numbers.items():
            if np.isnan(np.ravel(number)[0]):
                continue
            row = {"model": model, "quantity": quantity}
            row |= columns_of_draws(number, "value", n_articles)
            if quantity in trained:
                row |= columns_of_draws(trained[quantity] - number, "lead", n_articles)
            rows.append(row)
        trained = trained or numbers
    table = pd.DataFrame(rows)
    trained_quantities = table.loc[table["model"] == TRAINED, "quantity"]
    return table[table["quantity"].isin(trained_quantities)]


def columns_of_draws(numbers: Numbers, name: str, n_articles: float) -> dict[str, Real]:
    """Name a number and its interval, which has no width if the number is exact."""
    if isinstance(numbers, float | int):
        return Estimate(numbers, numbers, numbers).columns(name)
    return bootstrap_estimate(numbers[0], numbers[1:], n_articles).columns(name, df=True)


def share_numbers(sums: Sums) -> dict[str, Numbers]:
    """Compute the numbers of sections 3.1 and 3.2."""
    by_layer = sums.draws_of_layers
    by_head = sums.draws_of_heads
    cls = by_layer("cls")
    sep = by_layer("sep")
    special = dominant_special_token(pd.DataFrame({"sep": sep[0], "cls": cls[0]}))
    to_special = mean_of_middle_layers(by_layer(special))
    to_itself = mean_of_middle_layers(by_layer(f"{special}_to_{special}"))
    from_others = mean_of_middle_layers(by_layer(f"other_to_{special}"))
    neighbours = third_minus_rest(by_layer("previous") + by_layer("next"))
    punctuation = by_layer("punctuation")[::-1]  # from the last layer to the first
    uniform = by_layer(f"uniform_{special}").mean()
    return {
        "previous and next token, first third of the layers minus the rest": neighbours,
        "special token, middle layers": to_special,
        "special token, middle layers, as a multiple of uniform": to_special / uniform,
        "[SEP] minus [CLS], middle layers": mean_of_middle_layers(sep - cls),
        "[CLS], first third of the layers minus the rest": third_minus_rest(cls),
        "punctuation, last third of the layers minus the rest": third_minus_rest(punctuation),
        "special token from itself minus from other tokens, middle layers": to_itself - from_others,
        "special token from itself, middle layers": to_itself,
        "share of the median head on the current token": by_head("current").median(),
        "largest share of a head on the previous token": by_head("previous").max(),
        "largest share of a head on the next token": by_head("next").max(),
    }


def entropy_numbers(sums: Sums) -> dict[str, Numbers]:
    """Compute the numbers of section 3.3.

    Shares of heads are exact, because these are all heads of the model.
    """
    entropy = sums.draws_of_layers("entropy")
    uniform = sums.draws_of_layers("uniform")
    from_cls = sums.draws_of_layers("entropy_from_cls")
    n_early = first_third(uniform)
    above_uniform = entropy - uniform
    lowest_of_early = above_uniform.iloc[:n_early].min()
    relative = sums.draws_of_heads("entropy") / sums.draws_of_heads("uniform")
    is_broad = relative[0] > BROAD  # by layer, as all numbers of heads
    n_broad = is_broad.loc[:n_early].mean() - is_broad.loc[n_early + 1 :].mean()
    largest = sums.draws_of_heads("largest")[is_broad.to_numpy()].loc[:n_early].median()
    numbers = {
        "lowest entropy of an early layer minus the mean of the rest, above uniform": (
            lowest_of_early - above_uniform.iloc[n_early:].mean()
        ),
        "entropy from [CLS], last layer": from_cls.iloc[-1],
        "largest entropy of an early head, as a share of uniform": relative.loc[:n_early].max(),
        "broad heads of the first third of the layers minus those of the rest": float(n_broad),
        "largest weight of the median broad head of the first third of the layers": largest,
    }
    # The uniform share of [CLS] times the number of tokens that a query sees.  If layers have a
    # window, [CLS] sees less than others do, and they are not compared.
    seen_of_cls = sums.draws_of_layers("uniform_cls")[0] * np.exp(uniform[0])
    if not (seen_of_cls < 0.95).any():  # lengths of texts vary a little around their mean
        minus_all = from_cls - entropy
        distance = minus_all.iloc[:-1].abs().median()
        numbers |= {
            "entropy from [CLS] minus that of all tokens, last layer": minus_all.iloc[-1],
            "entropy from [CLS] and of all tokens, median distance before the last layer": distance,
        }
    return numbers


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
