"""The tables of notebook 07 on a tiny model, compared with values by hand."""

from itertools import product

import numpy as np
import pytest
import torch
from toy_corpora import conllu

from beyond.papers.common import fine_tune
from beyond.papers.common.classifier import batches
from beyond.papers.common.head_removal import split_test, uniform_attention, uniform_change
from beyond.papers.common.tasks import PRETRAINED, RANDOM
from beyond.papers.dark_secrets import fine_tuning, links, patterns
from beyond.papers.dark_secrets.maps import text_maps
from helpers.data.corpora import resolve_treebank
from helpers.data.wikipedia import segments
from helpers.model.loading import load_model
from helpers.store.extract import extract

TASKS = ["next paragraph", "bigram shift"]
LAYERS = 3
HEADS = 4
MAX_TOKENS = 48


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpora")
    (folder / "text").mkdir()
    for subject in ("cat", "dog", "rain", "winter", "reader", "coffee"):
        paragraphs = []
        for number in range(6):
            first_sentence = f"The {subject} in paragraph {number} sat on the mat."
            paragraphs.append(f"{first_sentence} It was a lazy {subject}.")
        (folder / "text" / f"{subject}.txt").write_text("\n".join(paragraphs))
    sentence = [(1, "The", 2, "det"), (2, "cat", 4, "nsubj"), (3, "always", 4, "advmod"),
                (4, "likes", 0, "root"), (5, "the", 6, "det"), (6, "coffee", 4, "obj"),
                (7, "here", 4, "advmod")]  # fmt: skip
    (folder / "trees.conllu").write_text(conllu(sentence, times=12))
    return folder


@pytest.fixture(scope="module")
def models(tiny_folder):
    """Load a model and its control."""
    folder = str(tiny_folder("bert"))
    encoder = load_model(folder, device="cpu")
    control = load_model(folder, device="cpu", random_init=0)
    return encoder, control


@pytest.fixture(scope="module")
def tasks(files):
    return fine_tune.load_tasks("", str(files / "text"), examples=12, seed=0, quick=False)


@pytest.fixture(scope="module")
def runs(models, tasks):
    return fine_tune.fine_tune_tasks(models[0], tasks, max_tokens=MAX_TOKENS, seed=0)


@pytest.fixture(scope="module")
def random_runs(models, tasks):
    return fine_tune.fine_tune_tasks(models[1], tasks, max_tokens=MAX_TOKENS, seed=0)


@pytest.fixture(scope="module")
def store(models, files):
    treebank = resolve_treebank(str(files / "trees.conllu"))
    return extract(models[0], treebank, level="word", max_tokens=MAX_TOKENS)


@pytest.fixture(scope="module")
def accuracy(runs, random_runs):
    return fine_tuning.accuracy_table(runs, random_runs)


def test_accuracy_table_has_each_task_under_each_condition(accuracy):
    conditions = [
        "pretrained", "random", "most frequent label", "bag of words", "classifier alone",
    ]  # fmt: skip
    rows = accuracy[["task", "start"]].to_numpy().tolist()
    assert rows == [[task, start] for task, start in product(TASKS, conditions)]


def test_accuracy_table_has_the_accuracies_of_the_runs(accuracy, runs, random_runs):
    rows = accuracy.set_index(["start", "task"])
    for start, runs_of_start in {PRETRAINED: runs, RANDOM: random_runs}.items():
        for run in runs_of_start:
            row = rows.loc[(start, run.task.name)]
            assert row["accuracy"] == pytest.approx(100 * np.mean(run.predictions == run.labels))
            assert row["accuracy_low"] < row["accuracy"] < row["accuracy_high"]
            assert row["test"] == len(run.task.test)


def test_accuracy_table_calls_tasks_learned_above_both_baselines(accuracy):
    by_start = accuracy.pivot(index="task", columns="start", values=["accuracy", "accuracy_low"])
    best_baseline = by_start["accuracy"][["most frequent label", "bag of words"]].max(axis=1)
    is_learned = by_start["accuracy_low"][PRETRAINED] > best_baseline
    assert (accuracy["learned"] == accuracy["task"].map(is_learned)).all()


