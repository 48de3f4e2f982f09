"""Finished runs side by side: ``python -m helpers compare``."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from helpers.analysis.claims import check_claims
from helpers.analysis.claims_clark import clark_claims
from helpers.analysis.paper import paper_table1
from helpers.analysis.relations import paper_names
from helpers.analysis.tables import problem_of, read_tables
from helpers.errors import InputError
from helpers.model import checkpoint
from helpers.paths import build_dir, figures_dir, write_whole
from helpers.plots.compare import comparison
from helpers.plots.style import save_figure
from helpers.run.atlas import atlas, lacking, nearest_heads, spread
from helpers.run.report import write_report
from helpers.settings import NO_NAMES, Settings, flag, folder_name
from helpers.store.extract import store_key
from helpers.store.store import Store
from helpers.study import Study

CONTROL = 0  # seed of the random weights that the default is compared with
# Which notebook writes each table that a claim or the figure needs.
NOTEBOOKS = {
    "relative_position": "01",
    "token_types": "02",
    "gradients": "02",
    "entropy": "03",
    "dependency_heads": "04",
    "dependency_heads_held_out": "04",
    "no_op": "04",
    "coreference": "04",
    "coreference_held_out": "04",
    "probes": "05",
    "probe_differences": "05",
    "head_cohesion": "06",
    "averages_by_article": "06",
}
# Settings that make two runs' numbers differ even for one model.
MATERIAL = [
    setting.name
    for setting in fields(Settings)
    if setting.metadata["material"] and setting.name not in ("model", "revision", "random_init")
]
LONGEST_NAME = 200  # bytes: file systems allow 255
OF_A_HEAD = ("head", "accuracy", "ci_low", "ci_high", "baseline")
MARKS = {
    "yes": "yes", "no": "no", "cannot be told": "?", "no evidence": "(yes)", "not measured": "-",
}  # fmt: skip


@dataclass(frozen=True)
class Run:
    """A finished run: its name, its tables by name, and the settings in its ``run.json``."""

    name: str
    tables: Mapping[str, pd.DataFrame]
    settings: Mapping[str, Any]


def default_runs() -> list[str]:
    """Return the default's run and that of its control with random weights."""
    return [
        checkpoint.slug(checkpoint.DEFAULT),
        checkpoint.slug(checkpoint.DEFAULT, random_seed=CONTROL),
    ]


def open_run(given: str) -> Run:
    """Read a finished run.

    ``given`` is a folder of ``figures/``, a path to such a folder, or the name or path of the
    model that ran.

    Raises:
        InputError: there is no such run, or it lacks tables; the message has the command that
            makes them.
    """
    candidates = [Path(given).expanduser(), figures_dir(given), figures_dir(checkpoint.slug(given))]
    folder = next((path for path in candidates if (path / "tables").is_dir()), None)
    if folder is None:
        raise InputError(
            f"{given}: no finished run of that name in {figures_dir(given).parent.name}/; "
            f"make it with: {_command(_settings_of(given))}"
        )
    folder = folder.resolve()
    tables, settings = read_tables(folder), _read_settings(folder)
    if not set(NOTEBOOKS) & set(tables):
        made_by = settings or _settings_of(folder.name)
        raise InputError(
            f"{folder.name}: the run has no table that a claim is about; "
            f"make them with: {_command(made_by)}"
        )
    for name, table in tables.items():
        if problem := problem_of(name, table):
            raise InputError(f"{folder / 'tables' / name}.csv: {problem}; run its notebook again")
    return Run(folder.name, tables, settings)


