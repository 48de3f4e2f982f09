"""The claims of Clark et al. (2019), each a row of ``claims_clark.csv``, and their measures.

A measure is a function that the file names: from a run's tables to a number with its interval.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import binomtest, norm, spearmanr

from helpers.analysis.averages import layer_draws
from helpers.analysis.claims import (
    Claim,
    Estimate,
    NotMeasurable,
    Tables,
    at_depth,
    by_layer,
    chosen_rows,
    column,
    read_claims,
    row_where,
    rows_of,
    with_bounds,
)
from helpers.analysis.head_choice import DIRECTIONS
from helpers.analysis.paper import paper_table1, paper_table2, values_of
from helpers.analysis.relations import ALL, FIGURE_5, paper_names
from helpers.analysis.statistics import bootstrap_interval, percentiles

Layers = pd.Series | pd.DataFrame  # a number for each layer, or for each layer and resample

ARTICLES = "averages_by_article"
SEGMENTS = ("relative_position", "token_types", "entropy")  # tables that have its averages
MOSTLY = 0.5  # "more than half of their attention"
LITTLE = 0.1  # of their attention
NEAR_UNIFORM = 0.9  # of the entropy of uniform attention
BROAD = 0.75  # of that entropy; the paper's 3.89 nats are 80% of ln 128
ALPHA = 0.05
BY_FAR = 20  # points
NAMED = ("dobj", "det", "pobj", "poss")  # in the introduction
SPECIAL = "special token"  # stands for "sep" or "cls"


def clark_claims() -> list[Claim]:
    """Return every claim of the paper, in its order."""
    return read_claims(Path(__file__).with_name("claims_clark.csv"), globals(), paper_numbers())


def paper_numbers() -> dict[str, float]:
    """Return the paper's numbers by name: those of its text, and what its tables come to.

    The latter are called as the measure that gives the same number here.
    """
    one, two = paper_table1(), paper_table2()
    three, text = values_of("Table 3"), values_of("text")
    gains = one["accuracy"] - one["baseline"]
    single, pair = gains.drop(ALL), text["uniform share of a separator pair"]
    return {
        **text,
        "times_uniform": text["middle layers to separator"] / pair,
        **{f"margin: {name}": gain for name, gain in gains.items()},
        "relations_beyond_offset": (single > 0).mean(),
        "relations_by_far": (single > BY_FAR).sum(),
        "lowest_of_named": one.loc[list(NAMED), "accuracy"].min(),
        **{f"margin_over_rule: {rule}, {kind}": two.loc["head", kind] - score
           for (rule, kind), score in two.stack().items()},
        **{f"probe_difference: {probe}, {other}": three[probe] - three[other]
           for probe in three for other in three},
    }  # fmt: skip


# Section 3: averages by layer, resampled over articles


def middle(values: Layers) -> float | pd.Series:
    """Return the mean over layers 6 to 10 of 12, by relative depth."""
    return at_depth(values, 0.45, 0.85)


def third(layers: pd.Index | pd.Series) -> float:
    """Return the last layer of the first third, or how many layers the last third has."""
    return np.ceil(layers.max() / 3)


def _less_rest(values: Layers, mine: np.ndarray) -> float | pd.Series:
    return values[mine].mean() - values[~mine].mean()


SUMMARIES: Mapping[str, Callable[..., float | pd.Series]] = {
    "middle layers": middle,
    "first third less rest": lambda v: _less_rest(v, v.index <= third(v.index)),
    "last third less rest": lambda v: _less_rest(v, v.index > v.index.max() - third(v.index)),
    "last layer": lambda v: v.iloc[-1],
    "difference": lambda one, other: one.mean() - other.mean(),
    "difference in the last layer": lambda one, other: (one - other).iloc[-1],
    "median distance before the last layer": lambda one, other: (
        (one - other).iloc[:-1].abs().median()
    ),
}


def over_layers(
    tables: Tables, summary: str | Callable[..., float | pd.Series], *names: str
) -> Estimate:
    """Return one of `SUMMARIES` of averages by layer, with its interval over articles."""
    names = [special_token(tables) if name == SPECIAL else name for name in names]
    compute = SUMMARIES[summary] if isinstance(summary, str) else summary
    value = compute(*(by_layer(tables, _owner(tables, name), name) for name in names))
    if np.isnan(value):
        return Estimate(value)
    return _resampled(tables, value, compute, names)


def _resampled(
    tables: Tables, value: float, compute: Callable[..., pd.Series], names: Iterable[str]
) -> Estimate:
    """Give a number its interval, over the articles if the run has their averages."""
    if ARTICLES not in tables:
        return Estimate(value)
    draws = [layer_draws(rows_of(tables, ARTICLES, name), name) for name in names]
    drawn = np.asarray(compute(*(means for means, _ in draws)))
    low, high = percentiles(drawn[:, None], min(count for _, count in draws))
    return Estimate(value, float(low[0]), float(high[0]))


def _owner(tables: Tables, name: str) -> str:
    """Return which table of section 3 has a column."""
    for table in SEGMENTS:
        if table in tables and name in tables[table]:
            return table
    raise NotMeasurable(f"a table with {name}")


def _counted(tables: Tables, table: str, name: str, count: Callable[..., float]) -> Estimate:
    """Return a count of a column's values, and those of the ends of their intervals."""
    value, *bounds = (float(count(column(tables, table, own))) for own in with_bounds(name))
    return Estimate(value, min(bounds), max(bounds))


