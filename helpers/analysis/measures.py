"""What the paper's claims measure in the tables of a run, beside ``claims.csv``: what they say.

A measure takes the tables and returns a number, with its interval where there is one.  In section
4, heads and offsets are chosen on train and scored on dev.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

import numpy as np
import pandas as pd

from helpers.analysis.heads import DIRECTIONS
from helpers.analysis.paper import (
    ALL,
    ARTICLES,
    BROAD,
    FIGURE_5,
    Claim,
    Measure,
    NotMeasurable,
    Tables,
    chosen_rows,
    column,
    measured,
    paper_names,
    paper_table1,
    read_claims,
    row_where,
    rows_of,
    with_bounds,
)
from helpers.analysis.statistics import DRAWS, Drawn, Estimate, mean_interval, share_of
from helpers.analysis.surface import layer_draws
from helpers.data.records import PUNCTUATION

Numbers = float | pd.Series  # one, or one for each resample
Layers = pd.Series | pd.DataFrame  # a number for each layer, or for each layer and resample

SEGMENTS = ("relative_position", "token_types", "entropy")  # tables that have its averages
MOSTLY = 0.5  # "more than half of their attention"
LITTLE = 0.1  # of their attention
BY_FAR = 20  # points
LITTLE_CHANGE = 5  # points
FEWEST = 5  # heads that a mean is taken over
NAMED = ("dobj", "det", "pobj", "poss")  # in the introduction


def clark_claims() -> list[Claim]:
    """Return the claims of the paper, in its order."""
    return read_claims(__file__, MEASURES, THRESHOLDS)


def middle(values: Layers) -> Numbers:
    """Return the mean over layers 6 to 10 of 12, by relative depth."""
    depth = values.index / values.index.max()
    return values[(depth >= 0.45) & (depth <= 0.85)].mean()


def first_third(layers: pd.Index | pd.Series) -> np.ndarray | pd.Series:
    """Return which layers are in the first third."""
    return layers <= np.ceil(layers.max() / 3)


def third_less(values: Layers, one: str, other: str = "") -> Numbers:
    """Return the mean over a third of the layers (first, middle, last) less that over another's.

    Or less that over all other layers.
    """
    first = first_third(values.index)
    last = first[::-1] & ~first
    thirds = {"first": first, "middle": ~first & ~last, "last": last}
    return values[thirds[one]].mean() - values[thirds.get(other, ~thirds[one])].mean()


def over_layers(
    tables: Tables, summary: Callable[[Layers], Numbers], name: str, less: str | None = None
) -> Estimate:
    """Return a summary of a column's means by layer, or of how much more they are than another's.

    The interval is over articles, if the run has their averages.
    """
    means = {own: by_layer(tables, own) for own in (name, less) if own}
    return resampled(tables, means, lambda one, other=0: summary(one - other))


def by_layer(tables: Tables, name: str) -> pd.Series:
    """Return a column's mean over the heads of each layer, by layer from 1."""
    table = next((own for own in SEGMENTS if name in tables.get(own, ())), SEGMENTS[0])
    return column(tables, table, name).groupby(column(tables, table, "layer")).mean()


def resampled(
    tables: Tables, means: Mapping[str, pd.Series], compute: Callable[..., Numbers]
) -> Estimate:
    """Return what is computed from columns' means, and its interval over articles."""
    found = compute(*means.values())
    if ARTICLES not in tables or np.isnan(found):
        return Estimate(found)
    draws = [layer_draws(rows_of(tables, ARTICLES, name), name, DRAWS) for name in means]
    return Drawn(found, compute(*(means for means, _ in draws)), min(count for _, count in draws))


def counted(
    tables: Tables, name: str, count: Callable[..., float], table: str = "relative_position"
) -> Estimate:
    """Return a count of a column's values, and those of the ends of their intervals."""
    value, *bounds = (float(count(column(tables, table, own))) for own in with_bounds(name))
    return Estimate(value, min(bounds), max(bounds))


def depth_of_positional_heads(tables: Tables) -> Estimate:
    """Return the mean relative layer of positional heads, with its interval over these heads."""
    heads = rows_of(tables, "relative_position", "layer", "previous", "next")
    positional = (heads[["previous", "next"]] > MOSTLY).any(axis=1)
    if positional.sum() < FEWEST:
        raise NotMeasurable("too few positional heads")
    return mean_interval(heads["layer"][positional] / heads["layer"].max())


