"""Pruning the heads of a tiny model, compared with full passes under masks and with slopes."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from tolerances import float32_error
from torch.nn import functional as F

from beyond.papers.common import head_removal
from beyond.papers.common.classifier import Classifier, batches
from beyond.papers.common.fine_tune import FineTuningRun, Recipe, fine_tune
from beyond.papers.common.head_removal import head_mask, single_ablation, split_test
from beyond.papers.common.tasks import Pair, Task
from beyond.papers.sixteen_heads import pruning

LAYERS = 3
HEADS = 4


def task_of(name, seed):
    generator = np.random.default_rng(seed)
    words = ["the", "cat", "sat", "on", "mat", "dog", "watched", "coffee", "rainy", "winters"]

    def make_pairs(count):
        pairs = []
        for _ in range(count):
            text = generator.choice(words, 6).tolist()
            source = f"article {generator.integers(6)}"
            label = int("cat" in text or "dog" in text)
            pairs.append(Pair((" ".join(text),), label, source))
        return tuple(pairs)

    return Task(name, ("no", "yes"), train=make_pairs(48), test=make_pairs(30))


@pytest.fixture(scope="module")
def runs(tiny_encoder):
    recipe = Recipe(max_tokens=16, epochs=1)
    torch.set_num_threads(1)
    tasks = [task_of("pets", 1), task_of("more pets", 2)]
    return fine_tune([FineTuningRun(tiny_encoder("bert"), task, recipe) for task in tasks])


@pytest.fixture(scope="module")
def weights(runs):
    return pruning.head_importance(runs, seed=0)


@pytest.fixture(scope="module")
def single(runs):
    return single_ablation(runs, seed=0)


def by_hand(run, pairs, *removed):
    """Compute the accuracy (percent) and the mean loss without some heads, from full passes."""
    mask = torch.ones(LAYERS, HEADS)
    for layer, head in removed:
        mask[layer, head] = 0
    right = []
    losses = []
    for batch, labels, _ in batches(run.encoder, pairs, max_tokens=16):
        with torch.no_grad(), head_mask(run.classifier, mask):
            logits = run.classifier(**batch)
        right += (logits.argmax(dim=-1) == labels).tolist()
        losses += F.cross_entropy(logits, labels, reduction="none").tolist()
    return 100 * np.mean(right), np.mean(losses)


def change_by_hand(run, pairs, *removed):
    """Compute the changes of accuracy (percentage points) and of the mean loss without heads."""
    accuracy, loss = by_hand(run, pairs, *removed)
    accuracy_before, loss_before = by_hand(run, pairs)
    return accuracy - accuracy_before, loss - loss_before


def heads_in_order(importance):
    """List the heads as [layer, head] from 0, the least important first."""
    return importance.sort_values("normalised")[["layer", "head"]].to_numpy() - 1


# Orders, masks and gradients


def test_pruning_order_breaks_ties_by_the_second_score():
    scores = np.array([[2.0, 1.0], [1.0, 0.0]])
    second_scores = np.array([[0.0, 9.0], [3.0, 0.0]])
    assert pruning.pruning_order(scores, second_scores).tolist() == [3, 2, 1, 0]
    assert pruning.pruning_order(scores, -second_scores).tolist() == [3, 1, 2, 0]


def test_masks_along_remove_the_first_heads_of_the_order():
    order = np.array([5, 0, 3, 1, 4, 2])
    masks = pruning.masks_along(order, (2, 3), (0, 0.3, 0.5, 1))
    assert masks.reshape(4, 6).tolist() == [
        [1, 1, 1, 1, 1, 1],
        [0, 1, 1, 1, 1, 0],
        [0, 1, 1, 0, 1, 0],
        [0, 0, 0, 0, 0, 0],
    ]


@pytest.fixture(params=["bert", "albert", "distilbert"])
def classifier_and_work(tiny_encoder, request):
    """Make a classifier that is not trained, and a batch of five texts."""
    encoder = tiny_encoder(request.param)
    classifier = Classifier(encoder, 3, seed=0).requires_grad_(False)
    texts = ("the cat sat on the mat", "coffee", "the dog watched it", "it is home", "Dr. Smith")
    pairs = [Pair((text,), number % 3) for number, text in enumerate(texts)]
    return classifier, list(batches(encoder, pairs, max_tokens=16))


def gradients_of(classifier, work):
    return pruning.mask_gradients(classifier, work, (LAYERS, HEADS))


@pytest.mark.parametrize(("layer", "head"), [(0, 1), (2, 3)])
def test_mask_gradients_are_slopes_of_the_loss_of_each_example(classifier_and_work, layer, head):
    classifier, work = classifier_and_work
    gradients = gradients_of(classifier, work)
    assert gradients.shape == (5, LAYERS, HEADS)
    step = 1e-2
    ((batch, labels, _),) = work
    losses = []
    for sign in (1, -1):
        mask = torch.ones(LAYERS, HEADS)
        mask[layer, head] += sign * step
        with torch.no_grad(), head_mask(classifier, mask):
            losses.append(F.cross_entropy(classifier(**batch), labels, reduction="none"))
    slopes = (losses[0] - losses[1]) / (2 * step)
    np.testing.assert_allclose(gradients[:, layer, head], slopes, rtol=0.05, atol=2e-3)


def test_mask_gradients_do_not_depend_on_other_batches_and_leave_no_hook(classifier_and_work):
    classifier, work = classifier_and_work
    gradients = gradients_of(classifier, work)
    twice = gradients_of(classifier, work * 2)
    assert np.array_equal(twice, [*gradients, *gradients])
    assert not any(module._forward_pre_hooks for module in classifier.modules())


def test_head_importance_is_the_mean_of_absolute_gradients(runs, weights):
    assert weights["task"].unique().tolist() == ["pets", "more pets"]
    assert len(weights) == 2 * LAYERS * HEADS
    run = runs[0]
    work = list(batches(run.encoder, run.task.train, max_tokens=16))  # all 48 examples
    expected = np.abs(gradients_of(run.classifier, work)).mean(axis=0)
    importance = weights.loc[weights["task"] == run.task.name, "importance"]
    np.testing.assert_allclose(importance, expected.ravel())


def test_head_importance_is_normalised_by_layer(weights):
    squares = weights["normalised"] ** 2
    lengths = squares.groupby([weights["task"], weights["layer"]]).sum()
    np.testing.assert_allclose(lengths, 1)


# Single heads


@pytest.mark.parametrize(("layer", "head"), [(0, 0), (2, 1)])
def test_single_ablation_equals_masking_each_head(runs, single, layer, head):
    run = runs[1]
    _, scored = split_test(run, 0)
    rows = single[single["task"] == run.task.name].set_index(["layer", "head"])
    row = rows.loc[(layer + 1, head + 1)]
    accuracy, _ = by_hand(run, scored, (layer, head))
    change, loss_change = change_by_hand(run, scored, (layer, head))
    assert row["examples"] == len(scored) == 20
    assert row["accuracy"] == pytest.approx(accuracy)
    assert row["change"] == pytest.approx(change)
    assert row["loss_change"] == pytest.approx(loss_change, abs=1e-5)


def test_single_ablation_scores_the_first_examples(runs, tmp_path, monkeypatch):
    monkeypatch.setenv("ATTENTION_CACHE", str(tmp_path))
    monkeypatch.setattr(head_removal, "HEAD_EXAMPLES", 12)
    fine_tune(runs[:1])
    row = single_ablation(runs[:1], seed=0).iloc[-1]
    _, scored = split_test(runs[0], 0)
    change, loss_change = change_by_hand(runs[0], scored[:12], (LAYERS - 1, HEADS - 1))
    assert row["examples"] == 12
    assert row["change"] == pytest.approx(change)
    assert row["loss_change"] == pytest.approx(loss_change, abs=1e-5)


def test_single_head_interventions_have_one_head_each(runs, single):
    run = runs[0]
    interventions = head_removal.single_head_interventions(run)
    assert [intervention.layer for intervention in interventions] == [0] * 4 + [1] * 4 + [2] * 4
    _, scored = split_test(run, 0)
    scores = head_removal.evaluate_interventions(run, scored, interventions)
    changes = scores.loss[1:].mean(axis=1) - scores.loss[0].mean()
    rows = single[single["task"] == run.task.name]
    np.testing.assert_allclose(rows["loss_change"], changes, atol=float32_error(scores.loss))


def layer_modules(classifier, ending):
    """List the modules of the layers whose names end in the same way, such as their values."""
    return [module for name, module in classifier.named_modules() if name.endswith(ending)]


@pytest.fixture
def run_with_a_constant_head(runs):
    """A run whose head 2-3 adds the same large vector at every position, whatever it reads."""
    run = copy.deepcopy(runs[0])
    value = layer_modules(run.classifier, "self.value")[1]
    width = value.out_features // HEADS
    rows = slice(2 * width, 3 * width)
    with torch.no_grad():
        value.weight[rows] = 0
        value.bias[rows] = torch.linspace(-3, 3, width)
    return run


def test_mean_output_ablation_of_a_constant_head_changes_nothing(run_with_a_constant_head):
    run = run_with_a_constant_head
    _, scored = split_test(run, 0)
    means = head_removal.mean_head_outputs(run, seed=0)
    width = means.shape[-1]
    torch.testing.assert_close(means[1, 2], torch.linspace(-3, 3, width))
    number = HEADS + 2
    losses = {}
    for name, used_means in (("zeroed", None), ("mean", means)):
        intervention = head_removal.single_head_interventions(run, used_means)[number]
        scores = head_removal.evaluate_interventions(run, scored, [intervention])
        losses[name] = scores.loss[1] - scores.loss[0]
    assert np.abs(losses["mean"]).max() < 1e-5
    assert np.abs(losses["zeroed"]).max() > 1e-3


def test_mean_output_ablation_of_a_head_that_reads_changes_something(runs):
    run = runs[0]
    _, scored = split_test(run, 0)
    means = head_removal.mean_head_outputs(run, seed=0)
    interventions = head_removal.single_head_interventions(run, means)
    scores = head_removal.evaluate_interventions(run, scored, interventions)
    changes = np.abs(scores.loss[1:] - scores.loss[0]).max(axis=1)
    assert (changes > float32_error(scores.loss)).all()


def test_mean_head_outputs_are_those_of_the_tokens_of_every_example(runs):
    """Compare with the inputs of the output projections, text by text and without padding."""
    run = runs[0]
    means = head_removal.mean_head_outputs(run, seed=0)
    outputs = [[] for _ in range(LAYERS)]

    def keep(number):
        return lambda module, args: outputs[number].append(args[0][0])

    projections = layer_modules(run.classifier, "attention.output.dense")
    hooks = [
        module.register_forward_pre_hook(keep(number)) for number, module in enumerate(projections)
    ]
    with torch.no_grad():
        for pair in run.task.train:
            ((batch, _, _),) = batches(run.encoder, [pair], max_tokens=run.recipe.max_tokens)
            run.classifier(**batch)
    for hook in hooks:
        hook.remove()
    for layer, parts in enumerate(outputs):
        expected = torch.cat(parts).mean(dim=0).view(HEADS, -1)
        torch.testing.assert_close(means[layer], expected, rtol=1e-4, atol=1e-5)


def test_tables_have_both_ablations(runs, single):
    one_head = pruning.one_head_layers(runs[:1], seed=0)
    for table in (single, one_head):
        columns = ["mean_change", "mean_change_low", "mean_change_high"]
        assert table[columns].notna().all(axis=None)
        assert (table["mean_change_low"] <= table["mean_change"]).all()
        assert table["mean_removable"].dtype == bool


def test_one_head_layers_keep_the_head_of_least_loss_on_examples_to_choose_on(runs):
    run = runs[0]
    choosing, scored = split_test(run, 0)
    table = pruning.one_head_layers(runs[:1], seed=0)
    assert table["layer"].tolist() == [1, 2, 3]
    for row in table.itertuples():
        layer_heads = [(row.layer - 1, head) for head in range(HEADS)]
        losses = []
        for kept_head in layer_heads:
            removed = [head for head in layer_heads if head != kept_head]
            losses.append(by_hand(run, choosing, *removed)[1])
        assert row.head == np.argmin(losses) + 1
        removed = [head for head in layer_heads if head != (row.layer - 1, row.head - 1)]
        assert row.accuracy == pytest.approx(by_hand(run, scored, *removed)[0])


# Pruning


@pytest.fixture(scope="module")
def pruned(runs):
    """Prune both models, with 8 examples for random orders."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pruning, "RANDOM_SCORED_EXAMPLES", 8)
        return pruning.pruning(runs, seed=0)


