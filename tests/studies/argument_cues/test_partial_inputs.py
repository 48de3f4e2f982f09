"""Notebook 09's tables from a tiny model: complete, reproducible, and with the plant found."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from helpers.analysis.paper import check_claims, values_of
from helpers.data.glove import Embeddings
from helpers.model.encoder import load
from helpers.studies.argument_cues import choosers, partial_inputs
from helpers.studies.argument_cues.arguments import Argument, argument_corpus
from helpers.studies.argument_cues.claims import argument_claims
from helpers.studies.argument_cues.partial_inputs import MODELS, score_tables
from helpers.study import Study

ROWS = {word: row for row, word in enumerate(["not", "do", "does", "a", "of"])}
EMBEDDINGS = Embeddings("few", "few", ROWS, np.eye(5, dtype=np.float32))


@pytest.fixture(scope="module")
def tables_in(tiny_folder):
    """Return `choice_tables` of a tiny model and vectors of a few words, small, with a cache."""
    folder, corpus = str(tiny_folder("bert")), argument_corpus()

    def tables(cache):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("ATTENTION_CACHE", str(cache))
            patch.setenv("ATTENTION_PROFILE", "small")  # one epoch; the corpus is whole
            return partial_inputs.choice_tables(
                corpus, load(folder, device="cpu"),
                lambda seed, focused: load(folder, device="cpu", random_init=seed + 9 * focused),
                EMBEDDINGS,
                examples=40, max_tokens=64, seeds=1, seed=0,
            )  # fmt: skip

    return tables


@pytest.fixture(scope="module")
def whole(tables_in, tmp_path_factory):
    return tables_in(tmp_path_factory.mktemp("whole"))


def test_the_tables_of_a_run(whole):
    table = whole["partial_inputs"]
    key = ["model", "train", "inputs", "test"]
    assert not table.duplicated(key).any()
    runs = table[key[:3]].drop_duplicates().value_counts(["model", "train"], sort=False)
    assert runs.unstack(fill_value=0)[["original", "swapped", "mirrored"]].T.to_dict("list") == {
        "bag of vectors": [4, 1, 1],
        "BiLSTM": [4, 1, 1],
        "encoder": [4, 1, 1],
        "random-init encoder": [1, 0, 1],
        "focused encoder": [1, 0, 1],
    }
    assert (table["seeds"] == 1).all()
    warrants = table.query("inputs == 'warrants' and train == 'original'").set_index(
        ["model", "test"]
    )["mean"]
    for model in table["model"].unique():
        assert warrants[model, "both"] == 50
        assert warrants[model, "original"] + warrants[model, "adversarial"] == pytest.approx(100)
    assert warrants["bag of vectors", "original"] > 65
    assert len(whole["partial_input_seeds"]) == len(table)
    control = whole["control_partial_inputs"].query("model == 'encoder'")
    own = table.query("model == 'random-init encoder'")
    assert control.drop(columns="model").equals(own.drop(columns="model"))
    assert (table["corpus"] == "arguments-sample").all()
    assert not any(column.startswith("paper") for column in table)  # its cue is planted


def test_what_was_trained_before_an_interruption_is_not_trained_again(
    whole, tables_in, tmp_path, monkeypatch
):
    """The first attempt ends after four trainings of an encoder; whole, it is as if it had not."""
    train, trained, most = choosers.train_chooser, [], [4]

    def counted(*args):
        if len(trained) == most[0]:
            raise KeyboardInterrupt
        trained.append(args)
        return train(*args)

    monkeypatch.setattr(choosers, "train_chooser", counted)
    with pytest.raises(KeyboardInterrupt):
        tables_in(tmp_path)
    most[0] = None
    again = tables_in(tmp_path)
    assert len(trained) in (22, 23)  # one that ran beside the fourth may begin again
    assert all(again[name].equals(whole[name]) for name in whole)


def test_swapped_warrants_are_the_same_choice_again_and_counterparts_may_be_of_dev_alone():
    corpus = argument_corpus()
    dev = [a for a in corpus.adversarial if a.split != "train"]  # as in ARCT
    plain = dataclasses.replace(corpus, adversarial=dev)
    sets = partial_inputs.training_sets(plain, 40)
    train = sets["swapped"]["train"]
    assert len(train) == 80 and train[:40] == sets["original"]["train"]
    for one, other in zip(train[:40], train[40:], strict=True):
        assert other.warrants == one.warrants[::-1] and other.label == 1 - one.label
    assert len(sets["swapped"]["dev"]) == 2 * len(corpus.part("dev"))  # validated on both halves
    assert sets["swapped"]["test"] == sets["original"]["test"]
    unlimited = partial_inputs.training_sets(plain, None)["original"]["train"]
    assert unlimited == plain.part("train") and len(unlimited) > 40
    mirrored = partial_inputs.training_sets(corpus, 40)["mirrored"]
    assert mirrored["train"][:40] == train[:40]
    for parts, sizes in ((mirrored, (80, 40)), (sets["mirrored"], (32, 8))):
        for own, size in zip((parts["train"], parts["dev"]), sizes, strict=True):
            ids = [a.id for a in own]
            assert len(ids) == size and ids[size // 2 :] == [
                f"{i}-adversarial" for i in ids[: size // 2]
            ]
    on_dev = [a for part in ("train", "dev") for a in sets["mirrored"][part]]
    assert {a.split for a in on_dev} == {"dev"} and len({a.id for a in on_dev}) == 40
    recipe = partial_inputs.recipe_of(partial_inputs.Run("encoder", "mirrored", "all"), sets, 0, 64)
    assert recipe.epochs == 4  # 128 arguments, and 3 epochs of 40 are 120


ORIGINALS = [
    Argument(name, "Go", "It is late.", "w", "x", label, "test", negated_claim="Stay")
    for name, label in zip("abcd", (0, 0, 1, 1), strict=True)
]
# The counterparts of the first three, in another order.
ARGUMENTS = [*ORIGINALS, *(one.counterpart() for one in ORIGINALS[2::-1])]
# Labels: a 0, b 0, c 1, d 1; c' 0, b' 1, a' 1.
CHOICES = np.array([[0, 0, 1, 0, 0, 0, 0], [0, 1, 1, 1, 0, 1, 1]])


def test_accuracies_of_each_half_by_hand():
    table, of_runs = score_tables(CHOICES, ARGUMENTS)
    table = table.set_index("test")
    original, counterparts, both = (table.loc[h] for h in ("original", "adversarial", "both"))
    assert table["arguments"].tolist() == [4, 3, 6]
    assert (original["mean"], original["max"]) == (75, 75)  # three of four in either run
    assert counterparts["mean"] == pytest.approx(100 * (1 / 3 + 3 / 3) / 2)
    # Run 1: a, b, c right, of the counterparts c' alone; run 2: a, c, and all counterparts.
    assert both["mean"] == pytest.approx(100 * (4 / 6 + 5 / 6) / 2)
    assert both["std"] == pytest.approx(np.std([400 / 6, 500 / 6], ddof=1))
    assert of_runs.query("test == 'both'")["accuracy"].tolist() == pytest.approx([400 / 6, 500 / 6])


def test_intervals_are_over_arguments_with_their_counterparts():
    """Choices that ignore the claim are right on one of each pair: there is nothing to resample."""
    arguments = [*ORIGINALS, *(one.counterpart() for one in ORIGINALS)]
    same = np.random.default_rng(0).integers(0, 2, (3, 4))
    both = score_tables(np.hstack([same, same]), arguments)[0].set_index("test").loc["both"]
    assert both[["mean", "ci_low", "ci_high"]].tolist() == [50, 50, 50]


CLAIMS = argument_claims()


def tables_of_means(*means, seeds=5, spread=1.0):
    """Return both tables of (model, inputs, train, test, mean); half-widths 1 over arguments."""
    key = ["model", "inputs", "train", "test"]
    table = pd.DataFrame(means, columns=[*key, "mean"]).assign(corpus="arct")
    table["ci_low"], table["ci_high"] = table["mean"] - 1, table["mean"] + 1
    shifts = spread * (np.arange(seeds) - (seeds - 1) / 2)
    by_seed = [table[key].assign(seed=i, accuracy=table["mean"] + x) for i, x in enumerate(shifts)]
    return {"partial_inputs": table, "partial_input_seeds": pd.concat(by_seed)}


def run_like_the_paper():
    cues = [
        ("original", "not", "unigram", 61, 7.0),
        ("original", "can not", "bigram", 75, 8.0),
        ("original", "is", "unigram", 52, 0.3),
    ]
    columns = ["half", "cue", "kind", "productivity", "gain"]
    table = pd.DataFrame(cues, columns=columns).assign(corpus="arct", split="all")
    table["ci_low"], table["ci_high"] = table["productivity"] - 3, table["productivity"] + 3
    means = [(model, "warrants", "original", "original", 57) for model in MODELS[:2]]
    means += [
        ("encoder", "warrants", "original", "original", 65.6),
        ("encoder", "all", "original", "original", 67.1),
        ("encoder", "all", "swapped", "both", 50.4),
        ("encoder", "all", "mirrored", "both", 60),
        *((model, "all", "original", "adversarial", 40) for model in MODELS),
    ]
    return {"cues": table, **tables_of_means(*means, spread=0.5)}


def checked(tables):
    return check_claims(tables, CLAIMS).set_index("claim")


def test_all_hold_of_a_run_like_the_paper():
    found = checked(run_like_the_paper())
    assert set(found["holds"]) == {"yes"}
    shown, part = values_of("Niven"), "encoder, {}, original, mean".format
    more = shown[part("warrants")] - 50 - (shown[part("all")] - 50) / 2
    papers = [shown["productivity of not, all"], np.nan, more]
    assert [claim.paper for claim in CLAIMS[:3]] == pytest.approx(papers, rel=1e-5, nan_ok=True)
    for claim in CLAIMS:
        here = found.loc[claim.statement, "here"]
        if not np.isnan(claim.paper):
            assert here == pytest.approx(claim.paper, rel=0.1, abs=1e-9), claim.statement


BAG_OF = ("bag of vectors", "warrants", "original", "original", 57)
FOLLOWS = "The encoder follows the cues better than a bag of vectors"
AT_CHANCE = next(claim.statement for claim in CLAIMS if "within two points" in claim.statement)


def test_a_difference_of_means_has_the_spreads_over_arguments_and_seeds_of_both():
    """Student's t of five seeds at distances of one: 2.776 * sqrt(2.5 / 5)."""
    own = ("encoder", "warrants", "original", "original", 60)
    found = checked(tables_of_means(own, BAG_OF)).loc[FOLLOWS]
    half = np.sqrt(2 * (1 + 2.77645**2 * 0.5))
    assert found[["here", "ci_low", "ci_high"]].tolist() == pytest.approx(
        [3, 3 - half, 3 + half], abs=1e-4
    )
    narrow = checked(tables_of_means(own, BAG_OF, spread=0.1)).loc[FOLLOWS]
    assert (found["holds"], narrow["holds"]) == ("cannot be told", "yes")


