"""An encoder learns which warrant is right from a planted word, and reads what it is shown."""

import numpy as np
import pytest
import torch

from helpers.errors import ModelError
from helpers.studies.argument_cues import warrants
from helpers.studies.argument_cues.arguments import INPUTS, Argument, adversarial
from helpers.studies.argument_cues.warrants import (
    WarrantRecipe,
    choose_warrants,
    score_warrants,
    warrant_pairs,
)
from helpers.studies.classifier import new_classifier
from helpers.studies.tasks import Pair

RECIPE = WarrantRecipe(epochs=3, learning_rate=3e-3, batch_size=4, max_tokens=32)
PLAIN = ["the", "cat", "dog", "sat", "on", "a", "mat", "rainy", "winters", "like", "she", "yes"]
FAMILIES = ["bert", "roberta", "gpt2"]  # two masked language models and a decoder


def made_up(count, seed):
    rng, arguments = np.random.default_rng(seed), []
    for index in range(count):
        label = int(rng.integers(2))
        texts = [list(rng.choice(PLAIN, 3)) for _ in range(4)]
        texts[2 + label] += ["not"] * 2
        claim, reason, *both = (" ".join(text) for text in texts)
        arguments.append(
            Argument(str(index), claim, reason, *both, label, "x", negated_claim="no mat")
        )
    return arguments


@pytest.fixture(scope="module")
def splits():
    test = made_up(30, 3)
    return {"train": made_up(40, 1), "dev": made_up(12, 2), "test": test + adversarial(test)}


def test_what_is_read_for_each_warrant():
    argument = Argument("a", "Go home", "It is late.", "right", "wrong", 0, "x")
    firsts = {inputs: warrant_pairs(argument, inputs)[0] for inputs in INPUTS}
    assert firsts == {
        "warrants": Pair("right", None, 0),
        "reason + warrants": Pair("It is late.", "right", 0),
        "claim + warrants": Pair("Go home", "right", 0),
        "all": Pair("It is late. Go home", "right", 0),
    }
    assert warrant_pairs(argument, "all")[1].second == "wrong"


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("inputs", ["warrants", "all"])
def test_the_plant_is_found_and_lost_on_the_counterparts(tiny_encoder, splits, family, inputs):
    encoder = tiny_encoder(family)
    before = {name: weights.clone() for name, weights in encoder.model.named_parameters()}
    choices = choose_warrants(encoder, splits, inputs=inputs, seed=0, recipe=RECIPE)
    right = choices == [argument.label for argument in splits["test"]]
    assert right[:30].mean() > 0.85
    assert right[30:].mean() < 0.25
    for name, weights in encoder.model.named_parameters():
        assert torch.equal(weights, before[name])  # a copy was trained


def test_without_the_claim_an_argument_and_its_counterpart_are_the_same(tiny_encoder, splits):
    for inputs in ("warrants", "reason + warrants"):
        short = WarrantRecipe(epochs=1, max_tokens=32)
        choices = choose_warrants(tiny_encoder("bert"), splits, inputs=inputs, seed=0, recipe=short)
        assert (choices[:30] == choices[30:]).all()


def test_a_seed_gives_the_same_again_and_another_seed_does_not(tiny_encoder, splits, monkeypatch):
    scored = []

    def keep(*arguments):
        scored.append(score_warrants(*arguments))
        return scored[-1]

    monkeypatch.setattr(warrants, "score_warrants", keep)
    for seed in (0, 0, 1):
        recipe = WarrantRecipe(epochs=1, max_tokens=32)
        choose_warrants(tiny_encoder("bert"), splits, inputs="all", seed=seed, recipe=recipe)
    first, again, other = (scored[2 * run + 1] for run in range(3))
    assert (first == again).all()
    assert (first != other).any()


