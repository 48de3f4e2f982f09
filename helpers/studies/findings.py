"""What notebooks 07 to 10 found, in sentences written from their tables."""

from __future__ import annotations

import pandas as pd

from helpers.analysis.claims import Tables
from helpers.studies.argument_cues.cues import ALL, HALVES
from helpers.studies.argument_cues.scores import ORIGINAL
from helpers.studies.attention_moves.claims import MEAN, WHOLE
from helpers.studies.tables import learned_tasks

SURE = 0.05  # p-value
EFFECTS = {"vector": "a text's vector", "similarity": "the similarity of two paragraphs"}


def finetuning_findings(tables: Tables) -> list[str]:
    """Return sentences about tasks, patterns, changes, features, links and disabled heads."""
    accuracy = tables["fine_tuning"]
    own = accuracy[accuracy["start"] == "pretrained"].set_index("task")
    random = accuracy[accuracy["start"] == "random"].set_index("task")["accuracy"]
    learned = own.index[own.index.isin(learned_tasks(tables))]
    names = ", ".join(f"*{name}*" for name in learned) or "none"
    similarity = tables["finetuning_similarity"]
    by_layer = similarity.groupby(["task", "layer"])["similarity"].mean().unstack("task")
    disabled = tables["disabling"]
    single, whole = disabled[disabled["head"] > 0], disabled[disabled["head"] == 0]
    losses = (single["change"] < 0) & (single["p_value"] < SURE)
    gain = whole.loc[whole["change"].idxmax()]
    links = tables["semantic_links"]
    top = links.loc[links["difference"].idxmax()]
    return [
        f"Learned beyond what words give away: {names} ({len(learned)} of {len(own)} tasks).",
        *(
            f"*{task.capitalize()}*: {_interval(row, 'accuracy', '.1f', unit='%')}, a bag of words "
            f"{row['bag_of_words']:.1f}%, from random weights {random[task]:.1f}%."
            for task, row in own.iterrows()
        ),
        *(
            f"Fine-tuning on *{task}* changes layer {by_layer[task].idxmin()} most (mean cosine "
            f"{by_layer[task].min():.2f})."
            for task in learned
        ),
        f"Along links head {_head(top)} stands out most: {top['linked']:.2f} against "
        f"{top['random']:.2f} for other pairs at the same distance; {(links['ci_low'] > 0).sum()} "
        f"of {len(links)} heads are above chance at all, and the median differs by "
        f"{links['difference'].median():.3f}.",
        f"Of single disabled heads {losses.mean():.0%} are a loss with p < {SURE}; the largest "
        f"is {-single['change'].min():.1f} points.",
        f"The best that comes of disabling a layer is {gain['change']:+.1f} points "
        f"(*{gain['task']}*, layer {int(gain['layer'])}, p = {gain['p_value']:.2g}).",
        *_features(tables["token_features"]),
    ]


def pruning_findings(tables: Tables) -> list[str]:
    """Return sentences about heads taken out alone and together, and where it matters."""
    single, across = tables["ablation"], tables["cross_data"]
    pruned = tables["pruning"].query("order == 'importance' and pruned > 0")
    worst = single.loc[single.groupby("task", sort=False)["change"].idxmin()]
    removable = single.groupby("task", sort=False)["removable"].agg(["sum", "size"])
    said = [
        "Shown to be removable alone, of all heads: "
        + "; ".join(f"*{task}* {row['sum']} of {row['size']}" for task, row in removable.iterrows())
        + ".",
        "The costliest: "
        + "; ".join(
            f"*{row['task']}* {_head(row)} ({row['change']:+.1f} points)"
            for _, row in worst.iterrows()
        )
        + ".",
    ]
    for task, rows in pruned.groupby("task", sort=False):
        kept = rows.sort_values("pruned")
        kept = kept[kept["removable"].astype(bool).cummin()]
        most = 0 if kept.empty else kept["pruned"].max()
        said.append(f"By importance {most:.0f}% of the heads can go for *{task}*.")
    said += [
        f"Heads that matter on the one set matter on the other ({row['set']}, *{row['task']}*): "
        f"r = {_interval(row, 'correlation', '.2f')}."
        for _, row in across.dropna().iterrows()
    ]
    for task, rows in tables.get("seed_intervals", pd.DataFrame({"task": []})).groupby("task"):
        of = rows.set_index("measure")
        alone, alike = of.loc["removable"], of.loc["correlation"]
        said.append(
            f"Over {alone['seeds']} seeds of *{task}* {alone['mean']:.0f}% of heads are removable "
            f"alone ({alone['ci_low']:.0f} to {alone['ci_high']:.0f}); importance under one seed "
            f"correlates with that under another at {alike['mean']:.2f}."
        )
    for _, row in tables.get("argument_heads", pd.DataFrame()).iterrows():
        low, high = row["loss_ci_low"], row["loss_ci_high"]
        verdict = (
            "is missed more than" if low > 0 else "is missed less than" if high < 0
            else "is not shown to be missed more or less than"
        )  # fmt: skip
        said.append(
            f"The head for {row['relation']}, {row['head']}, {verdict} the others of its layer on "
            f"*{row['task']}*: {row['loss_difference']:+.3f} nats ({low:+.3f} to "
            f"{high:+.3f}), rank {row['rank']}."
        )
    return said