def share_with_little(tables: Tables, name: str) -> Estimate:
    """Return the share of heads with little attention to a relative position."""
    return _counted(tables, "relative_position", name, lambda values: (values < LITTLE).mean())


def heads_mostly_to(tables: Tables, name: str) -> Estimate:
    """Return how many heads have most of their attention at a relative position."""
    return _counted(tables, "relative_position", name, lambda values: (values > MOSTLY).sum())


def depth_of_positional_heads(tables: Tables) -> Estimate:
    """Return the mean relative layer of positional heads, with its interval over these heads."""
    previous, following = (column(tables, "relative_position", n) for n in ("previous", "next"))
    layers = column(tables, "relative_position", "layer")
    positional = (previous > MOSTLY) | (following > MOSTLY)
    depths = chosen_rows(layers, positional, "positional heads") / layers.max()
    bounds = bootstrap_interval(depths.to_numpy(), np.ones(len(depths)))
    return Estimate(depths.mean(), *bounds)


def special_token(tables: Tables) -> str:
    """Return which of [SEP] and [CLS] gets more attention in the middle layers of this model."""
    shares = {}
    for name in ("sep", "cls"):
        with suppress(NotMeasurable):
            shares[name] = middle(by_layer(tables, "token_types", name))
    if not shares:
        raise NotMeasurable("no special token")
    return max(shares, key=shares.__getitem__)


def share_of_two(tables: Tables) -> float:
    """Return the uniform share of a token that is twice in a segment of typical length."""
    return 2 / np.exp(column(tables, "entropy", "uniform").mean())


def share_of_sep(tables: Tables) -> float:
    """Return the uniform share of [SEP], which some models have three times in a segment."""
    return column(tables, "token_types", "uniform_sep").mean()


def times_uniform(tables: Tables) -> Estimate:
    """Return the special token's share in the middle layers as a multiple of its uniform one."""
    share = column(tables, "token_types", f"uniform_{special_token(tables)}").mean()
    return over_layers(tables, lambda values: middle(values) / share, SPECIAL)


def attention_against_gradient(tables: Tables) -> Estimate:
    """Return the correlation over layers of attention to the special token and its gradient."""
    name = special_token(tables)
    attention, gradient = (by_layer(tables, own, name) for own in ("token_types", "gradients"))
    if min(attention.nunique(), gradient.nunique()) < 2:
        raise NotMeasurable("no correlation with a constant")
    found = spearmanr(attention, gradient).statistic
    if len(attention) < 4:
        return Estimate(found)
    # Fisher's z with the standard error of Bonett and Wright (2000).
    error = np.sqrt((1 + found**2 / 2) / (len(attention) - 3))
    z = np.arctanh(np.clip(found, -1 + 1e-9, 1 - 1e-9))
    return Estimate(found, *np.tanh(z + error * norm.ppf([ALPHA / 2, 1 - ALPHA / 2])))


def broad_early(tables: Tables, entropies: pd.Series) -> pd.Series:
    """Return which heads of the first third of the layers are nearly uniform."""
    uniform, layers = (column(tables, "entropy", name) for name in ("uniform", "layer"))
    return (entropies / uniform > NEAR_UNIFORM) & (layers <= third(layers))


def broad_heads(tables: Tables) -> Estimate:
    """Return how many heads of the first third of the layers are nearly uniform."""
    return _counted(tables, "entropy", "entropy", lambda each: broad_early(tables, each).sum())


def largest_of_broad(tables: Tables) -> Estimate:
    """Return the mean attention of `broad_early` heads to any single token."""
    broad = broad_early(tables, column(tables, "entropy", "entropy"))
    columns = (column(tables, "entropy", name) for name in with_bounds("largest"))
    return Estimate(*(chosen_rows(values, broad, "broad heads").mean() for values in columns))


def broad_entropy(tables: Tables) -> float:
    """Return the entropy (nats) from which on attention is broad."""
    return BROAD * column(tables, "entropy", "uniform").mean()


# Section 4: heads chosen on train, scored on dev


