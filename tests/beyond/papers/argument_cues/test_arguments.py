"""Reading arguments and their counterparts; errors name the file and the line."""

import os
from pathlib import Path

import pytest

from beyond.papers.argument_cues import cues
from beyond.papers.argument_cues.arguments import (
    ADVERSARIAL_SUFFIX,
    SPLITS,
    Argument,
    argument_corpus,
    read_arguments,
)
from helpers.errors import CorpusError, InputError

HEADER = ["#id", "warrant0", "warrant1", "correctLabelW0orW1", "reason", "claim", "debateTitle"]
ROWS = [
    ["a", "wet is bad", "wet is good", "0", "It rains.", "Take an umbrella", "Weather"],
    ["b", 'they say "no"', "they do not mind", "1", "We asked.", "Go ahead", "Manners"],
]
CORPORA = os.environ.get("CORPORA_DIR")
NEEDS_ARCT = pytest.mark.skipif(
    not (CORPORA and (Path(CORPORA) / "arct" / "train.tsv").is_file()),
    reason="CORPORA_DIR has no arct/",
)


def write(path, rows, header=HEADER):
    lines = ["\t".join(row) + "\n" for row in [header, *rows]]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def first_row_with(column, value):
    row = list(ROWS[0])
    row[HEADER.index(column)] = value
    return row


def test_read_arguments_of_a_tsv_file_keeps_quotation_marks(tmp_path):
    first, second = read_arguments(write(tmp_path / "dev.tsv", ROWS), split="dev")
    assert first == Argument(
        "a", "Take an umbrella", "It rains.", "wet is bad", "wet is good", 0, "dev"
    )
    assert second.warrants == ('they say "no"', "they do not mind")  # without CSV's quotation
    assert second.label == 1


def test_read_arguments_of_a_csv_file_reads_csv_quoting(tmp_path):
    path = tmp_path / "test-adv-negated.csv"
    header = ["claim", "#id", "warrant0", "warrant1", "reason", "correctLabelW0orW1"]
    row = ["Go", "a", '"they say ""no"""', '"a\tb"', "It is late.", "1"]
    write(path, [row], header)
    (argument,) = read_arguments(path, split="test")
    assert argument.warrants == ('they say "no"', "a b")
    assert (argument.claim, argument.label, argument.adversarial) == ("Go", 1, False)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (first_row_with("correctLabelW0orW1", "2"), "a label that is not 0 or 1"),
        (first_row_with("claim", " "), "an empty cell"),
        (ROWS[0][:-2], "an empty cell"),
        (ROWS[1], "an id that comes twice"),
    ],
)
def test_read_arguments_refuses_a_bad_row_with_its_line(tmp_path, row, message):
    path = write(tmp_path / "train.tsv", [ROWS[1], [""], row])
    with pytest.raises(CorpusError, match=message) as caught:
        read_arguments(path, "train")
    assert str(caught.value).startswith(f"{path}:4: ")


@pytest.mark.parametrize(
    ("header", "rows", "message"),
    [
        (HEADER[:4], [], "no column reason, claim"),
        (HEADER, [], "no argument after the header"),
        ([], [], "not tab-separated"),
        (HEADER, [ROWS[1], [*ROWS[0], "x"]], "Expected 7 fields in line 3, saw 8"),
        (HEADER, [[*ROWS[0], "x"], ROWS[1]], ":2: more cells than the header"),
    ],
)
def test_read_arguments_refuses_a_file_without_its_columns_or_rows(tmp_path, header, rows, message):
    with pytest.raises(CorpusError, match=message):
        read_arguments(write(tmp_path / "a.tsv", rows, header), "train")


def write_corpus(path, header=HEADER, rows=ROWS):
    path.mkdir(parents=True, exist_ok=True)
    for split in SPLITS:
        write(path / f"{split}.tsv", rows, header)
    return path


def test_argument_corpus_makes_counterparts_of_negated_claims(tmp_path):
    rows = [[*row, "Do the opposite"] for row in ROWS]
    corpus = argument_corpus(write_corpus(tmp_path / "mine", [*HEADER, "negatedClaim"], rows))
    counterparts = corpus.part("dev", adversarial=True)
    assert [argument.label for argument in counterparts] == [1, 0]
    original = corpus.part("dev")[0]
    counterpart = counterparts[0]
    assert counterpart.id == "a" + ADVERSARIAL_SUFFIX and counterpart.claim == "Do the opposite"
    assert (counterpart.warrants, counterpart.reason) == (original.warrants, original.reason)


def write_counterparts(folder):
    """Write an adversarial file; the second claim was not negated."""
    folder.mkdir(parents=True)
    header = ["#id", "warrant0", "warrant1", "correctLabelW0orW1", "reason", "claim", "adversarial"]
    first = f"a{ADVERSARIAL_SUFFIX}"
    second = f"b{ADVERSARIAL_SUFFIX}"
    rows = [
        ["a", "wet is bad", "wet is good", "0", "It rains.", "Take an umbrella", "False"],
        ["b", "they say no", "they do not mind", "1", "We asked.", "Go ahead", "False"],
        [first, "wet is bad", "wet is good", "1", "It rains.", "Leave the umbrella", "True"],
        [second, "x", "they do not mind", "0", "We asked.", "Go ahead", "True"],
    ]
    write(folder / "test-adv-negated.csv", rows, header)
    return folder


def test_argument_corpus_leaves_out_counterparts_that_are_not_negated(tmp_path):
    source = write_corpus(tmp_path / "originals")
    write_counterparts(source / "adversarial")
    corpus = argument_corpus(source)
    assert [argument.claim for argument in corpus.adversarial] == ["Leave the umbrella"]
    assert corpus.left_out == 1


def test_argument_corpus_refuses_other_sources(tmp_path):
    with pytest.raises(InputError, match=r"nowhere is neither .*one of arct, arct-adversarial"):
        argument_corpus(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"ud-english-ewt is neither .* argument pairs"):
        argument_corpus("ud-english-ewt")
    write(tmp_path / "train.tsv", ROWS)
    with pytest.raises(CorpusError, match=r"no dev\.tsv; a corpus needs all splits"):
        argument_corpus(tmp_path)


@NEEDS_ARCT
def test_argument_corpus_of_arct_has_the_published_numbers():
    corpus = argument_corpus("arct")
    assert [len(corpus.part(split)) for split in SPLITS] == [1210, 316, 444]
    assert [len(corpus.part(split, adversarial=True)) for split in SPLITS] == [1198, 316, 416]
    assert corpus.left_out == 12 + 28  # their claims were not negated
    table = cues.cue_table(corpus.original).set_index("cue")
    assert table.loc["not", ["productivity", "coverage"]].round(1).tolist() == [66.6, 61.7]
