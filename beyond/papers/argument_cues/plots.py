"""Figure 12: the cues in warrants, and the accuracy of models on parts of an argument."""

from __future__ import annotations

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from beyond.papers.argument_cues.cues import (
    ADVERSARIAL,
    ALL_SPLITS,
    AS_WRITTEN,
    CHANCE,
    NOT,
)
from beyond.papers.argument_cues.partial_inputs import ORIGINAL
from helpers.plots import style
from helpers.plots.style import ACCENT, INK, canvas, label_points, legend_below, panel_grid, theme

N_LABELLED = 4  # cues that are named, those of the largest gain
# Neither the colour nor the marker of the paper's values; the last is that of random weights.
MODEL_STYLES = (
    (style.SERIES_COLORS[0], "o"),
    (style.SERIES_COLORS[1], "s"),
    (style.SERIES_COLORS[3], "^"),
    (style.CONTROL_STYLES["random"].color, "v"),
)
CUE_COLORS = {"unigram": "#555555", "bigram": "#00796B"}  # no model has these colours
CUE_MARKERS = {"unigram": "o", "bigram": "s"}
CHANCE_POINTS = 200  # of the dashed line, so that labels of cues avoid it
COVERAGE_TICKS = (1, 2, 5, 10, 20, 50, 100)
MARGIN = 2  # percentage points beyond the longest error bar
TEST_TITLES = {AS_WRITTEN: "as written", ADVERSARIAL: "claim negated, other warrant right"}
ALL_INPUTS = "all"  # of `INPUTS`: claim, reason and warrants
PAPER = "the paper"


@theme()
def fig12_cues(cues: pd.DataFrame, choices: pd.DataFrame, *, model: str) -> Figure:
    """Draw cues by coverage and productivity, and the accuracy of models on parts of arguments.

    Parameters
    ----------
    cues : DataFrame
        The table cues.csv.
    choices : DataFrame
        The table partial_inputs.csv without its controls.  A panel is a set of test arguments, a
        row is an input, and a colour is a classifier that was trained on arguments as written.
    model : str, optional
        Name of the model, for the subtitle.

    Returns
    -------
    Figure
        Figure 12.  The paper's values are diamonds, unless the cue is planted.  The title has the
        accuracies of the model that is best on the whole arguments as written.
    """
    table = choices[(choices["train"] == ORIGINAL) & choices["test"].isin(TEST_TITLES)]
    figure = canvas(
        4.9,
        _accuracy_title(table),
        model,
        "means with 95% intervals over arguments",
        "dashed: chance",
    )
    above, *below = panel_grid(figure, 3, 1)
    for axes, (test, panel_title) in zip(below, TEST_TITLES.items(), strict=True):
        _draw_accuracies(axes, table[table["test"] == test])
        axes.set(title=panel_title, xlabel="Right warrant (%)")
    legend_below(figure, columns=2)
    _draw_cues(above, cues)
    return figure


def _accuracy_title(table: pd.DataFrame) -> str:
    """Write the title: the model with the most right warrants as written, in both test sets."""
    means = table[table["inputs"] == ALL_INPUTS].pivot(
        index="classifier", columns="test", values="mean"
    )
    best = means.loc[means[AS_WRITTEN].idxmax()]
    return (
        f"Figure 12 · {best.name[0].upper()}{best.name[1:]}: {best[AS_WRITTEN]:.0f}% of warrants "
        f"right as written, {best[ADVERSARIAL]:.0f}% if the claim is negated"
    )


def _draw_cues(axes: Axes, cues: pd.DataFrame) -> None:
    """Draw each cue of the originals by coverage and productivity, and name some of them.

    ``not`` is drawn again as it is in the test split, on which models are tested.
    """
    as_written = cues[cues["half"] == AS_WRITTEN]
    originals = as_written[as_written["split"] == ALL_SPLITS].reset_index(drop=True)
    sns.scatterplot(
        originals, x="coverage", y="productivity", hue="kind", style="kind", alpha=0.75,
        s=12, palette=CUE_COLORS, markers=CUE_MARKERS, ax=axes,
    )  # fmt: skip
    not_by_split = as_written[as_written["cue"] == NOT].set_index("split")
    test_row = not_by_split.loc["test"]
    in_test = f"“{NOT}” in the test split"
    axes.plot("coverage", "productivity", "P", data=test_row, color=INK, label=in_test)
    if "paper_coverage" in originals:  # absent if the cue is planted
        axes.plot(
            "paper_coverage", "paper_productivity", "D", data=not_by_split.loc[ALL_SPLITS],
            color=ACCENT, markerfacecolor="none", markeredgewidth=1, zorder=4,
            label=f"“{NOT}” in the paper",
        )  # fmt: skip
    lowest_coverage = 0.8 * originals["coverage"].min()  # on the axis, with a margin
    x = np.geomspace(lowest_coverage, 100, CHANCE_POINTS)
    axes.plot(x, np.full_like(x, CHANCE), color=INK, **style.DASHED)
    drawn_lines = [line.get_xydata() for line in axes.lines]
    points = np.vstack([originals[["coverage", "productivity"]], *drawn_lines])
    axes.set_xscale("log")
    axes.set_xticks(COVERAGE_TICKS, [str(tick) for tick in COVERAGE_TICKS])
    axes.set(
        xlim=(lowest_coverage, 100), ylim=(-4, 104),
        xlabel="Coverage: cue in one warrant only (%, log scale)",
        ylabel="Productivity:\nthat warrant is right (%)",
    )  # fmt: skip
    axes.minorticks_off()
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
    labelled = originals["gain"].nlargest(N_LABELLED).index.tolist()
    label_points(axes, points, labelled, originals.loc[labelled, "cue"].tolist())


def _draw_accuracies(axes: Axes, table: pd.DataFrame) -> None:
    """Draw mean accuracies with their intervals; rows are inputs and colours are models."""
    inputs = table["inputs"].unique().tolist()
    by_classifier = table.groupby("classifier", sort=False)
    offsets = np.linspace(-0.3, 0.3, len(by_classifier))
    for (name, rows), offset, (color, marker) in zip(
        by_classifier, offsets, MODEL_STYLES, strict=False
    ):
        mean = rows["mean"]
        y = rows["inputs"].map(inputs.index) + offset
        axes.errorbar(
            mean, y, xerr=[mean - rows["mean_low"], rows["mean_high"] - mean], fmt=marker,
            color=color, markersize=3, markeredgewidth=0, elinewidth=1.1, label=name,
        )  # fmt: skip
        if rows.get("paper_mean", pd.Series()).notna().any():
            axes.plot(  # the mean below it is seen
                rows["paper_mean"], y, "D", color=ACCENT, markerfacecolor="none",
                markeredgewidth=1, markersize=3.5, zorder=4, label=PAPER,
            )  # fmt: skip
    axes.axvline(CHANCE, color=INK, **style.DASHED)
    axes.set_yticks(range(len(inputs)), inputs)
    axes.set_ylim(len(inputs) - 0.5, -0.5)
    low = min(CHANCE, table["mean_low"].min())
    high = max(CHANCE, table["mean_high"].max())
    axes.set_xlim(low - MARGIN, high + MARGIN)
