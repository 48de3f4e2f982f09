"""Notebook 09's tables of a tiny model, and its claims on made-up tables."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from beyond.papers.argument_cues import choosers, partial_inputs
from beyond.papers.argument_cues.arguments import Argument, argument_corpus
from beyond.papers.argument_cues.partial_inputs import MODELS, score_tables
from helpers.data.glove import Embeddings
from helpers.metrics import rows_of_model
from helpers.model.loading import load_model

ROWS = {word: row for row, word in enumerate(["not", "do", "does", "a", "of"])}
EMBEDDINGS = Embeddings("few", "few", ROWS, np.eye(5, dtype=np.float32))


@pytest.fixture(scope="module")
def tables_in(tiny_folder):
    """Make a function of a cache folder: `choice_tables` of a tiny model with one seed."""
    folder = str(tiny_folder("bert"))
    corpus = argument_corpus()  # all arguments

    def tables(cache):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("ATTENTION_CACHE", str(cache))
            patch.setattr(partial_inputs, "SMALL_MODEL_SEEDS", 1)
            encoder = load_model(folder, device="cpu")
            controls = [load_model(folder, device="cpu", random_init=0)]
            return partial_inputs.choice_tables(corpus, encoder, controls, EMBEDDINGS, seed=0)

    return tables


@pytest.fixture(scope="module")
def run_tables(tables_in, tmp_path_factory):
    return tables_in(tmp_path_factory.mktemp("run"))


def test_choice_tables_have_every_planned_run_once(run_tables):
    table = rows_of_model(run_tables["partial_inputs"])
    assert not table.duplicated(["classifier", "train", "inputs", "test"]).any()
    runs = table[["classifier", "train", "inputs"]].drop_duplicates()
    runs = runs.value_counts(["classifier", "train"], sort=False)
    assert runs.unstack(fill_value=0)[["original", "negated"]].T.to_dict("list") == {
        "bag of vectors": [4, 1],
        "BiLSTM": [4, 1],
        "encoder": [4, 1],
        "random-init encoder": [1, 1],
    }
    assert (table["seeds"] == 1).all()
    assert len(rows_of_model(run_tables["partial_input_seeds"])) == len(table)


def test_choice_tables_of_the_bundled_sample_have_no_paper_columns(run_tables):
    table = run_tables["partial_inputs"]
    assert (table["corpus"] == "arguments-sample").all()
    assert not any(column.startswith("paper") for column in table)  # its cue is planted


def test_choices_by_warrants_only_are_right_on_half_of_the_pairs(run_tables):
    table = rows_of_model(run_tables["partial_inputs"])
    warrants = table.query("inputs == 'warrants' and train == 'original'").set_index(
        ["classifier", "test"]
    )["mean"]
    for name in table["classifier"].unique():
        assert warrants[name, "both"] == 50
        assert warrants[name, "original"] + warrants[name, "adversarial"] == pytest.approx(100)
    assert warrants["bag of vectors", "original"] > 65


def test_choice_tables_have_the_rows_of_the_control_as_the_encoder(run_tables):
    table = run_tables["partial_inputs"]
    as_encoder = rows_of_model(table, "random").query("classifier == 'encoder'")
    of_control = rows_of_model(table).query("classifier == 'random-init encoder'")
    expected = of_control.drop(columns="classifier").reset_index(drop=True)
    control = as_encoder.drop(columns="classifier").reset_index(drop=True)
    pd.testing.assert_frame_equal(control, expected)


def test_choice_tables_continue_after_an_interruption(run_tables, tables_in, tmp_path, monkeypatch):
    """Interrupt the first attempt after four trainings; the second must not repeat them."""
    train = choosers.train_chooser
    trained = []
    is_interrupted = True

    def interrupted_train(*args):
        if is_interrupted and len(trained) == 4:
            raise KeyboardInterrupt
        trained.append(args)
        return train(*args)

    monkeypatch.setattr(choosers, "train_chooser", interrupted_train)
    with pytest.raises(KeyboardInterrupt):
        tables_in(tmp_path)
    is_interrupted = False
    tables = tables_in(tmp_path)
    assert len(trained) in (17, 18)  # one that ran in parallel to the fourth may start again
    assert tables.keys() == run_tables.keys()
    assert all(tables[name].equals(run_tables[name]) for name in tables)


def test_training_sets_negated_are_originals_and_their_counterparts():
    corpus = argument_corpus()
    sets = partial_inputs.training_sets(corpus)
    assert sets["original"] == corpus.part("train")
    train = sets["negated"]
    assert train[::2] == corpus.part("train")
    assert train[1::2] == corpus.part("train", adversarial=True)


def test_training_sets_without_counterparts_in_train_have_none_with_negated_claims():
    corpus = argument_corpus()
    adversarial = [argument for argument in corpus.adversarial if argument.split != "train"]
    corpus = dataclasses.replace(corpus, adversarial=adversarial)
    assert set(partial_inputs.training_sets(corpus)) == {"original"}


@pytest.mark.parametrize("model", MODELS)
def test_recipe_of_has_half_the_epochs_on_twice_the_arguments(model):
    original, negated = [
        partial_inputs.recipe_of(partial_inputs.Run(model, train, "all"), 3)
        for train in partial_inputs.TRAINING_SETS
    ]
    assert 2 * negated.epochs == original.epochs
    assert original.seed == negated.seed == 3


LABELS = {"a": 0, "b": 0, "c": 1, "d": 1}
ORIGINALS = [
    Argument(name, "Go", "It is late.", "w", "x", label, "test", negated_claim="Stay")
    for name, label in LABELS.items()
]
A, B, C, D = ORIGINALS
# The counterparts of the first three, in another order.
ARGUMENTS = [*ORIGINALS, C.counterpart(), B.counterpart(), A.counterpart()]
# Labels: a 0, b 0, c 1, d 1; c' 0, b' 1, a' 1.
CHOICES = np.array([[0, 0, 1, 0, 0, 0, 0], [0, 1, 1, 1, 0, 1, 1]])


def test_score_tables_are_accuracies_as_by_hand():
    table, by_seed = score_tables(CHOICES, ARGUMENTS)
    table = table.set_index("test")
    assert table["arguments"].to_dict() == {"original": 4, "adversarial": 3, "both": 6}
    # Three of the four originals are right in either run.
    assert table.loc["original", "mean"] == 75
    assert table.loc["original", "max"] == 75
    assert table.loc["adversarial", "mean"] == pytest.approx(100 * (1 / 3 + 3 / 3) / 2)
    # Right in run 1: a, b, c, and only c' of the counterparts; in run 2: a, c, all counterparts.
    accuracies = [400 / 6, 500 / 6]
    assert table.loc["both", "mean"] == pytest.approx(np.mean(accuracies))
    assert table.loc["both", "std"] == pytest.approx(np.std(accuracies, ddof=1))
    of_both = by_seed.query("test == 'both'").set_index("seed")["accuracy"]
    assert of_both.loc[[0, 1]].tolist() == pytest.approx(accuracies)


def test_score_tables_resample_arguments_with_their_counterparts():
    """Choices that ignore the claim are right on one of each pair: the interval has no width."""
    counterparts = [original.counterpart() for original in ORIGINALS]
    choices = np.random.default_rng(0).integers(0, 2, (3, 4))
    table, _ = score_tables(np.hstack([choices, choices]), [*ORIGINALS, *counterparts])
    of_pairs = table.set_index("test").loc["both"]
    assert of_pairs[["mean", "mean_low", "mean_high"]].tolist() == [50, 50, 50]
