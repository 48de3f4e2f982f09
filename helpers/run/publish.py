"""From ``build/<run>/`` to ``figures/<run>/``: a finished run is copied, or compared.

The committed runs are replaced only on request.  Other runs of them say whether their tables agree
with the committed ones.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd

from helpers.results import RECORD, Results, read_tables, remove_contents, run_record

COMMITTED = (
    "minilm", "minilm-later", "minilm-norm", "minilm-random-0", "minilm-ewt", "minilm-arct",
    "mpnet", "mpnet-later", "mpnet-ewt", "smollm2", "smollm2-later",
)  # fmt: skip
RESULT_SUFFIXES = (".png", ".svg", ".pdf")

# Two processors may differ by so much in a number of each unit.  Shares, nats and all that is not
# listed may differ by a thousandth of the largest number of the column.
TOLERANCES = {"percentage": 0.2, "percentage of a trained probe": 2.0, "p": 0.005}
SHARE_TOLERANCE = 1e-3
UNITS = dict.fromkeys(
    [
        "coreference", "coreference_held_out", "dependency_heads", "dependency_heads_held_out",
        "each_head", "gold_and_silver", "paper_heads", "possessives", "probe_differences",
        "probe_seeds", "probes", "relation_summary", "special_candidates", "universal_relations",
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
TRAINED_PROBES = ("Structural probe", "Distances + GloVe", "bilinear probe", "Bilinear probe")
# The best of several: another one may be best where two are tied.
CHOICES = (
    "head", "direction", "relation", "chosen", "pattern", "removable", "title", "offset",
    "baseline_offset", "passes",
)  # fmt: skip
CONTROL_PREFIXES = ("random_", "entropy_matched_")


def publish(results: Results, *, replace: bool = False) -> str:
    """Copy a finished run to ``figures/<run>/``, or compare it with the committed one.

    Parameters
    ----------
    results : Results
        The results of the run.
    replace : bool
        Whether a committed run is replaced.

    Returns
    -------
    str
        What was done or found, in a line.
    """
    tables = read_tables(results.build)
    if results.name not in COMMITTED or replace or not run_record(results.published):
        copy_results(results.build, results.published)
        return f"{results.name}: {len(tables)} tables and their figures are in {results.published}"
    committed = read_tables(results.published)
    differences = {}
    for name, table in tables.items():
        difference = "not in the committed run"
        if name in committed:
            difference = compare_tables(committed[name], table, name)
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


def copy_results(source: Path, target: Path) -> None:
    """Copy tables, figures and ``run.json`` of a folder, and remove all that the target held."""
    target.mkdir(parents=True, exist_ok=True)
    remove_contents(target)
    for path in source.glob("*"):
        if path.name == "tables":
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
    before, after = _sorted_rows(before), _sorted_rows(after)
    for column in before.columns.difference(CHOICES, sort=False):
        old, new = before[column], after[column]
        if {old.dtype.kind, new.dtype.kind} <= set("iuf"):
            differences = np.abs(old.to_numpy(float) - new.to_numpy(float))
            allowed = np.array([_tolerance(name, column, row, old) for _, row in before.iterrows()])
            is_lost = old.isna().to_numpy() != new.isna().to_numpy()
            is_different = is_lost | (differences > allowed)
            if is_different.any():
                worst = np.nanmax(np.where(is_lost, np.inf, differences)[is_different])
                return f"{column} by {worst:.2g} in {is_different.sum()} rows"
        elif not old.equals(new):
            is_different = old.ne(new) & ~(old.isna() & new.isna())
            return f"{column} in {is_different.sum()} rows"
    return ""


def _sorted_rows(table: pd.DataFrame) -> pd.DataFrame:
    """Sort rows by what names them, because some tables are in the order of their numbers."""
    if "id" in table:  # claims
        return table.sort_values("id", ignore_index=True)
    names = [column for column in table if table[column].dtype.kind != "f"]
    names = [name for name in names if name not in CHOICES] or list(table.columns[:1])
    return table.sort_values(names, kind="stable", ignore_index=True)


def _tolerance(name: str, column: str, row: pd.Series, numbers: pd.Series) -> float:
    """Find by how much a number of a column may differ."""
    if column == "p" or column.startswith("p_"):
        return TOLERANCES["p"]
    for prefix in CONTROL_PREFIXES:
        name = name.removeprefix(prefix)
    unit = UNITS.get(name, "share")
    is_trained = row.astype(str).str.contains("|".join(TRAINED_PROBES)).any()
    if unit == "percentage" and is_trained:
        unit = "percentage of a trained probe"
    if name == "claims":  # each row has a unit of its own
        return max(SHARE_TOLERANCE, 0.01 * abs(row[column]))
    return TOLERANCES.get(unit, SHARE_TOLERANCE * numbers.abs().max())
