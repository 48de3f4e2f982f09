"""Surface-level patterns of attention (section 3): of one example's maps, and over a corpus.

One pass over a store gives everything of section 3.  Each shard gives sums over its
examples; the sums of all shards, added in corpus order in float64, give the averages.  Shards can
therefore be computed anywhere, and a corpus of any size needs the memory of one shard.  Sums are
kept by article, as intervals need them: paragraphs of one article are not independent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from zlib import crc32

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from helpers.cache import cached
from helpers.data.records import KEY_TYPES, Roles, cluster_of, roles
from helpers.errors import InputError
from helpers.metrics import CODE, rows
from helpers.metrics.heads import PerHead, head_rows
from helpers.metrics.statistics import (
    DRAWS,
    bootstrap_intervals,
    cluster_sums,
    divide,
    effective_clusters,
    resampled_ratios,
)
from helpers.progress import progress
from helpers.store.store import Example, Store

RELATIVE_POSITION = tuple(rows.OFFSETS)
TOKEN_TYPES = rows.TOKEN_TYPES
ENTROPY_SMOOTHING = rows.ENTROPY_SMOOTHING
# Columns of gradients.csv: the ending of their names by what is differentiated.
GRADIENT_MEASURES = {"gradients": "", "per_value": "_per_value", "per_score": "_per_score"}
OVER_SPECIAL = ("sep", "cls", "first")  # keys whose gradients others are compared with
ENTROPY = ("entropy", "entropy_from_cls", "uniform", "largest")
SECTION_3 = (*RELATIVE_POSITION, *TOKEN_TYPES, *ENTROPY)
NEEDS_SQUARE = (
    "{} needs square maps, from a text to itself, and these are maps of cross-attention; leave it "
    "out"
)
# Each article is a bootstrap cluster.  If there are more, they are assigned to this number of
# clusters by a checksum of their title: memory for intervals does not grow with the corpus.
MAX_CLUSTERS = 1024

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

    Raises
    ------
    InputError
        For maps that are not square.
    """
    n_queries, n = attention.shape[-2:]
    if n_queries != n:
        raise InputError(NEEDS_SQUARE.format("relative_position"))
    visible = all_if_none(visible, attention)
    return rows.means_of_maps(rows.relative_position, attention, visible)


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
        - ``sink``: the mass that rows lack to a sum of one, because the model's softmax has a sink
          besides the keys; NaN if rows sum to one.
    """
    measure = partial(rows.token_types, roles=roles, cross=cross)
    return rows.means_of_maps(measure, attention, all_if_none(visible, attention))


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
    measure = partial(rows.entropy, roles=roles, cross=cross)
    return rows.means_of_maps(measure, attention, all_if_none(visible, attention))


def all_if_none(visible: Masks | None, attention: Maps) -> Masks:
    """Return the keys that are visible: all, if nothing is known of a mask."""
    n_layers, _, *shape = attention.shape
    return np.ones((n_layers, *shape), dtype=bool) if visible is None else visible


@dataclass
class Sums:
    """Sums over examples of measures, by groups of articles.

    Attributes
    ----------
    names : tuple of str
        The measures, in the order of the first example.
    groups : dict of str to array, shape (2, measure, layer, head)
        For each group of articles the sums, and the number of examples that had a value.  A group
        is an article, and has its name.
    are_buckets : bool
        Whether the groups are buckets of articles instead, because there were more articles than
        `MAX_CLUSTERS`.
    """

    names: tuple[str, ...] = ()
    groups: dict[str, Float[np.ndarray, "2 _measure ..."]] = field(default_factory=dict)
    are_buckets: bool = False

    def add(self, values: Mapping[str, np.ndarray], article: str = "") -> None:
        """Add one example's values, of the same measures for every example; NaN does not count."""
        self.names = tuple(values)
        measured = np.stack(list(values.values()))
        is_measured = ~np.isnan(measured)
        sums_and_counts = np.stack([np.where(is_measured, measured, 0), is_measured])
        self._add_to_group(article, sums_and_counts.astype(np.float64))

    def add_sums(self, sums: Sums) -> None:
        """Add the sums of further examples."""
        self.names = sums.names
        if sums.are_buckets and not self.are_buckets:
            self._assign_to_buckets()
        for group, sums_and_counts in sums.groups.items():
            if sums.are_buckets:
                self.groups[group] = self.groups.get(group, 0) + sums_and_counts
            else:
                self._add_to_group(group, sums_and_counts)

    def _add_to_group(
        self, article: str, sums_and_counts: Float[np.ndarray, "2 measure ..."]
    ) -> None:
        """Add sums of an article to its group."""
        group = _bucket(article) if self.are_buckets else article
        self.groups[group] = self.groups.get(group, 0) + sums_and_counts
        if len(self.groups) > MAX_CLUSTERS:
            self._assign_to_buckets()

    def _assign_to_buckets(self) -> None:
        """Put the articles into buckets."""
        articles = self.groups
        self.groups = {}
        self.are_buckets = True
        for article, sums_and_counts in articles.items():
            self._add_to_group(article, sums_and_counts)

    def by_group(self, name: str) -> Float[np.ndarray, "2 group ..."]:
        """Select the sums and counts of one measure, ordered by group.

        InputError if it was not measured, as shares of neighbours in cross-attention.
        """
        if name not in self.names:
            raise InputError(NEEDS_SQUARE.format(name))
        sums = np.stack([self.groups[group] for group in sorted(self.groups)], axis=1)
        return sums[:, :, self.names.index(name)]

    def mean(self, name: str) -> Float[np.ndarray, ...]:
        """Average one measure over the examples that have a value; NaN if none has."""
        return divide(*self.by_group(name).sum(axis=1))

    def is_measured(self, name: str) -> bool:
        """Whether a measure is to be tabulated: a sink only if the model has one."""
        return name != "sink" or bool(self.by_group(name)[1].any())

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Convert the sums to named arrays, which can be saved in a file."""
        return {
            "names": np.array(self.names),
            "groups": np.array(list(self.groups)),
            "are_buckets": np.array(self.are_buckets),
            "sums": np.stack(list(self.groups.values())),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Sums:
        """Restore the sums from the arrays of :meth:`to_arrays`."""
        groups = dict(zip(arrays["groups"].tolist(), arrays["sums"], strict=True))
        return cls(tuple(arrays["names"].tolist()), groups, bool(arrays["are_buckets"]))


def _bucket(article: str) -> str:
    """Name the bucket of an article, which depends on its title only."""
    return f"bucket {crc32(article.encode()) % MAX_CLUSTERS:04d}"


def combine(parts: Iterable[Sums], *, in_buckets: bool = False) -> Sums:
    """Add up the sums of shards in the order in which they come, if need be in buckets at once."""
    combined = Sums(are_buckets=in_buckets)
    for part in parts:
        combined.add_sums(part)
    return combined


def example_sums(examples: Iterable[Example], special_tokens: Mapping[str, str | None]) -> Sums:
    """Sum every measure of section 3 over some examples.

    Parameters
    ----------
    examples : iterable of Example
        Their maps.
    special_tokens : mapping of str to str or None
        The tokens in the roles ``cls`` and ``sep``; None if the model has none.

    Returns
    -------
    Sums
    """
    sums = Sums()
    for example in examples:
        article = cluster_of(example.record, example.index)
        sums.add(example_values(example, special_tokens), article)
    return sums


def example_values(
    example: Example, special_tokens: Mapping[str, str | None]
) -> dict[str, PerHead]:
    """Compute every measure of section 3 for one example; without neighbours for cross-attention.

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
    measure = partial(rows.section_3, roles=token_roles, cross=example.is_cross)
    return rows.means_of_maps(measure, example.attention, example.visible_keys)


