"""The figures by attention head and layer; both are counted from 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.text import Annotation
from matplotlib.ticker import LogLocator

from helpers.metrics.clustering import BEHAVIOURS
from helpers.metrics.heads import by_head
from helpers.plots import style
from helpers.plots.labels import HALO, label_points
from helpers.plots.style import (
    SpecialTokens,
    Style,
    Styles,
    canvas,
    draw_curve,
    for_column,
    legend_below,
    legend_inside,
    panel_grid,
)

OBJECTIVE_NOTES = {
    "contrastive": ", single paragraphs",  # not the pairs of Figure 2
}
GRADIENT_TITLES = {  # by the suffix of the columns
    "": "|∂L/∂A|\n(nats per unit of attention)",
    "_per_value": "|∂L/∂A| / value norm\n(nats per unit of norm)",
    "_per_score": "per score: |∂L/∂s|\n(nats per unit of score)",
}
TO_SPECIAL = {name: style.ATTENDED[name] for name in ("first", "cls", "sep", "punctuation")}
MANY_LAYERS = 15  # with more of them, there is no room for a name between two layers
MANY_HEADS = 200  # with more of them, they are small points in the plane
HEADS_AND_MEANS = "points: heads; lines: means of layers"
FARTHEST = "; the head farthest from its line is named"
NEGLIGIBLE = 0.02  # of the largest value: a head that is nearer to its line has no name
NEAR_UNIFORM = 0.05  # of the uniform entropy: a name so near would be on the line
CROWDED = 100  # with more heads, there is no room for the names of behaviours in the plane
UNIFORM_LINES = "dashed: uniform attention"
THIS_MODEL = Style("this model", style.SERIES_COLORS[0], "o")
DASHES = (4, 3)
COLUMN_LETTERS = 56  # of a line below Figure 6 for a column
UNIFORM = {"sep_to_sep": "uniform_sep", "other_to_sep": "uniform_sep"}  # others: uniform_<column>


@for_column
def fig2_token_types(
    table: pd.DataFrame, special_tokens: SpecialTokens, *, model: str = "", lens: str = "attention"
) -> Figure:
    """Draw Figure 2 (section 3.2): attention to special tokens and punctuation, by layer.

    The first token has a line of its own, unless it is a special token.  The intervals are too
    narrow to draw.  Therefore a footnote gives the widest one.

    Parameters
    ----------
    table : pandas.DataFrame
        The table token_types.csv.
    special_tokens : mapping of str to str or None
        The model's tokens for [CLS] ("cls") and [SEP] ("sep"), such as
        `helpers.store.store.Store.special_tokens`.
    model : str, optional
        Name of the run, for the subtitle.
    lens : {"attention", "norm"}, optional
        The kind of weights in the table.

    Returns
    -------
    matplotlib.figure.Figure
    """
    from_sep = style.TOKEN_STYLES["sep"]._replace(label="from {sep} to {sep}")
    from_other_tokens = style.TOKEN_STYLES["other"]._replace(label="from other tokens to {sep}")
    to_sep = {"sep_to_sep": from_sep, "other_to_sep": from_other_tokens}
    panels = [present_styles(table, TO_SPECIAL, special_tokens)]
    note = note_first_token(table, special_tokens)
    if "sep" in panels[0]:
        panels.append(present_styles(table, to_sep, special_tokens))
        note += f"{special_tokens['sep']}: all of a segment together.  "
    weights = style.WEIGHT_NAMES[lens]
    means = table.groupby("layer")[list(panels[0])].mean()
    most_attended = means.max().idxmax()
    share = means[most_attended].max()
    label = panels[0][most_attended].label
    title = f"Figure 2 · Up to {share:.0%} of a layer's {weights} goes {label}"
    if f"uniform_{most_attended}" in table:
        title += f"; uniform attention: {table[f'uniform_{most_attended}'].mean():.1%}"
    ylabel = f"Average {weights}\n(fraction)"
    figure = heads_and_means(table, panels, title, model, ylabel, note, UNIFORM_LINES)
    for axes, styles in zip(figure.axes, panels, strict=True):
        _draw_uniform_shares(axes, table, styles)
        axes.set_ylim(bottom=0)
    return figure


def _draw_uniform_shares(axes: Axes, table: pd.DataFrame, styles: Styles) -> None:
    """Draw what each column would be under uniform attention, if the table has it."""
    drawn = {}
    for column, series_style in styles.items():
        uniform = UNIFORM.get(column, f"uniform_{column}")
        if uniform in table and uniform not in drawn:
            drawn[uniform] = series_style.color
    for uniform, color in drawn.items():
        _draw_steps(axes, table.groupby("layer")[uniform].mean(), color)


def _draw_steps(axes: Axes, by_layer: pd.Series, color: str) -> None:
    """Draw a value of each layer as a dashed step, because layers may see different keys."""
    edges = np.add.outer(by_layer.index, [-0.5, 0.5]).ravel()
    values = by_layer.repeat(2).to_numpy()
    axes.plot(edges, values, color=color, dashes=DASHES, linewidth=1.2, zorder=1.5)


@for_column
def fig3_gradients(
    tables: Mapping[str, pd.DataFrame], special_tokens: SpecialTokens, *, model: str = ""
) -> Figure:
    """Draw Figure 3 (section 3.2): how much the objective changes with the attention.

    The upper panels have the model's mean absolute gradients by type of token, per unit of
    attention and per unit of the value vectors.  Those below have the same per unit of the score
    before the softmax, and their ratios.  The lowest panels have the ratio of the gradients of
    other tokens to those of a special token, or of the first one, for the model and its controls.

    Parameters
    ----------
    tables : mapping of str to pandas.DataFrame
        Gradients of the model ("trained") and of its controls, which have the keys of
        `helpers.plots.style.CONTROL_STYLES`.
    special_tokens : mapping of str to str or None
        The model's tokens for [CLS] ("cls") and [SEP] ("sep").
    model : str, optional
        Name of the run, for the subtitle.

    Returns
    -------
    matplotlib.figure.Figure
    """
    table = tables["trained"]
    styles = present_styles(table, style.ATTENDED, special_tokens)
    special = [key for key in ("first", "cls", "sep") if key in styles]
    names = {key: styles[key].label.removeprefix("to ") for key in special}
    has_scores = "other_per_score" in table and table["other_per_score"].notna().any()
    rows = 1 + has_scores + bool(special)
    articles = table.loc[0, "articles"]
    bands = f"bands: 95% intervals over {articles} articles"
    if "random" in tables:
        bands += f" (controls: {tables['random'].loc[0, 'articles']})"
    height = 1.35 * rows + 0.6 if style.in_column() else 2.5 * rows + 0.65
    figure = canvas(
        height,
        gradient_title(table, names),
        model,
        describe_objective(table),
        bands,
        note_first_token(table, special_tokens).strip(),
    )
    grid = figure.subplots(rows, 2, squeeze=False, sharex=True)
    for left, right in (grid[0], grid[-1])[:rows]:
        right.sharey(left)
    for axes, (suffix, panel_title) in zip(grid.flat, GRADIENT_TITLES.items(), strict=False):
        if f"other{suffix}" in table:  # the norms are not known for every model
            axes.set_title(panel_title)
            _curves(axes, table, "{}" + suffix, styles)
    if has_scores:
        grid[1, 1].set_title("per score: ratio")
        special_styles = {key: styles[key] for key in special}
        _curves(grid[1, 1], table, "other_over_{}_per_score", special_styles)
    for axes, token_type in zip(grid[-1], special, strict=False):
        axes.set_title(f"other tokens / {names[token_type]}", parse_math=False)
        _ratios(axes, tables, token_type)
    _label_outer(grid)
    if len(special) == 1 and not style.in_column():
        legend_inside(figure, grid[-1, 1])
    else:
        legend_below(figure, columns=2 if style.in_column() else 4)
    return figure


def _label_outer(grid: np.ndarray) -> None:
    """Hide empty panels, and label the axes of Figure 3 that panels share only once."""
    for axes in (grid[0, 1], grid[-1, 1]):  # which have the vertical axis of those to the left
        axes.set_ylabel("")
        axes.tick_params(labelleft=False, which="both")
    for axes in grid.flat:
        axes.set(visible=axes.has_data())
    for column in grid.T:
        lowest = [axes for axes in column if axes.has_data()][-1:]
        for axes in lowest:
            axes.set_xlabel("Layer")
            axes.tick_params(labelbottom=True)


def gradient_title(table: pd.DataFrame, names: Mapping[str, str]) -> str:
    """Write the title of Figure 3 from the table of the model, and names of its special tokens."""
    if "reason" in table:
        return "Figure 3 · Not measured"
    loss, guess = table.loc[0, ["loss", "guess"]] if "guess" in table else (0, np.inf)
    if loss >= guess:
        return "Figure 3 · Gradients of an objective on which the model is no better than a guess"
    if not names:
        return "Figure 3 · Gradients of attention"
    ratios = {key: table[f"other_over_{key}"].max() for key in names}
    top = max(ratios, key=lambda key: ratios[key])
    per_attention = f"{ratios[top]:.1f} times those to {names[top]}"
    per_value = table.get(f"other_over_{top}_per_value", pd.Series(dtype=float)).dropna()
    if not len(per_value):
        return f"Figure 3 · Gradients of attention to other tokens: up to {per_attention}"
    return (
        f"Figure 3 · Gradients of attention to other tokens, per unit of value vector: "
        f"{per_value.min():.1f} to {per_value.max():.1f} times those to {names[top]}; "
        f"without this unit, up to {ratios[top]:.1f} times"
    )


def describe_objective(table: pd.DataFrame) -> str:
    """Describe the objective of a table of gradients, its value and that of a guess."""
    if "reason" in table:
        return table.loc[0, "reason"]
    name, loss = table.loc[0, ["objective", "loss"]]
    guess = f" (a guess: {table.loc[0, 'guess']:.2f})" if "guess" in table else ""
    return f"L: {name}, {loss:.2f} nats{guess}{OBJECTIVE_NOTES.get(name, '')}"


def note_first_token(table: pd.DataFrame, special_tokens: SpecialTokens) -> str:
    """Name the special token that begins each text; the note is empty if none does."""
    role = role_of_first_token(table)
    token = special_tokens.get(role or "first")
    return f"{token} is the first token.  " if token else ""


def _curves(axes: Axes, table: pd.DataFrame, columns: str, styles: Styles) -> None:
    """Draw the column of each type of token, whose name stands in the brackets of ``columns``."""
    for token_type, series_style in styles.items():
        _curve(axes, table, columns.format(token_type), series_style)


def _ratios(axes: Axes, tables: Mapping[str, pd.DataFrame], token_type: str) -> None:
    """Draw the ratio of other tokens' gradients to those of a type, of a model and its controls."""
    for name, table in tables.items():
        series_style = style.CONTROL_STYLES.get(name, THIS_MODEL)
        # The controls are close to each other: through a dashed line, the other one is seen.
        options = {"dashes": DASHES} if name == "entropy-matched" else {}
        _curve(axes, table, f"other_over_{token_type}", series_style, **options)


