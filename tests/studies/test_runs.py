"""The user's task, or those of a text, for both of the notebooks that fine-tune."""

import pytest

from helpers.errors import InputError
from helpers.studies.runs import tasks


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
