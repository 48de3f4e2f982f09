"""What a run leaves behind: its tables and their record; whose a results folder is."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from helpers.data.corpora import registry
from helpers.errors import InputError, TableError, or_wider
from helpers.model.encoder import DEFAULT, mpnet, slug
from helpers.paths import figures_dir, given_path, project_root, write_whole
from helpers.settings import LONGEST_NAME, MATERIAL, NO_NAMES, PLACES, Settings, flag, folder_name

# What columns begin with that may be empty.
MAY_BE_MISSING = ("paper", "p", "within", "between", "neighbouring", "validation")
CAUSE = "weights or states that are not finite, or a damaged store: try 'python -m helpers verify'"


def results_name(settings: Settings) -> str:
    """Return the folder name of a run's results: ``name``, or the model's and what else differs.

    Where another run has that one (``x/tiny`` after ``y/tiny``), a digest of the settings follows.
    InputError where ``name`` is taken by a run of other settings.
    """
    model = slug(settings.model, random_seed=settings.random_init, focused=settings.focused)
    model += f"-{settings.lens}" if settings.lens != Settings.lens else ""
    natural = "--".join(filter(None, (model, settings.difference)))
    name = settings.name or folder_name(natural, LONGEST_NAME - 20)  # what follows has room
    others = _others(settings, figures_dir(name))
    if settings.name and others:
        raise InputError(
            f"--name {name}: {figures_dir(name)} has another run ({'; '.join(others)}); give this "
            "one another name, or none, or remove that folder"
        )
    if settings.name or not (others or name in NO_NAMES):
        return name
    text = json.dumps(known(settings, MATERIAL), sort_keys=True)
    return f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:6]}"


def known(settings: Settings, names: Collection[str]) -> dict[str, Any]:
    """Return settings as run.json has them, with models and files as where they are."""
    own = {name: getattr(settings, name) for name in names}
    places = {name: _place(own[name]) for name in ("model", *PLACES) if name in own}
    return own | places | {"small": settings.small}


def claim(settings: Settings, folder: Path) -> None:
    """Say in ``run.json`` whose a folder is, before a notebook that is run by itself fills it."""
    record = run_record(folder)
    if "notebooks" not in record:  # else a run has said it as it began
        there = record.get("settings", {}) | known(settings, settings.declared)
        write_record(folder, record | {"settings": there})


def write_record(folder: Path, facts: Mapping[str, Any]) -> None:
    """Write ``run.json``."""
    write_whole(folder / "run.json", f"{json.dumps(facts, indent=1, default=str)}\n".encode())


def _others(settings: Settings, folder: Path) -> list[str]:
    """Return how the run of a folder differs in the settings that matter and both know."""
    there = run_record(folder).get("settings")
    if there is None:
        unknown = any((folder / "tables").glob("*.csv"))
        return ["tables without a run.json that says what of"] if unknown else []
    here, there = known(settings, settings.declared), {"small": False} | there
    names = {name: flag(name) for name in MATERIAL} | {"small": "the small profile"}
    return [
        f"{said} is {there[name]!r} there, {here[name]!r} here"
        for name, said in names.items()
        if name in here and name in there and here[name] != there[name]
    ]


def _place(given: str) -> str:
    """Return where a model or file is, from the project; what has a name of its own keeps it."""
    if given in ("", DEFAULT, mpnet.NAME) or given in registry().index:
        return given
    if (path := given_path(given)).exists():
        return f"./{os.path.relpath(path.resolve(), project_root())}"
    return ",".join(_place(part.strip()) for part in given.split(",")) if "," in given else given


def check_table(
    table: pd.DataFrame,
    name: str,
    *,
    special_tokens: Callable[[], Mapping[str, str | None]],
    optional: Collection[str] = (),
    dtype: str = "float32",
) -> None:
    """Refuse a table with a column of numbers that are infinite, or all missing.

    Missing may be what the paper does not say, intervals, p-values, ``optional`` columns, what
    takes two heads or layers (`MAY_BE_MISSING`), and what is about [CLS] or [SEP] if the model, as
    ``special_tokens`` is then asked, has no such token.  TableError names table, column and likely
    cause, for this ``dtype``.
    """

    def refused(problem: str) -> TableError:
        return TableError(f"{name}.csv: column {column} {problem}; {CAUSE}{or_wider(dtype)}")

    for column in table.select_dtypes("float") if len(table) else ():
        values, parts = table[column], str(column).split("_")
        if np.isinf(values).any():
            raise refused("has infinite numbers")
        expected = column not in optional and parts[0] not in MAY_BE_MISSING
        if values.isna().all() and expected and parts[-1] not in ("low", "high"):
            about = {"cls", "sep"}.intersection(parts)
            if not any(special_tokens().get(role) is None for role in about):
                raise refused("has no number")


def write_table(table: pd.DataFrame, folder: Path, name: str, *, latex: bool = False) -> None:
    """Write ``folder/name.csv`` with six digits, with ``latex`` also ``.tex`` with about three."""
    write_whole(folder / f"{name}.csv", table.to_csv(index=False, float_format="%.6g").encode())
    if latex:
        write_whole(folder / f"{name}.tex", as_latex(table).encode())


def as_latex(table: pd.DataFrame) -> str:
    """Return a table as LaTeX (booktabs), its numbers rounded to about three digits."""

    def shown(value: float) -> str:
        return f"{value:.0f}" if value % 1 == 0 or abs(value) >= 1000 else f"{value:.3g}"

    named = table.rename(columns=lambda name: str(name).replace("_", " "))
    text = named.to_latex(index=False, escape=True, na_rep="", float_format=shown)
    return text.replace("·", r"\textperiodcentered{}")


def read_tables(results: Path, written: Iterable[str] = ()) -> dict[str, pd.DataFrame]:
    """Return the tables of the run that a results folder belongs to, by name.

    Those that ``run.json`` lists, and ``written`` just now; where the notebooks were run one by
    one, all of the folder.  InputError where a table cannot be read.
    """
    own = listed(results, "tables")
    found = {}
    for path in sorted((results / "tables").glob("*.csv")):
        if own is not None and path.stem not in own.union(written):
            continue
        try:
            found[path.stem] = pd.read_csv(path)
        except ValueError as error:
            problem = str(error).splitlines()[0]
            raise InputError(f"{path}: not a table ({problem}); run the notebook again") from error
    return found


def listed(results: Path, kind: str) -> set[str] | None:
    """Return the "tables" or "figures" that ``run.json`` lists; None where it lists none."""
    notebooks = run_record(results).get("notebooks")
    if notebooks is None:
        return None
    return {name for files in notebooks.values() for name in files[kind]}


def run_record(results: Path) -> dict[str, Any]:
    """Return what a run's ``run.json`` says; nothing where it is missing or damaged."""
    try:
        return dict(json.loads((results / "run.json").read_bytes()))
    except (OSError, ValueError, TypeError):
        return {}
