"""The tables in README.md and figures/README.md with the paper and the committed runs side by side.

``python tests/readme_tables.py`` writes them anew from ``figures/*/tables``; tests/test_readme.py
fails where they differ from these.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pandas as pd

from helpers.analysis.measures import clark_claims
from helpers.analysis.paper import check_claims, paper_table2, values_of
from helpers.cache import read_exact
from helpers.run.compare import Run, best_heads, claims_side_by_side, claims_that_hold, open_run

ROOT = Path(__file__).resolve().parent.parent
RUNS = {
    "MPNet": "mpnet",
    "MiniLM": "minilm",
    "MPNet, gold": "mpnet-ewt",
    "MiniLM, gold": "minilm-ewt",
}
ARCT = "minilm-arct/tables"
PAGES = ("README.md", "figures/README.md")
ARCT_MODELS = {
    ("bag of vectors", "original"): "bag of vectors",
    ("BiLSTM", "original"): "BiLSTM",
    ("encoder", "original"): "MiniLM, fine-tuned",
    ("encoder", "swapped"): "the same, on swapped warrants too",
    ("encoder", "mirrored"): "MiniLM, on arguments of dev and their counterparts alone",
    ("random-init encoder", "original"): "MiniLM from random weights",
}
ARCT_RULES = {
    "not as written": "the word `not` alone",
    "not and n't": "and `n't`",
    "not, n't and cannot": "and `cannot`",
}
READINGS = {"among mentions": "mentions", "among words": "words"}
LEARNED = {"yes": "learned", "no": "not learned", "cannot be told": "learned?"}
POSITIONAL = "Some heads put more than half of their attention on the {} token"
ENTROPY_OF_FIRST = "In the last layer, [CLS] attends very broadly"
SEPARATOR = "Over half of the attention in middle layers goes to one special token"


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
        "cues of arct": arct_rules(figures),
        "arct": arct_table(figures),
    }
    among_mentions, among_words = (
        tables["table 2"].loc[f"best head among {own}"] for own in READINGS.values()
    )
    rows = {
        "best head, all relations (fixed offset)": tables["table 1"].loc["All"],
        "best head, direct objects": tables["table 1"].loc["dobj"],
        "best head, antecedents (among all words)": among_mentions + " (" + among_words + ")",
        "probe, attention and GloVe": tables["table 3"].loc["Attn + GloVe"],
        "claims of the paper": pd.Series(claims_that_hold(claims)),
    }
    short = pd.DataFrame({name: row.reindex(["paper", *segments]) for name, row in rows.items()}).T
    written = {name: _markdown(table) for name, table in tables.items()}
    written |= {"in short": _markdown(short), "claims": _markdown(verdicts(claims, list(runs)))}
    return written | {"default claims": _markdown(numbers(runs["MiniLM"]))}


def section_3(runs: Mapping[str, Run], claims: pd.DataFrame, figures: Path) -> pd.DataFrame:
    """Return section 3 (and 6) in short."""
    paper = claims.set_index("claim")["paper"]
    counts = [int(paper[POSITIONAL.format(side)]) for side in ("previous", "next")]
    columns: dict[str, dict[str, str]] = {
        "paper": {
            "heads mostly on the previous / next token": "{} / {} of 144".format(*counts),
            "special tokens": "[CLS], [SEP]",
            "most attention to the separator": f"over {100 * paper[SEPARATOR]:.0f}%",
            "entropy from the first token in the last layer": f"{paper[ENTROPY_OF_FIRST]:.2f} nats",
        }
    }
    for label, run in runs.items():
        position, types, entropy = (
            run.tables[name] for name in ("relative_position", "token_types", "entropy")
        )
        tokens = json.loads((figures / RUNS[label] / "run.json").read_bytes())["special tokens"]
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
    shown = {}
    for name in ("paper", *(name for name in runs if f"{name} head" in table)):
        head, *numbers = (table[f"{name} {part}"] for part in ("head", "accuracy", "baseline"))
        accuracy, baseline = (column.map("{:.1f}".format) for column in numbers)
        shown[name] = (accuracy + " (" + baseline + ") " + head).where(numbers[0].notna(), "")
    return pd.DataFrame(shown)


def table_2(runs: Mapping[str, Run]) -> pd.DataFrame:
    """Return antecedents by the rules and the best head, in both readings, by type of mention."""
    paper = paper_table2()
    of_head = {f"{label}, {kind}": paper[kind]["head"] for label in READINGS for kind in paper}
    columns = {"paper": {**paper["all"], **of_head}}
    for label, run in runs.items():
        if "coreference" in run.tables:
            rows = run.tables["coreference"]
            columns[label] = rows[rows["type"] == "all"].set_index("system")["accuracy"].to_dict()
            for reading, candidates in READINGS.items():
                head = rows[(rows["system"] == "head") & (rows["candidates"] == candidates)]
                found = zip(head["type"], head["accuracy"], strict=True)
                columns[label] |= {f"{reading}, {kind}": value for kind, value in found}
    table = pd.DataFrame(columns).reindex([*paper.index.drop("head"), *of_head])
    table.index = [
        name.replace(", all", "").replace("among", "best head among") for name in table.index
    ]
    return table.map(lambda value: f"{value:.0f}" if pd.notna(value) else "")


def table_3(runs: Mapping[str, Run]) -> pd.DataFrame:
    """Return the probes: UAS without punctuation, and UUAS of the structural probe."""
    columns = {"paper": dict(values_of("Table 3"))}
    for label, run in runs.items():
        if "probes" in run.tables:
            rows = run.tables["probes"]
            rows = rows[rows["metric"].isin(["UUAS", "UAS without punctuation"])]
            columns[label] = dict(zip(rows["probe"], rows["value"], strict=True))
    table = pd.DataFrame(columns).reindex(list(values_of("Table 3")))
    return table.map(lambda value: f"{value:.0f}" if pd.notna(value) else "")


def arct_table(figures: Path) -> pd.DataFrame:
    """Return right warrants as written and on the counterparts, in percent, models down."""
    table = read_exact(figures / ARCT / "partial_inputs.csv")
    cells = table.pivot(index=["model", "train", "inputs"], columns="test", values="mean")
    shown = _pairs(cells, "original", "adversarial").unstack("inputs")
    shown = shown[list(dict.fromkeys(table["inputs"]))].fillna("")
    return shown.reindex(list(ARCT_MODELS)).set_axis(list(ARCT_MODELS.values()))


def arct_rules(figures: Path) -> pd.DataFrame:
    """Return what counting more words as `not` makes of its productivity and coverage."""
    table = read_exact(figures / ARCT / "cue_rules.csv").set_index(["rule", "split"])
    shown = _pairs(table, "productivity", "coverage").unstack("split")
    shown = shown[["all", "train", "dev", "test"]]
    return shown.reindex(list(ARCT_RULES)).set_axis(list(ARCT_RULES.values()))


def _pairs(table: pd.DataFrame, one: str, other: str) -> pd.Series:
    return table[one].map("{:.0f} / ".format) + table[other].map("{:.0f}".format)


def _peak(table: pd.DataFrame, column: str, style: str = "{:.0%}") -> str:
    layers = table.groupby("layer")[column].mean()
    return f"{style.format(layers.max())} (layer {layers.idxmax()})"


def verdicts(claims: pd.DataFrame, runs: list[str]) -> pd.DataFrame:
    """Return whether each claim holds in each run and, where it does, whether it was learned."""
    shown = {}
    for run in runs:
        holds, learned = claims[f"{run} holds"], claims[f"{run} learned"].map(LEARNED)
        both = (", " + learned).where(holds == "yes").fillna("")
        shown[run] = (holds + both).replace("not measured", "")
    return pd.DataFrame(shown).set_axis(claims["claim"] + " (" + claims["section"] + ")")


def numbers(run: Run) -> pd.DataFrame:
    """Return what each claim measures in a run and in its controls, with its p and verdicts."""
    table = check_claims(run.tables, clark_claims())
    of_both = ("paper_value", "here", "ci_low", "ci_high", "threshold", "p_adjusted")
    of_both += ("control", "focused_control")
    shown = {name: table[name].map("{:.3g}".format).replace("nan", "") for name in of_both}
    interval = shown.pop("ci_low") + " to " + shown.pop("ci_high")
    shown["here"] += (" (" + interval + ")").where(table["ci_low"].notna(), "")
    shown = pd.DataFrame(shown | {name: table[name] for name in ("holds", "learned")})
    return shown.set_axis(table["claim"] + " (" + table["section"] + ")")


def _markdown(table: pd.DataFrame) -> str:
    rows: list[list[str]] = [["", *table.columns], ["---"] * (len(table.columns) + 1)]
    rows += [[str(row.name), *row.fillna("")] for _, row in table.iterrows()]
    return "\n".join("|" + "".join(f" {cell} |" if cell else " |" for cell in row) for row in rows)


def written_anew(page: str, written: Mapping[str, str]) -> str:
    """Return a page with what stands between ``<!-- table 1 -->`` and ``<!-- end -->`` anew."""
    for name, text in written.items():
        pattern = rf"(<!-- {re.escape(name)} -->\n).*?(<!-- end -->)"
        page = re.sub(
            pattern, lambda found, own=text: f"{found[1]}{own}\n{found[2]}", page, flags=re.S
        )
    return page


if __name__ == "__main__":
    found = blocks(ROOT / "figures")
    for path in (ROOT / page for page in PAGES):
        path.write_text(written_anew(path.read_text(), found))
