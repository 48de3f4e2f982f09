"""Attention weights next to the vectors that they move (Kobayashi et al. 2020).

Attention adds ``sum_j A[i, j] f(x_j)`` to position i (`helpers.model.forward`).  The attention lens
reads ``A[i, j]``, the norm lens ``|A[i, j] f(x_j)|``, normalised over j.  This module averages
both over a corpus, by type of token.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike
from torch import Tensor

from beyond.papers.common.edge_cuts import SPECIAL_KEYS
from beyond.papers.common.fine_tune import concat_with_keys
from beyond.papers.common.threads import thread_map
from beyond.papers.sinks import CODE
from helpers.cache import cached
from helpers.data.records import Record, cluster_of, evenly_spaced, roles
from helpers.metrics.statistics import (
    bootstrap_intervals,
    cluster_sums,
    divide,
    effective_clusters,
)
from helpers.metrics.surface import Sums, sum_by_article
from helpers.model.forward import model_inputs, norm_maps, value_pass
from helpers.model.loading import Model
from helpers.progress import batch_threads
from helpers.settings import Settings, capped
from helpers.store.store import Store

TOKEN_TYPES = ("first", "cls", "sep", "punctuation", "other")
SPECIAL_TYPES = ("first", "cls", "sep")  # "first" is the first token of a model without [CLS]
LENSES = ("attention", "norm")
SpecialTokens = Mapping[str, str | None]  # a model's tokens, by role
SHARE_COLUMNS = tuple(f"{lens}_{token_type}" for lens in LENSES for token_type in TOKEN_TYPES)
VALUE_COLUMNS = tuple(f"value_{token_type}" for token_type in TOKEN_TYPES)
ALL_LAYERS = "all"  # a value of the column layer
MANY_HEADS = 100  # 12 layers of 12 heads take 16 times as long as 6 of half the width
VERY_MANY_HEADS = 200


class SampleSizes(NamedTuple):
    """Numbers of segments that notebook 10 measures: for the two lenses, and for changes."""

    lenses: int
    control_lenses: int
    edges: int
    causes: int


FEW_HEAD_SIZES = SampleSizes(300, 100, edges=32, causes=24)
MANY_HEAD_SIZES = SampleSizes(200, 50, edges=32, causes=16)
# A language model of 30 layers of 9 heads takes 20 times as long for each change.
VERY_MANY_HEAD_SIZES = SampleSizes(100, 25, edges=24, causes=8)
QUICK_SIZES = SampleSizes(8, 4, edges=4, causes=2)


def sample_sizes(settings: Settings, heads: int) -> SampleSizes:
    """Choose the numbers of segments of a run.

    Parameters
    ----------
    settings : Settings
        Its ``segments`` limits the segments.
    heads : int
        Attention heads in all layers.  A model of more than `MANY_HEADS` has fewer segments, and
        one of more than `VERY_MANY_HEADS` even fewer.
    """
    sizes = FEW_HEAD_SIZES if heads <= MANY_HEADS else MANY_HEAD_SIZES
    if heads > VERY_MANY_HEADS:
        sizes = VERY_MANY_HEAD_SIZES
    if settings.quick:
        sizes = QUICK_SIZES
    return SampleSizes(*(capped(settings.segments, size) for size in sizes))


def evenly_spaced_records(source: Store, count: int) -> list[Record]:
    """Read at most ``count`` records, spaced evenly over a source."""
    return [source.record(index) for index in evenly_spaced(range(len(source)), count)]


def token_masks(
    tokens: Sequence[str], special_tokens: SpecialTokens
) -> dict[str, Bool[np.ndarray, " token"]]:
    """Mark the tokens of each of the `TOKEN_TYPES` that the model has; each token has one type.

    Without [CLS], the first token is a type of its own, whatever it is.
    """
    masks = roles(tokens, special_tokens).masks()
    if "cls" not in masks:
        is_first = np.arange(len(tokens)) == 0
        masks = {name: mask & ~is_first for name, mask in masks.items()}
        masks["first"] = is_first
    return masks


def list_articles(records: Iterable[Record]) -> list[str]:
    """List the articles of records."""
    return [cluster_of(record, index) for index, record in enumerate(records)]


def lens_values(
    lenses: Mapping[str, Float[np.ndarray, "layer head query key"]],
    norms: Float[np.ndarray, "layer head key"],
    masks: Mapping[str, Bool[np.ndarray, " token"]],
) -> dict[str, Float[np.ndarray, "layer head"]]:
    """Compute one example's shares and value norms by type of token, for each head.

    Parameters
    ----------
    lenses : mapping of str to array, shape (layer, head, query, key)
        The maps of each of the `LENSES`; each row sums to 1.
    norms : array, shape (layer, head, key)
        ``|f(x_j)|`` of each position.
    masks : mapping of str to array
        The tokens of each type, from `token_masks`.

    Returns
    -------
    dict of str to array, shape (layer, head)
        `SHARE_COLUMNS`: the share that a type of token gets through a lens, NaN for a token that
        the model does not have.  `VALUE_COLUMNS`: the mean ``|f(x)|`` of a type, as a multiple of
        the mean over all tokens of the example, NaN if the example has none.
    """
    missing = np.full(norms.shape[:2], np.nan)
    values = dict.fromkeys((*SHARE_COLUMNS, *VALUE_COLUMNS), missing)
    received = {lens: maps.mean(axis=-2) for lens, maps in lenses.items()}  # [layer, head, key]
    relative_norms = norms / norms.mean(axis=-1, keepdims=True)
    for token_type, mask in masks.items():
        for lens, shares in received.items():
            values[f"{lens}_{token_type}"] = shares[..., mask].sum(axis=-1)
        if mask.any():
            values[f"value_{token_type}"] = relative_norms[..., mask].mean(axis=-1)
    return values


def lens_table(encoder: Model, source: Store, count: int) -> pd.DataFrame:
    """Measure attention and norm lens on segments of a source.

    Parameters
    ----------
    encoder : Model
        The model, which may differ from that of ``source`` if it has the same tokenizer.
    source : Store
        Its records are read, not its maps.
    count : int
        The number of segments at most, spaced evenly over the source.

    Returns
    -------
    DataFrame
        `special_table`, one row per set of tokens and layer.

    Raises
    ------
    ModelError
        If the value vectors of the model cannot be located.
    """

    def compute() -> pd.DataFrame:
        return special_table(lens_sums(encoder, evenly_spaced_records(source, count)))

    inputs = {"store": source.key, "model": encoder.key, "segments": count}
    return cached("lenses", compute, inputs=inputs, code=CODE)


def lens_sums(encoder: Model, records: Sequence[Record]) -> Sums:
    """Sum `lens_values` over segments, by article."""
    with value_pass(encoder) as run:

        def values_of_segment(index: int) -> dict[str, Float[np.ndarray, "layer head"]]:
            record = records[index]
            maps, norms, _ = run([model_inputs(encoder, record)])
            attention = first_example(maps)
            value_norms = first_example(norms)
            lenses = {"attention": attention, "norm": norm_maps(attention, value_norms)}
            masks = token_masks(record["tokens"], encoder.special_tokens)
            return lens_values(lenses, value_norms, masks)

        threads = batch_threads(encoder.model.device)
        indices = range(len(records))
        values = list(thread_map(values_of_segment, indices, label="lenses", threads=threads))
    return sum_by_article(values, list_articles(records))


def first_example(layers: Sequence[Tensor]) -> Float[np.ndarray, "layer ..."]:
    """Stack the layers' arrays of the first example of a batch."""
    return torch.stack(list(layers))[:, 0].float().numpy(force=True)


