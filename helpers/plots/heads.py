"""The figures by head and layer: tables in, matplotlib figures out.

A table has the columns that a run leaves in ``tables/``; layers and heads count from 1.  A
figure comes complete: title, axes with units, legend.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, Normalize
from matplotlib.figure import Figure

from helpers.analysis.heads import by_head
from helpers.analysis.surface import layer_intervals
from helpers.plots.labels import label_points
from helpers.plots.style import (
    BEHAVIOUR_STYLES,
    INK,
    LINGUISTIC,
    TOKEN_STYLES,
    SpecialTokens,
    Style,
    canvas,
    counting_ticks,
    heat_maps,
    joined,
    theme,
)


@theme()
def fig2_token_types(
    table: pd.DataFrame,
    special_tokens: SpecialTokens,
    articles: pd.DataFrame | None = None,
    *,
    model: str = "",
) -> Figure:
    """Draw Figure 2 (section 3.2): attention to special tokens and punctuation, by layer.

    ``table`` is token_types.csv: layer, head, cls, sep, punctuation, sep_to_sep, other_to_sep
    (fractions).  Every head is a point, the mean of a layer's heads a line, its 95% interval
    over ``articles`` (averages_by_article.csv) a band.  A column without values (a model without
    that token) is left out, and a footnote says so.
    """
    names = _token_names(special_tokens)
    kinds = ("cls", "sep", "punctuation")
    shown = {kind: (TOKEN_STYLES[kind], f"to {TOKEN_STYLES[kind].label}") for kind in kinds} | {
        "sep_to_sep": (TOKEN_STYLES["sep"], "from {sep} to {sep}"),
        "other_to_sep": (TOKEN_STYLES["other"], "from other tokens to {sep}"),
    }
    bands = _bands(articles, tuple(shown))
    panels = [_present(table, kinds), _present(table, ("sep_to_sep", "other_to_sep"))]
    panels = panels if panels[1] else panels[:1]
    figure = canvas(
        6.2 if len(panels) > 1 else 3.4,
        "Figure 2 · Attention to special tokens and punctuation",
        joined(model, "a point is a head, a line the mean of the layer", _band_note(bands)),
        _left_out(table, {"cls": "cls", "sep": "sep"}),
    )
    rows = figure.subplots(len(panels), squeeze=False, sharex=True)[:, 0]
    for axes, columns in zip(rows, panels, strict=True):
        for index, column in enumerate(columns):
            style, label = shown[column]
            slot = (index, len(columns))
            _heads_by_layer(
                axes, table, column, style, label.format(**names), slot=slot, bands=bands
            )
        axes.set(ylabel="Average attention (fraction)", ylim=(-0.02, 1.02))
        _legend_above(axes)
    _layer_axis(rows[-1], table)
    return figure


@theme()
def fig3_gradients(
    table: pd.DataFrame, special_tokens: SpecialTokens, *, model: str = ""
) -> Figure:
    """Draw Figure 3 (section 3.2): how much the objective changes with the attention.

    ``table`` is gradients.csv: layer, sep, cls, punctuation, other (mean absolute gradient of
    the objective, per unit of attention), their intervals, which are bands, and objective, which
    the figure names.
    """
    names = _token_names(special_tokens)
    objective = " / ".join(table["objective"].astype(str).unique())
    bands = table if "other_low" in table and table["other_low"].notna().any() else None
    figure = canvas(
        3.6,
        "Figure 3 · Gradient-based importance of attention",
        joined(
            model,
            f"objective L: {objective}",
            "" if bands is None else "a band is a 95% interval over articles",
        ),
        _left_out(table, {"cls": "cls", "sep": "sep"}),
    )
    axes = figure.subplots()
    for kind in _present(table, tuple(TOKEN_STYLES)):
        style = TOKEN_STYLES[kind]
        label = f"to {style.label.format(**names)}"
        axes.plot(
            table["layer"], table[kind], color=style.color, marker=style.marker, label=label,
            clip_on=False, zorder=3,
        )  # fmt: skip
        _band(axes, bands, kind, style)
    axes.set_ylim(bottom=0)
    power = int(np.floor(np.log10(axes.get_ylim()[1])))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value / 10.0**power:.3g}")
    unit = "loss" if power == 0 else f"$10^{{{power}}}$ of loss"
    axes.set_ylabel(f"Mean |∂L/∂A|\n({unit} per unit of attention)")
    _legend_above(axes)
    _layer_axis(axes, table)
    return figure


@theme()
def fig4_entropy(
    table: pd.DataFrame,
    special_tokens: SpecialTokens,
    articles: pd.DataFrame | None = None,
    *,
    model: str = "",
) -> Figure:
    """Draw Figure 4 (section 3.3): entropy of each head's attention, by layer.

    ``table`` is entropy.csv: layer, head, entropy, entropy_from_cls, uniform (nats).  The
    lower panel has the attention of the [CLS] position alone, where the model has one.  Bands
    are as in Figure 2.
    """
    bands = _bands(articles, ("entropy", "entropy_from_cls"))
    names = _token_names(special_tokens)
    panels = _present(table, ("entropy", "entropy_from_cls"))
    styles = {
        "entropy": (TOKEN_STYLES["other"], "from all tokens"),
        "entropy_from_cls": (TOKEN_STYLES["cls"], "from {cls} only"),
    }
    figure = canvas(
        2.9 * len(panels),
        "Figure 4 · Entropy of attention distributions",
        joined(model, "a point is a head, a line the mean of the layer", _band_note(bands)),
        _left_out(table, {"cls": "entropy_from_cls"}),
    )
    rows = figure.subplots(len(panels), squeeze=False, sharex=True, sharey=True)[:, 0]
    for axes, column in zip(rows, panels, strict=True):
        style, label = styles[column]
        _heads_by_layer(axes, table, column, style, label.format(**names), bands=bands)
        uniform = table["uniform"].mean()
        axes.axhline(uniform, color=INK, dashes=(4, 3), linewidth=1.2, label="uniform attention")
        axes.set(
            ylabel="Entropy (nats)", ylim=(-0.1, 1.06 * max(uniform, table[panels].max().max()))
        )
        _legend_above(axes)
    _layer_axis(rows[-1], table)
    return figure


def _heads_by_layer(
    axes: Axes,
    table: pd.DataFrame,
    column: str,
    style: Style,
    label: str,
    *,
    slot: tuple[int, int] = (0, 1),
    bands: pd.DataFrame | None = None,
) -> None:
    """Draw each head as a point, each layer's mean as a line, and its interval as a band.

    Points of one layer are spread over the part ``slot`` = (index, count) of the space around
    it, in the order of the heads, so that they neither hide each other nor move between runs.
    """
    index, count = slot
    heads = table["head"].max()
    within = (table["head"] - 0.5) / heads - 0.5
    x = table["layer"] + 0.64 * ((index + 0.5 + 0.7 * within) / count - 0.5)
    axes.scatter(
        x, table[column], s=13, color=style.color, marker=style.marker, alpha=0.5, linewidths=0
    )
    mean = table.groupby("layer")[column].mean()
    axes.plot(
        mean.index, mean, color=style.color, marker=style.marker, markersize=6, label=label,
        markeredgecolor="white", markeredgewidth=0.8,
    )  # fmt: skip
    _band(axes, bands, column, style)


def _band(axes: Axes, bands: pd.DataFrame | None, column: str, style: Style) -> None:
    """Draw the intervals of a column, where there are any."""
    if bands is not None and f"{column}_low" in bands:
        low, high = bands[f"{column}_low"], bands[f"{column}_high"]
        axes.fill_between(bands["layer"], low, high, color=style.color, alpha=0.3, linewidth=0)


def _bands(articles: pd.DataFrame | None, columns: Sequence[str]) -> pd.DataFrame | None:
    """Return the intervals of the layers' means; None without articles."""
    if articles is None:
        return None
    return layer_intervals(articles, [name for name in columns if name in articles])


