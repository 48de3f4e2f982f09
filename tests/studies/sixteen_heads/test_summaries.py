"""What is said of the tables of pruning, by hand."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr
from scipy.stats import t as student
from toy_corpora import conllu

from helpers.data.corpora import resolve_treebank
from helpers.store.extract import extract
from helpers.studies.fine_tune import FineTuned, Recipe, fine_tune
from helpers.studies.sixteen_heads import summaries
from helpers.studies.tasks import Pair, Task
from helpers.studies.wikipedia_tasks import LABELS, NUMBER, SHIFT

LAYERS, HEADS = 3, 4


def test_intervals_over_seeds():
    table = pd.DataFrame(
        {"task": "a", "pruned": 20, "start": [90.0, 91, 95], "change": [-1, 0, -5]}
    )
    row = summaries.seed_intervals(table).iloc[0]
    columns = ["seeds", "start", "change", "smallest", "largest"]
    assert row[columns].tolist() == [3, 92, -2, -5, 0]
    low, high = student.interval(0.95, 2, -2, np.std([-1, 0, -5], ddof=1) / 3**0.5)
    assert (row["ci_low"], row["ci_high"]) == pytest.approx((low, high))


def ablation(one, other, task="a"):
    heads = pd.DataFrame({"task": task, "layer": 1, "head": range(1, len(one) + 1)})
    return heads.assign(first_change=one, change_one=one, change_other=other)


def test_correlations_of_values_and_ranks_with_and_without_the_largest_effects():
    one, noise = np.random.default_rng(0).normal(size=(2, 40))
    large = noise.copy()
    one[[3, 8]], large[[3, 8]] = -20, -30  # two heads make a correlation, not of ranks
    both = pd.concat([ablation(one, 2 * one + 0.1 * noise), ablation(one, large, "b")])
    table = summaries.cross_data(summaries.paired_changes(both), seed=0)
    assert table["set"].unique().tolist() == [summaries.HALVES]
    found = table.set_index(["task", "heads"])
    assert (found.loc["a", ["correlation_low", "rank_correlation_low"]] > 0.9).all(axis=None)
    noisy = found.loc["b"]
    assert noisy.loc["all", "correlation"] == pytest.approx(np.corrcoef(one, large)[0, 1])
    assert noisy.loc["all", "correlation"] > 0.9
    rest = noisy.loc[summaries.WITHOUT_OUTLIERS]
    left = np.delete([one, large], [3, 8], axis=1)
    assert rest["correlation"] == pytest.approx(np.corrcoef(left)[0, 1])
    assert rest["rank_correlation"] == pytest.approx(spearmanr(*left).statistic)
    assert rest["correlation_low"] < 0 < rest["correlation_high"]


def test_a_second_test_set_has_rows_of_its_own_and_no_change_no_correlation():
    one = np.arange(6.0)
    changes = summaries.paired_changes(ablation(one, one * 0), ablation(one[::-1], one).iloc[::-1])
    table = summaries.cross_data(changes, seed=0).set_index(["set", "heads"])["correlation"]
    assert table[summaries.OTHER_CORPUS, "all"] == pytest.approx(-1)
    assert np.isnan(table[summaries.HALVES]).all()


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
