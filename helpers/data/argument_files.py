"""The tab-separated files of arguments: those of ARCT, and the published adversarial ones."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from helpers.data.text import existing_file, lines, one_line, quoted
from helpers.errors import CorpusError

SPLITS = ("train", "dev", "test")
REQUIRED = ("#id", "warrant0", "warrant1", "correctLabelW0orW1", "reason", "claim")


@dataclass(frozen=True, slots=True)
class Argument:
    """A claim, its reason, two warrants, and which of them is right (``label`` 0 or 1).

    ``negated_claim`` is empty where the corpus does not give it.  An ``adversarial`` argument
    has the id of its original with ``-adversarial`` after it.
    """

    id: str
    claim: str
    reason: str
    warrant0: str
    warrant1: str
    label: int
    split: str
    negated_claim: str = ""
    adversarial: bool = False

    @property
    def warrants(self) -> tuple[str, str]:
        """Both warrants, in the order that the label counts."""
        return self.warrant0, self.warrant1


def read_arguments(path: str | Path, *, split: str = "") -> Iterator[Argument]:
    """Yield the arguments of a file, tab-separated with a header.

    A ``.csv`` file is read with CSV quoting; in any other a quotation mark is text, as in ARCT.
    Columns: ``#id``, ``warrant0``, ``warrant1``, ``correctLabelW0orW1``, ``reason``, ``claim``,
    in any order, and if there are ``negatedClaim``, ``adversarial`` (True or False) and
    ``split``, which ``split`` stands in for; others are ignored.

    Raises:
        CorpusError: with the line, for a column or a value that is missing, a label other than 0
            and 1, an id that comes twice, or two equal warrants.
    """
    path = existing_file(path)
    rows = _rows(path)
    _, header = next(rows, (1, []))
    if missing := [column for column in REQUIRED if column not in header]:
        expected = "expected a tab-separated header with " + ", ".join(REQUIRED)
        raise CorpusError(path, f"no column {', '.join(missing)}; {expected}", 1)
    seen: set[str] = set()
    for line, cells in rows:
        if len(cells) != len(header):
            message = f"{len(cells)} columns where the header has {len(header)}"
            raise CorpusError(path, f"{message}; check for a stray tab or quotation mark", line)
        row = {column: one_line(cell) for column, cell in zip(header, cells, strict=True)}
        _check(path, line, row, seen)
        yield Argument(
            id=row["#id"],
            claim=row["claim"],
            reason=row["reason"],
            warrant0=row["warrant0"],
            warrant1=row["warrant1"],
            label=int(row["correctLabelW0orW1"]),
            split=row.get("split") or split,
            negated_claim=row.get("negatedClaim", ""),
            adversarial=row.get("adversarial") == "True",
        )
    if not seen:
        raise CorpusError(path, "no argument after the header")


def _check(path: Path, line: int, row: dict[str, str], seen: set[str]) -> None:
    if empty := [column for column in REQUIRED if not row[column]]:
        raise CorpusError(path, f"empty {', '.join(empty)}; every argument needs them", line)
    if row["correctLabelW0orW1"] not in ("0", "1"):
        label = quoted(row["correctLabelW0orW1"])
        raise CorpusError(path, f"label {label}; expected 0 or 1, the right warrant", line)
    if row.get("adversarial", "True") not in ("True", "False"):
        value = quoted(row["adversarial"])
        raise CorpusError(path, f"adversarial is {value}; expected True or False", line)
    if row.get("split", SPLITS[0]) not in SPLITS:
        message = f"split {quoted(row['split'])}; expected {', '.join(SPLITS)}"
        raise CorpusError(path, message, line)
    if row["warrant0"] == row["warrant1"]:
        raise CorpusError(path, "both warrants are the same; one must be wrong", line)
    if row["#id"] in seen:
        raise CorpusError(path, f"id {quoted(row['#id'])} comes twice; give each its own", line)
    seen.add(row["#id"])


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the line on which a row ends, and its cells; blank lines are skipped."""
    by_csv = {"quoting": csv.QUOTE_MINIMAL, "strict": True}
    by_tabs = {"quoting": csv.QUOTE_NONE}
    style = by_csv if stem_and_suffix(path)[1] == ".csv" else by_tabs
    reader = csv.reader((line for _, line in lines(path)), delimiter="\t", **style)
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            message = f"not tab-separated text ({error}); check the quotation marks"
            raise CorpusError(path, message, reader.line_num) from error
        if any(cells):
            yield reader.line_num, cells


def stem_and_suffix(path: Path) -> tuple[str, str]:
    """Return a file's name in two, without the suffix of its compression."""
    plain = Path(path.name.removesuffix(".gz").removesuffix(".bz2"))
    return plain.stem, plain.suffix
