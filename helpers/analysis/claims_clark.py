"""The claims of Clark et al. (2019), section by section, each with what would contradict it."""

from __future__ import annotations

from functools import partial

from helpers.analysis.claim_measures import (
    ALPHA,
    MIDDLE,
    MOSTLY,
    NAMED,
    NEAR_UNIFORM,
    attention_against_gradient,
    broad_early,
    counted,
    depth_of_positional_heads,
    difference_of_means,
    early_less_rest,
    head_count,
    largest_of_broad,
    late_less_rest,
    layer_cohesion,
    lowest_of_named,
    margin,
    margin_over_rule,
    no_op_difference,
    over_layers,
    probe_difference,
    relation_row,
    share_of,
    share_of_two,
    single_relations,
    special_token,
    with_bounds,
    within_less_between,
)
from helpers.analysis.claims import Claim, at_depth, column
from helpers.analysis.head_choice import DIRECTIONS
from helpers.analysis.paper import paper_table1, paper_table2, paper_table3, paper_values
from helpers.analysis.relations import ALL

LITTLE = 0.1  # "at most 10%", as the paper says of broad heads
BROAD = 0.75  # of the entropy of uniform attention; 3.89 nats of ln 128 are 80%
CLOSE = 0.5  # nats
TANGIBLE = 0.1  # nats: of the entropies of random weights, no two differ by as much
INVERSE = -0.5  # correlation
# In points of accuracy or UAS.
BARELY = 10  # the paper's best head is 8.2 above the best offset, which it calls not much better
BY_FAR = 20
FAR = 10
SOME = 5
TWICE = "the uniform share of two tokens"


def clark_claims() -> list[Claim]:
    """Return every claim of the paper, in its order."""
    return [
        *_positions(), *_separators(), *_entropy(), *_syntax(), *_coreference(), *_probes(),
        *_clusters(),
    ]  # fmt: skip


def _positions() -> list[Claim]:
    paper = paper_values()
    return [
        Claim(
            "3.1", "Most heads put little attention on the current token",
            f"share of heads with less than {LITTLE:.0%} on it; holds above half",
            lambda t: head_count(t, "relative_position", "current", LITTLE, under=True, share=True),
            threshold=0.5,
        ),
        *(
            Claim(
                "3.1",
                f"Some heads put more than half of their attention on the {name} token",
                "number of heads; holds from one on",
                lambda t, name=name: head_count(t, "relative_position", name, MOSTLY),
                threshold=0,
                paper=paper[f"heads mostly to {name}"],
            )
            for name in ("previous", "next")
        ),
        Claim(
            "3.1", "Such positional heads are found especially in earlier layers",
            "their mean layer as a share of the depth, interval over these heads; holds below half",
            depth_of_positional_heads,
            threshold=0.5, below=True, paper=paper["mean relative depth of positional heads"],
        ),
    ]  # fmt: skip


def _separators() -> list[Claim]:
    paper = paper_values()
    middle = partial(at_depth, low=MIDDLE[0], high=MIDDLE[1])
    where = "in layers at 45-85% of the depth"
    more = f"holds above {TWICE}"
    return [
        Claim(
            "3.2", "Over half of the attention in middle layers goes to one special token",
            f"attention to [SEP] (or [CLS], whichever gets more there) {where}; holds above half",
            lambda t: over_layers(t, middle, special_token(t)),
            threshold=MOSTLY, paper=paper["middle layers to separator"],
        ),
        Claim(
            "3.2", "That is many times what uniform attention would give it",
            "the same, as a multiple of a uniform share for two tokens a segment; holds above 10, "
            "a third of the paper's",
            lambda t: over_layers(t, lambda v: middle(v) / share_of_two(t), special_token(t)),
            threshold=10,
            paper=paper["middle layers to separator"] / paper["uniform share of a separator pair"],
        ),
        Claim(
            "3.2", "That special token is [SEP]",
            f"attention to [SEP] less attention to [CLS], all layers; {more}",
            lambda t: over_layers(t, difference_of_means, "sep", "cls"),
            threshold=share_of_two,
        ),
        Claim(
            "3.2", "Early heads attend to [CLS]",
            f"attention to it in the first third of the layers less that in the others; {more}",
            lambda t: over_layers(t, early_less_rest, "cls"),
            threshold=share_of_two,
        ),
        Claim(
            "3.2", "Deep heads attend to periods and commas",
            f"attention to them in the last third of the layers less that in the others; {more}",
            lambda t: over_layers(t, late_less_rest, "punctuation"),
            threshold=share_of_two,
        ),
        Claim(
            "3.2", "Heads attend to [SEP] even more when the current token is [SEP]",
            f"attention to [SEP] from [SEP] less that from other tokens, all layers; {more}",
            lambda t: over_layers(t, difference_of_means, "sep_to_sep", "other_to_sep"),
            threshold=share_of_two,
        ),
        Claim(
            "3.2", "Heads processing [SEP] attend almost entirely to [SEP]",
            f"attention from [SEP] to [SEP] {where}; holds above the paper's 90%",
            lambda t: over_layers(t, middle, "sep_to_sep"),
            threshold=paper["separator to separator"], paper=paper["separator to separator"],
        ),
        Claim(
            "3.2", "Gradients for the special token fall where attention to it rises",
            "Spearman correlation over layers of attention to it and its gradient, interval over "
            f"layers; holds below {INVERSE}",
            attention_against_gradient,
            threshold=INVERSE, below=True,
        ),
    ]  # fmt: skip


