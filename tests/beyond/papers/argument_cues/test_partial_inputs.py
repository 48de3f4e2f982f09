"""Notebook 09's tables of a tiny model, and its claims on made-up tables."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from beyond.claims.engine import check_claims
from beyond.claims.saving import save_claims
from beyond.papers.argument_cues import choosers, cues, partial_inputs
from beyond.papers.argument_cues.arguments import Argument, argument_corpus
from beyond.papers.argument_cues.claims import CLAIMS
from beyond.papers.argument_cues.partial_inputs import MODELS, score_tables
from helpers.data.glove import Embeddings
from helpers.model.encoder import load_encoder
from helpers.study import Study

ROWS = {word: row for row, word in enumerate(["not", "do", "does", "a", "of"])}
EMBEDDINGS = Embeddings("few", "few", ROWS, np.eye(5, dtype=np.float32))


@pytest.fixture(scope="module")
def tables_in(tiny_folder):
    """Make a function of a cache folder: `choice_tables` of a tiny model with one seed."""
    folder = str(tiny_folder("bert"))
    corpus = argument_corpus()  # read before the small profile is set: all arguments

    def control(seed):
        return load_encoder(folder, device="cpu", random_init=seed)

    def tables(cache):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("ATTENTION_CACHE", str(cache))
            patch.setattr(partial_inputs, "SMALL_MODEL_SEEDS", 1)
            return partial_inputs.choice_tables(
                corpus, load_encoder(folder, device="cpu"), control, EMBEDDINGS, seeds=1, seed=0
            )  # fmt: skip

    return tables


@pytest.fixture(scope="module")
def run_tables(tables_in, tmp_path_factory):
    return tables_in(tmp_path_factory.mktemp("run"))


def test_choice_tables_have_every_planned_run_once(run_tables):
    table = run_tables["partial_inputs"]
    assert not table.duplicated(["model", "train", "inputs", "test"]).any()
    runs = table[["model", "train", "inputs"]].drop_duplicates()
    runs = runs.value_counts(["model", "train"], sort=False)
    assert runs.unstack(fill_value=0)[["original", "negated"]].T.to_dict("list") == {
        "bag of vectors": [4, 1],
        "BiLSTM": [4, 1],
        "encoder": [4, 1],
        "random-init encoder": [1, 1],
    }
    assert (table["seeds"] == 1).all()
    assert len(run_tables["partial_input_seeds"]) == len(table)


def test_choice_tables_of_the_bundled_sample_have_no_paper_columns(run_tables):
    table = run_tables["partial_inputs"]
    assert (table["corpus"] == "arguments-sample").all()
    assert not any(column.startswith("paper") for column in table)  # its cue is planted


def test_choices_by_warrants_only_are_right_on_half_of_the_pairs(run_tables):
    table = run_tables["partial_inputs"]
    warrants = table.query("inputs == 'warrants' and train == 'original'").set_index(
        ["model", "test"]
    )["mean"]
    for model in table["model"].unique():
        assert warrants[model, "both"] == 50
        assert warrants[model, "original"] + warrants[model, "adversarial"] == pytest.approx(100)
    assert warrants["bag of vectors", "original"] > 65


def test_control_tables_have_the_rows_of_the_control_as_the_encoder(run_tables):
    table = run_tables["partial_inputs"]
    as_encoder = run_tables["random_partial_inputs"].query("model == 'encoder'")
    of_control = table.query("model == 'random-init encoder'")
    assert as_encoder.drop(columns="model").equals(of_control.drop(columns="model"))


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


def tables_of_means(*means, seeds=5, spread=1.0):
    """Make both tables of (model, inputs, train, test, mean); half-widths 1 over arguments."""
    key = ["model", "inputs", "train", "test"]
    table = pd.DataFrame(means, columns=[*key, "mean"]).assign(corpus="arct", arguments=444)
    table["mean_low"] = table["mean"] - 1
    table["mean_high"] = table["mean"] + 1
    shifts = spread * (np.arange(seeds) - (seeds - 1) / 2)
    by_seed = []
    for seed, shift in enumerate(shifts):
        by_seed.append(table[key].assign(seed=seed, accuracy=table["mean"] + shift))
    return {"partial_inputs": table, "partial_input_seeds": pd.concat(by_seed)}


def run_like_the_paper():
    cues = [
        ("all", "not", "unigram", 61, 7.0),
        ("all", "can not", "bigram", 75, 8.0),
        ("all", "is", "unigram", 52, 0.3),
        ("test", "not", "unigram", 54, 1.0),
        ("test", "are", "unigram", 52, 0.3),
    ]
    columns = ["split", "cue", "kind", "productivity", "gain"]
    table = pd.DataFrame(cues, columns=columns).assign(corpus="arct", half="original")
    table["productivity_low"] = table["productivity"] - 1
    table["productivity_high"] = table["productivity"] + 1
    means = [(model, "warrants", "original", "original", 57) for model in MODELS[:2]]
    means += [
        ("encoder", "warrants", "original", "original", 65.6),
        ("encoder", "all", "original", "original", 67.1),
        ("encoder", "all", "original", "both", 50.4),
        ("encoder", "all", "negated", "both", 60),
        *((model, "all", "original", "adversarial", 40) for model in MODELS),
    ]
    return {"cues": table, **tables_of_means(*means, spread=0.5)}


def check_argument_claims(tables):
    return check_claims(tables, CLAIMS).set_index("id")


ENCODER_OVER_BAG = "niven-encoder-over-bag"
AT_CHANCE = "niven-both-at-chance"
BAG_57 = ("bag of vectors", "warrants", "original", "original", 57)


def test_all_claims_are_supported_by_a_run_like_the_paper():
    claims = check_argument_claims(run_like_the_paper())
    assert set(claims["verdict"]) == {"supported"}
    with_paper = [claim for claim in CLAIMS if not np.isnan(claim.paper)]
    for claim in with_paper:
        measured = claims.loc[claim.id, "value"]
        assert measured == pytest.approx(claim.paper, rel=0.1, abs=1e-9), claim.id


def test_values_of_the_paper_in_claims_are_those_of_its_tables():
    published = cues.published_values()
    with_warrants = published["encoder, warrants, original, mean"]
    with_everything = published["encoder, all, original, mean"]
    paper = {claim.id: claim.paper for claim in CLAIMS}
    assert np.isnan(paper["niven-not-strongest"])
    assert paper["niven-not-right-in-test"] == published["productivity of not, test"]
    assert paper["niven-not-right"] == published["productivity of not, all"]
    assert paper["niven-warrants-most"] == pytest.approx(with_warrants - with_everything / 2)


def test_a_difference_of_means_combines_the_spreads_of_both():
    """Student's t of five seeds at distances of one: 2.776 * sqrt(2.5 / 5)."""
    encoder = ("encoder", "warrants", "original", "original", 60)
    claim = check_argument_claims(tables_of_means(encoder, BAG_57)).loc[ENCODER_OVER_BAG]
    half_width = np.sqrt(2 * (1 + 2.77645**2 * 0.5))
    expected = [3, 3 - half_width, 3 + half_width]
    assert claim[["value", "value_low", "value_high"]].tolist() == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("accuracy", [44, 56])
