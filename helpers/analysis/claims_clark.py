"""The paper's claims about attention to text (section 3), beside what measures each.

A measure takes a run's tables and returns a number, with its interval where there is one.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial, reduce
from operator import sub

import numpy as np
import pandas as pd
from scipy.stats import norm, spearmanr

from helpers.analysis.claims import (
    Claim,
    NotMeasurable,
    Numbers,
    Tables,
    chosen_rows,
    column,
    counted,
    resampled,
    with_bounds,
)
from helpers.analysis.claims_heads import cluster_claims, head_claims, probe_claims
from helpers.analysis.paper import values_of
from helpers.analysis.statistics import Estimate, ratio

Layers = pd.Series | pd.DataFrame  # a number for each layer, or for each layer and resample

SEGMENTS = ("relative_position", "token_types", "entropy")  # tables that have its averages
MOSTLY = 0.5  # "more than half of their attention"
LITTLE = 0.1  # of their attention
NEAR_UNIFORM = 0.9  # of the entropy of uniform attention
BROAD = 0.75  # of that entropy; the paper's 3.89 nats are 80% of ln 128
TAILS = np.array([0.025, 0.975])  # of 95%


def clark_claims(section: str = "") -> list[Claim]:
    """Return the claims of the paper (about a section, such as "3" or "3.2"), in its order."""
    made_by = {"3": text_claims, "4": head_claims, "5": probe_claims, "6": cluster_claims}
    parts = [make() for number, make in made_by.items() if section[:1] in ("", number)]
    return [claim for part in parts for claim in part if claim.section.startswith(section)]


def text_claims() -> list[Claim]:
    """Return the claims of section 3."""
    paper = values_of("text")
    to_special = paper["middle layers to separator"]
    position, token, breadth = (partial(Claim, section) for section in ("3.1", "3.2", "3.3"))
    return [
        position(
            "Most heads put little attention on the current token",
            "share of heads with less than 10% on it; holds above half",
            partial(share_with_little, name="current"),
            0.5,
        ),
        *(
            position(
                f"Some heads put more than half of their attention on the {name} token",
                "number of heads; holds from one on",
                partial(heads_mostly_to, name=name),
                0,
                paper=paper[f"heads mostly to {name}"],
            )
            for name in ("previous", "next")
        ),
        position(
            "Such positional heads are found especially in earlier layers",
            "their mean layer as a share of the depth, interval over these heads; holds below half",
            depth_of_positional_heads,
            0.5,
            below=True,
            paper=paper["mean relative depth of positional heads"],
        ),
        token(
            "Over half of the attention in middle layers goes to one special token",
            "attention to [SEP] (or [CLS], whichever gets more there) in layers at 45-85% of the "
            "depth; holds above half",
            to_special_token,
            0.5,
            paper=to_special,
        ),
        token(
            "That is many times what uniform attention would give it",
            "the same, as a multiple of what uniform attention gives that token; holds above 10, a "
            "third of the paper's",
            times_uniform,
            10,
            paper=to_special / paper["uniform share of a separator pair"],
        ),
        token(
            "That special token is [SEP]",
            "attention to [SEP] less attention to [CLS], all layers; holds above the uniform share "
            "of [SEP]",
            partial(over_layers, summary=overall, name="sep", less="cls"),
            share_of_sep,
        ),
        token(
            "Early heads attend to [CLS]",
            "attention to it in the first third of the layers less that in the others; holds above "
            "the uniform share of two tokens",
            partial(over_layers, summary=first_third_less_rest, name="cls"),
            share_of_two,
        ),
        token(
            "Deep heads attend to periods and commas",
            "attention to them in the last third of the layers less that in the others; holds "
            "above the uniform share of two tokens",
            partial(over_layers, summary=last_third_less_rest, name="punctuation"),
            share_of_two,
        ),
        token(
            "Heads attend to [SEP] even more when the current token is [SEP]",
            "attention to [SEP] from [SEP] less that from other tokens, all layers; holds above "
            "the uniform share of two tokens",
            partial(over_layers, summary=overall, name="sep_to_sep", less="other_to_sep"),
            share_of_two,
        ),
        token(
            "Heads processing [SEP] attend almost entirely to [SEP]",
            "attention from [SEP] to [SEP] in layers at 45-85% of the depth; holds above the "
            "paper's 90%",
            partial(over_layers, summary=middle, name="sep_to_sep"),
            paper["separator to separator"],
            paper=paper["separator to separator"],
        ),
        token(
            "Gradients for the special token fall where attention to it rises",
            "Spearman correlation over layers of attention to it and its gradient, interval over "
            "layers; holds below -0.5",
            attention_against_gradient,
            -0.5,
            below=True,
        ),
        breadth(
            "Some heads in lower layers attend very broadly",
            "heads in the first third of the layers above 90% of uniform entropy; holds from "
            "one on",
            broad_heads,
            0,
        ),
        breadth(
            "These broad heads spend at most 10% of their attention on any single word",
            "their largest weight, mean over tokens and heads; holds below 10%",
            largest_of_broad,
            0.1,
            below=True,
        ),
        breadth(
            "Entropy is highest in lower layers",
            "mean entropy of the first third of the layers less that of the others, nats; holds "
            "above 0.1, more than random weights differ by",
            partial(over_layers, summary=first_third_less_rest, name="entropy"),
            0.1,
        ),
        breadth(
            "In the last layer, [CLS] attends very broadly",
            "its mean entropy in nats; holds above 75% of that of uniform attention",
            partial(over_layers, summary=last, name="entropy_from_cls"),
            broad_entropy,
            paper=paper["entropy from cls in the last layer"],
        ),
        breadth(
            "In the last layer, [CLS] attends more broadly than tokens do on average",
            "entropy from [CLS] less that from all tokens, nats; holds above 0.1, more than random "
            "weights differ by",
            partial(over_layers, summary=last, name="entropy_from_cls", less="entropy"),
            0.1,
        ),
        breadth(
            "In most layers before, [CLS] attends about as broadly as tokens do on average",
            "median difference of the two entropies, nats; holds below 0.5",
            partial(over_layers, summary=median_before, name="entropy_from_cls", less="entropy"),
            0.5,
            below=True,
        ),
    ]


def middle(values: Layers) -> Numbers:
    """Return the mean over layers 6 to 10 of 12, by relative depth."""
    depth = values.index / values.index.max()
    return values[(depth >= 0.45) & (depth <= 0.85)].mean()


def first_third_less_rest(values: Layers) -> Numbers:
    """Return the mean over the first third of the layers less that over the others."""
    return _less_rest(values, values.index <= third(values.index))


def last_third_less_rest(values: Layers) -> Numbers:
    """Return the mean over the last third of the layers less that over the others."""
    return _less_rest(values, values.index > values.index.max() - third(values.index))


def _less_rest(values: Layers, mine: np.ndarray) -> Numbers:
    return values[mine].mean() - values[~mine].mean()


def third(layers: pd.Index | pd.Series) -> float:
    """Return the last layer of the first third, or how many layers the last third has."""
    return np.ceil(layers.max() / 3)


def overall(values: Layers) -> Numbers:
    """Return the mean over all layers."""
    return values.mean()


def last(values: Layers) -> Numbers:
    """Return the value of the last layer."""
    return values.iloc[-1]


def median_before(values: Layers) -> Numbers:
    """Return the median size of the values before the last layer."""
    return values.iloc[:-1].abs().median()


def over_layers(
    tables: Tables, summary: Callable[[Layers], Numbers], name: str, less: str | None = None
) -> Estimate:
    """Return a summary of a column's means by layer, or of how much more they are than another's.

    The interval is over articles, if the run has their averages.
    """
    names = [name, less] if less else [name]
    table = next((own for own in SEGMENTS if name in tables.get(own, ())), SEGMENTS[0])
    values = [by_layer(tables, table, own) for own in names]
    return resampled(tables, names, lambda *own: summary(reduce(sub, own)), values)


def by_layer(tables: Tables, table: str, name: str) -> pd.Series:
    """Return a column's mean over the heads of each layer, by layer from 1."""
    return column(tables, table, name).groupby(column(tables, table, "layer")).mean()


