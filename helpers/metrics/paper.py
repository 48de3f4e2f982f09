"""The papers' numbers, their names of relations, and their statements as testable claims.

Numbers are in ``paper*.csv``.  The paper's scheme is Stanford Dependencies; ``relations.csv``
compares CLEAR (spaCy) and Universal Dependencies with it.  Statements are rows of ``claims.csv``.
Each has a measure in :mod:`helpers.claims.measures`, or in a study, which computes it from the
tables of a run.  A claim whose tables are missing is not measured.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np
import pandas as pd

from helpers.metrics.statistics import Estimate, difference, holm, p_value

ALL = "All"
UAS_WITHOUT_PUNCTUATION = "UAS without punctuation"
UUAS = "UUAS"
COMPARED = (UAS_WITHOUT_PUNCTUATION, UUAS)  # the metrics of Table 3
FIGURE_5 = ("dobj", "det", "pobj", "poss", "auxpass")  # the relations of that figure
HERE = Path(__file__).parent
ONLY_IN_UD = frozenset({"obj", "obl", "nsubj:pass", "aux:pass", "nmod:poss", "flat"})

Verdict = Literal["supported", "not supported", "inconclusive", "not measured"]
SUPPORTED, NOT_SUPPORTED, INCONCLUSIVE, NOT_MEASURED = get_args(Verdict)
DueToTraining = Literal["yes", "no", "inconclusive", ""]
YES, NO = "yes", "no"
# The answer to "due to training?" by the verdict against the controls.
DUE_TO_TRAINING: Mapping[Verdict, DueToTraining] = {
    SUPPORTED: YES,
    NOT_SUPPORTED: NO,
    INCONCLUSIVE: "inconclusive",
    NOT_MEASURED: "",
}
ALPHA = 0.05
BROAD = 0.78  # of the entropy of uniform attention: 3.8 nats at 128 tokens
ARTICLES = "averages_by_article"  # the table behind intervals over articles
# The column of a control's number in claims.csv, by the prefix of the names of its tables.
CONTROL_COLUMNS = {"random_": "control", "entropy_matched_": "entropy_matched_control"}
COLUMNS = (
    "section", "claim", "paper_value", "value", "value_low", "value_high", "threshold",
    "p_adjusted", "verdict", "control", "entropy_matched_control", "due_to_training",
    "how_measured",
)  # fmt: skip
NUMERIC_COLUMNS = (
    "paper_value", "value", "value_low", "value_high", "threshold", "p_adjusted", "control",
    "entropy_matched_control",
)  # fmt: skip

Tables = Mapping[str, pd.DataFrame]
Measure = Callable[[Tables], float | Estimate]
Question = Literal["verdict", "due_to_training"]


def values_of(paper: str) -> dict[str, float]:
    """Read single numbers that a paper states.

    Parameters
    ----------
    paper
        "text" or "Table 3": the part of the paper.

    Returns
    -------
    dict
        The numbers by name.  Those of Table 3 (Penn Treebank, without punctuation) are percentages
        by probe: UAS or UUAS.  Numbers that only claims compare with are in ``claims.csv``.
    """
    numbers = pd.read_csv(HERE / "paper.csv", index_col="row")
    return numbers.query("table == @paper")["value"].to_dict()


@cache
def paper_table1() -> pd.DataFrame:
    """Read Table 1 (BERT-base uncased, WSJ, Stanford Dependencies): accuracies in percent.

    Returns
    -------
    DataFrame
        Indexed by relation; columns ``head``, ``accuracy``, ``baseline``, ``baseline_offset`` and
        ``note``.  The figures are as printed, also where the released Syntax_Analysis.ipynb has
        others (auxpass).
    """
    return pd.read_csv(HERE / "paper_table1.csv", index_col="row")


def paper_table2() -> pd.DataFrame:
    """Read Table 2 (CoNLL-2012): accuracies in percent.

    Returns
    -------
    DataFrame
        A row for each system, a column for each mention type.  The paper calls the neural system
        (Wiseman et al. 2015) only roughly comparable, because it reads whole documents and finds
        its own mentions.
    """
    return pd.read_csv(HERE / "paper_table2.csv", index_col="row").astype(float)


@cache
def relation_table() -> pd.DataFrame:
    """Read how CLEAR (spaCy) and Universal Dependencies compare with the paper's scheme.

    Returns
    -------
    DataFrame
        ``paper`` is the Stanford relation with the same meaning, if any; ``fit`` grades the match
        ("exact", "close" or "rough") and ``note`` explains it.  ``attachment`` (UD only) compares
        the syntactic head of the word with CLEAR's: "same", "inverted" (the relation runs the other
        way) or "differs".
    """
    return pd.read_csv(HERE / "relations.csv", keep_default_na=False)


def scheme_of(relations: Collection[str]) -> str:
    """Recognise the scheme of a treebank's relation names: "stanford", "clear" or "ud"."""
    names = set(relations)
    if names & ONLY_IN_UD:
        return "ud"
    # Stanford has nsubjpass, npadvmod and a root of its own, but neither of these two.
    if names & {"compound", "relcl"} or ("ROOT" in names and not names & {"nn", "rcmod"}):
        return "clear"
    return "stanford"


