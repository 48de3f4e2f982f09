"""What notebook 10 found, in sentences written from its tables: a function for each part."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from helpers.studies.attention_moves.claims import MEAN, WHOLE

Tables = Mapping[str, pd.DataFrame]
SURE = 0.05  # p-value
EFFECTS = {"vector": "a text's vector", "similarity": "the similarity of two paragraphs"}


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
        f"{_interval(mean, 'gain', 'gain_low', 'gain_high', '+.1f')} points on average; "
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
        f"{_interval(row, 'lead', 'low', 'high', '+.1f')}, p = {row['p_value']:.2g}"
        for _, row in tables["relation_heads_mean"].query("against == 'layer'").iterrows()
    )
    said = "A relation's loss without the head found for it, less that without others of its layer"
    return [
        *([f"{said}, in points of recall: {leads}."] if leads else []),
        f"The objective needs head {cost['layer']:.0f}-{cost['head']:.0f} most: its loss is "
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
        names = ("correlation", "correlation_low", "correlation_high", ".2f")
        said.append(
            f"What leaving a token out does to {what} is told best by {method}: rank correlation "
            f"{_interval(row, *names)}, with random weights {_interval(control, *names)}."
        )
    return said


def _interval(row: pd.Series, value: str, low: str, high: str, form: str) -> str:
    bounds = f" ({row[low]:{form}} to {row[high]:{form}})" if pd.notna(row[low]) else ""
    return f"{row[value]:{form}}{bounds}"
