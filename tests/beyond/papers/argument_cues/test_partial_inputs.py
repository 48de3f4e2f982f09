"""Notebook 09's tables of a tiny model, and scores by hand."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from beyond.papers.argument_cues import partial_inputs
from beyond.papers.argument_cues.arguments import Argument, argument_corpus
from beyond.papers.argument_cues.partial_inputs import score_tables
from helpers.data.glove import Embeddings
from helpers.metrics import rows_of_model
from helpers.model.loading import load_model

ROWS = {word: row for row, word in enumerate(["not", "do", "does", "a", "of"])}
EMBEDDINGS = Embeddings("few", "few", ROWS, np.eye(5, dtype=np.float32))


@pytest.fixture(scope="module")
def run_tables(tiny_folder, tmp_path_factory):
    """Make the tables of a tiny model with one seed."""
    folder = str(tiny_folder("bert"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partial_inputs, "SMALL_MODEL_SEEDS", 1)
        encoder = load_model(folder, device="cpu")
        controls = [load_model(folder, device="cpu", random_init=0)]
        return partial_inputs.choice_tables(
            argument_corpus(), encoder, controls, EMBEDDINGS, seed=0
        )


def test_choices_by_warrants_only_are_right_on_half_of_the_pairs(run_tables):
    table = rows_of_model(run_tables["partial_inputs"])
    table = table[(table["inputs"] == "warrants") & (table["train"] == "original")]
    means = table.pivot(index="classifier", columns="test", values="mean")
    assert (means["both"] == 50).all()
    np.testing.assert_allclose(means["original"] + means["adversarial"], 100)
    assert means.loc["bag of vectors", "original"] > 65


def test_training_sets_negated_are_originals_and_their_counterparts():
    corpus = argument_corpus()
    sets = partial_inputs.training_sets(corpus)
    assert sets["original"] == sets["negated"][::2] == corpus.part("train")
    assert sets["negated"][1::2] == corpus.part("train", adversarial=True)
    without = dataclasses.replace(corpus, adversarial=corpus.part("test", adversarial=True))
    assert set(partial_inputs.training_sets(without)) == {"original"}
    runs = [partial_inputs.Run("encoder", train, "all") for train in ("original", "negated")]
    original, negated = (partial_inputs.recipe_of(run, 3) for run in runs)
    assert dataclasses.replace(negated, epochs=2 * negated.epochs) == original
    assert original.seed == 3


ORIGINALS = [
    Argument(name, "Go", "It is late.", "w", "x", label, "test", negated_claim="Stay")
    for name, label in {"a": 0, "b": 0, "c": 1, "d": 1}.items()
]


def test_score_tables_are_accuracies_as_by_hand():
    a, b, c, d = ORIGINALS
    arguments = [a, b, c, d, c.counterpart(), b.counterpart(), a.counterpart()]  # of three
    # Labels: a 0, b 0, c 1, d 1; c' 0, b' 1, a' 1.
    choices = [[0, 0, 1, 0, 0, 0, 0], [0, 1, 1, 1, 0, 1, 1]]
    table, by_seed = score_tables(choices, arguments)
    on_both = np.array([400 / 6, 500 / 6])  # a, b, c and c' in run 1; a, c and all counterparts
    rows = {
        "original": (4, 2, 75, 0),  # three of the four originals are right in either run
        "adversarial": (3, 2, 200 / 3, np.std([100 / 3, 100], ddof=1)),
        "both": (6, 2, on_both.mean(), on_both.std(ddof=1)),
    }
    columns = ["arguments", "seeds", "mean", "std"]
    expected = pd.DataFrame.from_dict(rows, orient="index", columns=columns)
    pd.testing.assert_frame_equal(table.set_index("test")[columns], expected, check_names=False)
    accuracies = by_seed.query("test == 'both'").sort_values("seed")["accuracy"]
    np.testing.assert_allclose(accuracies, on_both)


def test_score_tables_resample_arguments_with_their_counterparts():
    """Choices that ignore the claim are right on one of each pair: the interval has no width."""
    counterparts = [original.counterpart() for original in ORIGINALS]
    choices = np.random.default_rng(0).integers(0, 2, (3, 4))
    table, _ = score_tables(np.hstack([choices, choices]), [*ORIGINALS, *counterparts])
    row = table.set_index("test").loc["both"]
    assert row[["mean", "mean_low", "mean_high"]].tolist() == [50, 50, 50]
