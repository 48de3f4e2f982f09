"""The three sentences about a model at the top of its report."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from helpers.metrics.reference import UAS_WITHOUT_PUNCTUATION, paper_names

Tables = Mapping[str, pd.DataFrame]

ROLES = ("cls", "sep", "first")
RANDOM = "random_"
# The probes of attention, and the strongest baseline that reads as much, but no model.
PROBES = {
    "Attn + GloVe": ("distances and word vectors without a model", "Distances + GloVe"),
    "Attn": ("always the next word", "Right-branching"),
}
# The objects of the sentence about relations: names of the paper, in words.
IN_WORDS = {
    "dobj": "the verb of an object",
    "det": "the noun of a determiner",
    "pobj": "the preposition of its object",
    "poss": "what a possessor possesses",
    "auxpass": "the verb of a passive auxiliary",
    "nsubj": "the verb of a subject",
    "amod": "the noun of an adjective",
}


def answers(tables: Tables, special_tokens: Mapping[str, str | None]) -> list[str]:
    """Describe where attention goes, which relation a head finds, and what all heads find.

    Parameters
    ----------
    tables : mapping of str to DataFrame
        The tables of a run.
    special_tokens : mapping of str to str or None
        The model's tokens for [CLS] ("cls") and [SEP] ("sep").

    Returns
    -------
    list of str
        At most three sentences, as far as the run has the tables.
    """
    sentences = (
        _where_attention_goes(tables, special_tokens),
        _best_relation(tables),
        _all_heads(tables),
    )
    return list(filter(None, sentences))


def _where_attention_goes(tables: Tables, special_tokens: Mapping[str, str | None]) -> str:
    """Name the special token with the most attention, and the layer that gives it most."""
    if "token_types" not in tables:
        return ""
    names = {role: special_tokens.get(role) or f"[{role.upper()}]" for role in ROLES[:2]}
    names["first"] = "the first token"
    by_head = tables["token_types"].set_index("layer").filter(ROLES)
    by_layer = by_head.groupby("layer").mean().dropna(axis=1)
    shares = by_layer.mean().dropna()
    if shares.empty:
        return ""
    role = shares.idxmax()  # of equal shares, the first: a special token by its own name
    layer = by_layer[role].idxmax()
    sentence = (
        f"{shares[role]:.0%} of its attention goes to {names[role]}, and in layer {layer} "
        f"{by_layer[role].max():.0%}"
    )
    control = tables.get(f"{RANDOM}token_types")
    if control is not None and role in control:
        sentence += f" (random weights: {control[role].mean():.0%})"
    return sentence + "."


def _best_relation(tables: Tables) -> str:
    """Describe the relation of the paper that a head finds best, beside two rules."""
    if "dependency_heads_held_out" not in tables:
        return ""
    table = tables["dependency_heads_held_out"]
    names = table["relation"].map(paper_names(table["relation"])).map(IN_WORDS)
    in_words = table[names.notna()]
    if in_words.empty:
        return ""
    best = in_words.loc[in_words["margin"].idxmax()]
    sentence = (
        f"On texts that did not choose it, head {best['head']} finds {names[best.name]} in "
        f"{best['dev_accuracy']:.0f}% of the cases; a fixed distance would find "
        f"{best['baseline']:.0f}%"
    )
    if isinstance(best.get("nearest_class"), str):
        sentence += (
            f", and the nearest {best['nearest_class'].lower()} on the {best['nearest_side']} "
            f"(knows the parts of speech) {best['nearest_accuracy']:.0f}%"
        )
    return sentence + "."


def _all_heads(tables: Tables) -> str:
    """Compare the parents that all heads find together with those of controls."""
    if "probes" not in tables:
        return ""
    by_metric = tables["probes"].set_index("metric")
    scores = by_metric.loc[[UAS_WITHOUT_PUNCTUATION]].set_index("probe")["value"]
    probe = next((name for name in PROBES if name in scores), "")
    if not probe:
        return ""
    with_words = "and word vectors " if probe == "Attn + GloVe" else ""
    controls = []
    for name, control in (("random weights", f"Random-init {probe}"), PROBES[probe]):
        if control in scores:
            controls.append(f"{name}: {scores[control]:.0f}%")
    sentence = (
        f"All heads {with_words}together find the parent of {scores[probe]:.0f}% of the words"
    )
    return sentence + (f" ({', '.join(controls)})." if controls else ".")
