"""Finished runs side by side: ``python -m helpers compare``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from helpers.analysis.measures import clark_claims
from helpers.analysis.paper import check_claims, paper_names, paper_table1, verdicts
from helpers.errors import InputError
from helpers.paths import build_dir, figures_dir
from helpers.plots.compare import comparison
from helpers.plots.style import save_figure
from helpers.run.report import write_report
from helpers.settings import IDENTITY, MATERIAL, flag, folder_name
from helpers.sources import run_record
from helpers.study import Study, read_tables, write_table

LONGEST_NAME = 200  # bytes: file systems allow 255
OF_BEST = ("head", "accuracy", "ci_low", "ci_high", "baseline")
HEAD = ["layer", "head"]
SHARES = ["cls", "sep", "punctuation"]
OF_EACH = ["relation", "accuracy", "margin", "ci_low", "ci_high", "coreference"]
ATLAS = ("model", *HEAD, "behaviour", *SHARES, "entropy", *OF_EACH, "importance")

Tables = Mapping[str, pd.DataFrame]


@dataclass(frozen=True)
class Run:
    """A finished run: its name, its tables by name, and the settings in its ``run.json``."""

    name: str
    tables: Tables
    settings: Mapping[str, Any]


def open_run(given: str) -> Run:
    """Read a finished run: a folder of ``figures/``, a path to one, or the model that ran.

    InputError where there is no such run, or a table of it cannot be read.
    """
    candidates = [Path(given).expanduser(), figures_dir(given), Study(model=given).results]
    folder = next((path for path in candidates if any(path.glob("tables/*.csv"))), None)
    if folder is None:
        there = sorted({path.parts[-3] for path in figures_dir("").glob("*/tables/*.csv")})
        raise InputError(
            f"{given}: no finished run of that name in {figures_dir('').name}/; there are "
            f"{', '.join(there) or 'none'}; 'python -m helpers run' makes one"
        )
    folder = folder.resolve()
    return Run(folder.name, read_tables(folder), run_record(folder).get("settings", {}))


def open_runs(given: Sequence[str]) -> list[Run]:
    """Read the runs to compare; none given: the default and its control with random weights.

    InputError for fewer than two, two of one name, or see `open_run`.
    """
    default = [Study(random_init=seed).slug for seed in (None, 0)]
    runs = [open_run(name) for name in given or default]
    if len(runs) < 2:
        raise InputError(f"compare {given[0]}: compare takes two or more runs")
    names = [run.name for run in runs]
    if twice := [name for name in names if names.count(name) > 1]:
        raise InputError(f"compare: two runs are called {twice[0]}; run one with another --name")
    return runs


def compare(runs: Sequence[Run]) -> tuple[pd.DataFrame, list[str], list[Path]]:
    """Write the tables, the figure and the report of some runs.

    Returned are `claims_side_by_side`; `claims_that_hold` and `differences`, a line each; the
    folder of tables and figure, and the report.
    """
    tables_of = {run.name: run.tables for run in runs}
    name = folder_name("-vs-".join(tables_of), LONGEST_NAME)
    folder = figures_dir("compare") / name
    claims, best = claims_side_by_side(runs), best_heads(runs)
    tables = {"claims": claims, "best_heads": best, "spread": spread(claims)}
    tables |= {"atlas": atlas(tables_of)}
    full = {path.stem for path in folder.glob("*.csv") if path.read_bytes().count(b"\n") > 1}
    kept = [name for name, rows in tables.items() if rows.empty and name in full]
    for table in tables.keys() - kept:
        write_table(tables[table], folder, table)
    different = differences(runs)
    notes = [f"{run}: {said}" for run, said in claims_that_hold(claims).items()]
    notes += [f"{own} differs: {runs}" for own, runs in different.items()]
    if kept:
        files = ", ".join(f"{table}.csv" for table in kept)
        notes.append(
            f"{files}, compare.png: left as they are, these runs have no rows for them now"
        )
    else:
        flags = ", ".join(different)
        note = f"These runs also differ in {flags}." if flags else ""
        figure = comparison(tables_of, claims=claims, best_heads=best, note=note)
        save_figure(figure, folder, "compare")
    facts = {"model": {"name": " and ".join(tables_of)}, "notes": notes}
    return claims, notes, [folder, write_report(facts, folder, folder, build_dir("compare") / name)]


def claims_side_by_side(runs: Sequence[Run]) -> pd.DataFrame:
    """Return section, claim, paper; and for each run its number and both verdicts.

    These are in the columns ``<name>``, ``<name> holds`` and ``<name> learned``.
    """
    columns = {}
    for run in runs:
        table = check_claims(run.tables, clark_claims())
        columns |= {"section": table["section"], "claim": table["claim"]}
        columns |= {"paper": table["paper_value"], run.name: table["here"]}
        columns |= {f"{run.name} {verdict}": table[verdict] for verdict in ("holds", "learned")}
    return pd.DataFrame(columns)


def claims_that_hold(claims: pd.DataFrame) -> dict[str, str]:
    """Return in words how many claims hold in each run, and how many of those were learned."""
    names = claims.filter(regex=" holds$").columns.str.removesuffix(" holds")
    return {name: verdicts(claims[f"{name} holds"], claims[f"{name} learned"]) for name in names}


def spread(claims: pd.DataFrame) -> pd.DataFrame:
    """Return how far the runs agree on each claim, from `claims_side_by_side`.

    Columns: section, claim, paper; ``runs`` that could measure it, ``mean``, ``sd``, ``least`` and
    ``most`` of what they measured; ``verdicts``, how many runs came to each.
    """
    names = [column.removesuffix(" holds") for column in claims if column.endswith(" holds")]
    numbers, holds = claims[names], claims[[f"{name} holds" for name in names]]
    return claims[["section", "claim", "paper"]].assign(
        runs=numbers.notna().sum(axis=1),
        mean=numbers.mean(axis=1),
        sd=numbers.std(axis=1),
        least=numbers.min(axis=1),
        most=numbers.max(axis=1),
        verdicts=[
            ", ".join(f"{count} {verdict}" for verdict, count in row.value_counts().items())
            for _, row in holds.iterrows()
        ],
    )


def best_heads(runs: Sequence[Run]) -> pd.DataFrame:
    """Return the best head of each run for each relation that the paper or two runs have.

    Columns: relation (the paper's name, if it has one), paper head, accuracy and baseline, and for
    each run its head, accuracy, interval and baseline.  The paper's relations come first.
    """
    paper, found = paper_table1(), {}
    for run in runs:
        if "dependency_heads" in run.tables:
            table = run.tables["dependency_heads"]
            known = paper_names(table["relation"])
            own = table["relation"].map(lambda name, known=known: known.get(name, name))
            found[run.name] = table.set_index(own)[~own.duplicated().to_numpy()]
    names = [name for table in found.values() for name in table.index]
    order = [name for name in paper.index if name in names]
    order += [n for n in dict.fromkeys(names) if n not in paper.index and names.count(n) > 1]
    parts = {"paper": paper[["head", "accuracy", "baseline"]]}
    parts |= {name: table.reindex(columns=OF_BEST) for name, table in found.items()}
    wide = pd.concat({name: part.reindex(order) for name, part in parts.items()}, axis=1)
    wide.columns = [f"{name} {column}" for name, column in wide.columns]
    return wide.rename_axis("relation").reset_index()


def atlas(runs: Mapping[str, Tables]) -> pd.DataFrame:
    """Return atlas.csv: one row a head of each run, with the columns `ATLAS`.

    ``relation`` is what the head does best on train; ``accuracy``, ``margin`` over the best fixed
    offset and its interval are those on dev, ``coreference`` is its accuracy on all mentions (other
    mentions as candidates), ``importance`` the mean over tasks.  What a run lacks is empty.
    """
    parts = [_heads(tables).assign(model=name) for name, tables in runs.items()]
    return pd.concat(parts).reindex(columns=ATLAS).reset_index(drop=True)


def differences(runs: Sequence[Run]) -> dict[str, str]:
    """Return the flags of the settings, but the model's, in which runs differ, with the values."""
    found = {}
    for setting in MATERIAL:
        if setting in (*IDENTITY, "revision"):
            continue
        values = {run.name: run.settings.get(setting) for run in runs if run.settings}
        if len(set(values.values())) > 1:
            found[flag(setting)] = ", ".join(
                f"{'default' if value in ('', None) else value} in {name}"
                for name, value in values.items()
            )
    return found


def _heads(tables: Tables) -> pd.DataFrame:
    table = pd.DataFrame(columns=HEAD, dtype=int)
    for name, columns in (
        ("head_positions", ["behaviour"]),
        ("token_types", SHARES),
        ("entropy", ["entropy"]),
        ("each_head", OF_EACH),
        ("importance", ["importance"]),
    ):
        if name in tables:
            own = tables[name].filter([*HEAD, *columns])
            if name == "importance":  # a row for each task
                own = own.groupby(HEAD, as_index=False).mean()
            table = table.merge(own, on=HEAD, how="outer")
    return table.sort_values(HEAD)
