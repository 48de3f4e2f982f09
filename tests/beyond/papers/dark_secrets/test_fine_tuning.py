"""The tables of notebook 07 on a tiny model, compared with values by hand."""

from itertools import product

import numpy as np
import pytest
import torch

from beyond.papers.common import fine_tune
from beyond.papers.common.classifier import batches
from beyond.papers.common.head_removal import split_test, uniform_attention, uniform_change
from beyond.papers.dark_secrets import fine_tuning, patterns
from beyond.papers.dark_secrets.maps import text_maps
from helpers.model.loading import load_model

TASKS = ["next paragraph", "bigram shift"]
HEADS = 3 * 4


@pytest.fixture(scope="module")
def runs(tiny_folder, tmp_path_factory):
    """Fine-tune a model and its control on tasks made from a text."""
    text = tmp_path_factory.mktemp("text")
    for subject in ("cat", "dog", "rain", "winter", "reader", "coffee"):
        line = f"The {subject} in paragraph {{}} sat on the mat. It was a lazy {subject}."
        (text / f"{subject}.txt").write_text("\n".join(map(line.format, range(6))))
    tasks = fine_tune.load_tasks("", str(text), examples=12, seed=0, quick=False)
    runs = {}
    for start, options in (("pretrained", {}), ("random", {"random_init": 0})):
        encoder = load_model(str(tiny_folder("bert")), device="cpu", **options)
        runs[start] = fine_tune.fine_tune_tasks(encoder, tasks, max_tokens=48, seed=0)
    return runs


def test_accuracy_table_has_each_task_under_each_condition(runs):
    table = fine_tuning.accuracy_table(*runs.values()).set_index(["task", "start"])
    baselines = ["most frequent label", "bag of words"]
    starts = ["pretrained", "random", *baselines, "classifier alone"]
    assert table.index.tolist() == [*product(TASKS, starts)]
    for start, number in product(runs, range(2)):
        run = runs[start][number]
        row = table.loc[(run.task.name, start)]
        assert row["accuracy"] == pytest.approx(100 * np.mean(run.predictions == run.labels))
        assert row["accuracy_low"] < row["accuracy"] < row["accuracy_high"]
        assert row["test"] == len(run.task.test)
    for task, rows in table.groupby("task"):
        to_beat = rows["accuracy"].loc[task].loc[baselines].max()
        is_learned = rows["accuracy_low"].loc[task, "pretrained"] > to_beat
        assert (rows["learned"] == is_learned).all()


def test_similarity_is_the_cosine_of_maps_as_vectors(runs):
    before = np.array([[[[1, 0], [0.5, 0.5]]] * 3], dtype=np.float16)
    after = before.copy()
    after[0, 1:, 0] = [[0, 1]]
    after[0, 2, 1] = 0
    similarity = fine_tuning.map_similarity(before, after)
    assert np.allclose(similarity, [[1, 0.5 / 1.5, 0]])
    table = fine_tuning.similarity_table(runs["pretrained"])
    assert table["task"].to_list() == [TASKS[0]] * HEADS + [TASKS[1]] * HEADS
    run = runs["pretrained"][1]
    maps = [
        list(text_maps(model, run.task.test, max_tokens=48))
        for model in (run.encoder, run.fine_tuned_encoder())
    ]
    similarities = [fine_tuning.map_similarity(a[0], b[0]) for a, b in zip(*maps, strict=True)]
    np.testing.assert_allclose(table["similarity"][HEADS:], np.mean(similarities, axis=0).ravel())
    assert (table["similarity"] < 1 - 1e-9).any()


@torch.no_grad()
def test_uniform_change_is_that_of_full_passes(runs):
    run = runs["pretrained"][0]
    _, scored = split_test(run, 0)

    def accuracy():
        right = []
        for batch, labels, _ in batches(run.encoder, scored, max_tokens=48):
            right += (run.classifier(**batch).argmax(dim=-1) == labels).tolist()
        return 100 * np.mean(right)

    before = accuracy()
    with uniform_attention(run.classifier.encoder, 1, 2):
        expected = accuracy() - before
    assert uniform_change(run, 1, 2, seed=0) == pytest.approx(expected)


def test_pattern_table_and_typical_maps_agree_with_counts_of_single_models(runs):
    segments = list(runs["pretrained"][0].task.test[:4])
    run = runs["pretrained"][1]
    table = patterns.pattern_table(run.encoder, segments, [run], max_tokens=48)
    rows = table.groupby(["task", "weights"], sort=False).size()
    keys = [(patterns.TEXT, "pretrained"), (TASKS[1], "pretrained"), (TASKS[1], "fine-tuned")]
    assert rows.to_dict() == dict.fromkeys(keys, HEADS)
    tuned = text_maps(run.fine_tuned_encoder(), run.task.test, max_tokens=48)
    expected = patterns.pattern_counts(tuned)[[*patterns.CLASSES]]
    np.testing.assert_allclose(table[[*patterns.CLASSES]][-HEADS:], expected)
    (example,) = text_maps(run.encoder, segments[:1], max_tokens=48)
    predicted = patterns.pattern_counts([example]).set_index(["layer", "head"])
    typical = patterns.typical_maps(run.encoder, segments[0])
    assert typical
    for title, typical_map in typical.items():
        pattern, _, label = title.rstrip(")").rpartition(" (")
        layer, head = map(int, label.split("-"))
        assert predicted.loc[(layer, head), pattern] == 1
        assert np.array_equal(typical_map, example.attention[layer - 1, head - 1])
