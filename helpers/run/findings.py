"""What a run found, in sentences written from its own tables: one paragraph a notebook."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pandas as pd

from helpers.analysis.claims import NOT_MEASURED, check_claims
from helpers.analysis.relations import FIGURE_5, paper_names
from helpers.studies.findings import (
    attribution_findings,
    cue_findings,
    finetuning_findings,
    lens_findings,
    pruning_findings,
    removal_findings,
)

if TYPE_CHECKING:
    from IPython.display import Markdown

    from helpers.study import Study

Tables = Mapping[str, pd.DataFrame]
SpecialTokens = Mapping[str, str | None]
MOST_RELATIONS = 5
SECTIONS = {"01": "3.1", "02": "3.2", "03": "3.3", "04": "4", "05": "5", "06": "6"}
# whose claims are of a notebook of their own
PAPERS: dict[str, str | tuple[str, ...]] = {
    "07": "Kovaleva", "08": "Michel", "09": "Niven",
    "10": ("Kobayashi", "Abnar", "What attention moves"),
}  # fmt: skip
VERDICTS = {"yes": "Holds here", "no": "Does not hold here"}  # as sentences; others as they are


def found(study: Study, notebook: str) -> Markdown:
    """Return what a notebook found ("04"), to end it with."""
    from IPython.display import Markdown

    sentences = findings(study.tables(), study.encoder.special_tokens).get(notebook, [])
    if notebook in PAPERS:
        from helpers.studies.claims import later_claims

        claims = check_claims(study.tables(), later_claims())
        claims = claims[claims["section"].str.startswith(PAPERS[notebook])]
    else:
        claims = study.claims(SECTIONS[notebook])
    paragraphs = [" ".join(sentences), *verdicts(claims)]
    text = "\n\n".join(filter(None, ["**What this run found.**", *paragraphs]))
    return Markdown(html.escape(text, quote=False))  # <s>, and names of a corpus, are no markup


def findings(tables: Tables, special_tokens: SpecialTokens) -> dict[str, list[str]]:
    """Return sentences about a run by the number of the notebook that they are of.

    A notebook whose tables are not there has none; nothing is said of what is empty.
    """
    names = {role: token for role, token in special_tokens.items() if token}
    writers: list[tuple[str, Callable[[], list[str]]]] = [
        ("01", lambda: _positions(tables["relative_position"])),
        ("02", lambda: _special(tables["token_types"], names)),
        ("02", lambda: _gradients(tables["gradients"].set_index("layer"), names)),
        ("03", lambda: _entropy(tables["entropy"], names)),
        ("04", lambda: _relations(tables["dependency_heads"])),
        ("04", lambda: _no_op(tables["no_op"])),
        ("04", lambda: _coreference(tables["coreference"].query("type == 'all'"))),
        ("05", lambda: _probes(tables["probes"])),
        ("06", lambda: _clusters(tables["head_cohesion"], tables["head_positions"])),
        ("07", lambda: finetuning_findings(tables)),
        ("08", lambda: pruning_findings(tables)),
        ("09", lambda: cue_findings(tables)),
        ("10", lambda: lens_findings(tables)),
        ("10", lambda: removal_findings(tables)),
        ("10", lambda: attribution_findings(tables)),
    ]
    sentences: dict[str, list[str]] = {}
    for notebook, write in writers:
        # A table, a row or a column that this run does not have.
        with suppress(KeyError, IndexError, ValueError):
            sentences.setdefault(notebook, []).extend(write())
    return {notebook: own for notebook, own in sentences.items() if own}


def verdicts(claims: pd.DataFrame) -> list[str]:
    """Return the claims of the paper by how they came out, a paragraph a verdict."""
    measured = claims[claims["holds"] != NOT_MEASURED]
    if measured.empty:
        return []
    counts = f"Of the paper's claims here, {len(measured)} could be measured."
    return [counts] + [
        f"*{VERDICTS.get(verdict, verdict.capitalize())} ({len(rows)}):* "
        + "; ".join(rows["claim"].str.rstrip("."))
        + "."
        for verdict, rows in measured.groupby("holds", sort=False)
    ]


def _head(row: Any) -> str:
    return f"{int(row['layer'])}-{int(row['head'])}"


def _top(table: pd.DataFrame, column: str) -> pd.Series:
    return table.loc[table[column].idxmax()]


def _positions(table: pd.DataFrame) -> list[str]:
    previous, following = _top(table, "previous"), _top(table, "next")
    over = {side: int((table[side] > 0.5).sum()) for side in ("previous", "next")}
    ahead = following["next"] > 0  # a decoder cannot look
    most = f" and head {_head(following)} {following['next']:.0%} to the next" if ahead else ""
    return [
        f"Head {_head(previous)} gives {previous['previous']:.0%} of its attention to the previous "
        f"token{most}, the most of {len(table)} heads.",
        f"Over half of its attention: {over['previous']} to the previous token"
        + (f", {over['next']} to the next (number of heads)." if ahead else " (number of heads)."),
        f"The median head gives {table['current'].median():.1%} to the current token.",
    ]


def _special(table: pd.DataFrame, names: SpecialTokens) -> list[str]:
    layers = table.groupby("layer").mean()
    peaks = {token: layers[role] for role, token in names.items() if layers[role].notna().any()}
    said = [
        f"{token} gets the most attention in layer {shares.idxmax()}, {shares.max():.0%} on "
        f"average over its heads, and {shares.mean():.0%} over all layers."
        for token, shares in sorted(peaks.items(), key=lambda peak: -peak[1].mean())
    ]
    marks = layers["punctuation"]
    return [*said, f"Periods and commas get the most in layer {marks.idxmax()}, {marks.max():.0%}."]


def _gradients(table: pd.DataFrame, names: SpecialTokens) -> list[str]:
    ratios = {
        token: table["other"] / table[role]
        for role, token in names.items()
        if table[role].notna().any()
    }
    return [
        f"Changing attention to {token} would change the loss {ratio.max():.1f} times less than "
        f"changing attention to other tokens in layer {ratio.idxmax()}, where the two differ most."
        if ratio.max() > 1
        else f"In no layer would changing attention to {token} matter less than to other tokens."
        for token, ratio in ratios.items()
    ]


def _entropy(table: pd.DataFrame, names: SpecialTokens) -> list[str]:
    layers = table.groupby("layer").mean()
    uniform, values = layers["uniform"].mean(), layers["entropy"]
    said = [
        f"Layer {values.idxmax()} is the broadest with {values.max():.2f} nats on average and "
        f"layer {values.idxmin()} the most focused with {values.min():.2f}; uniform attention "
        f"would have {uniform:.2f}."
    ]
    last = layers["entropy_from_cls"].iloc[-1]
    if pd.notna(last):
        said.append(f"In the last layer {names.get('cls', 'the first token')} has {last:.2f} nats.")
    return said


def _relations(table: pd.DataFrame) -> list[str]:
    rows = table.set_index("relation")
    whole, others = rows.loc["All"], rows.drop(index="All")
    margin = (others["accuracy"] - others["baseline"]).sort_values(ascending=False)
    best = "; ".join(
        f"{name}: {row['head']}, {_interval(row)} (offset {row['baseline']:.0f})"
        for name, row in others.loc[margin.index[:MOST_RELATIONS]].iterrows()
    )
    return [
        f"The best head over all relations, {whole['head']}, gets {_interval(whole)} of the words "
        f"right, the best fixed offset {whole['baseline']:.1f}%.",
        f"Furthest above their offset, in percent: {best}.",
        f"{(margin > 0).sum()} of {len(margin)} relations have a head above their best offset, "
        "chosen and scored on the same words.",
    ]


def _no_op(table: pd.DataFrame) -> list[str]:
    rows = table.assign(paper=table["relation"].map(paper_names(table["relation"])))
    rows = rows[rows["paper"].isin(FIGURE_5)]
    shares = "; ".join(
        f"{row['relation']} ({row['head']}) {row['without']:.0%} and {row['with']:.0%}"
        for _, row in rows.iterrows()
    )
    said = "What heads give to special tokens from words without and with their relation"
    return [f"{said}: {shares}."] if shares else []


def _interval(row: pd.Series) -> str:
    return f"{row['accuracy']:.1f}% ({row['ci_low']:.1f} to {row['ci_high']:.1f})"


def _coreference(table: pd.DataFrame) -> list[str]:
    head = table[table["system"].str.fullmatch(r"head \d+-\d+")].iloc[0]
    rule = _top(table[~table["system"].str.match(r"head \d")], "accuracy")
    return [
        f"For antecedents, {head['system']} is right about {_interval(head)} of the mentions; the "
        f"best rule ({rule['system']}) about {rule['accuracy']:.1f}%."
    ]


def _probes(table: pd.DataFrame) -> list[str]:
    measured = table[table["value"].notna()]
    said = []
    for metrics, start in (
        (["UUAS", "UAS without punctuation"], "Attachment without punctuation, in percent"),
        (["selectivity"], "Attachment above that of random heads (selectivity), in points"),
    ):
        numbers = "; ".join(
            f"{row.probe} {row.value:.1f} ({row.ci_low:.1f} to {row.ci_high:.1f})"
            for row in measured[measured["metric"].isin(metrics)].itertuples()
        )
        said += [f"{start}: {numbers}."] if numbers else []
    return said


def _clusters(cohesion: pd.DataFrame, positions: pd.DataFrame) -> list[str]:
    kinds = positions["behaviour"].replace("other", "without one pattern").value_counts()
    counts = ", ".join(f"{count} {name}" for name, count in kinds.items())
    return [
        f"Heads of one {row.by} are {row.within / row.between:.0%} as far from each other as heads "
        f"of different ones (permutation test: p = {row.p_value:.2g})."
        for row in cohesion.itertuples()
        if pd.notna(row.p_value)
    ] + [f"Heads by what they mostly do: {counts}."]
