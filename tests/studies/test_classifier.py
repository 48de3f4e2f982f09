"""Texts cut to their room, a vector and a linear layer; baselines that know words, or nothing."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from helpers.errors import ModelError
from helpers.studies.classifier import (
    BAG_OF_WORDS,
    FROZEN_ENCODER,
    Classifier,
    baselines,
    batches,
    task_inputs,
)
from helpers.studies.tasks import Pair, Task

WORDS = ("the", "cat", "dog", "sat", "on", "mat", "rainy", "winters", "coffee", "home")


def test_two_texts_are_cut_at_their_ends_the_longer_one_first(encoder):
    pairs = [Pair("cat dog", "dog " * 30, 0), Pair("dog " * 30, "cat " * 30, 0)]
    (short, long) = task_inputs(encoder, pairs, 16)
    tokens = encoder.tokenizer.convert_ids_to_tokens(short["input_ids"])
    assert tokens[:1] + tokens[-1:] == ["[CLS]", "[SEP]"] and len(tokens) == 16
    assert tokens.count("[SEP]") == 2
    first = encoder.tokenizer.tokenize("cat dog")
    assert tokens[1 : 1 + len(first)] == first
    assert short["token_type_ids"] == [0] * (len(first) + 2) + [1] * (14 - len(first))
    assert sum(long["token_type_ids"]) == 8  # 13 tokens of text: 6 and 7, and [SEP]
    assert len(long["input_ids"]) == 16
    for length in (4, 65):
        with pytest.raises(ModelError, match="it takes 8 to 64"):
            task_inputs(encoder, pairs, length)


def test_every_example_is_in_one_batch_with_its_own_label(encoder):
    pairs = task_of(by_word).train
    inputs, seen = task_inputs(encoder, pairs, 32), []
    for batch, labels, order in batches(encoder, pairs, max_tokens=32):
        seen += order.tolist()
        assert labels.tolist() == [pairs[i].label for i in order]
        for own, i in zip(batch["input_ids"].tolist(), order, strict=True):
            assert own[: len(inputs[i]["input_ids"])] == inputs[i]["input_ids"]
    assert sorted(seen) == list(range(len(pairs)))


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert", "gpt2", "t5", "deberta_v2"])
def test_logits_are_the_head_over_the_vector_of_each_text(tiny_encoder, family):
    encoder = tiny_encoder(family)
    classifier = Classifier(encoder, 3, seed=1)
    pairs = [Pair("The cat sat on the mat.", None, 0), Pair("She doesn't.", None, 2)]
    ((batch, _, order),) = batches(encoder, pairs, max_tokens=48)
    logits = classifier(**batch)
    assert logits.shape == (2, 3)
    for row, index in enumerate(order):
        (inputs,) = task_inputs(encoder, [pairs[index]], 48)
        alone = torch.tensor([inputs["input_ids"]])
        states = encoder.model.base_model(input_ids=alone).last_hidden_state[0]
        vector = states[0] if encoder.objective == "masked-lm" else states.mean(dim=0)
        expected = F.linear(vector, classifier.head.weight, classifier.head.bias)
        torch.testing.assert_close(logits[row], expected, atol=1e-4, rtol=1e-4)


def test_a_new_classifier_leaves_the_encoder_alone(encoder):
    classifier = Classifier(encoder, 2, seed=0)
    assert not any(p.requires_grad for p in encoder.model.parameters())
    frozen = [name for name, p in classifier.named_parameters() if not p.requires_grad]
    assert frozen == ["encoder.embeddings.word_embeddings.weight"]
    assert torch.equal(classifier.head.weight, Classifier(encoder, 2, seed=0).head.weight)
    assert not torch.equal(classifier.head.weight, Classifier(encoder, 2, seed=1).head.weight)


# Baselines


def task_of(pair):
    rng = np.random.default_rng(0)
    examples = tuple(pair(rng, number % 2) for number in range(120))
    return Task("made up", ("no", "yes"), examples[:80], examples[80:])


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


def accuracies(encoder, task):
    found = baselines(encoder, task, max_tokens=32)
    return {name: np.mean(own == [p.label for p in task.test]) for name, own in found.items()}


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_baselines_find_words_and_leave_the_encoder_as_it_is(tiny_encoder, family):
    encoder, task = tiny_encoder(family), task_of(by_word)
    before = {name: weights.clone() for name, weights in encoder.model.named_parameters()}
    found = accuracies(encoder, task)
    assert found[BAG_OF_WORDS] == 1 and found[FROZEN_ENCODER] > 0.7
    assert all(torch.equal(w, before[name]) for name, w in encoder.model.named_parameters())
    assert found == accuracies(encoder, task)


def test_a_bag_of_words_knows_which_text_they_are_in_but_not_their_order(tiny_encoder):
    for family in ("bert", "roberta"):
        assert accuracies(tiny_encoder(family), task_of(by_text))[BAG_OF_WORDS] == 1
    assert accuracies(tiny_encoder("bert"), task_of(by_order))[BAG_OF_WORDS] < 0.75
