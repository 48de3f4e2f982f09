"""The errors that a user can cause, each a single line that says what to do.

The command line prints them without a traceback and exits with status 2.
"""

from __future__ import annotations

from pathlib import Path


class InputError(ValueError):
    """Something the user gave cannot be used; the message says what, and what would work."""


class CorpusError(InputError):
    """A corpus file cannot be read; the message starts with the file and, if known, the line."""

    def __init__(self, path: str | Path, message: str, line: int | None = None) -> None:
        self.path, self.line = str(path), line
        place = f"{path}:{line}" if line is not None else f"{path}"
        self._arguments = path, message, line
        super().__init__(f"{place}: {message}")

    def __reduce__(self) -> tuple:
        return type(self), self._arguments  # so that it comes whole from a worker process


class ModelError(InputError):
    """A model cannot be loaded, or has no attention maps to give."""


class StoreError(InputError):
    """A folder of stored attention maps is damaged, or belongs to something else."""


class Interrupted(InputError):
    """Extraction was asked to stop; what is finished is kept."""


class MapError(InputError):
    """An attention map breaks the definition of one (NaN, negative, rows not summing to 1)."""

    def __init__(self, index: int, message: str) -> None:
        self.index = index
        self._arguments = index, message
        super().__init__(f"example {index}: {message}")

    def __reduce__(self) -> tuple:
        return type(self), self._arguments
