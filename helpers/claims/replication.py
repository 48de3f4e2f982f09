"""Every number of the paper next to a run's, for a run of the paper's own model (BERT-base).

The paper's numbers are those of Tables 1 to 3 (``helpers/metrics/paper*.csv``) and, from its text
and Figure 1, those of ``paper_numbers.csv``.  Each row is compared with a tolerance that the size
of this run's sample gives.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd

from helpers.claims.tables import NotMeasurable, Tables, rows_of, rows_where
from helpers.metrics.paper_heads import COREFERENCE
from helpers.metrics.reference import COMPARED, paper_table1, paper_table2, paper_table3

PENN_TREEBANK = "Penn Treebank (Stanford Dependencies)"
CONLL_2012 = "CoNLL-2012"
SAME_HEAD = "same head and within tolerance"
OTHER_HEAD = "another head"
WITHIN = "within tolerance"
OUTSIDE = "outside"
NOT_MEASURED = "not measured"
OUTCOMES = (SAME_HEAD, WITHIN, OTHER_HEAD, OUTSIDE)
HALF = 0.5  # the share from which the paper counts heads and layers
Z = 1.96  # standard errors on either side of a 95% interval
NEURAL_SYSTEM = "neural coreference"  # in Table 2, of another paper; it is not part of this project
ROUNDING_IN_TABLE_1 = 0.05  # percentage points
ROUNDING = 0.5  # of Tables 2 and 3
# The authors' notebook Syntax_Analysis.ipynb has other numbers than the printed Table 1.
SLIPS = {"auxpass": {"accuracy": 94.1, "baseline": 82.5}}
SLIP_NOTE = "; compared with {}, which the authors' notebook has"
COLUMNS = (
    "section", "quantity", "source", "annotation", "paper", "run", "tolerance", "outcome", "note",
)  # fmt: skip


def replication_table(tables: Tables) -> pd.DataFrame:
    """Compare the numbers of the paper with those of a run of its model.

    Parameters
    ----------
    tables : mapping of str to DataFrame
        The tables of the run by name, ``paper_heads`` among them (`Study.paper_heads`).

    Returns
    -------
    DataFrame
        A row for each number, with the columns `COLUMNS`.  ``tolerance`` is the largest difference
        that counts as equal: the width of a 95% interval of the difference of two samples of this
        run's size, plus the rounding of the printed number.  ``outcome`` is one of `OUTCOMES`,
        "needs the Penn Treebank (Stanford Dependencies)" or "needs CoNLL-2012" if the run's corpus
        has another annotation, or "not measured" if the run lacks the table.
    """
    rows = [
        *_text_rows(tables),
        *_table1_rows(tables),
        *_table2_rows(tables),
        *_table3_rows(tables),
    ]
    texts = dict.fromkeys(COLUMNS, "") | {"outcome": NOT_MEASURED}
    texts.pop("tolerance")
    table = pd.DataFrame(rows, columns=COLUMNS).astype(dict.fromkeys(texts, object)).fillna(texts)
    table["note"] = table["note"].str.removeprefix("; ")
    for annotation, used in _used_instead(tables).items():
        is_replaced = (table["annotation"] == annotation) & (table["outcome"] != NOT_MEASURED)
        table.loc[is_replaced, "outcome"] = f"needs {annotation}"
        notes = table.loc[is_replaced, "note"]
        table.loc[is_replaced, "note"] = (f"used: {used}; " + notes).str.removesuffix("; ")
    return table


def _used_instead(tables: Tables) -> dict[str, str]:
    """Name the corpora that stand in for the paper's, by the annotation that they lack."""
    if "paper_heads" not in tables:
        return {}
    heads = tables["paper_heads"].fillna({"used_instead": ""})
    is_coreference = heads["relation"].str.startswith(COREFERENCE)
    used = {}
    for annotation, rows in ((PENN_TREEBANK, ~is_coreference), (CONLL_2012, is_coreference)):
        names = heads.loc[rows, "used_instead"].unique()
        if any(names):
            used[annotation] = ", ".join(names)
    return used


def summarise_replication(table: pd.DataFrame) -> pd.DataFrame:
    """Count the outcomes of `replication_table` by source.

    Parameters
    ----------
    table : DataFrame
        What `replication_table` returns.

    Returns
    -------
    DataFrame
        A row for each source in the paper, a column for each outcome.
    """
    return pd.crosstab(table["source"], table["outcome"])