def paper_names(relations: Collection[str]) -> dict[str, str]:
    """Translate relation names into the paper's, for those that have one; ``All`` stays itself."""
    scheme = scheme_of(relations)
    if scheme == "stanford":
        return {name: name for name in relations}
    rows = relation_table().query("scheme == @scheme and paper != ''")
    translations = dict(zip(rows["relation"], rows["paper"], strict=True))
    translations[ALL] = ALL
    return {name: translations[name] for name in relations if name in translations}


def display_names(relations: Collection[str]) -> dict[str, str]:
    """Name relations for display: as `paper_names`, but unchanged where several share a name."""
    names = paper_names(relations)
    uses = Counter(names.values())
    return {relation: name if uses[name] == 1 else relation for relation, name in names.items()}


class NotMeasurable(LookupError):
    """The run has no table, row or column that a claim needs."""


@dataclass(frozen=True)
class Claim:
    """A statement of a paper with its measure and its threshold.

    Parameters
    ----------
    section
        Section of the paper, or the name of a later paper and its section.
    statement
        The statement in words.
    how
        Description of the measure and the threshold.
    bound
        Side of the threshold on which the claim holds.
    threshold
        A number, or a function of a run's tables, which may raise `NotMeasurable`.
    measure
        Function of a run's tables.  It returns a number, or an `Estimate` where the text is a
        sample, or raises `NotMeasurable`.
    paper
        The paper's number.
    about_training
        Whether the claim is about training, and therefore compared with controls.
    """

    section: str
    statement: str
    how: str
    bound: Literal["above", "below"]
    threshold: float | Callable[[Tables], float]
    measure: Measure
    paper: float = np.nan
    about_training: bool = True


def read_claims(
    module: str,
    measures: Mapping[str, Measure],
    thresholds: Mapping[str, Callable[[Tables], float]] | None = None,
) -> list[Claim]:
    """Read the claims in ``claims.csv`` next to a module, and join them with their functions.

    Parameters
    ----------
    module
        The ``__file__`` of the module.
    measures
        The function of each claim, by id, except for claims with ``reads``.
    thresholds
        The function of each claim whose ``threshold`` is empty, by id.

    Returns
    -------
    list of Claim
        In the order of the file, whose columns are: id, section, statement, how, bound ("above" or
        "below"), threshold, paper, source (the place of the paper's number), and if need be
        about_training ("yes" or empty) and reads (in place of a function:
        "table|column|name=value|...", as `estimate_from_table` takes them).

    Raises
    ------
    ValueError
        If a claim has no function, or a function no claim.
    """
    path = Path(module).with_name("claims.csv")
    table = pd.read_csv(path, dtype={"section": str}, index_col="id").drop(columns="source")
    measures = dict(measures)
    if "reads" in table:
        for name, reads in table.pop("reads").dropna().items():
            measures[name] = _reader(reads)
    if "about_training" in table:
        table["about_training"] = table["about_training"].notna()
    thresholds = thresholds or {}
    without_threshold = table.index[table["threshold"].isna()]
    unmatched = (set(table.index) ^ set(measures)) | (set(without_threshold) ^ set(thresholds))
    if unmatched:
        raise ValueError(
            f"{path}: these ids have a row but no function, or a function but no row: "
            f"{', '.join(sorted(unmatched))}"
        )
    claims = []
    for name, fields in table.to_dict("index").items():
        fields["measure"] = measures[name]
        if name in thresholds:
            fields["threshold"] = thresholds[name]
        claims.append(Claim(**fields))
    return claims


def _reader(reads: str) -> Measure:
    """Make a measure from the ``reads`` column of a claim."""
    table, column, *conditions = reads.split("|")
    values = dict(condition.split("=") for condition in conditions)
    return partial(estimate_from_table, table=table, column=column, **values)


