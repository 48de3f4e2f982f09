"""Errors that a user can cause, each a single line with the problem and the remedy.

The command line prints them without a traceback and exits with status 2.
"""

from __future__ import annotations

from pathlib import Path

MAX_CHARACTERS = 280  # of a message about a corpus


def one_line(message: str) -> str:
    """Escape characters that cannot be printed, and leave out the middle of a long message."""
    escaped = [
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in message
    ]
    message = "".join(escaped)
    if len(message) <= MAX_CHARACTERS:
        return message
    half = MAX_CHARACTERS // 2  # the problem stands at the start, the remedy at the end
    return f"{message[:half]} ... {message[-half:]}"


class InputError(ValueError):
    """An input of the user cannot be used; the message names the input and the remedy."""


class CorpusError(InputError):
    """A corpus file cannot be read; the message starts with the file and, if known, the line.

    The message may quote the file: it is shown in one line, and not too long a one.
    """

    def __init__(self, path: str | Path, message: str, line: int | None = None) -> None:
        # An error is sent from a worker process as its arguments.
        super().__init__(path, message, line)
        self.path = str(path)
        self.message = message
        self.line = line

    def __str__(self) -> str:
        location = self.path if self.line is None else f"{self.path}:{self.line}"
        return f"{location}: {one_line(self.message)}"


class ModelError(InputError):
    """A model cannot be loaded, or gives no attention maps."""


class StoreError(InputError):
    """A folder of stored attention maps is damaged or incomplete, or is of another model."""
