"""Compare the tables of two runs: ``python scripts/compare_tables.py RUN [RUN]``.

RUN is the name of a run, which is looked up in build/ and then in figures/, or a folder.  One run
is compared with the committed one of its name: the tables and the claims that it has.  Numbers may
differ by the tolerance of their unit.  Chosen heads, directions and offsets are not compared.

A table may have the rows of all models, told apart by the column ``model``, or each control may
have a file, such as ``random_entropy.csv``.  Here every table is split into those of its models, so
that runs of both layouts can be compared.
"""

import argparse
import io
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from helpers.cache import read_table
from helpers.files import build_dir, figures_dir

TRAINED = "trained"
CONTROLS = {"random_": "random", "entropy_matched_": "entropy-matched", "shuffled_": "shuffled"}
RENAMED = {"due_to_training": "larger_than_in_controls"}

# Two processors may differ by so much in a number of each unit.  A share, and any number without a
# unit here, may differ by a thousandth of the largest number of its column.
TOLERANCES = {"percentage": 0.2, "percentage of a trained probe": 2.0, "p": 0.005}
SHARE_TOLERANCE = 1e-3
UNITS = dict.fromkeys(
    [
        "accuracy_by_distance", "additions", "coreference", "coreference_held_out",
        "dependency_heads", "dependency_heads_held_out", "disagreement", "each_head",
        "gold_and_silver", "paper_heads", "possessives", "relation_summary", "special_candidates",
        "universal_relations",
    ],
    "percentage",
) | dict.fromkeys(
    [
        "ablation", "bilinear_layers", "cross_data", "disabling", "fine_tuning", "importance",
        "one_head", "partial_input_seeds", "partial_inputs", "pattern_trust",
        "probe_differences", "probe_layers", "probe_seeds", "probes", "pruning",
        "pruning_seeds", "structural_layers",
    ],
    "percentage of a trained probe",
)  # fmt: skip
TRAINED_PROBES = "Structural probe|Distances|ilinear probe"  # by gradient steps, in other tables
# The best of several, because another one may be best where two are tied; and where a fit stopped.
NOT_COMPARED = {
    "head", "direction", "class_head", "chosen", "pattern", "removable", "title",
    "offset", "baseline_offset", "nearest_class", "nearest_side", "passes", "gradient",
}  # fmt: skip


def main() -> None:
    """Print what differs; exit with 1 if anything does."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a name or a folder")
    names = parser.parse_args().runs
    folders = [find_run(name) for name in names]
    with_committed = len(names) == 1
    if with_committed:
        folders.insert(0, figures_dir(folders[0].name))
    differences = list(compare_runs(*folders, only_common=with_committed))
    label = " with the committed run" if with_committed else ""
    print("\n".join(differences) or f"all {len(read_models(folders[-1]))} tables agree{label}")
    sys.exit(bool(differences))


def find_run(name: str) -> Path:
    """Find the folder of a run in build/ or figures/, or take the name as a folder."""
    for folder in (build_dir(name), figures_dir(name), Path(name)):
        if any(folder.glob("tables/*.csv")):
            return folder
    sys.exit(f"{name}: no run with tables in build/ or figures/, and no such folder; name another")


def read_models(run: Path) -> dict[tuple[str, str], pd.DataFrame]:
    """Read the tables of a run by name and model, without those that have no rows."""
    tables = {}
    for path in sorted(run.glob("tables/*.csv")):
        table = read_table(path).rename(columns=RENAMED)
        if "model" in table and set(table["model"]) <= {TRAINED, *CONTROLS.values()}:
            for model, rows in table.groupby("model"):
                tables[path.stem, str(model)] = read_again(rows.drop(columns="model"))
        else:
            prefix = next(filter(path.stem.startswith, CONTROLS), "")
            model = CONTROLS.get(prefix, TRAINED)
            if len(table):
                tables[path.stem.removeprefix(prefix), model] = read_again(table)
    return tables


def read_again(rows: pd.DataFrame) -> pd.DataFrame:
    """Give rows the types that they have in a file of their own, without empty columns."""
    rows = rows.dropna(axis="columns", how="all")
    return read_table(io.StringIO(rows.to_csv(index=False)))


def compare_runs(first: Path, second: Path, *, only_common: bool = False) -> Iterator[str]:
    """Yield a line for each difference of the tables of two runs.

    With ``only_common`` the second run may be a part of the first, with claims of some sections.
    """
    before = read_models(first)
    after = read_models(second)
    claims = ("claims", TRAINED)
    if only_common:
        before = {name: table for name, table in before.items() if name in after}
        if claims in before:
            expected = before[claims]
            sections = set(after[claims]["section"].astype(str))
            before[claims] = read_again(expected[expected["section"].astype(str).isin(sections)])
    for name, model in sorted(before.keys() | after.keys()):
        label = name if model == TRAINED else f"{name} ({model})"
        if (name, model) not in before:
            yield f"{label}: only in {second}"
        elif (name, model) not in after:
            yield f"{label}: only in {first}"
        else:
            for line in compare_models(before[name, model], after[name, model], name):
                yield f"{label}: {line}"


def compare_models(before: pd.DataFrame, after: pd.DataFrame, name: str) -> Iterator[str]:
    """Yield a line for each difference of two tables of one model."""
    for column in before.columns.symmetric_difference(after.columns):
        yield f"{column} is in one of the runs"
    if len(before) != len(after):
        yield f"{len(before)} and {len(after)} rows"
        return
    common = [column for column in before if column in after]
    for column, rows, difference, tolerance in compare_columns(before[common], after[common], name):
        size = (
            f" by up to {difference:.2g} (tolerance {tolerance:.2g})" if difference < np.inf else ""
        )
        yield f"{column} differs{size} in {rows} rows"


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


if __name__ == "__main__":
    main()