class _Comparison(NamedTuple):
    """A test of a claim: of the run against the threshold, or of the run against a control."""

    row: int  # of the claim in the table
    question: Question
    family: str  # comparisons that Holm's correction adjusts together
    excess: float  # beyond the limit, on the side where the claim holds
    p_value: float


def check_claims(tables: Tables, claims: Iterable[Claim]) -> pd.DataFrame:
    """Test claims on the tables of a run: the table claims.csv.

    Parameters
    ----------
    tables
        The tables of a run by name.  The names of its controls' tables begin with the prefixes
        `CONTROL_COLUMNS`.
    claims
        The claims to test.

    Returns
    -------
    DataFrame
        A row for each claim, with the columns `COLUMNS`.  ``verdict`` is "supported" or "not
        supported" where the measure is significantly beyond or short of the threshold.
        ``due_to_training`` compares with the controls in the same way: "yes" if the measure is
        beyond all controls that there are, "no" if it is short of one, empty if the claim is not
        about training or there is no control.

    Notes
    -----
    Either verdict is "inconclusive" where `p_value` gives 0.05 or more after Holm's correction.
    The correction is over the claims of a section (3, 4, 5, 6, or a later paper), separately for
    the two questions.  Bootstrap replicates of model and control are paired article by article;
    see `difference`.
    """
    claims = list(claims)
    run, *controls = _tables_by_model(tables)
    rows = []
    comparisons = []
    for number, claim in enumerate(claims):
        estimate = _evaluate(claim.measure, run)
        threshold = _evaluate(claim.threshold, run).value
        if np.isnan([estimate.value, threshold]).any():
            estimate = Estimate(np.nan)
            threshold = np.nan
        of_controls = [_evaluate(claim.measure, control) for control in controls]
        rows.append(_claim_row(claim, estimate, threshold, of_controls))
        comparisons += _comparisons(number, claim, estimate, threshold, of_controls)

    verdicts_by_question = defaultdict(list)
    adjusted = _adjusted_p_values(comparisons)
    for comparison, p in zip(comparisons, adjusted, strict=True):
        verdict = _verdict(comparison.excess, p)
        verdicts_by_question[comparison.row, comparison.question].append(verdict)
        if comparison.question == "verdict":
            rows[comparison.row]["p_adjusted"] = p
    for number in range(len(claims)):
        rows[number]["verdict"] = _combine_verdicts(verdicts_by_question[number, "verdict"])
        against_controls = _combine_verdicts(verdicts_by_question[number, "due_to_training"])
        rows[number]["due_to_training"] = DUE_TO_TRAINING[against_controls]
    table = pd.DataFrame(rows, columns=COLUMNS)
    return table.astype(dict.fromkeys(NUMERIC_COLUMNS, float))


def _tables_by_model(tables: Tables) -> list[dict[str, pd.DataFrame]]:
    """Split tables into those of the run and those of each control, without their prefixes."""
    by_model = []
    for prefix in ("", *CONTROL_COLUMNS):
        names = [name for name in tables if name.startswith(prefix)]
        by_model.append({name.removeprefix(prefix): tables[name] for name in names})
    return _on_the_same_articles(by_model)


def _evaluate(measure: float | Measure, tables: Tables) -> Estimate:
    """Evaluate a measure; a plain number is exact, with an interval of no width."""
    try:
        value = measure(tables) if callable(measure) else measure
    except NotMeasurable:
        value = np.nan
    if isinstance(value, Estimate):
        return value
    return Estimate(value, value, value)


def _claim_row(
    claim: Claim, estimate: Estimate, threshold: float, of_controls: Sequence[Estimate]
) -> dict[str, str | float]:
    """Make a claim's row of the table, without p-value and verdicts."""
    row = {
        "section": claim.section,
        "claim": claim.statement,
        "paper_value": claim.paper,
        "threshold": threshold,
        "how_measured": claim.how,
    }
    row.update(estimate.columns("value"))
    for name, control in zip(CONTROL_COLUMNS.values(), of_controls, strict=True):
        row[name] = control.value
    return row


def _comparisons(
    row: int,
    claim: Claim,
    estimate: Estimate,
    threshold: float,
    of_controls: Sequence[Estimate],
) -> list[_Comparison]:
    """List the tests of a claim, without those for which a number is missing."""
    tests: list[tuple[Question, Estimate, float]] = [("verdict", estimate, threshold)]
    if claim.about_training:
        for control in of_controls:
            tests.append(("due_to_training", difference(estimate, control), 0.0))
    sign = 1 if claim.bound == "above" else -1
    comparisons = []
    for question, tested, limit in tests:
        excess = sign * (tested.value - limit)
        if not np.isnan(excess):
            p = p_value(tested, limit)
            comparisons.append(_Comparison(row, question, claim.section[0], excess, p))
    return comparisons