def _band_note(bands: pd.DataFrame | None) -> str:
    return "" if bands is None else "a band its 95% interval over articles"


def _layer_axis(axes: Axes, table: pd.DataFrame) -> None:
    layers = int(table["layer"].max())
    axes.set(xlabel="Layer", xlim=(0.4, layers + 0.6), xticks=counting_ticks(layers))


def _legend_above(axes: Axes) -> None:
    axes.legend(
        loc="lower left", bbox_to_anchor=(0, 1), ncols=4, borderaxespad=0.2, borderpad=0,
        columnspacing=1.6, handletextpad=0.5,
    )  # fmt: skip


def _token_names(special_tokens: SpecialTokens) -> dict[str, str]:
    roles = {"cls": "first token", "sep": "separator"}
    return {role: special_tokens.get(role) or name for role, name in roles.items()}


def _present(table: pd.DataFrame, columns: Sequence[str]) -> list[str]:
    return [column for column in columns if table[column].notna().any()]


def _left_out(table: pd.DataFrame, roles: Mapping[str, str]) -> str:
    """Say which special tokens have no values; ``roles`` names the column of each."""
    names = {"cls": "first special token ([CLS] in BERT)", "sep": "separator ([SEP] in BERT)"}
    missing = [names[role] for role, column in roles.items() if table[column].isna().all()]
    return f"Left out: this model has no {' and no '.join(missing)}." if missing else ""