def shard_sums(source: Store, number: int) -> Sums:
    """Sum every measure of section 3 over the texts of a shard."""
    return example_sums(source.shard(number), source.special_tokens)


def sweep(
    source: Store,
    number: int | None = None,
    *,
    sum_shard: Callable[[Store, int], Sums] = shard_sums,
    label: str = "section 3",
) -> Sums:
    """Sum measures over a corpus in one pass, or over one of its shards.

    Parameters
    ----------
    source : Store
    number : int, optional
        Number of a shard, the unit of work that can run anywhere.  By default all shards.
    sum_shard : callable
        What to compute from a store and the number of a shard; by default the measures of
        section 3.
    label : str
        Text in front of the progress bar.
    """
    if number is not None:
        return sum_shard(source, number)
    numbers = progress(range(source.n_shards), label, unit="shard")
    return combine(sum_shard(source, index) for index in numbers)


def sums(store: Store) -> Sums:
    """Sum every measure of section 3 over a store, once.

    Parameters
    ----------
    store : Store
        Token-level maps of a text.

    Returns
    -------
    Sums
    """
    arrays = cached(
        "section-3", lambda: sweep(store).to_arrays(), inputs={"store": store.key}, code=CODE
    )
    return Sums.from_arrays(arrays)


def sums_by_model(stores: Mapping[str, Store]) -> dict[str, Sums]:
    """Sum every measure of section 3 over the stores of a model and of its controls.

    Parameters
    ----------
    stores : mapping of str to Store
        Their token-level maps by model; the first is the model's, the others of a part of its text.

    Returns
    -------
    dict of str to Sums
        By model.  Controls have the groups of the model, with which they are paired.
    """
    by_model = {model: sums(store) for model, store in stores.items()}
    are_buckets = next(iter(by_model.values())).are_buckets
    return {model: combine([part], in_buckets=are_buckets) for model, part in by_model.items()}