def cue_findings(tables: Tables) -> list[str]:
    """Return sentences about the strongest cue, and what models get right of which parts."""
    cues, choices = tables["cues"], tables["partial_inputs"]
    cue = cues[(cues["half"] == HALVES[0]) & (cues["split"] == ALL)].iloc[0]
    choices = choices[choices["train"] == ORIGINAL]
    said = [
        f"The strongest cue is “{cue['cue']}”: in one warrant only in {cue['coverage']:.0f}% of "
        f"the arguments, and in {cue['productivity']:.0f}% of these ({cue['ci_low']:.0f} to "
        f"{cue['ci_high']:.0f}) in the right one, {cue['gain']:.0f} points over guessing."
    ]
    for inputs, test, what in (
        ("warrants", HALVES[0], "Right with warrants alone"),
        ("all", HALVES[0], "With everything shown"),
        ("all", HALVES[1], "The same on the counterparts"),
    ):
        rows = choices[(choices["inputs"] == inputs) & (choices["test"] == test)]
        numbers = "; ".join(
            f"{row['model']} {_interval(row, 'mean', '.1f')}" for _, row in rows.iterrows()
        )
        said += [f"{what}, in percent: {numbers}."] if numbers else []
    return said


def lens_findings(tables: Tables) -> list[str]:
    """Return sentences about special tokens, the first position, and Tables 1 and 2."""
    special = tables["special_tokens"].set_index(tables["special_tokens"]["layer"].astype(str))
    whole, ratios = special.loc[WHOLE], special["ratio"].drop(WHOLE)
    sinks = tables["sinks"].set_index("layer")
    sink = sinks.loc[sinks["attention_first"].idxmax()]
    relations = tables["lens_relations"].set_index("relation")
    mean, mentions = relations.loc[MEAN], tables["lens_mentions"].set_index("relation").loc["all"]
    sure = relations[relations["p_holm"] < SURE]["gain"]
    said = [
        f"Special tokens get {whole['attention']:.1%} of the attention and {whole['norm']:.1%} of "
        f"what is moved; by layer the ratio of the two is {ratios.min():.2f} (layer "
        f"{ratios.idxmin()}) to {ratios.max():.2f} (layer {ratios.idxmax()})."
        if pd.notna(whole["ratio"])
        else "",
        f"The first position gets most attention in layer {sink.name}, "
        f"{sink['attention_first']:.0%}, and {sink['norm_first']:.0%} of what is moved there; its "
        f"value vectors are {sink['value_first']:.2f} times as long as others'.",
        f"The most-attended token is also the one that moves most for "
        f"{tables['value_norms']['same_token'].mean():.0%} of the queries.",
        f"Heads chosen on train find {mean['attention_accuracy']:.1f}% of a relation through "
        f"attention and {mean['norm_accuracy']:.1f}% through the norm lens, a gain of "
        f"{_interval(mean, 'gain', '+.1f', 'gain_low', 'gain_high')} points on average; "
        f"{(sure > 0).sum()} relations gain and {(sure < 0).sum()} lose beyond chance.",
        f"Antecedents: {mentions['attention_accuracy']:.1f}% and {mentions['norm_accuracy']:.1f}%.",
    ]
    return list(filter(None, said))


def removal_findings(tables: Tables) -> list[str]:
    """Return sentences about what relations and the objective lose without single heads."""
    costs = tables["removed_objective"]
    cost = costs.loc[costs["loss_change"].idxmax()]
    leads = "; ".join(
        f"{row['probe']} probe, output {row['kind'].replace('mean', 'its mean')}: "
        f"{_interval(row, 'lead', '+.1f', 'low', 'high')}, p = {row['p_value']:.2g}"
        for _, row in tables["relation_heads_mean"].query("against == 'layer'").iterrows()
    )
    said = "A relation's loss without the head found for it, less that without others of its layer"
    return [
        *([f"{said}, in points of recall: {leads}."] if leads else []),
        f"The objective needs head {_head(cost)} most: its loss is "
        f"{cost['loss']:.2g} nats with it and {cost['loss'] + cost['loss_change']:.2g} without.",
    ]


def attribution_findings(tables: Tables) -> list[str]:
    """Return sentences about the method that ranks tokens best, for either effect."""
    trained, random = (
        tables[name].set_index(["effect", "method"])
        for name in ("attributions", "control_attributions")
    )
    said = []
    for effect, what in EFFECTS.items():
        method = trained.loc[effect]["correlation"].idxmax()
        row, control = trained.loc[effect, method], random.loc[effect, method]
        names = ("correlation", ".2f", "correlation_low", "correlation_high")
        said.append(
            f"What leaving a token out does to {what} is told best by {method}: rank correlation "
            f"{_interval(row, *names)}, with random weights {_interval(control, *names)}."
        )
    return said


def _features(table: pd.DataFrame) -> list[str]:
    before = table[table["weights"] == "pretrained"]
    after, even = table[table["weights"] == "fine-tuned"], table[table["weights"] == "uniform"]
    names = {"cls": "[CLS]", "sep": "[SEP]", "noun": "a noun", "verb": "a verb"} | {
        name: f"a {name}" for name in ("pronoun", "subject", "object", "negation")
    }
    said = []
    for when, rows in (("before", before), ("after", after)):
        ratio = rows[list(names)].mean() / even[list(names)].iloc[0]
        said.append(
            f"Beside uniform attention, {names[ratio.idxmax()]} gets most {when} fine-tuning "
            f"({ratio.max():.1f} times as much)."
        )
    return said


def _interval(
    row: pd.Series,
    value: str,
    form: str,
    low: str = "ci_low",
    high: str = "ci_high",
    unit: str = "",
) -> str:
    """Return a number of a row with the interval that it has, if it has one."""
    bounds = f" ({row[low]:{form}} to {row[high]:{form}})" if pd.notna(row[low]) else ""
    return f"{row[value]:{form}}{unit}{bounds}"


def _head(row: pd.Series) -> str:
    return f"{int(row['layer'])}-{int(row['head'])}"
