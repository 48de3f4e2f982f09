"""Labelled texts: the tab-separated files of the parameter ``task``.

A line is ``sentence<TAB>label`` or ``sentence<TAB>sentence<TAB>label``.  With a header, columns are
found by name, in any order and next to other columns.  A message names the columns that are
read.  The files of GLUE can be read as they are (their ``test.tsv`` has no labels, so use
``dev.tsv``), and so can those of CoLA, which have no header.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from helpers.data.text_files import lines, one_line, quoted
from helpers.errors import CorpusError

# Names in headers, in the order in which they are tried.
FIRST_TEXT_NAMES = (
    "sentence1",
    "question1",
    "question",
    "#1 string",
    "sentence",
    "premise",
    "text",
)
SECOND_TEXT_NAMES = ("sentence2", "question2", "#2 string", "sentence", "hypothesis")
LABEL_NAMES = ("gold_label", "label", "is_duplicate", "quality", "labels", "class")
EXPECTED = "expected sentence<TAB>label or sentence<TAB>sentence<TAB>label"

MAX_DAMAGED_SHARE = 0.01  # a file with more damaged lines per example has another format


class LabelledText(NamedTuple):
    """A line of a file: its number, one text or two, and the name of the label."""

    line: int
    texts: list[str]
    label: str


def read_labelled(path: Path) -> list[LabelledText]:
    """Read the labelled texts of a file, which may be packed with gzip or bzip2.

    Empty lines are skipped.  So are damaged ones, and a message counts them.

    Raises
    ------
    CorpusError
        If the file has no label, an unknown header, or too many damaged lines
        (`MAX_DAMAGED_SHARE`); the message names the line.
    """
    columns = []
    width = 0
    is_header = False
    examples = []
    damaged = []  # numbers of lines
    for number, line in lines(path):
        cells = [one_line(cell) for cell in line.split("\t")]
        if not any(cells):
            continue
        if not columns:
            width = len(cells)
            columns, is_header = _find_columns(path, number, cells)
            *texts, label = [f"column {column + 1} ({quoted(cells[column])})" for column in columns]
            print(f"{path.name}: the text is {' and '.join(texts)}, the label {label}")
            if is_header:
                continue
        if len(cells) != width or not all(cells[column] for column in columns):
            damaged.append(number)
            continue
        *texts, label = [cells[column] for column in columns]
        examples.append(LabelledText(number, texts, label))
    if len(damaged) > MAX_DAMAGED_SHARE * len(examples):
        problem = f"not {width} columns as in the first line, or a text or the label is empty"
        raise CorpusError(path, f"{problem}; {EXPECTED}", damaged[0])
    if not examples:
        raise CorpusError(path, f"no examples; {EXPECTED}")
    labels = {example.label for example in examples[1:]}
    if not is_header and 1 < len(labels) <= len(examples) // 2 and examples[0].label not in labels:
        problem = (
            f"only this line has the label {quoted(examples[0].label)}, as if it were a header"
        )
        remedy = "call the columns text and label, or remove the line"
        raise CorpusError(path, f"{problem}; {remedy}", examples[0].line)
    if damaged:
        counted = f"{len(damaged)} damaged lines are skipped, the first is line {damaged[0]}"
        print(f"{path}: {counted}", file=sys.stderr)
    return examples


def _find_columns(path: Path, number: int, cells: Sequence[str]) -> tuple[list[int], bool]:
    """Find the columns of the texts and the label (last), and whether the line is a header."""
    names = [cell.lower() for cell in cells]
    columns = []
    for candidates in (FIRST_TEXT_NAMES, SECOND_TEXT_NAMES, LABEL_NAMES):
        present = [name for name in candidates if name in names]
        if present:
            column = names.index(present[0])
            names[column] = ""  # two columns may both be called "sentence"
            columns.append(column)
        elif not columns:
            break  # a header names a text
    if columns:
        if not present:  # of the labels, which are last
            problem = f"the header names no label ({', '.join(LABEL_NAMES)})"
            remedy = "GLUE's test.tsv has none, so use dev.tsv; scores, as in STS-B, are no labels"
            raise CorpusError(path, f"{problem}; {remedy}", number)
        return columns, True
    if len(cells) == 4 and cells[1] in ("0", "1") and cells[2] in ("", "*"):
        return [3, 1], False  # CoLA
    if len(cells) not in (2, 3):
        raise CorpusError(path, f"{len(cells)} columns; {EXPECTED}, or a header", number)
    return list(range(len(cells))), False
