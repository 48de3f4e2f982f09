"""Restack the tables of old runs in place: ``python scripts/restack_tables.py RUN...``.

RUN is a folder of a run of version 1.0.0.  Rows of controls go into the table of the model (column
``model``), and tables that version 2.0.0 does not have are deleted.  Numbers keep their digits: all
cells are read and written as text.
"""

import json
import sys
from pathlib import Path

import pandas as pd

CONTROLS = {"random_": "random", "entropy_matched_": "entropy-matched", "shuffled_": "shuffled"}
ORDER = ["trained", *CONTROLS.values()]
GONE = {
    "fig1_examples", "fig5_examples", "commonest_tokens", "possessives", "special_candidates",
    "disagreement", "probe_fits", "each_head", "replication", "paper_heads", "disabling",
    "averages_by_article", "head_edge_doses", "lens_shares", "value_norms",
}  # fmt: skip
# The tables in which the entropy-matched control stays.
ENTROPY_MATCHED = {
    "entropy", "probe_differences", "head_edge_ablations",
    "head_edge_correlations", "head_edge_yardsticks", "agreement", "agreement_correlations",
    "agreement_heads",
}  # fmt: skip
# Quantities of relation_summary that had tables of their own.
FAR_PARENTS = "heads minus nearest words, far parents"
FROM_POSSESSIVES = "possessives from the 's, beyond the next word"
LITTLE_CHANGE = "share of heads that special tokens change little"
BOUNDS = ("", "_low", "_high", "_df")
FEWEST_WORDS = 20  # of a point in accuracy_by_distance
SIGNIFICANT = "{:.6g}"


def main() -> None:
    """Restack the runs that are named."""
    for name in sys.argv[1:]:
        restack(Path(name))


def restack(run: Path) -> None:
    """Rewrite the tables of one run, and the list of them in ``run.json``."""
    old = {path.stem: read(path) for path in sorted(run.glob("tables/*.csv"))}
    new = restacked(old)
    for path in run.glob("tables/*.csv"):
        path.unlink()
    for name, table in new.items():
        table.to_csv(run / "tables" / f"{name}.csv", index=False)
    record_path = run / "run.json"
    record = json.loads(record_path.read_text())
    record["tables"] = {name: record["tables"].get(name, "") for name in sorted(new)}
    figures = {path.stem for path in run.glob("*.png")}
    record["figures"] = {name: of for name, of in record["figures"].items() if name in figures}
    record_path.write_text(json.dumps(record, indent=1) + "\n")


def read(path: Path) -> pd.DataFrame:
    """Read a table as text."""
    if path.stat().st_size < 4:
        return pd.DataFrame()
    return pd.read_csv(path, dtype=str, keep_default_na=False)


