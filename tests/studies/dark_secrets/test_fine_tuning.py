"""Notebook 07's tables on a tiny model: complete, repeatable, kept, and what they say they are."""

import numpy as np
import pytest

from helpers.errors import InputError
from helpers.studies import fine_tune
from helpers.studies import runs as task_runs
from helpers.studies.dark_secrets import fine_tuning, links, patterns
from helpers.studies.dark_secrets.patterns import CLASSES
from helpers.study import Study

TASKS = ["next paragraph", "order", "article"]
LAYERS, HEADS = 3, 4


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
    row = "{}\t{}\t_\tX\t_\t_\t{}\t{}\t_\t_"
    sentence = [(1, "The", 2, "det"), (2, "cat", 4, "nsubj"), (3, "always", 4, "advmod"),
                (4, "likes", 0, "root"), (5, "the", 6, "det"), (6, "coffee", 4, "obj"),
                (7, "here", 4, "advmod")]  # fmt: skip
    block = "\n".join(row.format(*word) for word in sentence) + "\n\n"
    (folder / "trees.conllu").write_text(block * 12)
    (folder / "train.tsv").write_text("the cat\tcats\nthe dog\tdogs\n" * 12)
    (folder / "test.tsv").write_text("a cat\tcats\na dog\tdogs\nrain\tdogs\n")
    return folder


