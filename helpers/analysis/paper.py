"""What the papers say: their numbers, their names of relations, and their statements as checks.

Numbers are in ``paper*.csv``.  The paper's scheme is Stanford Dependencies; ``relations.csv``
compares CLEAR (spaCy) and Universal Dependencies with it.  Statements are rows of ``claims.csv``,
each with a measure of :mod:`helpers.analysis.measures`, or of a study, which computes it from the
tables of a run: one whose tables are not there is not measured.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import pandas as pd

from helpers.analysis.statistics import Estimate, difference, holm, p_value

ALL = "All"
UAS_WITHOUT_PUNCTUATION = "UAS without punctuation"
UUAS = "UUAS"
COMPARED = (UAS_WITHOUT_PUNCTUATION, UUAS)  # what Table 3 is in, of the metrics of section 5
FIGURE_5 = ("dobj", "det", "pobj", "poss", "auxpass")  # the relations that it shows
HERE = Path(__file__).parent
ONLY_IN_UD = frozenset({"obj", "obl", "nsubj:pass", "aux:pass", "nmod:poss", "flat"})

Verdict = Literal["yes", "no", "cannot be told", "not measured"]

YES, NO, CANNOT_BE_TOLD, NOT_MEASURED = get_args(Verdict)
ALPHA = 0.05
BROAD = 0.78  # of the entropy of uniform attention: 3.8 nats at 128 tokens
ARTICLES = "averages_by_article"  # the table that intervals over articles are made from
# By what comes before the name of a table: the column for what it measures.
CONTROLS = {"control_": "control", "focused_": "focused_control"}
COLUMNS = (
    "section", "claim", "paper_value", "here", "ci_low", "ci_high", "threshold", "p_adjusted",
    "holds", "control", "focused_control", "learned", "how_measured",
)  # fmt: skip

Tables = Mapping[str, pd.DataFrame]
Measure = Callable[[Tables], float | Estimate]


def values_of(paper: str) -> dict[str, float]:
    """Return the numbers by name that the paper's "text" or "Table 3" states, or another paper.

    "Kovaleva" and "Niven" are the others.  Those of Table 3 (Penn Treebank, without punctuation)
    are percentages by probe: UAS or UUAS.  What only claims compare with is in ``claims.csv``.
    """
    numbers = pd.read_csv(HERE / "paper.csv", index_col="row")
    return numbers.query("table == @paper")["value"].to_dict()


@cache
def paper_table1() -> pd.DataFrame:
    """Return Table 1 (BERT-base uncased, WSJ, Stanford Dependencies): accuracies in percent.

    Indexed by relation; columns head, accuracy, baseline, baseline_offset, note.  The figures are
    as printed, also where the released Syntax_Analysis.ipynb has others (auxpass).
    """
    return pd.read_csv(HERE / "paper_table1.csv", index_col="row")


def paper_table2() -> pd.DataFrame:
    """Return Table 2 (CoNLL-2012) in percent: a row per system, a column per mention type.

    The paper calls the neural system (Wiseman et al. 2015) only roughly comparable: its documents
    are whole and its mentions its own.
    """
    return pd.read_csv(HERE / "paper_table2.csv", index_col="row").astype(float)


@cache
def relation_table() -> pd.DataFrame:
    """Return how CLEAR (spaCy) and Universal Dependencies compare with the paper's scheme.

    ``paper`` is the Stanford relation that stands for the same thing, if any; ``fit`` says how well
    ("exact", "close", "rough"), ``note`` where they part.  ``attachment`` (UD only) compares the
    head that the word gets with CLEAR's: "same", "inverted" (it runs the other way), "differs".
    """
    return pd.read_csv(HERE / "relations.csv", keep_default_na=False)


def scheme_of(relations: Collection[str]) -> str:
    """Tell which scheme a treebank's relation names are from: "stanford", "clear" or "ud"."""
    names = set(relations)
    if names & ONLY_IN_UD:
        return "ud"
    # Stanford has nsubjpass, npadvmod and a root of its own, but neither of these two.
    if names & {"compound", "relcl"} or ("ROOT" in names and not names & {"nn", "rcmod"}):
        return "clear"
    return "stanford"


def paper_names(relations: Collection[str]) -> dict[str, str]:
    """Return the paper's name of each relation that has one; ``All`` stays itself."""
    scheme = scheme_of(relations)
    if scheme == "stanford":
        return {name: name for name in relations}
    rows = relation_table().query("scheme == @scheme and paper != ''")
    known = dict(zip(rows["relation"], rows["paper"], strict=True)) | {ALL: ALL}
    return {name: known[name] for name in relations if name in known}


def titles(relations: Collection[str]) -> dict[str, str]:
    """Return `paper_names`, with the relation itself where several share a name."""
    names = paper_names(relations)
    uses = Counter(names.values())
    return {own: name if uses[name] == 1 else own for own, name in names.items()}


class NotMeasurable(LookupError):
    """The run has no table, row or column that a claim needs."""


@dataclass(frozen=True)
class Claim:
    """A statement of a paper, how it is measured, and when it holds.

    ``measure`` takes the tables of a run and returns a number, or an `Estimate` where the text
    is a sample.  The claim holds where it is above or ``below`` (``bound``) the ``threshold``, a
    number or a function of the tables, whose origin ``how`` tells; either may raise
    `NotMeasurable`.  ``paper`` is the paper's own number; ``learned``: is it about learning?
    """

    section: str
    statement: str
    how: str
    bound: Literal["above", "below"]
    threshold: float | Callable[[Tables], float]
    measure: Measure
    paper: float = np.nan
    learned: bool = True


