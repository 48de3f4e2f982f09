"""Tables on disk: those that took long, kept with everything that they depend on; those of a run.

What is kept depends on the code that computes it, too.  It is found by following names from the
function that computes a table: to the functions, classes and constants that it uses, in its own
module and in those that it imports from this package, and on from there.  Comments, docstrings and
the layout of the code do not count, nor does what the function never reaches.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from helpers.errors import InputError, TableError
from helpers.paths import broken_seals, cache_root, write_once, write_whole

PACKAGE = Path(__file__).resolve().parent
# files beside a module that its code names
DATA = (".csv", ".json", ".safetensors", ".tsv", ".txt")
# Settings, of which those that matter are in ``depends_on``, and what only calls from above.
NOT_FOLLOWED = ("helpers.study", "helpers.settings", "helpers.progress", "helpers.run")
# Read once: a file that is edited later is not what this process has imported.
SOURCES = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path.read_bytes()
    for path in sorted(PACKAGE.rglob("*.py"))
}
CAUSE = (
    "weights or hidden states that are not finite, or a damaged store: try --dtype float32, and "
    "'python -m helpers verify'"
)

Definitions = dict[str, list[ast.stmt]]
Found = tuple[str, str | None]  # a module and a name in it; None: the whole module


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


def code_of(function: Callable[..., Any]) -> str:
    """Return the function at the top of its module that a function is, or is written in."""
    function = getattr(function, "func", function)  # of a partial
    name, _, _ = function.__qualname__.partition(".")
    return f"{function.__module__.removeprefix('helpers.')}.{name}"


@cache
def code_digest(code: str) -> str:
    """Return the SHA-256 of a function and of all that it reaches in this package.

    LookupError where there is no such function.
    """
    module, _, name = f"helpers.{code}".rpartition(".")
    if name not in _definitions(module):
        raise LookupError(f"{code}: no such function in the package")
    digest = hashlib.sha256()
    for part in sorted(reached(module, name), key=str):
        digest.update(f"{part}\n{_text(*part)}\n".encode())
    return digest.hexdigest()


def reached(module: str, name: str) -> set[Found]:
    """Return the definitions that one definition reaches, itself included."""
    found: set[Found] = set()
    waiting: list[Found] = [(module, name)]
    while waiting:
        part = waiting.pop()
        if part not in found:
            found.add(part)
            waiting += _uses(*part)
    return found


def _uses(module: str, name: str | None) -> Iterator[Found]:
    """Yield the definitions of this package that one definition names."""
    own, imported = _definitions(module), _imports(module)
    for node in chain.from_iterable(map(ast.walk, _statements(module, name))):
        used: Iterable[Found] = ()
        if isinstance(node, ast.ImportFrom | ast.Import):  # an import inside a function
            used = _targets(node).values()
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            target, part = imported.get(node.value.id, ("", ""))
            used = [(target, node.attr)] if part is None else ()
        elif isinstance(node, ast.Name):
            found = (module, node.id) if node.id in own else imported.get(node.id, ("", None))
            used = [found] if found[1] is not None else ()
        for target, part in used:
            if target in SOURCES and not target.startswith(NOT_FOLLOWED):
                yield (target, part if part in _definitions(target) else None)


def _statements(module: str, name: str | None) -> list[ast.stmt]:
    own = _definitions(module)
    return own[name] if name is not None else list(chain.from_iterable(own.values()))


def _text(module: str, name: str | None) -> str:
    """Return what of a definition counts: its syntax tree, and the data files that it names."""
    parts = []
    for statement in _statements(module, name):
        parts.append(ast.dump(statement))
        for node in ast.walk(statement):
            if isinstance(node, ast.Constant) and str(node.value).endswith(DATA):
                file = PACKAGE.joinpath(*module.split(".")[1:-1], str(node.value))
                if file.is_file():
                    parts.append(hashlib.sha256(file.read_bytes()).hexdigest())
    return "\n".join(parts)


@cache
def _tree(module: str) -> ast.Module:
    """Return a module's syntax tree without docstrings."""
    tree = ast.parse(SOURCES[module])
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                node.body = node.body[1:]
    return tree


@cache
def _definitions(module: str) -> Definitions:
    """Return the statements that define each name at the top level of a module."""
    found: Definitions = {}
    for statement in _tree(module).body if module in SOURCES else []:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.setdefault(statement.name, []).append(statement)
        elif isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
            for node in ast.walk(statement):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    found.setdefault(node.id, []).append(statement)
    return found


@cache
def _imports(module: str) -> dict[str, Found]:
    """Return what the names that a module imports stand for."""
    nodes = ast.walk(_tree(module))
    imports = (node for node in nodes if isinstance(node, ast.ImportFrom | ast.Import))
    return {name: found for node in imports for name, found in _targets(node).items()}


def _targets(node: ast.ImportFrom | ast.Import) -> dict[str, Found]:
    found: dict[str, Found] = {}
    for alias in node.names:
        name = alias.asname or alias.name
        path = alias.name if isinstance(node, ast.Import) else f"{node.module}.{alias.name}"
        if isinstance(node, ast.Import) or path in SOURCES:
            found[name] = (path, None)
        else:
            found[name] = (node.module or "", alias.name)
    return found


def check_table(
    table: pd.DataFrame,
    name: str,
    *,
    special_tokens: Callable[[], Mapping[str, str | None]],
    optional: Collection[str] = (),
) -> None:
    """Refuse a table with a column of numbers that are infinite, or all missing.

    Missing may be what the paper does not say, intervals, p-values, ``optional`` columns, and
    those about [CLS] or [SEP] if the model, as ``special_tokens`` is then asked, has no such token.

    Raises:
        TableError: the message names table, column and likely cause.
    """
    for column in table.select_dtypes("float") if len(table) else ():
        values, parts = table[column], str(column).split("_")
        if np.isinf(values).any():
            raise TableError(f"{name}.csv: column {column} has infinite numbers; {CAUSE}")
        expected = column not in optional and parts[0] not in ("paper", "p")
        if values.isna().all() and expected and parts[-1] not in ("low", "high"):
            about = {"cls", "sep"}.intersection(parts)
            if not any(special_tokens().get(role) is None for role in about):
                raise TableError(f"{name}.csv: column {column} has no number; {CAUSE}")


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
