"""Tab-separated tasks: files that are read, and the messages for files that are not."""

import pandas as pd
import pytest
from toy_corpora import write

from beyond.papers.common.tasks import PRETRAINED, RANDOM, Pair, Task, learned_rows, read_task
from helpers.errors import CorpusError

GOOD = "good film\tyes\nbad film\tno\nso so\tno\n"


def read(folder, train, test=None):
    return read_task(write(folder, "t.tsv", train), write(folder, "d.tsv", test or train))


def test_read_task_of_single_texts(tmp_path):
    task = read(tmp_path, GOOD)
    assert task.name == "t"
    assert task.labels == ("no", "yes")
    good = Pair(("good film",), 1)
    bad = Pair(("bad film",), 0)
    neutral = Pair(("so so",), 0)
    assert task.train == task.test == (good, bad, neutral)


def test_read_task_of_text_pairs_with_and_without_header(tmp_path):
    rows = "a b\tc d\t1\n\ne f\tg h\t0\n"
    task = read(tmp_path, rows)
    assert task.train == (Pair(("a b", "c d"), 1), Pair(("e f", "g h"), 0))
    assert read(tmp_path, "sentence\tsentence\tlabel\n" + rows) == task


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("sentence\tlabel\nA film .\t1\nB .\t0\n", Pair(("A film .",), 1)),  # SST-2
        (  # MRPC, with the byte order mark and the bare quote of its files
            "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n"
            '1\t7\t8\tA "film .\tB\r\n0\t7\t8\tC\tD\r\n',
            Pair(('A "film .', "B"), 1),
        ),
        (  # QQP
            "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n1\t2\t3\tA\tB\t1\n1\t2\t3\tC\tD\t0\n",
            Pair(("A", "B"), 1),
        ),
        (  # QNLI
            "index\tquestion\tsentence\tlabel\n0\tA\tB\tno\n1\tC\tD\tyes\n",
            Pair(("A", "B"), 0),
        ),
        (  # MNLI has several labels; the agreed one counts
            "index\tsentence1\tsentence2\tlabel1\tgold_label\n0\tA\tB\tx\tno\n1\tC\tD\tx\tyes\n",
            Pair(("A", "B"), 0),
        ),
        ("gj04\t1\t\tA .\ngj04\t0\t*\tB .\n", Pair(("A .",), 1)),  # CoLA
    ],
)
def test_read_task_of_glue_files(tmp_path, content, expected):
    assert read(tmp_path, content).train[0] == expected


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        ("good\tyes\nbad\n", 2, "not 2 columns as in the first line"),
        ("good\tyes\nbad\tno\tmaybe\n", 2, "not 2 columns as in the first line"),
        ("good\tyes\n\n\tno\n", 3, "a text or the label is empty"),
        ("1\t2\t3\t4\t5\n", 1, "5 columns; expected sentence<TAB>label"),
        ("only words\n", 1, "1 columns; expected sentence<TAB>label"),
        ("index\tsentence\n0\tA\n", 1, "names no label .*use dev.tsv"),  # test.tsv
        ("sentence1\tsentence2\tscore\nA\tB\t3.8\n", 1, "scores, as in STS-B, are no labels"),
        ("", None, "no examples"),
        ("good\tyes\nbad\tyes\n", None, "1 labels in 2 examples"),
        ("".join(f"t\t{n / 7}\n" for n in range(20)), None, "two classes or more, not scores"),
        (b"good\tyes\n\xff\tno\n", 2, "not UTF-8"),
    ],
)
def test_read_task_of_a_wrong_file_names_the_line(tmp_path, content, line, message):
    with pytest.raises(CorpusError, match=message) as raised:
        read(tmp_path, content)
    position = "t.tsv" if line is None else f"t.tsv:{line}"
    assert f"{position}: " in str(raised.value)


def test_read_task_skips_and_counts_a_few_damaged_lines(tmp_path, capsys):
    intact = "A\tB\t1\nC\tD\t0\n" * 100
    task = read(tmp_path, intact + "E\tF\n", intact)
    assert task.train == read(tmp_path, intact).train
    message = "t.tsv: 1 damaged lines are skipped, the first is line 201"
    assert message in capsys.readouterr().err


def test_read_task_names_the_task_after_the_folder_of_a_file_called_train(tmp_path):
    folder = tmp_path / "RTE"
    folder.mkdir()
    train = write(folder, "train.tsv", GOOD)
    assert read_task(train, train).name == "RTE"


@pytest.mark.parametrize(
    ("test", "message"),
    [
        ("fine\tyes\nhm\tmaybe\n", r"d\.tsv:2: the label 'maybe' is not in t\.tsv"),
        ("a\tb\tyes\n", r"d\.tsv: 2 texts, t\.tsv has 1"),
    ],
)
def test_read_task_of_test_file_unlike_train_file_is_refused(tmp_path, test, message):
    with pytest.raises(CorpusError, match=message):
        read(tmp_path, GOOD, test)


def test_learned_rows_are_those_learned_from_pretrained_weights():
    rows = [("a", PRETRAINED, True), ("b", PRETRAINED, False), ("b", RANDOM, True)]
    table = pd.DataFrame(rows, columns=["task", "start", "learned"])
    assert learned_rows({"fine_tuning": table}, "fine_tuning").index.tolist() == [0]


def task_with_labels(train, test):
    """Make a task with one example per letter, "a" or "b"."""

    def make_pairs(letters):
        return tuple(
            Pair((f"{number}",), "ab".index(letter)) for number, letter in enumerate(letters)
        )

    return Task("toy", ("a", "b"), train=make_pairs(train), test=make_pairs(test))


def test_sample_without_a_limit_has_all_examples():
    task = task_with_labels(train="ab" * 20, test="ab" * 4)
    assert task.sample(None, seed=1) == task


def test_sample_keeps_the_order_and_depends_on_the_seed():
    task = task_with_labels(train="ab" * 20, test="ab" * 4)
    sample = task.sample(10, seed=1)
    assert len(sample.train) == 10
    assert sample.test == task.test
    assert sample == task.sample(10, seed=1)
    assert sample != task.sample(10, seed=2)
    positions = [int(pair.texts[0]) for pair in sample.train]
    assert positions == sorted(positions)
