"""Sentences of notebook 09: the numbers are those of its tables."""

import pandas as pd

from helpers.run.findings import findings


def tables():
    cues = pd.DataFrame(
        [
            ("original", "test", "do not", 20.0, 99.0, 98.0, 100.0, 9.0),
            ("original", "all", "not", 70.0, 86.0, 80.0, 90.0, 25.0),
            ("original", "all", "is", 50.0, 51.0, 40.0, 60.0, 0.5),
        ],
        columns=["half", "split", "cue", "coverage", "productivity", "ci_low", "ci_high", "gain"],
    )
    choices = pd.DataFrame(
        [
            ("bag of vectors", "original", "warrants", "original", 75.0),
            ("encoder", "original", "warrants", "original", 80.0),
            ("encoder", "original", "all", "original", 74.0),
            ("encoder", "mirrored", "all", "adversarial", 51.0),
        ],
        columns=["model", "train", "inputs", "test", "mean"],
    )
    choices["ci_low"], choices["ci_high"] = choices["mean"] - 5, choices["mean"] + 5
    return {"cues": cues, "partial_inputs": choices}


def test_cues_and_accuracies_are_told_with_the_numbers_of_the_tables():
    assert findings(tables(), {})["09"] == [
        "The strongest cue is “not”: in one warrant only in 70% of the arguments, and in 86% of "
        "these (80 to 90) in the right one, 25 points over guessing.",
        "Right with warrants alone, in percent: bag of vectors 75.0 (70.0 to 80.0); encoder 80.0 "
        "(75.0 to 85.0).",
        "With everything shown, in percent: encoder 74.0 (69.0 to 79.0).",
    ]
