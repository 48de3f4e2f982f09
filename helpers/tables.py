"""Tables on disk: those that took long, kept with all that they depend on; those of a run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from helpers.code import code_digest, code_of
from helpers.errors import InputError, TableError, or_wider
from helpers.paths import broken_seals, cache_root, write_once, write_whole

MAY_BE_MISSING = ("paper", "p", "within", "between", "validation")  # what columns begin with
CAUSE = "weights or states that are not finite, or a damaged store: try 'python -m helpers verify'"


def cached_tables(
    name: str,
    compute: Callable[[], Mapping[str, pd.DataFrame]],
    *,
    depends_on: Mapping[str, Any],
    code: str = "",
) -> dict[str, pd.DataFrame]:
    """Return tables from the cache, or compute and keep them.

    ``name`` is what the folder in the cache starts with.  Its key is ``depends_on``, the store's
    key and the parameters, and ``code``, the function that the numbers come from, with everything
    that it reaches: ``module.function`` below ``helpers`` (``analysis.table3.table3``), or, left
    out, the function that ``compute`` is written in.
    """

    def write(folder: Path, tables: Mapping[str, pd.DataFrame]) -> None:
        for stem, table in tables.items():
            table.to_csv(folder / f"{stem}.csv", index=False)

    folder = _kept(name, compute, write, code or code_of(compute), depends_on)
    # Read back even what was just written, so that a first and a second run see the same bits.
    return {path.stem: read_exact(path) for path in sorted(folder.glob("*.csv"))}


def cached_table(
    name: str, compute: Callable[[], pd.DataFrame], *, depends_on: Mapping[str, Any], code: str = ""
) -> pd.DataFrame:
    """Return one table from the cache, or compute and keep it; see :func:`cached_tables`."""
    code = code or code_of(compute)
    return cached_tables(name, lambda: {name: compute()}, code=code, depends_on=depends_on)[name]


def cached_arrays(
    name: str,
    compute: Callable[[], Mapping[str, np.ndarray]],
    *,
    code: str,
    depends_on: Mapping[str, Any],
) -> dict[str, np.ndarray]:
    """Return named arrays from the cache, or compute and keep them; see :func:`cached_tables`."""

    def write(folder: Path, arrays: Mapping[str, np.ndarray]) -> None:
        np.savez(folder / "arrays.npz", **arrays)

    with np.load(_kept(name, compute, write, code, depends_on) / "arrays.npz") as arrays:
        return dict(arrays)


def cached_json(
    name: str, compute: Callable[[], Any], *, code: str, depends_on: Mapping[str, Any]
) -> Any:
    """Return a JSON value from the cache, or compute and keep it; see :func:`cached_tables`."""

    def write(folder: Path, value: Any) -> None:
        (folder / "value.json").write_text(json.dumps(value), encoding="utf-8")

    return json.loads((_kept(name, compute, write, code, depends_on) / "value.json").read_bytes())


def _kept(
    name: str,
    compute: Callable[[], Any],
    write: Callable[[Path, Any], None],
    code: str,
    depends_on: Mapping[str, Any],
) -> Path:
    """Return the folder of what is kept, computed and written unless it is there whole."""
    digest = hashlib.sha256(json.dumps(depends_on, sort_keys=True, default=str).encode())
    digest.update(code_digest(code).encode())
    folder = cache_root() / "derived" / f"{name}-{digest.hexdigest()[:16]}"
    if broken_seals(folder):
        found = compute()
        write_once(folder, lambda new: write(new, found))
    return folder


def read_exact(path: Path) -> pd.DataFrame:
    """Read a table with every bit of its numbers; only an empty field is a missing value."""
    return pd.read_csv(path, keep_default_na=False, na_values=[""])


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
    ``special_tokens`` is then asked, has no such token.

    Raises:
        TableError: the message names table, column and likely cause, for this ``dtype``.
    """
    cause = f"{CAUSE}{or_wider(dtype)}"
    for column in table.select_dtypes("float") if len(table) else ():
        values, parts = table[column], str(column).split("_")
        if np.isinf(values).any():
            raise TableError(f"{name}.csv: column {column} has infinite numbers; {cause}")
        expected = column not in optional and parts[0] not in MAY_BE_MISSING
        if values.isna().all() and expected and parts[-1] not in ("low", "high"):
            about = {"cls", "sep"}.intersection(parts)
            if not any(special_tokens().get(role) is None for role in about):
                raise TableError(f"{name}.csv: column {column} has no number; {cause}")


def write_table(table: pd.DataFrame, folder: Path, name: str, *, latex: bool = False) -> None:
    """Write ``folder/name.csv`` with six digits, and with ``latex`` ``name.tex`` with about three.

    StoreError where the folder cannot be written to.
    """
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

    They are those that ``run.json`` lists, and ``written``, what was just now; all of the folder
    where the notebooks were run one by one.  InputError where a table cannot be read.
    """
    own = listed(results, "tables")
    found = {}
    for path in sorted((results / "tables").glob("*.csv")):
        if own is None or path.stem in own.union(written):
            try:
                found[path.stem] = pd.read_csv(path)
            except ValueError as error:
                problem = str(error).splitlines()[0]
                raise InputError(
                    f"{path}: not a table ({problem}); run the notebook again"
                ) from error
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
