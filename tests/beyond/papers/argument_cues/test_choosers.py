"""Choosers learn a planted word and read their inputs only."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tolerances import float32_error

from beyond.papers.argument_cues import choosers
from beyond.papers.argument_cues.arguments import INPUTS, Argument
from beyond.papers.argument_cues.choosers import BAG, BILSTM, EncoderChooser, WordChooser
from beyond.papers.common.fine_tune import Recipe
from beyond.papers.common.tasks import Pair
from helpers.errors import ModelError

RECIPE = Recipe(epochs=3, learning_rate=3e-3, batch_size=4, max_tokens=32)
WORD_RECIPE = Recipe(epochs=8, learning_rate=1e-2, batch_size=4)
PLAIN_WORDS = [
    "the",
    "cat",
    "dog",
    "sat",
    "on",
    "a",
    "mat",
    "rainy",
    "winters",
    "like",
    "she",
    "yes",
]
RANDOM_VECTORS = np.random.default_rng(0).normal(size=(14, 6))
VECTORS = dict(zip([*PLAIN_WORDS, "not", "no"], RANDOM_VECTORS, strict=True))
FAMILIES = ["bert", "roberta", "gpt2"]  # two masked language models and a decoder


def vectors(words):
    rows = [VECTORS.get(word, np.zeros(6)) for word in words]
    return np.array(rows, np.float32).reshape(-1, 6)


def random_text(rng):
    return " ".join(rng.choice(PLAIN_WORDS, 3))


def random_arguments(count, seed, planted=True):
    """Make arguments of random words; a ``planted`` cue is twice in each right warrant."""
    rng = np.random.default_rng(seed)
    arguments = []
    for index in range(count):
        label = int(rng.integers(2))
        claim = random_text(rng)
        reason = random_text(rng)
        warrants = [random_text(rng), random_text(rng)]
        if planted:
            warrants[label] += " not not"
        arguments.append(
            Argument(str(index), claim, reason, *warrants, label, "x", negated_claim="no mat")
        )
    return arguments


@pytest.fixture(scope="module")
def splits():
    originals = random_arguments(30, 3)
    counterparts = [original.counterpart() for original in originals]
    return {
        "train": random_arguments(40, 1),
        "test": originals + counterparts,
    }


def is_right(choices, splits):
    return choices == [argument.label for argument in splits["test"]]


def test_warrant_pairs_have_the_parts_of_the_input():
    argument = Argument("a", "Go home", "It is late.", "right", "wrong", 0, "x")
    first_pairs = {inputs: choosers.warrant_pairs([argument], inputs)[0] for inputs in INPUTS}
    assert first_pairs == {
        "warrants": Pair(("right",), 0),
        "reason + warrants": Pair(("It is late.", "right"), 0),
        "claim + warrants": Pair(("Go home", "right"), 0),
        "all": Pair(("It is late. Go home", "right"), 0),
    }
    assert choosers.warrant_pairs([argument], "all")[1].texts[1] == "wrong"


@pytest.mark.parametrize("family", FAMILIES)
def test_an_encoder_learns_a_cue_that_misleads_on_counterparts(tiny_encoder, splits, family):
    encoder = tiny_encoder(family)
    before = {name: weights.clone() for name, weights in encoder.model.named_parameters()}
    chooser = EncoderChooser(encoder, "all", seed=0)
    choices = choosers.train_chooser(chooser, splits["train"], splits["test"], RECIPE, "tiny")
    right = is_right(choices, splits)
    assert right[:30].mean() > 0.85
    assert right[30:].mean() < 0.25
    for name, weights in encoder.model.named_parameters():
        assert torch.equal(weights, before[name])  # a copy was trained


@pytest.mark.parametrize("architecture", [BAG, BILSTM])
@pytest.mark.parametrize("inputs", INPUTS)
def test_a_word_chooser_learns_the_planted_cue(splits, architecture, inputs):
    chooser = WordChooser(architecture, inputs, vectors, seed=0)
    choices = choosers.train_chooser(
        chooser, splits["train"], splits["test"], WORD_RECIPE, architecture
    )
    assert is_right(choices, splits)[:30].mean() > 0.9
    if "claim" not in INPUTS[inputs]:
        assert (choices[:30] == choices[30:]).all()


def unplanted_splits():
    return {
        "train": random_arguments(64, 64, planted=False),
        "test": random_arguments(200, 3, planted=False),
    }


def train_words(architecture, splits, seed):
    chooser = WordChooser(architecture, "all", vectors, seed=seed)
    recipe = replace(WORD_RECIPE, seed=seed)
    return choosers.train_chooser(chooser, splits["train"], splits["test"], recipe, architecture)


@pytest.mark.parametrize("architecture", [BAG, BILSTM])
def test_train_chooser_without_a_cue_is_at_chance(architecture):
    splits = unplanted_splits()
    choices = train_words(architecture, splits, 0)
    assert 0.4 < is_right(choices, splits).mean() < 0.6


@pytest.mark.parametrize("architecture", [BAG, BILSTM])
def test_train_chooser_repeats_with_the_same_seed_only(architecture):
    splits = unplanted_splits()
    choices = train_words(architecture, splits, 0)
    assert (choices == train_words(architecture, splits, 0)).all()
    assert (choices != train_words(architecture, splits, 1)).any()


@pytest.mark.parametrize("is_encoder", [True, False], ids=["encoder", "words"])
def test_scores_do_not_depend_on_the_batch(tiny_encoder, is_encoder):
    """Warrants have 4 to 24 words, so that batches by length change the order."""
    if is_encoder:
        chooser = EncoderChooser(tiny_encoder("bert"), "all", seed=0)
    else:
        chooser = WordChooser(BILSTM, "all", vectors, seed=0)
    arguments = []
    for index, length in enumerate(np.random.default_rng(0).integers(4, 24, 12)):
        warrants = ("cat " * length, "dog " * (28 - length))
        arguments.append(Argument(str(index), "yes", "a mat", *warrants, index % 2, "x"))
    with torch.inference_mode():
        single = torch.cat([chooser([argument]) for argument in arguments])
    error = float32_error(1.0, single)
    torch.testing.assert_close(chooser(arguments).detach(), single, atol=error, rtol=1e-5)
    assert single.std() > 1e-4  # they differ from pair to pair


def ones_of_width_two(words):
    return np.ones((len(words), 2), np.float32)


def test_text_vectors_of_a_bag_are_the_mean_of_the_words():
    x = torch.tensor([[[1.0, 2], [3, 4], [0, 0]]])
    bag = WordChooser(BAG, "warrants", ones_of_width_two, seed=0)
    assert bag.text_vectors(x, torch.tensor([2])).tolist() == [[2, 3]]


def test_text_vectors_of_a_bilstm_are_the_largest_states():
    x = torch.tensor([[[1.0, 2], [3, 4], [0, 0]]])
    chooser = WordChooser(BILSTM, "warrants", ones_of_width_two, seed=0)
    states, _ = chooser.lstm(x[:, :2])
    torch.testing.assert_close(chooser.text_vectors(x, torch.tensor([2]))[0], states[0].amax(dim=0))


def test_scores_of_words_without_vectors_are_finite():
    unknown_words = Argument("s", "Zzz", "yyy", "xxx", "www", 0, "x")
    assert WordChooser(BILSTM, "all", vectors, seed=0)([unknown_words]).isfinite().all()


def test_train_chooser_trains_the_upper_half_of_the_layers(tiny_encoder, splits):
    chooser = EncoderChooser(tiny_encoder("bert"), "all", seed=0)
    before = {name: weights.clone() for name, weights in chooser.named_parameters()}
    choosers.train_chooser(chooser, splits["train"], splits["test"], RECIPE, "tiny")
    changed = set()
    for name, weights in chooser.named_parameters():
        if not torch.equal(weights, before[name]):
            changed.add(name)
    trained_layers = {name.split(".")[4] for name in changed if ".layer." in name}
    layers = chooser.encoder.layers
    assert trained_layers == {str(layer) for layer in range(layers // 2, layers)}
    assert not any("embeddings" in name for name in changed)
    assert "model.head.weight" in changed


def test_train_chooser_refuses_a_loss_that_is_not_a_number(tiny_encoder, splits):
    chooser = EncoderChooser(tiny_encoder("bert"), "all", seed=0)
    with pytest.raises(ModelError, match="smaller learning rate"):
        choosers.train_chooser(
            chooser, splits["train"], splits["test"], Recipe(learning_rate=1e30), "tiny"
        )


def test_a_word_chooser_has_its_weights_while_a_model_is_loaded(monkeypatch):
    """transformers makes the functions of torch.nn.init do nothing while it loads a model."""
    before = WordChooser(BILSTM, "all", vectors, seed=0).state_dict()
    monkeypatch.setattr(torch.nn.init, "uniform_", lambda *_, **__: None)
    for name, weights in WordChooser(BILSTM, "all", vectors, seed=0).state_dict().items():
        assert torch.equal(weights, before[name])
