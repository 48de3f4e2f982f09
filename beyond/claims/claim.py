"""Claims: what a paper says, as a sentence that the tables of a run can be tested for.

Everything about a claim stands in a TOML file, under the claim's id: for the paper in
``claims.toml`` in this folder, for a later paper in ``claims.toml`` in its folder.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from beyond.claims.estimates import TestedEstimate
from beyond.claims.tables import Tables

SIGNS = {"plus": 1, "minus": -1}  # between the names of the paper's numbers
MAX_DECIMALS = 6  # of the paper's numbers: 94.3 minus 51.7 is 42.6, not 42.599999999999994


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A statement of a paper, the cell of a table that it is tested on, and a threshold.

    Parameters
    ----------
    id
        The name by which tests and comparisons refer to the claim, such as "sec3-cls-early".
    family
        The claims whose p-values are adjusted together: a section of the paper, or a later paper.
    section
        Section of the paper, or the name of a later paper and its section.
    statement
        The statement in words.
    how_measured
        Description of the number and the threshold.
    unit
        What the number is, such as "percentage points".
    table, where, column
        The cell: the first row of the table that has the values ``where`` (a list is any of them).
    only_if
        A condition on the columns of this row, as for `DataFrame.query`, without which the number
        could not have been seen.
    distance_from
        A number.  The claim is about the distance from it, in either direction.
    measure
        A function of a model's tables, for a number that is not a cell.
    above, below
        The threshold, as one of the two; the claim holds on that side of it.  A number, or the name
        of a quantity in layer_summary.csv.
    threshold_source
        Whether the threshold is the paper's or ours.
    paper
        The paper's number.
    about_training
        Whether the claim is about training, and therefore compared with controls.  It is not if
        the comparison would be true by construction.
    shows_controls
        Whether the numbers of controls are shown.
    limits
        The least and the largest number that is possible, such as 0 and 1 for a share, if the
        number is near one of them.
    """

    id: str
    family: str
    section: str
    statement: str
    how_measured: str
    unit: str
    table: str = ""
    where: Mapping[str, Any] = field(default_factory=dict)
    column: str = "value"
    only_if: str = ""
    distance_from: float | None = None
    measure: Callable[[Tables], TestedEstimate] | None = None
    above: float | str | None = None
    below: float | str | None = None
    threshold_source: Literal["paper", "ours"] = "ours"
    paper: float = np.nan
    about_training: bool = False
    shows_controls: bool = True
    limits: tuple[float, float] = (-np.inf, np.inf)

    def __post_init__(self) -> None:
        if (self.above is None) == (self.below is None):
            raise ValueError(f"claim {self.id}: give either 'above' or 'below', the threshold")
        if bool(self.table) == bool(self.measure):
            raise ValueError(f"claim {self.id}: give either a table or a measure")

    @property
    def sign(self) -> Literal[1, -1]:
        """1 if the claim holds above its threshold, and -1 if it holds below."""
        return 1 if self.below is None else -1


def read_claims(
    path: Path,
    measures: Mapping[str, Callable[[Tables], TestedEstimate]] | None = None,
    *,
    paper_numbers: Mapping[str, float] | None = None,
) -> list[Claim]:
    """Read the claims of a file, in its order.

    Parameters
    ----------
    path
        A TOML file with a table for each claim: its id, and the fields of `Claim`.
    measures
        Functions by the id of the claim, for those whose number is not a cell.
    paper_numbers
        Numbers that the paper prints, by name.  The field ``paper`` of a claim may name one, or
        several with "plus" and "minus" between them.
    """
    declared = tomllib.loads(path.read_text(encoding="utf-8"))
    unknown = set(measures or {}) - set(declared)
    if unknown:
        raise ValueError(f"{path}: measures without a claim: {', '.join(sorted(unknown))}")
    claims = []
    for claim_id, fields in declared.items():
        for name in ("statement", "how_measured"):
            fields[name] = " ".join(fields[name].split())
        if "limits" in fields:
            fields["limits"] = tuple(map(float, fields["limits"]))
        if isinstance(fields.get("paper"), str):
            fields["paper"] = add_up(fields["paper"], paper_numbers or {})
        claims.append(Claim(id=claim_id, measure=(measures or {}).get(claim_id), **fields))
    return claims


def add_up(formula: str, numbers: Mapping[str, float]) -> float:
    """Add and subtract numbers by name, as in "table3.Attn minus table3.Right-branching"."""
    first, *operations = re.split(r" (plus|minus) ", formula)
    total = numbers[first]
    for operator, name in zip(operations[::2], operations[1::2], strict=True):
        total += SIGNS[operator] * numbers[name]
    return round(float(total), MAX_DECIMALS)
