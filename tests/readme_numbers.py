"""The numbers that figures/README.md says of notebooks 07 to 10, from the tables of their runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from helpers.tables import read_exact

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
SHIFT, NUMBER = "bigram shift", "number of the subject"


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
    yield from _patterns()
    yield from _fine_tuning()
    yield from _disabling()
    yield from _single_heads()
    yield from _pruning()
    yield from _arct()
    yield from _lenses()
    yield from _norm_lens()
    yield from _mpnet()


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


def _patterns() -> Iterator[str]:
    trust = rows("pattern_trust").set_index("measure")
    value = trust["percent"]
    f1 = trust.loc["macro F1, support vectors"]
    yield (
        f"they agree with the labels in {value['accuracy, support vectors']:.0f}% (always the "
        f"commonest label: {value['accuracy of the commonest label']:.0f}); macro F1 is "
        f"{f1['percent']:.1f} ({f1['ci_low']:.1f} to {f1['ci_high']:.1f}), where a small network "
        f"as in the paper has {value['macro F1, network']:.1f} and thresholds "
        f"{value['macro F1, thresholds']:.1f}."
    )
    kappa = value["the same beyond chance (kappa, in percent)"] / 100
    yield f"in two passes of one sitting (kappa {kappa:.3f})"
    own, control = (
        (rows(name)["p_holm"] < 0.05).sum() for name in ("semantic_links", "control_semantic_links")
    )
    yield f"{own} of 72 heads attend along links beyond chance, of the control's heads {control} ("


def _fine_tuning() -> Iterator[str]:
    accuracy = rows("fine_tuning").set_index(["start", "task"])
    learned = accuracy["learned"]
    assert learned["pretrained"].all()
    assert list(learned["random"][learned["random"]].index) == ["tense of the main verb"]
    yield (
        "All five tasks are learned beyond what a bag of words knows (dotted); from random weights "
        "that is so of the tense alone."
    )
    alone, tuned = (
        accuracy.loc[(start, "article")] for start in ("classifier alone", "pretrained")
    )
    assert alone["accuracy"] >= tuned["ci_low"]
    yield (
        "What tells articles apart is there before fine-tuning: a classifier on the model as it "
        "was does as well."
    )
    similarity = rows("finetuning_similarity").groupby(["task", "layer"])["similarity"].mean()
    by_layer = similarity.unstack()
    assert (by_layer.idxmin(axis=1) == 6).all() and by_layer[6].idxmax() == SHIFT
    yield (
        "The last layers change most, as in BERT, and hardly for the order of two words "
        "(bigram shift)."
    )


def _disabling() -> Iterator[str]:
    table = rows("disabling")
    heads, layers = table[table["head"] > 0], table[table["head"] == 0]
    share = 100 * heads.groupby("task")["removable"].mean()
    yield (
        f"Of 72 heads, {share[SHIFT]:.0f}% can be disabled (attend uniformly) without a change of "
        "two points in telling whether two words are swapped, "
        f"{share['next paragraph']:.0f}% for the next paragraph, and every one for the three other "
        "tasks."
    )
    assert (share.drop([SHIFT, "next paragraph"]) == 100).all()
    yield (
        f"the largest loss is {-heads['change'].min():.1f} points for a head, "
        f"{-layers['change'].min():.1f} for a layer."
    )


def _single_heads() -> Iterator[str]:
    table = rows("ablation")
    own = table.set_index(["task", "layer", "head"])
    weights = rows("importance").set_index(["task", "layer", "head"])["normalised"]
    worst = {task: change.idxmin() for task, change in own["change"].groupby("task")}
    costliest = []
    for task in ("next paragraph", SHIFT):
        assert worst[task] == weights[[task]].idxmax()
        _, layer, head = worst[task]
        costliest.append((f"{layer}-{head}", -own.loc[worst[task], "change"]))
    (one, lost), (other, also_lost) = costliest
    rest = table[~table["task"].isin(["next paragraph", SHIFT])]
    yield (
        "For the next paragraph and for bigram shift the most important head is the costliest one, "
        f"too ({one}: {lost:.1f} points, {other}: {also_lost:.1f}); for the other tasks none costs "
        f"more than {np.ceil(-10 * rest['change'].min()) / 10:.1f}."
    )
    can_go = table.groupby("task")["removable"].sum()
    assert (can_go[[NUMBER, "tense of the main verb"]] == 72).all()
    yield (
        f"Shown to be removable alone are {can_go['next paragraph']} of 72 heads for the next "
        f"paragraph, {can_go[SHIFT]} for bigram shift, {can_go['article']} for the article and all "
        "of them for the two others."
    )


def _pruning() -> Iterator[str]:
    steps = rows("pruning", order="importance").set_index(["task", "pruned"])
    kept = steps[steps["removable"].groupby("task").cummin()].reset_index("pruned")
    up_to = kept.groupby("task")["pruned"].max()
    lost = -steps.loc[("next paragraph", 40), "change"]
    over_seeds = rows("seed_intervals").set_index(["task", "measure"])
    yield (
        f"The tense of the main verb is told without {up_to['tense of the main verb']}% of "
        f"the heads, the number of the subject without {up_to[NUMBER]}% of them "
        f"({over_seeds.loc[(NUMBER, 'prunable'), 'mean']:.0f} over five seeds); which of two "
        f"paragraphs follows loses {lost:.0f} points at 40%."
    )
    half = rows("head_removal")["speed_up"]
    yield (
        "Removing half of the heads for real makes the encoder "
        f"{half.min():.0f} to {half.max():.0f}% faster"
    )
    number, shift = (over_seeds.loc[(task, "removable")] for task in (NUMBER, SHIFT))
    yield (
        f"Over these seeds {number['mean']:.0f}% of the heads can be removed alone for that task "
        f"({number['ci_low']:.0f} to {number['ci_high']:.0f}) and {shift['mean']:.0f}% for the "
        f"order of two words ({shift['ci_low']:.0f} to {shift['ci_high']:.0f})."
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


def _norm_lens() -> Iterator[str]:
    runs = "minilm-norm", "minilm"
    scores = [rows("probes", run, metric="UAS without punctuation") for run in runs]
    scores = [table.set_index("probe")["value"] for table in scores]
    own, default = ((table["Attn"], table["Attn + GloVe"]) for table in scores)
    yield (
        f"the probes have {own[0]:.1f} and {own[1]:.1f}%, with attention {default[0]:.1f} and "
        f"{default[1]:.1f}"
    )
    claims = [rows("claims", run).set_index("claim") for run in runs]
    times = [
        table.loc["That is many times what uniform attention would give it", "here"]
        for table in claims
    ]
    yield f"[CLS] gets {times[0]:.1f} times a uniform share ({times[1]:.1f})"
    assert claims[0].loc["Entropy is highest in lower layers", "holds"] == "no"
    closeness = claims[0].loc["Heads of one layer are closer to each other than to other layers'"]
    assert round(closeness["here"], 2) == round(closeness["control"], 2)
    yield f"({closeness['here']:.2f} of the distance between layers, as with the trained ones)"
    hold = [(table["holds"] == "yes").sum() for table in claims]
    yield f"{hold[0]} of the {len(claims[0])} claims hold ({hold[1]})."


def _mpnet() -> Iterator[str]:
    shares = rows("lens_shares", "mpnet").groupby("layer").mean()
    attention, norm = (
        shares[f"{lens}_cls"] + shares[f"{lens}_sep"] for lens in ("attention", "norm")
    )
    yield (
        f"`<s>` and `</s>` get {100 * attention.mean():.1f}% of the attention, and "
        f"{100 * norm.mean():.1f}% of what is moved comes from them"
    )
    ratios = norm / attention
    yield f"less in every layer (ratios of {ratios.min():.2f} to {ratios.max():.2f})"
    values = rows("value_norms", "mpnet").groupby("layer")["value_cls"].mean()
    small = values[values < 0.2]
    assert list(small.index) == [3, 4, 5, 10, 11, 12]
    yield (
        f"are small ({small.min():.2f} to {small.max():.2f} of the mean) in layers 3 to 5 and 10 "
        "to 12"
    )
    yield f"7 and 8, where it gets {100 * shares.loc[[7, 8], 'attention_cls'].mean():.0f}%."
    found = rows("lens_relations", "mpnet").set_index("relation")
    mean, prepositions = found.loc["mean"], found.loc["pobj"]
    yield (
        f"Heads of Table 1 find {mean['attention_accuracy']:.1f}% through attention and "
        f"{mean['norm_accuracy']:.1f} through the norm lens; objects of prepositions alone lose "
        f"clearly ({prepositions['attention_accuracy']:.1f} to "
        f"{prepositions['norm_accuracy']:.1f})"
    )
