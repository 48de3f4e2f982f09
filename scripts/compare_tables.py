"""Compare the tables of two runs: ``python scripts/compare_tables.py RUN [RUN]``.

RUN is the name of a run, which is looked up in build/ and then in figures/, or a folder.  One run
is compared with the committed one of its name: the tables and the claims that it has.  Numbers may
differ by the tolerance of their unit.  Chosen heads, directions and offsets are not compared.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from helpers.files import build_dir, figures_dir

# Two processors may differ by so much in a number.
SHARE_TOLERANCE = 1e-3  # of the largest number of a column, for shares and what has no unit here
PERCENTAGE_TOLERANCE = 0.2
TRAINED_TOLERANCE = 2.0  # of a percentage of what gradient steps have trained
P_TOLERANCE = 0.005
PERCENTAGES = {
    "accuracy_by_distance", "additions", "coreference", "coreference_held_out",
    "dependency_heads", "dependency_heads_held_out", "gold_and_silver", "relation_summary",
    "universal_relations",
}  # fmt: skip
TRAINED_PERCENTAGES = {
    "ablation", "fine_tuning", "importance", "one_head", "partial_input_seeds",
    "partial_inputs", "pattern_trust", "probe_differences", "probe_layers", "probes", "pruning",
    "pruning_seeds",
}  # fmt: skip
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
    before, after = map(read_run, folders)
    if with_committed:
        before = common_part(before, after)
    differences = list(compare_runs(before, after))
    label = " with the committed run" if with_committed else ""
    print("\n".join(differences) or f"all {len(after)} tables agree{label}")
    sys.exit(bool(differences))


def find_run(name: str) -> Path:
    """Find the folder of a run in build/ or figures/, or take the name as a folder."""
    for folder in (build_dir(name), figures_dir(name), Path(name)):
        if any(folder.glob("tables/*.csv")):
            return folder
    sys.exit(f"{name}: no run with tables in build/ or figures/, and no such folder; name another")


def read_run(run: Path) -> dict[str, pd.DataFrame]:
    """Read the tables of a run by name; numbers of sections and titles of articles are texts."""
    tables = {}
    for path in run.glob("tables/*.csv"):
        texts = {"article": str, "section": str}
        tables[path.stem] = pd.read_csv(path, keep_default_na=False, na_values=[""], dtype=texts)
    return tables


def common_part(
    before: Mapping[str, pd.DataFrame], after: Mapping[str, pd.DataFrame]
) -> dict[str, pd.DataFrame]:
    """Choose the tables that a later run has, and the claims of its sections."""
    common = {name: table for name, table in before.items() if name in after}
    if "claims" in common:
        claims = common["claims"]
        common["claims"] = claims[claims["section"].isin(after["claims"]["section"])]
    return common


def compare_runs(
    before: Mapping[str, pd.DataFrame], after: Mapping[str, pd.DataFrame]
) -> Iterator[str]:
    """Yield a line for each difference of the tables of two runs."""
    for name in sorted(before.keys() ^ after.keys()):
        yield f"{name}: only in one of the runs"
    for name in sorted(before.keys() & after.keys()):
        for line in compare_tables(before[name], after[name], name):
            yield f"{name}: {line}"


def compare_tables(before: pd.DataFrame, after: pd.DataFrame, name: str) -> Iterator[str]:
    """Yield a line for each difference of two tables with this name."""
    for column in before.columns.symmetric_difference(after.columns):
        yield f"{column} is in one of the runs"
    if len(before) != len(after):
        yield f"{len(before)} and {len(after)} rows"
        return
    before = _sort_rows(before)
    after = _sort_rows(after)
    for column in before.columns.intersection(after.columns, sort=False):
        if column in _not_compared(before):
            continue
        old, new = before[column], after[column]
        is_different = old.ne(new) & ~(old.isna() & new.isna())
        size = ""
        if {old.dtype.kind, new.dtype.kind} <= set("iuf"):
            differences = (old - new).abs().fillna(np.inf)
            is_different &= differences > _tolerances(before, column, name)
            size = f" by up to {differences[is_different].max():.2g}"
        if is_different.any():
            yield f"{column} differs{size} in {is_different.sum()} rows"


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


def _tolerances(table: pd.DataFrame, column: str, name: str) -> float | pd.Series:
    """Find by how much the numbers of a column may differ."""
    if column.startswith("p_"):
        return P_TOLERANCE
    if name == "claims":
        return _claim_tolerances(table, column)
    if name in PERCENTAGES:
        return PERCENTAGE_TOLERANCE
    if name in TRAINED_PERCENTAGES:
        return TRAINED_TOLERANCE
    return SHARE_TOLERANCE * table[column].abs().max()


def _claim_tolerances(claims: pd.DataFrame, column: str) -> pd.Series:
    """Find the tolerances of claims, each of which has a unit of its own."""
    tolerances = claims[column].abs() * 0.01 + SHARE_TOLERANCE
    is_percentage = claims["unit"].isin(["percent", "percentage points"])
    is_trained = ~claims["section"].str.startswith(("3", "4"))
    tolerances[is_percentage] = PERCENTAGE_TOLERANCE
    tolerances[is_percentage & is_trained] = TRAINED_TOLERANCE
    return tolerances


if __name__ == "__main__":
    main()
