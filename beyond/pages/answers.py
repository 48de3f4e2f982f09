"""The three sentences about a model at the top of its report."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial

import pandas as pd

from beyond.pages.run_folder import Tables, rows_of
from helpers.metrics.reference import UAS_WITHOUT_PUNCTUATION, paper_names

ROLES = ("cls", "sep", "first")
MAX_SENTENCES = 3
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
# Universal parts of speech in words, where the tag is none.
PARTS_OF_SPEECH = {
    "ADJ": "adjective",
    "ADP": "preposition",
    "ADV": "adverb",
    "AUX": "auxiliary",
    "DET": "determiner",
    "NUM": "number",
    "PRON": "pronoun",
    "PROPN": "name",
}


def answers(tables: Tables, special_tokens: Mapping[str, str | None]) -> list[str]:
    """Describe a run in at most three sentences, as far as it has the tables.

    A run of the paper's notebooks says where attention goes, which relation a head finds, and what
    all heads find together; a run of later papers' notebooks, what the sink is for, what heads
    find and do, and what classifiers read.

    Parameters
    ----------
    tables : mapping of str to DataFrame
        The tables of a run.
    special_tokens : mapping of str to str or None
        The model's tokens for [CLS] ("cls") and [SEP] ("sep").

    Returns
    -------
    list of str
    """
    sentences = []
    for describe in (
        partial(_where_attention_goes, special_tokens=special_tokens),
        _best_relation,
        _all_heads,
        _without_the_sink,
        _moved_by_special_tokens,
        _accuracy_and_effect,
        _partial_inputs,
    ):
        with suppress(LookupError, ValueError):  # the run lacks the table or the row
            sentences.append(describe(tables))
    return sentences[:MAX_SENTENCES]


def _where_attention_goes(tables: Tables, special_tokens: Mapping[str, str | None]) -> str:
    """Name the special token with the most attention, and the layer that gives it most."""
    names = {role: special_tokens.get(role) or f"[{role.upper()}]" for role in ROLES[:2]}
    names["first"] = "the first token"
    by_head = rows_of(tables, "token_types")
    by_layer = by_head.set_index("layer").filter(ROLES).groupby("layer").mean()
    shares = by_layer.mean().dropna()
    role = shares.idxmax()  # of equal shares, the first: a special token by its own name
    sentence = (
        f"{shares[role]:.0%} of its attention goes to {names[role]}, and in layer "
        f"{by_layer[role].idxmax()} {by_layer[role].max():.0%}"
    )
    control = rows_of(tables, "token_types", "random")
    if len(control):
        sentence += f" (random weights: {control[role].mean():.0%})"
    return sentence + "."


def _best_relation(tables: Tables) -> str:
    """Describe the relation of the paper that a head finds best, beside two rules."""
    table = rows_of(tables, "dependency_heads_held_out")
    names = table["relation"].map(paper_names(table["relation"])).map(IN_WORDS)
    in_words = table[names.notna()]
    best = in_words.loc[in_words["margin"].idxmax()]
    sentence = (
        f"On texts that did not choose it, head {best['head']} finds {names[best.name]} in "
        f"{best['dev_accuracy']:.0f}% of the cases; a fixed distance would find "
        f"{best['baseline']:.0f}%"
    )
    if isinstance(best.get("nearest_class"), str):
        word = PARTS_OF_SPEECH.get(best["nearest_class"], best["nearest_class"].lower())
        sentence += (
            f", and the nearest {word} on the {best['nearest_side']} "
            f"(knows the parts of speech) {best['nearest_accuracy']:.0f}%"
        )
    return sentence + "."


def _all_heads(tables: Tables) -> str:
    """Compare the parents that all heads find together with those of controls."""
    probes = rows_of(tables, "probes")
    scores = probes[probes["metric"] == UAS_WITHOUT_PUNCTUATION].set_index("probe")["value"]
    probe = min(scores.index.intersection([*PROBES]), key=[*PROBES].index)
    with_words = "and word vectors " if probe == "Attn + GloVe" else ""
    controls = []
    for name, control in (("random weights", f"Random-init {probe}"), PROBES[probe]):
        if control in scores:
            controls.append(f"{name}: {scores[control]:.0f}%")
    sentence = (
        f"All heads {with_words}together find the parent of {scores[probe]:.0f}% of the words"
    )
    return sentence + (f" ({', '.join(controls)})." if controls else ".")


def sink_edges(tables: Tables, model: str = "trained") -> pd.DataFrame:
    """Select the changes of the attention to the first token, in the layers of the sink.

    Returns
    -------
    DataFrame
        One row, the measure ("sentence angle" or "loss"), with a column for each change.
    """
    edges = rows_of(tables, "edges", model)
    edges = edges[edges["keys"].isin(["cls", "first"])]
    in_sink = edges[edges["layers"] == edges["layers"].iloc[0]]
    return in_sink.pivot_table("value", "measure", "change")


def _without_the_sink(tables: Tables) -> str:
    """Describe what is lost if the attention to the first token is dropped, or made constant."""
    changes = sink_edges(tables)
    measure, unit = ("turns the sentence vector by", " degrees")
    if "loss" in changes.index:
        measure, unit = ("raises the loss by", " nats")
    change = changes.iloc[0]
    sentence = (
        f"Dropping the attention to the first token, where it is largest, {measure} "
        f"{change['dropped']:.2g}{unit}, giving it to other tokens by "
        f"{change['redistributed']:.2g}, and the same weight for every query by "
        f"{change['constant']:.2g}"
    )
    control = sink_edges(tables, "random")
    if len(control):
        random = control.iloc[0]
        numbers = [f"{random[name]:.2g}" for name in ("dropped", "redistributed", "constant")]
        sentence += f" (random weights: {', '.join(numbers)})"
    return sentence + "."


def _moved_by_special_tokens(tables: Tables) -> str:
    """Compare the attention that special tokens get with their part of what attention moves."""
    table = rows_of(tables, "special_tokens")
    means = table[table["token"] == "special"][["attention", "norm"]].mean()
    return (
        f"Special tokens get {means['attention']:.0%} of attention and make up {means['norm']:.0%} "
        "of what attention moves, by the norms of the vectors."
    )


def _accuracy_and_effect(tables: Tables) -> str:
    """Describe how far the heads that find a relation are those that use it."""
    correlations = rows_of(tables, "head_edge_correlations")
    measure = "turns" if "turns" in set(correlations["measure"]) else "next token, size"
    rows = correlations[correlations["measure"] == measure].set_index("predictor")["correlation"]
    return (
        "If the edges of a relation have the same weight in every head, what they change and how "
        f"well the head finds the relation correlate by {rows['margin at equal attention']:.2f}; "
        f"as they are, by {rows['margin']:.2f}, because accurate heads attend more."
    )


def _partial_inputs(tables: Tables) -> str:
    """Describe what the model reads from the warrants of an argument alone."""
    table = rows_of(tables, "partial_inputs")
    is_model = (table["classifier"] == "encoder") & (table["train"] == "original")
    scores = table[is_model & (table["inputs"] == "warrants")].set_index("test")["mean"]
    return (
        "From the warrants alone, without the argument, it picks the right one for "
        f"{scores['original']:.0f}% of the arguments (a guess: 50%), and for "
        f"{scores['adversarial']:.0f}% of the mirrored ones."
    )