def special_token(tables: Tables) -> str:
    """Return which of [SEP] and [CLS] gets more attention in the middle layers of this model."""
    shares = {}
    for name in ("sep", "cls"):
        with suppress(NotMeasurable):
            shares[name] = middle(by_layer(tables, name))
    if not shares:
        raise NotMeasurable("no special token")
    return max(shares, key=shares.__getitem__)


def times_uniform(tables: Tables) -> Estimate:
    """Return the attention to it there as a multiple of its uniform share."""
    name = special_token(tables)
    means = {own: by_layer(tables, own) for own in (name, f"uniform_{name}")}
    return resampled(tables, means, lambda own, evenly: middle(own) / evenly.mean())


def marks_over_words(tables: Tables) -> float:
    """Return how many times the commonest other token the rarer of period and comma occurs."""
    rows = rows_of(tables, "commonest_tokens", "token", "count").set_index("token")["count"]
    marks = rows.reindex(PUNCTUATION, fill_value=0)
    return marks.min() / rows.drop([*PUNCTUATION, "the"], errors="ignore").max()


def small_gradients(tables: Tables) -> Estimate:
    """Return how many times other tokens' gradients are the special token's, in middle layers."""
    columns = with_bounds(f"other_over_{special_token(tables)}")
    by_layer = rows_of(tables, "gradients", "layer", *columns).set_index("layer")[columns]
    return Estimate(*middle(by_layer))


def broad_early(tables: Tables, entropies: pd.Series) -> pd.Series:
    """Return which heads of the first third of the layers are nearly uniform."""
    uniform, layers = (column(tables, "entropy", name) for name in ("uniform", "layer"))
    return (entropies / uniform > BROAD) & first_third(layers)


def broad_heads(tables: Tables) -> Estimate:
    """Return how many heads of the first third of the layers are nearly uniform."""
    return counted(tables, "entropy", lambda each: broad_early(tables, each).sum(), "entropy")


def largest_of_broad(tables: Tables) -> Estimate:
    """Return the mean attention of `broad_early` heads to any single token."""
    broad = broad_early(tables, column(tables, "entropy", "entropy"))
    columns = (column(tables, "entropy", name) for name in with_bounds("largest"))
    return Estimate(*(chosen_rows(values, broad, "broad heads").mean() for values in columns))


def held_out(tables: Tables) -> pd.DataFrame:
    """Return the heads chosen on train and scored on dev, with the paper's name of a relation.

    The scheme shows in the names of all relations, so these are looked up together; ``paper`` is
    empty where the paper has none.
    """
    columns = "relation", "direction", "dev_accuracy", "ci_low", "ci_high", *with_bounds("margin")
    table = rows_of(tables, "dependency_heads_held_out", *columns)
    names = table["relation"].map(paper_names(table["relation"])).fillna("")
    return table.assign(paper=names.where(names.isin(paper_table1().index), ""))


def single_relations(tables: Tables, without: str = ALL) -> pd.DataFrame:
    """Return the rows of single relations that the paper has too."""
    rows = held_out(tables)
    return chosen_rows(rows, ~rows["paper"].isin(["", ALL, without]), "single relations")


def margin(tables: Tables, name: str) -> Estimate:
    """Return by how many points the head of a relation of the paper outdoes its offset.

    It is that of the most frequent relation, where several stand for the paper's.
    """
    return measured({"held out": held_out(tables)}, "held out", "margin", paper=name)


def little_changed(tables: Tables) -> Estimate:
    """Return the share of relations that special tokens as candidates change `LITTLE_CHANGE`."""
    changes = column(tables, "special_candidates", "change").abs()
    return share_of((changes <= LITTLE_CHANGE).sum(), len(changes))


def relations_by_far(tables: Tables) -> Estimate:
    """Return how many relations have a head that outdoes its offset `BY_FAR`."""
    rows = {"relations": single_relations(tables)}
    return counted(rows, "margin", lambda margins: (margins > BY_FAR).sum(), "relations")


def dependents_attend(tables: Tables) -> Estimate:
    """Return the share of relations but pobj whose dependents attend to their heads."""
    directions = single_relations(tables, "pobj")["direction"]
    return share_of((directions == DIRECTIONS[0]).sum(), len(directions))


def head_attends(tables: Tables, name: str) -> float:
    """Return 1 if a relation's head attends to its dependent, 0 if not."""
    return float(row_where(held_out(tables), paper=name)["direction"] == DIRECTIONS[1])


