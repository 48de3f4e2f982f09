"""Write what claims need, and claims.csv: ``python scripts/restack_claims.py RUN...``.

RUN is a folder of a run that `restack_tables.py` has arranged.  Its layer_summary.csv is computed
from the other tables of section 3, and all claims are tested again.
"""

import json
import sys
from pathlib import Path

import pandas as pd

from beyond.claims.clark2019 import CLAIMS
from beyond.claims.engine import check_claims
from beyond.papers.claims import LATER_CLAIMS
from helpers.metrics import rows_of_model
from helpers.metrics.layer_summary import summarise_layers
from helpers.results import read_tables, run_record, write_table

SECTION_3 = ("relative_position", "token_types", "entropy")


def main() -> None:
    """Add to the runs that are named."""
    for name in sys.argv[1:]:
        run = Path(name)
        tables = read_tables(run)
        if tables.keys() >= {*SECTION_3, "averages_by_article"}:
            add_table(run, layer_summary(tables), "layer_summary")
        # As the page reads them: with six digits.
        claims = check_claims(read_tables(run), [*CLAIMS, *LATER_CLAIMS])
        add_table(run, claims, "claims")


def add_table(run: Path, table: pd.DataFrame, name: str) -> None:
    """Write a table of a run, and list it in ``run.json``."""
    write_table(table, run / "tables", name)
    record = run_record(run)
    record["tables"] = dict(sorted({name: "", **record["tables"]}.items()))
    (run / "run.json").write_text(json.dumps(record, indent=1) + "\n")


def layer_summary(tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Compute layer_summary.csv from the other tables of section 3."""
    heads = {}
    articles = {}
    for model in tables["entropy"]["model"].unique():
        of_heads = [rows_of_model(tables[name], model) for name in SECTION_3]
        by_head = [table.set_index(["layer", "head"]) for table in of_heads if len(table)]
        heads[model] = pd.concat(by_head, axis=1).reset_index()
        articles[model] = rows_of_model(tables["averages_by_article"], model)
    return summarise_layers(heads, articles)


if __name__ == "__main__":
    main()
