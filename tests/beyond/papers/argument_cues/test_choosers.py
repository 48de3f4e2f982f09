"""Choosers learn a planted word and read their inputs only."""

import re

import numpy as np
import pytest
import torch

from beyond.papers.argument_cues import choosers
from beyond.papers.argument_cues.arguments import INPUTS, Argument
from beyond.papers.argument_cues.choosers import BAG, BILSTM, EncoderChooser, WordChooser
from beyond.papers.common.fine_tune import Recipe
from beyond.papers.common.tasks import Pair

RECIPE = Recipe(epochs=3, learning_rate=3e-3, batch_size=4, max_tokens=32)
WORD_RECIPE = Recipe(epochs=8, learning_rate=1e-2, batch_size=4)
WORDS = ["the", "cat", "dog", "sat", "on", "a", "mat", "rainy", "winters", "like", "she", "not"]
VECTORS = dict(zip(WORDS, np.random.default_rng(0).normal(size=(12, 6)), strict=True))


def vectors(words):
    rows = [VECTORS.get(word, np.zeros(6)) for word in words]
    return np.array(rows, np.float32).reshape(-1, 6)


def random_arguments(count, seed):
    """Make arguments of random words; a cue is twice in each right warrant."""
    rng = np.random.default_rng(seed)
    arguments = []
    for index in range(count):
        claim, reason, *warrants = (" ".join(rng.choice(WORDS[:-1], 3)) for _ in range(4))
        label = int(rng.integers(2))
        warrants[label] += " not not"
        arguments.append(Argument(str(index), claim, reason, *warrants, label, "x", "no mat"))
    return arguments


@pytest.fixture(scope="module")
def splits():
    """Make arguments to train on, and to test on originals and their counterparts."""
    originals = random_arguments(30, 3)
    test = [*originals, *(original.counterpart() for original in originals)]
    return random_arguments(40, 1), test


def is_right(choices, arguments):
    return choices == [argument.label for argument in arguments]


def test_warrant_pairs_have_the_parts_of_the_input():
    argument = Argument("a", "Go home", "It is late.", "right", "wrong", 0, "x")
    pairs = [choosers.warrant_pairs([argument], inputs)[0].texts for inputs in INPUTS]
    assert pairs == [
        ("right",), ("It is late.", "right"), ("Go home", "right"), ("It is late. Go home", "right")
    ]  # fmt: skip
    assert choosers.warrant_pairs([argument], "warrants")[1] == Pair(("wrong",), 0)


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_an_encoder_learns_a_cue_that_misleads_on_counterparts(tiny_encoder, splits, family):
    encoder = tiny_encoder(family)
    chooser = EncoderChooser(encoder, "all", seed=0)
    before = {name: weights.clone() for name, weights in chooser.named_parameters()}
    originals = {name: weights.clone() for name, weights in encoder.model.named_parameters()}
    right = is_right(choosers.train_chooser(chooser, *splits, RECIPE, "tiny"), splits[1])
    assert right[:30].mean() > 0.85 and right[30:].mean() < 0.25
    for name, weights in encoder.model.named_parameters():
        assert torch.equal(weights, originals[name])  # a copy was trained
    after = dict(chooser.named_parameters())
    changed = " ".join(name for name in before if not torch.equal(before[name], after[name]))
    assert "embed" not in changed and "wte" not in changed and "model.head.weight" in changed
    layers = set(re.findall(r"\.(?:layer|h)\.(\d)", changed))
    assert layers == {"1", "2"}  # the upper half of three


@pytest.mark.parametrize("architecture", [BAG, BILSTM])
def test_a_word_chooser_learns_the_planted_cue(splits, architecture):
    for inputs in ("warrants", "all"):
        chooser = WordChooser(architecture, inputs, vectors, seed=0)
        choices = choosers.train_chooser(chooser, *splits, WORD_RECIPE, architecture)
        assert is_right(choices, splits[1])[:30].mean() > 0.8
        assert "claim" in INPUTS[inputs] or (choices[:30] == choices[30:]).all()


def test_text_vectors_are_means_or_the_largest_states_and_unknown_words_are_zeros():
    x = torch.tensor([[[1.0, 2], [3, 4], [0, 0]]])
    bag, lstm = (
        WordChooser(name, "warrants", lambda words: np.ones((len(words), 2)), seed=0)
        for name in (BAG, BILSTM)
    )
    assert bag.text_vectors(x, torch.tensor([2])).tolist() == [[2, 3]]
    states, _ = lstm.lstm(x[:, :2])
    torch.testing.assert_close(lstm.text_vectors(x, torch.tensor([2]))[0], states[0].amax(dim=0))
    assert choosers.read_words("Zzz not", vectors).tolist() == [[*map(float, vectors(["not"])[0])]]
    assert choosers.read_words("Zzz", vectors).tolist() == [[0.0] * 6]