def head_table(sums: Sums, columns: Iterable[str]) -> pd.DataFrame:
    """Tabulate the means of measures, one row per attention head.

    Parameters
    ----------
    sums : Sums
        The sums over a corpus, from `sweep`.
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
    means = {name: sums.mean(name) for name in columns if sums.is_measured(name)}
    bounds = {}
    for name in means:
        if not name.startswith("uniform"):
            low, high = bootstrap_intervals(*sums.by_group(name))
            bounds |= {f"{name}_low": low, f"{name}_high": high}
    return head_rows(*means[name].shape, **means, **bounds)


def article_table(sums: Sums) -> pd.DataFrame:
    """Tabulate the averages of each article by layer, from which intervals are made.

    Parameters
    ----------
    sums : Sums
        The sums over a corpus, from `sweep`.

    Returns
    -------
    DataFrame
        ``article`` (the name of its group, by which models are paired), ``layer`` (from 1),
        ``examples``, and the measures of section 3 (means over the heads of the layer).
    """
    _, counts = sums.by_group("entropy")  # [group, layer, head]
    examples = counts.max(axis=2).astype(int)  # [group, layer]
    articles = sorted(sums.groups)
    layers = range(1, examples.shape[1] + 1)
    index = pd.MultiIndex.from_product([articles, layers], names=["article", "layer"])
    table = pd.DataFrame({"examples": examples.ravel()}, index)
    for name in sums.names:
        if sums.is_measured(name):
            table[name] = divide(*sums.by_group(name)).mean(axis=2).ravel()
    return table.reset_index()


def layer_resamples(
    articles: pd.DataFrame, name: str, article_names: Iterable[Any]
) -> tuple[pd.DataFrame, float]:
    """Compute the means of one measure by layer in bootstrap resamples of the articles.

    The resamples are the same for every measure.

    Parameters
    ----------
    articles : DataFrame
        The table of `article_table`.
    name : str
        One of its measures.  An article without it has no part in the means.
    article_names : iterable
        The articles that are resampled: those of all models that are compared.

    Returns
    -------
    means : DataFrame
        One row per layer, one column per resample.
    n_articles : float
        The effective number of articles that have the measure.
    """
    values = articles.pivot(index="article", columns="layer", values=name)
    examples = articles.pivot(index="article", columns="layer", values="examples")
    sizes = examples.where(values.notna(), 0).reindex(sorted(set(article_names)), fill_value=0)
    totals = (values * sizes).fillna(0)
    means = resampled_ratios(totals.to_numpy(), sizes.to_numpy(), DRAWS)  # [resample, layer]
    n_articles = effective_clusters(sizes.max(axis=1).to_numpy())
    return pd.DataFrame(means.T, values.columns), float(n_articles)


def gradient_table(
    importance: Mapping[str, Float[np.ndarray, "example ..."]],
    articles: Sequence[str],
    objective: str,
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
    article_number, names = pd.factorize(np.asarray(articles))
    clusters = np.arange(len(names))
    table = pd.DataFrame({"layer": np.arange(importance["gradients"].shape[1]) + 1})
    for name, ending in GRADIENT_MEASURES.items():
        if name not in importance:
            continue
        values = importance[name]  # [example, layer, type of key]
        is_measured = ~np.isnan(values)
        special = [KEY_TYPES.index(key) for key in OVER_SPECIAL]
        other_type = [KEY_TYPES.index("other")] * len(special)
        ratios = [f"other_over_{key}{ending}" for key in OVER_SPECIAL]
        for columns, numerator, denominator in (
            ([f"{key}{ending}" for key in KEY_TYPES], values, is_measured),
            (ratios, values[..., other_type], values[..., special]),
        ):
            totals = cluster_sums(np.nan_to_num(numerator), article_number, clusters)
            counts = cluster_sums(np.nan_to_num(denominator), article_number, clusters)
            low, high = bootstrap_intervals(totals, counts)
            table[columns] = divide(totals.sum(axis=0), counts.sum(axis=0))
            table[[f"{column}_low" for column in columns]] = low
            table[[f"{column}_high" for column in columns]] = high
    table.insert(5, "objective", objective)
    table.insert(6, "loss", importance["losses"].mean())
    table.insert(7, "articles", len(names))
    table.insert(8, "effective_articles", effective_clusters(np.bincount(article_number)))
    table["guess"] = importance["guesses"].mean()
    return table


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