def test_map_similarity_is_the_cosine_of_flattened_maps():
    before = np.zeros((1, 3, 2, 2), dtype=np.float16)
    before[0, :] = [[1, 0], [0.5, 0.5]]
    after = np.zeros((1, 3, 2, 2), dtype=np.float16)
    after[0, 0] = before[0, 0]
    after[0, 1] = [[0, 1], [0.5, 0.5]]
    after[0, 2] = [[0, 1], [0, 0]]
    similarity = fine_tuning.map_similarity(before, after)
    assert np.allclose(similarity, [[1, 0.5 / 1.5, 0]])


@pytest.mark.parametrize("start", ["runs", "random_runs"])
def test_similarity_table_has_each_head_and_changes(start, request):
    table = fine_tuning.similarity_table(request.getfixturevalue(start))
    assert len(table) == len(TASKS) * LAYERS * HEADS
    assert table["similarity"].between(0, 1 + 1e-9, inclusive="right").all()
    assert (table["similarity"] < 1 - 1e-9).any()


def test_uniform_change_is_that_of_full_passes(runs):
    run = runs[0]
    _, scored = split_test(run, 0)
    is_right = []
    with uniform_attention(run.classifier.encoder, 1, 2), torch.no_grad():
        for batch, labels, _ in batches(run.encoder, scored, max_tokens=MAX_TOKENS):
            is_right += (run.classifier(**batch).argmax(dim=-1) == labels).tolist()
    with torch.no_grad():
        before = []
        for batch, labels, _ in batches(run.encoder, scored, max_tokens=MAX_TOKENS):
            before += (run.classifier(**batch).argmax(dim=-1) == labels).tolist()
    expected = 100 * (np.mean(is_right) - np.mean(before))
    assert uniform_change(run, 1, 2, seed=0) == pytest.approx(expected)


# Patterns and links of the same model


@pytest.fixture(scope="module")
def text_segments(files):
    return patterns.spread_segments(segments(files / "text", count=6, seed=0))


def test_pattern_table_has_text_and_tasks_before_and_after(models, runs, text_segments):
    encoder, _ = models
    table = patterns.pattern_table(encoder, text_segments, runs, max_tokens=MAX_TOKENS)
    rows = table.groupby(["task", "weights"], sort=False).size()
    assert rows.index.tolist() == [
        (patterns.TEXT, "pretrained"), *product(TASKS, ("pretrained", "fine-tuned")),
    ]  # fmt: skip
    assert (rows == LAYERS * HEADS).all()
    assert np.allclose(table[list(patterns.CLASSES)].sum(axis=1), 1)


def test_typical_maps_are_maps_of_heads_with_their_pattern(models, text_segments):
    encoder, _ = models
    typical = patterns.typical_maps(encoder, text_segments[0])
    (example,) = text_maps(encoder, text_segments[:1], max_tokens=MAX_TOKENS)
    shares = patterns.pattern_counts([example]).set_index(["layer", "head"])
    predicted = shares[list(patterns.CLASSES)].idxmax(axis=1)
    shown = []
    for title, typical_map in typical.items():
        pattern, _, label = title.rstrip(")").rpartition(" (")
        layer, head = map(int, label.split("-"))
        assert predicted[layer, head] == pattern
        assert np.array_equal(typical_map, example.attention[layer - 1, head - 1])
        shown.append(pattern)
    assert shown
    assert len(set(shown)) == len(shown)


def test_treebank_links_are_the_largest_weights_by_hand(store):
    table = links.treebank_links(store, seed=0)
    # The links at least two words apart are (likes, cat) and (likes, coffee).
    largest = []
    for example in store:
        words = example.attention[:, :, 1:8, 1:8].astype(float)
        weights = [words[..., 3, 1], words[..., 1, 3], words[..., 3, 5], words[..., 5, 3]]
        largest.append(np.max(weights, axis=0))
    assert np.allclose(table["linked"], np.mean(largest, axis=0).ravel())
