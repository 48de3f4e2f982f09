"""What notebooks 07 and 08 found, in sentences written from their tables."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

Tables = Mapping[str, pd.DataFrame]
SURE = 0.05  # p-value


def finetuning_findings(tables: Tables) -> list[str]:
    """Return sentences about tasks, patterns, changes, features, links and disabled heads."""
    accuracy = tables["fine_tuning"]
    own = accuracy[accuracy["start"] == "pretrained"].set_index("task")
    random = accuracy[accuracy["start"] == "random"].set_index("task")["accuracy"]
    learned = own.index[own["learned"].astype(bool)]
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
            f"*{task.capitalize()}*: {row['accuracy']:.1f}% ({row['ci_low']:.1f} to "
            f"{row['ci_high']:.1f}), a bag of words {row['bag_of_words']:.1f}%, from random "
            f"weights {random[task]:.1f}%."
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
        f"r = {row['correlation']:.2f} ({row['ci_low']:.2f} to {row['ci_high']:.2f})."
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


def _head(row: pd.Series) -> str:
    return f"{int(row['layer'])}-{int(row['head'])}"
