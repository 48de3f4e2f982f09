"""One pass over a store for everything in sections 3 and 6.

Each shard gives sums over its examples; the sums of all shards, added in corpus order in
float64, give the averages.  Shards can therefore be computed anywhere, and a corpus of any size
needs the memory of one shard.  Beside the averages, the sums of section 3 are kept by article, as
intervals need them: paragraphs of one article are not independent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any
from zlib import crc32

import numpy as np
import pandas as pd
from jaxtyping import Float

from helpers.analysis.clustering import CLOSENESS, closeness
from helpers.analysis.heads import head_rows
from helpers.analysis.statistics import bootstrap_intervals, percentiles, resampled_sums
from helpers.analysis.surface import entropy, relative_position, token_types
from helpers.data.records import cluster_of
from helpers.errors import MapError
from helpers.model.tokens import roles
from helpers.progress import progress
from helpers.store.store import Example, Source, read_ahead

RELATIVE_POSITION = ("previous", "current", "next")
TOKEN_TYPES = (
    "cls", "sep", "punctuation", "sep_to_sep", "other_to_sep", "uniform_cls", "uniform_sep",
)  # fmt: skip
ENTROPY = ("entropy", "entropy_from_cls", "uniform", "largest")
SECTION_3 = (*RELATIVE_POSITION, *TOKEN_TYPES, *ENTROPY)
ROW_SUM_TOLERANCE = 0.02
# Articles are put into so many groups, by a checksum of their title, and a group is drawn as one:
# the memory for intervals does not grow with the corpus.
GROUPS = 1024
WHOLE = -1  # what a table of sums calls the sums over all articles


@dataclass
class Sums:
    """Sums over examples: one array a metric, and how many examples had a value.

    ``groups`` holds the same for each group of articles.
    """

    totals: dict[str, np.ndarray] = field(default_factory=dict)
    counts: dict[str, np.ndarray] = field(default_factory=dict)
    groups: dict[int, Sums] = field(default_factory=dict)

    def add(self, values: Mapping[str, np.ndarray]) -> None:
        """Add one example's values; NaN means that the example has none."""
        for name, value in values.items():
            present = ~np.isnan(value)
            if name not in self.totals:
                self.totals[name] = np.zeros(value.shape)
                self.counts[name] = np.zeros(value.shape)
            self.totals[name] += np.where(present, value, 0)
            self.counts[name] += present

    def mean(self, name: str) -> np.ndarray:
        """Return the average over the examples that have a value, NaN where none has."""
        total, count = self.totals[name], self.counts[name]
        return np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)

    def include(self, other: Sums) -> None:
        """Add other sums, those of its groups to one's own."""
        for name, total in other.totals.items():
            if name in self.totals:
                self.totals[name] += total
                self.counts[name] += other.counts[name]
            else:
                self.totals[name], self.counts[name] = total.copy(), other.counts[name].copy()
        for group, part in other.groups.items():
            self.groups.setdefault(group, Sums()).include(part)

    def by_group(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Return a metric's totals and counts in each group, ordered by group."""
        shape = self.totals[name].shape
        parts = [self.groups[group] for group in sorted(self.groups)]
        totals = [part.totals.get(name, np.zeros(shape)) for part in parts]
        counts = [part.counts.get(name, np.zeros(shape)) for part in parts]
        return np.reshape(totals, (-1, *shape)), np.reshape(counts, (-1, *shape))


def combine(parts: Iterable[Sums]) -> Sums:
    """Add up the sums of shards, in the order given."""
    whole = Sums()
    for part in parts:
        whole.include(part)
    return whole


def example_sums(examples: Iterable[Example], special_tokens: Mapping[str, str | None]) -> Sums:
    """Return the sums over some examples of every metric of sections 3 and 6.

    Raises:
        MapError: a map is not a distribution over keys; the message names the example.
    """
    from helpers.analysis.head_distance import head_distances

    sums = Sums()
    for example in examples:
        attention = checked_maps(example)
        own = roles(example.record["tokens"], special_tokens)
        values = relative_position(attention) | token_types(attention, own)
        values |= entropy(attention, own)
        distances = head_distances(attention)
        values["closeness"] = closeness(distances, *attention.shape[:2])
        sums.add(values | {"distance": distances})
        article = cluster_of(example.record, example.index)
        sums.groups.setdefault(crc32(article.encode()) % GROUPS, Sums()).add(values)
    return sums


def checked_maps(example: Example) -> Float[np.ndarray, "layer head query key"]:
    """Return an example's maps in float32 after checking that every row is a distribution."""
    attention = example.attention.astype(np.float32)
    if not attention.size:
        raise MapError(example.index, "has no tokens")
    if not attention.min() >= 0:
        raise MapError(example.index, "its attention has a negative or undefined (NaN) weight")
    worst = np.abs(attention.sum(axis=-1) - 1).max()
    if not worst < ROW_SUM_TOLERANCE:
        raise MapError(example.index, f"an attention row is off from summing to 1 by {worst:.3g}")
    return attention


def shard_sums(source: Source, number: int) -> Sums:
    """Return the sums over one shard: the unit of work that can run anywhere."""
    return example_sums(source.shard(number), source.special_tokens)


def sweep(source: Source) -> Sums:
    """Return the sums over a whole corpus in one pass, reading one shard ahead."""
    shards = progress(read_ahead(source), "sections 3 and 6", unit="shard", total=source.n_shards)
    return combine(example_sums(shard, source.special_tokens) for shard in shards)


def head_table(sums: Sums, columns: Iterable[str]) -> pd.DataFrame:
    """Return one row a head: layer and head (from 1), and the mean of each metric.

    The 95% bootstrap intervals over articles come after the means, as ``<column>_low`` and
    ``<column>_high``; they are empty where the text has but one article.
    """
    columns = list(columns)
    means = {name: sums.mean(name) for name in columns}
    for name in columns:
        if not name.startswith("uniform"):  # no property of the model
            totals, counts = (part.reshape(len(part), -1) for part in sums.by_group(name))
            means[f"{name}_low"], means[f"{name}_high"] = bootstrap_intervals(totals, counts)
    return head_rows(*means[columns[0]].shape, **means)


def article_table(sums: Sums) -> pd.DataFrame:
    """Return each article's averages by layer: what intervals over articles are made from.

    Columns: article (a number), layer (from 1), examples, the metrics of section 3 (means over
    the heads of the layer), and those of `closeness` (of the whole model, in every row).
    """
    frames = []
    layers = next(iter(sums.totals.values())).shape[0]
    for group, part in sorted(sums.groups.items()):
        columns = {name: part.mean(name).mean(axis=1) for name in SECTION_3}
        if "closeness" in part.totals:
            columns |= dict(zip(CLOSENESS, part.mean("closeness")[0], strict=True))
        examples = int(part.counts["current"].max())
        layer = np.arange(layers) + 1
        frames.append(
            pd.DataFrame({"article": group, "layer": layer, "examples": examples} | columns)
        )
    return pd.concat(frames, ignore_index=True)


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
    articles: dict[str, int] = {}
    sums = Sums()
    for index, value in enumerate(gradient_importance(encoder, records, seed=seed)):
        by_type = dict(zip(KEY_TYPES, value.T, strict=True))  # a number for each layer
        sums.add(by_type)
        article = articles.setdefault(cluster_of(records[index], index), len(articles))
        sums.groups.setdefault(article, Sums()).add(by_type)
    table = pd.DataFrame({"layer": np.arange(encoder.layers) + 1})
    table = table.assign(**{name: sums.mean(name) for name in KEY_TYPES})
    table["objective"] = encoder.objective
    bounds = {name: bootstrap_intervals(*sums.by_group(name)) for name in KEY_TYPES}
    for side, name in product((0, 1), KEY_TYPES):
        table[f"{name}_{('low', 'high')[side]}"] = bounds[name][side]
    return table


def to_table(sums: Sums) -> pd.DataFrame:
    """Return sums as rows (group, metric, row, column, total, count), to be kept in a file."""
    frames = []
    for group, part in ((WHOLE, sums), *sorted(sums.groups.items())):
        for name, total in part.totals.items():
            row, column = np.indices(total.shape).reshape(2, -1)
            values = {"row": row, "column": column, "total": total.ravel()}
            values["count"] = part.counts[name].ravel()
            frames.append(pd.DataFrame({"group": group, "metric": name} | values))
    return pd.concat(frames, ignore_index=True)


def from_table(table: pd.DataFrame) -> Sums:
    """Return the sums that :func:`to_table` made rows of."""
    sums = Sums()
    for (group, name), rows in table.groupby(["group", "metric"], sort=False):
        part = sums if group == WHOLE else sums.groups.setdefault(int(group), Sums())
        shape = (rows["row"].max() + 1, rows["column"].max() + 1)
        part.totals[name] = rows["total"].to_numpy().reshape(shape)
        part.counts[name] = rows["count"].to_numpy().reshape(shape)
    return sums
