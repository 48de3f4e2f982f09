"""Finished runs side by side: ``python -m helpers compare``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from beyond.atlas_plot import atlas as draw_atlas
from beyond.claims.clark2019 import CLAIMS
from beyond.claims.engine import check_claims, count_verdicts
from beyond.pages.compare_plot import comparison
from beyond.pages.publish import copy_results
from beyond.pages.report import write_report
from beyond.papers.claims import LATER_CLAIMS
from helpers.errors import InputError
from helpers.files import build_dir, figures_dir, json_digest, write_atomic
from helpers.metrics.atlas import COLUMNS, HEAD, head_atlas
from helpers.metrics.reference import paper_names, paper_table1
from helpers.model.encoder import BUILT_IN
from helpers.plots.style import save_figure
from helpers.results import (
    MIXED,
    RECORD,
    read_tables,
    remove_contents,
    run_name,
    run_record,
    write_table,
)
from helpers.settings import MODEL_SETTINGS, RESULT_SETTINGS, Settings, flag

MAX_NAME_LENGTH = 100  # characters: a longer name of a comparison ends with a digest
BEST_HEAD_COLUMNS = ["head", "accuracy", "accuracy_low", "accuracy_high", "baseline"]
DRAWN_TABLES = {"token_types", "entropy", "dependency_heads"}  # in the figures of a comparison
UNIVERSAL_RELATIONS = "universal_relations"  # the table of a treebank of Universal Dependencies

Tables = Mapping[str, pd.DataFrame]


@dataclass(frozen=True)
class Run:
    """A finished run: its name and folder, its tables by name, and settings in ``run.json``."""

    name: str
    tables: Tables
    settings: Mapping[str, Any]
    special_tokens: Mapping[str, str | None] = field(default_factory=dict)
    folder: Path = Path()


def open_run(name_or_path: str) -> Run:
    """Read a finished run.

    Parameters
    ----------
    name_or_path : str
        A folder of ``build/``, else of ``figures/``, a path to one, or the model that ran.  A
        folder in ``build/`` that also has results of other code is left out.

    Raises
    ------
    InputError
        If there is no such run, or a table of it cannot be read.
    """
    path = str(Path(name_or_path).resolve())
    names = (path, name_or_path, run_name(Settings(model=name_or_path)))
    # An absolute path stays as it is.
    for folder in [parent(name) for name in names for parent in (build_dir, figures_dir)]:
        record = run_record(folder)
        tables = {} if MIXED in record else read_tables(folder)
        if tables:
            special_tokens = record.get("special_tokens", {})
            return Run(folder.name, tables, record.get("settings", {}), special_tokens, folder)
    raise InputError(
        f"{name_or_path}: no finished run of that name in {build_dir('')} or {figures_dir('')}; "
        "'python -m helpers run' makes one"
    )


def open_runs(names: Sequence[str]) -> list[Run]:
    """Read the runs to compare; without names, those of the built-in models.

    Raises
    ------
    InputError
        If there are fewer than two, if two have the same name, or see `open_run`.
    """
    runs = [open_run(name) for name in names or BUILT_IN]
    if len({run.name for run in runs}) < max(len(runs), 2):
        raise InputError(
            f"compare {' '.join(names)}: expected two or more runs with different names"
        )
    return runs


def compare(
    runs: Sequence[Run], *, copy_to: Path | None = None
) -> tuple[pd.DataFrame, list[str], Path]:
    """Write the tables, the figure and the report of several runs to ``build/compare/``.

    Parameters
    ----------
    runs : sequence of Run
        The runs.
    copy_to : Path, optional
        A second folder for the tables and the figure: ``figures/compare`` for those that are
        committed.

    Returns
    -------
    claims : pandas.DataFrame
        See `claims_side_by_side`.
    notes : list of str
        A line for each run's verdicts, and one with the settings in which the runs differ
        (`different_settings`), if there are any.
    report : Path
        The report, in the folder of the tables and the figure.
    """
    tables_of = {run.name: run.tables for run in runs}
    folder = build_dir("compare") / comparison_name(list(tables_of))
    remove_contents(folder)
    claims = claims_side_by_side(runs)
    best = best_heads(runs)
    heads_of_runs = atlas(runs)
    tables = {
        "claims": claims,
        "best_heads": best,
        "atlas": heads_of_runs,
        "across_treebanks": across_treebanks(runs),
    }
    tables = {table_name: table for table_name, table in tables.items() if len(table)}
    for table_name, table in tables.items():
        write_table(table, folder / "tables", table_name)
    notes = []
    for run in runs:
        counts = count_verdicts(
            claims[f"{run.name} verdict"], claims[f"{run.name} due_to_training"]
        )
        notes.append(f"{run.name}: {counts}")
    settings = ", ".join(different_settings(runs))
    note = f"These runs also differ in {settings}." if settings else ""
    part = "Runs side by side"
    figures = {}
    if any(map(is_drawn, runs)):
        figures["compare"] = {"notebook": part, "caption": ""}
        save_figure(comparison(tables_of, best_heads=best, note=note), folder, "compare")
    for number, (name, heads) in enumerate(heads_of_runs.groupby("model", sort=False), 1):
        save_figure(draw_atlas(heads, model=name), folder, f"atlas_{number}")
        figures[f"atlas_{number}"] = {"notebook": part, "caption": f"What the heads of {name} do."}
    if note:
        notes.append(note)
    record = {
        "model": {"name": " and ".join(tables_of)},
        "notes": notes,
        "tables": dict.fromkeys(tables, part),
        "figures": figures,
    }
    write_atomic(folder / RECORD, json.dumps(record, indent=1).encode())
    report = write_report(folder)
    if copy_to:
        copy_results(folder, copy_to / folder.name)
    return claims, notes, report


def comparison_name(names: Sequence[str]) -> str:
    """Make the name of a comparison's folder from those of its runs."""
    name = "-vs-".join(names)
    if len(name) <= MAX_NAME_LENGTH:
        return name
    return f"{name[:MAX_NAME_LENGTH]}-{json_digest(names)[:6]}"


