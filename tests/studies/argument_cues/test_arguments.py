"""Arguments are read as their files say, and what is wrong with a file is said with its line."""

import os
from pathlib import Path

import pytest

from helpers.errors import CorpusError, InputError
from helpers.studies.argument_cues import cues
from helpers.studies.argument_cues.arguments import (
    MARK,
    SPLITS,
    Argument,
    argument_corpus,
    read_arguments,
)

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
    path.write_text("".join("\t".join(row) + "\n" for row in [header, *rows]), encoding="utf-8")
    return path


def changed(column, value):
    row = list(ROWS[0])
    row[HEADER.index(column)] = value
    return row


def test_an_argument_has_its_texts_label_and_split_and_a_csv_file_csv_quoting(tmp_path):
    first, second = read_arguments(write(tmp_path / "dev.tsv", ROWS), split="dev")
    assert first == Argument(
        "a", "Take an umbrella", "It rains.", "wet is bad", "wet is good", 0, "dev"
    )
    assert second.warrants == ('they say "no"', "they do not mind")  # without CSV's quotation
    assert second.label == 1
    path = tmp_path / "test-adv-negated.csv"
    header = ["claim", "#id", "warrant0", "warrant1", "reason", "correctLabelW0orW1", "adversarial"]
    row = ["Go", "a", '"they say ""no"""', '"a\tb"', "It is late.", "1", "False"]
    write(path, [row], header)
    (argument,) = read_arguments(path, split="test")
    assert argument.warrants == ('they say "no"', "a b")
    assert (argument.claim, argument.label, argument.adversarial) == ("Go", 1, False)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (changed("correctLabelW0orW1", "2"), "a label that is not 0 or 1"),
        (changed("claim", " "), "an empty cell"),
        (changed("warrant0", "wet is good"), "both warrants are the same"),
        (ROWS[0][:-2], "an empty cell"),
        (ROWS[1], "an id that comes twice"),
    ],
)
def test_a_bad_row_is_refused_with_its_line(tmp_path, row, says):
    path = write(tmp_path / "train.tsv", [ROWS[1], [""], row])
    with pytest.raises(CorpusError, match=says) as caught:
        read_arguments(path)
    assert str(caught.value).startswith(f"{path}:4: ")


@pytest.mark.parametrize(
    ("header", "rows", "says"),
    [
        (HEADER[:4], [], "no column reason, claim"),
        (HEADER, [], "no argument after the header"),
        ([], [], "not tab-separated"),
        (HEADER, [ROWS[1], [*ROWS[0], "x"]], "Expected 7 fields in line 3, saw 8"),
        (HEADER, [[*ROWS[0], "x"]], "more columns than the header"),
    ],
)
def test_a_file_without_its_columns_or_rows_is_refused(tmp_path, header, rows, says):
    with pytest.raises(CorpusError, match=says):
        read_arguments(write(tmp_path / "a.tsv", rows, header))


def folder_of(path, header=HEADER, rows=ROWS):
    path.mkdir(parents=True, exist_ok=True)
    for split in SPLITS:
        write(path / f"{split}.tsv", rows, header)
    return path


def test_a_folder_with_negated_claims_makes_its_counterparts(tmp_path):
    rows = [[*row, "Do the opposite"] for row in ROWS]
    corpus = argument_corpus(folder_of(tmp_path / "mine", [*HEADER, "negatedClaim"], rows))
    assert [a.label for a in corpus.part("dev", adversarial=True)] == [1, 0]
    original, counterpart = corpus.part("dev")[0], corpus.part("dev", adversarial=True)[0]
    assert counterpart.id == "a" + MARK and counterpart.claim == "Do the opposite"
    assert (counterpart.warrants, counterpart.reason) == (original.warrants, original.reason)


def published(folder):
    """Write an adversarial file; the second claim was left as it was."""
    folder.mkdir(parents=True)
    header = [*HEADER, "adversarial"]
    rows = [[*row, "False"] for row in ROWS]
    rows += [
        ["a" + MARK, *ROWS[0][1:3], "1", ROWS[0][4], "Leave the umbrella", "Weather", "True"],
        ["b" + MARK, "x", *ROWS[1][2:3], "0", *ROWS[1][4:], "True"],
    ]
    rows = [[cell.replace('"', "") for cell in row] for row in rows]
    write(folder / "test-adv-negated.csv", rows, header)
    return folder


def test_published_counterparts_are_found_and_the_unnegated_left_out(tmp_path):
    first, second = folder_of(tmp_path / "mine"), published(tmp_path / "elsewhere")
    whole = folder_of(tmp_path / "whole")
    published(whole / "adversarial")
    for source in (whole, f"{first},{second}"):
        corpus = argument_corpus(source)
        assert [argument.claim for argument in corpus.adversarial] == ["Leave the umbrella"]
        assert corpus.left_out == 1
    with pytest.raises(InputError, match="no adversarial arguments"):
        argument_corpus(f"{first},{first}")


def test_what_is_no_corpus_of_arguments_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"expected a name \(arct, arct-adversarial\) or a folder"):
        argument_corpus(tmp_path / "nowhere")
    with pytest.raises(InputError, match="treebank, not for argument pairs"):
        argument_corpus("ud-english-ewt")
    write(tmp_path / "train.tsv", ROWS)
    with pytest.raises(CorpusError, match=r"no dev\.tsv; a corpus needs all splits"):
        argument_corpus(tmp_path)


@NEEDS_ARCT
def test_the_real_corpus_by_name_has_the_published_numbers(monkeypatch):
    corpus = argument_corpus("arct")
    assert [len(corpus.part(split)) for split in SPLITS] == [1210, 316, 444]
    assert [len(corpus.part(split, adversarial=True)) for split in SPLITS] == [0, 316, 416]
    assert corpus.left_out == 28  # of one claim, which was never negated
    monkeypatch.setattr(cues, "SPLITS", ())  # all of them, and by our rule, alone: it takes long
    monkeypatch.setattr(cues, "RULES", {cues.RULE: cues.RULES[cues.RULE]})
    columns = ["productivity", "coverage", "paper_productivity", "paper_coverage"]
    assert cues.rule_table(corpus)[columns].round(1).to_numpy().tolist() == [[66.6, 61.7, 61, 64]]
