"""Figure 12: the cues in warrants, and the accuracy of models on parts of an argument."""

from __future__ import annotations

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from helpers.plots.labels import label_points
from helpers.plots.style import ACCENT, INK, Style, canvas, join_nonempty, theme
from helpers.studies.niven2019.cues import (
    ADVERSARIAL,
    ALL_SPLITS,
    AS_WRITTEN,
    BOTH,
    CHANCE,
    NOT,
)
from helpers.studies.niven2019.partial_inputs import (
    MIRRORED,
    ORIGINAL,
    SWAPPED,
    TRAINING_SETS,
)

CUES_HEIGHT = 2.6  # inches
ROW_HEIGHT = 0.4  # inches, of a row of the lower panels
N_LABELLED = 7  # cues that are named, those of the largest gain
CUE_COLORS = {"unigram": "#2F4B7C", "bigram": "#B08900"}
CUE_MARKERS = {"unigram": "o", "bigram": "s"}
COVERAGE_TICKS = (1, 2, 3, 5, 10, 20, 50, 100)
TRAINING_LABELS = {
    ORIGINAL: "",
    SWAPPED: ", trained with\nwarrants swapped too",
    MIRRORED: ", trained with\nclaims negated too",
}
TEST_STYLES = {
    AS_WRITTEN: Style("as written", "#2F4B7C", "o"),
    ADVERSARIAL: Style("claim negated, other warrant right", "#D55E00", "s"),
    BOTH: Style("both together", INK, "."),
}
TEST_OFFSETS = {AS_WRITTEN: -0.2, ADVERSARIAL: 0.2, BOTH: 0.0}  # rows


@theme()
def fig12_cues(cues: pd.DataFrame, choices: pd.DataFrame, *, model: str = "") -> Figure:
    """Draw cues by coverage and productivity, and the accuracy of models on parts of arguments.

    Parameters
    ----------
    cues : DataFrame
        The table cues.csv.
    choices : DataFrame
        The table partial_inputs.csv.  A panel is a model, a row is an input and a training set.
    model : str, optional
        Name of the model, for the subtitle.

    Returns
    -------
    Figure
        Figure 12.  The paper's values are diamonds, unless the cue is planted.
    """
    by_model = choices.groupby("model", sort=False)
    row_keys = dict.fromkeys(zip(choices["inputs"], choices["train"], strict=True))
    rows = sorted(row_keys, key=lambda row: TRAINING_SETS.index(row[1]))
    note = "a planted cue: nothing of the paper's to compare with"
    if "paper_mean" in choices:
        note = "crimson diamonds: the paper's means, on ARCT"
    title = "Figure 12 · Cues in warrants, and models that follow them"
    subtitle = join_nonempty(
        model, "dashed: chance; means, with 95% intervals over arguments", note
    )
    rows_height = ROW_HEIGHT * len(rows)
    figure = canvas(CUES_HEIGHT + rows_height + 1.5, title, subtitle)
    grid = figure.add_gridspec(2, len(by_model), height_ratios=[CUES_HEIGHT, rows_height])
    row_labels = [inputs + TRAINING_LABELS[train] for inputs, train in rows]
    for column, (name, table) in enumerate(by_model):
        axes = figure.add_subplot(grid[1, column])
        _draw_accuracies(axes, table, rows)
        axes.set_title(name.replace(" encoder", "\nencoder"))
        axes.set_yticks(range(len(rows)), [] if column else row_labels)
        axes.set_xlabel("Right warrant (%)")
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower left", ncols=len(TEST_STYLES))
    _draw_cues(figure.add_subplot(grid[0, :]), cues)
    return figure


def _draw_cues(axes: Axes, cues: pd.DataFrame) -> None:
    """Draw each cue of the originals by coverage and productivity, and name some of them."""
    is_original = (cues["split"] == ALL_SPLITS) & (cues["half"] == AS_WRITTEN)
    originals = cues[is_original].reset_index(drop=True)
    sns.scatterplot(
        originals, x="coverage", y="productivity", hue="kind", style="kind", s=36, alpha=0.75,
        palette=CUE_COLORS, markers=CUE_MARKERS, ax=axes,
    )  # fmt: skip
    if "paper_coverage" in originals:  # absent if the cue is planted
        axes.plot(
            "paper_coverage", "paper_productivity", "D", data=originals[originals["cue"] == NOT],
            color=ACCENT, markersize=7, markeredgecolor="white", zorder=4,
            label=f"“{NOT}” in the paper",
        )  # fmt: skip
    _draw_shift_of_not(axes, cues)
    axes.axhline(CHANCE, color=INK, dashes=(4, 3), linewidth=1)
    lowest_coverage = 0.8 * min(originals["coverage"], default=1.0)
    axes.set(
        xscale="log", xlim=(lowest_coverage, 100), ylim=(-4, 104),
        xlabel="Coverage: arguments where the cue is in one warrant only (%, log scale)",
        ylabel="Productivity:\nthat warrant is right (%)",
    )  # fmt: skip
    axes.minorticks_off()
    axes.set_xticks([tick for tick in COVERAGE_TICKS if tick >= axes.get_xlim()[0]])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.legend(loc="lower right")
    points = originals[["coverage", "productivity"]].to_numpy(float)
    labelled = originals["gain"].nlargest(N_LABELLED).index.tolist()
    label_points(axes, points, labelled, originals.loc[labelled, "cue"].tolist())


def _draw_shift_of_not(axes: Axes, cues: pd.DataFrame) -> None:
    """Draw an arrow from ``not`` in the originals to ``not`` with the counterparts, if any."""
    rows = cues[(cues["split"] == ALL_SPLITS) & (cues["cue"] == NOT)].set_index("half")
    points = rows.reindex([AS_WRITTEN, BOTH])[["coverage", "productivity"]].to_numpy()
    if np.isnan(points).any():
        return
    start, end = points
    color = TEST_STYLES[ADVERSARIAL].color
    axes.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": color})
    axes.annotate(
        "with the\ncounterparts", end, xytext=(0, -4), textcoords="offset points", ha="center",
        va="top", fontsize=8, color=color,
    )  # fmt: skip


def _draw_accuracies(axes: Axes, table: pd.DataFrame, rows: list[tuple[str, str]]) -> None:
    """Draw a model's mean accuracy with its interval, one row per input and training set."""
    for test, style in TEST_STYLES.items():
        of_test = table[table["test"] == test].set_index(["inputs", "train"]).reindex(rows)
        mean = of_test["mean"]
        y = np.arange(len(rows)) + TEST_OFFSETS[test]
        errors = np.clip([mean - of_test["mean_low"], of_test["mean_high"] - mean], 0, None)
        axes.errorbar(
            mean, y, xerr=errors, fmt=style.marker, color=style.color, markersize=5,
            markeredgewidth=0, elinewidth=1.1, label=style.label,
        )  # fmt: skip
        if "paper_mean" in of_test and test != ADVERSARIAL:
            axes.plot(
                of_test["paper_mean"], y - 0.18, "D", color=ACCENT, markersize=4.5,
                markeredgecolor="white", zorder=4,
            )  # fmt: skip
    axes.axvline(CHANCE, color=INK, dashes=(4, 3), linewidth=1, zorder=0)
    axes.set(xlim=(15, 90), xticks=[25, 50, 75], ylim=(len(rows) - 0.5, -0.5))
    axes.tick_params(axis="y", length=0)
