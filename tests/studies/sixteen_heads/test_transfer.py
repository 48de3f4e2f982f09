"""Heads that matter on two test sets, and heads of subjects and objects, checked by hand."""

import numpy as np
import pandas as pd
import pytest
from toy_corpora import conllu

from helpers.data.corpora import resolve_treebank
from helpers.store.extract import extract
from helpers.studies.fine_tune import FineTuned, Recipe, fine_tune
from helpers.studies.sixteen_heads import transfer
from helpers.studies.tasks import Pair, Task
from helpers.studies.wikipedia_tasks import LABELS, NUMBER, SHIFT

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
