"""Claims: what a paper says, as a sentence that the tables of a run can be tested for.

Everything that is said about a claim stands in a TOML file, under the claim's id: for the paper in
``claims.toml`` in this folder, for a later paper in the same form in ``studies/claims/``.  The
functions that measure claims are in Python modules beside it, which have a dictionary ``MEASURES``
from ids to functions.  `read_claims` brings the two together.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args

import numpy as np

from beyond.claims.tables import Measure, Tables

Threshold = float | Callable[[Tables], float]
# "share of heads" and "share of layers" are shown as counts, such as "70 of 72 heads".
Unit = Literal[
    "share", "share of heads", "share of layers", "ratio", "percent", "percentage points",
    "relations", "nats", "degrees", "correlation", "similarity",
]  # fmt: skip
SIGNS = {"plus": 1, "minus": -1}  # between the names of the paper's numbers
MAX_DECIMALS = 6  # of the paper's numbers: 94.3 minus 51.7 is 42.6, not 42.599999999999994


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A statement of a paper with its measure and its threshold.

    Parameters
    ----------
    id
        The name by which tests, notebooks and comparisons refer to the claim, such as
        "sec3-cls-early".
    family
        The claims whose p-values are adjusted together: a section of the paper, or a later paper.
    section
        Section of the paper, or the name of a later paper and its section.
    statement
        The statement in words.
    measure
        Function of a run's tables.  It returns an `Estimate`, which has an interval where the text
        is a sample and is `exact` for a count, or raises `NotMeasurable` with the reason.
    how_measured
        Description of the measure and the threshold.
    unit
        What the number is, see `Unit`.
    above, below
        The threshold, as one of the two; the claim holds on that side of it.  A number, or a
        function of a run's tables, which may raise `NotMeasurable`.
    threshold_source
        Whether the threshold is the paper's ("paper") or "ours".
    paper
        The paper's number.
    about_training
        Whether the claim is about training, and therefore compared with controls.  It is not if
        the comparison would be true by construction.
    shows_controls
        Whether the numbers of the controls are shown.  They are not if they mean nothing, because
        the claim is itself about random weights.
    limits
        The least and the largest number that is possible, such as 0 and 1 for a share, if the
        number is near one of them.  The adjusted interval does not pass them.
    is_exploratory
        Whether the number is shown and not tested, because another claim asks the same question.

    Raises
    ------
    ValueError
        If there is no threshold, or one on either side; if the unit or the source of the threshold
        is unknown; or if a claim about training hides the numbers of its controls.
    """

    id: str
    family: str
    section: str
    statement: str
    measure: Measure
    how_measured: str
    unit: Unit
    above: Threshold | None = None
    below: Threshold | None = None
    threshold_source: Literal["paper", "ours"] = "ours"
    paper: float = np.nan
    about_training: bool = False
    shows_controls: bool = True
    limits: tuple[float, float] = (-np.inf, np.inf)
    is_exploratory: bool = False

    def __post_init__(self) -> None:
        if (self.above is None) == (self.below is None):
            raise ValueError(f"claim {self.id}: give either 'above' or 'below', the threshold")
        if self.unit not in get_args(Unit):
            raise ValueError(
                f"claim {self.id}: unit {self.unit!r}; expected one of {', '.join(get_args(Unit))}"
            )
        if self.about_training and not self.shows_controls:
            raise ValueError(
                f"claim {self.id}: about_training needs the numbers of the controls, but "
                "shows_controls is false"
            )
        if self.threshold_source not in ("paper", "ours"):
            raise ValueError(
                f"claim {self.id}: threshold_source {self.threshold_source!r}; expected 'paper' or "
                "'ours'"
            )

    @property
    def threshold(self) -> Threshold:
        """The number, or the function of tables, that is to be passed."""
        threshold = self.above if self.below is None else self.below
        return cast("Threshold", threshold)  # one of them is given

    @property
    def sign(self) -> Literal[1, -1]:
        """1 if the claim holds above its threshold, and -1 if it holds below."""
        return 1 if self.below is None else -1


def read_claims(
    path: Path,
    measures: Mapping[str, Measure],
    *,
    thresholds: Mapping[str, Callable[[Tables], float]] | None = None,
    paper_numbers: Mapping[str, float] | None = None,
) -> list[Claim]:
    """Read the claims of a file, and give each its measure.

    Parameters
    ----------
    path
        A TOML file with a table for each claim: its id, and the fields of `Claim` except the
        measure.
    measures
        The measures by the id of the claim.
    thresholds
        Functions that compute a threshold from the tables of a run, by the name that the file has
        in place of the number.
    paper_numbers
        Numbers that the paper prints, by name.  The field ``paper`` of a claim may name one, or
        several with "plus" and "minus" between them.

    Returns
    -------
    list of Claim
        The claims in the order of the file.

    Raises
    ------
    ValueError
        If a claim has no measure, or a measure no claim; if a field, or a name of a threshold or
        of a number, is unknown.
    """
    declared = tomllib.loads(path.read_text(encoding="utf-8"))
    for problem, ids in (
        ("claims without a measure", declared.keys() - measures.keys()),
        ("measures without a claim", measures.keys() - declared.keys()),
    ):
        if ids:
            raise ValueError(f"{path}: {problem}: {', '.join(sorted(ids))}")
    claims = []
    for claim_id, fields in declared.items():
        try:
            values = _convert(fields, thresholds or {}, paper_numbers or {})
            claims.append(Claim(id=claim_id, measure=measures[claim_id], **values))
        except (TypeError, ValueError) as error:  # TypeError: a field is missing or unknown
            raise ValueError(f"{path}: claim {claim_id}: {error}") from error
    return claims


def _convert(
    fields: Mapping[str, Any],
    thresholds: Mapping[str, Callable[[Tables], float]],
    paper_numbers: Mapping[str, float],
) -> dict[str, Any]:
    """Replace names of thresholds and of the paper's numbers, and join the lines of long texts."""
    values = {}
    for name, value in fields.items():
        is_text = isinstance(value, str)
        if name in ("above", "below"):
            values[name] = _look_up(value, thresholds) if is_text else float(value)
        elif name == "paper":
            values[name] = add_up(value, paper_numbers) if is_text else float(value)
        elif name == "limits":
            values[name] = tuple(map(float, value))
        else:
            values[name] = " ".join(value.split()) if is_text else value
    return values


def add_up(formula: str, numbers: Mapping[str, float]) -> float:
    """Add and subtract numbers by name, as in "table3.Attn minus table3.Right-branching"."""
    first, *operations = re.split(r" (plus|minus) ", formula)
    total = _look_up(first, numbers)
    for operator, name in zip(operations[::2], operations[1::2], strict=True):
        total += SIGNS[operator] * _look_up(name, numbers)
    return round(float(total), MAX_DECIMALS)


def _look_up(name: str, by_name: Mapping[str, Any]) -> Any:
    """Look up a threshold or a number; ValueError if there is none of that name."""
    if name not in by_name:
        raise ValueError(f"{name!r} is not among the names {', '.join(by_name) or '(none)'}")
    return by_name[name]
