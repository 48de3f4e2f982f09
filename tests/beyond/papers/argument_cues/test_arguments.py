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
ROW = ["a", "wet is bad", "wet is good", "0", "It rains.", "Take an umbrella", "Weather"]
QUOTED = ["b", '"they say ""no"""', '"do\tnot"', "1", "We asked.", "Go ahead", "Manners"]
PLAIN = [*QUOTED[:2], "do not", *QUOTED[3:]]
CORPORA = os.environ.get("CORPORA_DIR")
NEEDS_ARCT = pytest.mark.skipif(
    not (CORPORA and (Path(CORPORA) / "arct" / "train.tsv").is_file()),
    reason="CORPORA_DIR has no arct/",
)


def write(path, rows, header=HEADER):
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ["\t".join(row) + "\n" for row in [header, *rows]]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def test_read_arguments_reads_quotation_marks_as_csv_only_in_a_csv_file(tmp_path):
    first, plain = read_arguments(write(tmp_path / "dev.tsv", [ROW, PLAIN]), "dev")
    texts = ("Take an umbrella", "It rains.", "wet is bad", "wet is good")
    assert first == Argument("a", *texts, label=0, split="dev")
    assert (plain.warrants, plain.label) == (('"they say ""no"""', "do not"), 1)
    (quoted,) = read_arguments(write(tmp_path / "test-adv-negated.csv", [QUOTED]), "test")
    assert quoted.warrants == ('they say "no"', "do not")


@pytest.mark.parametrize(
    ("header", "rows", "message"),
    [
        (HEADER, [PLAIN, [""], [*ROW[:3], "2", *ROW[4:]]], ":4: a label that is not 0 or 1"),
        (HEADER, [PLAIN, [""], [*ROW[:5], " ", "Weather"]], ":4: an empty cell"),
        (HEADER, [PLAIN, ROW[:-2]], ":3: an empty cell"),
        (HEADER, [PLAIN, PLAIN], ":3: an id that comes twice"),
        (HEADER[:4], [], ":1: no column reason, claim"),
        (HEADER, [], "no argument after the header"),
        ([], [], "not tab-separated"),
        (HEADER, [PLAIN, [*ROW, "x"]], "Expected 7 fields in line 3, saw 8"),
        (HEADER, [[*ROW, "x"], PLAIN], ":2: more cells than the header"),
    ],
)
def test_read_arguments_refuses_a_bad_file_with_its_line(tmp_path, header, rows, message):
    with pytest.raises(CorpusError, match=message):
        read_arguments(write(tmp_path / "a.tsv", rows, header), "train")


def test_argument_corpus_makes_counterparts_or_leaves_out_those_that_are_not_negated(tmp_path):
    for split in SPLITS:
        write(tmp_path / f"{split}.tsv", [[*ROW, "No umbrella"]], [*HEADER, "negatedClaim"])
    corpus = argument_corpus(tmp_path)
    (original,) = corpus.part("dev")
    (counterpart,) = corpus.part("dev", adversarial=True)
    assert (counterpart.id, counterpart.label) == ("a" + ADVERSARIAL_SUFFIX, 1)
    assert (counterpart.claim, counterpart.negated_claim) == ("No umbrella", original.claim)
    assert (counterpart.warrants, counterpart.reason) == (original.warrants, original.reason)
    write(tmp_path / "test.tsv", [ROW, PLAIN])
    negated = [f"a{ADVERSARIAL_SUFFIX}", *ROW[1:5], "No umbrella", ""]
    not_negated = [f"b{ADVERSARIAL_SUFFIX}", *PLAIN[1:]]
    # The published files have the originals, too.
    write(tmp_path / "adversarial" / "test-adv-negated.csv", [ROW, negated, not_negated])
    corpus = argument_corpus(tmp_path)
    assert [argument.claim for argument in corpus.adversarial] == ["No umbrella"]
    assert corpus.left_out == 1


def test_argument_corpus_refuses_other_sources(tmp_path):
    for source in (tmp_path / "nowhere", "ud-english-ewt"):
        with pytest.raises(InputError, match="is neither"):
            argument_corpus(source)
    write(tmp_path / "train.tsv", [ROW])
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
