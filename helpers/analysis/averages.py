"""One pass over a store for everything in sections 3 and 6.

Each shard gives sums over its examples; the sums of all shards, added in corpus order in
float64, give the averages.  Shards can therefore be computed anywhere, and a corpus of any size
needs the memory of one shard.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from jaxtyping import Float

from helpers.analysis.head_distance import DistanceKernel
from helpers.analysis.heads import head_rows
from helpers.analysis.surface import entropy, relative_position, token_types
from helpers.errors import MapError
from helpers.model.token_types import roles
from helpers.progress import progress
from helpers.store.store import Example, Source, read_ahead

RELATIVE_POSITION = ("previous", "current", "next")
TOKEN_TYPES = ("cls", "sep", "punctuation", "sep_to_sep", "other_to_sep")
ENTROPY = ("entropy", "entropy_from_cls", "uniform")
ROW_SUM_TOLERANCE = 0.02


@dataclass
class Sums:
    """Sums over examples: one array a metric, and how many examples had a value."""

    totals: dict[str, np.ndarray] = field(default_factory=dict)
    counts: dict[str, np.ndarray] = field(default_factory=dict)

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


def combine(parts: Iterable[Sums]) -> Sums:
    """Add up the sums of shards, in the order given."""
    whole = Sums()
    for part in parts:
        for name, total in part.totals.items():
            if name in whole.totals:
                whole.totals[name] += total
                whole.counts[name] += part.counts[name]
            else:
                whole.totals[name], whole.counts[name] = total.copy(), part.counts[name].copy()
    return whole


def example_sums(
    examples: Iterable[Example],
    special_tokens: Mapping[str, str | None],
    distances: DistanceKernel | None,
) -> Sums:
    """Return the sums over some examples of every metric of sections 3 and 6.

    Raises:
        MapError: a map is not a distribution over keys; the message names the example.
    """
    sums = Sums()
    for example in examples:
        attention = checked_maps(example)
        own = roles(example.record["tokens"], special_tokens)
        sums.add(relative_position(attention))
        sums.add(token_types(attention, own))
        sums.add(entropy(attention, own))
        if distances is not None:
            sums.add({"distance": distances(attention)})
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
    return example_sums(source.shard(number), source.special_tokens, DistanceKernel())


def sweep(source: Source) -> Sums:
    """Return the sums over a whole corpus in one pass, reading one shard ahead."""
    kernel = DistanceKernel()
    shards = progress(read_ahead(source), "sections 3 and 6", unit="shard", total=source.n_shards)
    return combine(example_sums(shard, source.special_tokens, kernel) for shard in shards)


def head_table(sums: Sums, columns: Iterable[str]) -> pd.DataFrame:
    """Return one row a head: layer and head (from 1) and the mean of each metric."""
    means = {name: sums.mean(name) for name in columns}
    return head_rows(*next(iter(means.values())).shape, **means)


def to_table(sums: Sums) -> pd.DataFrame:
    """Return sums as rows (metric, row, column, total, count), to be kept in a file."""
    return pd.concat(
        pd.DataFrame(
            {
                "metric": name,
                "row": np.indices(total.shape)[0].ravel(),
                "column": np.indices(total.shape)[1].ravel(),
                "total": total.ravel(),
                "count": sums.counts[name].ravel(),
            }
        )
        for name, total in sums.totals.items()
    )


def from_table(table: pd.DataFrame) -> Sums:
    """Return the sums that :func:`to_table` made rows of."""
    sums = Sums()
    for name, rows in table.groupby("metric"):
        shape = (rows["row"].max() + 1, rows["column"].max() + 1)
        sums.totals[name] = rows["total"].to_numpy().reshape(shape)
        sums.counts[name] = rows["count"].to_numpy().reshape(shape)
    return sums
