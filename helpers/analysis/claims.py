"""The papers' statements as checks: what they say, what is measured here, and what that proves.

Every claim is computed from the tables of a run; none is typed in.  A claim whose tables a run
does not have, or whose quantity this model does not have, is not measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np
import pandas as pd

from helpers.analysis.statistics import Estimate

Verdict = Literal["yes", "no", "cannot be told", "no evidence", "not measured"]

YES, NO, CANNOT_BE_TOLD, NO_EVIDENCE, NOT_MEASURED = get_args(Verdict)
CONTROL = "control_"  # before the name of a table: the same of the model with random weights
COLUMNS = (
    "section", "claim", "paper_value", "here", "ci_low", "ci_high", "threshold", "control",
    "holds", "how_measured",
)  # fmt: skip

Tables = Mapping[str, pd.DataFrame]
Measure = Callable[[Tables], float | Estimate]


class NotMeasurable(LookupError):
    """The run has no table, row or column that a claim needs."""


@dataclass(frozen=True)
class Claim:
    """A statement of a paper, how it is measured, and when it holds.

    ``measure`` takes the tables of a run and returns a number, or an `Estimate` where the text
    is a sample.  The claim holds where the number is above or ``below`` (``bound``) the
    ``threshold``, a number or a function of the tables; ``how`` says where that comes from.
    Where an interval contains the threshold, it cannot be told.  Either may raise `NotMeasurable`.
    ``paper`` is the paper's own number, where it gives one.
    """

    section: str
    statement: str
    how: str
    bound: Literal["above", "below"]
    threshold: float | Callable[[Tables], float]
    measure: Measure
    paper: float = np.nan


def read_claims(
    path: Path,
    measures: Mapping[str, Measure],
    thresholds: Mapping[str, Callable[[Tables], float]] | None = None,
) -> list[Claim]:
    """Return the claims of a CSV file: what they say there, and by their ids what measures them.

    Columns: id, section, statement, how, bound ("above" or "below"), threshold (empty where
    ``thresholds`` has a function of that id), paper, source (where the paper has its number).

    Raises:
        ValueError: the file and the functions do not have the same ids.
    """
    rows = pd.read_csv(path, dtype={"section": str}, index_col="id").drop(columns="source")
    computed, thresholds = rows.index[rows["threshold"].isna()], thresholds or {}
    if odd := (set(rows.index) ^ set(measures)) | (set(computed) ^ set(thresholds)):
        raise ValueError(f"{path}: a row without its function, or the other way round: {odd}")
    functions = {name: {"measure": measures[name]} for name in rows.index}
    for name in thresholds:
        functions[name]["threshold"] = thresholds[name]
    return [Claim(**row | functions[name]) for name, row in rows.to_dict("index").items()]


class Judgement(NamedTuple):
    """What a claim measures in a run, and what that says."""

    here: Estimate
    threshold: float
    verdict: Verdict


def check_claims(tables: Tables, claims: Iterable[Claim]) -> pd.DataFrame:
    """Return claims.csv: a row a claim, with the columns `COLUMNS`.

    ``tables`` maps the names of a run's tables ("token_types", ...) to the tables; those of the
    same model with random weights begin with `CONTROL`.  A claim that holds of these too is "no
    evidence" of what the model has learned.
    """
    control = {
        name.removeprefix(CONTROL): tables[name] for name in tables if name.startswith(CONTROL)
    }
    rows = []
    for claim in claims:
        found, random = judge(claim, tables), judge(claim, control)
        verdict = NO_EVIDENCE if found.verdict == random.verdict == YES else found.verdict
        numbers = claim.paper, *found.here, found.threshold, random.here.value
        rows.append((claim.section, claim.statement, *numbers, verdict, claim.how))
    return pd.DataFrame(rows, columns=COLUMNS).astype(dict.fromkeys(COLUMNS[2:8], float))


def with_later(paper: pd.DataFrame, later: pd.DataFrame) -> pd.DataFrame:
    """Return the paper's claims, unless none of them is measured, and the later ones that are."""
    own = [paper] if (paper["holds"] != NOT_MEASURED).any() else []
    return pd.concat([*own, later[later["holds"] != NOT_MEASURED]])


def judge(claim: Claim, tables: Tables) -> Judgement:
    """Return what a claim measures in a run, and whether it holds, no control looked at."""
    try:
        found = claim.measure(tables)
        threshold = claim.threshold(tables) if callable(claim.threshold) else claim.threshold
    except NotMeasurable:
        found = threshold = np.nan
    here = found if isinstance(found, Estimate) else Estimate(found)
    if np.isnan([here.value, threshold]).any():
        return Judgement(Estimate(np.nan), np.nan, NOT_MEASURED)
    low, high = here[1:] if here is found else (found, found)
    low, high = low - threshold, high - threshold
    if claim.bound == "below":
        low, high = -high, -low
    # An interval without bounds contains every threshold.
    verdict = YES if low > 0 else NO if high <= 0 else CANNOT_BE_TOLD
    return Judgement(here, threshold, verdict)


def rows_of(tables: Tables, table: str, *columns: str) -> pd.DataFrame:
    """Return a run's table that has ``columns``, or raise `NotMeasurable`."""
    if table not in tables or not set(columns) <= set(tables[table]):
        raise NotMeasurable(f"{table}: {', '.join(columns)}")
    return tables[table]


def column(tables: Tables, table: str, name: str) -> pd.Series:
    """Return a column of a table; `NotMeasurable` if it is not there, or empty (no such token)."""
    values = rows_of(tables, table, name)[name]
    if values.isna().all():
        raise NotMeasurable(f"{table}.{name} is empty")
    return values


def chosen_rows(
    rows: pd.DataFrame | pd.Series, chosen: pd.Series, what: str
) -> pd.DataFrame | pd.Series:
    """Return the chosen rows of a table or column, or raise `NotMeasurable`, with ``what``."""
    if not chosen.any():
        raise NotMeasurable(what)
    return rows[chosen]


def row_where(rows: pd.DataFrame, **values: str) -> pd.Series:
    """Return the first row with some values, or raise `NotMeasurable`."""
    chosen = (rows[list(values)] == pd.Series(values)).all(axis=1)
    return chosen_rows(rows, chosen, ", ".join(values.values())).iloc[0]


def with_bounds(name: str, interval: str = "") -> list[str]:
    """Return the names of a column and of its interval's, as `Estimate.columns` gives them."""
    return list(Estimate(0).columns(name, interval))


def measured(
    tables: Tables, table: str, column: str, *, interval: str = "", **where: str
) -> Estimate:
    """Return a column's number and interval, in the row with some values."""
    columns = with_bounds(column, interval)
    return Estimate(*row_where(rows_of(tables, table, *columns, *where), **where)[columns])