@pytest.mark.parametrize(("random", "learned"), [(65, "cannot be told"), (70, "no"), (58, "yes")])
def test_a_cue_that_random_weights_follow_as_well_is_not_learned(random, learned):
    """The control has the same sentence to be true of; what is not the encoder stays."""
    mean = ("warrants", "original", "original")
    tables = tables_of_means(
        ("encoder", *mean, 65), BAG_OF, ("random-init encoder", *mean, random), spread=0.1
    )
    found = checked(partial_inputs.control_tables(tables)).loc[FOLLOWS]
    assert (found["holds"], found["learned"]) == ("yes", learned)
    assert found["control"] == pytest.approx(random - 57)


@pytest.mark.parametrize(("mean", "holds"), [(49.6, "yes"), (51.5, "cannot be told"), (45, "no")])
def test_at_chance_is_within_two_points_of_it_with_the_whole_interval(mean, holds):
    tables = tables_of_means(("encoder", "all", "swapped", "both", mean), spread=0.1)
    assert checked(tables).loc[AT_CHANCE, "holds"] == holds


def test_nothing_is_claimed_of_a_planted_cue():
    """The embedded sample would pass most claims, because its cue was put there to be found."""
    planted = {
        name: t.assign(corpus="arguments-sample") for name, t in run_like_the_paper().items()
    }
    assert set(checked(planted)["holds"]) == {"not measured"}


def test_a_run_of_a_guest_alone_has_no_rows_about_what_it_did_not_measure(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTENTION_FIGURES", str(tmp_path))
    study = Study(name="arct")
    study.save_claims(CLAIMS)
    assert not (tmp_path / "arct").exists()  # nothing is measured yet
    for name, table in run_like_the_paper().items():
        study.save_table(table, name)
    study.save_claims(CLAIMS)
    assert list(pd.read_csv(tmp_path / "arct/tables/claims.csv")["holds"]) == ["yes"] * 9
