"""Tables of pruned heads on a tiny model, against whole passes under masks."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import t as student
from torch.nn import functional as F

from helpers.studies import head_removal
from helpers.studies.classifier import batches
from helpers.studies.fine_tune import FineTuned, Recipe, fine_tune
from helpers.studies.head_mask import head_mask
from helpers.studies.sixteen_heads import pruning, removal_speed, summaries
from helpers.studies.tasks import Pair, Task

LAYERS, HEADS = 3, 4


def task_of(name, seed):
    generator = np.random.default_rng(seed)
    words = ["the", "cat", "sat", "on", "mat", "dog", "watched", "coffee", "rainy", "winters"]

    def pair():
        text = generator.choice(words, 6).tolist()
        source = f"article {generator.integers(6)}"
        return Pair(" ".join(text), None, int("cat" in text or "dog" in text), source)

    return Task(name, ("no", "yes"), *(tuple(pair() for _ in range(n)) for n in (48, 30)))


@pytest.fixture(scope="module")
def runs(tiny_encoder, tmp_path_factory):
    root, recipe = tmp_path_factory.mktemp("runs"), Recipe(max_tokens=16, epochs=1, checkpoints=2)
    torch.set_num_threads(1)
    tasks = [task_of("pets", 1), task_of("more pets", 2)]
    return fine_tune([FineTuned(tiny_encoder("bert"), task, recipe, root) for task in tasks])


@pytest.fixture(scope="module")
def weights(runs):
    return pruning.head_importance(runs, seed=0)


@pytest.fixture(scope="module")
def single(runs):
    return pruning.single_ablation(runs, seed=0)


def by_hand(run, mask, pairs):
    """Accuracy (percent) and mean loss of a classifier under a mask, from whole passes."""
    right, losses = [], []
    for batch, labels, _ in batches(run.encoder, pairs, max_tokens=16):
        with torch.no_grad(), head_mask(run.classifier, mask):
            logits = run.classifier(**batch)
        right += (logits.argmax(dim=-1) == labels).tolist()
        losses += F.cross_entropy(logits, labels, reduction="none").tolist()
    return 100 * np.mean(right), np.mean(losses)


def test_importance_is_complete_and_each_layer_has_length_one(weights):
    assert weights["task"].unique().tolist() == ["pets", "more pets"]
    assert len(weights) == 2 * LAYERS * HEADS
    lengths = (weights["normalised"] ** 2).groupby([weights["task"], weights["layer"]]).sum()
    np.testing.assert_allclose(lengths, 1)
    assert (weights["importance"] > 0).all()


def test_single_ablation_is_what_masking_each_head_gives(runs, single):
    for run in runs:
        scored, choosing = pruning.scored_pairs(run, 0), pruning.choosing_pairs(run, 0)
        assert len(scored) == 20 and len(choosing) == 10
        accuracy, loss = by_hand(run, torch.ones(LAYERS, HEADS), scored)
        for layer, head in ((0, 0), (2, 1)):
            mask = torch.ones(LAYERS, HEADS)
            mask[layer, head] = 0
            own, own_loss = by_hand(run, mask, scored)
            row = single.query("task == @run.task.name and layer == @layer + 1")
            row = row[row["head"] == head + 1].iloc[0]
            assert row["examples"] == 20
            assert row["accuracy"] == pytest.approx(own)
            assert row["change"] == pytest.approx(own - accuracy)
            assert row["loss_change"] == pytest.approx(own_loss - loss, abs=1e-5)
        first = pruning._half(scored, 0)
        halves = [[p for p, one in zip(scored, first, strict=True) if one == side]
                  for side in (True, False)]  # fmt: skip
        assert not {p.source for p in halves[0]} & {p.source for p in halves[1]} and all(halves)
        for column, half in zip(("change_one", "change_other"), halves, strict=True):
            change = by_hand(run, mask, half)[0] - by_hand(run, torch.ones(LAYERS, HEADS), half)[0]
            assert row[column] == pytest.approx(change)
    assert single["p_value"].between(0, 1).all()
    assert (single["q_value"] >= single["p_value"]).all()


def test_what_heads_are_compared_by_is_of_the_examples_that_all_share(runs, single, monkeypatch):
    monkeypatch.setattr(head_removal, "LOOKS", (12,))
    pairs = pruning.other_pairs(runs[0], 0)
    table = pruning.single_ablation(runs[:1], seed=1, tests={"pets": pairs})
    first = by_hand(runs[0], torch.ones(LAYERS, HEADS), pairs[:12])
    for row in (table.iloc[0], table.iloc[-1]):
        mask = torch.ones(LAYERS, HEADS)
        mask[int(row["layer"]) - 1, int(row["head"]) - 1] = 0
        change, loss = np.subtract(by_hand(runs[0], mask, pairs[:12]), first)
        assert row["loss_change"] == pytest.approx(loss, abs=1e-5)
        one = pruning._half(pairs[:12], 1).mean()
        own = one * row["change_one"] + (1 - one) * row["change_other"]
        assert own == pytest.approx(change)
    # So few examples show nothing to be removable: all heads are scored on all of them.
    whole = single[single["task"] == "pets"]
    for column in ("examples", "accuracy", "change", "p_value"):
        assert table[column].tolist() == whole[column].tolist()


def test_the_one_head_of_a_layer_is_chosen_on_other_examples(runs):
    table = pruning.one_head_layers(runs[:1], seed=0)
    scored, choosing = pruning.scored_pairs(runs[0], 0), pruning.choosing_pairs(runs[0], 0)
    for row in table.itertuples():
        losses, accuracies = [], []
        for head in range(HEADS):
            mask = torch.ones(LAYERS, HEADS)
            mask[row.layer - 1] = F.one_hot(torch.tensor(head), HEADS)
            losses.append(by_hand(runs[0], mask, choosing)[1])
            accuracies.append(by_hand(runs[0], mask, scored)[0])
        assert row.head == np.argmin(losses) + 1
        assert row.accuracy == pytest.approx(accuracies[row.head - 1])


def test_pruning_starts_whole_and_ends_without_heads(runs, weights, single):
    table = pruning.pruning(runs, weights, single, seed=0)
    start, end = table[table["pruned"] == 0], table[table["pruned"] == 100]
    assert (start["change"] == 0).all() and (start["heads"] == LAYERS * HEADS).all()
    assert (end["heads"] == 0).all()
    assert (end.groupby("task")["loss_change"].nunique() == 1).all()
    run = runs[0]
    own = weights[weights["task"] == run.task.name]
    least = own.sort_values("normalised").head(6)  # half of the twelve heads
    mask = torch.ones(LAYERS, HEADS)
    mask[least["layer"].to_numpy() - 1, least["head"].to_numpy() - 1] = 0
    half = table.query("task == @run.task.name and order == 'importance' and pruned == 50")
    assert half["heads"].item() == 6
    scored = pruning.scored_pairs(run, 0)
    assert half["accuracy"].item() == pytest.approx(by_hand(run, mask, scored)[0])
    draws = table[table["order"] == "random"].pivot(
        index=["task", "pruned"], columns="draw", values="loss_change"
    )
    assert draws.shape == (2 * len(pruning.RANDOM_SHARES), pruning.RANDOM_ORDERS)
    assert (draws[0] - draws[1]).abs().max() > 0


def test_no_more_test_examples_than_needed_score_a_mask(runs, monkeypatch):
    monkeypatch.setattr(pruning, "SCORED", 7)
    scored, choosing = pruning.scored_pairs(runs[0], 0), pruning.choosing_pairs(runs[0], 0)
    assert (len(scored), len(choosing)) == (7, 10)


def test_the_same_seed_gives_the_same_tables(runs, single, monkeypatch, tmp_path):
    monkeypatch.setenv("ATTENTION_CACHE", str(tmp_path))
    pd.testing.assert_frame_equal(pruning.single_ablation(runs, seed=0), single)


def test_the_course_ends_where_importance_is(runs, monkeypatch):
    monkeypatch.setattr(pruning, "COURSE", pruning.WEIGHED)
    course = pruning.importance_course(runs[0], seed=0)
    assert sorted(course["trained"].unique()) == [0, 50, 100]
    weights = pruning.head_importance(runs[:1], seed=0)
    end = course[course["trained"] == 100]
    np.testing.assert_allclose(end["importance"], weights["importance"])
    summary = summaries.course_summary(course)
    assert summary["correlation"].iloc[-1] == pytest.approx(1)
    assert summary["top_tenth"].between(100 / 12, 100).all()
    ranks = course.pivot(index="trained", columns=["layer", "head"], values="normalised").T.rank()
    expected = np.corrcoef(ranks[0], ranks[100])[0, 1]
    assert summary["correlation"].iloc[0] == pytest.approx(expected)


def test_changes_stand_in_layers_and_heads_with_a_star_where_they_matter():
    rows = pd.DataFrame(
        {"task": "a", "layer": [1, 1, 2, 2], "head": [1, 2, 1, 2], "change": [0.0, -0.6, 1.25, -9],
         "removable": [True, True, True, False]}
    )  # fmt: skip
    table = summaries.change_table(rows, ["task", "layer"], "head")
    assert table.to_numpy().tolist() == [["+0.0", "-0.6"], ["+1.2", "-9.0 *"]]


def test_the_summary_of_ablation_by_hand():
    single = pd.DataFrame(
        {
            "task": ["a", "a", "a", "b"],
            "layer": [1, 1, 2, 1],
            "head": [1, 2, 3, 1],
            "change": [-1.5, 2.0, -3.0, 0.0],
            "removable": [True, False, False, True],
            "p_value": [0.009, 0.01, 0.001, 1.0],
            "q_value": [0.03, 0.03, 0.003, 1.0],
        }
    )
    table = summaries.ablation_summary(single)
    assert table.to_numpy().tolist() == [
        ["a", 3, 1, 2, 1, 1, "2-3", -3.0],
        ["b", 1, 1, 0, 0, 0, "1-1", 0.0],
    ]


@pytest.fixture(scope="module")
def by_seed(runs):
    """The same task under another seed, which has other weights."""
    again = [replace(run, recipe=replace(run.recipe, seed=1)) for run in runs[:1]]
    return {0: runs[:1], 1: fine_tune(again)}


def test_each_seed_has_the_rows_of_its_own_runs(by_seed, weights, single):
    heads = pruning.heads_over_seeds(by_seed, seed=0)
    own = heads[heads["seed"] == 0].reset_index(drop=True)
    first = single[single["task"] == "pets"]
    np.testing.assert_allclose(own["loss_change"], first["loss_change"])
    np.testing.assert_allclose(own["normalised"], weights.loc[first.index, "normalised"])
    other = heads[heads["seed"] == 1].reset_index(drop=True)
    assert len(other) == LAYERS * HEADS and not np.allclose(own["normalised"], other["normalised"])
    pruned = pruning.pruning_over_seeds(by_seed, heads, seed=0)
    accuracy = 100 * by_seed[1][0].accuracy
    assert pruned.loc[pruned["seed"] == 1, "whole"].unique() == pytest.approx([accuracy])
    best = other.sort_values("normalised").iloc[:6]
    mask = torch.ones(LAYERS, HEADS)
    mask[best["layer"].to_numpy() - 1, best["head"].to_numpy() - 1] = 0
    half = pruned.query("seed == 1 and pruned == 50")["accuracy"].item()
    run = by_seed[1][0]
    assert half == pytest.approx(by_hand(run, mask, pruning.scored_pairs(run, 0))[0])


def test_measures_over_seeds_by_hand():
    heads = pd.DataFrame(
        {"task": "a", "seed": np.repeat([0, 1, 2], 4), "layer": [1, 1, 2, 2] * 3,
         "head": [1, 2] * 6, "normalised": [1, 2, 3, 4, 1, 2, 3, 4, 4, 3, 2, 1],
         "removable": [True] * 6 + [False] * 6}
    )  # fmt: skip
    pruned = pd.DataFrame(
        {"task": "a", "seed": np.repeat([0, 1, 2], 3), "pruned": [0, 10, 20] * 3,
         "whole": np.repeat([90.0, 91.0, 95.0], 3),
         "removable": [True, True, True, True, False, True, False, False, False]}
    )  # fmt: skip
    table = summaries.seed_measures(heads, pruned)
    assert table["accuracy"].tolist() == [90, 91, 95]
    assert table["removable"].tolist() == [100, 50, 0]
    assert table["prunable"].tolist() == [20, 0, 0]
    assert table["correlation"].tolist() == pytest.approx([0, 0, -1])
    intervals = summaries.seed_intervals(table).set_index("measure")
    row = intervals.loc["accuracy"]
    assert row[["mean", "smallest", "largest", "seeds"]].tolist() == [92, 90, 95, 3]
    low, high = student.interval(0.95, 2, 92, np.std([90, 91, 95], ddof=1) / 3**0.5)
    assert (row["ci_low"], row["ci_high"]) == pytest.approx((low, high))


def test_removed_heads_leave_a_smaller_model_of_the_same_output(runs, weights, monkeypatch):
    monkeypatch.setattr(removal_speed, "SECONDS", 0.0)
    table = removal_speed.removal_speed(runs[0], weights)
    assert table["batch"].tolist() == [1, 4, 16] * 2  # there are 30 test examples
    assert table["difference"].max() < 1e-4
    assert table["heads"].unique().tolist() == [6, 2]  # 12 heads; 0.8 of them are 10
    assert (table[["full", "removed"]] > 0).all(axis=None)
    assert (table["turns"] == removal_speed.TURNS).all()
    assert (table["speed_up_low"] <= table["speed_up"]).all()
    assert (table["speed_up"] <= table["speed_up_high"]).all()
    per_head = 4 * 24 * 6 + 3 * 6
    classifier = runs[0].classifier
    layers = sum(
        p.numel() for name, p in classifier.named_parameters() if "embeddings.weight" not in name
    )
    assert table["parameters"].iloc[0] == pytest.approx(100 * 6 * per_head / layers)


def test_a_family_that_can_only_be_masked_gives_no_rows(tiny_encoder, tmp_path):
    recipe = Recipe(epochs=1, max_tokens=16)
    runs = fine_tune([FineTuned(tiny_encoder("albert"), task_of("pets", 1), recipe, tmp_path)])
    weights = pruning.head_importance(runs, seed=0)
    table = removal_speed.removal_speed(runs[0], weights)
    assert table.empty and "speed_up" in table
