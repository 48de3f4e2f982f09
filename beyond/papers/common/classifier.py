"""An encoder with a linear layer on top, and the baselines that it has to beat on a task.

The vector of a text depends on the model:

- in a masked language model it is the vector of the first token, [CLS] in BERT;
- in a sentence encoder it is the mean over the tokens, as in its training;
- in a decoder it is also the mean, because the first token does not see the rest.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

from beyond.papers.common.tasks import Pair, Task
from helpers.errors import ModelError
from helpers.model.forward import Inputs, padded
from helpers.model.loading import Model
from helpers.model.sites import base_transformer

BATCH_SIZE = 16
INITIAL_STD = 0.02  # standard deviation of the linear layer's initial weights, as in BERT
MAX_ITERATIONS = 1000  # of a logistic regression, which needs far fewer
# The baselines.
MAJORITY = "most frequent label"
BAG_OF_WORDS = "bag of words"
FROZEN_ENCODER = "classifier alone"

# Tokenized texts, or their vectors.
Examples = Sequence[Inputs] | Float[np.ndarray, "_ width"]
# A padded batch, its labels, and the indices of its examples; batches have different sizes.
LabelledBatch = tuple[dict[str, Tensor], Int[Tensor, " _"], Int[np.ndarray, " _"]]


class Classifier(nn.Module):
    """A copy of an encoder, in float32, and a linear layer (``head``) over the vector of a text.

    ``seed`` initialises the linear layer.  All parameters can be trained except the table of word
    vectors: it holds half of a small model's weights, and a few thousand examples touch few of its
    rows.  The model stays in evaluation mode during training, because without dropout a run gives
    the same result whether or not other runs train at the same time.
    """

    def __init__(self, encoder: Model, labels: int, *, seed: int) -> None:
        super().__init__()
        self.encoder = copy.deepcopy(base_transformer(encoder.model)).float().requires_grad_(True)
        self.encoder.get_input_embeddings().requires_grad_(False)
        self.reads_first = encoder.objective == "masked-lm"
        self.head: nn.Linear | nn.Identity = nn.Linear(self.encoder.config.hidden_size, labels)
        generator = torch.Generator().manual_seed(seed)
        # Not by torch.nn.init, which transformers replaces while another thread loads a model.
        self.head.weight.data.normal_(std=INITIAL_STD, generator=generator)
        self.head.bias.data.zero_()
        self.eval().to(encoder.model.device)

    def forward(self, **batch: Tensor) -> Float[Tensor, "example label"]:
        """Compute the logits of a padded batch (input_ids, attention_mask, ...)."""
        states = self.encoder(**batch).last_hidden_state
        if self.reads_first:
            return self.head(states[:, 0])
        weights = batch["attention_mask"][..., None].to(states.dtype)
        return self.head((states * weights).sum(dim=1) / weights.sum(dim=1))


def task_inputs(encoder: Model, pairs: Sequence[Pair], max_tokens: int) -> list[Inputs]:
    """Tokenize the texts of a task, with the model's special tokens.

    A text that is too long is cut at its end.  Of two texts the longer one is cut, until both fit
    into ``max_tokens``.

    Raises
    ------
    ModelError
        If the model takes fewer than ``max_tokens``, or ``max_tokens`` leaves no room for words.
    """
    longest = encoder.max_length
    if not 8 <= max_tokens <= longest:
        raise ModelError(
            f"model {encoder.name!r}: tasks of {max_tokens} tokens do not fit, because it takes 8 "
            f"to {longest}; change --max-tokens"
        )
    return text_inputs(encoder, [pair.texts for pair in pairs], max_tokens)


def text_inputs(encoder: Model, examples: Sequence[Sequence[str]], max_tokens: int) -> list[Inputs]:
    """Tokenize examples of one text or two, with the special tokens around and between them.

    A text that is too long is cut at its end.  Of two texts the longer one is cut, until both fit
    into ``max_tokens``.
    """
    tokenizer = copy.deepcopy(encoder.tokenizer.backend_tokenizer)  # other threads use the original
    tokenizer.enable_truncation(max_tokens, strategy="longest_first")
    encodings = [
        tokenizer.encode(texts[0], texts[1] if len(texts) > 1 else None) for texts in examples
    ]
    return [
        {"input_ids": encoding.ids, "token_type_ids": encoding.type_ids} for encoding in encodings
    ]


def batches(encoder: Model, pairs: Sequence[Pair], *, max_tokens: int) -> Iterator[LabelledBatch]:
    """Yield padded batches of examples of similar length, the longest first.

    Each batch has the tensors for the model, the labels, and the indices of the examples in
    ``pairs``.
    """
    inputs = task_inputs(encoder, pairs, max_tokens)
    labels = torch.tensor([pair.label for pair in pairs], device=encoder.model.device)
    longest_first = np.argsort([-len(example["input_ids"]) for example in inputs], kind="stable")
    for chosen in np.split(longest_first, range(BATCH_SIZE, len(inputs), BATCH_SIZE)):
        yield padded(encoder, [inputs[index] for index in chosen]), labels[chosen], chosen


@torch.inference_mode()
def outputs(
    classifier: Classifier, encoder: Model, pairs: Sequence[Pair], *, max_tokens: int
) -> Float[np.ndarray, "example output"]:
    """Compute a classifier's output for each example, in order: logits, or pooled vectors."""
    output_of = {}
    for batch, _, order in batches(encoder, pairs, max_tokens=max_tokens):
        batch_outputs = classifier(**batch).double().cpu().numpy()
        output_of.update(zip(order, batch_outputs, strict=True))
    return np.stack([output_of[index] for index in range(len(pairs))])


