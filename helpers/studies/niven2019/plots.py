"""Figure 12: the cues in warrants, and the accuracy of models on parts of an argument."""

from __future__ import annotations

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from helpers.plots.labels import label_points
from helpers.plots.style import ACCENT, INK, LINES, canvas, join_nonempty, theme
from helpers.studies.niven2019.cues import (
    ADVERSARIAL,
    ALL_SPLITS,
    AS_WRITTEN,
    BOTH,
    CHANCE,
    NOT,
)
from helpers.studies.niven2019.partial_inputs import (
    EVERYTHING,
    NEGATED,
    ORIGINAL,
    SWAPPED,
    TRAINING_SETS,
)

CUES_HEIGHT = 2.6  # inches
ROW_HEIGHT = 0.5  # inches, of a row of the lower panels
N_LABELLED = 7  # cues that are named, those of the largest gain
CUE_COLORS = {"unigram": "#2F4B7C", "bigram": "#B08900"}
CUE_MARKERS = {"unigram": "o", "bigram": "s"}
COVERAGE_TICKS = (1, 2, 3, 5, 10, 20, 50, 100)
TRAINING_LABELS = {
    ORIGINAL: "",
    SWAPPED: ", trained with\nwarrants swapped too",
    NEGATED: ", trained with\nclaims negated too",
}
TEST_TITLES = {
    AS_WRITTEN: "as written",
    ADVERSARIAL: "claim negated,\nother warrant right",
    BOTH: "both together",
}


@theme()
def fig12_cues(cues: pd.DataFrame, choices: pd.DataFrame, *, model: str = "") -> Figure:
    """Draw cues by coverage and productivity, and the accuracy of models on parts of arguments.

    Parameters
    ----------
    cues : DataFrame
        The table cues.csv.
    choices : DataFrame
        The table partial_inputs.csv.  A panel is a set of test arguments, a row is an input and a
        training set, a colour is a model.  "Both together" has the rows with everything shown: a
        model that is not shown the claim is right on half of them by construction.
    model : str, optional
        Name of the model, for the subtitle.

    Returns
    -------
    Figure
        Figure 12.  The paper's values are diamonds, unless the cue is planted.
    """
    is_shown = (choices["test"] != BOTH) | (choices["inputs"] == EVERYTHING)
    accuracies = choices[is_shown]
    accuracies = accuracies.assign(
        label=accuracies["inputs"] + accuracies["train"].map(TRAINING_LABELS)
    )
    training_number = accuracies["train"].map(TRAINING_SETS.index)
    labels = accuracies["label"].loc[training_number.sort_values(kind="stable").index].unique()
    note = "a planted cue: nothing of the paper's to compare with"
    if "paper_mean" in choices:
        note = "crimson diamonds: the paper's means, on ARCT"
    note = join_nonempty(model, "dashed: chance; means, with 95% intervals over arguments", note)
    rows_height = ROW_HEIGHT * len(labels)
    title = "Figure 12 · Cues in warrants, and models that follow them"
    figure = canvas(CUES_HEIGHT + rows_height + 1.8, title, note)
    grid = figure.add_gridspec(2, len(TEST_TITLES), height_ratios=[CUES_HEIGHT, rows_height])
    accuracies = accuracies.assign(row=pd.Index(labels).get_indexer(accuracies["label"]))
    for column, (test, title) in enumerate(TEST_TITLES.items()):
        axes = figure.add_subplot(grid[1, column])
        _draw_accuracies(axes, accuracies[accuracies["test"] == test])
        axes.set(title=title, xlabel="Right warrant (%)", ylim=(len(labels) - 0.5, -0.5))
        axes.set_yticks(range(len(labels)), [] if column else labels)
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower left", ncols=3)
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
    of_not = as_written[as_written["cue"] == NOT]
    in_test = of_not[of_not["split"] == "test"]
    axes.plot(
        "coverage", "productivity", "P", data=in_test, color=INK, label=f"“{NOT}” in the test split"
    )
    if "paper_coverage" in originals:  # absent if the cue is planted
        axes.plot(
            "paper_coverage", "paper_productivity", "D",
            data=of_not[of_not["split"] == ALL_SPLITS], color=ACCENT, markersize=7,
            markeredgecolor="white", zorder=4, label=f"“{NOT}” in the paper",
        )  # fmt: skip
    axes.axhline(CHANCE, color=INK, dashes=(4, 3), linewidth=1)
    lowest_coverage = 0.8 * min(originals["coverage"], default=1.0)
    axes.set_xscale("log")
    axes.set_xticks(COVERAGE_TICKS, COVERAGE_TICKS)
    axes.set(
        xlim=(lowest_coverage, 100), ylim=(-4, 104),
        xlabel="Coverage: arguments where the cue is in one warrant only (%, log scale)",
        ylabel="Productivity:\nthat warrant is right (%)",
    )  # fmt: skip
    axes.minorticks_off()
    axes.legend(loc="lower right")
    points = originals[["coverage", "productivity"]].to_numpy(float)
    labelled = originals["gain"].nlargest(N_LABELLED).index.tolist()
    label_points(axes, points, labelled, originals.loc[labelled, "cue"].tolist())


def _draw_accuracies(axes: Axes, table: pd.DataFrame) -> None:
    """Draw mean accuracies with their intervals, in the rows that the column ``row`` numbers."""
    by_model = table.groupby("model", sort=False)
    offsets = np.linspace(-0.3, 0.3, len(by_model))
    for (name, rows), offset, (color, marker) in zip(by_model, offsets, LINES, strict=False):
        mean = rows["mean"]
        y = rows["row"] + offset
        errors = np.clip([mean - rows["mean_low"], rows["mean_high"] - mean], 0, None)
        axes.errorbar(
            mean, y, xerr=errors, fmt=marker, color=color, markersize=4.5, markeredgewidth=0,
            elinewidth=1.1, label=name,
        )  # fmt: skip
        if "paper_mean" in rows:
            axes.plot(
                rows["paper_mean"], y, "D", color=ACCENT, markersize=4, markeredgecolor="white",
                zorder=4,
            )  # fmt: skip
    axes.axvline(CHANCE, color=INK, dashes=(4, 3), linewidth=1, zorder=0)
    axes.set(xlim=(15, 90), xticks=[25, 50, 75])
    axes.tick_params(axis="y", length=0)