def _entropy() -> list[Claim]:
    paper = paper_values()
    return [
        Claim(
            "3.3", "Some heads in lower layers attend very broadly",
            f"heads in the first third of the layers above {NEAR_UNIFORM:.0%} of uniform entropy; "
            "holds from one on",
            lambda t: counted(broad_early(t, name).sum() for name in with_bounds("entropy")),
            threshold=0,
        ),
        Claim(
            "3.3", "These broad heads spend at most 10% of their attention on any single word",
            f"their largest weight, mean over tokens and heads; holds below {LITTLE:.0%}",
            largest_of_broad,
            threshold=LITTLE, below=True,
        ),
        Claim(
            "3.3", "Entropy is highest in lower layers",
            "mean entropy of the first third of the layers less that of the others, nats; holds "
            f"above {TANGIBLE}, more than random weights differ by",
            lambda t: over_layers(t, early_less_rest, "entropy"),
            threshold=TANGIBLE,
        ),
        Claim(
            "3.3", "In the last layer, [CLS] attends very broadly",
            f"its mean entropy in nats; holds above {BROAD:.0%} of that of uniform attention",
            lambda t: over_layers(t, lambda v: v.iloc[-1], "entropy_from_cls"),
            threshold=lambda t: BROAD * column(t, "entropy", "uniform").mean(),
            paper=paper["entropy from cls in the last layer"],
        ),
        Claim(
            "3.3", "In the last layer, [CLS] attends more broadly than tokens do on average",
            "entropy from [CLS] less that from all tokens, nats; holds above "
            f"{TANGIBLE}, more than random weights differ by",
            lambda t: over_layers(
                t, lambda cls, every: (cls - every).iloc[-1], "entropy_from_cls", "entropy"
            ),
            threshold=TANGIBLE,
        ),
        Claim(
            "3.3", "In most layers before, [CLS] attends about as broadly as tokens do on average",
            f"median difference of the two entropies, nats; holds below {CLOSE}",
            lambda t: over_layers(
                t, lambda cls, every: (cls - every).iloc[:-1].abs().median(),
                "entropy_from_cls", "entropy",
            ),
            threshold=CLOSE, below=True,
        ),
    ]  # fmt: skip


def _syntax() -> list[Claim]:
    paper = paper_table1()
    single = paper.drop(index=ALL)
    gains = paper["accuracy"] - paper["baseline"]
    above_75 = paper_values()["accuracy of the relations named in the introduction"]
    held_out = "head and offset chosen on train, scored on dev"
    return [
        Claim(
            "4.2", "No single head is good at syntax overall",
            f"best head less best fixed offset over all words, points, {held_out}; "
            f"holds below {BARELY} (the paper: 34.5 less 26.3)",
            lambda t: margin(t, ALL),
            threshold=BARELY, below=True, paper=gains[ALL],
        ),
        Claim(
            "4.2", "Single heads outdo a fixed offset on single relations",
            f"share of the paper's relations where the margin over the offset is above zero at "
            f"p < {ALPHA} (Holm), {held_out}, interval over relations; holds above half",
            lambda t: share_of(single_relations(t)["p_holm"] < ALPHA),
            threshold=0.5, paper=(single["accuracy"] > single["baseline"]).mean(),
        ),
        Claim(
            "4.2", "Sometimes they outdo it by far",
            f"number of the paper's relations with a margin of more than {BY_FAR} points, "
            f"{held_out}; holds from one on",
            lambda t: counted(
                (single_relations(t)[name] > BY_FAR).sum() for name in with_bounds("margin")
            ),
            threshold=0, paper=(gains[single.index] > BY_FAR).sum(),
        ),
        *(
            Claim(
                "4.2", f"{name} have a head of their own",
                f"best head less best fixed offset, points, {held_out}; holds above {BARELY}, "
                "more than what the paper calls not much better" + (
                    f" (its figure: {paper.loc[relation, 'note']})" if relation == "auxpass" else ""
                ),
                lambda t, relation=relation: margin(t, relation),
                threshold=BARELY, paper=gains[relation],
            )
            for relation, name in (*NAMED.items(), ("auxpass", "Passive auxiliaries"))
        ),
        Claim(
            "4.2", "Objects, determiners and possessives are found with more than 75% accuracy",
            "the lowest accuracy of dobj, det, pobj and poss, of those that there are, "
            f"{held_out}; holds above the paper's {above_75:.0f}",
            lowest_of_named,
            threshold=above_75, paper=paper.loc[list(NAMED), "accuracy"].min(),
        ),
        Claim(
            "4.2", "Dependents attend to heads rather than the reverse",
            "share of the paper's relations but pobj whose best head on train reads that way, "
            "interval over relations; holds above two thirds (the paper: all)",
            lambda t: share_of(single_relations(t, without="pobj")["direction"] == DIRECTIONS[0]),
            threshold=2 / 3, paper=1.0,
        ),
        Claim(
            "4.2", "Objects of prepositions are the exception: prepositions attend to them",
            "1 if the best head of pobj on train reads from head to dependent, 0 if not; holds "
            "at 1",
            lambda t: float(relation_row(t, "pobj")["direction"] == DIRECTIONS[1]),
            threshold=0.5, paper=1.0,
        ),
        Claim(
            "4.2", "Heads attend to special tokens where their relation is not there (3.2)",
            "attention to them from words without the relation less from words with it, mean over "
            "the heads of dobj, det, pobj, poss and auxpass and over their intervals, heads chosen "
            f"on train, words of dev; holds above {LITTLE:.0%} of the attention",
            lambda t: no_op_difference(t, (*NAMED, "auxpass")),
            threshold=LITTLE,
        ),
    ]  # fmt: skip


