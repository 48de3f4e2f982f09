"""What a report has: its parts, and what to look at in each figure."""

from __future__ import annotations

from typing import NamedTuple


class Part(NamedTuple):
    """What belongs together in the report: names of figures, tables and a notebook."""

    title: str
    text: str
    figures: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()


# What to look at in each figure.
CAPTIONS = {
    "fig1_examples": "A panel is one head on one sentence; the darker a line, the more attention.",
    "relative_position": "Look for single heads with nearly all their attention on one neighbour.",
    "fig2_token_types": "Look for layers in which one special token takes most of the attention.",
    "fig3_gradients": "Look for layers where the curve of that token is far below the others'.",
    "fig4_entropy": "Heads near the dashed line attend to everything: which layers are they in?",
    "fig5_heads": "Each row is one head: two sentences where it is right, one where it is wrong.",
    "relation_heatmaps": "A relation with a head of its own has one dark cell in a pale map.",
    "coreference": "Compare the head with the rules, all mentions first, then pronouns and names.",
    "probes": "The gap between attention and the controls is what pre-training adds.",
    "probe_heads": "Dark cells are the heads that the probe listens to; compare with Figure 5's.",
    "learning_curves": "Curves that still rise at the right end would gain from more sentences.",
    "fig6_clusters": "Left: heads that do the same should lie together; right: heads of one layer.",
    "fig7_patterns": "How the shares of the pattern classes differ between inputs and models.",
    "fig8_finetuning": "Layers whose maps fine-tuning changed most have the lowest similarity.",
    "semantic_links": "Dark cells are heads that attend between linked words more than elsewhere.",
    "fig9_disabling": "Cells below zero are heads or layers that the task needs.",
    "fig10_importance": "Points off the diagonal are heads whose importance depends on the task.",
    "fig11_pruning": "How far a curve stays flat is how many heads a task can do without.",
    "importance_course": "Whether the important heads are settled early in fine-tuning.",
    "fig12_cues": "A cue that predicts the label without the argument is no understanding.",
    "fig13_lenses": "What falls from left to right is looked at without bringing anything back.",
    "fig14_sinks": "A first position that many heads look at, and whose value vectors are small.",
    "fig15_removed_heads": "A relation that needs its head has its darkest cell in the frame.",
    "fig15_removed_heads_structural": "The same, read from vectors: heads up to the probe's layer.",
}


PARTS = (
    Part(
        "Runs side by side",
        "Curves by relative depth, the best head of each relation, claims that hold; how far "
        "models agree on each claim's number.",
        ("compare",),
        ("best_heads", "spread"),
    ),
    Part(
        "Atlas of heads",
        "What each head of each model does, in numbers, and the head of every other model that is "
        "nearest to it: Jensen-Shannon distance on the words of the sentences that both have read, "
        "in nats a word (0: alike; 0.69: nothing in common).",
        (),
        ("atlas", "nearest_heads"),
    ),
    Part(
        "Claims",
        "What the paper says, and whether it holds here.",
        (),
        ("claims", "averages_by_article"),
    ),
    Part(
        "Patterns (section 3)",
        "Heads that attend broadly, to the next token, to a special token or to punctuation.",
        ("fig1_examples",),
        ("fig1_examples",),
    ),
    Part(
        "Relative position (3.1)",
        "How much each head attends to the previous, the same and the next token.",
        ("relative_position",),
        ("relative_position",),
    ),
    Part(
        "Separator tokens (3.2)",
        "Where the attention of each head goes by token type, and what it matters to the loss.",
        ("fig2_token_types", "fig3_gradients"),
        ("token_types", "gradients"),
    ),
    Part(
        "Focused or broad (3.3)",
        "The entropy of each head's attention, in nats.",
        ("fig4_entropy",),
        ("entropy",),
    ),
    Part(
        "Individual heads (4)",
        "What single heads know of syntax and coreference, beside the paper's figures.",
        ("fig5_heads", "relation_heatmaps", "coreference"),
        (
            "dependency_heads",
            "dependency_heads_held_out",
            "each_head",
            "no_op",
            "silver_quality",
            "coreference",
            "coreference_held_out",
            "fig5_examples",
        ),
    ),
    Part(
        "Head combinations (5)",
        "How much syntax all heads hold together.",
        ("probes", "probe_heads", "learning_curves"),
        (
            "probes",
            "probe_differences",
            "probe_seeds",
            "probe_heads",
            "learning_curves",
            "structural_layers",
        ),
    ),
    Part(
        "Clustering (6)",
        "Heads that behave alike lie close to each other.",
        ("fig6_clusters",),
        ("head_positions", "head_cohesion", "head_distances"),
    ),
    Part(
        "Patterns and fine-tuning (Kovaleva et al. 2019)",
        "What maps look like, what fine-tuning changes, and what a head or layer is worth.",
        ("fig7_patterns", "fig8_finetuning", "semantic_links", "fig9_disabling"),
        (
            "fine_tuning",
            "patterns",
            "pattern_shares",
            "finetuning_similarity",
            "semantic_links",
            "token_features",
            "disabling",
        ),
    ),
    Part(
        "Heads that matter (Michel et al. 2019)",
        "Which heads a task can do without, one at a time and many at once.",
        ("fig10_importance", "fig11_pruning", "importance_course"),
        (
            "ablation",
            "one_head",
            "importance",
            "cross_data",
            "task_correlations",
            "importance_course",
            "syntax_importance",
            "argument_heads",
            "argument_seeds",
            "pruning",
            "pruning_seeds",
            "seed_intervals",
            "head_removal",
            "translation_pruning",
        ),
    ),
    Part(
        "Argument cues (Niven and Kao 2019)",
        "Whether arguments are understood, or words in them counted.",
        ("fig12_cues",),
        ("cues", "cue_rules", "partial_inputs", "partial_input_seeds"),
    ),
    Part(
        "What attention moves (Kobayashi et al. 2020; Abnar and Zuidema 2020)",
        "What heads bring back from where they look, and what depends on single heads.",
        ("fig13_lenses", "fig14_sinks", "fig15_removed_heads", "fig15_removed_heads_structural"),
        (
            "special_tokens",
            "sinks",
            "lens_relations",
            "lens_mentions",
            "relation_heads_mean",
            "relation_heads",
            "removed_objective",
            "attributions",
        ),
    ),
)
