"""Heads that matter on two test sets, and heads of subjects and objects, checked by hand."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch.nn import functional as F
from toy_corpora import conllu

from helpers.data.corpora import resolve_treebank
from helpers.store.extract import extract
from helpers.studies.classifier import batches
from helpers.studies.fine_tune import FineTuned, Recipe, fine_tune
from helpers.studies.grammar_tasks import LABELS, NUMBER, SHIFT
from helpers.studies.head_mask import head_mask
from helpers.studies.sixteen_heads import pruning, transfer
from helpers.studies.tasks import Pair, Task

LAYERS, HEADS = 3, 4
SENTENCES = (
    [(1, "The", 2, "det"), (2, "cat", 3, "nsubj"), (3, "sat", 0, "root"), (4, "in", 3, "advmod")],
    [(1, "The", 2, "det"), (2, "cats", 3, "nsubj"), (3, "sit", 0, "root"), (4, "out", 3, "advmod")],
)  # fmt: skip


@pytest.fixture(scope="module")
def run(tiny_encoder, tmp_path_factory):
    pairs = tuple(
        Pair(f"the {noun} sat {place}", None, int(noun == "dogs"), f"article {n % 5}")
        for n, (noun, place) in enumerate((n, p) for n in ("cat", "dogs") for p in "abcdefghi")
    )
    task = Task(NUMBER, LABELS[NUMBER], pairs, pairs)
    own = FineTuned(
        tiny_encoder("bert"), task, Recipe(max_tokens=16, epochs=1), tmp_path_factory.mktemp("runs")
    )
    return fine_tune([own])[0]


@pytest.fixture(scope="module")
def store(tiny_encoder, tmp_path_factory):
    path = tmp_path_factory.mktemp("trees") / "trees.conllu"
    path.write_text(conllu(*SENTENCES, times=20))
    return extract(tiny_encoder("bert"), resolve_treebank(str(path)), level="word", max_tokens=32)


def ablation(one, other, task="a"):
    heads = pd.DataFrame({"task": task, "layer": 1, "head": range(1, len(one) + 1)})
    return heads.assign(change=one, change_one=one, change_other=other)


def test_heads_that_matter_in_both_halves_correlate_and_others_do_not():
    generator = np.random.default_rng(0)
    one, noise = generator.normal(size=(2, 40))
    table = transfer.cross_data(
        pd.concat([ablation(one, 2 * one + 0.1 * noise), ablation(one, noise, "b")]), seed=0
    ).set_index("task")
    assert table.loc["a", "correlation"] == pytest.approx(
        np.corrcoef(one, 2 * one + 0.1 * noise)[0, 1]
    )
    assert table.loc["a", "p_value"] < 0.001 and table.loc["a", "ci_low"] > 0.9
    assert table.loc["b", "p_value"] > 0.05
    assert table.loc["b", "ci_low"] < 0 < table.loc["b", "ci_high"]
    assert (table["set"] == transfer.ARTICLES).all()


def test_a_second_test_set_has_rows_of_its_own_and_no_change_no_correlation():
    one = np.arange(6.0)
    table = transfer.cross_data(
        ablation(one, one * 0), ablation(one[::-1], one), name="ewt", seed=0
    ).set_index("set")
    assert table.loc["ewt", "correlation"] == pytest.approx(-1)
    assert np.isnan(table.loc[transfer.ARTICLES, "correlation"])


def test_a_treebank_makes_test_sets_of_grammar(run, store):
    table = transfer.on_treebank([run], store, seed=0)
    assert table["task"].unique().tolist() == [NUMBER] and len(table) == LAYERS * HEADS
    assert table["examples"].iloc[0] == 2  # no sentence comes twice
    other = Task(SHIFT + "!", ("a", "b"), run.task.train, run.task.test)
    assert transfer.on_treebank([FineTuned(run.encoder, other, run.recipe)], store, seed=0) is None


def test_the_heads_of_subjects_beside_their_layer_by_hand(run, store):
    table = transfer.argument_heads(run, store, minimum=5, seed=0)
    assert table["relation"].tolist() == ["nsubj"]  # there are no objects
    row = table.iloc[0]
    layer, head = (int(part) - 1 for part in row["head"].split("-"))
    pairs = pruning.other_pairs(run, 0)

    def scores(mask):
        losses, right = 0.0, 0
        for batch, labels, _ in batches(run.encoder, pairs, max_tokens=16):
            with torch.no_grad(), head_mask(run.classifier, mask):
                logits = run.classifier(**batch)
            losses += F.cross_entropy(logits, labels, reduction="sum").item()
            right += (logits.argmax(dim=-1) == labels).sum().item()
        return np.array([100 * right, losses]) / len(pairs)

    whole, effects = scores(torch.ones(LAYERS, HEADS)), []
    for own in range(HEADS):
        mask = torch.ones(LAYERS, HEADS)
        mask[layer, own] = 0
        effects.append(scores(mask) - whole)
    others = np.mean(effects[:head] + effects[head + 1 :], axis=0)
    assert row[["change", "loss_change"]].tolist() == pytest.approx(effects[head], abs=1e-5)
    assert row[["others", "loss_others"]].tolist() == pytest.approx(others, abs=1e-5)
    assert row["loss_difference"] == pytest.approx(effects[head][1] - others[1], abs=1e-5)
    assert row["loss_ci_low"] <= row["loss_difference"] <= row["loss_ci_high"]
    assert row["rank"] == 1 + sum(effect[1] > effects[head][1] for effect in effects)


def test_a_treebank_without_subjects_has_no_heads_that_find_them(run, store):
    for _ in range(2):  # computed, and read back
        table = transfer.argument_heads(run, store, minimum=10**6, seed=0)
        assert table.empty and list(table) == list(transfer.COMPARED)
    assert transfer.arguments_over_seeds(table, pd.DataFrame()).empty


def test_over_seeds_each_difference_is_to_the_layers_other_heads():
    heads = pd.DataFrame(
        {"task": "a", "seed": [0, 0, 0, 0, 1, 1, 1, 1], "layer": [1, 1, 1, 2] * 2,
         "head": [1, 2, 3, 1] * 2, "loss_change": [0.5, 0.1, 0.3, 9, 0.1, 0.2, 0.4, 9]}
    )  # fmt: skip
    arguments = pd.DataFrame({"relation": ["nsubj"], "head": ["1-1"], "task": ["a"]})
    row = transfer.arguments_over_seeds(arguments, heads).iloc[0]
    assert (row["seeds"], row["more"]) == (2, 1)
    assert row["loss_difference"] == pytest.approx((0.3 - 0.2) / 2)
    assert row["ci_low"] < 0 < row["ci_high"]