def baselines(
    encoder: Model, task: Task, *, max_tokens: int
) -> dict[str, Int[np.ndarray, " example"]]:
    """Predict the labels of the test examples without fine-tuning.

    Returns
    -------
    dict
        Predicted labels by baseline.  The last two are logistic regressions.

        - `MAJORITY` is the most frequent label of the training examples.
        - `BAG_OF_WORDS` is fitted on the tokens that occur in the first text and in the second,
          truncated as for the encoder, without their order.  Its accuracy shows how much the words
          give away.
        - `FROZEN_ENCODER` is fitted on the vectors of the texts, from the encoder as it is: the
          third condition of Kovaleva et al. (2019, section 4.3).
    """
    train_labels = [pair.label for pair in task.train]

    def predict(features: Any, train: Examples, test: Examples) -> Int[np.ndarray, " example"]:
        model = make_pipeline(features, LogisticRegression(max_iter=MAX_ITERATIONS))
        return model.fit(train, train_labels).predict(test)

    train_tokens = task_inputs(encoder, task.train, max_tokens)
    test_tokens = task_inputs(encoder, task.test, max_tokens)
    special_ids = list(encoder.special_ids)

    def tokens_with_text(example: Inputs) -> list[str]:
        """Mark each token with the text that it is from, by counting special tokens before it."""
        text_numbers = np.isin(example["input_ids"], special_ids).cumsum()
        by_text = zip(text_numbers, example["input_ids"], strict=True)
        return [f"{text} {token}" for text, token in by_text]

    counter = CountVectorizer(analyzer=tokens_with_text, binary=True)
    pooled = Classifier(encoder, 1, seed=0)
    pooled.head = nn.Identity()
    train_vectors = outputs(pooled, encoder, task.train, max_tokens=max_tokens)
    test_vectors = outputs(pooled, encoder, task.test, max_tokens=max_tokens)
    return {
        MAJORITY: np.full(len(task.test), np.bincount(train_labels).argmax()),
        BAG_OF_WORDS: predict(counter, train_tokens, test_tokens),
        FROZEN_ENCODER: predict(StandardScaler(), train_vectors, test_vectors),
    }
