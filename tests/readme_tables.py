"""The tables in README.md and figures/README.md with the paper and the committed runs side by side.

``python tests/readme_tables.py`` writes them again from ``figures/*/tables``; tests/test_readme.py
fails where they differ from these.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pandas as pd

from helpers.claims.clark2019 import CLAIMS
from helpers.claims.display import LEAST_SHOWN, ZERO, summarise_claims
from helpers.claims.engine import CONTROL_COLUMNS, check_claims
from helpers.metrics.coreference import HELD_OUT
from helpers.metrics.reference import paper_table1, paper_table2, paper_table3
from helpers.results import run_record
from helpers.run.compare import (
    Run,
    best_heads,
    claims_side_by_side,
    open_run,
)

ROOT = Path(__file__).resolve().parent.parent
RUNS = {
    "MPNet": "mpnet",
    "MiniLM": "minilm",
    "MPNet, gold": "mpnet-ewt",
    "MiniLM, gold": "minilm-ewt",
}
ARCT = "minilm-arct-later/tables"
PAGES = ("README.md", "figures/README.md")
ARCT_MODELS = {
    ("bag of vectors", "original"): "bag of vectors",
    ("BiLSTM", "original"): "BiLSTM",
    ("encoder", "original"): "MiniLM, fine-tuned",
    ("encoder", "negated"): "MiniLM, trained on negated claims too",
    ("random-init encoder", "original"): "MiniLM from random weights",
}
READINGS = {"among mentions": "mentions", "among words": "words"}
DUE_TO_TRAINING = {"yes": "by training", "no": "not by training", "inconclusive": "by training?"}
POSITIONAL = "4 / 5 of 144"  # heads of the paper, section 3.1
ENTROPY_OF_FIRST = "sec3-last-cls-broad"  # claims
SEPARATOR = "sec3-special-half"


def committed_runs(figures: Path) -> dict[str, Run]:
    """Return the runs that are there, by their heading."""
    return {
        label: replace(open_run(str(figures / name)), name=label)
        for label, name in RUNS.items()
        if (figures / name / "tables").is_dir()
    }


def blocks(figures: Path) -> dict[str, str]:
    """Return each block of tables by its name, in Markdown."""
    runs = committed_runs(figures)
    segments = {label: run for label, run in runs.items() if "entropy" in run.tables}
    claims = claims_side_by_side(list(runs.values()))
    tables = {
        "section 3": section_3(segments, claims, figures),
        "table 1": table_1(runs),
        "table 2": table_2(runs),
        "table 3": table_3(runs),
        "arct": arct_table(figures),
    }
    rows = {
        "best head, all words (fixed offset)": held_out_relation(segments, "All"),
        "best head, direct objects": held_out_relation(segments, "dobj"),
        "best head, antecedents (among all words)": held_out_antecedents(segments),
        "probe, attention and GloVe": tables["table 3"].loc["Attn + GloVe"],
    }
    short = pd.DataFrame({name: row.reindex(["paper", *segments]) for name, row in rows.items()}).T
    written = {name: _markdown(table) for name, table in tables.items()}
    written |= {"in short": _markdown(short), "claims": _markdown(verdicts(claims, runs))}
    return written | {"default claims": _markdown(numbers(runs["MiniLM"]))}


def section_3(runs: Mapping[str, Run], claims: pd.DataFrame, figures: Path) -> pd.DataFrame:
    """Return section 3 (and 6) in short."""
    paper = claims.set_index("id")["paper"]
    columns: dict[str, dict[str, str]] = {
        "paper": {
            "heads mostly on the previous / next token": POSITIONAL,
            "special tokens": "[CLS], [SEP]",
            "most attention to the separator": f"over {100 * paper[SEPARATOR]:.0f}%",
            "entropy from the first token in the last layer": f"{paper[ENTROPY_OF_FIRST]:.2f} nats",
        }
    }
    for label, run in runs.items():
        position = run.tables["relative_position"]
        types = run.tables["token_types"]
        entropy = run.tables["entropy"]
        tokens = run_record(figures / RUNS[label])["special_tokens"]
        mostly = [int((position[side] > 0.5).sum()) for side in ("previous", "next")]
        near = run.tables["head_cohesion"].set_index("by")
        share = near["within"] / near["between"]
        columns[label] = {
            "heads mostly on the previous / next token": (
                f"{mostly[0]} / {mostly[1]} of {len(position)}"
            ),
            "special tokens": ", ".join(f"`{token}`" for token in tokens.values()),
            "most attention to the first token": _peak(types, "cls"),
            "most attention to the separator": _peak(types, "sep"),
            "most attention to periods and commas": _peak(types, "punctuation"),
            "broadest layer": _peak(entropy, "entropy", "{:.2f} nats"),
            "entropy from the first token in the last layer": (
                f"{entropy.groupby('layer')['entropy_from_cls'].mean().iloc[-1]:.2f} nats"
            ),
            "distance within a layer, of that between layers": f"{share['layer']:.0%}",
            "distance within an index, of that between indices": (
                f"{share['index']:.0%} (p = {near.loc['index', 'p_value']:.2g})"
            ),
        }
    rows = list(columns[next(iter(runs))])
    return pd.DataFrame(columns).reindex(rows)


def table_1(runs: Mapping[str, Run]) -> pd.DataFrame:
    """Return the best head of each of the paper's relations, its accuracy and the best offset's."""
    table = best_heads(list(runs.values())).set_index("relation")
    table = table[table["paper accuracy"].notna()]
    columns = {}
    for name in ("paper", *runs):
        if f"{name} head" in table:
            accuracy = table[f"{name} accuracy"].map("{:.1f}".format)
            baseline = table[f"{name} baseline"].map("{:.1f}".format)
            cells = accuracy + " (" + baseline + ") " + table[f"{name} head"]
            columns[name] = cells.where(table[f"{name} accuracy"].notna(), "")
    return pd.DataFrame(columns)


def held_out_relation(runs: Mapping[str, Run], relation: str) -> pd.Series:
    """Word the accuracy of the head that was chosen on train, on dev, with that of the offset.

    The paper's heads are chosen and scored on the same data.
    """
    paper = paper_table1().loc[relation]
    texts = {"paper": _with_offset(paper["accuracy"], paper["baseline"], paper["head"])}
    for label, run in runs.items():
        row = run.tables["dependency_heads_held_out"].set_index("relation").loc[relation]
        texts[label] = _with_offset(row["dev_accuracy"], row["baseline"], row["head"])
    return pd.Series(texts)


def _with_offset(accuracy: float, baseline: float, head: str) -> str:
    return f"{accuracy:.1f} ({baseline:.1f}) {head}"


def held_out_antecedents(runs: Mapping[str, Run]) -> pd.Series:
    """Word the accuracy of the head that was chosen on train, among mentions and among words.

    The paper does not say which of the two it has.
    """
    texts = {"paper": f"{paper_table2().loc['head', 'all']:.0f}"}
    for label, run in runs.items():
        rows = run.tables["coreference"]
        is_held_out = (rows["system"] == HELD_OUT) & (rows["type"] == "all")
        accuracy = rows[is_held_out].set_index("candidates")["accuracy"]
        texts[label] = f"{accuracy['mentions']:.0f} ({accuracy['words']:.0f})"
    return pd.Series(texts)


def table_2(runs: Mapping[str, Run]) -> pd.DataFrame:
    """Return antecedents by the rules and the best head, in both readings, by type of mention."""
    paper = paper_table2()
    of_head = {}
    for label in READINGS:
        for mention_type in paper:
            of_head[f"{label}, {mention_type}"] = paper[mention_type]["head"]
    columns = {"paper": {**paper["all"], **of_head}}
    for label, run in runs.items():
        if "coreference" in run.tables:
            rows = run.tables["coreference"]
            columns[label] = rows[rows["type"] == "all"].set_index("system")["accuracy"].to_dict()
            for reading, candidates in READINGS.items():
                head = rows[(rows["system"] == "head") & (rows["candidates"] == candidates)]
                for mention_type, accuracy in zip(head["type"], head["accuracy"], strict=True):
                    columns[label][f"{reading}, {mention_type}"] = accuracy
    table = pd.DataFrame(columns).reindex([*paper.index.drop("head"), *of_head])
    table.index = [
        name.replace(", all", "").replace("among", "best head among") for name in table.index
    ]
    return table.map(lambda value: f"{value:.0f}" if pd.notna(value) else "")


def table_3(runs: Mapping[str, Run]) -> pd.DataFrame:
    """Return the probes: UAS without punctuation, and UUAS of the structural probe."""
    columns = {"paper": dict(paper_table3())}
    for label, run in runs.items():
        if "probes" in run.tables:
            rows = run.tables["probes"]
            rows = rows[rows["metric"].isin(["UUAS", "UAS without punctuation"])]
            columns[label] = dict(zip(rows["probe"], rows["value"], strict=True))
    rows = [*paper_table3(), "Bilinear probe on hidden states"]
    table = pd.DataFrame(columns).reindex(rows).dropna(how="all")
    return table.map(lambda value: f"{value:.0f}" if pd.notna(value) else "")


def arct_table(figures: Path) -> pd.DataFrame:
    """Return right warrants as written and on the counterparts, in percent, models down."""
    table = pd.read_csv(
        figures / ARCT / "partial_inputs.csv", keep_default_na=False, na_values=[""]
    )
    cells = table.pivot(index=["model", "train", "inputs"], columns="test", values="mean")
    pairs = _pairs(cells, "original", "adversarial").unstack("inputs")
    pairs = pairs[list(dict.fromkeys(table["inputs"]))].fillna("")
    return pairs.reindex(list(ARCT_MODELS)).set_axis(list(ARCT_MODELS.values()))


def _pairs(table: pd.DataFrame, first: str, second: str) -> pd.Series:
    return table[first].map("{:.0f} / ".format) + table[second].map("{:.0f}".format)


def _peak(table: pd.DataFrame, column: str, style: str = "{:.0%}") -> str:
    layers = table.groupby("layer")[column].mean()
    return f"{style.format(layers.max())} (layer {layers.idxmax()})"


def verdicts(claims: pd.DataFrame, runs: Mapping[str, Run]) -> pd.DataFrame:
    """Show the verdict on each claim in each run, and whether training is the cause.

    The numbers of the controls stand next to the cause.
    """
    columns = {}
    for label, run in runs.items():
        controls = check_claims(run.tables, CLAIMS)[list(CONTROL_COLUMNS.values())]
        numbers = controls.map(_two_digits).agg("; ".join, axis="columns")
        verdict = claims[f"{label} verdict"]
        cause = claims[f"{label} due_to_training"].map(DUE_TO_TRAINING)
        with_numbers = ", " + cause + " (" + numbers + ")"
        cell = verdict + with_numbers.where(verdict == "supported").fillna("")
        columns[label] = cell.replace("not measured", "")
    return pd.DataFrame(columns).set_axis(claims["claim"] + " (" + claims["section"] + ")")


def _two_digits(value: float) -> str:
    return ZERO if abs(value) < LEAST_SHOWN else f"{value:.2g}"


def numbers(run: Run) -> pd.DataFrame:
    """Format each claim of a run in four columns."""
    table = check_claims(run.tables, CLAIMS)
    names = table["claim"] + " (" + table["section"] + ")"
    return summarise_claims(table).drop(columns="claim").set_axis(names)


def _markdown(table: pd.DataFrame) -> str:
    """Write a table in Markdown."""
    rows: list[list[str]] = [["", *table.columns], ["---"] * (len(table.columns) + 1)]
    rows += [[str(row.name), *row.fillna("")] for _, row in table.iterrows()]
    lines = []
    for row in rows:
        cells = [f" {cell} |" if cell else " |" for cell in row]
        lines.append("|" + "".join(cells))
    return "\n".join(lines)


def written_anew(page: str, written: Mapping[str, str]) -> str:
    """Replace the tables of a page, which are between ``<!-- table 1 -->`` and ``<!-- end -->``."""
    for name, text in written.items():
        pattern = rf"(<!-- {re.escape(name)} -->\n).*?(<!-- end -->)"
        page = re.sub(
            pattern, lambda match, rows=text: f"{match[1]}{rows}\n{match[2]}", page, flags=re.S
        )
    return page


if __name__ == "__main__":
    tables_by_name = blocks(ROOT / "figures")
    for path in (ROOT / page for page in PAGES):
        path.write_text(written_anew(path.read_text(), tables_by_name))
