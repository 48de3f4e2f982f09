"""Finished runs side by side, for ``compare.ipynb``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from beyond.claims.display import claims_in_words
from beyond.pages.answers import ROLES, sink_edges
from beyond.pages.run_folder import Run, Tables, rows_of
from helpers.metrics.dependency_heads import FUNCTION_MARGIN
from helpers.metrics.reference import UAS_WITHOUT_PUNCTUATION, paper_names, paper_table1
from helpers.plots import style
from helpers.plots.style import SERIES_COLORS, Style, canvas, draw_curve, draw_intervals, theme
from helpers.settings import MODEL_SETTINGS, RESULT_SETTINGS

HEAD = ["relation", "direction", "layer", "head"]
BEST_HEAD = ["head", "accuracy", "accuracy_low", "accuracy_high", "baseline"]
MARKERS = ("o", "s", "^", "v", "P", "X", "<")
MAX_RELATIONS = 16  # as many as the paper has, where a treebank has none of the paper's


def claims_side_by_side(runs: Sequence[Run]) -> pd.DataFrame:
    """Put the claims of several runs (``claims.csv``) side by side.

    Returns
    -------
    DataFrame
        Columns section, claim and paper, and one for each run with its number and verdict.  Claims
        that no run measures are left out.
    """
    columns = {}
    claims = []
    for run in runs:
        table = run.tables.get("claims", pd.DataFrame())
        if len(table):
            words = claims_in_words(table).set_index(table["id"])
            measured = words[words["this model"] != ""]
            columns[run.name] = measured["this model"] + ": " + measured["verdict"]
            claims.append(words[["claim", "paper"]].assign(section=table["section"].to_numpy()))
    if not columns:
        return pd.DataFrame()
    statements = pd.concat(claims)
    statements = statements[~statements.index.duplicated()]
    cells = pd.DataFrame(columns).reindex(statements.index).dropna(how="all").fillna("")
    return statements.loc[cells.index, ["section", "claim", "paper"]].join(cells)


def numbers(runs: Sequence[Run]) -> pd.DataFrame:
    """Collect the numbers by which models are compared; those that no run has are left out.

    Returns
    -------
    DataFrame
        A row for each number of `NUMBERS`, a column for each run.
    """
    columns = {}
    for run in runs:
        columns[run.name] = {
            name: _number(measure, run.tables) for name, measure in NUMBERS.items()
        }
    return pd.DataFrame(columns).dropna(how="all").rename_axis("number").reset_index()


def _number(measure: Callable[[Tables], float], tables: Tables) -> float:
    """Measure a number; missing if the run lacks the table, the row or the column."""
    try:
        return measure(tables)
    except (KeyError, IndexError):
        return np.nan


def special_share(tables: Tables, model: str = "trained") -> float:
    """Compute the mean share of attention that goes to special tokens or to the first one."""
    table = rows_of(tables, "token_types", model)
    special = table[["cls", "sep"]].dropna(axis=1, how="all")
    shares = special if special.shape[1] else table[["first"]]
    return 100 * shares.sum(axis=1, min_count=1).mean()


def entropy_share(tables: Tables) -> float:
    """Compute the mean entropy as a share of that of uniform attention."""
    table = rows_of(tables, "entropy")
    return 100 * (table["entropy"] / table["uniform"]).mean()


def share_of_functions(tables: Tables) -> float:
    """Compute the share of relations for which a head beats the best offset clearly on dev."""
    margins = rows_of(tables, "dependency_heads_held_out")["margin"]
    return 100 * (margins >= FUNCTION_MARGIN).mean()


def uas(probe: str) -> Callable[[Tables], float]:
    """Make a function that looks up the attachment score of a probe."""

    def look_up(tables: Tables) -> float:
        scores = rows_of(tables, "probes")
        scores = scores[scores["metric"].isin([UAS_WITHOUT_PUNCTUATION, "UUAS"])]
        return scores.set_index("probe")["value"][probe]

    return look_up


def coreference(system: str) -> Callable[[Tables], float]:
    """Make a function that looks up the accuracy of a system for all mentions."""

    def look_up(tables: Tables) -> float:
        scores = rows_of(tables, "coreference")
        return scores[scores["type"] == "all"].set_index("system")["accuracy"][[system]].iloc[0]

    return look_up


def sink_angle(change: str) -> Callable[[Tables], float]:
    """Make the function that reads how far a change of the sink turns the sentence vector."""
    return lambda tables: sink_edges(tables).loc["sentence angle", change]


NUMBERS: dict[str, Callable[[Tables], float]] = {
    "attention to special tokens (%)": special_share,
    "the same, random weights (%)": lambda tables: special_share(tables, "random"),
    "largest share of a head for the previous token (%)": lambda tables: (
        100 * rows_of(tables, "relative_position")["previous"].max()
    ),
    "entropy, share of that of uniform attention (%)": entropy_share,
    "relations with a head clearly better than a fixed distance (%)": share_of_functions,
    "coreference: best head (%)": coreference("head"),
    "coreference: same head word (%)": coreference("head match"),
    "UAS: attention and word vectors": uas("Attn + GloVe"),
    "UAS: the same, random weights": uas("Random-init Attn + GloVe"),
    "UAS: attention alone": uas("Attn"),
    "UUAS: structural probe": uas("Structural probe"),
    "sentence vector without the sink (degrees)": sink_angle("dropped"),
    "sentence vector, sink redistributed (degrees)": sink_angle("redistributed"),
    "sentence vector, sink constant (degrees)": sink_angle("constant"),
}


def best_heads(runs: Sequence[Run]) -> pd.DataFrame:
    """Collect the best head of each run for each relation that the paper or two runs have.

    Returns
    -------
    DataFrame
        Columns relation (the paper's name, if it has one), paper head, accuracy and baseline, and
        for each run its head, accuracy, interval and baseline.  The paper's relations come first.
    """
    paper = paper_table1()
    tables = {"paper": paper.filter(BEST_HEAD)}
    for run in runs:
        table = rows_of(run.tables, "dependency_heads")
        if len(table):
            relations = table["relation"].replace(paper_names(table["relation"]))
            # Of two relations with one name in the paper, the first stays.
            table = table.set_index(relations)[~relations.duplicated().to_numpy()]
            tables[run.name] = table.reindex(columns=BEST_HEAD)
    wide = pd.concat(tables, axis=1)
    n_runs = wide.xs("head", axis=1, level=1).drop(columns="paper").count(axis=1)
    wide = wide[(n_runs > 1) | ((n_runs > 0) & wide.index.isin(paper.index))]
    wide.columns = [f"{name} {column}" for name, column in wide.columns]
    return wide.rename_axis("relation").reset_index()


def best_heads_in_words(table: pd.DataFrame) -> pd.DataFrame:
    """Write a table of `best_heads` with one column for the paper and each run: "3-1, 73%"."""
    columns = {"relation": table["relation"]}
    for name in [column.removesuffix(" head") for column in table if column.endswith(" head")]:
        accuracy = table[f"{name} accuracy"].map("{:.0f}%".format)
        columns[name] = (table[f"{name} head"] + ", " + accuracy).fillna("")
    return pd.DataFrame(columns)


def across_treebanks(runs: Sequence[Run]) -> pd.DataFrame:
    """Score the head that each run of one model chooses for a relation on the others' treebanks.

    Returns
    -------
    DataFrame
        A row for each universal relation and each run that chooses a head for it on train
        (``run_of_choice``).  The column of a run has that head's margin on its dev sentences over
        its best fixed offset, in percentage points.  The table is empty unless all runs are of one
        model and have the table ``universal_relations``.
    """
    models = {tuple(map(run.settings.get, MODEL_SETTINGS)) for run in runs}
    tables = [rows_of(run.tables, "universal_relations").assign(run=run.name) for run in runs]
    if len(models) > 1 or not all(map(len, tables)):
        return pd.DataFrame()
    scores = pd.concat(tables)
    best = scores.sort_values("train_accuracy").drop_duplicates(["run", "relation"], keep="last")
    pairs = best.merge(scores, on=HEAD, suffixes=("_of_choice", ""))
    wide = pairs.pivot(index=[*HEAD, "run_of_choice"], columns="run", values="margin")
    return wide.reset_index()


def different_settings(runs: Sequence[Run]) -> list[str]:
    """List the settings, except those of the model, in which runs differ."""
    recorded = pd.DataFrame([run.settings for run in runs]).astype(str)
    names = recorded.columns[recorded.nunique() > 1]
    return [name for name in names if name in RESULT_SETTINGS and name not in MODEL_SETTINGS]


@theme()
def draw_comparison(runs: Sequence[Run]) -> Figure:
    """Draw the attention of several runs by depth, and their best heads.

    Parameters
    ----------
    runs : sequence of Run
        The runs, of which at least one has the table ``dependency_heads``.

    Returns
    -------
    matplotlib.figure.Figure
    """
    table = best_heads(runs)
    in_paper = table[table["paper accuracy"].notna()]
    table = in_paper if len(in_paper) else table.head(MAX_RELATIONS)
    names = [run.name for run in runs]
    styles = list(map(Style, names, cycle(SERIES_COLORS), cycle(MARKERS)))
    accuracies = table.reindex(columns=[f"{name} accuracy" for name in names])
    wins = accuracies.dropna(how="all").idxmax(axis=1).value_counts()
    parts = [f"{name} for {wins.get(f'{name} accuracy', 0)}" for name in names]
    title = f"The most accurate head for {len(accuracies)} relations: {', '.join(parts)}"
    figure = canvas(3.2 + 0.2 * len(table), title, "curves: layers; bars: 95% intervals")
    rows = figure.add_gridspec(2, 1, height_ratios=[1.8, 1.0 + 0.2 * len(table)])
    entropy, special = rows[0].subgridspec(1, 2).subplots(squeeze=False)[0]
    for run, run_style in zip(runs, styles, strict=True):
        _draw_layers(entropy, rows_of(run.tables, "entropy"), ["entropy"], run_style)
        _draw_layers(special, rows_of(run.tables, "token_types"), list(ROLES), run_style)
    entropy.set(title="Entropy", ylabel="Share of uniform entropy", ylim=(0, 1.05))
    special.set(title="To one special token or the first", ylabel="Average weight", ylim=(0, None))
    for axes in (entropy, special):
        axes.set(xlabel="Layer, as a share of the depth", xlim=(0, 1.02))
    _draw_best_heads(figure.add_subplot(rows[1]), table, styles)
    return figure


def _draw_layers(axes: Axes, table: pd.DataFrame, columns: list[str], run_style: Style) -> None:
    """Draw the mean of a layer's heads, of several columns the largest, by relative depth."""
    if table.empty:
        return
    by_layer = table.set_index("layer").filter(columns).groupby("layer").mean().max(axis=1)
    if "uniform" in table:
        by_layer /= table.groupby("layer")["uniform"].mean()
    depth = by_layer.index / by_layer.index.max()
    curve = pd.DataFrame({"depth": depth, "mean": by_layer.to_numpy()})
    draw_curve(axes, curve, "depth", "mean", run_style)


def _draw_best_heads(axes: Axes, table: pd.DataFrame, styles: Sequence[Style]) -> None:
    """Draw each relation's best heads with their intervals, the paper's, and fixed offsets."""
    for slot, (name, color, marker) in enumerate(styles):
        y = np.arange(len(table)) + 0.5 * ((slot + 0.5) / len(styles) - 0.5)
        cells = table.reindex(columns=[f"{name} {column}" for column in BEST_HEAD[1:]])
        accuracy, low, high, baseline = cells.to_numpy(float).T
        offsets = "best fixed offset" if slot == 0 else None  # once in the legend
        axes.plot(baseline, y, "|", color=style.MUTED, zorder=1, label=offsets)
        draw_intervals(axes, low, high, y, color=color, elinewidth=1.1)
        options: dict[str, Any] = {"color": color, "marker": marker, "linestyle": ""}
        axes.plot(accuracy, y, label=name, **options)
    axes.plot(
        table["paper accuracy"],
        range(len(table)),
        marker="D",
        linestyle="",
        color=style.ACCENT,
        markerfacecolor="none",
        label="the paper",
    )
    axes.set_yticks(range(len(table)), table["relation"])
    axes.set(title="Best head for each relation", xlabel="Accuracy (%)", xlim=(0, 100))
    axes.set_ylim(len(table) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.legend(loc="upper left", bbox_to_anchor=(0, 0), borderaxespad=3.5, ncols=2)