def _curve(
    axes: Axes, table: pd.DataFrame, column: str, series_style: Style, **options: Any
) -> None:
    """Draw a column by layer, with its interval, on a logarithmic scale."""
    draw_curve(axes, table, "layer", column, series_style, **options)
    quantity = "|∂L/∂s|" if column.endswith("_per_score") else "|∂L/∂A|"
    ylabel = f"Ratio of {quantity}" if "over" in column else "Mean gradient"
    xticks = style.counting_ticks(len(table), 6 if style.in_column() else 12)
    axes.set(yscale="log", ylabel=ylabel, xticks=xticks)
    if "over" in column:
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_locator(LogLocator(subs=(2, 5)))
        axes.yaxis.set_minor_formatter("{x:g}")


@for_column
def fig4_entropy(
    table: pd.DataFrame, special_tokens: SpecialTokens, *, model: str = "", lens: str = "attention"
) -> Figure:
    """Draw Figure 4 (section 3.3): entropy of each head's attention in nats, by layer.

    The lower panel has the attention of the [CLS] position only.  It is left out if the model has
    no such token.  The footnote is like that of Figure 2.

    Parameters
    ----------
    table : pandas.DataFrame
        The table entropy.csv.
    special_tokens : mapping of str to str or None
        The model's tokens for [CLS] ("cls") and [SEP] ("sep").
    model : str, optional
        Name of the run, for the subtitle.
    lens : {"attention", "norm"}, optional
        The kind of weights in the table.

    Returns
    -------
    matplotlib.figure.Figure
    """
    panel_styles = {
        "entropy": style.TOKEN_STYLES["other"]._replace(label="from all tokens"),
        "entropy_from_cls": style.TOKEN_STYLES["cls"]._replace(label="from {cls} only"),
    }
    styles = present_styles(table, panel_styles, special_tokens)
    panels = [{column: series_style} for column, series_style in styles.items()]
    means = table.groupby("layer")[["entropy", "uniform"]].mean()
    title = _entropy_title(means, style.WEIGHT_NAMES[lens])
    figure = heads_and_means(table, panels, title, model, "Entropy (nats)")
    for axes in figure.axes:
        _draw_steps(axes, means["uniform"], style.INK)
        for name in axes.texts:  # of the head that is farthest from its line
            _, entropy = cast("Annotation", name).xy
            if abs(entropy - means["uniform"]).min() < NEAR_UNIFORM * entropy:
                name.set(va="top")
        axes.annotate(
            "uniform attention", (1, means["uniform"].iloc[-1]),
            xycoords=("axes fraction", "data"), ha="right", va="bottom",
        )  # fmt: skip
        axes.margins(y=0.1)
        _, top = axes.get_ylim()
        axes.set_ylim(0, max(top, 1.1 * means["uniform"].max()))  # room for this text
    return figure


