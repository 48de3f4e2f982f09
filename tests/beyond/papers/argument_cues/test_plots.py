"""Figure 12 draws every cue and every accuracy of its tables."""

import warnings

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import PathCollection
from plot_checks import LONG_NAME, check_figure, check_long_name

from beyond.papers.argument_cues.arguments import INPUTS, argument_corpus
from beyond.papers.argument_cues.cues import cues_by_split
from beyond.papers.argument_cues.plots import N_LABELLED, fig12_cues

MEANS = {"original": 71.0, "adversarial": 29.0, "both": 50.0}


def choices():
    """Make partial_inputs.csv of two models with five rows (input and training set) each."""
    trained = [(inputs, "original") for inputs in INPUTS] + [("all", "negated")]
    rows = []
    for model in ("bag of vectors", "encoder"):
        for inputs, train in trained:
            for test, mean in MEANS.items():
                rows.append((model, train, inputs, test, mean, mean - 5, mean + 5, np.nan))
    columns = [
        "classifier",
        "train",
        "inputs",
        "test",
        "mean",
        "mean_low",
        "mean_high",
        "paper_mean",
    ]
    return pd.DataFrame(rows, columns=columns)


@pytest.fixture(scope="module")
def cues():
    return cues_by_split(argument_corpus())


def test_fig12_draws_and_names_the_cues_of_the_originals(cues):
    upper, *_ = fig12_cues(cues, choices(), model="tiny").axes
    points = [drawn for drawn in upper.collections if isinstance(drawn, PathCollection)]
    offsets = np.vstack([drawn.get_offsets() for drawn in points])
    originals = cues[(cues["split"] == "all") & (cues["half"] == "original")]
    (in_test,) = [line for line in upper.lines if line.get_label().startswith("“not” in the test")]
    of_not = cues[(cues["split"] == "test") & (cues["half"] == "original") & (cues["cue"] == "not")]
    assert in_test.get_ydata() == pytest.approx(of_not["productivity"])
    assert sorted(offsets[:, 0]) == pytest.approx(sorted(originals["coverage"]))
    texts = {text.get_text() for text in upper.texts}
    assert set(originals.nlargest(N_LABELLED, "gain")["cue"]) <= texts


def test_fig12_draws_accuracies_of_models_trained_on_originals(cues):
    _, *panels = fig12_cues(cues, choices(), model="tiny").axes
    titles = [panel.get_title(loc="left") for panel in panels]
    assert titles == ["as written", "claim negated, other warrant right"]
    for panel, mean in zip(panels, (71, 29), strict=True):
        points = [container.lines[0].get_xdata() for container in panel.containers]
        assert [list(x) for x in points] == [[mean] * len(INPUTS)] * 2  # for each model
    row_labels = [label.get_text() for label in panels[0].get_yticklabels()]
    assert row_labels == [*INPUTS]


def test_fig12_shows_whole_error_bars(cues):
    wide = choices().assign(mean_low=3.0, mean_high=99.0)
    _, *panels = fig12_cues(cues, wide, model="").axes
    for panel in panels:
        low, high = panel.get_xlim()
        assert low < 3 and high > 99


def test_fig12_of_unigrams_only_is_drawn_without_a_warning(cues):
    with warnings.catch_warnings(action="error"):
        figure = fig12_cues(cues[cues["kind"] == "unigram"], choices(), model="")
    upper, *_ = figure.axes
    assert any(isinstance(drawn, PathCollection) for drawn in upper.collections)


def test_fig12_has_the_best_model_as_written_in_its_title(cues):
    better = choices().assign(
        mean=choices()["mean"] + (choices()["classifier"] == "bag of vectors")
    )
    figure = fig12_cues(cues, better, model="")
    title = "Bag of vectors: 72% of warrants right as written, 30% if the claim is negated"
    drawn = figure.texts[0].get_text().replace("\n", " ")
    assert drawn == f"Figure 12 · {title}"


def test_fig12_names_the_diamonds_of_the_paper(cues):
    figure = fig12_cues(cues, choices().assign(paper_mean=60.0), model="")
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert "the paper" in labels
    (diamonds,) = [line for line in figure.axes[1].lines if line.get_label() == "the paper"][:1]
    assert diamonds.get_xdata().tolist() == [60] * len(INPUTS)
    check_figure(figure)


def test_a_long_name_of_a_model_stays_on_the_page(cues):
    figure = fig12_cues(cues, choices(), model=LONG_NAME)
    check_long_name(figure)
    check_figure(figure)
