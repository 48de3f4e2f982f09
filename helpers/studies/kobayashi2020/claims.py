"""Claims about what attention moves: Kobayashi et al. 2020, Abnar and Zuidema 2020, and our own."""

from __future__ import annotations

from helpers.claims.engine import Family, Measure
from helpers.claims.tables import Tables, cell, estimate_in, rows_of, with_bounds
from helpers.metrics.statistics import Estimate

KOBAYASHI = Family("Kobayashi et al.")
MOVES = Family("What attention moves")
ABNAR = Family("Abnar and Zuidema")


KOBAYASHI.claim(
    "Kobayashi et al.",
    "Special tokens bring back much less than they are looked at",
    how_measured=(
        "share of [CLS] and [SEP] through the norm lens over that of attention, all layers and "
        "heads; holds below 0.5, our reading of 'much less'"
    ),
    below=0.5,
    about_training=True,
)(cell("special_tokens", "ratio", layer="all"))


@KOBAYASHI.claim(
    "Kobayashi et al.",
    "They do so in every layer",
    how_measured="the largest of the layers' ratios; holds below 1",
    below=1,
    about_training=True,
)
def largest_ratio(tables: Tables) -> Estimate:
    """Find the largest ratio of norm lens to attention lens among the layers."""
    rows = rows_of(tables, "special_tokens", "layer", *with_bounds("ratio"))
    layers = rows[rows["layer"] != "all"]
    return estimate_in(layers.sort_values("ratio", na_position="first").iloc[-1], "ratio")


KOBAYASHI.claim(
    "Kobayashi et al.",
    "Value vectors of special tokens are smaller than those of words",
    how_measured="mean |f(x)| of [CLS] and [SEP] over that of other tokens; holds below 1",
    below=1,
    about_training=True,
)(cell("special_tokens", "value_ratio", layer="all"))


def sentence_vector(column: str, *, model: str, ways: str) -> Measure:
    """Make a measure that reads how far the sentence vector moves in one of two ways."""
    return cell("edge_ratios", column, measure="sentence vector", model=model, ways=ways)


MOVES.claim(
    "What attention moves",
    "Dropping attention to special tokens changes less than taking as much from others",
    how_measured=(
        "how far the sentence vector moves without the attention that special tokens get, over how "
        "far it moves where other tokens lose as much, in all layers where special tokens get over "
        "a quarter; holds below 1"
    ),
    below=1,
)(sentence_vector("ratio", model="trained", ways="dropped / mass-matched"))

MOVES.claim(
    "What attention moves",
    "Giving that attention to other tokens changes more than dropping it",
    how_measured=(
        "how far the sentence vector moves with it given to the others over how far without it, in "
        "the same layers; holds above 1"
    ),
    above=1,
)(sentence_vector("ratio", model="trained", ways="redistributed / dropped"))

MOVES.claim(
    "What attention moves",
    (
        "What special tokens get can be dropped more easily than with random weights, next to "
        "other tokens' attention"
    ),
    how_measured=(
        "the ratio of dropped to mass-matched minus that of the model with random weights, in the "
        "same layers and on the same segments; holds below 0"
    ),
    below=0,
)(sentence_vector("lead", model="random", ways="dropped / mass-matched"))

MOVES.claim(
    "What attention moves",
    (
        "What special tokens get can be dropped more easily than with random weights that are "
        "entropy-matched, next to other tokens' attention"
    ),
    how_measured=(
        "the ratio of dropped to mass-matched minus that of the entropy-matched control, in the "
        "same layers and on the same segments; holds below 0"
    ),
    below=0,
)(sentence_vector("lead", model="entropy-matched", ways="dropped / mass-matched"))

ABNAR.claim(
    "Abnar and Zuidema",
    "Rollout explains what leaving a token out does better than attention itself does",
    how_measured=(
        "rank correlation with the change of a text's vector, rollout minus the mean attention of "
        "all layers; holds above 0"
    ),
    above=0,
    about_training=True,
)(cell("attributions", "lead", method="rollout", effect="vector"))

CLAIMS = [*KOBAYASHI.claims, *MOVES.claims, *ABNAR.claims]
