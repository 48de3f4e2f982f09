"""The numbers of each notebook's finding, from the tables of a reader's own run.

The findings in the notebooks are written about the bundled default.  `print_findings` gives the
same numbers of another model or text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from helpers.metrics.reference import BROAD

if TYPE_CHECKING:
    from helpers.study import Study

Tables = Mapping[str, pd.DataFrame]
Numbers = dict[Any, str]


def _relative_position(tables: Tables) -> Numbers:
    """Collect the numbers on heads that attend to a neighbour."""
    shares = tables["relative_position"]
    labels = shares["layer"].astype(str) + "-" + shares["head"].astype(str)
    shares = shares.set_index(labels)
    previous = shares["previous"].sort_values(ascending=False)
    random_shares = tables["random_relative_position"]
    matched_shares = tables["entropy_matched_relative_position"]
    values_of_claims = tables["claims"].set_index("id")["value"]
    early_minus_late = values_of_claims["sec3-neighbours-early"]
    return {
        "attention heads": f"{len(shares)}",
        "head with most on the previous token": previous.index[0],
        "its share": f"{previous.iloc[0]:.0%}",
        "share of the second-best head": f"{previous.iloc[:2].min():.0%}",
        "head with most on the next token": shares["next"].fillna(0).idxmax(),
        "its share of the next token": f"{shares['next'].max():.0%}",
        "largest share with random weights": f"{random_shares['previous'].max():.1%}",
        "the same, entropy-matched": f"{matched_shares['previous'].max():.1%}",
        "early minus late layers, percentage points": f"{100 * early_minus_late:.1f}",
        "median share of the current token": f"{shares['current'].median():.1%}",
    }


def _separator_tokens(tables: Tables) -> Numbers:
    """Collect the numbers on attention to special tokens, and its gradients."""
    shares_by_layer = tables["token_types"].groupby("layer").mean()
    gradients_by_layer = tables["gradients"].set_index("layer")
    middle = slice(2, len(shares_by_layer) - 1)  # all layers but the first and the last
    roles = {"cls": "[CLS]", "sep": "[SEP]", "first": "the first token"}
    role = next(role for role in roles if shares_by_layer[role].notna().any())
    token = roles[role]
    shares_of_token = shares_by_layer[role].loc[middle]
    multiples = shares_of_token / shares_by_layer[f"uniform_{role}"].loc[middle]
    to_itself = shares_by_layer[f"{role}_to_{role}"].loc[middle]
    ratios = gradients_by_layer[f"other_over_{role}"].loc[middle]
    guess = gradients_by_layer.reindex(columns=["guess"])["guess"].mean()
    return {
        f"least share of {token} in middle layers": f"{shares_of_token.min():.0%}",
        f"largest share of {token} in middle layers": f"{shares_of_token.max():.0%}",
        "least multiple of uniform attention": f"{multiples.min():.0f}",
        "largest multiple of uniform attention": f"{multiples.max():.0f}",
        "largest share of [SEP] in any layer": f"{shares_by_layer['sep'].max():.0%}",
        f"least share that {token} gives to itself": f"{to_itself.min():.0%}",
        f"largest share that {token} gives to itself": f"{to_itself.max():.0%}",
        f"least ratio of gradients, other tokens to {token}": f"{ratios.min():.0f}",
        "largest ratio of gradients": f"{ratios.max():.0f}",
        "loss, nats": f"{gradients_by_layer['loss'].mean():.2f}",
        "loss of a guess, nats": f"{guess:.2f}",
    }


def _focused_vs_broad(tables: Tables) -> Numbers:
    """Collect the numbers on broad and focused heads."""
    heads = tables["entropy"]
    is_broad = heads["entropy"] >= BROAD * heads["uniform"]
    broad_by_layer = is_broad.groupby(heads["layer"]).sum()
    by_layer = heads.groupby("layer")[["entropy", "entropy_from_cls"]].mean()
    middle = slice(2, len(by_layer) - 1)  # all layers but the first and the last
    return {
        "broad heads of the first layer": f"{broad_by_layer.iloc[0]}",
        "broad heads of the last layer": f"{broad_by_layer.iloc[-1]}",
        "broad heads of the layers between": f"{broad_by_layer.loc[middle].sum()}",
        "least mean entropy of a middle layer": f"{by_layer['entropy'].loc[middle].min():.2f}",
        "largest mean entropy of a middle layer": f"{by_layer['entropy'].loc[middle].max():.2f}",
        "uniform attention": f"{heads['uniform'].mean():.2f}",
        "last layer, from [CLS]": f"{by_layer['entropy_from_cls'].iloc[-1]:.2f}",
        "last layer, all rows": f"{by_layer['entropy'].iloc[-1]:.2f}",
        "random weights": f"{tables['random_entropy']['entropy'].mean():.2f}",
    }


def _individual_heads(tables: Tables) -> Numbers:
    """Collect the numbers on Table 1, held out, and on Table 2."""
    heads = tables["dependency_heads_held_out"].set_index("relation")
    shuffled = tables["shuffled_dependency_heads_held_out"].set_index("relation")["dev_accuracy"]
    numbers = {}
    for relation in ("All", "dobj", "pobj", "det", "poss"):
        if relation in heads.index:  # treebanks of other schemes have other relations
            row = heads.loc[relation]
            numbers[f"{relation}: best head on train"] = row["head"]
            numbers[f"{relation}: its accuracy on dev"] = f"{row['dev_accuracy']:.0f}%"
            numbers[f"{relation}: best fixed offset"] = f"{row['baseline']:.0f}%"
            if pd.notna(row["nearest_accuracy"]):
                numbers[f"{relation}: nearest word"] = f"{row['nearest_accuracy']:.0f}%"
            if relation in shuffled:
                numbers[f"{relation}: on shuffled sentences"] = f"{shuffled[relation]:.0f}%"
    if "coreference" in tables:
        all_mentions = tables["coreference"][tables["coreference"]["type"] == "all"]
        antecedents = all_mentions.set_index(["system", "candidates"])["accuracy"]
        by_row = {
            "antecedents among mentions": ("head", "mentions"),
            "antecedents among all words": ("head", "words"),
            "head match": ("head match", "earlier mentions"),
            "rule-based system": ("rule-based", "earlier mentions"),
        }
        for name, system in by_row.items():
            numbers[f"{name}, all documents"] = f"{antecedents[system]:.0f}%"
    return numbers


def _head_combinations(tables: Tables) -> Numbers:
    """Collect the numbers on Table 3."""
    is_compared = tables["probes"]["metric"].isin(["UAS without punctuation", "UUAS"])
    scores = tables["probes"][is_compared].set_index("probe")["value"]
    gaps = tables["probe_differences"].set_index(["probe", "other"])["difference"]
    loudest = tables["probe_heads"].head(4)
    labels = loudest["layer"].astype(str) + "-" + loudest["head"].astype(str)
    numbers = {"Attn": f"{scores['Attn']:.0f}%"}
    if "Attn + GloVe" in scores:  # with word vectors
        numbers |= {
            "Attn + GloVe": f"{scores['Attn + GloVe']:.0f}%",
            "random weights": f"{scores['Random-init Attn + GloVe']:.0f}%",
            "distances and word vectors": f"{scores['Distances + GloVe']:.0f}%",
            "Attn + GloVe minus that": f"{gaps['Attn + GloVe', 'Distances + GloVe']:.0f}",
            "lead of the bilinear probe": (
                f"{gaps['Bilinear probe on hidden states', 'Attn + GloVe']:.0f}"
            ),
        }
    numbers |= {
        "right-branching": f"{scores['Right-branching']:.0f}%",
        "bilinear probe": f"{scores['Bilinear probe on hidden states']:.0f}%",
        "structural probe, UUAS": f"{scores['Structural probe']:.0f}",
        "heads that Attn listens to most": ", ".join(labels),
    }
    return numbers


def _clustering(tables: Tables) -> Numbers:
    """Collect the numbers on distances between heads."""
    numbers = {}
    names = {"": "model", "random_": "random weights", "entropy_matched_": "entropy-matched"}
    for prefix, source in names.items():
        cohesion = tables[f"{prefix}head_cohesion"].set_index("by")
        ratio = cohesion["within"] / cohesion["between"]
        numbers[f"{source}: within a layer / between"] = f"{ratio['layer']:.2f}"
        if source == "model":
            numbers["model: next layer"] = f"{ratio['next layer']:.2f}"
        numbers[f"{source}: next layer, words"] = f"{ratio['next layer, words']:.2f}"
    cohesion = tables["head_cohesion"].set_index("by")
    index_ratio = cohesion.loc["index", "within"] / cohesion.loc["index", "between"]
    numbers["model: within an index / between"] = f"{index_ratio:.2f}"
    if "behaviour" in cohesion.index:
        behaviour_ratio = cohesion.loc["behaviour", "within"] / cohesion.loc["behaviour", "between"]
        numbers["model: within a behaviour / between"] = f"{behaviour_ratio:.2f}"
    numbers["attention heads"] = f"{len(tables['head_positions'])}"
    return numbers


def _dark_secrets(tables: Tables) -> Numbers:
    """Collect the numbers on patterns, fine-tuning and links."""
    from beyond.papers.dark_secrets.patterns import ANY_COLUMN, SPECIAL_COLUMN, TEXT

    accuracies = tables["fine_tuning"].set_index(["start", "task"])["accuracy"]
    share_rows = tables["pattern_shares"]
    shares = share_rows.set_index(["pattern", "weights"])["share"]
    with_column = shares[ANY_COLUMN, "fine-tuned"]
    special_shares = shares[SPECIAL_COLUMN, "fine-tuned"]
    segment_shares = share_rows[share_rows["task"] == TEXT].set_index("pattern")["share"]
    random_shares = tables["random_pattern_shares"].set_index("pattern")["share"]
    by_layer = tables["finetuning_similarity"].pivot_table("similarity", "layer", "task")
    last_layers = by_layer.iloc[-2:].stack()
    random_means = tables["random_finetuning_similarity"].groupby("task")["similarity"].mean()
    link_table = tables["semantic_links"]
    best = link_table.loc[link_table["difference"].idxmax()]
    random_difference = tables["random_semantic_links"]["difference"].max()
    column_range = f"{with_column.min():.0%}, {with_column.max():.0%}"
    numbers = {
        "maps with a column, least and largest": column_range,
        "of these a special token": f"{special_shares.min():.0%}, {special_shares.max():.0%}",
        "maps with a column, whole segments": f"{segment_shares[ANY_COLUMN]:.0%}",
        "maps with a column, random weights, largest": f"{random_shares[ANY_COLUMN].max():.1%}",
        "similarity, last two layers": f"{last_layers.min():.2f}, {last_layers.max():.2f}",
        "least similarity, other layers": f"{by_layer.iloc[:-2].stack().min():.2f}",
        "least mean similarity, random weights": f"{random_means.min():.2f}",
        "heads with links": f"{(link_table['difference'] > 0.05).sum()}",
        "head with the largest difference": f"{best['layer']:.0f}-{best['head']:.0f}",
        "its weight on links, on random pairs": f"{best['linked']:.2f}, {best['random']:.2f}",
        "largest difference, random weights": f"{random_difference:.3f}",
    }
    for task_name, accuracy_of_task in accuracies["pretrained"].items():
        from_random = accuracies["random", task_name]
        numbers[f"{task_name}: accuracy, random weights"] = (
            f"{accuracy_of_task:.0f}%, {from_random:.0f}%"
        )
    if "disabling" in tables:  # from the appendix
        changes = tables["disabling"].set_index("head")
        head_changes = changes.drop(index=0)
        numbers["heads that can be disabled"] = f"{head_changes['removable'].sum()}"
        numbers["cost of the worst head, percentage points"] = (
            f"{-head_changes['change'].min():.1f}"
        )
        numbers["gain without the best head"] = f"{head_changes['change'].max():.1f}"
        numbers["cost of the worst layer"] = f"{-changes['change'].loc[[0]].min():.1f}"
    return numbers


def _sixteen_heads(tables: Tables) -> Numbers:
    """Collect the numbers on removed heads."""
    pruning_table = tables["pruning"].set_index("task")
    is_importance = pruning_table["order"] == "importance"
    without_60 = pruning_table.loc[is_importance & (pruning_table["pruned"] == 60), "change"]
    lead_table = pruning_table.groupby(["order", "task"])["lead"].first()
    layers_with_one_head = tables["one_head"].groupby("task")["removable"].sum()
    numbers = {}
    for task_name, task_heads in tables["ablation"].groupby("task", sort=False):
        worst = task_heads.loc[task_heads["change"].idxmin()]
        numbers["removable heads", task_name] = f"{task_heads['removable'].sum()}"
        numbers["costliest head", task_name] = f"{worst['layer']}-{worst['head']}"
        numbers["its cost (percentage points)", task_name] = f"{-worst['change']:.1f}"
        if "mean_change" in worst:
            numbers["the same with its mean output", task_name] = f"{-worst['mean_change']:.1f}"
        numbers["layers that can do with one head", task_name] = (
            f"{layers_with_one_head[task_name]}"
        )
        numbers["loss without 60% of the heads", task_name] = f"{-without_60[task_name]:.1f}"
        numbers["lead over random orders", task_name] = f"{lead_table['random', task_name]:.1f}"
        single_lead = lead_table["single ablation", task_name]
        numbers["lead over the order by single cost", task_name] = f"{single_lead:.1f}"
    if "pruning_seeds" in tables:  # from the appendix
        mean_changes = tables["pruning_seeds"].groupby(["pruned", "task"])["change"].mean()
        for task_name, change in mean_changes.loc[40].items():
            numbers["loss without 40%, mean over seeds", task_name] = f"{-change:.1f}"
    if "cross_data" in tables:  # from the appendix
        for row in tables["cross_data"].itertuples():
            numbers[f"correlation of halves, heads: {row.heads}", row.task] = (
                f"{row.correlation:.2f}"
            )
    return numbers


def _argument_cues(tables: Tables) -> Numbers:
    """Collect the numbers on cues of warrants."""
    not_by_split = tables["cues"].query("half == 'original' and cue == 'not'").set_index("split")
    means = tables["partial_inputs"].set_index(["model", "train", "inputs", "test"])["mean"]
    on_originals = means.xs(("original", "original"), level=["train", "test"])
    on_counterparts = means.xs(("original", "adversarial"), level=["train", "test"])
    numbers = {
        "encoder, warrants alone": f"{on_originals['encoder', 'warrants']:.0f}%",
        "encoder, everything": f"{on_originals['encoder', 'all']:.0f}%",
        "bag of vectors, warrants alone": f"{on_originals['bag of vectors', 'warrants']:.0f}%",
        "BiLSTM, warrants alone": f"{on_originals['BiLSTM', 'warrants']:.0f}%",
        "random weights, warrants alone": f"{on_originals['random-init encoder', 'warrants']:.0f}%",
        "encoder on counterparts, warrants alone": f"{on_counterparts['encoder', 'warrants']:.0f}%",
        "encoder on counterparts, everything": f"{on_counterparts['encoder', 'all']:.0f}%",
        "encoder on both, everything": f"{means['encoder', 'original', 'all', 'both']:.1f}%",
        "coverage of not": f"{not_by_split.loc['all', 'coverage']:.0f}%",
        "productivity of not": f"{not_by_split.loc['all', 'productivity']:.0f}%",
        "productivity of not in test": f"{not_by_split.loc['test', 'productivity']:.0f}%",
    }
    if ("encoder", "negated", "all", "both") in means:
        on_negated = means["encoder", "negated", "all", "both"]
        numbers["encoder on both, trained on negated claims"] = f"{on_negated:.1f}%"
    return numbers


def _no_op(tables: Tables) -> Numbers:
    """Collect the numbers on special tokens through the norm lens and their edges."""
    numbers: Numbers = {}
    if "special_tokens" in tables:
        numbers |= _norm_shares(tables)
    if "edges" in tables and "queries" in tables["edges"]:
        numbers |= _edge_ratios(tables)
    if "attributions" in tables:
        numbers |= _attribution_correlations(tables)
    return numbers


def _norm_shares(tables: Tables) -> Numbers:
    """Collect the shares of special tokens, and those of what attention moves."""
    numbers = {}
    tokens = tables["special_tokens"].query("layer == 'all'").set_index("token")
    tokens = tokens.drop("special").dropna()  # of the tokens that the model has
    control = tables["random_special_tokens"].query("layer == 'all'").set_index("token")
    for token, row in tokens.iterrows():
        numbers[f"{token}: share of attention"] = f"{row['attention']:.1%}"
        numbers[f"{token}: share through the norm lens"] = f"{row['norm']:.1%}"
        numbers[f"{token}: value vectors over those of words"] = f"{row['value_ratio']:.2f}"
        numbers[f"{token}: ratio of the shares, random"] = f"{control.loc[token, 'ratio']:.2f}"
    return numbers


def _edge_ratios(tables: Tables) -> Numbers:
    """Collect what cutting the edges to special tokens does in the layers that attend to them."""
    numbers = {}
    edges = tables["edges"].query("model == 'trained' and queries == 'all'")
    group = edges[edges["keys"] == "special"]["layers"].iloc[0]
    for prefix, suffix in {"": "", "random_": ", random"}.items():
        ratios = tables[f"{prefix}edge_ratios"].query("queries == 'all'")
        ratios = ratios[(ratios["layers"] == group) & (ratios["ways"] == "dropped / mass-matched")]
        for row in ratios.itertuples():
            numbers[f"{row.keys}: dropped over mass-matched{suffix}"] = f"{row.ratio:.2f}"
    rises = edges[(edges["layers"] == group) & (edges["measure"] == "objective")]
    for row in rises.itertuples():
        numbers[f"{row.keys}: objective, {row.change}"] = f"{round(row.value, 2) + 0:.2f}"
    return numbers


def _attribution_correlations(tables: Tables) -> Numbers:
    """Collect how well the maps of each lens rank what leaving a token out changes."""
    correlations = tables["attributions"].set_index("method")["correlation"]
    random_correlations = tables["random_attributions"].set_index("method")["correlation"]
    norm_lens = "norm lens, all layers"
    return {
        "correlation of the norm lens": f"{correlations[norm_lens]:.2f}",
        "correlation of attention": f"{correlations['attention, all layers']:.2f}",
        "correlation of rollout": f"{correlations['rollout']:.2f}",
        "correlation of the norm lens, random weights": f"{random_correlations[norm_lens]:.2f}",
    }


def _accuracy_and_function(tables: Tables) -> Numbers:
    """Collect what the margins of heads say about the effects of their edges, by outcome."""
    numbers = {}
    suffixes = {"": "", "random_": ", random", "entropy_matched_": ", entropy-matched"}
    for prefix, suffix in suffixes.items():
        correlations = tables[f"{prefix}head_edge_correlations"]
        for row in correlations.itertuples():
            numbers[f"correlation of the {row.predictor}{suffix}", row.measure] = (
                f"{row.correlation:.2f} ({row.correlation_low:.2f} to {row.correlation_high:.2f})"
            )
    margin_rows = tables["head_edge_correlations"].query("predictor == 'margin'")
    for row in margin_rows.itertuples():
        numbers["least that could be seen, ceiling", row.measure] = (
            f"{row.least:.2f}, {row.ceiling:.2f}"
        )
    yardsticks = tables["head_edge_yardsticks"].query("role == 'most accurate'")
    for row in yardsticks.itertuples():
        numbers[f"most accurate heads, and {row.yardstick}", row.measure] = (
            f"{row.dropped:.3g}, {row.yardstick_value:.3g}"
        )
    if "agreement" in tables:
        row = tables["agreement"].query("words_between == 'all'").iloc[0]
        numbers["right form of the verb", "agreement"] = f"{row['right']:.1%}"
    return numbers


def _sinks(tables: Tables) -> Numbers:
    """Collect the numbers on the sink: its lead, its largest dimension, and its transplant."""
    causes = tables["sink_causes"]
    role = "cls" if "cls" in causes else "first"
    numbers = {
        "largest dimension, by layer": ", ".join(map(str, causes["dimension"])),
        "its size in medians": _from_to(causes["over_median"], "{:.0f}"),
        "largest share of the first token": f"{causes[role].max():.1%}",
        "without its largest dimension": f"{causes[f'{role}_without_largest'].max():.1%}",
        "without its second dimension": f"{causes[f'{role}_without_second'].max():.1%}",
        "lead of the first token, nats": _from_to(causes["constant"], "{:.1f}"),
    }
    if "sink_transplant" in tables:
        overall = tables["sink_transplant"].query("layer == 'all'").set_index(["change", "token"])
        for change in ("intact", "ablated", "moved"):
            for token in ("sink", "token 20"):
                numbers[f"{token}, {change}"] = f"{overall.loc[(change, token), 'share']:.1%}"
    return numbers


def _from_to(values: pd.Series, style: str) -> str:
    """Write the least and the largest value."""
    return f"{style.format(values.min())} to {style.format(values.max())}"


FINDINGS: dict[str, Callable[[Tables], Numbers]] = {
    "01": _relative_position,
    "02": _separator_tokens,
    "03": _focused_vs_broad,
    "04": _individual_heads,
    "05": _head_combinations,
    "06": _clustering,
    "07": _dark_secrets,
    "08": _sixteen_heads,
    "09": _argument_cues,
    "10": _no_op,
    "11": _accuracy_and_function,
    "12": _sinks,
}


def print_findings(study: Study, notebook: str) -> pd.DataFrame | None:
    """Show the numbers of a notebook's finding in this run.

    Parameters
    ----------
    study : Study
        The study of the notebook, whose tables are saved.
    notebook : str
        The number of the notebook, such as "04".

    Returns
    -------
    DataFrame or None
        A row for each number; None, and a sentence is printed, if a table is missing.
    """
    try:
        numbers = FINDINGS[notebook](study.tables())
    except (KeyError, IndexError, ValueError) as error:
        print(f"The tables of this run lack what the finding of {notebook} is about ({error}).")
        return None
    measured = {name: number for name, number in numbers.items() if "nan" not in number}
    numbers = pd.Series(measured, name="this run")
    if isinstance(numbers.index, pd.MultiIndex):
        return numbers.unstack(fill_value="", sort=False)
    return numbers.to_frame()