def test_pruning_begins_with_all_heads_and_ends_without_any(pruned):
    start = pruned[pruned["pruned"] == 0]
    assert (start["change"] == 0).all()
    assert (start["heads"] == LAYERS * HEADS).all()
    end = pruned[pruned["pruned"] == 100]
    assert (end["heads"] == 0).all()
    assert len(end) == 2 * (2 + pruning.RANDOM_ORDERS)
    assert (end.groupby(["task", "examples"])["loss_change"].nunique() == 1).all()


def test_pruning_removes_the_least_important_heads(runs, weights, pruned):
    run = runs[0]
    importance = weights[weights["task"] == run.task.name]
    is_step = (pruned["pruned"] == 40) & (pruned["order"] == "importance")
    step = pruned[is_step & (pruned["task"] == run.task.name)]
    assert step["heads"].item() == 7
    _, scored = split_test(run, 0)
    accuracy, _ = by_hand(run, scored, *heads_in_order(importance)[:5])
    assert step["accuracy"].item() == pytest.approx(accuracy)


def test_pruning_has_different_random_orders(pruned):
    random = pruned[pruned["order"] == "random"]
    draws = random["loss_change"].to_numpy().reshape(2, pruning.RANDOM_ORDERS, -1)
    assert draws.shape[2] == len(pruning.SHARES)
    assert np.abs(draws[:, 0] - draws[:, 1]).max() > 0