def claims_side_by_side(runs: Sequence[Run]) -> pd.DataFrame:
    """Check the claims of the paper and of later ones in each run.

    Claims for which no run has a number are left out.

    Returns
    -------
    pandas.DataFrame
        Columns id, section, claim, paper; for each run its number in ``<name>`` and its verdicts in
        ``<name> verdict`` and ``<name> due_to_training``.
    """
    claims = pd.DataFrame()
    for run in runs:
        table = check_claims(run.tables, [*CLAIMS, *LATER_CLAIMS])
        claims[["id", "section", "claim", "paper"]] = table[
            ["id", "section", "claim", "paper_value"]
        ]
        columns = [run.name, f"{run.name} verdict", f"{run.name} due_to_training"]
        claims[columns] = table[["value", "verdict", "due_to_training"]]
    has_number = claims[[run.name for run in runs]].notna().any(axis=1)
    return claims[has_number].reset_index(drop=True)


def across_treebanks(runs: Sequence[Run]) -> pd.DataFrame:
    """Score the head that each run of one model chooses for a relation on the others' treebanks.

    Returns
    -------
    pandas.DataFrame
        A row for each universal relation and each run that chooses a head for it on train
        (``run_of_choice``).  The column of a run has that head's margin on its dev sentences over
        its best fixed offset, in percentage points.  The table is empty unless all runs are of one
        model and have the table of `dependency_heads.universal_relations`.
    """
    models = {tuple(map(run.settings.get, MODEL_SETTINGS)) for run in runs}
    if len(models) > 1 or not all(UNIVERSAL_RELATIONS in run.tables for run in runs):
        return pd.DataFrame()
    tables = [run.tables[UNIVERSAL_RELATIONS].assign(run=run.name) for run in runs]
    scores = pd.concat(tables)
    best = scores.sort_values("train_accuracy").drop_duplicates(["run", "relation"], keep="last")
    heads = ["relation", "direction", *HEAD]
    pairs = best.merge(scores, on=heads, suffixes=("_of_choice", ""))
    row_names = [*heads, "run_of_choice"]
    return pairs.pivot(index=row_names, columns="run", values="margin").reset_index()


def best_heads(runs: Sequence[Run]) -> pd.DataFrame:
    """Collect the best head of each run for each relation that the paper or two runs have.

    Returns
    -------
    pandas.DataFrame
        Columns relation (the paper's name, if it has one), paper head, accuracy and baseline, and
        for each run its head, accuracy, interval and baseline.  The paper's relations come first.
    """
    paper = paper_table1()
    tables = {"paper": paper.filter(BEST_HEAD_COLUMNS)}
    for run in runs:
        if "dependency_heads" in run.tables:
            table = run.tables["dependency_heads"]
            relations = table["relation"].replace(paper_names(table["relation"]))
            # Of two relations with one name in the paper, the first stays.
            table = table.set_index(relations)[~relations.duplicated().to_numpy()]
            tables[run.name] = table.reindex(columns=BEST_HEAD_COLUMNS)
    wide = pd.concat(tables, axis=1)
    n_runs = wide.xs("head", axis=1, level=1).drop(columns="paper").count(axis=1)
    wide = wide[(n_runs > 1) | ((n_runs > 0) & wide.index.isin(paper.index))]
    wide.columns = [f"{name} {column}" for name, column in wide.columns]
    return wide.rename_axis("relation").reset_index()


def atlas(runs: Sequence[Run]) -> pd.DataFrame:
    """Put the atlases of several runs (`helpers.metrics.atlas.head_atlas`) below each other.

    The column ``model`` names the run.  Runs of later notebooks alone have none.
    """
    parts = []
    for run in filter(is_drawn, runs):
        heads = head_atlas(run.tables, run.special_tokens)
        parts.append(heads.assign(model=run.name))
    if not parts:
        return pd.DataFrame(columns=["model", *COLUMNS])
    table = pd.concat(parts, ignore_index=True)
    return table[["model", *table.columns.drop("model")]]


def is_drawn(run: Run) -> bool:
    """Tell whether a run has a table that is drawn; one of later notebooks alone has none."""
    return not DRAWN_TABLES.isdisjoint(run.tables)


def different_settings(runs: Sequence[Run]) -> list[str]:
    """List the flags of the settings, except those of the model, in which runs differ."""
    recorded = pd.DataFrame([run.settings for run in runs if run.settings]).astype(str)
    names = recorded.columns[recorded.nunique() > 1]
    return [flag(name) for name in names if name in RESULT_SETTINGS and name not in MODEL_SETTINGS]