def test_chance_is_left_in_both_directions(accuracy):
    encoder = ("encoder", "all", "original", "both", accuracy)
    claim = check_argument_claims(tables_of_means(encoder, BAG_57, spread=0.1)).loc[AT_CHANCE]
    assert (claim["value"], claim["verdict"]) == (6, "not supported")


@pytest.mark.parametrize(("spread", "verdict"), [(1.0, "inconclusive"), (0.1, "supported")])
def test_a_difference_of_means_is_supported_if_seeds_agree(spread, verdict):
    encoder = ("encoder", "warrants", "original", "original", 60)
    claims = check_argument_claims(tables_of_means(encoder, BAG_57, spread=spread))
    assert claims.loc[ENCODER_OVER_BAG, "verdict"] == verdict


@pytest.mark.parametrize(
    ("random", "due_to_training"), [(65, "inconclusive"), (70, "no"), (58, "yes")]
)
def test_a_cue_is_due_to_training_if_random_weights_follow_it_less(random, due_to_training):
    tables = tables_of_means(
        ("encoder", "warrants", "original", "original", 65),
        ("random-init encoder", "warrants", "original", "original", random),
        BAG_57,
        spread=0.1,
    )
    claim = check_argument_claims(partial_inputs.control_tables(tables)).loc[ENCODER_OVER_BAG]
    assert (claim["verdict"], claim["due_to_training"]) == ("supported", due_to_training)
    assert claim["control"] == pytest.approx(random - 57)


@pytest.mark.parametrize(
    ("mean", "verdict"), [(49.6, "supported"), (51.5, "inconclusive"), (45, "not supported")]
)
def test_at_chance_needs_the_interval_within_two_points(mean, verdict):
    tables = tables_of_means(("encoder", "all", "original", "both", mean), spread=0.1)
    assert check_argument_claims(tables).loc[AT_CHANCE, "verdict"] == verdict


def test_claims_are_not_measured_on_a_planted_cue():
    """The bundled sample would pass most claims, because its cue was put there to be learned."""
    tables = run_like_the_paper()
    planted = {name: table.assign(corpus="arguments-sample") for name, table in tables.items()}
    claims = check_argument_claims(planted)
    assert set(claims["verdict"]) == {"not measured"}
    assert set(claims["reason"]) == {"the cue of the bundled sample is planted"}


def test_save_claims_of_notebook_09_only_has_its_claims_only(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTENTION_BUILD", str(tmp_path))
    monkeypatch.setenv("ATTENTION_FIGURES", str(tmp_path / "figures"))
    study = Study(name="arct", later=True)
    path = tmp_path / "arct-later/tables/claims.csv"
    save_claims(study, claims=CLAIMS)
    assert set(pd.read_csv(path)["verdict"]) == {"not measured"}  # yet
    for name, table in run_like_the_paper().items():
        study.save_table(table, name)
    save_claims(study, claims=CLAIMS)
    assert list(pd.read_csv(path)["verdict"]) == ["supported"] * 11