@theme()
def fig6_clusters(table: pd.DataFrame, special_tokens: SpecialTokens, *, model: str = "") -> Figure:
    """Draw Figure 6 (section 6): heads in the plane, by behaviour and by layer.

    ``table`` is head_positions.csv: layer, head, x, y (nats, as the distances of heads) and
    behaviour.  A behaviour that is not one of `BEHAVIOUR_STYLES` is what the head finds (a
    relation, or coreference) and gives it a star with a label.
    """
    names = _token_names(special_tokens)
    stars = ~table["behaviour"].isin(BEHAVIOUR_STYLES)
    figure = canvas(
        4.8,
        "Figure 6 · Attention heads in two dimensions",
        joined(model, "distances of points approximate those of the heads (Jensen-Shannon)"),
    )
    left, right = figure.subplots(1, 2)
    for name, style in (*BEHAVIOUR_STYLES.items(), (None, LINGUISTIC)):
        rows = table[stars if name is None else table["behaviour"] == name]
        if len(rows):
            label = f"{style.label.format(**names)} ({len(rows)})"
            size = 90 if style is LINGUISTIC else 34
            left.scatter(
                rows["x"], rows["y"], s=size, color=style.color, marker=style.marker, label=label,
                edgecolors="white", linewidths=0.5, zorder=3 if style is LINGUISTIC else 2,
            )  # fmt: skip
    figure.legend(loc="outside lower left", ncols=4, handletextpad=0.2, columnspacing=1.2)
    _color_by_layer(right, table)
    _square_limits((left, right), table)
    left.set_title("by behaviour")
    right.set_title("by layer")
    label_points(
        left,
        table[["x", "y"]].to_numpy(float),
        np.flatnonzero(stars),
        [f"{row.behaviour} {row.layer}-{row.head}" for row in table[stars].itertuples()],
    )
    return figure


def _color_by_layer(axes: Axes, table: pd.DataFrame) -> None:
    layers = int(table["layer"].max())
    norm = BoundaryNorm(np.arange(layers + 1) + 0.5, 256)
    axes.scatter(
        table["x"], table["y"], s=34, c=table["layer"], cmap="viridis", norm=norm,
        edgecolors="white", linewidths=0.5,
    )  # fmt: skip
    bar = axes.figure.colorbar(
        ScalarMappable(norm, "viridis"), ax=axes, label="Layer", shrink=0.8, aspect=28,
    )  # fmt: skip
    bar.set_ticks(counting_ticks(layers))
    bar.minorticks_off()


def _square_limits(panels: Sequence[Axes], table: pd.DataFrame) -> None:
    """Give both axes of all panels the same scale, because only distances mean something."""
    points = table[["x", "y"]]
    middle = (points.max() + points.min()) / 2
    half = 0.54 * max((points.max() - points.min()).max(), 1e-9)
    for axes in panels:
        axes.set_box_aspect(1)
        axes.set(
            xlim=(middle["x"] - half, middle["x"] + half),
            ylim=(middle["y"] - half, middle["y"] + half),
            xlabel="First MDS dimension (nats)",
            ylabel="Second MDS dimension (nats)",
        )


@theme()
def relative_position(table: pd.DataFrame, *, model: str = "") -> Figure:
    """Draw section 3.1: each head's attention to the previous, current and next token.

    ``table`` is relative_position.csv: layer, head, previous, current, next (fractions).
    """
    columns = ("previous", "current", "next")
    return heat_maps(
        {f"to the {column} token": by_head(table, column) for column in columns},
        "Section 3.1 · Attention by relative position",
        model,
        "Average attention (fraction)",
        Normalize(0, 1),
        columns=3,
    )
