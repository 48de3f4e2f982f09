"""A tiny model of one layer whose heads have planted accuracies, attention and effects.

In every relation each head has an attention on the parent, an accuracy, and an effect of the edge
to the parent.  The three are tables of numbers that have nothing to do with each other, or as much
as a test likes.  Each sentence has a distractor, which gets a little more attention than the parent
in some heads and a little less in others: that makes the accuracy.  What a head puts out about the
parent turns the vector of the word that attends and, in a decoder, raises the logits of the next
words of the relation: that makes the effect.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import tiny_models
import torch
import transformers as hf
from jaxtyping import Float

from helpers.data.records import Sentence
from helpers.model.loading import Model, load_model

RELATIONS = ["first", "second", "third", "fourth", "fifth", "sixth"]
HEADS = 12
WIDTH = 8  # of a head: a value for each relation, and one for distractors
LENGTH = 12  # words of a sentence
LEVELS = 5  # of distractors: a head with accuracy 0.4 prefers the parent to two of them
LEAD = 0.3  # of the score of the parent over that of a weak distractor, or the other way round
SCORES = (2.0, 3.5)  # of parents; other words have 0
OUTPUT = 0.5  # of the largest effect
FILLERS = [f"filler{number}" for number in range(LENGTH)]
OTHER = "other"
Table = Float[np.ndarray, "relation head"]


class Planted(NamedTuple):
    """Numbers from 0 to 1 for each relation and head."""

    attention: Table
    accuracy: Table
    effect: Table


def shuffled_rows(seed: int, lowest: float = 0.0) -> Table:
    """Make numbers up to 1 for the heads of each relation, in random order; none is below 0."""
    generator = np.random.default_rng(seed)
    numbers = np.linspace(lowest, 1, HEADS).clip(min=0)
    return generator.permuted(np.tile(numbers, (len(RELATIONS), 1)), axis=1)


def parent_word(relation: str) -> str:
    return f"{relation}parent"


def distractor_word(relation: str, level: int) -> str:
    return f"{relation}distractor{level}"


def predicted_words() -> list[str]:
    """List the dependent of each relation, and then the word after each."""
    dependents = [f"{relation}dependent" for relation in RELATIONS]
    return dependents + [f"{relation}following" for relation in RELATIONS]


def planted_encoder(folder: Path, planted: Planted, *, is_decoder: bool) -> Model:
    """Write the model, a masked or a causal language model, and load it."""
    classes = [parent_word(relation) for relation in RELATIONS]
    for relation in RELATIONS:
        classes += [distractor_word(relation, level) for level in range(LEVELS)]
    words = [*tiny_models.BERT_SPECIALS, *classes, *predicted_words(), *FILLERS]
    config = hf.BertConfig(
        vocab_size=len(words), hidden_size=WIDTH * HEADS, num_hidden_layers=1,
        num_attention_heads=HEADS, intermediate_size=4, max_position_embeddings=64,
        is_decoder=is_decoder,
    )  # fmt: skip
    model = (hf.BertLMHeadModel if is_decoder else hf.BertForMaskedLM)(config)
    # Each feature is a column and its negative, so that a vector has the mean 0.
    columns = {name: 2 * index for index, name in enumerate([*classes, OTHER, *RELATIONS])}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.fill_(1.0 if name.endswith("LayerNorm.weight") else 0.0)
        embeddings = model.bert.embeddings.word_embeddings.weight
        for index, word in enumerate(words):
            _set_pair(embeddings[index], columns.get(word, columns[OTHER]), 1.0)
        for number, word in enumerate(predicted_words()):
            relation = RELATIONS[number % len(RELATIONS)]
            _set_pair(embeddings[words.index(word)], columns[relation], 0.1)
        transform = model.cls.predictions.transform.dense.weight
        transform.copy_(torch.eye(len(transform)))
        for head in range(HEADS):
            _plant_head(model.bert.encoder.layer[0].attention, head, planted, columns)
    tokenizer = hf.BertTokenizer(vocab={word: index for index, word in enumerate(words)})
    return load_model(str(tiny_models.save(folder, model, tokenizer)), device="cpu")


def _plant_head(layer, head: int, planted: Planted, columns: dict[str, int]) -> None:
    """Set the weights of a head; its queries are constant."""
    scale = (WIDTH * HEADS / 2) ** 0.5  # of a vector after its normalisation
    first = head * WIDTH
    layer.self.query.bias[first] = WIDTH**0.5
    low, high = SCORES
    for number, relation in enumerate(RELATIONS):
        score = low + (high - low) * planted.attention[number, head]
        parent = columns[parent_word(relation)]
        layer.self.key.weight[first, parent] = score / scale
        n_weak = round(LEVELS * planted.accuracy[number, head])
        for level in range(LEVELS):
            lead = LEAD if level < n_weak else -LEAD
            distractor = columns[distractor_word(relation, level)]
            layer.self.key.weight[first, distractor] = (score - lead) / scale
        amount = planted.effect[number, head] / np.exp(score)
        value = first + number
        layer.self.value.weight[value, parent] = amount / scale
        _set_pair(layer.output.dense.weight[:, value], columns[relation], OUTPUT * np.exp(low))


def _set_pair(vector: torch.Tensor, column: int, value: float) -> None:
    vector[column : column + 2] = torch.tensor([value, -value])


def sentences(per_relation: int = 20) -> list[Sentence]:
    """Make sentences with one word of a relation, whose parent and distractor stand before it.

    No fixed offset finds many of the parents.
    """
    dependent = LENGTH - 2
    treebank = []
    for split in ("train", "dev"):
        for number in range(per_relation):
            for index, relation in enumerate(RELATIONS):
                parent = number % 8
                words = list(FILLERS)
                words[parent] = parent_word(relation)
                words[(parent + 4) % 8] = distractor_word(relation, number % LEVELS)
                words[dependent] = predicted_words()[index]
                words[dependent + 1] = predicted_words()[index + len(RELATIONS)]
                heads = [0] * LENGTH
                heads[dependent] = parent + 1
                names = ["root"] * LENGTH
                names[dependent] = relation
                source = f"{split} {number}, paragraph 1, sentence 1"
                treebank.append(Sentence(tuple(words), tuple(heads), tuple(names), split, source))
    return treebank
