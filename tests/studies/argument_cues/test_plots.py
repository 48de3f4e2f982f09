"""Figure 12 draws every cue and every accuracy of its tables."""

import warnings

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import PathCollection

from helpers.studies.argument_cues.arguments import INPUTS, argument_corpus
from helpers.studies.argument_cues.cues import cues_by_split
from helpers.studies.argument_cues.plots import LABELLED, fig12_cues


def choices():
    rows = []
    for model in ("bag of vectors", "encoder"):
        for inputs, train in [*((i, "original") for i in INPUTS), ("all", "mirrored")]:
            for test, mean in (("original", 71.0), ("adversarial", 29.0), ("both", 50.0)):
                rows.append((model, train, inputs, test, mean, mean - 5, mean + 5, np.nan))
    columns = ["model", "train", "inputs", "test", "mean", "ci_low", "ci_high", "paper_mean"]
    return pd.DataFrame(rows, columns=columns)


def test_every_cue_and_every_accuracy_is_drawn():
    cues = cues_by_split(argument_corpus())
    figure = fig12_cues(cues, choices(), model="tiny")
    *panels, upper = figure.axes
    drawn = np.vstack([c.get_offsets() for c in upper.collections if isinstance(c, PathCollection)])
    own = cues[(cues["split"] == "all") & (cues["half"] == "original")]
    assert sorted(drawn[:, 0]) == pytest.approx(sorted(own["coverage"]))
    texts = {text.get_text() for text in upper.texts}
    assert set(own.nlargest(LABELLED, "gain")["cue"]) <= texts
    assert [panel.get_title(loc="left") for panel in panels] == ["bag of vectors", "encoder"]
    for panel in panels:
        found = [np.asarray(line.get_xdata(), float) for line in panel.lines]
        for mean in (71.0, 29.0, 50.0):
            assert any(np.sum(x == mean) == 5 for x in found)
    rows = [label.get_text() for label in panels[0].get_yticklabels()]
    assert rows == [*INPUTS, "all, trained with\nclaims negated too"]


def test_cues_of_one_kind_are_drawn_without_a_warning():
    cues = cues_by_split(argument_corpus())
    with warnings.catch_warnings(action="error"):
        fig12_cues(cues[cues["kind"] == "unigram"], choices())
