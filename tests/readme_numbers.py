"""The numbers that figures/README.md says of notebooks 09 and 10, from the tables of their runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from helpers.cache import read_exact

FIGURES = Path(__file__).resolve().parent.parent / "figures"
ARCT_MODELS = {
    ("bag of vectors", "original"): "bag of vectors",
    ("BiLSTM", "original"): "BiLSTM",
    ("encoder", "original"): "MiniLM, fine-tuned",
    ("encoder", "swapped"): "the same, on swapped warrants too",
    ("random-init encoder", "original"): "MiniLM from random weights",
}
ARCT_RULES = {
    "not as written": "the word `not` alone",
    "not and n't": "and `n't`",
    "not, n't and cannot": "and `cannot`",
}


def rows(name: str, run: str = "minilm", figures: Path = FIGURES, **where: object) -> pd.DataFrame:
    """Return a table of a committed run, or those of its rows that have these values."""
    table = read_exact(figures / run / "tables" / f"{name}.csv")
    for column, value in where.items():
        table = table[table[column] == value]
    return table


def arct_table(figures: Path) -> pd.DataFrame:
    """Return right warrants as written and on the counterparts, in percent, models down."""
    table = rows("partial_inputs", "minilm-arct", figures)
    cells = table.pivot(index=["model", "train", "inputs"], columns="test", values="mean")
    shown = (
        cells["original"].map("{:.0f}".format) + " / " + cells["adversarial"].map("{:.0f}".format)
    )
    shown = shown.unstack("inputs")[list(dict.fromkeys(table["inputs"]))].fillna("")
    return shown.reindex(list(ARCT_MODELS)).set_axis(list(ARCT_MODELS.values()))


def arct_rules(figures: Path) -> pd.DataFrame:
    """Return what counting more words as `not` makes of its productivity and coverage."""
    table = rows("cue_rules", "minilm-arct", figures).set_index(["rule", "split"])
    cells = (
        table["productivity"].map("{:.0f}".format) + " / " + table["coverage"].map("{:.0f}".format)
    )
    shown = cells.unstack("split")[["all", "train", "dev", "test"]]
    return shown.reindex(list(ARCT_RULES)).set_axis(list(ARCT_RULES.values()))


def sentences() -> Iterator[str]:
    """Yield what figures/README.md says, word for word."""
    yield from _arct()
    yield from _lenses()


def notebook_09() -> Iterator[str]:
    """Yield what notebook 09 says of ARCT, which it does not run by itself."""
    table = rows("partial_inputs", "minilm-arct", model="encoder", train="original")
    table = table.set_index(["inputs", "test"])
    mean = table["mean"]
    yield (
        f"the encoder gets {mean['warrants', 'original']:.1f}% of the test arguments from warrants "
        f"alone and {mean['all', 'original']:.1f}% with everything"
    )
    yield (
        f"On the counterparts it gets {mean['warrants', 'adversarial']:.1f}% and "
        f"{mean['all', 'adversarial']:.1f}%, of both {mean['all', 'both']:.1f}% with everything."
    )
    claimed = table.loc[("claim + warrants", "both")]
    yield (
        f"it is right on {claimed['mean']:.1f}% of both ({claimed['ci_low']:.1f} to "
        f"{claimed['ci_high']:.1f})"
    )


def _arct() -> Iterator[str]:
    table = rows("partial_inputs", "minilm-arct")
    encoders = table[table["model"].str.endswith("encoder") & (table["test"] != "both")]
    yield f"whose standard deviations are up to {encoders['std'].max():.1f} points"
    claims = rows("claims", "minilm-arct").set_index("claim")
    assert len(claims) == 7 and (claims["holds"] == "yes").all()
    lead = claims.loc["The encoder follows the cues better than a bag of vectors"]
    yield (
        "All seven claims that could be measured hold: the encoder follows the cues better than a "
        f"bag of vectors by {lead['here']:.1f} points ({lead['ci_low']:.1f} to "
        f"{lead['ci_high']:.1f}; paper: {lead['paper_value']:.1f})"
    )
    both = table[(table["model"] == "encoder") & (table["test"] == "both")]
    both = both.set_index(["train", "inputs"])
    swapped, claimed = both.loc[("swapped", "all")], both.loc[("original", "claim + warrants")]
    yield (
        f"it is right on {swapped['mean']:.1f}% of both halves ({swapped['ci_low']:.1f} to "
        f"{swapped['ci_high']:.1f}; mean of the paper: {swapped['paper_mean']:.1f})."
    )
    yield (
        f"{claimed['mean']:.1f}% of both halves ({claimed['ci_low']:.1f} to "
        f"{claimed['ci_high']:.1f})."
    )


def _lenses() -> Iterator[str]:
    shares = rows("lens_shares").mean(numeric_only=True)
    special = {lens: 100 * (shares[f"{lens}_cls"] + shares[f"{lens}_sep"])
               for lens in ("attention", "norm")}  # fmt: skip
    yield (
        f"[CLS] and [SEP] get {special['attention']:.1f}% of the attention, but only "
        f"{special['norm']:.1f}% of what attention moves comes from them"
    )
    effects, by_chance = (
        rows(name, effect="vector").set_index("method")["correlation"]
        for name in ("attributions", "control_attributions")
    )
    yield (
        f"is ranked best by the norm lens ({effects['norm lens, all layers']:.2f}; attention "
        f"{effects['attention, all layers']:.2f}, rollout {effects['rollout']:.2f}), but as well "
        f"as with random weights ({by_chance['norm lens, all layers']:.2f}), nearly."
    )
    found = rows("lens_relations", relation="mean").iloc[0]
    yield (
        f"keep what they find through the norm lens ({found['norm_accuracy']:.1f}% where attention "
        f"has {found['attention_accuracy']:.1f}, means over relations)"
    )
