"""The figures by head and layer; both count from 1."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from helpers.analysis.heads import by_head
from helpers.plots import style
from helpers.plots.labels import label_points
from helpers.plots.style import (
    SpecialTokens,
    Style,
    Styles,
    canvas,
    join_nonempty,
    resolve_special_tokens,
    theme,
)

GRADIENTS = {
    "": "|∂L/∂A|, per unit of attention",
    "_per_value": "|∂L/∂A| / |f(x)|, per unit of value, too",
}
LINGUISTIC = Style("syntax or coreference", "#000000", "*")
HEADS_AND_MEANS = "a point is a head, a line the mean of the layer"


@theme()
def fig2_token_types(
    table: pd.DataFrame, special_tokens: SpecialTokens, *, model: str = "", lens: str = "attention"
) -> Figure:
    """Draw Figure 2 (section 3.2): attention to special tokens and punctuation, by layer.

    ``table`` is token_types.csv.  Intervals are too narrow to draw: a footnote has the widest, and
    which token is left out because the model does not have it.
    """
    to_sep = style.TOKEN_STYLES["other"]._replace(label="from other tokens to {sep}")
    panels = [
        {kind: style.ATTENDED[kind] for kind in ("cls", "sep", "punctuation")},
        {
            "sep_to_sep": style.TOKEN_STYLES["sep"]._replace(label="from {sep} to {sep}"),
            "other_to_sep": to_sep,
        },
    ]
    panels = [found for styles in panels if (found := _present(table, styles, special_tokens))]
    height = 3.1 * len(panels) if len(panels) > 1 else 3.4
    title = f"Figure 2 · {style.WEIGHT_NAMES[lens].capitalize()} to special tokens and punctuation"
    note = _widest(table, *panels) + _left_out(table)
    figure = canvas(height, title, join_nonempty(model, HEADS_AND_MEANS), note)
    rows = figure.subplots(len(panels), squeeze=False, sharex=True)[:, 0]
    for axes, styles in zip(rows, panels, strict=True):
        _heads_and_means(axes, table, styles)
        axes.set(ylabel=f"Average {style.WEIGHT_NAMES[lens]}\n(fraction)", ylim=(-0.02, 1.02))
        _legend_above(axes, styles)
    return figure


@theme()
def fig3_gradients(
    tables: Mapping[str, pd.DataFrame], special_tokens: SpecialTokens, *, model: str = ""
) -> Figure:
    """Draw Figure 3 (section 3.2): how much the objective changes with the attention.

    ``tables`` are gradients.csv of the ``model`` and of its controls.  Above, the model's mean
    absolute gradients by type of token, also for each unit of the value vectors; below, how many
    times larger those of other tokens are than those of a special one, for all.
    """
    table = tables["model"]
    styles = _present(table, style.ATTENDED, special_tokens)
    above = [suffix for suffix in GRADIENTS if f"other{suffix}" in table]
    below = [kind for kind in ("cls", "sep") if kind in styles]
    objective = f"L: {table['objective'].iloc[0]}, {table['loss'].iloc[0]:.2f} nats"
    if table["objective"].eq("contrastive").all():
        objective += ", single paragraphs (not Figure 2's pairs)"
    rows, title = 1 + bool(below), "Figure 3 · Gradient-based importance of attention"
    what = join_nonempty(model, objective, _left_out(table) or "bands: 95% intervals over articles")
    figure = canvas(2.5 * rows + 0.5, title, what)
    grid = figure.subplots(rows, 2, squeeze=False, sharex=True, sharey="row")
    for axes in (*grid[0, len(above) :], *grid[1:, len(below) :].flat):
        axes.set_axis_off()
    for axes, suffix in zip(grid[0], above, strict=False):
        for kind, look in styles.items():
            _curve(axes, table, f"{kind}{suffix}", look)
        axes.set_title(GRADIENTS[suffix])
    for axes, kind in zip(grid[1:].flat, below, strict=False):
        for name, own in tables.items():
            _curve(axes, own, f"other_over_{kind}", style.CONTROL_STYLES.get(name, styles[kind]))
        axes.set_title(f"|∂L/∂A|: other tokens / {special_tokens[kind]}", parse_math=False)
        axes.yaxis.set_major_formatter("{x:g}")
    found = (axes.get_legend_handles_labels() for axes in grid.flat)
    shown = {label: handle for own in found for handle, label in zip(*own, strict=True)}
    figure.legend(shown.values(), shown, loc="outside lower left", ncols=4)
    return figure


def _curve(axes: Axes, table: pd.DataFrame, column: str, look: Style) -> None:
    """Draw a column by layer, with its interval, on a logarithmic scale."""
    label, color, marker = look
    axes.plot(table["layer"], table[column], color=color, marker=marker, label=label)
    bounds = table[f"{column}_low"], table[f"{column}_high"]
    axes.fill_between(table["layer"], *bounds, color=color, alpha=0.2, linewidth=0)
    axes.set(xlabel="Layer", yscale="log", ylabel="Ratio" if "over" in column else "Mean (nats)")
    axes.label_outer()


@theme()
def fig4_entropy(
    table: pd.DataFrame, special_tokens: SpecialTokens, *, model: str = "", lens: str = "attention"
) -> Figure:
    """Draw Figure 4 (section 3.3): entropy of each head's attention, by layer.

    ``table`` is entropy.csv.  The lower panel has the attention of the [CLS] position alone, where
    the model has one.  The footnote is as in Figure 2.
    """
    styles = {
        "entropy": style.TOKEN_STYLES["other"]._replace(label="from all tokens"),
        "entropy_from_cls": style.TOKEN_STYLES["cls"]._replace(label="from {cls} only"),
    }
    styles = _present(table, styles, special_tokens)
    title = f"Figure 4 · Entropy of {style.WEIGHT_NAMES[lens]} distributions"
    note = _widest(table, styles) + _left_out(table)
    figure = canvas(2.9 * len(styles), title, join_nonempty(model, HEADS_AND_MEANS), note)
    rows = figure.subplots(len(styles), squeeze=False, sharex=True, sharey=True)[:, 0]
    uniform = table["uniform"].mean()
    for axes, (column, look) in zip(rows, styles.items(), strict=True):
        _heads_and_means(axes, table, {column: look})
        line = axes.axhline(uniform, color=style.INK, dashes=(4, 3), linewidth=1.2)
        line.set_label("uniform attention")
        axes.set(ylabel="Entropy (nats)")
        axes.set_ylim(-0.1, 1.06 * max(uniform, table[list(styles)].max(axis=None)))
        _legend_above(axes, {column: look})
    return figure


def _heads_and_means(axes: Axes, table: pd.DataFrame, styles: Styles) -> None:
    """Draw each head as a point, and the mean of each layer's heads as a line.

    The points of a layer stand side by side, by column and in the order of the heads: they
    neither hide each other nor move between runs.
    """
    points = table.melt(["layer", "head"], list(styles), "column", "value")
    slot = points["column"].map(list(styles).index) + 0.5
    within = 0.7 * ((points["head"] - 0.5) / points["head"].max() - 0.5)
    points["place"] = points["layer"] + 0.64 * ((slot + within) / len(styles) - 0.5)
    look = {"y": "value", "ax": axes, **style.by_style("column", styles)}
    sns.scatterplot(points, x="place", s=13, alpha=0.5, linewidth=0, legend=False, **look)
    sns.lineplot(points, x="layer", dashes=False, errorbar=None, **look)
    layers = int(table["layer"].max())
    axes.set(xlabel="Layer", xlim=(0.4, layers + 0.6), xticks=style.counting_ticks(layers))
    axes.label_outer()


def _legend_above(axes: Axes, styles: Styles) -> None:
    handles, labels = axes.get_legend_handles_labels()
    labels[: len(styles)] = [look.label for look in styles.values()]
    axes.legend(
        handles, labels, loc="lower left", bbox_to_anchor=(0, 1), ncols=4, borderaxespad=0.2,
        borderpad=0, columnspacing=1.6, handletextpad=0.5,
    )  # fmt: skip


def _present(table: pd.DataFrame, styles: Styles, special_tokens: SpecialTokens) -> Styles:
    """Return the styles of the columns that have values, with the model's own special tokens."""
    return {
        column: resolve_special_tokens(look, special_tokens)
        for column, look in styles.items()
        if table[column].notna().any()
    }