def open_runs(given: Sequence[str]) -> list[Run]:
    """Read the runs to compare; none given: the default and its control.

    Raises:
        InputError: fewer than two, one twice, or see `open_run`.
    """
    runs = [open_run(name) for name in given or default_runs()]
    if len(runs) < 2:
        raise InputError(f"compare {given[0]}: compare takes two or more runs")
    names = [run.name for run in runs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise InputError(f"compare: two runs are called {twice}; run one with another --name")
    taken = next((name for name in names if name in NO_NAMES or name.endswith(" holds")), None)
    if taken:
        raise InputError(f"compare: {taken} is a column of the tables; rename the run's folder")
    if not set(NOTEBOOKS).intersection(*(run.tables for run in runs)):
        raise InputError(
            f"compare: no table is in all of {', '.join(names)}; {'; '.join(gaps(runs))}"
        )
    return runs


def gaps(runs: Sequence[Run]) -> list[str]:
    """Return which tables each run lacks for the claims, with the command that makes them."""
    lines = []
    for run in runs:
        if missing := [name for name in NOTEBOOKS if name not in run.tables]:
            only = ",".join(sorted({NOTEBOOKS[name] for name in missing}))
            command = _command(run.settings or _settings_of(run.name), only=only)
            lines.append(f"{run.name} has no {', '.join(missing)} (make them with: {command})")
    return lines


def compare(runs: Sequence[Run]) -> tuple[pd.DataFrame, list[str], list[Path]]:
    """Write the tables, the figure and the report of some runs.

    Returns:
        `claims_side_by_side`; what is to be known: in which settings runs differ, what they lack;
        the folder of tables and figure, and the report.
    """
    name = folder_name("-vs-".join(run.name for run in runs), LONGEST_NAME)
    folder = figures_dir("compare") / name
    folder.mkdir(parents=True, exist_ok=True)
    claims, best = claims_side_by_side(runs), best_heads(runs)
    heads = atlas({run.name: run.tables for run in runs})
    stores, absent = _stores(runs)
    for table, rows in {
        "claims": claims,
        "best_heads": best,
        "atlas": heads,
        "nearest_heads": nearest_heads(stores),
        "spread": spread(claims),
    }.items():
        write_whole(folder / f"{table}.csv", rows.to_csv(index=False, float_format="%.6g").encode())
    different = differences(runs)
    flags = ", ".join(different)
    figure = comparison(
        {run.name: run.tables for run in runs},
        claims=claims,
        best_heads=best,
        note=f"These runs also differ in {flags}." if flags else "",
    )
    save_figure(figure, folder, "compare")
    notes = [f"the runs differ in {own}: {values}" for own, values in different.items()]
    notes += [*gaps(runs), *lacking(heads), *absent]
    names = " and ".join(run.name for run in runs)
    facts = {"model": {"name": names}, "notes": [*_counts(claims), *notes]}
    return claims, notes, [folder, write_report(facts, folder, folder, build_dir("compare") / name)]


def _stores(runs: Sequence[Run]) -> tuple[dict[str, Store], list[str]]:
    """Return the finished word-level stores of the runs' treebanks, and why others are not here."""
    known, found, absent = {setting.name for setting in fields(Settings)}, {}, []
    for run in runs:
        own = {name: value for name, value in run.settings.items() if name in known}
        try:
            if "model" not in own:
                raise InputError("its run.json names no model")
            study = Study(**own)
            key = store_key(
                study.encoder, study.treebank_corpus(), level="word", lens=study.lens,
                max_tokens=study.max_tokens, hidden=True,
            )  # fmt: skip
            found[run.name] = Store.open(key.folder(), key)
        except InputError as error:
            absent.append(f"no nearest heads for {run.name}, whose maps are not here: {error}")
    return found, absent


def claims_side_by_side(runs: Sequence[Run]) -> pd.DataFrame:
    """Return section, claim, paper, and for each run ``<name>`` and ``<name> holds``."""
    checks = {run.name: check_claims(run.tables, clark_claims()) for run in runs}
    first = next(iter(checks.values()))
    columns = {name: first[name] for name in ("section", "claim")} | {"paper": first["paper_value"]}
    for name, table in checks.items():
        columns |= {name: table["here"], f"{name} holds": table["holds"]}
    return pd.DataFrame(columns)


def best_heads(runs: Sequence[Run]) -> pd.DataFrame:
    """Return the best head of each run for each relation that the paper or two runs have.

    Columns: relation (the paper's name, or the corpus's where the paper has none), paper head,
    accuracy and baseline, and for each run its head, accuracy, interval and baseline.  The
    relations are in the paper's order; the others follow, most frequent first.
    """
    paper = paper_table1()
    found = {
        run.name: _by_paper_name(run.tables["dependency_heads"])
        for run in runs
        if "dependency_heads" in run.tables
    }
    others = [name for table in found.values() for name in table.index if name not in paper.index]
    shared = [name for name in dict.fromkeys(others) if others.count(name) > 1]
    ours = {name for table in found.values() for name in table.index}
    order = [name for name in paper.index if name in ours] + shared
    parts = {"paper": paper[["head", "accuracy", "baseline"]]} | {
        name: table[[column for column in OF_A_HEAD if column in table]]
        for name, table in found.items()
    }
    wide = pd.concat({name: part.reindex(order) for name, part in parts.items()}, axis=1)
    wide.columns = [f"{name} {column}" for name, column in wide.columns]
    return wide.rename_axis("relation").reset_index()


def differences(runs: Sequence[Run]) -> dict[str, str]:
    """Return the flags of the settings, but the model's, in which runs differ, with the values."""
    found = {}
    for setting in MATERIAL:
        values = {run.name: run.settings.get(setting) for run in runs if run.settings}
        if len(set(values.values())) > 1:
            found[flag(setting)] = ", ".join(
                f"{'default' if value in ('', None) else value} in {name}"
                for name, value in values.items()
            )
    return found


def claims_text(table: pd.DataFrame, *, width: int | None = None) -> str:
    """Return `claims_side_by_side` as text that fits a terminal, with the counts at its end."""
    width = width or shutil.get_terminal_size((100, 24)).columns
    names = [name.removesuffix(" holds") for name in table if name.endswith(" holds")]
    cells = {"paper": [_number(value) for value in table["paper"]]} | {
        name: [
            f"{_number(value)} {MARKS[holds]:>3}".strip()
            for value, holds in zip(table[name], table[f"{name} holds"], strict=True)
        ]
        for name in names
    }
    wide = {name: max(map(len, [name, *column])) for name, column in cells.items()}
    longest = table["claim"].str.len().max()
    room = min(longest, max(36, width - sum(wide.values()) - 2 * len(wide) - 5))

    def line(section: str, claim: str, values: Sequence[str]) -> str:
        right = "".join(
            f"  {value:>{wide[name]}}" for name, value in zip(cells, values, strict=True)
        )
        return f"{section:<3}  {claim:<{room}}{right}".rstrip()

    lines = [line("", "claim", list(cells))]
    before = None
    for index, row in enumerate(table.itertuples()):
        first, *rest = textwrap.wrap(row.claim, room)
        values = [column[index] for column in cells.values()]
        lines.append(line(row.section if row.section != before else "", first, values))
        lines += [f"{'':5}  {more}" for more in rest]
        before = row.section
    return "\n".join([*lines, "", *_counts(table)])


def _counts(claims: pd.DataFrame) -> list[str]:
    """Return how many claims hold, a line a run."""
    lines = []
    for name, verdicts in claims.filter(like=" holds").items():
        measured = verdicts != "not measured"
        line = f"{name.removesuffix(' holds')}: {(verdicts == 'yes').sum()} of {measured.sum()}"
        rest = "" if measured.all() else f", {(~measured).sum()} not measured"
        lines.append(f"{line} claims hold{rest}")
    return lines


def _number(value: float) -> str:
    if np.isnan(value):
        return ""
    return f"{value:.0f}" if abs(value) >= 100 or value == round(value) else f"{value:.3g}"


def _by_paper_name(table: pd.DataFrame) -> pd.DataFrame:
    """Return dependency_heads.csv by the paper's names, the most frequent relation of each."""
    known = paper_names(table["relation"])
    names = table["relation"].map(lambda name: known.get(name, name))
    return table.set_index(names)[~names.duplicated().to_numpy()]


def _read_settings(folder: Path) -> dict[str, Any]:
    """Return the settings of a run, empty where it left none."""
    path = folder / "run.json"
    if not path.is_file():
        return {}
    try:
        found = dict(json.loads(path.read_text(encoding="utf-8"))["settings"])
        Settings.of(found)  # whether they are of their types
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{path}: not the description of a run; run a notebook again") from error
    return found


def _settings_of(name: str) -> dict[str, Any]:
    """Return the settings that a run of that name would have had."""
    model, _, seed = name.rpartition("-random-")
    if model and re.fullmatch(r"\d+", seed):
        return {"model": model, "random_init": int(seed)}
    return {"model": name}


def _command(settings: Mapping[str, Any], *, only: str = "") -> str:
    """Return the command line that makes a run with these settings."""
    words = ["python", "-m", "helpers", "run"]
    for setting in fields(Settings):
        default = setting.default
        value = settings.get(setting.name, default)
        if default is MISSING or value == default:
            continue
        words += [flag(setting.name)] if value is True else [flag(setting.name), str(value)]
    if only:
        words += ["--only", only]
    return shlex.join(words)
