"""Notebook 07's tables on a tiny model: complete, repeatable, kept, and what they say they are."""

import numpy as np
import pytest
from toy_corpora import conllu

from helpers.data.corpora import resolve_treebank
from helpers.data.wikipedia import segments
from helpers.errors import InputError
from helpers.model.encoder import load
from helpers.store.extract import extract
from helpers.studies import fine_tune
from helpers.studies.dark_secrets import fine_tuning, links, patterns
from helpers.studies.dark_secrets.links import framenet_sentences
from helpers.studies.dark_secrets.patterns import CLASSES
from helpers.studies.tasks import PRETRAINED, RANDOM

TASKS = ["next paragraph", "bigram shift"]
LAYERS, HEADS, LONGEST = 3, 4, 48


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpora")
    subjects = ("cat", "dog", "rain", "winter", "reader", "coffee")
    documents = (
        "\n".join(
            f"The {subject} in paragraph {number} sat on the mat. "
            f"It was, by all accounts, a lazy {subject} that watched number {number}."
            for number in range(6)
        )
        for subject in subjects
    )
    (folder / "text.txt").write_text("\n\n".join(documents))
    sentence = [(1, "The", 2, "det"), (2, "cat", 4, "nsubj"), (3, "always", 4, "advmod"),
                (4, "likes", 0, "root"), (5, "the", 6, "det"), (6, "coffee", 4, "obj"),
                (7, "here", 4, "advmod")]  # fmt: skip
    (folder / "trees.conllu").write_text(conllu(sentence, times=12))
    (folder / "train.tsv").write_text("the cat\tcats\nthe dog\tdogs\n" * 12)
    (folder / "test.tsv").write_text("a cat\tcats\na dog\tdogs\nrain\tdogs\n")
    return folder


@pytest.fixture(scope="module")
def models(tiny_folder):
    """A model and its control."""
    folder = str(tiny_folder("bert"))
    return load(folder, device="cpu"), load(folder, device="cpu", random_init=0)


@pytest.fixture(scope="module")
def starts(models, files):
    tasks = fine_tune.tasks_of("", str(files / "text.txt"), examples=12, seed=0)
    return fine_tune.from_both_starts(*models, tasks, seed=0, max_tokens=LONGEST)


@pytest.fixture(scope="module")
def texts(files):
    return patterns.spread_segments(segments(files / "text.txt", count=6, seed=0))


def treebank(models, path):
    return extract(models[0], resolve_treebank(str(path)), level="word", max_tokens=LONGEST)


@pytest.fixture(scope="module")
def store(models, files):
    return treebank(models, files / "trees.conllu")


def pattern_table(models, starts, texts):
    return patterns.pattern_table(models[0], texts, starts[PRETRAINED], max_tokens=LONGEST)


def test_accuracies_are_those_of_the_runs_from_both_starts(starts):
    table = fine_tuning.accuracy_table(starts, seed=0)
    assert table["task"].tolist() == TASKS * 3
    conditions = ["pretrained", "random", "classifier alone"]
    assert table["start"].tolist() == np.repeat(conditions, len(TASKS)).tolist()
    expected = [100 * run.accuracy for run in starts[PRETRAINED] + starts[RANDOM]]
    assert table["accuracy"].tolist()[: 2 * len(TASKS)] == pytest.approx(expected)
    best = table[["majority", "bag_of_words"]].max(axis=1)
    assert (table["learned"] == (table["ci_low"] > best)).all()
    assert (table.groupby("task")["bag_of_words"].nunique() == 1).all()
    assert ((table["ci_low"] <= table["accuracy"]) & (table["accuracy"] <= table["ci_high"])).all()
    assert table["train"].tolist()[:2] == [12, 12] and table["test"].tolist()[:2] == [12, 12]


def test_the_control_keeps_the_embeddings_and_nothing_else(starts):
    own, control = (starts[start][0].encoder.model.base_model for start in (PRETRAINED, RANDOM))
    for name, weight in own.state_dict().items():
        same = np.array_equal(weight, control.state_dict()[name])
        assert same == (name.startswith("embeddings") or weight.unique().numel() == 1), name


def test_similarity_has_a_row_for_each_head_and_task(starts):
    table = fine_tuning.similarity_table(starts)
    assert len(table) == len(TASKS) * LAYERS * HEADS
    assert table["layer"].max() == LAYERS and table["head"].max() == HEADS
    values = table[["similarity", "similarity_random"]]
    assert ((values > 0) & (values <= 1 + 1e-9)).all().all()
    assert (values < 1 - 1e-9).any().all()


