"""The papers' statements as checks: what they say, what is measured here, and what that proves.

Every claim is computed from the tables of a run; none is typed in.  A claim whose tables a run
does not have, or whose quantity this model does not have, is not measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd

from helpers.analysis.statistics import Estimate, percentiles
from helpers.analysis.surface import layer_draws

Verdict = Literal["yes", "no", "cannot be told", "no evidence", "not measured"]

YES, NO, CANNOT_BE_TOLD, NO_EVIDENCE, NOT_MEASURED = (
    "yes", "no", "cannot be told", "no evidence", "not measured",
)  # fmt: skip
ARTICLES = "averages_by_article"
CONTROL = "control_"  # before the name of a table: the same of the model with random weights
COLUMNS = (
    "section", "claim", "paper_value", "here", "ci_low", "ci_high", "threshold", "control",
    "holds", "how_measured",
)  # fmt: skip

Tables = Mapping[str, pd.DataFrame]
Numbers = float | pd.Series  # one, or one for each resample


class NotMeasurable(LookupError):
    """The run has no table, row or column that a claim needs."""


@dataclass(frozen=True)
class Claim:
    """A statement of a paper, how it is measured, and when it holds.

    ``measure`` takes the tables of a run and returns a number, or an `Estimate` where the text
    is a sample.  The claim holds where the number is above ``threshold`` (``below``: where it is
    below), a number or a function of the tables; ``how`` says where the threshold comes from.
    Where an interval contains the threshold, it cannot be told.  Either may raise `NotMeasurable`.
    ``paper`` is the paper's own number, where it gives one.
    """

    section: str
    statement: str
    how: str
    measure: Callable[[Tables], float | Estimate]
    threshold: float | Callable[[Tables], float]
    below: bool = False
    paper: float | None = None


class Judgement(NamedTuple):
    """What a claim measures in a run, and what that says."""

    here: float
    low: float
    high: float
    threshold: float
    verdict: Verdict


def check_claims(
    tables: Tables, claims: Iterable[Claim], *, control: Tables | None = None
) -> pd.DataFrame:
    """Return claims.csv: a row a claim, with the columns `COLUMNS`.

    ``tables`` maps the names of a run's tables ("token_types", ...) to the tables.  ``control``
    has those of the same model with random weights; left out, they are the ones of ``tables``
    whose name begins with `CONTROL`.  A claim that holds of the control too is "no evidence" of
    what the model has learned.
    """
    if control is None:
        control = {
            name.removeprefix(CONTROL): table
            for name, table in tables.items()
            if name.startswith(CONTROL)
        }
    rows = [_row(claim, tables, control) for claim in claims]
    return pd.DataFrame(rows, columns=COLUMNS).astype(dict.fromkeys(COLUMNS[2:8], float))


def with_later(paper: pd.DataFrame, later: pd.DataFrame) -> pd.DataFrame:
    """Return the paper's claims, unless none of them is measured, and the later ones that are."""
    own = [paper] if (paper["holds"] != NOT_MEASURED).any() else []
    return pd.concat([*own, later[later["holds"] != NOT_MEASURED]])


def _row(claim: Claim, tables: Tables, control: Tables) -> tuple[object, ...]:
    found, random = judge(claim, tables), judge(claim, control)
    verdict = found.verdict
    if verdict == YES and random.verdict == YES:
        verdict = NO_EVIDENCE
    numbers = (claim.paper, found.here, found.low, found.high, found.threshold, random.here)
    return claim.section, claim.statement, *numbers, verdict, claim.how


def judge(claim: Claim, tables: Tables) -> Judgement:
    """Return what a claim measures in a run, and whether it holds, no control looked at."""
    try:
        found = claim.measure(tables)
        threshold = claim.threshold(tables) if callable(claim.threshold) else claim.threshold
    except NotMeasurable:
        found = threshold = np.nan
    exact = not isinstance(found, Estimate)
    here = Estimate(float(found)) if exact else Estimate(*map(float, found))
    if np.isnan([here.value, threshold]).any():
        return Judgement(np.nan, np.nan, np.nan, np.nan, NOT_MEASURED)
    low, high = (here.value, here.value) if exact else (here.low, here.high)
    if claim.below:
        low, high = -high, -low
    limit = -threshold if claim.below else threshold
    # An interval without bounds contains every threshold.
    verdict = YES if low > limit else NO if high <= limit else CANNOT_BE_TOLD
    return Judgement(*here, float(threshold), verdict)


def rows_of(tables: Tables, table: str, *columns: str) -> pd.DataFrame:
    """Return a run's table, which has ``columns``.

    Raises:
        NotMeasurable: the run does not have the table, or not all of the columns.
    """
    if table not in tables or not set(columns) <= set(tables[table]):
        raise NotMeasurable(f"{table}: {', '.join(columns)}")
    return tables[table]


def column(tables: Tables, table: str, name: str) -> pd.Series:
    """Return a column of a run's table.

    Raises:
        NotMeasurable: the run does not have it, or it is empty (a model without that token).
    """
    values = rows_of(tables, table, name)[name]
    if values.isna().all():
        raise NotMeasurable(f"{table}.{name} is empty")
    return values


def chosen_rows(
    rows: pd.DataFrame | pd.Series, chosen: pd.Series, what: str
) -> pd.DataFrame | pd.Series:
    """Return the chosen rows of a table or column.

    Raises:
        NotMeasurable: there is none; ``what`` says of what.
    """
    if not chosen.any():
        raise NotMeasurable(what)
    return rows[chosen]


def row_where(rows: pd.DataFrame, **values: str) -> pd.Series:
    """Return the first row with some values.

    Raises:
        NotMeasurable: there is none.
    """
    chosen = (rows[list(values)] == pd.Series(values)).all(axis=1)
    return chosen_rows(rows, chosen, ", ".join(values.values())).iloc[0]


def with_bounds(name: str) -> list[str]:
    """Return the names of a column and of its interval's."""
    return [name, f"{name}_low", f"{name}_high"]


def counted(tables: Tables, table: str, name: str, count: Callable[..., float]) -> Estimate:
    """Return a count of a column's values, and those of the ends of their intervals."""
    value, *bounds = (float(count(column(tables, table, own))) for own in with_bounds(name))
    return Estimate(value, min(bounds), max(bounds))


def resampled(
    tables: Tables,
    names: Iterable[str],
    compute: Callable[..., Numbers],
    values: Iterable[pd.Series],
) -> Estimate:
    """Return what is computed from ``values``, and its interval over articles."""
    found = compute(*values)
    if ARTICLES not in tables or np.isnan(found):
        return Estimate(found)
    draws = [layer_draws(rows_of(tables, ARTICLES, name), name) for name in names]
    drawn = np.asarray(compute(*(means for means, _ in draws)))
    low, high = percentiles(drawn[:, None], min(count for _, count in draws))
    return Estimate(found, float(low[0]), float(high[0]))
