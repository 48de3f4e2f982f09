"""Accuracies and similarities before and after fine-tuning, compared with values by hand."""

import numpy as np
import pytest

from beyond.papers.common.fine_tune import fine_tune_tasks
from beyond.papers.dark_secrets import fine_tuning
from helpers.model.loading import load_model


def test_accuracy_table_calls_tasks_learned_above_both_baselines(run, tiny_folder):
    control = load_model(str(tiny_folder("bert")), device="cpu", random_init=0)
    random_runs = fine_tune_tasks(control, [run.task], max_tokens=16, seed=0)
    table = fine_tuning.accuracy_table([run], random_runs).set_index("start")
    assert (table["task"] == "pets").all() and (table["test"] == 30).all()
    for start, trained in (("pretrained", run), ("random", random_runs[0])):
        expected = 100 * np.mean(trained.predictions == trained.labels)
        assert table.loc[start, "accuracy"] == pytest.approx(expected)
    assert (table["accuracy_low"] < table["accuracy"]).all()
    to_beat = table.loc[["most frequent label", "bag of words"], "accuracy"].max()
    assert (table["learned"] == (table.loc["pretrained", "accuracy_low"] > to_beat)).all()


def test_similarity_is_the_cosine_of_maps_as_vectors(run):
    before = np.array([[[[1, 0], [0.5, 0.5]]] * 3], dtype=np.float16)
    after = before.copy()
    after[0, 1:, 0] = [[0, 1]]
    after[0, 2, 1] = 0
    assert np.allclose(fine_tuning.map_similarity(before, after), [[1, 0.5 / 1.5, 0]])
    table = fine_tuning.similarity_table([run])
    assert len(table) == 3 * 4 and table["similarity"].between(0.1, 1 - 1e-9).all()