def lowest_of_named(tables: Tables) -> Estimate:
    """Return the lowest accuracy of the relations of the introduction."""
    rows = held_out(tables)
    named = chosen_rows(rows, rows["paper"].isin(NAMED), "the relations of the introduction")
    lowest = named.loc[named["dev_accuracy"].idxmin()]
    return Estimate(*lowest[with_bounds("dev_accuracy", "ci")])


def no_op_difference(tables: Tables) -> Estimate:
    """Return how much more attention special tokens get where relations are not there.

    The mean over all relations, and over the bounds of their intervals: those of a mean are at
    most as far apart.
    """
    columns = with_bounds("difference")
    table = rows_of(tables, "no_op", "relation", *columns)
    there = chosen_rows(table, table["relation"].notna(), "no special token")
    return Estimate(*there[columns].mean())


def within_of_next(tables: Tables) -> Estimate:
    """Return the distance within layers as a share of that to the next ones (section 6).

    Its p is at least that of the permutation test over heads, both ways.
    """
    columns = ("by", "within", "between", "p_value")
    row = row_where(rows_of(tables, "head_cohesion", *columns), by="next layer, words")
    if pd.isna(row["p_value"]):
        raise NotMeasurable("two layers of two heads")
    within, between = (pd.Series([row[own]]) for own in ("within", "between"))
    means = {"within_layers_words": within, "neighbouring_layers_words": between}
    found = resampled(tables, means, lambda within, between: (within / between).iloc[0])
    if isinstance(found, Drawn):
        found.least_p = 2 * min(row["p_value"], 1 - row["p_value"])
    return found


def third(tables: Tables, name: str, **thirds: str) -> Estimate:
    """Return `third_less` of a column of section 3."""
    return over_layers(tables, partial(third_less, **thirds), name)


mostly_to = partial(counted, count=lambda shares: (shares > MOSTLY).sum())
over_all = partial(over_layers, summary=lambda layers: layers.mean())
last = partial(over_layers, summary=lambda layers: layers.iloc[-1], name="entropy_from_cls")
before = partial(over_layers, summary=lambda layers: layers.iloc[:-1].abs().median())

MEASURES: dict[str, Measure] = {
    "little on current token": partial(
        counted, name="current", count=lambda shares: (shares < LITTLE).mean()
    ),
    "mostly to previous": partial(mostly_to, name="previous"),
    "mostly to next": partial(mostly_to, name="next"),
    "positional heads early": depth_of_positional_heads,
    "middle to special token": lambda tables: over_layers(tables, middle, special_token(tables)),
    "times uniform": times_uniform,
    "special token is sep": partial(over_all, name="sep", less="cls"),
    "early to cls": partial(third, one="first", name="cls"),
    "deep to punctuation": partial(third, one="last", name="punctuation"),
    "more from sep": partial(over_all, name="sep_to_sep", less="other_to_sep"),
    "from sep to sep": partial(over_layers, summary=middle, name="sep_to_sep"),
    "commonest tokens": marks_over_words,
    "small gradients": small_gradients,
    "broad heads": broad_heads,
    "largest of broad heads": largest_of_broad,
    "entropy early": partial(third, one="first", other="middle", name="entropy"),
    "entropy early not late": partial(third, one="first", other="last", name="entropy"),
    "cls broad in last layer": last,
    "cls broader than tokens": partial(last, less="entropy"),
    "cls as broad before": partial(before, name="entropy_from_cls", less="entropy"),
    "all relations": partial(margin, name=ALL),
    "beyond offset": lambda tables: mean_interval(single_relations(tables)["margin"]),
    "by far": relations_by_far,
    **{f"own head of {name}": partial(margin, name=name) for name in FIGURE_5},
    "lowest of named": lowest_of_named,
    "dependents attend": dependents_attend,
    "prepositions attend": partial(head_attends, name="pobj"),
    "footnote 2": little_changed,
    "no-op": no_op_difference,
    "within of next layers": within_of_next,
}


def share_of_two(tables: Tables) -> float:
    """Return the uniform share of a token that is twice in a segment of typical length."""
    return 2 / np.exp(column(tables, "entropy", "uniform").mean())


THRESHOLDS: dict[str, Callable[[Tables], float]] = {
    # what is even for [SEP], which some models have three times in a segment
    "special token is sep": lambda tables: column(tables, "token_types", "uniform_sep").mean(),
    "early to cls": share_of_two,
    "deep to punctuation": share_of_two,
    "more from sep": share_of_two,
    "cls broad in last layer": lambda tables: BROAD * column(tables, "entropy", "uniform").mean(),
}