def test_scores_do_not_depend_on_what_is_scored_with_them(tiny_encoder, splits):
    encoder = tiny_encoder("bert")
    classifier = new_classifier(encoder, 1, seed=0)
    everything = score_warrants(classifier, encoder, splits["test"], "all", RECIPE)
    alone = score_warrants(classifier, encoder, splits["test"][7:8], "all", RECIPE)
    assert everything.shape == (60, 2)
    np.testing.assert_allclose(everything[7:8], alone, atol=1e-5)


def test_the_best_epoch_on_dev_is_kept(tiny_encoder, splits, monkeypatch):
    encoder, recipe = tiny_encoder("bert"), WarrantRecipe(epochs=3, batch_size=20, max_tokens=32)

    def weights_if_dev_says(*accuracies):
        """Train, dev judging the epochs as told; return the weights after each, and at the end."""
        said, seen = iter(accuracies), []

        def judge(classifier, *_):
            seen.append(classifier.head.weight.detach().clone())
            return next(said), 0.0

        def end(classifier, *_):
            seen.append(classifier.head.weight.detach().clone())
            return np.eye(2)

        monkeypatch.setattr(warrants, "_quality", judge)
        monkeypatch.setattr(warrants, "score_warrants", end)
        choose_warrants(encoder, splits, inputs="all", seed=0, recipe=recipe)
        return seen

    for accuracies, best in (((0.9, 0.8, 0.9), 0), ((0.1, 0.3, 0.2), 1), ((0.1, 0.2, 0.3), 2)):
        *epochs, final = weights_if_dev_says(*accuracies)
        assert [torch.equal(final, after) for after in epochs] == [i == best for i in range(3)]


def test_every_step_is_reported(tiny_encoder, splits):
    steps, recipe = [], WarrantRecipe(epochs=2, batch_size=16, max_tokens=32)
    choose_warrants(
        tiny_encoder("bert"), splits, inputs="warrants", seed=0, recipe=recipe,
        step_done=lambda: steps.append(1),
    )  # fmt: skip
    assert len(steps) == recipe.steps(40) == 6


def test_texts_that_the_model_cannot_take_are_refused(tiny_encoder, splits):
    recipe = WarrantRecipe(epochs=1, max_tokens=10_000)
    with pytest.raises(ModelError, match="tasks of 10000 tokens"):
        choose_warrants(tiny_encoder("bert"), splits, inputs="all", seed=0, recipe=recipe)


def test_a_learning_rate_that_diverges_is_refused(tiny_encoder, splits):
    recipe = WarrantRecipe(epochs=3, learning_rate=1e30, max_tokens=32)
    with pytest.raises(ModelError, match="smaller learning rate"):
        choose_warrants(tiny_encoder("bert"), splits, inputs="all", seed=0, recipe=recipe)


def test_pairs_read_in_groups_of_similar_length_get_the_scores_of_a_whole_step(
    tiny_encoder, monkeypatch
):
    """Texts of 4 to 24 words, so that no group is in the order of the step."""
    encoder, lengths = tiny_encoder("bert"), np.random.default_rng(0).integers(4, 24, 12)
    arguments = [
        Argument(str(i), "yes", "a mat", "cat " * n, "dog " * (28 - n), i % 2, "x")
        for i, n in enumerate(lengths)
    ]
    classifier = new_classifier(encoder, 1, seed=0)
    found = []
    for together in (3, 8, 100):
        monkeypatch.setattr(warrants, "READ_TOGETHER", together)
        recipe = WarrantRecipe(batch_size=5, max_tokens=64)
        steps = list(warrants._batches(encoder, arguments, "all", [0, 0], recipe))
        assert [len(reads) for reads, _ in steps[:2]] == [-(-10 // together)] * 2
        scores = [warrants.scores_of_reads(classifier, reads) for reads, _ in steps]
        found.append(torch.cat(scores))
    assert torch.allclose(found[0], found[2], atol=1e-6)
    assert torch.allclose(found[1], found[2], atol=1e-6)
    assert found[2].std() > 1e-4  # they differ from pair to pair
