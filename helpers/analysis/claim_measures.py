"""How the claims of Clark et al. are measured: numbers with intervals, from a run's tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

import numpy as np
import pandas as pd
from scipy.stats import norm, spearmanr

from helpers.analysis.claims import (
    Estimate,
    NotMeasurable,
    Tables,
    at_depth,
    by_layer,
    column,
    rows_of,
)
from helpers.analysis.layers import layer_draws
from helpers.analysis.paper import paper_table1
from helpers.analysis.relations import ALL, paper_names
from helpers.analysis.statistics import bootstrap_interval, percentiles

# A number for each layer, or one for each layer and resample.
Layers = pd.Series | pd.DataFrame

ARTICLES = "averages_by_article"
SEGMENTS = ("relative_position", "token_types", "entropy")  # tables that have its averages
MOSTLY = 0.5  # "more than half of their attention"
NEAR_UNIFORM = 0.9  # of the entropy of uniform attention
MIDDLE = (0.45, 0.85)  # layers 6 to 10 of 12, by relative depth
ALPHA = 0.05
# Objects, determiners and possessives are those of the introduction.
NAMED = {
    "dobj": "Direct objects",
    "det": "Determiners",
    "pobj": "Objects of prepositions",
    "poss": "Possessives",
}


# Section 3: averages by layer, resampled over articles


def over_layers(tables: Tables, compute: Callable[..., float | pd.Series], *names: str) -> Estimate:
    """Return a number computed from averages by layer, with its interval over articles."""
    value = compute(*(by_layer(tables, owner(tables, name), name) for name in names))
    if ARTICLES not in tables or np.isnan(value):
        return Estimate(value, np.nan, np.nan)
    draws = [layer_draws(rows_of(tables, ARTICLES, name), name) for name in names]
    drawn = np.asarray(compute(*(means for means, _ in draws)))
    low, high = percentiles(drawn[:, None], min(count for _, count in draws))
    return Estimate(value, float(low[0]), float(high[0]))


def owner(tables: Tables, name: str) -> str:
    """Return which table of section 3 has a column."""
    found = next((table for table in SEGMENTS if table in tables and name in tables[table]), None)
    if found is None:
        raise NotMeasurable(f"a table with {name}")
    return found


def with_bounds(name: str) -> tuple[str, str, str]:
    """Return the names of a column and of its interval's."""
    return name, f"{name}_low", f"{name}_high"


def counted(counts: Iterable[float]) -> Estimate:
    """Return how many are beyond a limit, by their values and by the ends of their intervals."""
    value, *bounds = (float(count) for count in counts)
    return Estimate(value, min(bounds), max(bounds))


def head_count(
    tables: Tables, table: str, name: str, limit: float, *, under: bool = False, share: bool = False
) -> Estimate:
    """Return how many heads, or which share of them, are over (or under) a limit."""
    columns = [column(tables, table, own) for own in with_bounds(name)]
    beyond = [(values < limit if under else values > limit) for values in columns]
    return counted(flags.mean() if share else flags.sum() for flags in beyond)


def depth_of_positional_heads(tables: Tables) -> Estimate:
    """Return the mean relative layer of positional heads, with its interval over these heads."""
    previous, following = (column(tables, "relative_position", n) for n in ("previous", "next"))
    layers = column(tables, "relative_position", "layer")
    depths = layers[(previous > MOSTLY) | (following > MOSTLY)] / layers.max()
    if depths.empty:
        raise NotMeasurable("positional heads")
    bounds = bootstrap_interval(depths.to_numpy(), np.ones(len(depths)))
    return Estimate(depths.mean(), *bounds)


def special_token(tables: Tables) -> str:
    """Return which of [SEP] and [CLS] gets more attention in the middle layers of this model."""
    shares = {}
    for name in ("sep", "cls"):
        with suppress(NotMeasurable):
            shares[name] = at_depth(by_layer(tables, "token_types", name), *MIDDLE)
    if not shares:
        raise NotMeasurable("no special token")
    return max(shares, key=shares.__getitem__)


