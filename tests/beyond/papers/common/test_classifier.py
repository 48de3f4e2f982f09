"""Truncated texts, batches, the logits of a classifier, and the two baselines."""

from dataclasses import replace

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
    assert len(tokens) == 16
    assert tokens[0] == "[CLS]"
    assert tokens[-1] == "[SEP]"
    assert tokens.count("[SEP]") == 2
    first = encoder.tokenizer.tokenize("cat dog")
    assert tokens[1 : 1 + len(first)] == first
    assert inputs["token_type_ids"] == [0] * (len(first) + 2) + [1] * (14 - len(first))


def test_task_inputs_truncate_two_long_texts_to_the_same_length(encoder):
    (inputs,) = task_inputs(encoder, [Pair(("dog " * 30, "cat " * 30), 0)], 16)
    assert len(inputs["input_ids"]) == 16
    assert sum(inputs["token_type_ids"]) == 8  # 13 tokens of text are 6 and 7, and [SEP]


@pytest.mark.parametrize("length", [4, 65])
def test_task_inputs_refuse_lengths_that_do_not_fit(encoder, length):
    with pytest.raises(ModelError, match="it takes 8 to 64"):
        task_inputs(encoder, [Pair(("cat",), 0)], length)


def test_batches_have_each_example_once_with_its_label(encoder):
    pairs = task_of(by_word).train
    inputs = task_inputs(encoder, pairs, 32)
    seen = []
    for batch, labels, order in batches(encoder, pairs, max_tokens=32):
        seen += order.tolist()
        assert labels.tolist() == [pairs[index].label for index in order]
        for ids, index in zip(batch["input_ids"].tolist(), order, strict=True):
            expected = inputs[index]["input_ids"]
            assert ids[: len(expected)] == expected
    assert sorted(seen) == list(range(len(pairs)))


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert", "gpt2", "t5", "deberta_v2"])
def test_logits_are_a_linear_function_of_each_text_vector(tiny_encoder, family):
    encoder = tiny_encoder(family)
    classifier = Classifier(encoder, 3, seed=1)
    pairs = [Pair(("The cat sat on the mat.",), 0), Pair(("She doesn't.",), 2)]
    ((batch, _, order),) = batches(encoder, pairs, max_tokens=48)
    logits = classifier(**batch)
    assert logits.shape == (2, 3)
    for row, index in enumerate(order):
        (inputs,) = task_inputs(encoder, [pairs[index]], 48)
        unpadded = torch.tensor([inputs["input_ids"]])
        states = encoder.model.base_model(input_ids=unpadded).last_hidden_state[0]
        vector = states[0] if encoder.objective == "masked-lm" else states.mean(dim=0)
        expected = F.linear(vector, classifier.head.weight, classifier.head.bias)
        torch.testing.assert_close(logits[row], expected, atol=1e-4, rtol=1e-4)


def test_classifier_freezes_word_vectors_and_copies_the_encoder(encoder):
    classifier = Classifier(encoder, 2, seed=0)
    assert not any(p.requires_grad for p in encoder.model.parameters())
    frozen = [name for name, p in classifier.named_parameters() if not p.requires_grad]
    assert frozen == ["encoder.embeddings.word_embeddings.weight"]
    assert torch.equal(classifier.head.weight, Classifier(encoder, 2, seed=0).head.weight)
    assert not torch.equal(classifier.head.weight, Classifier(encoder, 2, seed=1).head.weight)


# Baselines


def task_of(make_pair):
    rng = np.random.default_rng(0)
    examples = tuple(make_pair(rng, number % 2) for number in range(120))
    return Task("made up", ("no", "yes"), train=examples[:80], test=examples[80:])


def by_word(rng, label):
    """Make a text in which one word gives away the label."""
    words = rng.permutation([*rng.choice(WORDS[3:], 4), WORDS[1 + label]])
    return Pair((" ".join(words),), label)


def by_order(rng, label):
    """Make a text whose words are the same for both labels, but in two orders."""
    first, second = sorted(rng.choice(WORDS, 2, replace=False), reverse=bool(label))
    return Pair((f"{first} {second}",), label)


def by_text(rng, label):
    """Make two texts which together have the same words for both labels."""
    animals = ("cat", "dog") if label else ("dog", "cat")
    first, second = rng.choice(WORDS[3:], 2)
    return Pair((f"{animals[0]} {first}", f"{animals[1]} {second}"), label)


def accuracies(encoder, task):
    labels = [pair.label for pair in task.test]
    predictions = baselines(encoder, task, max_tokens=32)
    return {name: np.mean(predicted == labels) for name, predicted in predictions.items()}


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_baselines_learn_words_and_do_not_change_the_encoder(tiny_encoder, family):
    encoder = tiny_encoder(family)
    task = task_of(by_word)
    before = {name: weights.clone() for name, weights in encoder.model.named_parameters()}
    accuracy = accuracies(encoder, task)
    assert accuracy[BAG_OF_WORDS] == 1
    assert accuracy[FROZEN_ENCODER] > 0.6  # of random weights; a guess has 0.5
    for name, weights in encoder.model.named_parameters():
        assert torch.equal(weights, before[name])
    assert accuracy == accuracies(encoder, task)


def test_majority_is_the_label_most_frequent_in_train(tiny_encoder):
    texts = task_of(by_word)
    train = tuple(replace(pair, label=int(index < 3)) for index, pair in enumerate(texts.train))
    task = replace(texts, train=train, test=texts.test[:4])
    assert baselines(tiny_encoder("bert"), task, max_tokens=32)[MAJORITY].tolist() == [0] * 4


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_bag_of_words_distinguishes_the_two_texts(tiny_encoder, family):
    assert accuracies(tiny_encoder(family), task_of(by_text))[BAG_OF_WORDS] == 1


def test_bag_of_words_does_not_know_the_order(tiny_encoder):
    assert accuracies(tiny_encoder("bert"), task_of(by_order))[BAG_OF_WORDS] < 0.75


def test_classifier_has_its_weights_while_a_model_is_loaded(encoder, monkeypatch):
    """transformers makes the functions of torch.nn.init do nothing while it loads a model."""
    before = Classifier(encoder, 2, seed=0).head.weight
    monkeypatch.setattr(torch.nn.init, "normal_", lambda *_, **__: None)
    assert torch.equal(Classifier(encoder, 2, seed=0).head.weight, before)
