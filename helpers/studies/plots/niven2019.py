"""Figure 12: the cues in warrants, and the accuracy of models on parts of an argument."""

from __future__ import annotations

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from helpers.plots.labels import label_points
from helpers.plots.style import ACCENT, INK, canvas, theme
from helpers.studies.niven2019.cues import (
    ADVERSARIAL,
    ALL_SPLITS,
    AS_WRITTEN,
    CHANCE,
    NOT,
)
from helpers.studies.niven2019.partial_inputs import ORIGINAL

HEIGHT = 4.8  # inches
N_LABELLED = 7  # cues that are named, those of the largest gain
# Neither the colour nor the marker of the paper's values.
MODEL_STYLES = (("#2F4B7C", "o"), ("#D55E00", "s"), ("#B08900", "v"), ("#7A5BA8", "^"))
CUE_COLORS = {"unigram": "#555555", "bigram": "#00796B"}  # no model has these colours
CUE_MARKERS = {"unigram": "o", "bigram": "s"}
CHANCE_POINTS = 200  # of the dashed line, so that labels of cues avoid it
COVERAGE_TICKS = (1, 2, 3, 5, 10, 20, 50, 100)
MARGIN = 2  # percentage points beyond the longest error bar
TEST_TITLES = {AS_WRITTEN: "as written", ADVERSARIAL: "claim negated, other warrant right"}


@theme()
def fig12_cues(cues: pd.DataFrame, choices: pd.DataFrame, *, model: str) -> Figure:
    """Draw cues by coverage and productivity, and the accuracy of models on parts of arguments.

    Parameters
    ----------
    cues : DataFrame
        The table cues.csv.
    choices : DataFrame
        The table partial_inputs.csv.  A panel is a set of test arguments, a row is an input, and a
        colour is a model that was trained on arguments as written.
    model : str, optional
        Name of the model, for the subtitle.

    Returns
    -------
    Figure
        Figure 12.  The paper's values are diamonds, unless the cue is planted.
    """
    by_cue = cues.set_index(["half", "split", "cue"])
    not_row = by_cue.loc[(AS_WRITTEN, ALL_SPLITS, NOT)]
    figure = canvas(
        HEIGHT,
        f"Figure 12 · One warrant has “{NOT}” in {not_row['coverage']:.0f}% of arguments; "
        f"{not_row['productivity']:.0f}% of these are right",
        model,
        "means with 95% intervals over arguments; dashed: chance; crimson diamonds: paper",
    )
    grid = figure.add_gridspec(2, len(TEST_TITLES))
    table = choices[(choices["train"] == ORIGINAL) & choices["test"].isin(TEST_TITLES)]
    limits = (table["mean_low"].min() - MARGIN, table["mean_high"].max() + MARGIN)
    for column, (test, panel_title) in enumerate(TEST_TITLES.items()):
        axes = figure.add_subplot(grid[1, column])
        _draw_accuracies(axes, table[table["test"] == test])
        axes.set(title=panel_title, xlabel="Right warrant (%)", xlim=limits)
    figure.axes[1].set_yticklabels([])  # those of the first panel
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower left", ncols=5)
    _draw_cues(figure.add_subplot(grid[0, :]), cues)
    return figure


def _draw_cues(axes: Axes, cues: pd.DataFrame) -> None:
    """Draw each cue of the originals by coverage and productivity, and name some of them.

    ``not`` is drawn again as it is in the test split, on which models are tested.
    """
    as_written = cues[cues["half"] == AS_WRITTEN]
    originals = as_written[as_written["split"] == ALL_SPLITS].reset_index(drop=True)
    sns.scatterplot(
        originals, x="coverage", y="productivity", hue="kind", style="kind", s=36, alpha=0.75,
        palette=CUE_COLORS, markers=CUE_MARKERS, ax=axes,
    )  # fmt: skip
    not_by_split = as_written[as_written["cue"] == NOT].set_index("split")
    axes.plot(
        "coverage", "productivity", "P", data=not_by_split.loc["test"], color=INK,
        label="“not” in the test split",
    )  # fmt: skip
    if "paper_coverage" in originals:  # absent if the cue is planted
        axes.plot(
            "paper_coverage", "paper_productivity", "D", data=not_by_split.loc[ALL_SPLITS],
            color=ACCENT, markeredgecolor="white", zorder=4, label="“not” in the paper",
        )  # fmt: skip
    lowest_coverage = 0.8 * originals["coverage"].min()  # on the axis, with a margin
    x = np.geomspace(lowest_coverage, 100, CHANCE_POINTS)
    axes.plot(x, np.full_like(x, CHANCE), color=INK, dashes=(4, 3), linewidth=1)
    drawn_lines = [line.get_xydata() for line in axes.lines]
    points = np.vstack([originals[["coverage", "productivity"]], *drawn_lines])
    axes.set_xscale("log")
    axes.set_xticks(COVERAGE_TICKS, [str(tick) for tick in COVERAGE_TICKS])
    axes.set(
        xlim=(lowest_coverage, 100), ylim=(-4, 104),
        xlabel="Coverage: arguments where the cue is in one warrant only (%, log scale)",
        ylabel="Productivity:\nthat warrant is right (%)",
    )  # fmt: skip
    axes.minorticks_off()
    axes.legend(loc="lower right")
    labelled = originals["gain"].nlargest(N_LABELLED).index.tolist()
    label_points(axes, points, labelled, originals.loc[labelled, "cue"].tolist())


def _draw_accuracies(axes: Axes, table: pd.DataFrame) -> None:
    """Draw mean accuracies with their intervals; rows are inputs and colours are models."""
    inputs = table["inputs"].unique().tolist()
    by_model = table.groupby("model", sort=False)
    offsets = np.linspace(-0.3, 0.3, len(by_model))
    for (name, rows), offset, (color, marker) in zip(by_model, offsets, MODEL_STYLES, strict=False):
        mean = rows["mean"]
        y = rows["inputs"].map(inputs.index) + offset
        axes.errorbar(
            mean, y, xerr=[mean - rows["mean_low"], rows["mean_high"] - mean], fmt=marker,
            color=color, markersize=4.5, markeredgewidth=0, elinewidth=1.1, label=name,
        )  # fmt: skip
        if "paper_mean" in rows:
            axes.plot(rows["paper_mean"], y, "D", color=ACCENT, markersize=4, zorder=4)
    axes.axvline(CHANCE, color=INK, dashes=(4, 3), linewidth=1, zorder=0)
    axes.set_yticks(range(len(inputs)), inputs)
    axes.set_ylim(len(inputs) - 0.5, -0.5)
