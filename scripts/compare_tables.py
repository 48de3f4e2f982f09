"""Compare the tables of two runs: ``python scripts/compare_tables.py RUN RUN``.

RUN is the name of a run, which is looked up in build/ and then in figures/, or a folder.  Numbers
may differ by the tolerance of their unit.  Chosen heads, directions and offsets are not compared.

A table may have the rows of all models, told apart by the column ``model``, or each control may
have a file, such as ``random_entropy.csv``.  Here every table is split into those of its models, so
that runs of both layouts can be compared.
"""

import argparse
import io
import sys
from collections.abc import Iterator
from math import inf
from pathlib import Path

import pandas as pd

from beyond.pages.publish import compare_columns
from helpers.cache import read_table
from helpers.files import build_dir, figures_dir

TRAINED = "trained"
CONTROLS = {"random_": "random", "entropy_matched_": "entropy-matched", "shuffled_": "shuffled"}
RENAMED = {"due_to_training": "larger_than_in_controls"}


def main() -> None:
    """Print what differs; exit with 1 if anything does."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs=2, metavar="RUN", help="a name or a folder")
    folders = [find_run(name) for name in parser.parse_args().runs]
    differences = list(compare_runs(*folders))
    print("\n".join(differences) or f"all {len(read_models(folders[0]))} tables agree")
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


def compare_runs(first: Path, second: Path) -> Iterator[str]:
    """Yield a line for each difference of the tables of two runs."""
    before = read_models(first)
    after = read_models(second)
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
        size = f" by up to {difference:.2g} (tolerance {tolerance:.2g})" if difference < inf else ""
        yield f"{column} differs{size} in {rows} rows"


if __name__ == "__main__":
    main()