def _adjusted_p_values(comparisons: Sequence[_Comparison]) -> np.ndarray:
    """Adjust the p-values of each family and question by Holm's method."""
    members = defaultdict(list)
    for position, comparison in enumerate(comparisons):
        members[comparison.family, comparison.question].append(position)
    adjusted = np.full(len(comparisons), np.nan)
    for positions in members.values():
        adjusted[positions] = holm([comparisons[position].p_value for position in positions])
    return adjusted


def _verdict(excess: float, p: float) -> Verdict:
    """Decide a test from its effect and its adjusted p-value."""
    if not p < ALPHA:  # NaN, too
        return INCONCLUSIVE
    return SUPPORTED if excess > 0 else NOT_SUPPORTED


def _combine_verdicts(verdicts: Sequence[Verdict]) -> Verdict:
    """Combine the verdicts of the tests of a question."""
    if not verdicts:
        return NOT_MEASURED
    if NOT_SUPPORTED in verdicts:
        return NOT_SUPPORTED
    if set(verdicts) == {SUPPORTED}:
        return SUPPORTED
    return INCONCLUSIVE


def _on_the_same_articles(by_model: list[dict[str, pd.DataFrame]]) -> list[dict[str, pd.DataFrame]]:
    """Add missing articles to the averages by article, so that models share their resamples."""
    with_articles = [tables for tables in by_model if ARTICLES in tables]
    articles = set()
    for tables in with_articles:
        articles.update(tables[ARTICLES]["article"])
    for tables in with_articles:
        missing = sorted(articles.difference(tables[ARTICLES]["article"]))
        if missing:
            empty = pd.DataFrame({"article": missing, "layer": 1, "examples": 0})
            tables[ARTICLES] = pd.concat([tables[ARTICLES], empty], ignore_index=True)
    return by_model


def verdicts(verdict: pd.Series, due_to_training: pd.Series) -> str:
    """Count in words the supported claims, and those of them that are due to training."""
    is_measured = verdict != NOT_MEASURED
    is_supported = verdict == SUPPORTED
    is_due_to_training = is_supported & (due_to_training == YES)
    return (
        f"{is_supported.sum()} of {is_measured.sum()} measured claims are supported, "
        f"{is_due_to_training.sum()} of them due to training"
    )


def rows_of(tables: Tables, table: str, *columns: str) -> pd.DataFrame:
    """Look up a run's table.

    Raises
    ------
    NotMeasurable
        If the run has no such table, or the table lacks one of the columns.
    """
    if table not in tables or not set(columns) <= set(tables[table]):
        raise NotMeasurable(f"{table}: {', '.join(columns)}")
    return tables[table]


def column(tables: Tables, table: str, name: str) -> pd.Series:
    """Look up a column of a run's table.

    Raises
    ------
    NotMeasurable
        If it is missing, or empty because the model has no such token.
    """
    values = rows_of(tables, table, name)[name]
    if values.isna().all():
        raise NotMeasurable(f"{table}.{name} is empty")
    return values


def select_or_raise(
    rows: pd.DataFrame | pd.Series, chosen: pd.Series, description: str
) -> pd.DataFrame | pd.Series:
    """Select rows of a table or column by a mask.

    Raises
    ------
    NotMeasurable
        If the mask selects none; the message is their description.
    """
    if not chosen.any():
        raise NotMeasurable(description)
    return rows[chosen]


def row_where(rows: pd.DataFrame, **values: str) -> pd.Series:
    """Select the first row with some values in some columns; `NotMeasurable` if there is none."""
    matches = (rows[list(values)] == pd.Series(values)).all(axis=1)
    return select_or_raise(rows, matches, ", ".join(values.values())).iloc[0]


def with_bounds(name: str) -> list[str]:
    """Name a column and those of its interval, as `Estimate.columns` does."""
    return list(Estimate(0).columns(name))


def estimate_from_table(tables: Tables, table: str, column: str, **where: str) -> Estimate:
    """Read a number and its interval from the row of a table that has some values.

    Parameters
    ----------
    tables
        The tables of a run.
    table, column
        Names of the table and of the number's column.
    **where
        Values of the row in other columns.

    Raises
    ------
    NotMeasurable
        If the table, a column or the row is missing.
    """
    columns = with_bounds(column)
    rows = rows_of(tables, table, *columns, *where)
    row = row_where(rows, **where)
    value, low, high = row[columns]
    return Estimate(value, low, high)