def _entropy_title(means: pd.DataFrame, weights: str) -> str:
    """Write the title of Figure 4 from the means of layers."""
    least, most = (f"{value:.1f}" for value in means["uniform"].agg(["min", "max"]))
    uniform = f"of {most if least == most else f'{least} to {most}'} nats"
    entropy = means["entropy"].map("{:.1f}".format)
    low, high = entropy[means["entropy"].idxmin()], entropy[means["entropy"].idxmax()]
    if low == high:
        return f"Figure 4 · The mean entropy of every layer's {weights} is {low} {uniform}"
    return (
        f"Figure 4 · Narrowest {weights}: {_layers(entropy == low)} ({low}); "
        f"broadest: {_layers(entropy == high)} ({high} {uniform})"
    )


def _layers(is_named: pd.Series) -> str:
    """Name the layers that are marked."""
    numbers = [str(layer) for layer in is_named.index[is_named]]
    if len(numbers) > 3:
        return f"{len(numbers)} layers"
    return f"layer{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}"


def heads_and_means(
    table: pd.DataFrame,
    panels: Sequence[Styles],
    title: str,
    model: str,
    ylabel: str,
    note: str = "",
    dashed: str = "",
) -> Figure:
    """Draw columns of a table: each head as a point, and the mean of each layer's heads as a line.

    In each panel, the head that is farthest from the mean of its layer has its name.

    The points of a layer stand next to each other, by column and in the order of the heads.
    Therefore they neither hide each other nor move between runs.

    Parameters
    ----------
    table : pandas.DataFrame
        One row per head, with the intervals of the columns.
    panels : sequence of mapping of str to Style
        The columns of each panel, from top to bottom, with their styles.
    title, model, ylabel, note : str
        The title, the name of the run, the label of the vertical axes, and the footnote, after
        which the widest interval of a head stands.
    dashed : str, optional
        What dashed lines will be, for the subtitle; left out if the table has no uniform share.
    """
    columns = [column for styles in panels for column in styles]
    dashed = dashed if any(column.startswith("uniform") for column in table) else ""
    widths = [table[f"{column}_high"] - table[f"{column}_low"] for column in columns]
    reach = pd.concat(widths).max() / 2
    if reach > 0:  # a single article has no intervals
        note += f"95% intervals over articles: ±{reach:.1g} at most for a head.  "
    height = 1.5 if style.in_column() else 2.9
    means = table.groupby("layer", as_index=False)[columns].mean()
    deviations = table[columns] - table.groupby("layer")[columns].transform("mean")
    least = NEGLIGIBLE * table[columns].max(axis=None)
    has_names = deviations.abs().max(axis=None) > least
    legend_note = HEADS_AND_MEANS + (FARTHEST if has_names else "")
    figure = canvas(height * len(panels), title, model, legend_note, dashed, note=note)
    layers = int(table["layer"].max())
    shift = 0.7 * ((table["head"] - 0.5) / table["head"].max() - 0.5)
    size = 5 if style.in_column() or layers > MANY_LAYERS else 13
    grid = figure.subplots(len(panels), squeeze=False, sharex=True)
    for axes, styles in zip(grid.flat, panels, strict=True):
        farthest_row, farthest_column = deviations[list(styles)].abs().stack().idxmax()
        for slot, (column, series_style) in enumerate(styles.items()):
            x = table["layer"] + 0.64 * ((slot + 0.5 + shift) / len(styles) - 0.5)
            axes.scatter(
                x, table[column], s=size, alpha=0.5, linewidth=0, color=series_style.color,
                marker=series_style.marker, clip_on=False,
            )  # fmt: skip
            draw_curve(axes, means, "layer", column, series_style, **style.WHITE_EDGES)
            is_named = column == farthest_column and deviations[column].abs().max() > least
            if is_named:
                layer, head, value = table.loc[farthest_row, ["layer", "head", column]]
                is_right = shift[farthest_row] > 0  # of the middle of the layer's points
                is_above = deviations.loc[farthest_row, column] > 0  # the mean
                beside: dict[str, Any] = {"xytext": (4 if is_right else -4, 0)}
                beside["va"] = "center" if is_above else "bottom"  # not across the axis
                beside["ha"] = "left" if is_right else "right"
                beyond = {"xytext": (0, 4 if is_above else -4), "ha": "center"}
                beyond["va"] = "bottom" if is_above else "top"
                axes.annotate(
                    f"{layer:.0f}-{head:.0f}", (x[farthest_row], value), path_effects=HALO,
                    textcoords="offset points", **(beyond if layers > MANY_LAYERS else beside),
                )  # fmt: skip
        axes.set(xlabel="Layer", xlim=(0.2, layers + 0.8), xticks=style.counting_ticks(layers))
        axes.set_ylabel(ylabel)
        axes.label_outer()
        axes.legend(
            loc="lower left", bbox_to_anchor=(0, 1), ncols=2 if style.in_column() else 4,
            borderaxespad=0.2,
        )  # fmt: skip
    return figure