def test_disabling_has_a_row_for_each_head_and_layer(starts):
    table = fine_tuning.disabling_table(starts[PRETRAINED])
    assert len(table) == len(TASKS) * LAYERS * (HEADS + 1)
    runs = {run.task.name: run for run in starts[PRETRAINED]}
    for task, rows in table.groupby("task"):
        whole = 100 * runs[task].accuracy
        assert np.allclose(rows["accuracy"] - whole, rows["change"])
        assert (rows["head"] == 0).sum() == LAYERS


def test_the_controls_accuracies_count_the_models_own_tasks(starts):
    table = fine_tuning.accuracy_table(starts, seed=0)
    table["learned"] = [task == "bigram shift" for task in table["task"]]
    table.loc[table["start"] == RANDOM, "learned"] = False
    control = fine_tuning.control_accuracy(table)
    assert control["accuracy"].tolist() == table.query("start == 'random'")["accuracy"].tolist()
    assert control["learned"].tolist() == [False, True]
    assert (control["start"] == PRETRAINED).all()


def test_patterns_of_text_and_tasks_before_and_after(models, starts, texts):
    table = pattern_table(models, starts, texts)
    groups = table.groupby(["task", "weights"], sort=False).size()
    assert groups.index.tolist() == [(patterns.TEXT, "pretrained")] + [
        (task, weights) for task in TASKS for weights in ("pretrained", "fine-tuned")
    ]
    assert (groups == LAYERS * HEADS).all()
    assert np.allclose(table[list(CLASSES)].sum(axis=1), 1)


def test_typical_maps_are_maps_of_the_model(models, texts):
    found = patterns.typical_maps(models[0], texts, max_tokens=LONGEST)
    assert 1 <= len(found) <= len(CLASSES)
    for drawn in found:
        assert drawn.name.rpartition(" (")[0] in CLASSES
        assert np.allclose(drawn.weights.sum(axis=1), 1, atol=1e-4)
        assert drawn.weights.shape == (len(drawn.special),) * 2


def test_links_of_the_treebank(store):
    table = links.treebank_links(store, seed=0)
    assert len(table) == LAYERS * HEADS
    assert (table["sentences"] == len(store)).all()
    # By hand: the links at least two words apart are (likes, cat) and (likes, coffee).
    expected = []
    for example in store:
        words = example.attention[:, :, 1:8, 1:8].astype(float)
        pairs = [words[..., 3, 1], words[..., 1, 3], words[..., 3, 5], words[..., 5, 3]]
        expected.append(np.max(pairs, axis=0))
    assert np.allclose(table["linked"], np.mean(expected, axis=0).ravel())


def test_links_of_framenet(models, tmp_path):
    text = "The cat always likes the coffee here"
    labels = (
        '<layer name="Target"><label name="Target" start="15" end="19"/></layer>'
        '<layer name="FE"><label name="Experiencer" start="0" end="6"/></layer>'
    )
    sets = f'<annotationSet frameName="Desire">{labels}</annotationSet>'
    sentence = f'<sentence ID="1"><text>{text}</text>{sets}</sentence>'
    path = tmp_path / "doc.xml"
    path.write_text(f"<fullTextAnnotation>{sentence}</fullTextAnnotation>")
    table = links.framenet_links(models[0], framenet_sentences(path), seed=0)
    assert (table["sentences"] == 1).all() and len(table) == LAYERS * HEADS


def test_no_links_to_look_at(models, tmp_path):
    path = tmp_path / "short.conllu"
    path.write_text(conllu([(1, "Yes", 0, "root")], times=12))
    with pytest.raises(InputError, match="none of the sentences has a predicate"):
        links.treebank_links(treebank(models, path), seed=0)


def test_what_is_computed_once_is_kept(models, starts, texts, store, monkeypatch):
    def tables():
        return [
            fine_tuning.similarity_table(starts),
            fine_tuning.disabling_table(starts[PRETRAINED]),
            pattern_table(models, starts, texts),
            links.treebank_links(store, seed=0),
        ]

    first = tables()
    for name in ("_similarity", "in_looks"):
        monkeypatch.setattr(fine_tuning, name, None)
    monkeypatch.setattr(patterns, "_patterns", None)
    monkeypatch.setattr(links, "link_table", None)
    monkeypatch.setattr(fine_tune, "_train", pytest.fail)
    assert all(one.equals(other) for one, other in zip(first, tables(), strict=True))
    tasks = [run.task for run in starts[PRETRAINED]]
    again = fine_tune.fine_tuned(models[0], tasks, seed=0, max_tokens=LONGEST)
    assert [run.folder for run in again] == [run.folder for run in starts[PRETRAINED]]
