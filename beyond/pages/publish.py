"""The committed runs in ``figures/``: a run is compared with them, or copied there on request.

All other runs stay in ``build/<run>/``.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from helpers.errors import InputError
from helpers.results import RECORD, Results, read_tables, remove_contents, run_record
from helpers.run.notebooks import notebook_folder

COMMITTED = (
    "minilm", "minilm-later", "minilm-norm", "minilm-random-0", "minilm-ewt", "minilm-arct-later",
    "mpnet", "mpnet-later", "mpnet-ewt", "smollm2", "smollm2-later",
)  # fmt: skip
RESULT_SUFFIXES = (".png", ".svg", ".pdf")
RESULT_FOLDERS = ("tables", "column")  # the second has the figures for a column of a paper

# Two processors may differ by so much in a number of each unit.  A share, and any number without a
# unit here, may differ by a thousandth of the largest number of its column.
TOLERANCES = {"percentage": 0.2, "percentage of a trained probe": 2.0, "p": 0.005}
SHARE_TOLERANCE = 1e-3
UNITS = dict.fromkeys(
    [
        "accuracy_by_distance", "coreference", "coreference_held_out", "dependency_heads",
        "dependency_heads_held_out", "disagreement", "each_head", "gold_and_silver",
        "paper_heads", "possessives", "probe_differences", "probe_seeds", "probes",
        "relation_summary", "special_candidates", "universal_relations",
    ],
    "percentage",
) | dict.fromkeys(
    [
        "ablation", "bilinear_layers", "cross_data", "disabling", "fine_tuning", "importance",
        "one_head", "partial_input_seeds", "partial_inputs", "pattern_trust", "pruning",
        "pruning_seeds", "structural_layers",
    ],
    "percentage of a trained probe",
)  # fmt: skip
TRAINED_PROBES = "Structural probe|Distances|ilinear probe"  # by gradient steps, in other tables
# The best of several, because another one may be best where two are tied; and where a fit stopped.
NOT_COMPARED = {
    "head", "direction", "chosen", "pattern", "removable", "title", "offset", "baseline_offset",
    "nearest_class", "nearest_side", "passes", "gradient",
}  # fmt: skip
CONTROL_PREFIXES = ("random_", "entropy_matched_", "shuffled_")


def publish(results: Results, *, replace: bool = False) -> str:
    """Compare a run with the committed one of its name, or copy it to ``figures/<run>/``.

    Parameters
    ----------
    results : Results
        The results of the run.
    replace : bool
        Whether it is copied there.

    Returns
    -------
    str
        What was done or found, in a line.

    Raises
    ------
    InputError
        As in `check_publishable`, if it is to be copied.
    """
    tables = read_tables(results.build)
    if replace:
        check_publishable(results)
        copy_results(results.build, results.published)
        return f"{results.name}: {len(tables)} tables and their figures are in {results.published}"
    if results.name not in COMMITTED or not run_record(results.published):
        return f"{results.name}: {len(tables)} tables and their figures are in {results.build}"
    committed = read_tables(results.published)
    differences = {}
    for name, table in tables.items():
        difference = "not in the committed run"
        if name in committed:
            expected = committed[name]
            if name == "claims":  # a run of some notebooks has the claims of their sections
                expected = expected[expected["section"].isin(table["section"])]
            difference = compare_tables(expected, table, name)
        if difference:
            differences[name] = difference
    commit = run_record(results.published).get("commit")
    if not differences:
        return (
            f"{results.name}: all {len(tables)} tables agree with the committed run ({commit}), "
            f"which stays as it is; those of this machine are in {results.build}"
        )
    listed = "; ".join(f"{name}.csv: {text}" for name, text in differences.items())
    return (
        f"{results.name}: {len(differences)} of {len(tables)} tables differ from the committed run "
        f"({commit}): {listed}. It stays as it is; --publish replaces it with {results.build}"
    )


def check_publishable(results: Results, notebooks: Collection[str] = ()) -> None:
    """Refuse to copy a run to ``figures/`` that is none of the committed ones, or a part of one.

    Parameters
    ----------
    results : Results
        The results of the run.
    notebooks : collection of str
        Names of notebooks that are still to be executed.

    Raises
    ------
    InputError
        With the notebooks that the committed run has and this one lacks.
    """
    if results.name not in COMMITTED:
        raise InputError(
            f"--publish: {results.name} is none of the committed runs ({', '.join(COMMITTED)}); "
            f"leave it out: the results are in {results.build}"
        )
    executed = results.own_record().get("seconds", {}).keys() | set(notebooks)
    committed = run_record(results.published).get("seconds", {})
    in_series = {name for name in committed if (notebook_folder() / f"{name}.ipynb").is_file()}
    missing = in_series - executed
    if missing:
        raise InputError(
            f"--publish: {results.published} also has the results of {', '.join(sorted(missing))}; "
            "run these notebooks, too"
        )


def copy_results(source: Path, target: Path) -> None:
    """Copy tables, figures and ``run.json`` of a folder, and remove all that the target held."""
    target.mkdir(parents=True, exist_ok=True)
    remove_contents(target)
    for path in source.glob("*"):
        if path.name in RESULT_FOLDERS:
            shutil.copytree(path, target / path.name)
        elif path.suffix in RESULT_SUFFIXES or path.name == RECORD:
            shutil.copy(path, target)


def compare_tables(before: pd.DataFrame, after: pd.DataFrame, name: str) -> str:
    """Compare a table with the committed one.

    Parameters
    ----------
    before, after : DataFrame
        The committed table and that of this run.
    name : str
        Name of its file, without the suffix.

    Returns
    -------
    str
        What differs by more than the tolerance and by how much; empty if the tables agree.
    """
    if list(before.columns) != list(after.columns) or len(before) != len(after):
        return f"other columns or rows ({len(before)} and {len(after)} rows)"
    for column, rows, difference, _ in compare_columns(before, after, name):
        size = f" by {difference:.2g}".replace(" by inf", "")
        return f"{column} differs{size} in {rows} rows"
    return ""


def compare_columns(
    before: pd.DataFrame, after: pd.DataFrame, name: str
) -> Iterator[tuple[str, int, float, float]]:
    """Find the columns of two tables that differ by more than the tolerance.

    Parameters
    ----------
    before, after : DataFrame
        Tables with the same columns and the same number of rows.
    name : str
        Name of their file, without the suffix.

    Yields
    ------
    tuple of str, int, float and float
        The column, the number of its rows that differ, the largest difference (infinite if it is
        not one of numbers) and the tolerance in that row.
    """
    before = _sort_rows(before)
    after = _sort_rows(after)
    for column in before.columns.difference(_not_compared(before), sort=False):
        old, new = before[column], after[column]
        is_different = old.ne(new) & ~(old.isna() & new.isna())
        if not is_different.any():
            continue
        differences = pd.Series(np.inf, old.index)
        tolerances = pd.Series(0.0, old.index)
        if {old.dtype.kind, new.dtype.kind} <= set("iuf"):
            differences = (old - new).abs().fillna(np.inf)
            tolerances = _tolerances(before, column, name)
            is_different &= differences > tolerances
        if is_different.any():
            largest = differences[is_different].idxmax()
            yield column, is_different.sum(), differences[largest], tolerances[largest]


def _not_compared(table: pd.DataFrame) -> set[str]:
    """Collect the columns that are not compared."""
    if "layer" in table:  # a row for each head
        return NOT_COMPARED - {"head"} | {"relation"}
    return NOT_COMPARED


def _sort_rows(table: pd.DataFrame) -> pd.DataFrame:
    """Sort rows by what names them, because some tables are in the order of their numbers."""
    names = ["id"] if "id" in table else list(table.select_dtypes(exclude="float"))
    names = [name for name in names if name not in _not_compared(table)] or list(table.columns[:1])
    return table.sort_values(names, kind="stable", ignore_index=True)


def _tolerances(table: pd.DataFrame, column: str, name: str) -> pd.Series:
    """Find by how much each number of a column may differ."""
    for prefix in CONTROL_PREFIXES:
        name = name.removeprefix(prefix)
    if column.startswith("p_") or column in ("p", "power_at_paper"):
        unit = "p"
    elif name == "claims":
        return _claim_tolerances(table, column)
    else:
        unit = UNITS.get(name, "share")
    usual = TOLERANCES.get(unit, SHARE_TOLERANCE * table[column].abs().max())
    tolerances = pd.Series(usual, table.index)
    if unit == "percentage":
        is_trained = pd.Series(False, table.index)
        for texts in table.select_dtypes(exclude="number"):
            is_trained |= table[texts].astype(str).str.contains(TRAINED_PROBES)
        tolerances[is_trained] = TOLERANCES["percentage of a trained probe"]
    return tolerances


def _claim_tolerances(claims: pd.DataFrame, column: str) -> pd.Series:
    """Find the tolerances of claims, each of which has a unit of its own."""
    tolerances = claims[column].abs() * 0.01 + SHARE_TOLERANCE
    is_percentage = claims["unit"].isin(["percent", "percentage points"])
    is_trained = ~claims["section"].astype(str).str.startswith(("3", "4"))
    tolerances[is_percentage] = TOLERANCES["percentage"]
    tolerances[is_percentage & is_trained] = TOLERANCES["percentage of a trained probe"]
    return tolerances
