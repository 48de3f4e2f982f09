"""Figure 12: the cues in warrants, and what models get right of a part of an argument."""

from __future__ import annotations

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from helpers.plots.labels import label_points
from helpers.plots.style import ACCENT, INK, Style, canvas, joined, theme
from helpers.studies.argument_cues.cues import ALL, CHANCE, HALVES, NOT
from helpers.studies.argument_cues.partial_inputs import MIRRORED, ORIGINAL, SWAPPED, TRAINING

TOP, ROW = 2.6, 0.4  # inches: the upper panel, and a row of the lower ones
LABELLED = 7  # cues with a name, those of the largest gain
KINDS = {"unigram": "#2F4B7C", "bigram": "#B08900"}
MARKERS = {"unigram": "o", "bigram": "s"}
TRAINED_ON = {
    ORIGINAL: "",
    SWAPPED: ", trained with\nwarrants swapped too",
    MIRRORED: ", trained with\nclaims negated too",
}
TESTS = {
    HALVES[0]: Style("as written", "#2F4B7C", "o"),
    HALVES[1]: Style("claim negated, other warrant right", "#D55E00", "s"),
    HALVES[2]: Style("both together", INK, "."),
}


@theme()
def fig12_cues(cues: pd.DataFrame, choices: pd.DataFrame, *, model: str = "") -> Figure:
    """Draw cues by coverage and productivity, and the accuracy of models on parts of arguments.

    ``cues`` is cues.csv and ``choices`` partial_inputs.csv (percent).  A panel for each model, a
    row for each part of the argument that it is shown.
    """
    names = list(choices["model"].unique())
    found = dict.fromkeys(zip(choices["inputs"], choices["train"], strict=True))
    rows = sorted(found, key=lambda row: TRAINING.index(row[1]))
    note = "a planted cue: nothing of the paper's to compare with"
    if "paper_mean" in choices:
        note = "crimson diamonds: the paper's means, on ARCT"
    title = "Figure 12 · Cues in warrants, and models that follow them"
    what = joined(model, "dashed: chance; means, with 95% intervals over arguments", note)
    figure = canvas(TOP + ROW * len(rows) + 1.5, title, what)
    grid = figure.add_gridspec(2, len(names), height_ratios=[TOP, ROW * len(rows)])
    panels = [figure.add_subplot(grid[1, column]) for column in range(len(names))]
    for axes, name in zip(panels, names, strict=True):
        _choices(axes, choices[choices["model"] == name], rows)
        axes.set_title(name.replace(" encoder", "\nencoder"))
        axes.set_yticks(range(len(rows)), [])
        axes.set_xlabel("Right warrant (%)")
    panels[0].set_yticks(range(len(rows)), [inputs + TRAINED_ON[train] for inputs, train in rows])
    handles = panels[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower left", ncols=len(TESTS))
    _cues(figure.add_subplot(grid[0, :]), cues)
    return figure


def _cues(axes: Axes, cues: pd.DataFrame) -> None:
    """Draw each cue of the originals, and where ``not`` goes when the counterparts are added."""
    own = cues[(cues["split"] == ALL) & (cues["half"] == HALVES[0])].reset_index(drop=True)
    sns.scatterplot(
        own, x="coverage", y="productivity", hue="kind", style="kind", s=36, alpha=0.75,
        palette=KINDS, markers=MARKERS, ax=axes,
    )  # fmt: skip
    if "paper_coverage" in own:  # elsewhere the cue is planted
        axes.plot(
            "paper_coverage", "paper_productivity", "D", data=own[own["cue"] == NOT], color=ACCENT,
            markersize=7, markeredgecolor="white", zorder=4, label=f"“{NOT}” in the paper",
        )  # fmt: skip
    _mirrored(axes, cues)
    axes.axhline(CHANCE, color=INK, dashes=(4, 3), linewidth=1)
    axes.set(
        xscale="log", xlim=(0.8 * min(own["coverage"], default=1.0), 100), ylim=(-4, 104),
        xlabel="Coverage: arguments where the cue is in one warrant only (%, log scale)",
        ylabel="Productivity:\nthat warrant is right (%)",
    )  # fmt: skip
    axes.minorticks_off()
    axes.set_xticks([tick for tick in (1, 2, 3, 5, 10, 20, 50, 100) if tick >= axes.get_xlim()[0]])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.legend(loc="lower right")
    points = own[["coverage", "productivity"]].to_numpy(float)
    named = own["gain"].nlargest(LABELLED).index.tolist()
    label_points(axes, points, named, own.loc[named, "cue"].tolist())


def _mirrored(axes: Axes, cues: pd.DataFrame) -> None:
    """Draw an arrow to where ``not`` goes when the counterparts are added, if there are any."""
    rows = cues[(cues["split"] == ALL) & (cues["cue"] == NOT)].set_index("half")
    points = rows.reindex([HALVES[0], HALVES[2]])[["coverage", "productivity"]].to_numpy()
    if np.isnan(points).any():
        return
    start, end = points
    color = TESTS[HALVES[1]].color
    axes.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": color})
    axes.annotate(
        "with the\ncounterparts", end, xytext=(0, -4), textcoords="offset points", ha="center",
        va="top", fontsize=8, color=color,
    )  # fmt: skip


def _choices(axes: Axes, table: pd.DataFrame, rows: list[tuple[str, str]]) -> None:
    """Draw a model's mean accuracy with its interval, a row for each part that it is shown."""
    shift = dict(zip(TESTS, (-0.2, 0.2, 0.0), strict=True))
    for test, style in TESTS.items():
        own = table[table["test"] == test].set_index(["inputs", "train"]).reindex(rows)
        y = np.arange(len(rows)) + shift[test]
        errors = np.clip([own["mean"] - own["ci_low"], own["ci_high"] - own["mean"]], 0, None)
        axes.errorbar(
            own["mean"], y, xerr=errors, fmt=style.marker, color=style.color, markersize=5,
            markeredgewidth=0, elinewidth=1.1, label=style.label,
        )  # fmt: skip
        if "paper_mean" in own and test != HALVES[1]:
            axes.plot(
                own["paper_mean"], y - 0.18, "D", color=ACCENT, markersize=4.5,
                markeredgecolor="white", zorder=4,
            )  # fmt: skip
    axes.axvline(CHANCE, color=INK, dashes=(4, 3), linewidth=1, zorder=0)
    axes.set(xlim=(15, 90), xticks=[25, 50, 75], ylim=(len(rows) - 0.5, -0.5))
    axes.tick_params(axis="y", length=0)