def share_with_little(tables: Tables, name: str) -> Estimate:
    """Return the share of heads with little attention to a relative position."""
    return counted(tables, "relative_position", name, lambda values: (values < LITTLE).mean())


def heads_mostly_to(tables: Tables, name: str) -> Estimate:
    """Return how many heads have most of their attention at a relative position."""
    return counted(tables, "relative_position", name, lambda values: (values > MOSTLY).sum())


def depth_of_positional_heads(tables: Tables) -> Estimate:
    """Return the mean relative layer of positional heads, with its interval over these heads."""
    previous, following = (column(tables, "relative_position", n) for n in ("previous", "next"))
    layers = column(tables, "relative_position", "layer")
    positional = (previous > MOSTLY) | (following > MOSTLY)
    depths = chosen_rows(layers, positional, "positional heads") / layers.max()
    return ratio(depths.to_numpy(), np.ones(len(depths)))


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


def to_special_token(tables: Tables) -> Estimate:
    """Return the attention in the middle layers to the special token."""
    return over_layers(tables, middle, special_token(tables))


def times_uniform(tables: Tables) -> Estimate:
    """Return the same as a multiple of the uniform share of that token."""
    name = special_token(tables)
    share = column(tables, "token_types", f"uniform_{name}").mean()
    return over_layers(tables, lambda values: middle(values) / share, name)


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
    return Estimate(found, *np.tanh(z + error * norm.ppf(TAILS)))


def broad_early(tables: Tables, entropies: pd.Series) -> pd.Series:
    """Return which heads of the first third of the layers are nearly uniform."""
    uniform, layers = (column(tables, "entropy", name) for name in ("uniform", "layer"))
    return (entropies / uniform > NEAR_UNIFORM) & (layers <= third(layers))


def broad_heads(tables: Tables) -> Estimate:
    """Return how many heads of the first third of the layers are nearly uniform."""
    return counted(tables, "entropy", "entropy", lambda each: broad_early(tables, each).sum())


def largest_of_broad(tables: Tables) -> Estimate:
    """Return the mean attention of `broad_early` heads to any single token."""
    broad = broad_early(tables, column(tables, "entropy", "entropy"))
    columns = (column(tables, "entropy", name) for name in with_bounds("largest"))
    return Estimate(*(chosen_rows(values, broad, "broad heads").mean() for values in columns))


def broad_entropy(tables: Tables) -> float:
    """Return the entropy (nats) from which on attention is broad."""
    return BROAD * column(tables, "entropy", "uniform").mean()
