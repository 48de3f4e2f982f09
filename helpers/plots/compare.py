"""The figure of several runs: attention by relative depth, best heads, claims that hold."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from helpers.plots import style
from helpers.plots.style import Style, Styles, by_style, canvas, theme

ROW = 0.24  # inches for one relation
LINE = 112  # characters in the width of the page
MOST_RELATIONS = 16  # as many as the paper has, where a treebank has none of the paper's
# Not those of the token types or the paper, and told apart with colour blindness (tested).
COLORS = ("#2F4B7C", "#E08E0B", "#7FB3B0", "#B79AD9", "#111111", "#F4C95D")
PAPER, OFFSET = Style("the paper", style.ACCENT, "D"), Style("best fixed offset", style.MUTED, "|")
MARKERS = ("o", "s", "^", "v", "P", "X", "<")
SECTIONS = {
    "3.1": "relative position", "3.2": "special tokens", "3.3": "entropy", "4.2": "syntax",
    "4.3": "coreference", "5": "probes", "6": "clusters",
}  # fmt: skip
LAYER_PANELS = {
    "entropy": ("Entropy", "Share of uniform attention's"),
    "sep": ("To the separator", "Average weight (fraction)"),
    "cls": ("To the first token", "Average weight (fraction)"),
}


@theme()
def comparison(
    runs: Mapping[str, Mapping[str, pd.DataFrame]],
    *,
    claims: pd.DataFrame,
    best_heads: pd.DataFrame,
    note: str = "",
) -> Figure:
    """Draw several runs in one figure, by name: of their tables, token_types and entropy.

    ``claims`` and ``best_heads`` are what `run.compare` writes; ``note`` says what else differs
    between the runs.
    """
    looks = zip(runs, itertools.cycle(COLORS), itertools.cycle(MARKERS), strict=False)
    styles = {name: Style(name, color, marker) for name, color, marker in looks}
    known = best_heads[best_heads["paper accuracy"].notna()]
    best_heads = known if len(known) else best_heads.head(MOST_RELATIONS)
    handles = _handles(styles)
    columns = max(1, LINE // (7 + max(len(handle.get_label()) for handle in handles)))
    rows_below = max(len(best_heads), claims["section"].nunique() + 2)
    heights = [0.25 * -(-len(handles) // columns), 2.6, ROW * rows_below + 0.8]
    subtitle = "curves: mean of a layer's heads; bars: 95% intervals; boxes: claims of the paper"
    figure = canvas(sum(heights), "Runs compared", subtitle, note)
    figure.get_layout_engine().set(h_pad=0.08)
    rows = figure.add_gridspec(3, 1, height_ratios=heights)
    key = figure.add_subplot(rows[0])
    key.set_axis_off()
    key.legend(handles=handles, loc="upper left", ncols=columns, borderpad=0, borderaxespad=0)
    above = rows[1].subgridspec(1, len(LAYER_PANELS)).subplots()
    for axes, (quantity, (title, unit)) in zip(above, LAYER_PANELS.items(), strict=True):
        curves = {name: relative_curve(tables, quantity) for name, tables in runs.items()}
        sns.lineplot(
            pd.concat(curves, names=["run", "depth"]).rename("value").reset_index(), x="depth",
            y="value", **by_style("run", styles), dashes=False, legend=False, ax=axes,
        )  # fmt: skip
        axes.set(title=title, ylabel=unit, xlabel="Layer, as a share of the depth")
        axes.set(xlim=(0, 1.02), ylim=(0, 1.02))
    below = rows[2].subgridspec(1, 2, width_ratios=[1.75, 1])
    _accuracies(figure.add_subplot(below[0]), best_heads, styles)
    _verdicts(figure.add_subplot(below[1]), claims, styles)
    return figure


def relative_curve(tables: Mapping[str, pd.DataFrame], quantity: str) -> pd.Series:
    """Return a quantity by relative depth (the last layer: 1), without layers that lack it.

    It is a layer's mean: ``entropy`` as a share of that of uniform attention, or the attention to
    ``sep`` or ``cls``.
    """
    table = tables.get("entropy" if quantity == "entropy" else "token_types")
    if table is None:
        return pd.Series(dtype=float)
    values = table[quantity] / (table["uniform"] if quantity == "entropy" else 1)
    by_layer = values.groupby(table["layer"]).mean()
    by_layer.index = by_layer.index / by_layer.index.max()
    return by_layer.dropna()


def _accuracies(axes: Axes, table: pd.DataFrame, styles: Styles) -> None:
    """Draw each relation's best heads with their intervals, the paper's, and fixed offsets."""
    kinds = ["accuracy", *style.BOUNDS, "baseline"]
    columns = [f"{name} {kind}" for name in styles for kind in kinds]
    numbers = table.reindex(columns=["relation", *columns]).melt("relation")
    numbers[["run", "kind"]] = numbers["variable"].str.rsplit(" ", n=1, expand=True)
    how = {
        "x": "value", "y": "relation", "hue": "run", "dodge": 0.5 * (1 - 1 / len(styles)),
        "linestyle": "none", "legend": False, "ax": axes,
    }  # fmt: skip
    sns.pointplot(
        numbers[numbers["kind"] == "baseline"], palette=[OFFSET.color] * len(styles),
        markers=OFFSET.marker, markersize=5, markeredgewidth=1.4, **how,
    )  # fmt: skip
    sns.pointplot(
        numbers[numbers["kind"] != "baseline"], **style.WITH_BOUNDS,
        palette=[look.color for look in styles.values()], err_kws={"linewidth": 1.1},
        markers=[look.marker for look in styles.values()], markersize=5.5, markeredgewidth=0.6,
        markeredgecolor="white", **how,
    )  # fmt: skip
    axes.plot(
        table["paper accuracy"], range(len(table)), PAPER.marker, color=PAPER.color, markersize=5,
        markerfacecolor="none", markeredgewidth=1.2, zorder=2,
    )  # fmt: skip
    axes.set_yticks(range(len(table)), table["relation"], parse_math=False)
    axes.set(title="Best head for each relation", xlabel="Accuracy (%)", ylabel="", xlim=(0, 100))
    axes.tick_params(axis="y", length=0)


def _verdicts(axes: Axes, claims: pd.DataFrame, styles: Styles) -> None:
    """Draw how many claims of each section hold in each run, of those measured there."""
    rows = claims["section"].map(lambda section: f"{section} {SECTIONS[section]}")
    claims = pd.concat([claims.assign(section=rows), claims.assign(section="all")])
    holds = claims.set_index("section")[[f"{name} holds" for name in styles]]
    counted = holds == "yes", holds != "not measured"
    yes, measured = (own.groupby(level=0).sum() for own in counted)
    shades = LinearSegmentedColormap.from_list("share", ["white", style.BAR])
    sns.heatmap(
        yes / measured.where(measured > 0), annot=yes.astype(str) + "/" + measured.astype(str),
        fmt="", cmap=shades, vmin=0, vmax=1, cbar=False, linewidths=1.5,
        annot_kws={"fontsize": 9, "color": style.INK}, ax=axes,
    )  # fmt: skip
    for column, look in enumerate(styles.values()):
        axes.plot(column + 0.5, -0.35, look.marker, color=look.color, markersize=8, clip_on=False)
    axes.axhline(len(yes) - 1, color=style.INK, linewidth=0.8)
    axes.set(title="Claims that hold, of those measured", xlabel="", ylabel="", xticks=[])
    axes.set(ylim=(len(yes), -0.8))
    axes.tick_params(axis="y", length=0)


def _handles(styles: Styles) -> list[Line2D]:
    handles = [
        Line2D([], [], color=look.color, marker=look.marker, markersize=6, label=look.label)
        for look in (*styles.values(), PAPER, OFFSET)
    ]
    for handle in handles[-2:]:
        handle.set(linestyle="", markerfacecolor="none", markeredgewidth=1.3)
    return handles
