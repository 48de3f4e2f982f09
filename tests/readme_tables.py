"""The tables and numbers in README.md and figures/README.md that come from the committed runs.

``python tests/readme_tables.py`` writes them again from ``figures/*/tables``; tests/test_readme.py
fails where they differ from these.  page_numbers.toml names the cells of the numbers in the prose.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from page_numbers import with_numbers

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # the folder of this script has a folder named beyond, too

from beyond.pages.run_folder import Run, open_run, rows_of  # noqa: E402
from helpers.metrics.coreference import HELD_OUT  # noqa: E402
from helpers.metrics.reference import (  # noqa: E402
    UAS_WITHOUT_PUNCTUATION,
    paper_table1,
    paper_table2,
    paper_table3,
)

RUNS = {"MPNet": "mpnet", "MiniLM": "minilm", "SmolLM2": "smollm2"}
PAGES = ("README.md", "figures/README.md", "book/questions.md")
OUTCOMES = {
    "supported": "",
    "not supported": "failed ",
    "inconclusive": "open ",
    "not measured": "untestable ",
}
NEW_TEXT = "unused_text"  # claims of uncommitted runs on the folder of scripts/unused_text.py
SAME_DOCUMENTS = 4.3  # the section whose documents are those of the default in these runs, too
CLAIMS_IN_SHORT = Path(__file__).with_name("claims_in_short.toml")
FIRST_LATER_SECTION = 7
PROBES = [
    "Distances + GloVe",
    "Attn",
    "Attn + GloVe",
    "Random-init Attn + GloVe",
    "Bilinear probe on hidden states",
]
RELATIONS = {"all words": "All", "verb of an object": "dobj", "noun of a determiner": "det"}


def committed_runs(figures: Path) -> dict[str, Run]:
    """Return the runs that are there, by their heading."""
    return {
        label: open_run(figures / name)
        for label, name in RUNS.items()
        if (figures / name / "tables").is_dir()
    }


def blocks(figures: Path) -> dict[str, str]:
    """Return each table of the pages by its name, in Markdown."""
    runs = committed_runs(figures)
    return {
        "claims": _markdown(paper_claims(claims_tables(figures))),
        "section 4": _markdown(section_4(runs)),
        "section 5": _markdown(table_3(runs)),
    }


def section_4(runs: Mapping[str, Run]) -> pd.DataFrame:
    """Collect the accuracies on dev of heads chosen on train."""
    rows = {name: held_out_relation(runs, relation) for name, relation in RELATIONS.items()}
    rows["antecedent of a mention"] = held_out_antecedents(runs)
    return pd.DataFrame(rows).T.reindex(columns=["paper", *runs])


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


def table_3(runs: Mapping[str, Run]) -> pd.DataFrame:
    """Return the probes of attention and their rivals: UAS without punctuation."""
    columns = {"paper": dict(paper_table3())}
    for label, run in runs.items():
        rows = rows_of(run.tables, "probes")
        scores = rows[rows["metric"] == UAS_WITHOUT_PUNCTUATION].set_index("probe")["value"]
        columns[label] = dict(scores)
    table = pd.DataFrame(columns).reindex(PROBES)
    return table.map(lambda value: f"{value:.0f}" if pd.notna(value) else "")


def claims_tables(figures: Path) -> dict[str, pd.DataFrame]:
    """Return the claims of each model, and those of its run on texts not used before."""
    tables = {}
    for label, run in committed_runs(figures).items():
        tables[label] = run.tables["claims"]
        path = figures / NEW_TEXT / f"{RUNS[label]}.csv"
        if path.exists():
            claims = pd.read_csv(path)
            tables[f"{label}, new text"] = claims[claims["section"] != SAME_DOCUMENTS]
    return tables


def paper_claims(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """List the claims on the paper: what it says, and whether each model replicates it."""
    in_short = tomllib.loads(CLAIMS_IN_SHORT.read_text(encoding="utf-8"))
    columns: dict[str, dict[str, str]] = {"paper": {}}
    sections: dict[str, float] = {}
    for label, table in tables.items():
        columns[label] = {}
        for row in table[table["section"] < FIRST_LATER_SECTION].to_dict("records"):
            claim = f"{row['section']:g} {in_short[row['id']]}"
            sections[claim] = row["section"]
            columns["paper"].setdefault(claim, _claim_number(row, "paper_value"))
            number = _claim_number(row, "value")
            columns[label][claim] = OUTCOMES[row["verdict"]] + number if number else ""
    return pd.DataFrame(columns, index=sorted(sections, key=lambda claim: sections[claim]))


def _claim_number(row: Mapping[str, Any], column: str) -> str:
    """Write a number of a claim: a percentage, a multiple, or a number without its unit."""
    if pd.isna(row[column]):
        return ""
    if row["unit"].startswith("share"):
        return f"{100 * row[column]:.3g}%"
    return f"{row[column]:.3g}×" if row["unit"] == "ratio" else f"{row[column]:.3g}"


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


def rewritten_pages(figures: Path) -> dict[Path, str]:
    """Write the tables and the numbers of the pages again; return the text of each page."""
    tables = blocks(figures)
    texts = {}
    for path in (ROOT / page for page in PAGES):
        text = written_anew(path.read_text(encoding="utf-8"), tables)
        texts[path] = with_numbers(text, figures)
    return texts


if __name__ == "__main__":
    for page_path, page_text in rewritten_pages(ROOT / "figures").items():
        page_path.write_text(page_text, encoding="utf-8")
