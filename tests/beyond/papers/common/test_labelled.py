"""Labelled texts, and the two files of --task."""

import pytest

from beyond.papers.common.labelled import LabelledText, read_labelled, task_files
from helpers.errors import InputError


def test_read_labelled_numbers_the_lines_of_the_file(tmp_path):
    path = tmp_path / "dev.tsv"
    path.write_text("sentence\tlabel\nThe cat sat .\t1\n\nrain\t0\n")
    assert read_labelled(path) == [
        LabelledText(2, ["The cat sat ."], "1"),
        LabelledText(4, ["rain"], "0"),
    ]


@pytest.mark.parametrize("task", ["a.tsv", "a.tsv,b.tsv,c.tsv"])
def test_task_files_refuses_any_other_number_of_files_than_two(task):
    with pytest.raises(InputError, match=r"write TRAIN\.tsv,TEST\.tsv"):
        task_files(task)


def test_task_files_lists_the_training_file_first(tmp_path):
    files = [tmp_path / "train.tsv", tmp_path / "dev.tsv"]
    assert task_files(f"{files[0]}, {files[1]}") == files