def _coreference() -> list[Claim]:
    paper = paper_table2()
    over_match = paper.loc["head"] - paper.loc["head match"]
    gain = "head chosen on train less {}, points, both on the dev documents; "
    return [
        Claim(
            "4.3", "A head beats string match at coreference by over ten points",
            gain.format("head-word match") + "holds above 10",
            lambda t: margin_over_rule(t, "head match", "all"),
            threshold=10, paper=over_match["all"],
        ),
        Claim(
            "4.3", "That head comes close to a rule-based system",
            gain.format("rule-based sieves") + f"holds above -{SOME}, the paper's -4 and one",
            lambda t: margin_over_rule(t, "rule-based", "all"),
            threshold=-SOME, paper=paper.loc["head", "all"] - paper.loc["rule-based", "all"],
        ),
        Claim(
            "4.3", "It is particularly good at nominal mentions",
            gain.format("head-word match") + "of nominal mentions; holds above that of all",
            lambda t: margin_over_rule(t, "head match", "nominal"),
            threshold=lambda t: max(0.0, margin_over_rule(t, "head match", "all").value),
            paper=over_match["nominal"],
        ),
    ]  # fmt: skip


def _probes() -> list[Claim]:
    paper = paper_table3()

    def against(
        statement: str, probe: str, other: str, points: int, control: str = "", below: bool = False
    ) -> Claim:
        metric = "UUAS" if probe == "Structural probe" else "UAS"
        return Claim(
            "5", statement,
            f"{metric} of {probe} less UAS of {other}, both without punctuation, points, on the "
            f"same resamples of the dev articles; holds {'below' if below else 'above'} {points}"
            + control,
            lambda t: probe_difference(t, probe, other),
            threshold=points, below=below, paper=paper[probe] - paper[other],
        )  # fmt: skip

    return [
        against("Attention alone is far better than right-branching", "Attn", "Right-branching",
                FAR),
        against("Word vectors add to attention", "Attn + GloVe", "Attn", SOME),
        against("Distances and word vectors alone do worse", "Attn + GloVe", "Distances + GloVe",
                SOME),
        against("Attention of random weights does far worse", "Attn + GloVe",
                "Random-init Attn + GloVe", FAR, " (control: one draw of them less all)"),
        against("Hidden states hold not much more syntax than attention maps", "Structural probe",
                "Attn + GloVe", FAR, below=True,
                control=" (control: the embeddings, which random weights share, less its maps)"),
    ]  # fmt: skip


def _clusters() -> list[Claim]:
    return [
        Claim(
            "6", "Heads of one layer are closer to each other than to other layers'",
            "mean distance within layers as a share of that between layers; holds below 1",
            within_less_between,
            threshold=1, below=True,
        ),
        Claim(
            "6", "The closeness of a layer's heads is no accident",
            f"p of a permutation test that shuffles heads over layers; holds below {ALPHA}",
            lambda t: layer_cohesion(t)["p_value"],
            threshold=ALPHA, below=True,
        ),
    ]  # fmt: skip
