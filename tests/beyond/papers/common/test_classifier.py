"""Truncated texts, batches, the logits of a classifier, and its baselines."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from beyond.papers.common.classifier import (
    BAG_OF_WORDS,
    FROZEN_ENCODER,
    MAJORITY,
    Classifier,
    baselines,
    batches,
    task_inputs,
)
from beyond.papers.common.tasks import Pair, Task
from helpers.errors import ModelError

WORDS = ("the", "cat", "dog", "sat", "on", "mat", "rainy", "winters", "coffee", "home")


def test_task_inputs_truncate_the_longer_text_first(encoder):
    (inputs,) = task_inputs(encoder, [Pair(("cat dog", "dog " * 30), 0)], 16)
    tokens = encoder.tokenizer.convert_ids_to_tokens(inputs["input_ids"])
    first = encoder.tokenizer.tokenize("cat dog")
    assert tokens[: len(first) + 2] == ["[CLS]", *first, "[SEP]"]
    assert (len(tokens), tokens[-1], tokens.count("[SEP]")) == (16, "[SEP]", 2)
    assert inputs["token_type_ids"] == [0] * (len(first) + 2) + [1] * (14 - len(first))
    for length in (4, 65):
        with pytest.raises(ModelError, match="it takes 8 to 64"):
            task_inputs(encoder, [Pair(("cat",), 0)], length)


@pytest.mark.parametrize("family", ["bert", "roberta", "gpt2"])
def test_logits_are_a_linear_function_of_each_text_vector(tiny_encoder, family):
    encoder = tiny_encoder(family)
    classifier = Classifier(encoder, 3, seed=1)
    pairs = [Pair(("She doesn't.",), 2), Pair(("The cat sat on the mat.",), 0)]
    ((batch, labels, order),) = batches(encoder, pairs, max_tokens=48)
    assert order.tolist() == [1, 0] and labels.tolist() == [0, 2]  # the longest first
    for logits, index in zip(classifier(**batch), order, strict=True):
        (inputs,) = task_inputs(encoder, [pairs[index]], 48)
        unpadded = torch.tensor([inputs["input_ids"]])
        states = encoder.model.base_model(input_ids=unpadded).last_hidden_state[0]
        vector = states[0] if encoder.objective == "masked-lm" else states.mean(dim=0)
        expected = F.linear(vector, classifier.head.weight, classifier.head.bias)
        torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-4)


def by_word(rng, label):
    """Make a text in which one word gives away the label."""
    return (" ".join(rng.permutation([*rng.choice(WORDS[3:], 4), WORDS[1 + label]])),)


def by_order(rng, label):
    """Make a text whose words are the same for both labels, but in two orders."""
    return (" ".join(sorted(rng.choice(WORDS, 2, replace=False), reverse=bool(label))),)


def by_text(rng, label):
    """Make two texts which together have the same words for both labels."""
    animals = ("cat", "dog") if label else ("dog", "cat")
    return tuple(f"{animal} {rng.choice(WORDS[3:])}" for animal in animals)


@pytest.mark.parametrize(
    ("make_texts", "lowest", "highest"), [(by_word, 1, 1), (by_text, 1, 1), (by_order, 0, 0.75)]
)
def test_bag_of_words_knows_words_and_texts_but_not_the_order(encoder, make_texts, lowest, highest):
    rng = np.random.default_rng(0)
    labels = np.arange(120) % 2 * (np.arange(120) % 5 > 0)  # two in five are 1
    examples = tuple(Pair(make_texts(rng, label), label) for label in labels)
    task = Task("made up", ("no", "yes"), train=examples[:80], test=examples[80:])
    predictions = baselines(encoder, task, max_tokens=32)
    accuracy = {name: (value == labels[80:]).mean() for name, value in predictions.items()}
    assert lowest <= accuracy[BAG_OF_WORDS] <= highest
    assert accuracy[MAJORITY] == (labels[80:] == 0).mean()
    assert make_texts is not by_word or accuracy[FROZEN_ENCODER] > 0.6  # of random weights
