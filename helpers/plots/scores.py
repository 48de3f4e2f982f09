"""The figures of sections 4 and 5: what single heads and probes score, beside the paper."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import fill

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from helpers.analysis.heads import DIRECTIONS, Direction, by_head, head_label
from helpers.analysis.paper import COMPARED
from helpers.plots import style
from helpers.plots.style import (
    Style,
    by_style,
    canvas,
    empty_figure,
    heat_maps,
    join_nonempty,
    theme,
)

ROW = 0.3  # inches for one bar
INTERVAL = ["value", "value_low", "value_high"]
CHARACTER = 6  # percent of a narrow panel that a character of a head's name takes
# Where the paper's probes differ from those here, whatever the model and the treebank.
INTERVALS = "bars: here, with 95% intervals; diamonds: the paper"
PAPER_PROBES = "paper: GloVe of 100 dimensions, no weights of ROOT's own"
ARROWS = dict(zip(DIRECTIONS, ("d → h", "h → d"), strict=True))


@theme()
def coreference_scores(table: pd.DataFrame, *, model: str = "") -> Figure:
    """Draw Table 2 (section 4.3): antecedents found, by system and type of mention.

    ``table`` is coreference.csv.  A panel for each type, a bar for each system and its candidates,
    with the head in it, or behind its interval where the bar is short.
    """
    systems = table["system"].str.replace(" (chosen on train, scored on dev)", ", held out")
    table = table.assign(name=systems + "\namong " + table["candidates"])
    table = table.rename(columns=lambda name: name.replace("accuracy", "value"))
    names = table["name"].unique()
    types = dict(iter(table.groupby("type", sort=False)))
    title = "Table 2 · Finding the antecedents of mentions"
    held_out = "held out: chosen on train, scored on dev (the smaller n)"
    figure = canvas(ROW * len(names) + 1.2, title, join_nonempty(model, INTERVALS, held_out))
    panels = figure.subplots(1, len(types), squeeze=False, sharey=True)[0]
    for axes, (kind, rows) in zip(panels, types.items(), strict=True):
        bars = rows.set_index("name").reindex(names).reset_index()
        _bars(axes, bars)
        for place, bar in bars.dropna(subset="head").iterrows():
            covered = bar["value_low"] < 2 + CHARACTER * len(bar["head"])
            x = bar["value_high"] + 3 if covered else 2
            axes.text(x, place, bar["head"], va="center", fontsize=8)
        counts = (f"{count:,.0f}" for count in rows["n"].dropna().unique())
        axes.set_title(f"{fill(kind, 15)}\nn = {' / '.join(counts)}")
        axes.set_xlabel("Accuracy (%)")
    return figure


@theme()
def probe_scores(table: pd.DataFrame, *, model: str = "", lens: str = "attention") -> Figure:
    """Draw Table 3 (section 5): attachment scores of the probes without punctuation.

    ``table`` is probes.csv.  The metric of a probe stands after its name where there are several.
    """
    table = table[table["metric"].isin(COMPARED)]
    metrics = table["metric"].unique()
    several = " (" + table["metric"] + ")" if len(metrics) > 1 else ""
    title = f"Table 3 · Dependency parsing from {style.WEIGHT_NAMES[lens]}"
    figure = canvas(ROW * len(table) + 0.9, title, join_nonempty(model, INTERVALS, PAPER_PROBES))
    axes = figure.subplots()
    _bars(axes, table.assign(name=table["probe"] + several))
    axes.set_xlabel(f"{' or '.join(metrics)} (%)")
    return figure


@theme()
def learning_curves(table: pd.DataFrame, *, model: str = "") -> Figure:
    """Draw how the probes of section 5 improve with more training sentences.

    ``table`` has probe, metric, n_train, value (percent), and its bounds, which are drawn
    as bands.  Punctuation is left out.
    """
    table = table[table["metric"].isin(COMPARED)]
    what = join_nonempty(model, "bands: 95% intervals; the axis does not start at 0")
    figure = canvas(3.6, "Section 5 · Learning curves of the probes", what)
    axes = figure.subplots()
    looks = zip(table["probe"].unique(), style.LINES, strict=False)
    styles = {probe: Style(probe, *look) for probe, look in looks}
    sns.lineplot(
        table.melt(["probe", "n_train"], INTERVAL, value_name="percent"),
        x="n_train", y="percent", **by_style("probe", styles), **style.MEDIAN_AND_RANGE,
        dashes=False, ax=axes,
    )  # fmt: skip
    sizes = np.sort(table["n_train"].unique())
    if sizes[0] > 0:
        axes.set_xscale("log")
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axes.minorticks_off()
    axes.set(xlabel="Training sentences", ylabel=f"{table['metric'].iloc[0]} (%)")
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


@theme()
def relation_heatmaps(
    accuracies: Mapping[tuple[str, Direction], style.HeadValues], *, model: str = ""
) -> Figure:
    """Draw section 4.2: how well each head finds each relation, the best head framed.

    ``accuracies`` holds a map (percent) for each relation and the direction that it is read in.
    """
    title = "Section 4.2 · Accuracy of single heads by relation"
    if not accuracies:
        return empty_figure(
            title, model, "a relation that the paper has, too, and that is frequent"
        )
    best = {key: np.unravel_index(np.nanargmax(v), v.shape) for key, v in accuracies.items()}
    names = {
        key: f"{key[0]}\n{head_label(*best[key])}: {values[best[key]]:.0f}%, {ARROWS[key[1]]}"
        for key, values in accuracies.items()
    }
    figure = heat_maps(
        {names[key]: values for key, values in accuracies.items()},
        title,
        join_nonempty(model, "framed: the best head; d → h: the dependent attends to its head"),
        "Accuracy (%)",
        Normalize(0, 100),
        columns=min((4, 5, 3), key=lambda columns: -len(accuracies) % columns),
    )
    for axes, (layer, head) in zip(figure.axes, best.values(), strict=False):
        box = {"fill": False, "edgecolor": style.ACCENT, "linewidth": 1.8, "clip_on": False}
        axes.add_patch(Rectangle((head + 0.5, layer + 0.5), 1, 1, **box))
    return figure


@theme()
def probe_head_gains(table: pd.DataFrame, *, model: str = "", lens: str = "attention") -> Figure:
    """Draw section 5: what each head adds to the score of the right word in the Attn probe.

    ``table`` is probe_heads.csv.  A weight alone says little: it is large too for a head that gives
    words next to no attention.
    """
    columns = {"head attends to word": "w_gain", "word attends to head": "u_gain"}
    largest = float(table[list(columns.values())].abs().max(axis=None))
    return heat_maps(
        {name: by_head(table, column) for name, column in columns.items()},
        "Section 5 · What each head adds in the attention-only probe",
        join_nonempty(
            model, f"its weight times how much more {style.WEIGHT_NAMES[lens]} the right word gets"
        ),
        "Gain in score (log-odds)",
        Normalize(-largest, largest),
        columns=2,
        cmap=style.DIVERGING,
    )


def _bars(axes: Axes, rows: pd.DataFrame) -> None:
    """Draw one bar a row under its name, its interval, its number and the paper's."""
    sns.barplot(
        rows.melt("name", INTERVAL, value_name="percent"), x="percent", y="name",
        **style.MEDIAN_AND_RANGE, color=style.BAR, saturation=1, width=0.68, capsize=0.25,
        err_kws={"color": style.INK, "linewidth": 1.2}, ax=axes,
    )  # fmt: skip
    y = np.arange(len(rows))
    diamonds = {"color": style.ACCENT, "markersize": 6, "markeredgecolor": "white", "zorder": 4}
    axes.plot(rows["paper_value"], y, "D", **diamonds)
    for place, value in zip(y, rows["value"], strict=True):
        if np.isfinite(value):
            axes.text(101.5, place, f"{value:.1f}", va="center", fontsize=8.5)
    axes.set(xlim=(0, 100), ylabel="")
    axes.xaxis.grid(True, color="#E4E4E4", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0, labelsize=9)
