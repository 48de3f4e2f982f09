"""Choosers learn a planted word, read what they are shown, and keep the best epoch."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from helpers.errors import ModelError
from helpers.studies.argument_cues import choosers
from helpers.studies.argument_cues.arguments import INPUTS, Argument
from helpers.studies.argument_cues.choosers import BAG, BILSTM, EncoderChooser, WordChooser
from helpers.studies.fine_tune import Recipe
from helpers.studies.tasks import Pair

RECIPE = Recipe(epochs=3, learning_rate=3e-3, batch_size=4, max_tokens=32)
WORD_RECIPE = Recipe(epochs=8, learning_rate=1e-2, batch_size=4)
PLAIN = ["the", "cat", "dog", "sat", "on", "a", "mat", "rainy", "winters", "like", "she", "yes"]
DRAWN = np.random.default_rng(0).normal(size=(14, 6))
VECTORS = dict(zip([*PLAIN, "not", "no"], DRAWN, strict=True))
FAMILIES = ["bert", "roberta", "gpt2"]  # two masked language models and a decoder


def vectors(words):
    return np.array([VECTORS.get(word, np.zeros(6)) for word in words], np.float32).reshape(-1, 6)


def made_up(count, seed, planted=True):
    rng, arguments = np.random.default_rng(seed), []
    for index in range(count):
        label = int(rng.integers(2))
        texts = [list(rng.choice(PLAIN, 3)) for _ in range(4)]
        texts[2 + label] += ["not"] * 2 * planted
        claim, reason, *both = (" ".join(text) for text in texts)
        arguments.append(
            Argument(str(index), claim, reason, *both, label, "x", negated_claim="no mat")
        )
    return arguments


@pytest.fixture(scope="module")
def splits():
    test = made_up(30, 3)
    test += [one.counterpart() for one in test]
    return {"train": made_up(40, 1), "dev": made_up(12, 2), "test": test}


def right(choices, splits):
    return choices == [argument.label for argument in splits["test"]]


def test_what_an_encoder_reads_for_each_warrant():
    argument = Argument("a", "Go home", "It is late.", "right", "wrong", 0, "x")
    firsts = {inputs: choosers.warrant_pairs([argument], inputs)[0] for inputs in INPUTS}
    assert firsts == {
        "warrants": Pair("right", None, 0),
        "reason + warrants": Pair("It is late.", "right", 0),
        "claim + warrants": Pair("Go home", "right", 0),
        "all": Pair("It is late. Go home", "right", 0),
    }
    assert choosers.warrant_pairs([argument], "all")[1].second == "wrong"


@pytest.mark.parametrize("family", FAMILIES)
def test_an_encoder_finds_the_plant_and_loses_it_on_the_counterparts(tiny_encoder, splits, family):
    encoder = tiny_encoder(family)
    before = {name: weights.clone() for name, weights in encoder.model.named_parameters()}
    chooser = EncoderChooser(encoder, "all", RECIPE.max_tokens, seed=0)
    found = right(choosers.train_chooser(chooser, splits, RECIPE, "tiny"), splits)
    assert found[:30].mean() > 0.85
    assert found[30:].mean() < 0.25
    for name, weights in encoder.model.named_parameters():
        assert torch.equal(weights, before[name])  # a copy was trained


@pytest.mark.parametrize("kind", [BAG, BILSTM])
@pytest.mark.parametrize("inputs", INPUTS)
def test_words_give_the_plant_away(splits, kind, inputs):
    chooser = WordChooser(kind, inputs, vectors, seed=0)
    choices = choosers.train_chooser(chooser, splits, WORD_RECIPE, kind)
    assert right(choices, splits)[:30].mean() > 0.9
    if "claim" not in INPUTS[inputs]:
        assert (choices[:30] == choices[30:]).all()


@pytest.mark.parametrize("kind", [BAG, BILSTM])
def test_without_a_plant_there_is_chance_and_a_seed_gives_the_same_again(kind):
    parts = {name: made_up(n, n, planted=False) for name, n in (("train", 64), ("dev", 40))}
    parts["test"] = made_up(200, 3, planted=False)

    def choices(seed):
        chooser = WordChooser(kind, "all", vectors, seed=seed)
        return choosers.train_chooser(chooser, parts, replace(WORD_RECIPE, seed=seed), kind)

    first = choices(0)
    assert 0.4 < right(first, parts).mean() < 0.6
    assert (first == choices(0)).all() and (first != choices(1)).any()


def test_scores_do_not_depend_on_what_is_scored_with_them(tiny_encoder, splits):
    """Texts of 4 to 24 words in a step, so that no group is in its order."""
    encoder = EncoderChooser(tiny_encoder("bert"), "all", 64, seed=0)
    lengths = np.random.default_rng(0).integers(4, 24, 12)
    arguments = [
        Argument(str(i), "yes", "a mat", "cat " * n, "dog " * (28 - n), i % 2, "x")
        for i, n in enumerate(lengths)
    ]
    for chooser in (encoder, WordChooser(BILSTM, "all", vectors, seed=0)):
        alone = torch.cat([chooser.scores([argument]) for argument in arguments])
        torch.testing.assert_close(chooser.scores(arguments), alone, atol=1e-6, rtol=1e-5)
        step = chooser(arguments).detach().to(alone.dtype)
        torch.testing.assert_close(step, alone, atol=1e-6, rtol=1e-5)
        assert alone.std() > 1e-4  # they differ from pair to pair


def test_a_text_is_the_mean_or_the_largest_of_what_it_has():
    x, lengths = torch.tensor([[[1.0, 2], [3, 4], [0, 0]]]), torch.tensor([2])

    def of_two(words):
        return np.ones((len(words), 2), np.float32)

    bag, lstm = (WordChooser(kind, "warrants", of_two, seed=0) for kind in (BAG, BILSTM))
    assert bag.text_vectors(x, lengths).tolist() == [[2, 3]]
    found = lstm.text_vectors(x, lengths)
    torch.testing.assert_close(found[0], lstm.lstm(x[:, :2])[0][0].amax(dim=0))
    no_words = Argument("s", "Zzz", "yyy", "xxx", "www", 0, "x")
    assert WordChooser(BILSTM, "all", vectors, seed=0).scores([no_words]).isfinite().all()


def test_the_best_epoch_on_dev_is_kept(splits, monkeypatch):
    for accuracies, best in (((0.9, 0.8, 0.9), 0), ((0.1, 0.3, 0.2), 1), ((0.1, 0.2, 0.3), 2)):
        said, seen = iter(accuracies), []
        chooser = WordChooser(BAG, "warrants", vectors, seed=0)

        def judge(*_, said=said, seen=seen, chooser=chooser):
            seen.append(chooser.outer.weight.detach().clone())
            return next(said), 0.0

        monkeypatch.setattr(choosers, "quality", judge)
        choosers.train_chooser(chooser, splits, Recipe(epochs=3, batch_size=20), "bag")
        kept = [torch.equal(chooser.outer.weight, after) for after in seen]
        assert kept == [i == best for i in range(3)]


def test_texts_that_are_too_long_and_a_loss_that_is_no_number_are_refused(tiny_encoder, splits):
    long = EncoderChooser(tiny_encoder("bert"), "all", 10_000, seed=0)
    with pytest.raises(ModelError, match="tasks of 10000 tokens"):
        choosers.train_chooser(long, splits, RECIPE, "tiny")
    wild = EncoderChooser(tiny_encoder("bert"), "all", 32, seed=0)
    with pytest.raises(ModelError, match="smaller learning rate"):
        choosers.train_chooser(wild, splits, Recipe(learning_rate=1e30), "tiny")