def _held_out(tables: Tables) -> pd.DataFrame:
    """Return the heads chosen on train and scored on dev, with the paper's name of a relation.

    The scheme shows in the names of all relations, so these are looked up together; ``paper`` is
    empty where the paper has none.
    """
    columns = ("relation", "direction", "dev_accuracy", "ci_low", "ci_high", "p_holm")
    table = rows_of(tables, "dependency_heads_held_out", *columns, *with_bounds("margin"))
    names = table["relation"].map(paper_names(table["relation"])).fillna("")
    return table.assign(paper=names.where(names.isin(paper_table1().index), ""))


def _relation(tables: Tables, name: str) -> pd.Series:
    """Return the row of a relation of the paper: the most frequent, where several stand for it."""
    return row_where(_held_out(tables), paper=name)


def _single_relations(tables: Tables, without: str = ALL) -> pd.DataFrame:
    """Return the rows of single relations that the paper has too."""
    rows = _held_out(tables)
    return chosen_rows(rows, ~rows["paper"].isin(["", ALL, without]), "single relations")


def share_of(flags: pd.Series) -> Estimate:
    """Return a share with Wilson's interval."""
    found = binomtest(int(flags.sum()), len(flags))
    return Estimate(found.statistic, *found.proportion_ci(1 - ALPHA, "wilson"))


def margin(tables: Tables, name: str) -> Estimate:
    """Return by how many points the head of a relation of the paper outdoes its offset."""
    return Estimate(*_relation(tables, name)[with_bounds("margin")])


def relations_beyond_offset(tables: Tables) -> Estimate:
    """Return the share of relations whose head is better than an offset, the others' counted in."""
    return share_of(_single_relations(tables)["p_holm"] < ALPHA)


def relations_by_far(tables: Tables) -> Estimate:
    """Return how many relations have a head that outdoes its offset `BY_FAR`."""
    rows = {"relations": _single_relations(tables)}
    return _counted(rows, "relations", "margin", lambda margins: (margins > BY_FAR).sum())


def dependents_attend(tables: Tables) -> Estimate:
    """Return the share of relations but pobj whose dependents attend to their heads."""
    return share_of(_single_relations(tables, "pobj")["direction"] == DIRECTIONS[0])


def head_attends(tables: Tables, name: str) -> float:
    """Return 1 if a relation's head attends to its dependent, 0 if not."""
    return float(_relation(tables, name)["direction"] == DIRECTIONS[1])


def lowest_of_named(tables: Tables) -> Estimate:
    """Return the lowest accuracy of the relations of the introduction."""
    rows = _held_out(tables)
    named = chosen_rows(rows, rows["paper"].isin(NAMED), "the relations of the introduction")
    lowest = named.loc[named["dev_accuracy"].idxmin()]
    return Estimate(*lowest[["dev_accuracy", "ci_low", "ci_high"]])


def no_op_difference(tables: Tables) -> Estimate:
    """Return how much more attention special tokens get where relations are not there.

    The mean over the relations of Figure 5 that there are, and over the bounds of their
    intervals: those of a mean are at most as far apart.
    """
    columns = with_bounds("difference")
    table = rows_of(tables, "no_op", "relation", *columns)
    own = table["relation"].map(paper_names(table["relation"])).isin(FIGURE_5)
    return Estimate(*chosen_rows(table, own, "special tokens without a relation")[columns].mean())


def margin_over_rule(tables: Tables, rule: str, kind: str) -> Estimate:
    """Return by how many points a head outdoes a rule at mentions of a type."""
    columns = ["margin", "ci_low", "ci_high"]
    table = rows_of(tables, "coreference_held_out", "candidates", "type", "against", *columns)
    return Estimate(*row_where(table, candidates="mentions", type=kind, against=rule)[columns])


def margin_over_match(tables: Tables) -> float:
    """Return by how many points a head outdoes head match at all mentions, if it does."""
    return max(0.0, margin_over_rule(tables, "head match", "all").value)


# Sections 5 and 6


def probe_difference(tables: Tables, probe: str, other: str) -> Estimate:
    """Return by how many points one probe outdoes another, on the same resamples of articles."""
    columns = ["difference", "ci_low", "ci_high"]
    table = rows_of(tables, "probe_differences", "probe", "other", *columns)
    return Estimate(*row_where(table, probe=probe, other=other)[columns])


def _layer_cohesion(tables: Tables) -> pd.Series:
    """Return the row of `cohesion_table` that is about layers."""
    table = rows_of(tables, "head_cohesion", "by", "within", "between", "p_value")
    row = row_where(table, by="layer")
    if pd.isna(row["p_value"]):
        raise NotMeasurable("two layers of two heads")
    return row


def cohesion_p_value(tables: Tables) -> float:
    """Return how likely the closeness of a layer's heads is by accident."""
    return _layer_cohesion(tables)["p_value"]


def within_of_between(tables: Tables) -> Estimate:
    """Return the distance within layers as a share of that between them."""
    row, names = _layer_cohesion(tables), ("within_layers", "between_layers")
    value = row["within"] / row["between"]
    return _resampled(tables, value, lambda within, between: (within / between).iloc[0], names)
