"""Tab-separated tasks are read as they stand, or refused with the line that is wrong."""

import pandas as pd
import pytest
from toy_corpora import write

from helpers.errors import CorpusError
from helpers.studies.tasks import PRETRAINED, RANDOM, Pair, Task, learned_rows, read_task

GOOD = "good film\tyes\nbad film\tno\nso so\tno\n"


def read(folder, train, test=None):
    return read_task(write(folder, "t.tsv", train), write(folder, "d.tsv", test or train))


def test_single_texts_and_pairs_without_a_header(tmp_path):
    task = read(tmp_path, GOOD)
    assert task.name == "t" and task.labels == ("no", "yes")
    assert task.train == (Pair("good film", None, 1), Pair("bad film", None, 0), task.test[2])
    task = read(tmp_path, "a b\tc d\t1\n\ne f\tg h\t0\n")
    assert task.train == (Pair("a b", "c d", 1), Pair("e f", "g h", 0))
    assert read(tmp_path, "sentence\tsentence\tlabel\na b\tc d\t1\n\ne f\tg h\t0\n") == task


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("sentence\tlabel\nA film .\t1\nB .\t0\n", Pair("A film .", None, 1)),  # SST-2
        (  # MRPC, with the byte order mark and the bare quote of its files
            "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n"
            '1\t7\t8\tA "film .\tB\r\n0\t7\t8\tC\tD\r\n',
            Pair('A "film .', "B", 1),
        ),
        (  # QQP
            "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n1\t2\t3\tA\tB\t1\n1\t2\t3\tC\tD\t0\n",
            Pair("A", "B", 1),
        ),
        (  # QNLI
            "index\tquestion\tsentence\tlabel\n0\tA\tB\tno\n1\tC\tD\tyes\n",
            Pair("A", "B", 0),
        ),
        (  # MNLI has several labels; the agreed one counts
            "index\tsentence1\tsentence2\tlabel1\tgold_label\n0\tA\tB\tx\tno\n1\tC\tD\tx\tyes\n",
            Pair("A", "B", 0),
        ),
        ("gj04\t1\t\tA .\ngj04\t0\t*\tB .\n", Pair("A .", None, 1)),  # CoLA
    ],
)
def test_files_of_glue(tmp_path, content, expected):
    assert read(tmp_path, content).train[0] == expected


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        ("good\tyes\nbad\n", 2, "1 columns, expected 2"),
        ("good\tyes\nbad\tno\tmaybe\n", 2, "3 columns, expected 2"),
        ("good\tyes\n\n\tno\n", 3, "a text or the label is empty"),
        ("1\t2\t3\t4\t5\n", 1, "5 columns; expected sentence<TAB>label"),
        ("only words\n", 1, "1 columns; expected sentence<TAB>label"),
        ("", None, "no examples"),
        ("good\tyes\nbad\tyes\n", None, "1 labels in 2 examples"),
        ("".join(f"t\t{n / 7}\n" for n in range(20)), None, "two classes or more, not scores"),
        (b"good\tyes\n\xff\tno\n", 2, "not UTF-8"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path, content, line, message):
    with pytest.raises(CorpusError) as raised:
        read(tmp_path, content)
    place = "t.tsv" if line is None else f"t.tsv:{line}"
    assert f"{place}: " in str(raised.value) and message in str(raised.value)


@pytest.mark.parametrize(
    ("test", "message"),
    [
        ("fine\tyes\nhm\tmaybe\n", r"d\.tsv:2: the label 'maybe' is not in t\.tsv"),
        ("a\tb\tyes\n", r"d\.tsv:1: 2 texts, t\.tsv has 1"),
    ],
)
def test_what_is_tested_on_is_like_what_is_trained_on(tmp_path, test, message):
    with pytest.raises(CorpusError, match=message):
        read(tmp_path, GOOD, test)


def test_a_task_is_learned_beyond_its_baselines_by_the_models_own_weights():
    rows = [("a", PRETRAINED, True), ("b", PRETRAINED, False), ("b", RANDOM, True)]
    table = pd.DataFrame(rows, columns=["task", "start", "learned"])
    assert learned_rows({"fine_tuning": table}, "fine_tuning").index.tolist() == [0]


def make(train="aab", test="abbb"):
    pairs = ([Pair(f"{i}", None, "ab".index(c)) for i, c in enumerate(p)] for p in (train, test))
    return Task("toy", ("a", "b"), *map(tuple, pairs))


def test_a_majority_of_train_and_a_sample_in_order():
    task = make()
    assert task.majority == 0.25  # of train, on test
    task = make("ab" * 20, "ab" * 4)
    assert task.sample(None, seed=1) == task
    some = task.sample(10, seed=1)
    assert len(some.train) == 10 and some.test == task.test
    assert some == task.sample(10, seed=1) != task.sample(10, seed=2)
    assert [int(pair.first) for pair in some.train] == sorted(int(p.first) for p in some.train)