def read_claims(
    module: str,
    measures: Mapping[str, Measure],
    thresholds: Mapping[str, Callable[[Tables], float]] | None = None,
) -> list[Claim]:
    """Return the claims in ``claims.csv`` beside a module (its ``__file__``), with their measures.

    Columns: id, section, statement, how, bound ("above" or "below"), threshold (empty where
    ``thresholds`` has a function of that id), paper, source (where the paper has its number), and
    if need be learned ("yes" or empty: is it about learning?) and reads (instead of a function:
    "table|column|interval|name=value|...", as `measured` takes them).  ValueError where the file
    and the functions do not have the same ids.
    """
    path = Path(module).with_name("claims.csv")
    rows = pd.read_csv(path, dtype={"section": str}, index_col="id").drop(columns="source")
    if "reads" in rows:
        measures = {**measures, **rows.pop("reads").dropna().map(_reader)}
    if "learned" in rows:
        rows["learned"] = rows["learned"].notna()
    computed, thresholds = rows.index[rows["threshold"].isna()], thresholds or {}
    if odd := (set(rows.index) ^ set(measures)) | (set(computed) ^ set(thresholds)):
        raise ValueError(f"{path}: a row without its function, or the other way round: {odd}")
    functions = {name: {"measure": measures[name]} for name in rows.index}
    for name in thresholds:
        functions[name]["threshold"] = thresholds[name]
    return [Claim(**row | functions[name]) for name, row in rows.to_dict("index").items()]


def _reader(reads: str) -> Measure:
    table, name, interval, *where = reads.split("|")
    values = dict(pair.split("=") for pair in where)
    return partial(measured, table=table, column=name, interval=interval, **values)


def check_claims(tables: Tables, claims: Iterable[Claim]) -> pd.DataFrame:
    """Return claims.csv: a row a claim, with the columns `COLUMNS`.

    ``tables`` are a run's by name; those of its controls begin as `CONTROLS` has it.  ``holds``: is
    what is measured beyond the threshold?  ``learned``: is it beyond what a control has?  "yes"
    against all controls that are there, "no" against one; empty where the statement is not about
    that.  Either cannot be told where `p_value` gives 0.05 or more, after Holm's correction over
    the claims of a section (3, 4, 5, 6, or a later paper), for ``holds`` and ``learned`` apart.
    Draws of model and control are paired, article by article; see `difference`.
    """
    own, *controls = _on_the_same_articles(
        [
            {name.removeprefix(prefix): tables[name] for name in tables if name.startswith(prefix)}
            for prefix in ("", *CONTROLS)
        ]
    )
    rows, families = [], defaultdict(list)
    for claim in claims:
        here, threshold = _found(claim.measure, own), _found(claim.threshold, own).value
        if np.isnan([here.value, threshold]).any():
            here, threshold = Estimate(np.nan), np.nan
        others = [_found(claim.measure, control) for control in controls]
        row = {"section": claim.section, "claim": claim.statement, "paper_value": claim.paper}
        row |= here.columns("here", "ci") | {"threshold": threshold, "how_measured": claim.how}
        row |= {name: each.value for name, each in zip(CONTROLS.values(), others, strict=True)}
        tests = {"holds": [(here, threshold)]}
        if claim.learned:
            tests["learned"] = [(difference(here, other), 0) for other in others]
        for question, pairs in tests.items():
            row[question] = []
            for found, limit in pairs:
                excess = (found.value - limit) * (1 if claim.bound == "above" else -1)
                if not np.isnan(excess):
                    test = row, excess, p_value(found, limit)
                    families[claim.section[0], question].append(test)
        rows.append(row)
    for (_, question), tests in families.items():
        adjusted = holm([p for *_, p in tests])
        for (row, excess, _), p in zip(tests, adjusted, strict=True):
            verdict = CANNOT_BE_TOLD if not p < ALPHA else YES if excess > 0 else NO
            row[question].append(verdict)
            if question == "holds":
                row["p_adjusted"] = p
    for row in rows:
        row |= {question: _together(row.get(question)) for question in ("holds", "learned")}
    numbers = [name for name in COLUMNS[2:11] if name != "holds"]
    return pd.DataFrame(rows, columns=COLUMNS).astype(dict.fromkeys(numbers, float))


def _together(verdicts: list[Verdict] | None) -> Verdict | Literal[""]:
    """Return the verdict of all tests of a question; nothing where it is not asked."""
    if verdicts is None:
        return ""
    if not verdicts:
        return NOT_MEASURED
    return NO if NO in verdicts else YES if set(verdicts) == {YES} else CANNOT_BE_TOLD


def _found(measure: float | Measure, tables: Tables) -> Estimate:
    """Return what a function finds in a run's tables; a number without error has no width."""
    try:
        found = measure(tables) if callable(measure) else measure
    except NotMeasurable:
        found = np.nan
    return found if isinstance(found, Estimate) else Estimate(found, found, found)


def _on_the_same_articles(sides: list[dict[str, pd.DataFrame]]) -> list[dict[str, pd.DataFrame]]:
    """Give the averages by article of model and controls the same articles, to draw them alike."""
    with_articles = [side for side in sides if ARTICLES in side]
    known = set().union(*(side[ARTICLES]["article"] for side in with_articles))
    for side in with_articles:
        if missing := sorted(known.difference(side[ARTICLES]["article"])):
            more = pd.DataFrame({"article": missing, "layer": 1, "examples": 0})
            side[ARTICLES] = pd.concat([side[ARTICLES], more], ignore_index=True)
    return sides


def verdicts(holds: pd.Series, learned: pd.Series) -> str:
    """Return in words how many claims hold, and how many of those were learned."""
    yes, measured = holds == YES, holds != NOT_MEASURED
    both = yes & (learned == YES)
    return f"{yes.sum()} of {measured.sum()} measured claims hold, {both.sum()} of them learned"


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
