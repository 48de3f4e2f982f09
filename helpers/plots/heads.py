"""The figures by attention head and layer; both are counted from 1."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from helpers.metrics.clustering import BEHAVIOURS
from helpers.metrics.heads import by_head
from helpers.plots import style
from helpers.plots.style import (
    HALO,
    SpecialTokens,
    Style,
    Styles,
    canvas,
    draw_curve,
    label_ends,
    label_points,
    panel_grid,
    theme,
)

GRADIENT_PANELS = {  # by the suffix of the columns
    "": ("per weight: if it vanished", "|∂L/∂A|"),
    "_per_value": ("per weight and length of the value vector", "|∂L/∂A| / |f(x)|"),
    "_per_score": ("per score: if the weight moved to other tokens", "|∂L/∂s|"),
}
TO_SPECIAL = {name: style.ALL_STYLES[name] for name in ("first", "cls", "sep", "punctuation")}
TOKEN_TICKS = (1, 3, 10, 30, 100)  # inside most models' limits


@theme()
def fig2_token_types(
    table: pd.DataFrame, special_tokens: SpecialTokens, *, model: str, lens: str
) -> Figure:
    """Draw Figure 2 (section 3.2): attention to special tokens and punctuation, by layer.

    The first token has a line of its own, unless it is a special token.  A second panel shows who
    attends to the special token with the most attention.

    Parameters
    ----------
    table : pandas.DataFrame
        The table token_types.csv.
    special_tokens : mapping of str to str or None
        The model's tokens for [CLS] ("cls") and [SEP] ("sep"), such as
        `helpers.store.store.Store.special_tokens`.
    model : str
        Name of the run, for the note.
    lens : {"attention", "norm"}
        The kind of weights in the table.

    Returns
    -------
    matplotlib.figure.Figure
    """
    styles = present_styles(table, TO_SPECIAL, special_tokens)
    means = table.groupby("layer")[list(styles)].mean()
    top = means.max().idxmax()
    panels = {f"to {', '.join(line.label for line in styles.values())}": styles}
    special = [role for role in ("cls", "sep") if role in styles]
    if special:
        role = means[special].max().idxmax()
        name = styles[role].label
        panels[f"to {name}: from {name} itself, and from others"] = {
            f"{role}_to_{role}": styles[role]._replace(label=f"from {name}"),
            f"other_to_{role}": style.TOKEN_STYLES["other"],
        }
    weights = style.WEIGHT_NAMES[lens]
    largest = f"{means[top].max():.0%} of a layer's {weights}"
    title = f"Figure 2 · {styles[top].label} gets up to {largest}"
    title += f"; from uniform attention it would get {table[f'uniform_{top}'].mean():.1%}"
    figure = heads_and_means(table, panels, title, f"Share of {weights}", model)
    for axes, columns in zip(figure.axes, panels.values(), strict=True):
        for column, line in columns.items():
            if not column.startswith("other"):
                uniform = f"uniform_{column.rpartition('_')[2]}"
                draw_chance(axes, table.groupby("layer")[uniform].mean(), line.color)
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        axes.set_ylim(bottom=0)
        label_ends(axes, gap=0.12)
    return figure


def draw_chance(axes: Axes, by_layer: pd.Series, color: str) -> None:
    """Draw a value of each layer as a dashed step, because layers may see different keys."""
    edges = np.add.outer(by_layer.index, [-0.5, 0.5]).ravel()
    axes.plot(edges, by_layer.repeat(2).to_numpy(), color=color, **style.DASHED)


@theme()
def fig3_gradients(
    tables: Mapping[str, pd.DataFrame], special_tokens: SpecialTokens, *, model: str
) -> Figure:
    """Draw Figure 3 (section 3.2): how much the objective changes with the attention.

    The panels have mean absolute gradients by type of token: per unit of a weight, also over the
    length of its value vector, and per unit of the score before the softmax.

    Parameters
    ----------
    tables : mapping of str to pandas.DataFrame
        Gradients of the model ("trained") and of random weights ("random"), which have a thin line
        for the special token of the title.
    special_tokens : mapping of str to str or None
        The model's tokens for [CLS] ("cls") and [SEP] ("sep").
    model : str
        Name of the run, for the note.

    Returns
    -------
    matplotlib.figure.Figure
    """
    table = tables["trained"]
    if "reason" in table:  # why nothing is measured
        return canvas(0.1, "Figure 3 · Gradients are not measured", model, table.loc[0, "reason"])
    table = table.mask(table == 0)  # zero has no place on a logarithmic axis
    styles = present_styles(table, style.ALL_STYLES, special_tokens)
    ratios = table.filter([f"other_over_{role}" for role in styles]).max()
    top = ratios.idxmax().removeprefix("other_over_") if len(ratios) else ""
    objective, loss, guess, articles = table.loc[0, ["objective", "loss", "guess", "articles"]]
    figure = canvas(
        4.0,
        _gradient_title(table, top, styles),
        model,
        f"L: {objective}, {loss:.2f} nats (a guess: {guess:.2f})",
        f"bands: 95% intervals over {articles} articles",
    )
    columns = [suffix for suffix in GRADIENT_PANELS if f"other{suffix}" in table]
    panels = panel_grid(figure, len(columns), 1, sharex=True)
    for axes, suffix in zip(panels, columns, strict=True):
        for token_type, line in styles.items():
            draw_curve(axes, table, "layer", token_type + suffix, line)
        if not suffix and top:
            random = tables["random"]
            gray = {"color": style.CONTROL_STYLES["random"].color, "linewidth": 0.7}
            axes.plot(random["layer"], random[top], label=f"random, {styles[top].label}", **gray)
        title, ylabel = GRADIENT_PANELS[suffix]
        axes.set(title=title, ylabel=f"Mean {ylabel}", yscale="log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("")
        low, high = axes.get_ylim()
        if high < 10 * low:  # powers of ten are too few ticks
            axes.yaxis.set_major_locator(MaxNLocator(4))
        label_ends(axes, gap=0.16)
    panels[-1].set(xlabel="Layer", xticks=style.counting_ticks(table["layer"].max()))
    return figure


def _gradient_title(table: pd.DataFrame, top: str, styles: Styles) -> str:
    """Write the title of Figure 3: by how much a weight and a score of a special token differ."""
    if table.loc[0, "loss"] >= table.loc[0, "guess"]:
        return "Figure 3 · The model's objective is no better than a guess"
    if not top:
        return "Figure 3 · How much the objective changes with the attention"
    name = styles[top].label
    weight_ratio = table[f"other_over_{top}"].max()
    title = f"Figure 3 · A weight on {name} matters up to {weight_ratio:.0f} times less than others"
    score_ratio = table[f"other_over_{top}_per_score"].min()
    return f"{title}; its score, {1 / score_ratio:.0f} times more" if score_ratio < 1 else title


@theme()
def fig4_entropy(
    table: pd.DataFrame, special_tokens: SpecialTokens, *, model: str, lens: str
) -> Figure:
    """Draw Figure 4 (section 3.3): entropy of each head's attention in nats, by layer.

    The lower panel has the attention of the [CLS] position only.  It is left out if the model has
    no such token.  On the right is the number of tokens with equal weights of the same entropy.

    Parameters
    ----------
    table : pandas.DataFrame
        The table entropy.csv.
    special_tokens : mapping of str to str or None
        The model's tokens for [CLS] ("cls") and [SEP] ("sep").
    model : str
        Name of the run, for the note.
    lens : {"attention", "norm"}
        The kind of weights in the table.

    Returns
    -------
    matplotlib.figure.Figure
    """
    line_styles = {
        "entropy": style.TOKEN_STYLES["other"]._replace(label="from all tokens"),
        "entropy_from_cls": style.TOKEN_STYLES["cls"]._replace(label="from {cls} only"),
    }
    styles = present_styles(table, line_styles, special_tokens)
    panels = {line.label: {column: line} for column, line in styles.items()}
    means = table.groupby("layer")[["entropy", "uniform"]].mean()
    narrowest = means["entropy"].idxmin()
    low, uniform = means.loc[narrowest]
    title = f"Figure 4 · Layer {narrowest} has the narrowest {style.WEIGHT_NAMES[lens]}"
    title += f": {low:.1f} of {uniform:.1f} nats on average"
    figure = heads_and_means(table, panels, title, "Entropy (nats)", model)
    for axes in figure.axes:
        draw_chance(axes, means["uniform"], style.INK)
        axes.set_ylim(0, 1.08 * means["uniform"].max())
        equal_tokens = axes.twinx()  # e^H
        equal_tokens.set_yticks(np.log(TOKEN_TICKS), [str(count) for count in TOKEN_TICKS])
        equal_tokens.set(ylim=axes.get_ylim(), ylabel="as many equal tokens")
    return figure


def heads_and_means(
    table: pd.DataFrame, panels: Mapping[str, Styles], title: str, ylabel: str, model: str
) -> Figure:
    """Draw columns of a table: each head as a point, and the mean of each layer's heads as a line.

    The points of a layer stand next to each other, by column and in the order of the heads.
    Therefore they neither hide each other nor move between runs.  The head with the largest value
    has its name.

    Parameters
    ----------
    table : pandas.DataFrame
        One row per head, with the intervals of the columns.
    panels : mapping of str to mapping of str to Style
        The columns of each panel, from top to bottom, with their styles, by the panel's title.
    title, ylabel, model : str
        The title, the label of the vertical axes, and the name of the run.
    """
    columns = [column for styles in panels.values() for column in styles]
    widths = [table[f"{column}_high"] - table[f"{column}_low"] for column in columns]
    interval = f"95% intervals of heads: ±{pd.concat(widths).max() / 2:.1g} at most"
    meaning = "dashed: uniform attention · points: heads; lines: means of layers"
    figure = canvas(1.5 * len(panels), title, model, meaning, interval)
    means = table.groupby("layer", as_index=False)[columns].mean()
    labels = table["layer"].astype(str) + "-" + table["head"].astype(str)
    layers = int(table["layer"].max())
    within_layer = (table["head"] - 0.5) / table["head"].max()
    axes_of_panels = panel_grid(figure, len(panels), 1, sharex=True)
    for axes, (panel_title, styles) in zip(axes_of_panels, panels.items(), strict=True):
        largest = table[list(styles)].max().idxmax()
        for slot, (column, (_, color, marker)) in enumerate(styles.items()):
            x = table["layer"] + 0.8 * ((slot + within_layer) / len(styles) - 0.5)
            points = {"s": 4, "alpha": 0.5, "linewidth": 0, "color": color, "marker": marker}
            axes.scatter(x, table[column], **points)
            draw_curve(axes, means, "layer", column, styles[column])
            if column == largest:
                row = table[column].idxmax()
                to_the_right = {"xytext": (3, 0), "textcoords": "offset points", "va": "center"}
                point = (x[row], table[column][row])
                axes.annotate(labels[row], point, path_effects=HALO, **to_the_right)
        axes.set(title=panel_title, ylabel=ylabel, xlim=(0.4, layers + 0.6))
    axes_of_panels[-1].set(xlabel="Layer", xticks=style.counting_ticks(layers))
    return figure


def present_styles(table: pd.DataFrame, styles: Styles, special_tokens: SpecialTokens) -> Styles:
    """Select the styles of the columns that have values, and fill in the special tokens.

    The first token has no style of its own if it is a special token.
    """
    present: dict[str, Style] = {}
    for column, line in styles.items():
        if column in table and table[column].notna().any():
            present[column] = line._replace(label=line.label.format(**special_tokens))
    if "first" in present:
        roles = table.filter(["cls", "sep"])
        if np.isclose(roles, table[["first"]]).all(axis=0).any():
            del present["first"]
    return present


@theme()
def fig6_clusters(
    positions: pd.DataFrame,
    averages: pd.DataFrame,
    special_tokens: SpecialTokens,
    cohesion: float,
    *,
    tokens: float,
    model: str,
) -> Figure:
    """Draw Figure 6 (section 6): attention heads in the plane, coloured by what they attend to.

    Each panel has all heads at the same positions: how broad they are, their attention to the
    special token that gets most, the linguistic relations that they find, and their layers.

    Parameters
    ----------
    positions : pandas.DataFrame
        The table head_positions.csv after `helpers.metrics.clustering.mark_findings`.
    averages : pandas.DataFrame
        One row per head in the same order: the columns of section 3.
    special_tokens : mapping of str to str or None
        The model's tokens for [CLS] ("cls") and [SEP] ("sep").
    cohesion : float
        The mean distance of heads of one layer over that of heads of different ones, for the title.
    tokens : float
        The mean number of tokens of an example.  The positions are divided by it, because a
        distance is a sum over the tokens.
    model : str
        Name of the run, for the note.

    Returns
    -------
    matplotlib.figure.Figure
    """
    styles = present_styles(averages, TO_SPECIAL, special_tokens)
    top = averages[list(styles)].mean().idxmax()
    points = positions[["x", "y"]].to_numpy(float) / tokens
    is_linguistic = ~positions["behaviour"].isin(BEHAVIOURS)
    linguistic = positions[is_linguistic]
    labels = [f"{row.layer}-{row.head}" for row in linguistic.itertuples()]
    findings = zip(labels, linguistic["behaviour"], strict=True)
    title = f"Figure 6 · Heads of one layer are {cohesion:.2f} times as far apart as heads of "
    title += "different layers"
    if np.isnan(cohesion):  # of a single layer, or of single heads
        title = "Figure 6 · Heads in the plane of multidimensional scaling"
    figure = canvas(
        3.3,
        title,
        model,
        "a point: a head; near: alike in what they attend to",
        "; ".join(f"{label} {behaviour}" for label, behaviour in findings),
    )
    panels = panel_grid(figure, 4, 2)
    layers = positions["layer"]
    shares = {"cmap": style.SEQUENTIAL, "norm": Normalize(0, 1)}
    drawn = {  # colours and their scale, by title
        "entropy / uniform": (averages["entropy"] / averages["uniform"], shares),
        f"attention to {styles[top].label}": (averages[top], shares),
        "syntax or coreference": ("white", {}),
        "layer": (layers, {"cmap": style.LAYER_COLORS, "norm": Normalize(1, layers.max())}),
    }
    marker = {"s": 9 if len(points) < 200 else 5, "edgecolors": style.MUTED, "linewidths": 0.3}
    for axes, (panel_title, (colors, scale)) in zip(panels, drawn.items(), strict=True):
        axes.scatter(*points.T, c=colors, **scale, **marker)
        axes.set(title=panel_title, xlabel="First MDS dimension\n(nats per token)")
        axes.set_aspect("equal", adjustable="datalim")  # because distances are read off
        axes.margins(0.15)
        axes.label_outer()
    _, special, syntax, by_layer = panels
    syntax.scatter(*points[is_linguistic].T, c=style.INK, **marker)  # on top
    figure.colorbar(special.collections[0], ax=panels[:2], label="Share (fraction)")
    ticks = style.counting_ticks(layers.max(), 6)
    figure.colorbar(by_layer.collections[0], ax=panels[2:], label="Layer", ticks=ticks)
    figure.supylabel("Second MDS dimension (nats per token)")
    # The labels come last, because they are placed on the finished page.
    label_points(syntax, points, np.flatnonzero(is_linguistic).tolist(), labels)
    return figure


@theme()
def relative_position(table: pd.DataFrame, *, model: str, lens: str) -> Figure:
    """Draw the attention to the previous, current and next token (section 3.1) as heat maps.

    A token that no query sees has no map.

    Parameters
    ----------
    table : pandas.DataFrame
        The table relative_position.csv, with the shares of uniform attention.
    model : str
        Name of the run, for the note.
    lens : {"attention", "norm"}
        The kind of weights in the table.

    Returns
    -------
    matplotlib.figure.Figure
    """
    maps = {}
    findings = []
    for column in ("previous", "current", "next"):
        if table[column].isna().all():  # a causal model sees no next token
            continue
        layer, head, share = table.loc[table[column].idxmax(), ["layer", "head", column]]
        head_name = f"{layer:.0f}-{head:.0f}"
        if column != "current":
            findings.append(f"head {head_name} gives {share:.0%} to the {column} token")
        uniform = table[f"uniform_{column}"].mean()
        title = f"{column} token\nmost: {head_name}, {share:.0%}\nuniform: {uniform:.1%}"
        maps[title] = by_head(table, column)
    return style.heat_maps(
        maps,
        "; ".join(findings).replace("head", "Head", 1),
        model,
        "uniform: of uniform attention",
        unit=f"Average {style.WEIGHT_NAMES[lens]} (fraction)",
        norm=Normalize(0, 1),
        layer_numbers=table["layer"].unique().tolist(),
    )
