"""Draw figures/front.png, the picture of README.md: ``python scripts/front_picture.py``.

On the left are the lines of a head on one sentence, from the bundled model.  On the right are the
numbers of `dependency_heads_held_out.csv` and `additions.csv` of the run minilm.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes

from helpers.metrics import rows_of_model
from helpers.metrics.heads import parse_head
from helpers.store.store import Example
from helpers.viewer.view import read

ROOT = Path(__file__).resolve().parent.parent
TABLES = ROOT / "figures" / "minilm" / "tables"
PICTURE = ROOT / "figures" / "front.png"
RELATION = "dobj"
SENTENCE = "The committee that reviewed the proposals rejected my plan."
# 4.6 inches fill the width of a phone, where type of 9 points can be read.
SIZE_INCHES = (4.6, 2.9)
DPI = 300
HEAD_COLOR = "#0173B2"
RULE_COLOR = "#D55E00"
BOTH_COLOR = "#8A5BB0"
OTHER_COLOR = "#8A8A8A"
MIN_WEIGHT = 0.05  # of a line that is drawn


def main() -> None:
    """Draw the picture and write it."""
    row, shares = read_shares(TABLES)
    figure, (left, right) = plt.subplots(
        ncols=2, figsize=SIZE_INCHES, width_ratios=(1.1, 1), layout="constrained"
    )
    draw_lines(left, read(SENTENCE)[0], str(row["head"]))
    draw_bars(right, shares)
    figure.savefig(PICTURE, dpi=DPI, pil_kwargs={"optimize": True})


def read_shares(tables: Path) -> tuple[pd.Series, dict[str, tuple[float, str]]]:
    """Read who finds the verbs of direct objects, and how often.

    Parameters
    ----------
    tables : Path
        The folder of the tables of a run.

    Returns
    -------
    row : Series
        The row of the relation in `dependency_heads_held_out.csv`.
    shares : dict of str to (float, str)
        The percentage of each reader, and the colour of its bar.
    """
    held_out = rows_of_model(pd.read_csv(tables / "dependency_heads_held_out.csv"))
    additions = rows_of_model(pd.read_csv(tables / "additions.csv"))
    row = held_out.set_index("relation").loc[RELATION]
    added = additions.set_index("relation").loc[RELATION]
    shares = {
        "a fixed distance": (row["baseline"], OTHER_COLOR),
        f"head {row['head']}": (row["dev_accuracy"], HEAD_COLOR),
        f"head {added['class_head']}, verbs only": (added["among"], HEAD_COLOR),
        "a rule: tags and places": (added["rule"], RULE_COLOR),
        "the rule and a head": (added["with_head"], BOTH_COLOR),
    }
    return row, shares


def draw_lines(axes: Axes, example: Example, head: str) -> None:
    """Draw the attention between the words of a sentence, with that of the objects in colour.

    Lines to and from special tokens are left out.
    """
    layer, number = parse_head(head)
    position = example.word_positions
    weights = example.attention[layer, number, position, position]
    words = example.record["words"]
    relations = example.record["relations"]
    for query, (word, relation) in enumerate(zip(words, relations, strict=True)):
        is_object = relation == RELATION
        color = HEAD_COLOR if is_object else OTHER_COLOR
        axes.text(0, query, word, ha="right", va="center", color=color if is_object else "black")
        axes.text(1, query, word, ha="left", va="center")
        for key, weight in enumerate(weights[query]):
            if weight >= MIN_WEIGHT:
                axes.plot(
                    [0.04, 0.96],
                    [query, key],
                    color=color,
                    alpha=float(weight),
                    linewidth=2.5 if is_object else 1.2,
                    solid_capstyle="round",
                )
    axes.set(xlim=(-0.9, 1.9), ylim=(len(words) - 0.4, -0.6))
    axes.set_title(f"Head {head} of MiniLM:\nobjects attend to their verbs", fontsize=9)
    axes.axis("off")


def draw_bars(axes: Axes, shares: dict[str, tuple[float, str]]) -> None:
    """Draw a bar for each reader, with its name above the bar and its percentage behind it."""
    for place, (name, (percent, color)) in enumerate(shares.items()):
        axes.barh(place, percent, height=0.42, color=color)
        axes.text(0, place - 0.26, name, ha="left", va="bottom")
        axes.text(percent + 2, place, f"{percent:.0f}%", ha="left", va="center")
    axes.set(xlim=(0, 122), ylim=(len(shares) - 0.6, -0.8))
    axes.set_title("Who finds the verb of an object,\nin new texts", fontsize=9)
    axes.axis("off")


if __name__ == "__main__":
    plt.rcParams["font.size"] = 9
    main()