def _widest(table: pd.DataFrame, *panels: Styles) -> str:
    """Say how far the intervals of the heads reach, at most; of a single article there are none."""
    widths = [table[f"{name}_high"] - table[f"{name}_low"] for own in panels for name in own]
    reach = pd.concat(widths).max() / 2
    return f"95% intervals over articles: ±{reach:.1g} at most for a head.  " if reach > 0 else ""


def _left_out(table: pd.DataFrame) -> str:
    """Say which special tokens have no values."""
    first = "first special token ([CLS] in BERT)"
    names = {"cls": first, "entropy_from_cls": first, "sep": "separator ([SEP] in BERT)"}
    missing = [names[own] for own in table.columns[table.isna().all()] if own in names]
    return f"Left out: this model has no {' and no '.join(missing)}." if missing else ""


@theme()
def fig6_clusters(table: pd.DataFrame, special_tokens: SpecialTokens, *, model: str = "") -> Figure:
    """Draw Figure 6 (section 6): heads in the plane, by behaviour and by layer.

    ``table`` is head_positions.csv.  A behaviour that is not one of `BEHAVIOUR_STYLES` is what the
    head finds (a relation, or coreference) and gives it a star with a label.
    """
    stars = ~table["behaviour"].isin(style.BEHAVIOUR_STYLES)
    kept = f"Jensen-Shannon distances, kept with a stress of {table['stress'].iloc[0]:.2f}"
    figure = canvas(4.8, "Figure 6 · Attention heads in two dimensions", join_nonempty(model, kept))
    left, right = figure.subplots(1, 2)
    for name, look in (*style.BEHAVIOUR_STYLES.items(), (None, LINGUISTIC)):
        rows = table[stars if name is None else table["behaviour"] == name]
        if len(rows):
            label = f"{resolve_special_tokens(look, special_tokens).label} ({len(rows)})"
            size, above = (90, 3) if look is LINGUISTIC else (34, 2)
            left.scatter(
                rows["x"], rows["y"], s=size, color=look.color, marker=look.marker, label=label,
                edgecolors="white", linewidths=0.5, zorder=above,
            )  # fmt: skip
    figure.legend(loc="outside lower left", ncols=4, handletextpad=0.2, columnspacing=1.2)
    layers = int(table["layer"].max())
    dots = right.scatter(
        table["x"], table["y"], s=34, c=table["layer"], cmap=colormaps["viridis"].resampled(layers),
        vmin=0.5, vmax=layers + 0.5, edgecolors="white", linewidths=0.5,
    )  # fmt: skip
    bar = {"ticks": style.counting_ticks(layers), "shrink": 0.8, "aspect": 28}
    figure.colorbar(dots, ax=right, label="Layer", **bar)
    for axes in (left, right):  # one scale for both directions: only distances mean something
        axes.set(xlabel="First MDS dimension (nats)", ylabel="Second MDS dimension (nats)")
        axes.set_box_aspect(1)
        axes.set_aspect("equal", adjustable="datalim")
    left.set_title("by behaviour")
    right.set_title("by layer")
    labels = [f"{row.behaviour} {row.layer}-{row.head}" for row in table[stars].itertuples()]
    label_points(left, table[["x", "y"]].to_numpy(float), np.flatnonzero(stars), labels)
    return figure


@theme()
def relative_position(table: pd.DataFrame, *, model: str = "", lens: str = "attention") -> Figure:
    """Draw section 3.1, relative_position.csv: attention to the previous, current, next token."""
    columns = ("previous", "current", "next")
    return style.heat_maps(
        {f"to the {column} token": by_head(table, column) for column in columns},
        f"Section 3.1 · {style.WEIGHT_NAMES[lens].capitalize()} by relative position",
        model,
        f"Average {style.WEIGHT_NAMES[lens]}\n(fraction)",
        Normalize(0, 1),
        columns=3,
    )
