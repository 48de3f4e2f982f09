"""Summaries of the tables of pruning, compared with values by hand."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr
from scipy.stats import t as student
from toy_corpora import conllu

from helpers.data.corpora import resolve_treebank
from helpers.store.extract import extract
from helpers.studies.common.fine_tune import FineTuningRun, Recipe, fine_tune
from helpers.studies.common.tasks import Pair, Task
from helpers.studies.common.wikipedia_tasks import LABELS, NUMBER
from helpers.studies.michel2019 import summaries

LAYERS = 3
HEADS = 4


def test_seed_intervals_are_means_with_students_t():
    table = pd.DataFrame(
        {"task": "a", "pruned": 20, "start": [90.0, 91, 95], "change": [-1, 0, -5]}
    )
    row = summaries.seed_intervals(table).iloc[0]
    columns = ["seeds", "start", "change", "smallest", "largest"]
    assert row[columns].tolist() == [3, 92, -2, -5, 0]
    standard_error = np.std([-1, 0, -5], ddof=1) / 3**0.5
    expected = student.interval(0.95, 2, -2, standard_error)
    assert (row["change_low"], row["change_high"]) == pytest.approx(expected)


def ablation(first, second, task="a"):
    """Make a table of ablation with changes on two halves of the articles."""
    heads = pd.DataFrame({"task": task, "layer": 1, "head": range(1, len(first) + 1)})
    return heads.assign(first_change=first, change_one=first, change_other=second)


def test_cross_data_of_correlated_changes_has_high_intervals():
    first, noise = np.random.default_rng(0).normal(size=(2, 40))
    changes = summaries.paired_changes(ablation(first, 2 * first + 0.1 * noise))
    table = summaries.cross_data(changes, seed=0)
    assert set(table["set"]) == {summaries.HALVES}
    assert set(table["heads"]) == {summaries.ALL_HEADS, summaries.WITHOUT_OUTLIERS}
    assert (table[["correlation_low", "rank_correlation_low"]] > 0.9).all(axis=None)


def test_cross_data_shows_a_correlation_that_two_heads_make():
    first, second = np.random.default_rng(0).normal(size=(2, 40))
    outliers = [3, 8]
    first[outliers] = -20
    second[outliers] = -30
    changes = summaries.paired_changes(ablation(first, second))
    table = summaries.cross_data(changes, seed=0).set_index("heads")
    all_heads = table.loc[summaries.ALL_HEADS]
    assert all_heads["correlation"] == pytest.approx(np.corrcoef(first, second)[0, 1])
    assert all_heads["correlation"] > 0.9
    rest = table.loc[summaries.WITHOUT_OUTLIERS]
    first_rest = np.delete(first, outliers)
    second_rest = np.delete(second, outliers)
    assert rest["correlation"] == pytest.approx(np.corrcoef(first_rest, second_rest)[0, 1])
    spearman = spearmanr(first_rest, second_rest).statistic
    assert rest["rank_correlation"] == pytest.approx(spearman)
    assert rest["correlation_low"] < 0 < rest["correlation_high"]


def test_cross_data_of_another_corpus_pairs_heads_by_name():
    first = np.arange(6.0)
    elsewhere = ablation(first[::-1], first).iloc[::-1]
    changes = summaries.paired_changes(ablation(first, first), elsewhere)
    table = summaries.cross_data(changes, seed=0).set_index(["set", "heads"])
    row = table.loc[(summaries.OTHER_CORPUS, summaries.ALL_HEADS)]
    assert row["correlation"] == pytest.approx(-1)


def test_cross_data_without_any_change_is_nan():
    first = np.arange(6.0)
    changes = summaries.paired_changes(ablation(first, np.zeros(6)))
    assert summaries.cross_data(changes, seed=0)["correlation"].isna().all()


@pytest.fixture
def encoder(tiny_encoder):
    return tiny_encoder("bert")


@pytest.fixture
def treebank_store(encoder, tmp_path):
    """Extract twenty copies each of a sentence with a singular and one with a plural subject."""
    sentences = []
    for noun, verb in (("cat", "sat"), ("cats", "sit")):
        words = [
            (1, "The", 2, "det"), (2, noun, 3, "nsubj"),
            (3, verb, 0, "root"), (4, "in", 3, "advmod"),
        ]  # fmt: skip
        sentences.append(words)
    path = tmp_path / "trees.conllu"
    path.write_text(conllu(*sentences, times=20))
    return extract(encoder, resolve_treebank(str(path)), level="word", max_tokens=32)


def toy_run(encoder, name):
    """Make a run on a task that asks whether a text is about a cat or about dogs."""
    pairs = []
    for noun in ("cat", "dogs"):
        for letter in "abcdefghi":
            source = f"article {len(pairs) % 5}"
            pairs.append(Pair(f"the {noun} sat {letter}", None, int(noun == "dogs"), source))
    task = Task(name, LABELS[NUMBER], train=tuple(pairs), test=tuple(pairs))
    return FineTuningRun(encoder, task, Recipe(max_tokens=16, epochs=1))


def test_on_treebank_scores_tasks_of_grammar_on_different_sentences(encoder, treebank_store):
    runs = fine_tune([toy_run(encoder, NUMBER)])
    table = summaries.on_treebank(runs, treebank_store, seed=0)
    assert set(table["task"]) == {NUMBER}
    assert len(table) == LAYERS * HEADS
    assert (table["examples"] == 2).all()  # copies of a sentence count once


def test_on_treebank_of_tasks_without_grammar_is_none(encoder, treebank_store):
    run = toy_run(encoder, "a task of the user")
    assert summaries.on_treebank([run], treebank_store, seed=0) is None