def test_pruning_leads_are_differences_on_the_same_examples(runs, weights, pruned):
    """Single ablation is compared on all examples, random orders on the first ones."""
    run = runs[0]
    _, scored = split_test(run, 0)
    importance = weights[weights["task"] == run.task.name]
    order = heads_in_order(importance)
    counts = [round(len(order) * share) for share in pruning.SHARES[1:-1]]
    on_first = np.mean([by_hand(run, scored[:8], *order[:count])[0] for count in counts])
    between = pruned[(pruned["task"] == run.task.name) & pruned["pruned"].between(1, 99)]
    means = between.groupby("order")[["accuracy", "lead"]].mean()
    accuracy = means["accuracy"]
    assert means.loc["importance", "lead"] == pytest.approx(0)
    lead_over_ablation = accuracy["importance"] - accuracy["single ablation"]
    assert means.loc["single ablation", "lead"] == pytest.approx(lead_over_ablation)
    lead_over_random = on_first - accuracy["random"]
    assert means.loc["random", "lead"] == pytest.approx(lead_over_random)


def test_seed_pruning_uses_the_importance_of_each_seed(runs):
    second_seed = replace(runs[0], recipe=replace(runs[0].recipe, seed=1))
    (second_run,) = fine_tune([second_seed])
    table = pruning.seed_pruning([runs[0], second_run, runs[1]], seed=0)
    assert table[["task", "seed", "pruned"]].to_numpy().tolist() == [
        ["pets", 0, 20],
        ["pets", 0, 40],
        ["pets", 1, 20],
        ["pets", 1, 40],
        ["more pets", 0, 20],
        ["more pets", 0, 40],
    ]
    rows = table.set_index(["task", "seed", "pruned"])
    for run in (runs[0], second_run, runs[1]):
        row = rows.loc[(run.task.name, run.recipe.seed, 40)]
        importance = pruning.head_importance([run], seed=0)
        _, scored = split_test(run, 0)
        accuracy, _ = by_hand(run, scored, *heads_in_order(importance)[:5])
        assert row["examples"] == len(scored)
        assert row["accuracy"] == pytest.approx(accuracy)