def _text_rows(tables: Tables) -> list[dict[str, object]]:
    """Compare the numbers of ``paper_numbers.csv``: sections 3.1 to 3.3 and Figure 1."""
    measures = {
        "heads over half": _heads_over_half,
        "layers over half": _layers_over_half,
        "mean in layers": _mean_in_layers,
        "behaviour": _behaviour,
    }
    path = Path(__file__).with_name("paper_numbers.csv")
    rows = []
    for number in pd.read_csv(path, dtype=str, keep_default_na=False).to_dict("records"):
        measure = measures[number.pop("measure")]
        column = number.pop("column")
        argument = number.pop("argument")
        with suppress(NotMeasurable):
            number |= measure(tables, column, argument, number["paper"])
        rows.append(number)
    return rows


def _heads_over_half(tables: Tables, column: str, argument: str, paper: str) -> dict[str, object]:
    """List the layers of the heads that give over half of their attention to a position.

    Heads whose interval has a half in it may be on either side.  The list is within tolerance if
    the paper's is one of those that this leaves open.
    """
    rows = rows_of(tables, "relative_position", column, f"{column}_low", f"{column}_high")
    layers = rows.set_index("layer") > HALF
    counts = layers.groupby("layer").sum()
    published = pd.Series(paper.split(), dtype=int).value_counts()
    published = published.reindex(counts.index, fill_value=0)
    is_open = published.between(counts[f"{column}_low"], counts[f"{column}_high"])
    return {
        "run": " ".join(map(str, layers.index[layers[column]])),
        "outcome": _within(is_open.all()),
    }


def _layers_over_half(tables: Tables, column: str, argument: str, paper: str) -> dict[str, object]:
    """List the layers whose heads give over half of their attention to a kind of token."""
    bounds = [column, f"{column}_low", f"{column}_high"]
    shares = rows_of(tables, "token_types", *bounds).groupby("layer")[bounds].mean()
    in_paper = shares.index.isin(list(map(int, paper.split())))
    is_open = (shares[bounds[1]] <= HALF) & (shares[bounds[2]] > HALF)
    agrees = ((shares[column] > HALF) == in_paper) | is_open
    layers = shares.index[shares[column] > HALF]
    return {
        "run": " ".join(map(str, layers)),
        "outcome": _within(agrees.all()),
    }


def _mean_in_layers(tables: Tables, column: str, argument: str, paper: str) -> dict[str, object]:
    """Average a quantity of heads over layers; ``argument`` has the first and the last layer.

    A share of [SEP] is a lower limit in the paper; the entropy is a value.
    """
    first, last = map(int, argument.split())
    bounds = [column, f"{column}_low", f"{column}_high"]
    name = "entropy" if column.startswith("entropy") else "token_types"
    rows = rows_of(tables, name, *bounds)
    value, low, high = rows.loc[rows["layer"].between(first, last), bounds].mean()
    tolerance = _interval_tolerance(low, high, _rounding(paper))
    is_limit = name == "token_types"
    excess = float(paper) - value if is_limit else abs(float(paper) - value)
    return {
        "run": f"{value:.3g}",
        "tolerance": tolerance,
        "outcome": _within(excess <= tolerance),
    }


def _behaviour(tables: Tables, column: str, argument: str, paper: str) -> dict[str, object]:
    """Read what a head of Figure 1 does in this run; ``argument`` is the head."""
    layer, head = map(int, argument.split("-"))
    rows = rows_where(rows_of(tables, "head_positions", column), layer=layer, head=head)
    behaviour = rows.iloc[0][column]
    return {"run": behaviour, "outcome": _within(behaviour == paper)}


def _table1_rows(tables: Tables) -> list[dict[str, object]]:
    """Compare the heads and the fixed offsets of Table 1."""
    rows = []
    for relation, printed in paper_table1().iterrows():
        shared = {"section": "4.2", "source": "Table 1", "annotation": PENN_TREEBANK}
        head = {
            "quantity": f"{relation}: head and accuracy (%)",
            "paper": f"{printed['head']}, {printed['accuracy']}",
        }
        offset = {
            "quantity": f"{relation}: best fixed offset and its accuracy (%)",
            "paper": f"{printed['baseline_offset']:+d}, {printed['baseline']}",
        }
        for row in _paper_heads(tables, relation):
            published = {**printed, **SLIPS.get(relation, {})}
            head |= _compare_head(row, published["accuracy"], ROUNDING_IN_TABLE_1)
            offset |= _compare_offset(row, published["baseline"])
            if relation in SLIPS:
                head["note"] += SLIP_NOTE.format(published["accuracy"])
                offset["note"] += SLIP_NOTE.format(published["baseline"])
        rows += [shared | head, shared | offset]
    return rows


