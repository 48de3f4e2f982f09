"""The user's task, or those of a text, for both of the notebooks that fine-tune."""

from dataclasses import replace

import pytest

from helpers.errors import InputError
from helpers.studies import fine_tune as runs
from helpers.studies.fine_tune import tasks_of as tasks


@pytest.fixture
def files(tmp_path):
    (tmp_path / "train.tsv").write_text("the cat\tcats\nthe dog\tdogs\n" * 12)
    (tmp_path / "test.tsv").write_text("a cat\tcats\na dog\tdogs\nrain\tdogs\n")
    documents = (
        "\n".join(
            f"The {subject} in paragraph {number} sat on the mat. "
            f"It was, by all accounts, a lazy {subject} that watched number {number}."
            for number in range(6)
        )
        for subject in ("cat", "dog", "rain", "winter", "reader", "coffee")
    )
    (tmp_path / "text.txt").write_text("\n\n".join(documents))
    return tmp_path


def test_a_task_of_the_users(files):
    (own,) = tasks(f"{files / 'train.tsv'}, {files / 'test.tsv'}", "", examples=12, seed=0)
    assert (own.name, len(own.train), len(own.test)) == ("train", 12, 3)


@pytest.mark.parametrize("task", ["one.tsv", "a,b,c"])
def test_a_task_that_is_not_two_files(task):
    with pytest.raises(InputError, match=r"expected TRAIN\.tsv,TEST\.tsv"):
        tasks(task, "", examples=12, seed=0)


def test_a_tasks_file_that_does_not_exist():
    with pytest.raises(InputError, match=r"none\.tsv: does not exist"):
        tasks("none.tsv,none.tsv", "", examples=12, seed=0)


def test_all_examples(files, monkeypatch):
    monkeypatch.setenv("ATTENTION_CACHE", str(files / "cache"))
    found = {task.name: task for task in tasks("", str(files / "text.txt"), examples=0, seed=0)}
    assert len(found["next paragraph"].train) + len(found["next paragraph"].test) == 6 * 5


def test_the_small_profile_has_a_task_of_two_texts_and_one_of_one(tiny_encoder, monkeypatch):
    found = {name: name for name in (runs.NEXT, *runs.SEEDED)}
    monkeypatch.setattr(runs, "wikipedia_tasks", lambda *_, **__: found)

    def planned():
        some = tasks.__wrapped__("", "", examples=12, seed=0)
        several = runs._planned(tiny_encoder("bert"), some, 0, 128, 0)
        return [run.task for run in several], {run.recipe.max_tokens for run in several}

    assert planned() == (list(found), {64})
    monkeypatch.setenv("ATTENTION_PROFILE", "small")
    assert planned() == ([runs.NEXT, runs.NUMBER], {32})


def test_seeds_are_compared_on_two_tasks_and_the_first_is_the_notebooks_own(
    files, tiny_encoder, monkeypatch
):
    monkeypatch.setenv("ATTENTION_CACHE", str(files / "cache"))
    (own,) = tasks(f"{files / 'train.tsv'},{files / 'test.tsv'}", "", examples=4, seed=0)
    several = [replace(own, name=name) for name in ("other", *runs.SEEDED)]
    encoder = tiny_encoder("bert")
    found = runs.over_seeds(encoder, several, [3, 4], max_tokens=16)
    assert {seed: [run.task.name for run in some] for seed, some in found.items()} == {
        3: list(runs.SEEDED), 4: list(runs.SEEDED)
    }  # fmt: skip
    first, *_ = runs.fine_tuned(encoder, several[1:2], seed=3, max_tokens=16)
    assert first.folder == found[3][0].folder != found[4][0].folder
    weights = [run.classifier.head.weight for run in (found[3][0], found[4][0])]
    assert not weights[0].equal(weights[1])
    alone = runs.over_seeds(encoder, [own], [3], max_tokens=16)  # a task of the user's
    assert [run.task.name for run in alone[3]] == ["train"]
