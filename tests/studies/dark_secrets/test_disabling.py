"""Accuracies with heads disabled are those of whole passes, at a fraction of the work."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from helpers.studies.classifier import batches, new_classifier
from helpers.studies.dark_secrets.fine_tuning import WHOLE_LAYER, disabled
from helpers.studies.fine_tune import Recipe
from helpers.studies.head_mask import uniform_attention
from helpers.studies.tasks import Pair, Task

TEXTS = ("The cat sat on the mat.", "She doesn't know.", "Rainy winters in Paris!", "Yes.", "Dr.")
PAIRS = tuple(
    Pair(text, TEXTS[i % 3] if i % 2 else None, i % 4) for i, text in enumerate(TEXTS * 4)
)
FAMILIES = ["bert", "roberta", "distilbert", "albert", "electra", "mpnet", "deberta",
            "deberta_v2", "modernbert", "gpt2", "t5"]  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_each_row_is_that_of_its_own_context(tiny_encoder, family):
    encoder = tiny_encoder(family)
    classifier = new_classifier(encoder, 4, seed=0).requires_grad_(False)
    with torch.no_grad():
        classifier.head.weight.mul_(50)
    task = Task("texts", ("a", "b", "c", "d"), PAIRS, PAIRS)
    run = SimpleNamespace(
        encoder=encoder, classifier=classifier, task=task, recipe=Recipe(0, 1, 40)
    )

    def score():
        right, losses = [], []
        for batch, labels, _ in batches(encoder, PAIRS, max_tokens=40):
            logits = classifier(**batch)
            right += (logits.argmax(dim=-1) == labels).tolist()
            losses += F.cross_entropy(logits.double(), labels, reduction="none").tolist()
        return 100 * np.mean(right), np.mean(losses)

    table, (accuracy, loss) = disabled(run), score()
    places = [(row.layer, row.head) for row in table.itertuples()]
    heads = [*range(1, encoder.heads + 1), WHOLE_LAYER]
    assert places == [(layer, head) for layer in range(1, encoder.layers + 1) for head in heads]
    for row in table.itertuples():
        with uniform_attention(
            classifier.encoder, row.layer - 1, row.head - 1 if row.head else None
        ):
            expected, expected_loss = score()
        assert row.accuracy == pytest.approx(expected)
        assert row.change == pytest.approx(expected - accuracy)
        assert row.loss_change == pytest.approx(expected_loss - loss, abs=1e-5)
    assert family != "bert" or table["loss_change"].nunique() == len(table)