def share_of_two(tables: Tables) -> float:
    """Return the uniform share of a token that is twice in a segment of typical length."""
    return 2 / np.exp(column(tables, "entropy", "uniform").mean())


def difference_of_means(
    one: pd.Series | pd.DataFrame, other: pd.Series | pd.DataFrame
) -> float | pd.Series:
    """Return how much larger one mean over layers is."""
    return one.mean() - other.mean()


def third(layers: pd.Index | pd.Series) -> float:
    """Return the last layer of the first third, or how many layers the last third has."""
    return np.ceil(layers.max() / 3)


def early_less_rest(values: Layers) -> float | pd.Series:
    """Return the mean over the first third of the layers less that over the others."""
    early = values.index <= third(values.index)
    return values[early].mean() - values[~early].mean()


def late_less_rest(values: Layers) -> float | pd.Series:
    """Return the mean over the last third of the layers less that over the others."""
    late = values.index > values.index.max() - third(values.index)
    return values[late].mean() - values[~late].mean()


def attention_against_gradient(tables: Tables) -> Estimate:
    """Return the correlation over layers of attention to the special token and its gradient."""
    name = special_token(tables)
    attention, gradient = by_layer(tables, "token_types", name), by_layer(tables, "gradients", name)
    if min(attention.nunique(), gradient.nunique()) < 2:
        raise NotMeasurable("no correlation with a constant")
    found = spearmanr(attention, gradient).statistic
    if len(attention) < 4:
        return Estimate(found, np.nan, np.nan)
    # Fisher's z with the standard error of Bonett and Wright (2000).
    error = np.sqrt((1 + found**2 / 2) / (len(attention) - 3))
    z = np.arctanh(np.clip(found, -1 + 1e-9, 1 - 1e-9))
    low, high = np.tanh(z + error * norm.ppf([ALPHA / 2, 1 - ALPHA / 2]))
    return Estimate(found, float(low), float(high))


def broad_early(tables: Tables, name: str) -> pd.Series:
    """Return which heads of the first third of the layers are nearly uniform."""
    share = column(tables, "entropy", name) / column(tables, "entropy", "uniform")
    layers = column(tables, "entropy", "layer")
    return (share > NEAR_UNIFORM) & (layers <= third(layers))


def largest_of_broad(tables: Tables) -> Estimate:
    """Return the mean attention of `broad_early` heads to any single token."""
    broad = broad_early(tables, "entropy")
    if not broad.any():
        raise NotMeasurable("broad heads")
    return Estimate(
        *(column(tables, "entropy", name)[broad].mean() for name in with_bounds("largest"))
    )


# Section 4: heads chosen on train, scored on dev


def held_out_rows(tables: Tables) -> pd.DataFrame:
    """Return the table of heads chosen on train and scored on dev."""
    columns = ("relation", "direction", "dev_accuracy", "ci_low", "ci_high", "p_holm")
    return rows_of(tables, "dependency_heads_held_out", *columns, *with_bounds("margin"))


def in_paper(tables: Tables) -> pd.Series:
    """Return the paper's name of each relation, empty where it has none.

    The scheme shows in the names of all relations, so these are looked up together.
    """
    relations = held_out_rows(tables)["relation"]
    known = relations.map(paper_names(relations)).fillna("")
    return known.where(known.isin(paper_table1().index), "")


def relation_row(tables: Tables, name: str) -> pd.Series:
    """Return the row of a relation of the paper."""
    rows = held_out_rows(tables)[in_paper(tables) == name]
    if rows.empty:
        raise NotMeasurable(f"relation {name}")
    return rows.iloc[0]  # the most frequent, where several stand for one of the paper's


