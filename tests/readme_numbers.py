"""The numbers that figures/README.md says of notebooks 07 to 10, from the tables of their runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from helpers.cache import read_exact
from helpers.studies.argument_cues.claims import mean_accuracy

FIGURES = Path(__file__).resolve().parent.parent / "figures"
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
NEXT, SHIFT, NUMBER = "next paragraph", "bigram shift", "number of the subject"


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
    shown = _pairs(cells, "original", "adversarial").unstack("inputs")
    shown = shown[list(dict.fromkeys(table["inputs"]))].fillna("")
    return shown.reindex(list(ARCT_MODELS)).set_axis(list(ARCT_MODELS.values()))


def arct_rules(figures: Path) -> pd.DataFrame:
    """Return what counting more words as `not` makes of its productivity and coverage."""
    table = rows("cue_rules", "minilm-arct", figures).set_index(["rule", "split"])
    shown = _pairs(table, "productivity", "coverage").unstack("split")
    shown = shown[["all", "train", "dev", "test"]]
    return shown.reindex(list(ARCT_RULES)).set_axis(list(ARCT_RULES.values()))


def _pairs(table: pd.DataFrame, one: str, other: str) -> pd.Series:
    return table[one].map("{:.0f} / ".format) + table[other].map("{:.0f}".format)


def sentences() -> Iterator[str]:
    """Yield what figures/README.md says, word for word around its numbers."""
    of_07_and_08 = _patterns, _disabling, _single_heads, _pruning
    for part in (*of_07_and_08, _arct, _edges, _lenses, _norm_lens, _mpnet):
        yield from part()


def notebook_09() -> Iterator[str]:
    """Yield what notebook 09 says of ARCT, which it does not run by itself."""
    table = rows("partial_inputs", "minilm-arct", train="original")
    mean = table.set_index(["model", "inputs", "test"])["mean"]
    random, own = mean["random-init encoder"], mean["encoder"]
    yield (
        f"the encoder gets {own['warrants', 'original']:.1f}% of the test arguments from warrants "
        f"alone and {own['all', 'original']:.1f}% with everything. With random weights it gets "
        f"{random['warrants', 'original']:.1f}% from warrants"
    )
    yield (
        f"On the counterparts it gets {own['warrants', 'adversarial']:.1f}% and "
        f"{own['all', 'adversarial']:.1f}%, of both {own['all', 'both']:.1f}% with everything."
    )
    yield f"it is right on {_with_claims('% of both')}"


def _with_claims(what: str) -> str:
    """Return how much of both halves the encoder gets right of claim and warrants."""
    tables = {name: rows(name, "minilm-arct") for name in ("partial_inputs", "partial_input_seeds")}
    value, low, high = mean_accuracy(tables, "encoder", "claim + warrants", test="both")
    return f"{value:.1f}{what} ({low:.1f} to {high:.1f}"


def _mean(row: pd.Series, what: str = "", digits: int = 1, of: str = "mean") -> str:
    """Return a number and its interval."""
    number, low, high = (f"{row[name]:.{digits}f}" for name in (of, "ci_low", "ci_high"))
    return f"{number}{what} ({low} to {high}"


def _patterns() -> Iterator[str]:
    percent = rows("pattern_trust").set_index("measure")["percent"]
    yield f"they agree with the labels in {percent['accuracy']:.0f}% (always the commonest"
    yield f"label: {percent['accuracy of the commonest label']:.0f}); macro F1 is "
    yield f"macro F1 is {percent['macro F1']:.1f};"
    yield f"in two passes of one sitting (kappa {percent['kappa of the two passes'] / 100:.3f})"
    shares = rows("pattern_shares", weights="fine-tuned").pivot(columns="pattern", values="share")
    columns, special = (
        100 * shares[name].dropna()
        for name in (
            "vertical, with or without diagonal",
            "of these, the darkest column is a special token",
        )
    )
    yield f"maps {columns.min():.0f} to {columns.max():.0f}% are columns, and in "
    yield f"in {special.min():.0f} to {special.max():.0f}% of these the darkest one is a special"
    own, control = (
        (rows(name)["p_holm"] < 0.05).sum() for name in ("semantic_links", "control_semantic_links")
    )
    yield f"{own} of 72 heads attend along links beyond chance, of the control's heads {control}:"
    layers = rows("finetuning_similarity", task=NUMBER).groupby("layer")["similarity"].mean()
    yield f"the fifth does (cosine {layers[5]:.2f}; the last {layers[6]:.2f})"
    accuracy = rows("fine_tuning", start="pretrained").set_index("task")["accuracy"]
    yield "bag of words knows ({:.0f}, {:.0f} and {:.0f}%)".format(*accuracy[[NEXT, SHIFT, NUMBER]])


def _disabling() -> Iterator[str]:
    table = rows("disabling")
    heads, layers = table[table["head"] > 0], table[table["head"] == 0]
    alike = [own["change"].corr(own["zeroed"]) for _, own in heads.groupby("task")]
    yield f"(correlations over heads of {min(alike):.2f} to {max(alike):.2f})"
    worst = heads.loc[heads["zeroed"].idxmin()]
    yield (
        f"head {worst['layer']}-{worst['head']}, which the next paragraph needs most, costs "
        f"{-worst['zeroed']:.1f} points where it is zero and {-worst['change']:.1f} where it"
    )
    can = heads.groupby("task")["removable"].sum()
    yield f"are {can[NUMBER]} of 72 heads for the number of the subject, {can[NEXT]} for the next"
    yield f"{can[NEXT]} for the next paragraph and {can[SHIFT]} for bigram shift"
    yield (
        f"the largest loss is {-heads['change'].min():.1f} points for a head, "
        f"{-layers['change'].min():.1f} for a layer."
    )


def _single_heads() -> Iterator[str]:
    alone = rows("ablation").set_index(["task", "layer", "head"])
    weights = rows("importance").set_index(["task", "layer", "head"])["normalised"]
    points = []
    for task in (NEXT, SHIFT, NUMBER):
        place = alone.loc[[task], "change"].idxmin()
        assert place == weights[[task]].idxmax()
        points.append(f"{place[1]}-{place[2]}: {-alone.loc[place, 'change']:.1f}")
    yield "({} points for the next paragraph; {} for bigram shift; {} for the number".format(
        *points
    )
    can_go = alone.groupby("task")["removable"].sum()
    yield f"Shown to be removable alone are {can_go[NEXT]} of 72 heads for the next paragraph, "
    yield f"{can_go[SHIFT]} for bigram shift and {can_go[NUMBER]} for the number of the subject."
    table = rows("cross_data").set_index(["task", "heads"])
    table = table.rename(columns={f"correlation_{end}": f"ci_{end}" for end in ("low", "high")})
    found = {task: _mean(table.loc[(task, "all")], "", 2, "correlation") for task in can_go.index}
    rest = table.loc[(NEXT, "without the 2 largest effects"), "correlation"]
    yield f"{found[NEXT]}, over heads), and {rest:.2f} without the two heads that cost most"
    yield f"For bigram shift it is {found[SHIFT]}), for the number of the subject {found[NUMBER]})."


def _pruning() -> Iterator[str]:
    steps = rows("pruning", pruned=60, draw=0).set_index(["order", "task"])["change"]
    own, alone = -steps["importance"], -steps["single ablation"]
    yield f"number of the subject loses {own[NUMBER]:.1f} points, bigram shift {own[SHIFT]:.1f} and"
    yield f"and the next paragraph {own[NEXT]:.1f}, where what heads cost alone is the better"
    yield f"better order ({alone[NEXT]:.1f})."


def _arct() -> Iterator[str]:
    table = rows("partial_inputs", "minilm-arct")
    encoders = table[table["model"].str.endswith("encoder") & (table["test"] != "both")]
    yield f"whose standard deviations are up to {encoders['std'].max():.1f} points"
    claims = rows("claims", "minilm-arct").set_index("claim")
    holds = claims["holds"].value_counts()
    assert holds.to_dict() == {"yes": 4, "cannot be told": 5}
    assert not claims["learned"].isin(["yes", "no"]).any()
    lead = claims.loc["The encoder follows the cues better than a bag of vectors"]
    yield (
        "The lead of the encoder over a bag of vectors is "
        f"{_mean(lead, ' points', of='here')}; paper: {lead['paper_value']:.1f}), "
        f"with random weights {lead['control']:.1f}"
    )
    (_, distance), (_, negated) = list(claims.iterrows())[-2:]
    yield f"the encoder is {_mean(distance, ' points from chance', of='here')}; paper: 0.4)"
    yield f"the encoder is right on {_mean(negated, '% of both halves', of='here')}"
    yield f"{_with_claims('% of both halves')})"


def _edges() -> Iterator[str]:
    table = rows("edges", layers="2-5", keys="special", queries="all")
    table = table.set_index(["model", "measure", "change"]).sort_index()
    dropped, given, taken = (
        table.loc["own", "sentence vector", way]
        for way in ("dropped", "given to others", "taken from others")
    )
    yield f"special tokens get {100 * dropped['share']:.0f}% of the attention, dropping it moves a"
    low, high = dropped["ci_low"], dropped["ci_high"]
    yield f"by {dropped['value']:.4f} (1 - cosine; {low:.4f} to {high:.4f})"
    farther = (each["value"] / dropped["value"] for each in (taken, given))
    yield "from words moves it {:.1f} times as far, giving it to them {:.0f} times".format(*farther)
    points = table.loc["own", "structural probe"]
    own = points.loc["dropped"]
    yield f"{own['value']:.1f} points of UUAS, {own['ci_low']:.2f} to {own['ci_high']:.2f}"
    yield f"{points.loc['taken from others', 'value']:.1f} where as much is taken from words"
    ratios = rows("edge_ratios", ways="dropped / taken from others", measure="sentence vector")
    drawn, focused = ratios.set_index("model").loc[["drawn", "focused"], "ratio"]
    yield f"moves the vector {drawn:.1f} and {focused:.1f} times as far as taking as much from"
    gradients = rows("gradients").set_index("layer").loc[2:5, "other_over_cls"]
    yield f"{gradients.min():.0f} to {gradients.max():.0f} times less than attention to other"


def _lenses() -> Iterator[str]:
    attention, norm = (100 * share.mean() for share in _to_special("minilm"))
    yield f"[CLS] and [SEP] get {attention:.1f}% of the attention, but only {norm:.1f}% of what"
    effects, by_chance = (
        rows(name, effect="vector").set_index("method")["correlation"]
        for name in ("attributions", "control_attributions")
    )
    through, weights = "norm lens, all layers", "attention, all layers"
    yield (
        f"is ranked best by the norm lens ({effects[through]:.2f}; attention "
        f"{effects[weights]:.2f}, rollout {effects['rollout']:.2f}), but as well as with random "
        f"weights ({by_chance[through]:.2f}), nearly."
    )


def _norm_lens() -> Iterator[str]:
    runs = "minilm-norm", "minilm"
    scores = [rows("probes", run, metric="UAS without punctuation") for run in runs]
    own, default = (table.set_index("probe")["value"] for table in scores)
    yield (
        f"the probes have {own['Attn']:.1f} and {own['Attn + GloVe']:.1f}%, with attention "
        f"{default['Attn']:.1f} and {default['Attn + GloVe']:.1f}"
    )
    own, default = (rows("claims", run).set_index("claim") for run in runs)
    times = "That is many times what uniform attention would give it"
    yield (
        f"[CLS] gets {own.loc[times, 'here']:.1f} times a uniform share "
        f"({default.loc[times, 'here']:.1f})"
    )
    near = [
        rows(name, runs[0], by="layer").iloc[0]
        for name in ("head_cohesion", "control_head_cohesion")
    ]
    trained, random = (row["within"] / row["between"] for row in near)
    assert round(trained, 2) == round(random, 2)
    yield f"({trained:.2f} of the distance between layers, as with the trained ones)"


def _mpnet() -> Iterator[str]:
    attention, norm = (share.groupby("layer").mean() for share in _to_special("mpnet"))
    yield (
        f"`<s>` and `</s>` get {100 * attention.mean():.1f}% of the attention, and "
        f"{100 * norm.mean():.1f}% of what is moved comes from them"
    )
    ratios = norm / attention
    yield f"less in every layer (ratios of {ratios.min():.2f} to {ratios.max():.2f})"
    values = rows("value_norms", "mpnet").groupby("layer")["value_cls"].mean()
    small = values[values < 0.2]
    assert list(small.index) == [3, 4, 5, 10, 11, 12]
    yield f"are small ({small.min():.2f} to {small.max():.2f} of the mean) in layers 3 to 5 and 10"
    middle = rows("lens_shares", "mpnet").query("layer in (7, 8)")["attention_cls"]
    yield f"7 and 8, where it gets {100 * middle.mean():.0f}%."
    table = rows("edges", "mpnet", keys="special", queries="all", measure="sentence vector")
    dropped, given, taken = (
        table[table["change"] == way].set_index(["model", "layers"])
        for way in ("dropped", "given to others", "taken from others")
    )
    own, far = dropped.loc["own", "2-5, 10-11"], dropped["value"] / taken["value"]
    yield f"special tokens get {100 * own['share']:.0f}% of the attention; dropping it moves the"
    yield f"by {own['value']:.4f} ({own['ci_low']:.4f} to {own['ci_high']:.4f}), taking as much"
    yield f"from words {1 / far['own', '2-5, 10-11']:.1f} times as far, giving it to them " + (
        f"{given['value'].loc['own', '2-5, 10-11'] / own['value']:.1f} times."
    )
    drawn, focused = far["drawn", "2-5, 10-11"], far["focused", "2-5, 10-11"]
    yield f"moves it {drawn:.1f} and, as focused, {focused:.1f} times as far as taking as much"
    yield f"from 2 to 5 moves the vector {far['own', '2-5']:.2f} times as far as what is taken"
    yield f"from 10 and 11 {far['own', '10-11']:.2f} times"
    upper = [f"{layer}" for layer in (6, 7, 8)]
    shares, ratios = 100 * dropped["share"].loc["own"][upper], far["own"][upper]
    yield f"special tokens get {shares.min():.0f} to {shares.max():.0f}%"
    yield f"{ratios.min():.1f} to {ratios.max():.1f} times. There it is no no-op."
    effects = rows("attributions", "mpnet", effect="vector").set_index("method")["correlation"]
    yield f"({effects['rollout']:.2f} against {effects['attention, all layers']:.2f})"


def _to_special(run: str) -> list[pd.Series]:
    """Return the share of special tokens in the attention, and in what it moves, a head a row."""
    shares = rows("lens_shares", run).set_index("layer")
    return [shares[f"{lens}_cls"] + shares[f"{lens}_sep"] for lens in ("attention", "norm")]
