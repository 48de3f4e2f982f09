"""A finished run, as the pages read it from its folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pandas as pd

from helpers.errors import InputError
from helpers.metrics import rows_of_model
from helpers.results import read_tables, run_record
from helpers.settings import Settings

Tables = Mapping[str, pd.DataFrame]


@dataclass(frozen=True)
class Run:
    """The folder of a finished run, what its ``run.json`` says, and its tables by name."""

    folder: Path
    record: Mapping[str, Any]
    tables: Tables

    @property
    def name(self) -> str:
        """The name of the run and of its folder."""
        return self.folder.name

    @property
    def settings(self) -> dict[str, Any]:
        """The recorded settings, without those that this version does not have."""
        names = {field.name for field in fields(Settings)}
        recorded = self.record.get("settings", {})
        return {name: value for name, value in recorded.items() if name in names}


def open_run(folder: str | Path) -> Run:
    """Read a finished run from its folder.

    Parameters
    ----------
    folder : str or Path
        The folder with ``run.json`` and ``tables/``.

    Returns
    -------
    Run

    Raises
    ------
    InputError
        If no run has written the folder.
    """
    path = Path(folder).resolve()
    record = run_record(path)
    if not record:
        raise InputError(f"{folder}: not the folder of a run; 'python -m helpers run' makes one")
    return Run(path, record, read_tables(path))


def rows_of(tables: Tables, name: str, model: str = "trained") -> pd.DataFrame:
    """Select the rows of a model from a table; none if the run lacks the table."""
    return rows_of_model(tables.get(name, pd.DataFrame()), model)