@pytest.fixture(scope="module")
def study(tiny_folder, files, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATTENTION_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("ATTENTION_HEADLESS", "1")
        yield make(tiny_folder, files)


def make(tiny_folder, files, **settings):
    defaults = {
        "model": str(tiny_folder("bert")), "text": str(files / "text.txt"), "segments": 6,
        "treebank": str(files / "trees.conllu"), "sentences": 12, "task_examples": 12,
        "max_tokens": 48, "device": "cpu",
    }  # fmt: skip
    return Study(**(defaults | settings))


def test_accuracies_are_those_of_the_runs_from_both_starts(study):
    table = fine_tuning.accuracy_table(study)
    assert table["task"].tolist() == TASKS * 2
    assert table["start"].tolist() == ["pretrained"] * 3 + ["random"] * 3
    own, control = task_runs.fine_tuned(study), task_runs.fine_tuned_controls(study)
    expected = [100 * run.accuracy for runs in (own, control) for run in runs.values()]
    assert table["accuracy"].tolist() == expected
    assert ((table["ci_low"] <= table["accuracy"]) & (table["accuracy"] <= table["ci_high"])).all()
    assert table["train"].tolist()[:2] == [12, 12] and table["test"].tolist()[:2] == [3, 3]


def test_the_control_keeps_the_embeddings_and_nothing_else(study):
    own, control = study.encoder.model.base_model, task_runs.control_encoder(study).model.base_model
    for name, weight in own.state_dict().items():
        same = np.array_equal(weight, control.state_dict()[name])
        assert same == (name.startswith("embeddings") or weight.unique().numel() == 1), name


def test_similarity_has_a_row_for_each_head_and_task(study):
    table = fine_tuning.similarity_table(study)
    assert len(table) == 3 * LAYERS * HEADS
    assert table["layer"].max() == LAYERS and table["head"].max() == HEADS
    values = table[["similarity", "similarity_random"]]
    assert ((values > 0) & (values <= 1 + 1e-9)).all().all()
    assert (values < 1 - 1e-9).any().all()


def test_disabling_has_a_row_for_each_head_and_layer(study):
    table = fine_tuning.disabled_table(study)
    assert len(table) == 3 * LAYERS * (HEADS + 1)
    runs = task_runs.fine_tuned(study)
    for task, rows in table.groupby("task"):
        whole = 100 * runs[task].accuracy
        assert np.allclose(rows["accuracy"] - whole, rows["change"])
        assert (rows["head"] == 0).sum() == LAYERS


def test_patterns_of_text_and_tasks_before_and_after(study):
    table = patterns.pattern_table(study)
    groups = table.groupby(["task", "weights"], sort=False).size()
    assert groups.index.tolist() == [(patterns.TEXT, "pretrained")] + [
        (task, weights) for task in TASKS for weights in ("pretrained", "fine-tuned")
    ]
    assert (groups == LAYERS * HEADS).all()
    assert np.allclose(table[list(CLASSES)].sum(axis=1), 1)


def test_typical_maps_are_maps_of_the_model(study):
    found = patterns.typical_maps(study)
    assert 1 <= len(found) <= len(CLASSES)
    for drawn in found:
        assert drawn.name.rpartition(" (")[0] in CLASSES
        assert np.allclose(drawn.weights.sum(axis=1), 1, atol=1e-4)
        assert drawn.weights.shape == (len(drawn.special),) * 2


def test_links_of_the_treebank(study):
    table = links.link_table(study)
    assert len(table) == LAYERS * HEADS
    assert (table["sentences"] == len(study.treebank_store())).all()
    # By hand: the links at least two words apart are (likes, cat) and (likes, coffee).
    store = study.treebank_store()
    expected = []
    for example in store:
        words = example.attention[:, :, 1:8, 1:8].astype(float)
        pairs = [words[..., 3, 1], words[..., 1, 3], words[..., 3, 5], words[..., 5, 3]]
        expected.append(np.max(pairs, axis=0))
    assert np.allclose(table["linked"], np.mean(expected, axis=0).ravel())


def test_links_of_framenet(study, tiny_folder, files, tmp_path):
    text = "The cat always likes the coffee here"
    labels = (
        '<layer name="Target"><label name="Target" start="15" end="19"/></layer>'
        '<layer name="FE"><label name="Experiencer" start="0" end="6"/></layer>'
    )
    sets = f'<annotationSet frameName="Desire">{labels}</annotationSet>'
    sentence = f'<sentence ID="1"><text>{text}</text>{sets}</sentence>'
    path = tmp_path / "doc.xml"
    path.write_text(f"<fullTextAnnotation>{sentence}</fullTextAnnotation>")
    table = links.link_table(make(tiny_folder, files, framenet=str(path)))
    assert (table["sentences"] == 1).all() and len(table) == LAYERS * HEADS


def test_no_links_to_look_at(study, tiny_folder, files, tmp_path):
    row = "1\tYes\t_\tX\t_\t_\t0\troot\t_\t_\n\n"
    path = tmp_path / "short.conllu"
    path.write_text(row * 12)
    with pytest.raises(InputError, match=r"none of \d+ sentences has a predicate"):
        links.link_table(make(tiny_folder, files, treebank=str(path)))


def test_what_is_computed_once_is_kept(study, monkeypatch):
    tables = [
        function(study)
        for function in (fine_tuning.similarity_table, fine_tuning.disabled_table,
                         patterns.pattern_table, links.link_table)
    ]  # fmt: skip
    for name in ("_similarity", "disabling_table"):
        monkeypatch.setattr(fine_tuning, name, None)
    monkeypatch.setattr(patterns, "_patterns", None)
    monkeypatch.setattr(links, "_count_links", None)
    monkeypatch.setattr(fine_tune, "_train", None)
    assert tables[0].equals(fine_tuning.similarity_table(study))
    assert tables[1].equals(fine_tuning.disabled_table(study))
    assert tables[2].equals(patterns.pattern_table(study))
    assert tables[3].equals(links.link_table(study))


# The user's own task


def test_a_task_of_the_users(study, tiny_folder, files):
    own = make(tiny_folder, files, task=f"{files / 'train.tsv'},{files / 'test.tsv'}")
    table = fine_tuning.accuracy_table(own)
    assert table["task"].tolist() == ["train"] * 2
    assert table["train"].tolist() == [12] * 2 and table["test"].tolist() == [3] * 2


@pytest.mark.parametrize("task", ["one.tsv", "a,b,c"])
def test_a_task_that_is_not_two_files(tiny_folder, files, task):
    with pytest.raises(InputError, match=r"expected TRAIN\.tsv,TEST\.tsv"):
        task_runs.tasks(make(tiny_folder, files, task=task))


def test_a_tasks_file_that_does_not_exist(tiny_folder, files):
    with pytest.raises(InputError, match=r"none\.tsv: does not exist"):
        task_runs.tasks(make(tiny_folder, files, task="none.tsv,none.tsv"))


def test_all_examples(tiny_folder, files):
    tasks = task_runs.tasks(make(tiny_folder, files, task_examples=0))
    assert len(tasks["order"].train) + len(tasks["order"].test) == 6 * 5
