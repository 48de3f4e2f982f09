"""What took long, kept with all that it depends on, the code included.

The code is found by following names from the function that computes: to the functions, classes and
constants that it uses, in its own module and in those that it imports from this package, and on
from there; from a class also to the functions of its module that return it.  Comments, docstrings
and the layout of the code do not count, nor do the words of messages, nor does what is never
reached.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from helpers.paths import broken_seals, cache_root, write_once

PACKAGE = Path(__file__).resolve().parent
# files beside a module that its code names
DATA = (".csv", ".json", ".safetensors", ".tsv", ".txt")
# Settings, of which those that matter are in ``depends_on``; what only calls from above; and what
# shows, words or keeps numbers but computes none.
NOT_FOLLOWED = (
    "helpers.cache", "helpers.errors", "helpers.paths", "helpers.run", "helpers.settings",
    "helpers.sources", "helpers.store.format", "helpers.study", "helpers.work",
)  # fmt: skip
# What shows how work goes on; so many of its arguments are the work.
SHOW = {"progress": 1, "run_jobs": 2}
# Read once: a file that is edited later is not what this process has imported.
SOURCES = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path.read_bytes()
    for path in sorted(PACKAGE.rglob("*.py"))
}

ARRAYS, VALUE = "arrays.npz", "value.json"  # files of what is kept; tables have their names

Kept = TypeVar("Kept")
Definitions = dict[str, list[ast.stmt]]
Found = tuple[str, str | None]  # a module and a name in it; None: the whole module


def cached(
    name: str, compute: Callable[[], Kept], *, depends_on: Mapping[str, Any], code: str = ""
) -> Kept:
    """Return a table, tables or arrays by name, or a JSON value from the cache, or compute it.

    Its folder's name starts with ``name``.  Its key is ``depends_on``, the store's key and the
    parameters, and ``code``, the function that the numbers come from, with all that it reaches:
    ``analysis.table3.table3``, or, left out, the function that ``compute`` is written in.  What was
    just written is read back, so that a first and a second run see the same bits.
    """
    digest = hashlib.sha256(json.dumps(depends_on, sort_keys=True, default=str).encode())
    digest.update(code_digest(code or code_of(compute)).encode())
    folder = cache_root() / "derived" / f"{name}-{digest.hexdigest()[:16]}"
    if broken_seals(folder):
        found = compute()
        write_once(folder, lambda new: _write(new, name, found))
    return _read(folder, name)


def _write(folder: Path, name: str, found: Any) -> None:
    parts = {name: found} if isinstance(found, pd.DataFrame) else found
    kinds = set(map(type, parts.values())) if isinstance(parts, Mapping) else set()
    if pd.DataFrame in kinds:
        for stem, table in parts.items():
            table.to_csv(folder / f"{stem}.csv", index=False)
    elif np.ndarray in kinds:
        np.savez(folder / ARRAYS, **parts)
    else:
        (folder / VALUE).write_text(json.dumps(parts), encoding="utf-8")


def _read(folder: Path, name: str) -> Any:
    if (path := folder / ARRAYS).is_file():
        with np.load(path) as arrays:
            return dict(arrays)
    if (path := folder / VALUE).is_file():
        return json.loads(path.read_bytes())
    tables = {path.stem: read_exact(path) for path in sorted(folder.glob("*.csv"))}
    return tables[name] if tables.keys() == {name} else tables


def read_exact(path: Path) -> pd.DataFrame:
    """Read a table with every bit of its numbers; only an empty field is a missing value."""
    return pd.read_csv(path, keep_default_na=False, na_values=[""])


def code_of(function: Callable[..., Any]) -> str:
    """Return the function at the top of its module that a function is, or is written in."""
    function = getattr(function, "func", function)  # of a partial
    name, _, _ = function.__qualname__.partition(".")
    return f"{str(function.__module__).removeprefix('helpers.')}.{name}"


@cache
def code_digest(*codes: str) -> str:
    """Return the SHA-256 of functions and of all that they reach; LookupError where one is none."""
    parts: set[Found] = set()
    for code in codes:
        if not in_package(code):
            raise LookupError(f"{code}: no such function in the package")
        module, _, name = f"helpers.{code}".rpartition(".")
        parts |= reached(module, name)
    digest = hashlib.sha256()
    for part in sorted(parts, key=str):
        digest.update(f"{part}\n{_text(*part)}\n".encode())
    return digest.hexdigest()


def in_package(code: str) -> bool:
    """Return whether a function of this name is the package's own, and no user's."""
    module, _, name = f"helpers.{code}".rpartition(".")
    return name in _definitions(module)


def reached(module: str, name: str) -> set[Found]:
    """Return the definitions that one definition reaches, itself included."""
    found, waiting = set(), [(module, name)]
    while waiting:
        part = waiting.pop()
        if part not in found:
            found.add(part)
            waiting += _uses(*part)
    return found


def _uses(module: str, name: str | None) -> Iterator[Found]:
    """Yield the definitions of this package that one definition names."""
    own, imported = _definitions(module), _imports(module)
    if name and isinstance(own[name][0], ast.ClassDef):  # what makes an object is a part of it
        for maker, (statement, *_) in own.items():
            made = getattr(statement, "returns", None)
            if isinstance(made, ast.Name) and made.id == name:
                yield module, maker
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
    """Return a module's syntax tree without docstrings, messages and labels of progress."""
    tree = ast.parse(SOURCES[module])
    nodes = list(ast.walk(tree))
    for node in nodes:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                node.body = node.body[1:]
        elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            node.exc.args, node.exc.keywords = [], []
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in SHOW:
            node.args, node.keywords = node.args[: SHOW[ast.unparse(node.func)]], []
    names = (node for node in ast.walk(tree) if isinstance(node, ast.Name))
    read = {node.id for node in names if isinstance(node.ctx, ast.Load)}
    for node in nodes:
        if (  # a message or label that is put together before
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.JoinedStr)
            and not read.intersection(map(ast.unparse, node.targets))
            and node not in tree.body
        ):
            node.value = ast.Constant("")
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


# Modules that cannot change a number: they run notebooks, name files, word messages, draw bars.
WITHOUT_NUMBERS = ("helpers.run", "helpers.errors", "helpers.work", "helpers.paths")


@cache
def package_digest() -> str:
    """Compute the SHA-256 of the package's code, without docstrings and comments."""
    digest = hashlib.sha256()
    for module, source in sorted(SOURCES.items()):
        if not module.startswith(WITHOUT_NUMBERS):
            digest.update(f"{module}\n{ast.dump(_without_docstrings(source))}\n".encode())
    return digest.hexdigest()


def _without_docstrings(source: bytes) -> ast.Module:
    tree = ast.parse(source)
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for node in ast.walk(tree):
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:]
    return tree
