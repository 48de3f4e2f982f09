"""Errors that a user can cause, each a single line with the problem and the remedy.

The command line prints them without a traceback and exits with status 2.
"""

from __future__ import annotations

from pathlib import Path


def one_line(text: str) -> str:
    """Escape characters that cannot be printed."""
    escaped = [
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    ]
    return "".join(escaped)


class InputError(ValueError):
    """An input of the user cannot be used; the message names the input and the remedy."""


class CorpusError(InputError):
    """A corpus file cannot be read; the message starts with the file and, if known, the line.

    The message is shown in one line.  What it quotes from the file is short, as from
    `helpers.data.text_files.quoted`.
    """

    def __init__(self, path: str | Path, message: str, line: int | None = None) -> None:
        # An error is sent from a worker process as its arguments.
        super().__init__(path, message, line)
        self.line = line

    def __str__(self) -> str:
        path, message, line = self.args
        location = path if line is None else f"{path}:{line}"
        return f"{location}: {one_line(message)}"


class ModelError(InputError):
    """A model cannot be loaded, or gives no attention maps."""


class StoreError(InputError):
    """A folder of stored attention maps is damaged or incomplete, or is of another model."""
