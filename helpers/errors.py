"""The errors that a user can cause, each a single line that says what to do.

The command line prints them without a traceback and exits with status 2.
"""

from __future__ import annotations

from pathlib import Path


def or_wider(dtype: object) -> str:
    """Return the advice to compute in float32, where a run does not."""
    return "" if str(dtype).endswith("float32") else ", or --dtype float32"


class InputError(ValueError):
    """Something the user gave cannot be used; the message says what, and what would work."""


class CorpusError(InputError):
    """A corpus file cannot be read; the message starts with the file and, if known, the line."""

    def __init__(self, path: str | Path, message: str, line: int | None = None) -> None:
        super().__init__(path, message, line)  # so that it comes whole from a worker process
        self.path, self.line = str(path), line

    def __str__(self) -> str:
        place = self.path if self.line is None else f"{self.path}:{self.line}"
        return f"{place}: {self.args[1]}"


class ModelError(InputError):
    """A model cannot be loaded, or has no attention maps to give."""


class TableError(InputError):
    """A table to be saved lacks numbers that it should have."""


class StoreError(InputError):
    """A folder of stored attention maps is damaged, or belongs to something else."""


class MapError(InputError):
    """An attention map breaks the definition of one (NaN, negative, rows not summing to 1)."""
