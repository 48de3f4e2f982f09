"""Surface-level patterns of attention (section 3): of one example's maps, and over a corpus.

One pass over a store gives everything of sections 3 and 6.  Each shard gives sums over its
examples; the sums of all shards, added in corpus order in float64, give the averages.  Shards can
therefore be computed anywhere, and a corpus of any size needs the memory of one shard.  Sums are
kept by article, as intervals need them: paragraphs of one article are not independent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from zlib import crc32

import numpy as np
import pandas as pd
from jaxtyping import Float

from helpers.analysis.statistics import (
    RESAMPLES,
    bootstrap_intervals,
    cluster_sums,
    resampled_sums,
)
from helpers.data.records import WORD_MARKS, Roles, cluster_of, roles
from helpers.store.store import Example, Store, checked_maps, read_ahead
from helpers.work import progress

ENTROPY_SMOOTHING = 1e-4  # keeps the logarithm finite where attention underflows to zero
RELATIVE_POSITION = ("previous", "current", "next")
TOKEN_TYPES = (
    "cls", "sep", "punctuation", "sep_to_sep", "other_to_sep", "uniform_cls", "uniform_sep",
)  # fmt: skip
ENTROPY = ("entropy", "entropy_from_cls", "uniform", "largest")
SECTION_3 = (*RELATIVE_POSITION, *TOKEN_TYPES, *ENTROPY)
AMONG_WORDS = ("within_layers", "neighbouring_layers")  # of `CLOSENESS`, without special tokens
EVERY = 8  # examples, one is looked at without special tokens: distances take most of the time
# Articles are put into so many groups, by a checksum of their title, and a group is drawn as one:
# the memory for intervals does not grow with the corpus.
GROUPS = 1024

Maps = Float[np.ndarray, "layer head query key"]
PerHead = Float[np.ndarray, "layer head"]


def relative_position(attention: Maps) -> dict[str, PerHead]:
    """Return the attention to the previous, the current and the next token (section 3.1).

    ``previous = sum_i A[i, i-1] / n``: a share of all attention, so 1 - 1/n at most.
    """
    n = attention.shape[-1]
    return {
        name: np.trace(attention, offset=offset, axis1=-2, axis2=-1) / n
        for name, offset in (("previous", -1), ("current", 0), ("next", 1))
    }


def token_types(attention: Maps, roles: Roles) -> dict[str, PerHead]:
    """Return the attention to [CLS], [SEP] and punctuation (section 3.2, Figure 2).

    ``sep_to_sep`` is what the average [SEP] gives to [SEP], ``other_to_sep`` what the average
    other token gives, and ``uniform_cls`` and ``uniform_sep`` what they would get if all tokens
    got the same.  A type of token that the model does not have is NaN.
    """
    n = attention.shape[-1]
    received = attention.sum(axis=-2) / n  # [layer, head, key]
    evenly = np.broadcast_to(_uniform(attention).mean(axis=0), received.shape)
    shares = dict.fromkeys(TOKEN_TYPES, np.full(attention.shape[:2], np.nan))
    for name, mask in (("cls", roles.cls), ("sep", roles.sep)):
        if mask is not None:
            shares[name] = received[..., mask].sum(axis=-1)
            shares[f"uniform_{name}"] = evenly[..., mask].sum(axis=-1)
    shares["punctuation"] = received[..., roles.punctuation].sum(axis=-1)
    if roles.sep is not None:
        to_sep = attention[..., roles.sep].sum(axis=-1)  # [layer, head, query]
        shares["sep_to_sep"] = _mean_at(to_sep, roles.sep)
        shares["other_to_sep"] = _mean_at(to_sep, ~roles.sep)
    return shares


def entropy(attention: Maps, roles: Roles) -> dict[str, PerHead]:
    """Return the entropy of each head's distributions in nats (section 3.3, Figure 4).

    ``entropy`` averages over all queries, ``entropy_from_cls`` is that of [CLS] alone (NaN where
    the model has none), and ``uniform`` is that of uniform attention: ``ln n``, or the mean of
    ``ln(i + 1)`` where position i, from 0, attends to itself and what comes before alone (a
    decoder).  ``largest`` is the mean over queries of the attention to any single token.
    """
    n = attention.shape[-1]
    smoothed = (1 - ENTROPY_SMOOTHING) * attention + ENTROPY_SMOOTHING / n
    each = -np.einsum("lhij,lhij->lhi", smoothed, np.log(smoothed))
    missing = np.full(attention.shape[:2], np.nan)
    return {
        "entropy": each.mean(axis=-1),
        "entropy_from_cls": missing if roles.cls is None else _mean_at(each, roles.cls),
        "uniform": np.full(attention.shape[:2], -np.log(_uniform(attention).max(axis=-1)).mean()),
        "largest": attention.max(axis=-1).mean(axis=-1),
    }


def _uniform(attention: Maps) -> Float[np.ndarray, "query key"]:
    """Return the map that gives all tokens the same, or in a decoder all tokens so far."""
    seen = np.ones(attention.shape[-2:])
    heads = attention.reshape(-1, *seen.shape)
    if not any(np.triu(weights, 1).any() for weights in heads):  # the first one tells, mostly
        seen = np.tril(seen)
    return seen / seen.sum(axis=-1, keepdims=True)


def _mean_at(values: Float[np.ndarray, "layer head query"], mask: np.ndarray) -> PerHead:
    if not mask.any():
        return np.full(values.shape[:2], np.nan)
    return values[..., mask].mean(axis=-1)


def among_words(attention: Maps, roles: Roles) -> Maps:
    """Return the maps without [CLS] and [SEP], rows scaled to sum to one (uniform where all went).

    An example of special tokens alone stays as it is.
    """
    words = np.flatnonzero(roles.punctuation | roles.other)
    if not len(words):
        return attention
    own = attention[:, :, words[:, None], words]
    left = own.sum(axis=-1, keepdims=True)
    return np.divide(own, left, out=np.full_like(own, 1 / len(words)), where=left > 0)


class Sums:
    """Sums over examples of measures, in groups of articles.

    ``names`` are the measures (left out: those of the first example); ``groups`` has for each
    group the sums, and how many examples had a value: ``[2, measure, layer, head]``.
    ``distances`` sums up those of section 6 over all examples, ``word_distances`` those without
    special tokens over one of `EVERY`.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.names = tuple(names)
        self.groups: dict[int, Float[np.ndarray, "2 measure ..."]] = {}
        self.distances: Float[np.ndarray, "heads heads"] | float = 0.0
        self.word_distances: Float[np.ndarray, "heads heads"] | float = 0.0

    def add(self, values: Mapping[str, np.ndarray | float], article: str = "") -> None:
        """Add one example's values; one that is NaN or not there does not count."""
        self.names = self.names or tuple(values)
        given = np.stack(np.broadcast_arrays(*(values.get(name, np.nan) for name in self.names)))
        there = ~np.isnan(given)
        group = crc32(article.encode()) % GROUPS
        own = np.stack([np.where(there, given, 0), there]).astype(np.float64)
        self.groups[group] = self.groups.get(group, 0) + own

    def by_group(self, name: str) -> Float[np.ndarray, "2 group ..."]:
        """Return a measure's sums and counts in each group, ordered by group."""
        index = self.names.index(name)
        return np.stack([self.groups[group][:, index] for group in sorted(self.groups)], axis=1)

    def mean(self, name: str) -> Float[np.ndarray, ...]:
        """Return the average over the examples that have a value, NaN where none has."""
        return _ratio(*self.by_group(name).sum(axis=1))

    def mean_distances(self, *, words: bool = False) -> Float[np.ndarray, "heads heads"]:
        """Return the distances between heads (nats), averaged over examples; or among words."""
        names = [f"{name}_words" for name in AMONG_WORDS] if words else ["current"]
        count = max(self.by_group(name)[1].sum(axis=0).max(initial=1) for name in names)
        return (self.word_distances if words else self.distances) / count

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return the sums as named arrays, to be kept in a file."""
        groups = sorted(self.groups)
        return {
            "names": np.array(self.names),
            "groups": np.array(groups),
            "sums": np.stack([self.groups[group] for group in groups]),
            "distances": np.asarray(self.distances),
            "word_distances": np.asarray(self.word_distances),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Sums:
        """Return the sums that :meth:`to_arrays` made arrays of."""
        sums = cls(arrays["names"].tolist())
        sums.groups = dict(zip(arrays["groups"].tolist(), arrays["sums"], strict=True))
        sums.distances, sums.word_distances = arrays["distances"], arrays["word_distances"]
        return sums


def _ratio(total: np.ndarray, count: np.ndarray) -> np.ndarray:
    return np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)


def combine(parts: Iterable[Sums]) -> Sums:
    """Add up the sums of shards, in the order given."""
    whole = Sums()
    for part in parts:
        whole.names = whole.names or part.names
        whole.distances = whole.distances + part.distances
        whole.word_distances = whole.word_distances + part.word_distances
        for group, own in part.groups.items():
            whole.groups[group] = whole.groups.get(group, 0) + own
    return whole


def example_sums(
    examples: Iterable[Example],
    special_tokens: Mapping[str, str | None],
    *,
    compiled: bool = False,
) -> Sums:
    """Return the sums over some examples of every metric of sections 3 and 6.

    ``compiled`` is for `head_distances`.  MapError where a map is not a distribution over keys;
    the message names the example.
    """
    from helpers.analysis.head_distance import CLOSENESS, closeness, head_distances

    sums = Sums((*SECTION_3, *CLOSENESS, *(f"{name}_words" for name in AMONG_WORDS)))
    for example in examples:
        attention = checked_maps(example)
        own = roles(example.record["tokens"], special_tokens)
        values = relative_position(attention) | token_types(attention, own)
        values |= entropy(attention, own)
        distances = head_distances(attention, compiled=compiled)
        values |= closeness(distances, *attention.shape[:2])
        if example.index % EVERY == 0:
            among = head_distances(among_words(attention, own), compiled=compiled)
            near = closeness(among, *attention.shape[:2])
            values |= {f"{name}_words": near[name] for name in AMONG_WORDS}
            sums.word_distances = sums.word_distances + among
        sums.add(values, cluster_of(example.record, example.index))
        sums.distances = sums.distances + distances
    return sums


def shard_sums(source: Store, number: int) -> Sums:
    """Compute the sums over one shard: the unit of work that can run anywhere."""
    compiled = _compile_if_worthwhile(source)
    return example_sums(source.shard(number), source.special_tokens, compiled=compiled)


def sweep(source: Store) -> Sums:
    """Compute the sums over a whole corpus in one pass, reading one shard ahead."""
    compiled = _compile_if_worthwhile(source)
    shards = progress(read_ahead(source), "sections 3 and 6", unit="shard", total=source.n_shards)
    return combine(
        example_sums(shard, source.special_tokens, compiled=compiled) for shard in shards
    )


def _compile_if_worthwhile(source: Store) -> bool:
    """Compile the kernel of the distances if a whole corpus repays it, and say whether it does.

    It happens before maps are read, because other threads may compute them in forward passes.
    """
    from helpers.analysis.head_distance import compile_distances, repays_compiling

    heads = source.layers * source.heads
    lengths = (len(record["tokens"]) for record in source.records())
    compiled = repays_compiling(lengths, heads)
    if compiled:
        compile_distances(heads)
    return compiled


def head_table(sums: Sums, columns: Iterable[str]) -> pd.DataFrame:
    """Return one row a head: layer and head (from 1), and the mean of each metric.

    The 95% bootstrap intervals over articles come after the means, as ``<column>_low`` and
    ``<column>_high``; they are empty where the text has but one article.
    """
    columns = list(columns)
    means = {name: sums.mean(name) for name in columns}
    for name in columns:
        if not name.startswith("uniform"):  # no property of the model
            by_group = sums.by_group(name)
            bounds = bootstrap_intervals(*by_group.reshape(*by_group.shape[:2], -1))
            means[f"{name}_low"], means[f"{name}_high"] = bounds
    layer, head = np.indices(means[columns[0]].shape) + 1
    rows = {"layer": layer, "head": head} | means
    return pd.DataFrame({name: values.ravel() for name, values in rows.items()})


def article_table(sums: Sums) -> pd.DataFrame:
    """Return each article's averages by layer: what intervals over articles are made from.

    Columns: article (a number), layer (from 1), examples, the metrics of section 3 (means over
    the heads of the layer), and those of `closeness` (of the whole model, in every row).
    """
    means = {name: _ratio(*sums.by_group(name)).mean(axis=2) for name in sums.names}
    examples = sums.by_group("current")[1].max(axis=2).astype(int)  # [group, layer]
    groups, layer = np.indices(examples.shape)
    article = np.array(sorted(sums.groups))[groups]
    columns = {"article": article, "layer": layer + 1, "examples": examples} | means
    return pd.DataFrame({name: values.ravel() for name, values in columns.items()})


def layer_draws(
    articles: pd.DataFrame, name: str, draws: int = RESAMPLES
) -> tuple[pd.DataFrame, int]:
    """Return a metric's mean by layer (rows) in each resample of the articles (columns).

    The resamples are the same for every metric.  Beside it stands from how many articles they
    are drawn.  An article without the metric has no part in its means.
    """
    values = articles.pivot(index="article", columns="layer", values=name)
    examples = articles.pivot(index="article", columns="layer", values="examples")
    sums = resampled_sums((values * examples).fillna(0).to_numpy(), draws=draws)
    sizes = resampled_sums(examples.where(values.notna(), 0).to_numpy(), draws=draws)
    means = pd.DataFrame(sums, columns=values.columns).div(sizes)
    return means.T, int(values.notna().any(axis=1).sum())


def commonest_tokens(source: Store) -> pd.DataFrame:
    """Return the ten commonest tokens of a corpus, special ones left out: token, count."""
    special = set(source.special_tokens.values())
    tokens = (token for record in source.records() for token in record["tokens"])
    counts = Counter(token.lstrip(WORD_MARKS).lower() for token in tokens if token not in special)
    return pd.DataFrame(counts.most_common(10), columns=["token", "count"])


def gradient_table(
    found: Mapping[str, Float[np.ndarray, "example ..."]], articles: Sequence[str], objective: str
) -> pd.DataFrame:
    """Return Figure 3: the mean ``|dL/dA|`` of each layer by type of key, over some examples.

    ``found`` is what `gradient_importance` returns of examples of these ``articles``.  Columns:
    layer (from 1), sep, cls, punctuation, other, objective, loss (nats, the mean); sep_per_value
    ..., of gradients divided by the size of the value vector, if it is known; other_over_sep and
    other_over_cls, ratios of the means; and 95% bootstrap intervals over articles (``sep_low``
    ...).  Empty for a token that the model does not have.
    """
    from helpers.model.gradients import KEY_TYPES

    gradients = found["gradients"]
    owners, names = pd.factorize(np.asarray(articles))
    table = pd.DataFrame({"layer": np.arange(gradients.shape[1]) + 1})

    def add(columns: Iterable[str], *ratio: np.ndarray) -> None:
        sums = (cluster_sums(np.nan_to_num(own), owners, np.arange(len(names))) for own in ratio)
        flat = [own.reshape(len(names), -1) for own in sums]
        ends = _ratio(*(own.sum(axis=0) for own in flat)), *bootstrap_intervals(*flat)
        for end, values in zip(("", "_low", "_high"), ends, strict=True):
            table[[f"{name}{end}" for name in columns]] = values.reshape(len(table), -1)

    add(KEY_TYPES, gradients, ~np.isnan(gradients))
    table.insert(5, "objective", objective)
    table.insert(6, "loss", found["losses"].mean())
    if "per_value" in found:
        own = found["per_value"]
        add([f"{name}_per_value" for name in KEY_TYPES], own, ~np.isnan(own))
    special, other = gradients[..., :2], gradients[..., 3:]
    there = ~np.isnan(special + other)  # in examples with both
    add(["other_over_sep", "other_over_cls"], other * there, special * there)
    return table
