"""What is said of the tables of pruning, by hand."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t as student
from toy_corpora import conllu

from helpers.data.corpora import resolve_treebank
from helpers.store.extract import extract
from helpers.studies.fine_tune import FineTuned, Recipe, fine_tune
from helpers.studies.sixteen_heads import summaries
from helpers.studies.tasks import Pair, Task
from helpers.studies.wikipedia_tasks import LABELS, NUMBER, SHIFT

LAYERS, HEADS = 3, 4


def test_changes_stand_in_layers_and_heads_with_a_star_where_they_matter():
    rows = pd.DataFrame(
        {"task": "a", "layer": [1, 1, 2, 2], "head": [1, 2, 1, 2], "change": [0.0, -0.6, 1.25, -9],
         "removable": [True, True, True, False]}
    )  # fmt: skip
    table = summaries.change_table(rows, ["task", "layer"], "head")
    assert table.to_numpy().tolist() == [["+0.0", "-0.6"], ["+1.2", "-9.0 *"]]


def test_intervals_over_seeds():
    table = pd.DataFrame({"task": "a", "seed": [0, 1, 2], "accuracy": [90.0, 91.0, 95.0]})
    row = summaries.seed_intervals(table).iloc[0]
    assert row[["mean", "smallest", "largest", "seeds"]].tolist() == [92, 90, 95, 3]
    low, high = student.interval(0.95, 2, 92, np.std([90, 91, 95], ddof=1) / 3**0.5)
    assert (row["ci_low"], row["ci_high"]) == pytest.approx((low, high))


def ablation(one, other, task="a"):
    heads = pd.DataFrame({"task": task, "layer": 1, "head": range(1, len(one) + 1)})
    return heads.assign(change=one, change_one=one, change_other=other)


def test_heads_that_matter_in_both_halves_correlate_and_others_do_not():
    one, noise = np.random.default_rng(0).normal(size=(2, 40))
    other = 2 * one + 0.1 * noise
    both = pd.concat([ablation(one, other), ablation(one, noise, "b")])
    table = summaries.cross_data(both, seed=0).set_index("task")
    assert table.loc["a", "correlation"] == pytest.approx(np.corrcoef(one, other)[0, 1])
    assert table.loc["a", "p_value"] < 0.001 and table.loc["a", "ci_low"] > 0.9
    assert table.loc["b", "p_value"] > 0.05
    assert table.loc["b", "ci_low"] < 0 < table.loc["b", "ci_high"]


def test_a_second_test_set_has_rows_of_its_own_and_no_change_no_correlation():
    one = np.arange(6.0)
    table = summaries.cross_data(
        ablation(one, one * 0), ablation(one[::-1], one), name="ewt", seed=0
    ).set_index("set")
    assert table.loc["ewt", "correlation"] == pytest.approx(-1)
    assert np.isnan(table.loc[summaries.ARTICLES, "correlation"])


def test_a_treebank_makes_test_sets_of_grammar(tiny_encoder, tmp_path):
    sentences = [
        [(1, "The", 2, "det"), (2, noun, 3, "nsubj"), (3, verb, 0, "root"), (4, "in", 3, "advmod")]
        for noun, verb in (("cat", "sat"), ("cats", "sit"))
    ]
    (tmp_path / "trees.conllu").write_text(conllu(*sentences, times=20))
    encoder, corpus = tiny_encoder("bert"), resolve_treebank(str(tmp_path / "trees.conllu"))
    store = extract(encoder, corpus, level="word", max_tokens=32)
    pairs = tuple(
        Pair(f"the {noun} sat {place}", None, int(noun == "dogs"), f"article {n % 5}")
        for n, (noun, place) in enumerate((n, p) for n in ("cat", "dogs") for p in "abcdefghi")
    )
    recipe = Recipe(max_tokens=16, epochs=1)
    own, other = (
        FineTuned(encoder, Task(name, LABELS[NUMBER], pairs, pairs), recipe)
        for name in (NUMBER, SHIFT + "!")
    )
    table = summaries.on_treebank(fine_tune([own]), store, seed=0)
    assert table["task"].unique().tolist() == [NUMBER] and len(table) == LAYERS * HEADS
    assert table["examples"].iloc[0] == 2  # no sentence comes twice
    assert summaries.on_treebank([other], store, seed=0) is None
