"""A bag of words finds what words give away and nothing else; a classifier alone trains nothing."""

import numpy as np
import pytest
import torch

from helpers.studies.classifier import bag_of_words, classifier_alone
from helpers.studies.tasks import Pair, Task

WORDS = ("the", "cat", "dog", "sat", "on", "mat", "rainy", "winters", "coffee", "home")


def task_of(pair, train=80, test=40):
    rng = np.random.default_rng(0)
    examples = [pair(rng, number % 2) for number in range(train + test)]
    return Task("made up", ("no", "yes"), tuple(examples[:train]), tuple(examples[train:]))


def by_word(rng, label):
    words = rng.permutation([*rng.choice(WORDS[3:], 4), WORDS[1 + label]])
    return Pair(" ".join(words), None, label)


def by_order(rng, label):
    """The same words in either class, in two orders."""
    first, second = sorted(rng.choice(WORDS, 2, replace=False), reverse=bool(label))
    return Pair(f"{first} {second}", None, label)


def by_text(rng, label):
    """Both texts together have the same words in either class."""
    texts = ("cat", "dog") if label else ("dog", "cat")
    first, second = rng.choice(WORDS[3:], 2)
    return Pair(f"{texts[0]} {first}", f"{texts[1]} {second}", label)


def accuracy(found, task):
    return np.mean(found == [pair.label for pair in task.test])


def test_words_are_found_and_their_order_is_not(tiny_encoder):
    encoder = tiny_encoder("bert")
    word, order = task_of(by_word), task_of(by_order)
    assert accuracy(bag_of_words(encoder, word, max_tokens=32), word) == 1
    assert accuracy(bag_of_words(encoder, order, max_tokens=32), order) < 0.75


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_the_texts_of_a_pair_are_told_apart(tiny_encoder, family):
    task = task_of(by_text)
    assert accuracy(bag_of_words(tiny_encoder(family), task, max_tokens=32), task) == 1


def test_what_is_cut_off_is_not_seen(tiny_encoder):
    def at_the_end(rng, label):
        return Pair("the mat " * 8 + WORDS[1 + label], None, label)

    encoder, task = tiny_encoder("bert"), task_of(at_the_end)
    assert accuracy(bag_of_words(encoder, task, max_tokens=48), task) == 1
    assert accuracy(bag_of_words(encoder, task, max_tokens=12), task) == 0.5


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_the_classifier_alone_leaves_the_encoder_as_it_is(tiny_encoder, family):
    encoder, task = tiny_encoder(family), task_of(by_word)
    before = {name: weights.clone() for name, weights in encoder.model.named_parameters()}
    found = classifier_alone(encoder, task, max_tokens=32)
    assert all(torch.equal(w, before[name]) for name, w in encoder.model.named_parameters())
    assert accuracy(found, task) > 0.7
    assert (found == classifier_alone(encoder, task, max_tokens=32)).all()
