"""Accuracies of runs on originals, counterparts and both, by hand."""

import numpy as np
import pandas as pd
import pytest

from helpers.studies.argument_cues.arguments import Argument, adversarial
from helpers.studies.argument_cues.scores import score_table, seed_table, with_paper

ORIGINALS = [
    Argument(name, "Go", "It is late.", "w", "x", label, "test", negated_claim="Stay")
    for name, label in zip("abcd", (0, 0, 1, 1), strict=True)
]
# The counterparts of the first three, in another order.
ARGUMENTS = [*ORIGINALS, *reversed(adversarial(ORIGINALS[:3]))]
# Labels: a 0, b 0, c 1, d 1; c' 0, b' 1, a' 1.
CHOICES = np.array([[0, 0, 1, 0, 0, 0, 0], [0, 1, 1, 1, 0, 1, 1]])


def half(name):
    (found,) = score_table(CHOICES, ARGUMENTS).query("test == @name").to_dict("records")
    return found


def test_accuracies_of_each_half():
    original, counterparts, both = half("original"), half("adversarial"), half("both")
    assert [h["arguments"] for h in (original, counterparts, both)] == [4, 3, 6]
    assert (original["mean"], original["max"]) == (75, 75)  # three of four in either run
    assert counterparts["mean"] == pytest.approx(100 * (1 / 3 + 3 / 3) / 2)
    assert counterparts["max"] == 100
    # Run 1: a, b, c right, of the counterparts c' alone; run 2: a, c, and all counterparts.
    assert both["mean"] == pytest.approx(100 * (4 / 6 + 5 / 6) / 2)
    assert both["std"] == pytest.approx(np.std([400 / 6, 500 / 6], ddof=1))


def test_intervals_are_over_arguments_with_their_counterparts():
    """Choices that ignore the claim are right on one of each pair: there is nothing to resample."""
    arguments = [*ORIGINALS, *adversarial(ORIGINALS)]
    same = np.random.default_rng(0).integers(0, 2, (3, 4))
    both = score_table(np.hstack([same, same]), arguments).set_index("test").loc["both"]
    assert both[["mean", "ci_low", "ci_high"]].tolist() == [50, 50, 50]
    original = half("original")
    assert original["ci_low"] < original["mean"] < original["ci_high"]


def test_one_run_has_no_spread_and_no_counterparts_no_rows():
    table = score_table(CHOICES[:1, :4], ORIGINALS)
    assert table["test"].tolist() == ["original"]
    assert table["std"].isna().all()
    assert table["seeds"].tolist() == [1]


def test_the_accuracy_of_each_run():
    table = seed_table(CHOICES, ARGUMENTS).query("test == 'both'")
    assert table["accuracy"].tolist() == pytest.approx([400 / 6, 500 / 6])
    assert table["seed"].tolist() == [0, 1]


def test_the_papers_figures_stand_where_they_can_be_compared():
    rows = [
        ("encoder", "original", "warrants", "original"),
        ("encoder", "original", "warrants", "adversarial"),
        ("encoder", "original", "all", "both"),
        ("encoder", "swapped", "all", "both"),
        ("encoder", "mirrored", "all", "both"),
        ("BiLSTM", "original", "claim + warrants", "original"),
        ("random-init encoder", "original", "all", "original"),
    ]
    table = with_paper(pd.DataFrame(rows, columns=["model", "train", "inputs", "test"]))
    assert table["paper_median"].fillna(-1).tolist() == [67.5, -1, -1, 50.5, -1, 55.0, -1]
    assert table["paper_max"].fillna(-1).tolist() == [71.2, -1, -1, 53.3, -1, 60.1, -1]
