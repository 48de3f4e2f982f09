"""Heads taken out of a tiny model, against whole passes under masks; scores and slopes by hand."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from helpers.studies import head_removal
from helpers.studies.classifier import Classifier, batches
from helpers.studies.fine_tune import FineTuned, Recipe, fine_tune
from helpers.studies.head_removal import head_mask, single_ablation, split_test
from helpers.studies.sixteen_heads import pruning
from helpers.studies.tasks import Pair, Task

LAYERS, HEADS, WIDTH = 3, 4, 6


def task_of(name, seed):
    generator = np.random.default_rng(seed)
    words = ["the", "cat", "sat", "on", "mat", "dog", "watched", "coffee", "rainy", "winters"]

    def pair():
        text = generator.choice(words, 6).tolist()
        source = f"article {generator.integers(6)}"
        return Pair(" ".join(text), None, int("cat" in text or "dog" in text), source)

    return Task(name, ("no", "yes"), *(tuple(pair() for _ in range(n)) for n in (48, 30)))


@pytest.fixture(scope="module")
def runs(tiny_encoder):
    recipe = Recipe(max_tokens=16, epochs=1)
    torch.set_num_threads(1)
    tasks = [task_of("pets", 1), task_of("more pets", 2)]
    return fine_tune([FineTuned(tiny_encoder("bert"), task, recipe) for task in tasks])


@pytest.fixture(scope="module")
def weights(runs):
    return pruning.head_importance(runs, seed=0)


@pytest.fixture(scope="module")
def single(runs):
    return single_ablation(runs, seed=0)


def by_hand(run, pairs, *without):
    """Accuracy (percent) and mean loss of a classifier without some heads, from whole passes."""
    right, losses, mask = [], [], torch.ones(LAYERS, HEADS)
    for layer, head in without:
        mask[layer, head] = 0
    for batch, labels, _ in batches(run.encoder, pairs, max_tokens=16):
        with torch.no_grad(), head_mask(run.classifier, mask):
            logits = run.classifier(**batch)
        right += (logits.argmax(dim=-1) == labels).tolist()
        losses += F.cross_entropy(logits, labels, reduction="none").tolist()
    return 100 * np.mean(right), np.mean(losses)


def test_the_least_important_heads_go_first_and_ties_by_the_second_score():
    scores, other = np.array([[2.0, 1.0], [1.0, 0.0]]), np.array([[0.0, 9.0], [3.0, 0.0]])
    assert pruning.pruning_order(scores, other).tolist() == [3, 2, 1, 0]
    assert pruning.pruning_order(scores, -other).tolist() == [3, 1, 2, 0]
    masks = pruning.masks_along(np.array([5, 0, 3, 1, 4, 2]), (2, 3), (0, 0.3, 0.5, 1))
    assert masks.reshape(4, 6).tolist() == [
        [1, 1, 1, 1, 1, 1], [0, 1, 1, 1, 1, 0], [0, 1, 1, 0, 1, 0], [0, 0, 0, 0, 0, 0],
    ]  # fmt: skip


@pytest.mark.parametrize("family", ["bert", "albert", "distilbert"])
def test_gradients_are_the_slopes_of_each_examples_own_loss(tiny_encoder, family):
    encoder = tiny_encoder(family)
    classifier = Classifier(encoder, 3, seed=0).requires_grad_(False)
    texts = ("the cat sat on the mat", "coffee", "the dog watched it", "it is home", "Dr. Smith")
    pairs = [Pair(text, None, number % 3) for number, text in enumerate(texts)]
    work = list(batches(encoder, pairs, max_tokens=16))
    found, twice = (
        pruning.mask_gradients(classifier, own, pruning.summed_loss, (LAYERS, HEADS), "slopes")
        for own in (work, work * 2)
    )
    assert found.shape == (5, LAYERS, HEADS) and np.array_equal(twice, [*found, *found])
    step, ((batch, labels, _),) = 1e-2, work
    for layer, head in ((0, 1), (2, 3)):
        losses = []
        for sign in (1, -1):
            mask = torch.ones(LAYERS, HEADS)
            mask[layer, head] += sign * step
            with torch.no_grad(), head_mask(classifier, mask):
                losses.append(F.cross_entropy(classifier(**batch), labels, reduction="none"))
        slopes = (losses[0] - losses[1]) / (2 * step)
        np.testing.assert_allclose(found[:, layer, head], slopes, rtol=0.05, atol=2e-3)
    assert not any(module._forward_pre_hooks for module in classifier.modules())


def test_importance_is_the_mean_of_absolute_slopes(runs, weights):
    assert weights["task"].unique().tolist() == ["pets", "more pets"]
    assert len(weights) == 2 * LAYERS * HEADS
    lengths = (weights["normalised"] ** 2).groupby([weights["task"], weights["layer"]]).sum()
    np.testing.assert_allclose(lengths, 1)
    run, shape = runs[0], (LAYERS, HEADS)
    work = list(batches(run.encoder, run.task.train, max_tokens=16))
    found = pruning.mask_gradients(run.classifier, work, pruning.summed_loss, shape, "importance")
    expected = np.abs(found).mean(axis=0)  # all 48 examples
    np.testing.assert_allclose(weights["importance"][:12], expected.ravel())


def test_single_ablation_is_what_masking_each_head_gives(runs, single):
    run = runs[1]
    choosing, scored = split_test(run, 0)
    assert len(scored) == 20 and len(choosing) == 10
    first = head_removal._first_half(scored, 0)
    halves = [[p for p, one in zip(scored, first, strict=True) if one == side]
              for side in (True, False)]  # fmt: skip
    assert not {p.source for p in halves[0]} & {p.source for p in halves[1]} and all(halves)
    for layer, head in ((0, 0), (2, 1)):
        row = single.query("task == @run.task.name and layer == @layer + 1").iloc[head]
        assert (row["examples"], row["head"]) == (20, head + 1)
        assert row["accuracy"] == pytest.approx(by_hand(run, scored, (layer, head))[0])
        for column, pairs in zip(
            ("change", "change_one", "change_other"), (scored, *halves), strict=True
        ):
            change, loss = np.subtract(by_hand(run, pairs, (layer, head)), by_hand(run, pairs))
            assert row[column] == pytest.approx(change)
            if column == "change":
                assert row["loss_change"] == pytest.approx(loss, abs=1e-5)
    assert single["p_value"].between(0, 1).all()
    assert (single["q_value"] >= single["p_value"]).all()


def test_what_heads_are_compared_by_is_of_the_examples_that_all_share(runs, single):
    _, pairs = split_test(runs[0], 0)
    table = single_ablation(runs[:1], seed=1, test_pairs={"pets": pairs}, interim_sizes=(12, 99))
    one = head_removal._first_half(pairs[:12], 1).mean()
    for row in (table.iloc[0], table.iloc[-1]):
        head = int(row["layer"]) - 1, int(row["head"]) - 1
        change, loss = np.subtract(by_hand(runs[0], pairs[:12], head), by_hand(runs[0], pairs[:12]))
        assert row["loss_change"] == pytest.approx(loss, abs=1e-5)
        own = one * row["change_one"] + (1 - one) * row["change_other"]
        assert own == pytest.approx(change) and row["first_change"] == pytest.approx(change)
    # So few examples show nothing to be removable: all heads are scored on all of them.
    columns = ["examples", "accuracy", "change", "p_value"]
    assert table[columns].equals(single.loc[single["task"] == "pets", columns])


def test_the_one_head_of_a_layer_is_chosen_on_other_examples(runs):
    choosing, scored = split_test(runs[0], 0)
    for row in pruning.one_head_layers(runs[:1], seed=0).itertuples():
        layer = [(row.layer - 1, head) for head in range(HEADS)]
        others = [[place for place in layer if place != own] for own in layer]
        assert row.head == np.argmin([by_hand(runs[0], choosing, *own)[1] for own in others]) + 1
        assert row.accuracy == pytest.approx(by_hand(runs[0], scored, *others[row.head - 1])[0])


def test_pruning_starts_whole_and_ends_without_heads(runs, weights, single, monkeypatch):
    monkeypatch.setattr(pruning, "RANDOM_SCORED_EXAMPLES", 8)
    table = pruning.pruning(runs, weights, single, seed=0)
    start, end = table[table["pruned"] == 0], table[table["pruned"] == 100]
    assert (start["change"] == 0).all() and (start["heads"] == LAYERS * HEADS).all()
    assert (end["heads"] == 0).all() and len(end) == 2 * 2  # random orders end before it
    assert (end.groupby("task")["loss_change"].nunique() == 1).all()
    run = runs[0]
    own = weights[weights["task"] == run.task.name]
    least = own.sort_values("normalised").head(6)[["layer", "head"]].to_numpy() - 1
    half = table.query("task == @run.task.name and order == 'importance' and pruned == 50")
    assert half["heads"].item() == 6
    pairs = split_test(run, 0)[1]
    assert half["accuracy"].item() == pytest.approx(by_hand(run, pairs, *least)[0])
    draws = table[table["order"] == "random"].pivot(
        index=["task", "pruned"], columns="draw", values="loss_change"
    )
    assert draws.shape == (2 * len(pruning.FIRST_SHARES), pruning.RANDOM_ORDERS)
    assert (draws[0] - draws[1]).abs().max() > 0
    # By how much importance is ahead: of single ablation on all examples, of chance on the first.
    between = table[(table["task"] == run.task.name) & table["pruned"].between(1, 99)]
    means = between.groupby("order")[["accuracy", "lead"]].mean()
    ordered = own.sort_values("normalised")[["layer", "head"]].to_numpy() - 1
    steps = [round(12 * step) for step in pruning.FIRST_SHARES[1:]]
    first = np.mean([by_hand(run, pairs[:8], *ordered[:step])[0] for step in steps])
    whole = means.loc["importance", "accuracy"]
    ahead = [whole, first, whole] - means["accuracy"]  # importance, random, single ablation
    np.testing.assert_allclose(means["lead"], ahead, atol=1e-9)


def test_each_seed_is_pruned_by_the_importance_of_its_own_heads(runs):
    again = fine_tune([replace(runs[0], recipe=replace(runs[0].recipe, seed=1))])
    table = pruning.seed_pruning([[runs[0], *again], runs[1:]], seed=0)
    assert table["task"].unique().tolist() == ["pets"]  # the other task has one seed
    assert table[["seed", "pruned"]].to_numpy().tolist() == [[0, 20], [0, 40], [1, 20], [1, 40]]
    for row, run in zip(table.iloc[1::2].itertuples(), (runs[0], *again), strict=True):
        weights = pruning.head_importance([run], seed=0).sort_values("normalised")
        least = weights[["layer", "head"]].to_numpy()[:5] - 1
        assert row.accuracy == pytest.approx(by_hand(run, split_test(run, 0)[1], *least)[0])
        assert row.start == pytest.approx(100 * run.accuracy)
