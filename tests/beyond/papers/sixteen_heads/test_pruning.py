"""Pruning the heads of a tiny model, compared with full passes under masks and with slopes."""

import copy

import numpy as np
import pytest
import torch
from tolerances import float32_error
from torch.nn import functional as F

from beyond.papers.common import head_removal
from beyond.papers.common.classifier import Classifier, batches
from beyond.papers.common.head_removal import (
    head_mask,
    single_ablation,
    split_test,
    uniform_attention,
)
from beyond.papers.common.tasks import Pair
from beyond.papers.sixteen_heads import pruning

SHAPE = LAYERS, HEADS = 3, 4


@pytest.fixture(scope="module")
def scored(run):
    return split_test(run, 0)[1]


@torch.no_grad()
def by_hand(run, pairs, removed=(), context=None):
    """Compute the accuracy (percent) and the mean loss without some heads, from full passes."""
    mask = torch.ones(SHAPE)
    for head in removed:
        mask[tuple(head)] = 0
    right = []
    losses = []
    with context or head_mask(run.classifier, mask):
        for batch, labels, _ in batches(run.encoder, pairs, max_tokens=16):
            logits = run.classifier(**batch)
            right += (logits.argmax(dim=-1) == labels).tolist()
            losses += F.cross_entropy(logits, labels, reduction="none").tolist()
    return np.array([100 * np.mean(right), np.mean(losses)])


def test_pruning_order_breaks_ties_by_the_second_score_and_masks_remove_the_first_heads():
    scores = np.array([[2.0, 1.0], [1.0, 0.0]])
    second_scores = np.array([[0.0, 9.0], [3.0, 0.0]])
    assert pruning.pruning_order(scores, second_scores).tolist() == [3, 2, 1, 0]
    masks = pruning.masks_along(np.array([5, 0, 3, 1, 4, 2]), (2, 3), (0, 0.3, 0.5, 1))
    removed = [np.flatnonzero(mask == 0).tolist() for mask in masks.reshape(4, 6)]
    assert removed == [[], [0, 5], [0, 3, 5], [0, 1, 2, 3, 4, 5]]


@pytest.mark.parametrize("family", ["bert", "albert", "distilbert"])
def test_mask_gradients_are_slopes_of_the_loss_of_each_example(tiny_encoder, family):
    encoder = tiny_encoder(family)
    classifier = Classifier(encoder, 3, seed=0).requires_grad_(False)
    texts = ("the cat sat on the mat", "coffee", "the dog watched it", "it is home", "Dr. Smith")
    pairs = [Pair((text,), number % 3) for number, text in enumerate(texts)]
    work = list(batches(encoder, pairs, max_tokens=16))
    gradients = pruning.mask_gradients(classifier, work, SHAPE)
    twice = pruning.mask_gradients(classifier, work * 2, SHAPE)
    assert np.array_equal(twice, [*gradients, *gradients])
    step = 1e-2
    ((batch, labels, _),) = work
    for head in ((0, 1), (2, 3)):
        losses = []
        for sign in (1, -1):
            mask = torch.ones(SHAPE)
            mask[head] += sign * step
            with torch.no_grad(), head_mask(classifier, mask):
                losses.append(F.cross_entropy(classifier(**batch), labels, reduction="none"))
        slopes = (losses[0] - losses[1]) / (2 * step)
        np.testing.assert_allclose(gradients[:, *head], slopes, rtol=0.05, atol=2e-3)


def test_single_ablation_equals_masking_each_head(run, scored):
    table = single_ablation([run], seed=0)
    assert (table["examples"] == len(scored)).all() and len(scored) == 20
    before = by_hand(run, scored)
    for row in table.itertuples():
        after = by_hand(run, scored, [(row.layer - 1, row.head - 1)])
        assert row.accuracy == pytest.approx(after[0])
        changes = [row.change, row.loss_change]
        assert changes == pytest.approx(after - before, abs=1e-5)
    uniform = by_hand(run, scored, context=uniform_attention(run.classifier, 1, 2))
    change = head_removal.uniform_change(run, 1, 2, seed=0)
    assert change == pytest.approx((uniform - before)[0])


def test_pruning_scores_the_heads_that_each_order_leaves(run, scored):
    table = pruning.pruning([run], seed=0)
    importance = pruning.head_importance([run], seed=0)
    order = np.argsort(importance["normalised"], kind="stable")
    before = by_hand(run, scored)[0]
    rows = table[table["order"] == "importance"].set_index("pruned")
    for pruned, row in rows.iterrows():
        heads = order[: len(order) - row["heads"]]
        after = by_hand(run, scored, [divmod(head, HEADS) for head in heads])[0]
        assert (row["accuracy"], row["change"]) == pytest.approx((after, after - before))
        assert row["heads"] == 12 - round(12 * pruned / 100)
    assert len(table) == 12 * len(pruning.SHARES)
    assert (table.loc[table["pruned"] == 0, "change"] == 0).all()
    without_heads = table[table["pruned"] == 100].groupby("examples")["accuracy"]
    assert (without_heads.nunique() == 1).all()


def test_mean_output_ablation_changes_nothing_but_for_heads_that_read(run, scored):
    """Head 2-3 adds the same large vector at every position, whatever it reads."""
    planted = copy.deepcopy(run)
    value = planted.classifier.encoder.encoder.layer[1].attention.self.value
    width = value.out_features // HEADS
    rows = slice(2 * width, 3 * width)
    with torch.no_grad():
        value.weight[rows] = 0
        value.bias[rows] = torch.linspace(-3, 3, width)
    means = head_removal.mean_head_outputs(planted, seed=0)
    changes = []
    for used_means in (None, means):
        interventions = head_removal.single_head_interventions(planted, used_means)
        scores = head_removal.evaluate_interventions(planted, scored, interventions)
        changes.append(np.abs(scores.loss[1:] - scores.loss[0]).max(axis=1))
    zeroed, averaged = changes
    number = HEADS + 2
    assert zeroed[number] > 1e-3 and averaged[number] < 1e-5
    assert (np.delete(averaged, number) > float32_error(scores.loss)).all()