def restacked(old: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """Arrange tables in the layout of version 2.0.0."""
    parts: dict[str, dict[str, pd.DataFrame]] = {}
    for name, table in old.items():
        prefix = next(filter(name.startswith, CONTROLS), "")
        measure = name.removeprefix(prefix)
        model = CONTROLS.get(prefix, "trained")
        is_kept = model != "entropy-matched" or measure in ENTROPY_MATCHED
        if measure in ("partial_inputs", "partial_input_seeds"):
            table = table.rename(columns={"model": "classifier"})
        if is_kept and measure not in GONE and len(table):
            parts.setdefault(measure, {})[model] = table
    merge_cohesion(parts)
    merge_probe_tables(parts)
    merge_summaries(parts, old)
    tables = {}
    for measure, by_model in parts.items():
        models = sorted(by_model, key=ORDER.index)
        has_controls = len(models) > 1
        if has_controls and "model" not in by_model[models[0]]:
            stacked = pd.concat({model: by_model[model] for model in models}, names=["model"])
            table = stacked.reset_index("model").reset_index(drop=True).fillna("")
        else:
            table = pd.concat([by_model[model] for model in models], ignore_index=True).fillna("")
        tables[measure] = adapt(measure, table)
    return tables


def adapt(measure: str, table: pd.DataFrame) -> pd.DataFrame:
    """Leave out rows and columns that went, and rename one."""
    if measure == "accuracy_by_distance":
        table = table[table["count"].astype(float) >= FEWEST_WORDS]
    if measure == "claims":
        table = table.rename(columns={"due_to_training": "larger_than_in_controls"})
    if measure == "atlas":
        table = table.drop(columns="importance", errors="ignore")
    if measure == "edges":
        table = table[table["model"] != "entropy-matched"]
    if measure == "attributions":
        table = table[~table["method"].str.contains("rollout")]
    if measure == "head_edge_effects":
        # One row for a head and relation of one measure: the direction follows from the two.
        table = table[table["measure"] == table["measure"].iloc[0]].drop(columns="measure")
        for column in ("margin", "attention", "effect"):
            table[column] = [
                SIGNIFICANT.format(float(cell)) if cell else "" for cell in table[column]
            ]
    return table


def merge_cohesion(parts: dict[str, dict[str, pd.DataFrame]]) -> None:
    """Rename the table of the distances of heads, and leave out what version 2 does not have."""
    parts.pop("layer_cohesion", None)
    for model, table in parts.pop("head_cohesion", {}).items():
        rows = table.loc[table["by"] != "index", ["by", "within", "between", "p_value"]]
        parts.setdefault("cohesion", {})[model] = rows.fillna("")


def merge_probe_tables(parts: dict[str, dict[str, pd.DataFrame]]) -> None:
    """Put the layers of both probes into one table, and the seeds into columns of probes."""
    layers = []
    for probe, name, metric in (
        ("Structural probe", "structural_layers", "uuas"),
        ("Bilinear probe", "bilinear_layers", "uas"),
    ):
        table = parts.pop(name, {}).get("trained")
        if table is not None:
            column = f"validation_{metric}"
            new_names = {f"{column}{end}": f"validation{end}" for end in ("", "_low", "_high")}
            table = table.rename(columns=new_names)
            table.insert(0, "probe", probe)
            table.insert(1, "metric", metric.upper())
            layers.append(table)
    if layers:
        parts["probe_layers"] = {"trained": pd.concat(layers, ignore_index=True).fillna("")}
    seeds = parts.pop("probe_seeds", {}).get("trained")
    if seeds is not None:
        merged = parts["probes"]["trained"].merge(seeds.drop(columns="mean"), how="left")
        parts["probes"] = {"trained": merged.fillna("")}


def merge_summaries(
    parts: dict[str, dict[str, pd.DataFrame]], old: dict[str, pd.DataFrame]
) -> None:
    """Give relation_summary the numbers that were in tables of their own."""
    for model, summary in parts.get("relation_summary", {}).items():
        prefix = next((prefix for prefix, name in CONTROLS.items() if name == model), "")
        rows = []
        apart = old.get(f"{prefix}disagreement", pd.DataFrame())
        if len(apart) and apart["relation"].iloc[-1].startswith("every relation, parent not"):
            cells = {f"value{end}": apart[f"difference{end}"].iloc[-1] for end in BOUNDS}
            rows.append({"quantity": FAR_PARENTS, **cells})
        possessives = old.get(f"{prefix}possessives", pd.DataFrame())
        if len(possessives):
            cells = {f"value{end}": possessives[f"beyond_next_word{end}"].iloc[0] for end in BOUNDS}
            rows.append({"quantity": FROM_POSSESSIVES, **cells})
        changes = old.get(f"{prefix}special_candidates", pd.DataFrame())
        if len(changes) and (changes["change"].astype(float) != 0).any():
            share = SIGNIFICANT.format((changes["change"].astype(float) >= -5).mean())
            cells = dict.fromkeys(("value", "value_low", "value_high"), share)
            rows.append({"quantity": LITTLE_CHANGE, **cells})
        parts["relation_summary"][model] = pd.concat([summary, pd.DataFrame(rows)]).fillna("")


if __name__ == "__main__":
    main()