def present_styles(table: pd.DataFrame, styles: Styles, special_tokens: SpecialTokens) -> Styles:
    """Select the styles of the columns that have values, and fill in the special tokens.

    The first token has no style of its own if it is a special token.
    """
    present = {}
    for column, series_style in styles.items():
        is_special = column == "first" and role_of_first_token(table)
        if column in table and table[column].notna().any() and not is_special:
            label = series_style.label.format(**special_tokens)
            present[column] = series_style._replace(label=label)
    return present


def role_of_first_token(table: pd.DataFrame) -> str:
    """Find out whether the first token is always [CLS] or [SEP]: "cls", "sep", or an empty text."""
    for role in ("cls", "sep"):
        if {"first", role} <= set(table) and np.allclose(table["first"], table[role]):
            return role
    return ""


@for_column
def fig6_clusters(
    positions: pd.DataFrame,
    averages: pd.DataFrame,
    special_tokens: SpecialTokens,
    *,
    tokens: float,
    model: str = "",
) -> Figure:
    """Draw Figure 6 (section 6): attention heads in the plane, coloured by what they attend to.

    Each panel has all heads at the same positions.  The panels of section 3 have one colour scale;
    the head with the most of the pattern has a ring, and its name is in the title.  The last two
    panels name the heads with a linguistic behaviour (a relation, or coreference), and show the
    layers.

    Parameters
    ----------
    positions : pandas.DataFrame
        The table head_positions.csv after `helpers.metrics.clustering.mark_findings`.
    averages : pandas.DataFrame
        One row per head in the same order: the columns of section 3.
    special_tokens : mapping of str to str or None
        The model's tokens for [CLS] ("cls") and [SEP] ("sep").
    tokens : float
        The mean number of tokens of an example.  The positions are divided by it, because a
        distance is a sum over the tokens.
    model : str, optional
        Name of the run, for the subtitle.

    Returns
    -------
    matplotlib.figure.Figure
    """
    shares = {"entropy / uniform": averages["entropy"] / averages["uniform"]}
    for column in ("previous", "next"):
        if averages[column].notna().any():  # no causal model sees the next token
            shares[f"to the {column} token"] = averages[column]
    for column, series_style in present_styles(averages, TO_SPECIAL, special_tokens).items():
        shares[series_style.label] = averages[column]
    points = positions[["x", "y"]].to_numpy(float) / tokens
    in_column = style.in_column()
    size = 9 if in_column or len(points) > MANY_HEADS else 22
    is_linguistic = ~positions["behaviour"].isin(BEHAVIOURS)
    names, listed = _label_findings(
        positions[is_linguistic], with_list=in_column or len(points) > CROWDED
    )
    n_panels = len(shares) + 2
    rows = -(-n_panels // (2 if in_column else 4))
    columns = -(-n_panels // rows)
    figure = canvas(
        rows * (1.675 if in_column else 2.5) + 0.45 * in_column,
        _neighbour_title(positions),
        model,
        "a point is a head; the closer two are, the more alike are their distributions",
        listed,
        note=note_first_token(averages, special_tokens),
    )
    panels = panel_grid(figure, n_panels, columns, sharex=True, sharey=True)
    marker = {"s": size, "edgecolors": style.MUTED, "linewidths": 0.4}
    for axes, (pattern, values) in zip(panels, shares.items(), strict=False):
        axes.scatter(*points.T, c=values, cmap=style.SEQUENTIAL, vmin=0, vmax=1, **marker)
        strongest = values.argmax()
        axes.scatter(*points[strongest], s=4 * size, facecolors="none", edgecolors=style.INK)
        layer, head = positions.loc[strongest, ["layer", "head"]]
        panel_title = f"{pattern}\nmost: head {layer}-{head}, {values[strongest]:.0%}"
        axes.set_title(panel_title, parse_math=False)
    style.draw_color_scale(
        figure, panels[:columns], ScalarMappable(Normalize(0, 1), style.SEQUENTIAL),
        "Share (fraction)",
    )  # fmt: skip
    findings, by_layer = panels[-2:]
    findings.scatter(*points.T, c="white", **marker)
    findings.scatter(*points[is_linguistic].T, c=style.INK, **marker)  # on top
    findings.set_title("syntax or coreference")
    layers = positions["layer"]
    norm = Normalize(1, layers.max())
    layer_scale = ScalarMappable(norm, style.LAYER_COLORS)
    by_layer.scatter(*points.T, c=layers, cmap=style.LAYER_COLORS, norm=norm, **marker)
    by_layer.set_title("layer")
    ticks = style.counting_ticks(layers.max(), 6)
    colorbar_options = {"location": "bottom"} if in_column else {}
    style.draw_color_scale(
        figure, panels[-columns:], layer_scale, "Layer", ticks=ticks, **colorbar_options
    )
    for axes in panels:
        axes.set_aspect("equal")  # because distances are read off
        axes.margins(0.2)  # room for the labels
    xlabel = "First MDS dimension (nats per token)"
    if in_column:  # without a subtitle
        xlabel += "\n" + style.fill_lines(listed, COLUMN_LETTERS)
    figure.supxlabel(xlabel)
    figure.supylabel("Second MDS dimension (nats per token)")
    # The labels come last, because they are placed on the finished page.
    label_points(findings, points, np.flatnonzero(is_linguistic).tolist(), names)
    return figure


def _label_findings(linguistic: pd.DataFrame, *, with_list: bool) -> tuple[list[str], str]:
    """Write the labels of heads with a behaviour, and a list of behaviours if the labels lack them.

    Within a part of the list are no spaces at which a line could be broken.
    """
    numbers = [f"{layer}-{head}" for layer, head in linguistic[["layer", "head"]].to_numpy()]
    behaviours = linguistic["behaviour"].tolist()
    if with_list:
        parts = [f"{number}: {name}" for number, name in zip(numbers, behaviours, strict=True)]
        return numbers, "; ".join(part.replace(" ", "\u00a0") for part in parts)
    names = [f"{name} {number}" for number, name in zip(numbers, behaviours, strict=True)]
    return [name.replace(", ", ",\n") for name in names], ""


def _neighbour_title(positions: pd.DataFrame) -> str:
    """Write the title of Figure 6: whether neighbours in the plane are of the same layer."""
    points = positions[["x", "y"]].to_numpy(float)
    distances = np.linalg.norm(points[:, None] - points, axis=-1)
    np.fill_diagonal(distances, np.inf)
    layers = positions["layer"].to_numpy()
    count = len(layers)
    same_layer = int((layers[distances.argmin(axis=1)] == layers).sum())
    n_neighbours = positions.groupby("layer")["layer"].transform("size") - 1
    by_chance = (n_neighbours / (count - 1)).sum()
    return (
        f"Figure 6 · For {same_layer} of {count} heads, the nearest one in the plane is in the "
        f"same layer; by chance, for {by_chance:.0f}"
    )


@for_column
def relative_position(
    table: pd.DataFrame,
    *,
    model: str = "",
    lens: str = "attention",
) -> Figure:
    """Draw the attention to the previous, current and next token (section 3.1) as heat maps.

    A token that no query sees has no map.

    Parameters
    ----------
    table : pandas.DataFrame
        The table relative_position.csv.  If it has the shares of uniform attention, they are in the
        titles of the maps and have lines on the colour scale.
    model : str, optional
        Name of the run, for the subtitle.
    lens : {"attention", "norm"}, optional
        The kind of weights in the table.

    Returns
    -------
    matplotlib.figure.Figure
    """
    maps = {}
    strongest = {}
    chance = {}
    for column in ("previous", "current", "next"):
        if table[column].isna().all():  # a causal model sees no next token
            continue
        layer, head, share = table.loc[table[column].idxmax(), ["layer", "head", column]]
        strongest[column] = f"head {layer:.0f}-{head:.0f}: {share:.0%} to the {column} token"
        title = f"to the {column} token\nmost: head {layer:.0f}-{head:.0f}, {share:.0%}"
        if f"uniform_{column}" in table:
            uniform = table[f"uniform_{column}"].mean()
            chance[column] = uniform
            title += f"\nuniform attention: {uniform:.1%}"
        maps[title] = by_head(table, column)
    findings = [strongest[column] for column in ("previous", "next") if column in strongest]
    finding = "; ".join(findings)
    note = "lines on the scale: uniform attention" if chance else ""
    weights = style.WEIGHT_NAMES[lens]
    figure = style.heat_maps(
        maps,
        f"Section 3.1 · {finding[0].upper()}{finding[1:]}",
        model,
        note,
        unit=f"Average {weights}\n(fraction)",
        norm=Normalize(0, 1),
    )
    draw_line = figure.axes[-1].axvline if style.in_column() else figure.axes[-1].axhline
    for uniform in chance.values():
        draw_line(uniform, color=style.INK, linewidth=1.2)
    return figure
