"""What of a task needs no fine-tuned encoder: baselines that one has to beat."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from sklearn.feature_extraction import DictVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from helpers.model.encoder import Encoder
from helpers.studies.classifier import batches, new_classifier, task_inputs
from helpers.studies.tasks import Pair, Task

MOST_STEPS = 1000  # of a logistic regression, which needs far fewer


def bag_of_words(encoder: Encoder, task: Task, *, max_tokens: int) -> Int[np.ndarray, " example"]:
    """Return the labels that a logistic regression gives to the test examples.

    It knows which tokens occur in the first text and which in the second, each cut as for the
    encoder, and nothing of their order: what it gets right, a task's labels give away.
    """
    model = make_pipeline(DictVectorizer(), LogisticRegression(max_iter=MOST_STEPS))
    train, test = (_bags(encoder, part, max_tokens) for part in (task.train, task.test))
    return model.fit(train, _labels(task)).predict(test)


def classifier_alone(
    encoder: Encoder, task: Task, *, max_tokens: int
) -> Int[np.ndarray, " example"]:
    """Return the labels given by a classifier of the encoder's vectors, which stay as they are.

    The third condition of Kovaleva et al. (2019, section 4.3): pre-trained, not fine-tuned.  A
    logistic regression on the vectors that are pooled for the fine-tuned classifier.
    """
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=MOST_STEPS))
    train, test = (_vectors(encoder, part, max_tokens) for part in (task.train, task.test))
    return model.fit(train, _labels(task)).predict(test)


def _labels(task: Task) -> list[int]:
    return [pair.label for pair in task.train]


def _bags(encoder: Encoder, pairs: Sequence[Pair], max_tokens: int) -> list[dict[str, int]]:
    """Return the tokens of each example, each with the number of special tokens before it."""
    bags = []
    for item in task_inputs(encoder, pairs, max_tokens):
        special = np.isin(item["input_ids"], list(encoder.special_ids))
        places = zip(np.cumsum(special), item["input_ids"], strict=True)
        bags.append({f"{text} {token}": 1 for text, token in places})
    return bags


@torch.inference_mode()
def _vectors(
    encoder: Encoder, pairs: Sequence[Pair], max_tokens: int
) -> Float[np.ndarray, "example width"]:
    classifier = new_classifier(encoder, 1, seed=0)
    found = np.zeros((len(pairs), classifier.head.in_features))
    for batch, _, order in batches(encoder, pairs, max_tokens=max_tokens):
        states = classifier.encoder(**batch).last_hidden_state
        found[order] = classifier.pooled(states, batch["attention_mask"]).cpu().numpy()
    return found