def _paper_heads(tables: Tables, relation: str) -> list[pd.Series]:
    """Look up the row of a relation in the table paper_heads; no row if the run has none."""
    if "paper_heads" not in tables:
        return []
    heads = tables["paper_heads"]
    return [row for _, row in heads[heads["relation"] == relation].iterrows()]


def _compare_head(row: pd.Series, published: float, rounding: float) -> dict[str, object]:
    """Compare the accuracy of the paper's head; it has to be the best one here, too."""
    comparison = _compare(row["accuracy"], published, _tolerance(published, row["count"], rounding))
    comparison["run"] = f"{row['paper_head']}, {comparison['run']}"
    comparison["note"] = f"rank {row['rank']:.0f}"
    if row["rank"] > 1:
        comparison["outcome"] = OTHER_HEAD
        comparison["note"] += f"; best: {row['best_head']}, {row['best_accuracy']:.1f}"
    elif comparison["outcome"] == WITHIN:
        comparison["outcome"] = SAME_HEAD
    return comparison


def _compare_offset(row: pd.Series, published: float) -> dict[str, object]:
    """Compare the accuracy of the paper's fixed offset; it has to be the best one here, too."""
    tolerance = _tolerance(published, row["count"], ROUNDING_IN_TABLE_1)
    comparison = _compare(row["offset_accuracy"], published, tolerance)
    comparison["run"] = f"{row['paper_offset']:+.0f}, {comparison['run']}"
    comparison["note"] = ""
    if row["best_offset"] != row["paper_offset"]:
        comparison["outcome"] = OUTSIDE
        comparison["note"] = f"best: {row['best_offset']:+.0f}"
    return comparison


def _table2_rows(tables: Tables) -> list[dict[str, object]]:
    """Compare head 5-4 and the rules of Table 2, for each type of mention."""
    rows = []
    for (system, mention_type), paper in paper_table2().stack().dropna().items():
        if system == NEURAL_SYSTEM:
            continue
        row = {
            "section": "4.3",
            "source": "Table 2",
            "annotation": CONLL_2012,
            "quantity": f"{system}, {mention_type} mentions: accuracy (%)",
            "paper": f"{paper:.0f}",
        }
        for head in _paper_heads(tables, f"{COREFERENCE}, {mention_type}"):
            if system == "head":
                row |= _compare_head(head, paper, ROUNDING)
        with suppress(NotMeasurable):
            if system != "head":
                scores = rows_of(tables, "coreference", "system", "type", "n", "accuracy")
                rule = rows_where(scores, system=system, type=mention_type).iloc[0]
                row |= _compare(rule["accuracy"], paper, _tolerance(paper, rule["n"], ROUNDING))
        rows.append(row)
    return rows


def _table3_rows(tables: Tables) -> list[dict[str, object]]:
    """Compare the probes of Table 3; the interval of a probe gives its tolerance."""
    rows = []
    for probe, paper in paper_table3().items():
        row = {
            "section": "5",
            "source": "Table 3",
            "annotation": PENN_TREEBANK,
            "quantity": f"{probe}: attachment score (%)",
            "paper": f"{paper:.0f}",
        }
        with suppress(NotMeasurable):
            scores = rows_where(rows_of(tables, "probes", "probe", "value_low"), probe=probe)
            score = scores[scores["metric"].isin(COMPARED)].iloc[0]
            tolerance = _interval_tolerance(score["value_low"], score["value_high"], ROUNDING)
            row |= _compare(score["value"], paper, tolerance)
        rows.append(row)
    return rows


def _compare(value: float, published: float, tolerance: float) -> dict[str, object]:
    """Compare a percentage of this run with a published one."""
    return {
        "run": f"{value:.1f}",
        "tolerance": tolerance,
        "outcome": _within(abs(value - published) <= tolerance),
    }


def _within(agrees: bool) -> str:
    """Name the outcome of a comparison."""
    return WITHIN if agrees else OUTSIDE


def _tolerance(percentage: float, count: float, rounding: float) -> float:
    """Compute the largest difference, in percentage points, of two samples of ``count`` cases."""
    share = percentage / 100
    return 100 * Z * np.sqrt(2 * share * (1 - share) / count) + rounding


def _interval_tolerance(low: float, high: float, rounding: float) -> float:
    """Compute the largest difference of two samples, of which one has a known 95% interval."""
    return np.sqrt(2) * (high - low) / 2 + rounding


def _rounding(text: str) -> float:
    """Compute half a unit of the last digit of a printed number."""
    decimals = len(text.partition(".")[2])
    return 0.5 * 10.0**-decimals