def margin(tables: Tables, name: str) -> Estimate:
    """Return by how many points the head of a relation of the paper outdoes its offset."""
    return Estimate(*relation_row(tables, name)[list(with_bounds("margin"))])


def single_relations(tables: Tables, *, without: str = ALL) -> pd.DataFrame:
    """Return the rows of single relations that the paper has too."""
    listed = held_out_rows(tables)[~in_paper(tables).isin(["", ALL, without])]
    if listed.empty:
        raise NotMeasurable("single relations")
    return listed


def share_of(flags: pd.Series) -> Estimate:
    """Return a share with Wilson's interval."""
    n, z = len(flags), norm.ppf(1 - ALPHA / 2)
    share = float(flags.mean())
    middle = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return Estimate(share, middle - half, middle + half)


def lowest_of_named(tables: Tables) -> Estimate:
    """Return the lowest accuracy of the relations of the introduction."""
    named = held_out_rows(tables)[in_paper(tables).isin(NAMED)]
    if named.empty:
        raise NotMeasurable("the relations of the introduction")
    return Estimate(
        *named.loc[named["dev_accuracy"].idxmin(), ["dev_accuracy", "ci_low", "ci_high"]]
    )


def no_op_difference(tables: Tables, relations: Iterable[str]) -> Estimate:
    """Return how much more attention special tokens get where relations are not there.

    The mean over the paper's ``relations`` that there are, and over the bounds of their
    intervals: those of a mean are at most as far apart.
    """
    columns = with_bounds("difference")
    table = rows_of(tables, "no_op", "relation", *columns)
    own = table["relation"].map(paper_names(table["relation"])).isin(list(relations))
    if not own.any():
        raise NotMeasurable("special tokens where a relation is not there")
    return Estimate(*table.loc[own, list(columns)].mean())


def margin_over_rule(tables: Tables, rule: str, kind: str) -> Estimate:
    """Return by how many points a head outdoes a rule at mentions of a type."""
    columns = ("candidates", "type", "against", "margin", "ci_low", "ci_high")
    table = rows_of(tables, "coreference_held_out", *columns)
    own = (table["candidates"] == "mentions") & (table["type"] == kind) & (table["against"] == rule)
    if not own.any():
        raise NotMeasurable(f"coreference against {rule}")
    return Estimate(*table.loc[own, ["margin", "ci_low", "ci_high"]].iloc[0])


# Sections 5 and 6


def probe_difference(tables: Tables, probe: str, other: str) -> Estimate:
    """Return by how many points one probe outdoes another, on the same resamples of articles."""
    columns = ("probe", "other", "difference", "ci_low", "ci_high")
    table = rows_of(tables, "probe_differences", *columns)
    rows = table[(table["probe"] == probe) & (table["other"] == other)]
    if rows.empty:
        raise NotMeasurable(f"{probe} less {other}")
    return Estimate(*rows[["difference", "ci_low", "ci_high"]].iloc[0])


def layer_cohesion(tables: Tables) -> pd.Series:
    """Return the row of `cohesion_table` that is about layers."""
    table = rows_of(tables, "head_cohesion", "by", "within", "between", "p_value")
    row = table[table["by"] == "layer"].iloc[0]
    if pd.isna(row["p_value"]):
        raise NotMeasurable("two layers of two heads")
    return row


def within_less_between(tables: Tables) -> Estimate:
    """Return the distance within layers as a share of that between them."""
    row = layer_cohesion(tables)
    value = row["within"] / row["between"]
    if ARTICLES not in tables:
        return Estimate(value, np.nan, np.nan)
    articles = rows_of(tables, ARTICLES, "within_layers", "between_layers")
    within, between = (layer_draws(articles, n) for n in ("within_layers", "between_layers"))
    drawn = (within[0] / between[0]).iloc[0].to_numpy()
    low, high = percentiles(drawn[:, None], within[1])
    return Estimate(value, float(low[0]), float(high[0]))