def special_table(sums: Sums) -> pd.DataFrame:
    """Compute the share of special tokens through both lenses, for each layer and in all.

    Returns
    -------
    DataFrame
        Columns: token ("special" for all of the next ones together, "first", "cls", "sep", as far
        as the model has them; "first" if it has no "cls"); layer ("1", ..., and
        "all"); attention and norm, the mean shares; ``ratio``, norm over attention;
        ``value_ratio``, the mean norm of the value vectors of the token over that of words without
        punctuation, where those together count equally.  Bounds of both ratios end in
        _low and _high, the degrees of freedom in _df.
    """
    n_examples = sums.by_article("attention_other")[1].sum(axis=0).max()
    present = [name for name in SPECIAL_TYPES if sums.by_article(f"attention_{name}")[1].any()]
    tables = {}
    for token in (SPECIAL_KEYS, *present):
        token_types = present if token == SPECIAL_KEYS else [token]
        attention = _article_sums(sums, "attention", token_types)
        norm = _article_sums(sums, "norm", token_types)
        values = _article_sums(sums, "value", token_types)
        n_present = sum(sums.by_article(f"value_{role}")[1].any() for role in token_types)
        word_values = n_present * _article_sums(sums, "value", ["other"])
        table = pd.DataFrame({"layer": [*map(str, range(1, attention.shape[1])), ALL_LAYERS]})
        table["attention"] = attention.sum(axis=0) / n_examples
        table["norm"] = norm.sum(axis=0) / n_examples
        tables[token] = with_ratio(table, "ratio", norm, attention)
        with_ratio(table, "value_ratio", values, word_values)
    return concat_with_keys(tables, "token")


def with_ratio(
    table: pd.DataFrame, name: str, numerators: ArrayLike, denominators: ArrayLike
) -> pd.DataFrame:
    """Add to each row of a table the ratio of two sums over articles, with its interval and df.

    The columns of the sums, in any shape after the articles, belong to the rows of the table.
    """
    numerators = np.asarray(numerators)
    numerators = numerators.reshape(len(numerators), -1)
    denominators = np.asarray(denominators)
    denominators = denominators.reshape(len(denominators), -1)
    low, high = bootstrap_intervals(numerators, denominators)
    table[name] = divide(numerators.sum(axis=0), denominators.sum(axis=0))
    table[f"{name}_low"] = low
    table[f"{name}_high"] = high
    table[f"{name}_df"] = effective_clusters(denominators) - 1
    return table


def with_means(
    table: pd.DataFrame,
    name: str,
    values: Float[np.ndarray, "example ..."],
    articles: Sequence[str],
) -> pd.DataFrame:
    """Add to each row of a table the mean of its values over examples, as `with_ratio` does."""
    owners = np.array(articles)
    clusters = np.unique(owners)
    flat = values.reshape(len(values), -1)
    counts = cluster_sums(np.ones_like(flat), owners, clusters)
    return with_ratio(table, name, cluster_sums(flat, owners, clusters), counts)


def _article_sums(
    sums: Sums, measure: str, token_types: Sequence[str]
) -> Float[np.ndarray, "article column"]:
    """Sum a measure over examples and types of tokens, as means over heads.

    There is a column per layer and one of all layers.
    """
    names = [f"{measure}_{token_type}" for token_type in token_types]
    by_layer = np.sum([sums.by_article(name)[0].mean(axis=2) for name in names], axis=0)
    return np.column_stack([by_layer, by_layer.mean(axis=1)])
