"""The tables and numbers in README.md and figures/README.md that come from the committed runs.

``python scripts/readme_tables.py`` writes them again from ``figures/*/tables``;
tests/test_readme.py fails where they differ from these.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from beyond.claims.display import claims_in_words
from beyond.pages.answers import answers
from beyond.pages.run_folder import Run, open_run, rows_of
from helpers.metrics.coreference import HELD_OUT
from helpers.metrics.reference import (
    paper_table1,
    paper_table2,
    paper_table3,
    printed_numbers,
)

ROOT = Path(__file__).resolve().parent.parent
RUNS = {"MPNet": "mpnet", "MiniLM": "minilm", "SmolLM2": "smollm2"}
PAGES = ("README.md", "figures/README.md")
OUTCOMES = {
    "supported": "replicated", "not supported": "failed", "inconclusive": "open",
    "not measured": "untestable",
}  # fmt: skip
FIRST_LATER_SECTION = 7
# The sentence of a report that stands on the front page: where attention goes, which relation a
# head finds, what all heads find.
SENTENCES = {"MiniLM": 0, "MPNet": 2, "SmolLM2": 1}
WHAT = {
    "MiniLM": "a sentence encoder of 6 layers",
    "MPNet": "a sentence encoder with BERT's geometry",
    "SmolLM2": "a language model, which reads from left to right",
}
RELATIONS = {
    "determiners": "det",
    "objects of prepositions": "pobj",
    "possessors": "poss",
    "subjects": "nsubj",
}
POSITIONAL = "4 / 5 of 144"  # heads of the paper, section 3.1
WITH_TAGS = "(knows the parts of speech)"


def committed_runs(figures: Path) -> dict[str, Run]:
    """Return the runs that are there, by their heading."""
    return {
        label: open_run(figures / name)
        for label, name in RUNS.items()
        if (figures / name / "tables").is_dir()
    }


def blocks(figures: Path) -> dict[str, str]:
    """Return each block of tables or sentences by its name, in Markdown."""
    runs = committed_runs(figures)
    rows = {
        "best head, all words": held_out_relation(runs, "All"),
        "best head, the verb of a direct object": held_out_relation(runs, "dobj"),
        f"the nearest verb on the left {WITH_TAGS}, direct objects": nearest_word(runs, "dobj"),
        "best head, antecedents of mentions": held_out_antecedents(runs),
        "all heads and word vectors, the parent of a word": probe(runs, "Attn + GloVe"),
    }
    short = pd.DataFrame({name: row.reindex(["paper", *runs]) for name, row in rows.items()}).T
    return {
        "findings": findings(runs),
        "in short": _markdown(short),
        "section 3": _markdown(section_3(runs)),
        "section 4": _markdown(section_4(runs)),
        "section 5": _markdown(table_3(runs)),
        "section 6": _markdown(section_6(runs)),
        "claims": _markdown(paper_claims(runs)),
    }


def findings(runs: Mapping[str, Run]) -> str:
    """Write one sentence on each model, which stands at the top of its report, too."""
    lines = []
    for label, number in SENTENCES.items():
        if label in runs:
            run = runs[label]
            sentence = answers(run.tables, run.record["special_tokens"])[number]
            lines.append(f"- **{label}**, {WHAT[label]}: {sentence[0].lower()}{sentence[1:]}")
    return "\n".join(lines)


def section_3(runs: Mapping[str, Run]) -> pd.DataFrame:
    """Return section 3 in short."""
    paper = printed_numbers()["text"]
    columns: dict[str, dict[str, str]] = {
        "paper": {
            "heads mostly on the previous / next token": POSITIONAL,
            "special tokens": "[CLS], [SEP]",
            "most attention to the separator": f"over {100 * paper['over-half']:.0f}%",
            "entropy from the first token in the last layer": (
                f"{paper['entropy-from-cls']['value']:.2f} nats"
            ),
        }
    }
    for label, run in runs.items():
        position = rows_of(run.tables, "relative_position")
        types = rows_of(run.tables, "token_types")
        entropy = rows_of(run.tables, "entropy")
        tokens = run.record["special_tokens"]
        mostly = [int((position[side] > 0.5).sum()) for side in ("previous", "next")]
        columns[label] = {
            "heads mostly on the previous / next token": (
                f"{mostly[0]} / {mostly[1]} of {len(position)}"
            ),
            "special tokens": ", ".join(f"`{token}`" for token in tokens.values() if token).replace(
                "|", r"\|"
            ),
            "most attention to the first token": _peak(
                types, "first" if "first" in types else "cls"
            ),
            "most attention to the separator": _peak(types, "sep"),
            "most attention to periods and commas": _peak(types, "punctuation"),
            "broadest layer": _peak(entropy, "entropy", "{:.2f} nats"),
            "entropy from the first token in the last layer": (
                f"{entropy.groupby('layer')['entropy_from_cls'].mean().iloc[-1]:.2f} nats"
                if tokens.get("cls")
                else ""  # the first token of a decoder sees itself only
            ),
        }
    rows = list(columns[next(iter(runs))])
    return pd.DataFrame(columns).reindex(rows)


def section_4(runs: Mapping[str, Run]) -> pd.DataFrame:
    """Collect the accuracies on dev of heads chosen on train, and the leads over rules."""
    rows = {
        f"best head, {name}": held_out_relation(runs, relation)
        for name, relation in RELATIONS.items()
    }
    ahead: dict[str, str] = {}
    behind: dict[str, str] = {}
    for label, run in runs.items():
        summary = rows_of(run.tables, "relation_summary").set_index("quantity")
        ahead[label] = _with_interval(summary.loc["mean margin"])
        nearest = [name for name in summary.index if "nearest" in name and "margin" in name]
        if nearest:
            behind[label] = _with_interval(summary.loc[nearest[0]])
    rows["all relations, best head minus best offset"] = pd.Series(ahead)
    rows[f"all relations, best head minus nearest word {WITH_TAGS}"] = pd.Series(behind)
    return pd.DataFrame(rows).T.reindex(columns=["paper", *runs])


def _with_interval(row: pd.Series) -> str:
    return f"{row['value']:.1f} ({row['value_low']:.1f} to {row['value_high']:.1f})"


def section_6(runs: Mapping[str, Run]) -> pd.DataFrame:
    """Collect the distances between heads of one layer, and of one index."""
    columns = {}
    for label, run in runs.items():
        cohesion = rows_of(run.tables, "cohesion")
        if len(cohesion):
            near = cohesion[cohesion["layer"].isna()].set_index("by")
            share = near["within"] / near["between"]
            columns[label] = {
                "distance within a layer, of that between layers": f"{share['layer']:.0%}",
                "distance within an index, of that between indices": (
                    f"{share['index']:.0%} (p = {near.loc['index', 'p_value']:.2g})"
                ),
            }
    return pd.DataFrame(columns)


def held_out_relation(runs: Mapping[str, Run], relation: str) -> pd.Series:
    """Word the accuracy of the head that was chosen on train, on dev, with that of the offset.

    The paper's heads are chosen and scored on the same data.
    """
    paper = paper_table1().loc[relation]
    texts = {"paper": _with_offset(paper["accuracy"], paper["baseline"], paper["head"])}
    for label, run in runs.items():
        row = rows_of(run.tables, "dependency_heads_held_out").set_index("relation").loc[relation]
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
        rows = rows_of(run.tables, "coreference")
        is_held_out = (rows["system"] == HELD_OUT) & (rows["type"] == "all")
        accuracy = rows[is_held_out].set_index("candidates")["accuracy"]
        texts[label] = f"{accuracy['mentions']:.0f} ({accuracy['words']:.0f})"
    return pd.Series(texts)


def nearest_word(runs: Mapping[str, Run], relation: str) -> pd.Series:
    """Word the accuracy of the nearest word of the part of speech and side chosen on train."""
    texts = {}
    for label, run in runs.items():
        row = rows_of(run.tables, "dependency_heads_held_out").set_index("relation").loc[relation]
        if "nearest_accuracy" in row:
            texts[label] = f"{row['nearest_accuracy']:.1f}"
    return pd.Series(texts)


def probe(runs: Mapping[str, Run], name: str) -> pd.Series:
    """Word the score of a probe, as in Table 3."""
    return table_3(runs).loc[name]


def table_3(runs: Mapping[str, Run]) -> pd.DataFrame:
    """Return the probes: UAS without punctuation, and UUAS of the structural probe."""
    columns = {"paper": dict(paper_table3())}
    for label, run in runs.items():
        if "probes" in run.tables:
            rows = rows_of(run.tables, "probes")
            rows = rows[rows["metric"].isin(["UUAS", "UAS without punctuation"])]
            columns[label] = dict(zip(rows["probe"], rows["value"], strict=True))
    rows = [*paper_table3(), "Bilinear probe on hidden states"]
    table = pd.DataFrame(columns).reindex(rows).dropna(how="all")
    return table.map(lambda value: f"{value:.0f}" if pd.notna(value) else "")


def _peak(table: pd.DataFrame, column: str, style: str = "{:.0%}") -> str:
    layers = table.groupby("layer")[column].mean()
    if layers.isna().all():  # a model without such tokens
        return ""
    percentages = layers.map(style.format)
    peak = percentages[layers.idxmax()]
    numbers = [str(layer) for layer in percentages.index[percentages == peak]]
    return f"{peak} (layer{'s' if len(numbers) > 1 else ''} {', '.join(numbers)})"


def paper_claims(runs: Mapping[str, Run]) -> pd.DataFrame:
    """List the claims on the paper: what it says, and whether each model replicates it."""
    columns: dict[str, dict[str, str]] = {"paper": {}}
    for label, run in runs.items():
        table = run.tables["claims"]
        table = table[table["section"] < FIRST_LATER_SECTION]
        columns[label] = {}
        for row, words in zip(
            table.itertuples(), claims_in_words(table).itertuples(index=False), strict=True
        ):
            claim = f"{row.section:g} {words.claim}"
            columns["paper"].setdefault(claim, words.paper)
            number = words[2].partition(" (")[0]
            columns[label][claim] = f"{OUTCOMES[words.verdict]}, {number}" if number else ""
    claims = sorted(columns["paper"], key=lambda claim: float(claim.partition(" ")[0]))
    return pd.DataFrame(columns, index=claims)


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
