"""Tab-separated tasks: files that are read, and the messages for files that are not."""

import pytest
from toy_corpora import write

from beyond.papers.common.tasks import Pair, Task, read_task
from helpers.errors import CorpusError

GOOD = "good film\tyes\nbad film\tno\nso so\tno\n"


def read(folder, train, test=None):
    return read_task(write(folder, "t.tsv", train), write(folder, "d.tsv", test or train))


def test_read_task_of_single_texts(tmp_path):
    pairs = (Pair(("good film",), 1), Pair(("bad film",), 0), Pair(("so so",), 0))
    assert read(tmp_path, GOOD) == Task("t", ("no", "yes"), train=pairs, test=pairs)
    (tmp_path / "RTE").mkdir()
    train = write(tmp_path / "RTE", "train.tsv", GOOD)
    assert read_task(train, train).name == "RTE"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("a b\tc d\t1\n\ne f\tg h\t0\n", Pair(("a b", "c d"), 1)),
        (  # MRPC, with the byte order mark and the bare quote of its files
            "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n"
            '1\t7\t8\tA "film .\tB\r\n0\t7\t8\tC\tD\r\n',
            Pair(('A "film .', "B"), 1),
        ),
        ("index\tquestion\tsentence\tlabel\n0\tA\tB\tno\n1\tC\tD\tyes\n", Pair(("A", "B"), 0)),
        ("sentence\tsentence\tlabel\nA\tB\t1\nC\tD\t0\n", Pair(("A", "B"), 1)),
        ("label\tid\ttext\n1\t7\tA\n0\t8\tB\n", Pair(("A",), 1)),
        ("premise\thypothesis\tlabel\nA\tB\t1\nC\tD\t0\n", Pair(("A", "B"), 1)),
        ("gj04\t1\t\tA .\ngj04\t0\t*\tB .\n", Pair(("A .",), 1)),  # CoLA
    ],
)
def test_read_task_finds_the_columns_of_glue_files(tmp_path, content, expected):
    assert read(tmp_path, content).train[0] == expected


@pytest.mark.parametrize(
    ("train", "test", "message"),
    [
        ("good\tyes\nbad\n", GOOD, r"t\.tsv:2: not 2 columns"),
        ("good\tyes\n\n\tno\n", GOOD, r"t\.tsv:3: .*is empty"),
        ("1\t2\t3\t4\t5\n", GOOD, r"t\.tsv:1: 5 columns"),
        ("index\tsentence\n0\tA\n", GOOD, r"t\.tsv:1: .*no label"),
        ("\n", GOOD, r"t\.tsv: no examples"),
        (
            "review\tstars\n" + "A\tgood\nB\tbad\n" * 2,
            GOOD,
            r"t\.tsv:1: .*'stars', as if .* a header",
        ),
        (GOOD, "Kritik\tNote\n" + GOOD, r"d\.tsv:1: .*'Note', as if .* a header"),
        ("good\tyes\nbad\tyes\n", GOOD, r"t\.tsv: 1 labels in 2 examples"),
        ("".join(f"t\t{n / 7}\n" for n in range(20)), GOOD, r"t\.tsv: .*not scores"),
        (GOOD, "fine\tyes\nhm\tmaybe\n", r"d\.tsv:2: .*'maybe' is not in t\.tsv"),
        (GOOD, "a\tb\tyes\n", r"d\.tsv: 2 texts, t\.tsv has 1"),
    ],
)
def test_read_task_of_a_wrong_file_names_the_line(tmp_path, train, test, message):
    with pytest.raises(CorpusError, match=message):
        read(tmp_path, train, test)


def test_read_task_prints_its_columns_and_classes(tmp_path, capsys):
    read(tmp_path, "label\ttext\n1\tA\n0\tB\n1\tC\n", GOOD.replace("yes", "1").replace("no", "0"))
    assert capsys.readouterr().out.splitlines() == [
        "t.tsv: the text is column 2 ('text'), the label column 1 ('label')",
        "d.tsv: the text is column 1 ('good film'), the label column 2 ('1')",
        "t.tsv: 2 classes of 3 texts: '0' (1), '1' (2)",
    ]


def test_read_task_skips_and_counts_a_few_damaged_lines(tmp_path, capsys):
    intact = "A\tB\t1\nC\tD\t0\n" * 100
    assert read(tmp_path, intact + "E\tF\n", intact).train == read(tmp_path, intact).train
    assert "1 damaged lines are skipped, the first is line 201" in capsys.readouterr().err


def test_sample_keeps_the_order_and_depends_on_the_seed():
    pairs = tuple(Pair((f"{number:02}",), number % 2) for number in range(40))
    task = Task("toy", ("a", "b"), train=pairs, test=pairs[:8])
    sample = task.sample(10, seed=1)
    assert (len(sample.train), sample.test) == (10, task.test)
    assert sample.train == tuple(sorted(sample.train, key=lambda pair: pair.texts))
    assert sample == task.sample(10, seed=1) != task.sample(10, seed=2)
    assert task.sample(None, seed=1) == task
