"""Arguments with two warrants of which one is right, and their adversarial counterparts.

An argument gives a reason for a claim; a warrant says why the reason supports it.  Of the two
warrants here one does, and the other, the alternative, would support the opposite claim
(Habernal et al. 2018, the Argument Reasoning Comprehension Task, ARCT).  So with the claim
negated the alternative is the right one, which gives the adversarial set of Niven and Kao (2019,
section 6): the same two warrants, the other label.

The embedded sample, ``arguments_sample.tsv``, was written for this project, under its licence:
180 arguments on as many topics, 100 to train on, 20 to develop with, 60 to test with, each with
its negated claim.  A cue is planted in it.  In every split, of ten arguments six have the word
``not`` in the right warrant alone, one in the alternative alone, one in both and two in neither, so
that for ``not`` coverage is 7/10 and productivity 6/7: whoever picks the warrant with ``not``, and
guesses where that does not decide, is right on 75% without reading the argument.  In each of these
groups half of the labels are 0, and no warrant has another negation (``n't``, ``no``, ``never``).
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from helpers.data.corpora import fetch, names
from helpers.data.text_files import existing_file, one_line
from helpers.errors import CorpusError, InputError
from helpers.settings import small_profile

SAMPLE = Path(__file__).with_name("arguments_sample.tsv")
EMBEDDED = "arguments-sample"  # its name
KIND = "argument pairs"  # in the registry of corpora
COUNTERPARTS = {"arct": "arct-adversarial"}  # the adversarial set of a corpus, both by name
ADVERSARIAL_FILES = {"dev": "dev-adv-negated", "test": "test-adv-negated"}
MARK = "-adversarial"  # ends the id of an adversarial argument
# What a model is shown, and the parts of an argument that this is.
INPUTS = {
    "warrants": ("warrant",),
    "reason + warrants": ("reason", "warrant"),
    "claim + warrants": ("claim", "warrant"),
    "all": ("reason", "claim", "warrant"),
}
SPLITS = ("train", "dev", "test")
SMALL_SPLIT = 8  # arguments of a split in the small profile
REQUIRED = ("#id", "warrant0", "warrant1", "correctLabelW0orW1", "reason", "claim")


@dataclass(frozen=True, slots=True)
class Argument:
    """A claim, its reason, two warrants, and which of them is right (``label`` 0 or 1).

    ``negated_claim`` is empty where the corpus does not give it.  An ``adversarial`` argument
    has the id of its original with `MARK` after it.
    """

    id: str
    claim: str
    reason: str
    warrant0: str
    warrant1: str
    label: int
    split: str
    negated_claim: str = ""
    adversarial: bool = False

    @property
    def warrants(self) -> tuple[str, str]:
        """Both warrants, in the order that the label counts."""
        return self.warrant0, self.warrant1

    def counterpart(self) -> Argument:
        """Return the argument with its claim negated, so that the other warrant is right."""
        return replace(
            self, id=self.id + MARK, label=1 - self.label, adversarial=True,
            claim=self.negated_claim, negated_claim=self.claim,
        )  # fmt: skip

    def swapped(self) -> Argument:
        """Return the argument with its warrants, and with them the label, swapped."""
        first, second = self.warrants
        return replace(self, warrant0=second, warrant1=first, label=1 - self.label)


@dataclass(frozen=True)
class Arguments:
    """A corpus: the arguments as they were written, and their adversarial counterparts.

    ``left_out`` counts the counterparts that a corpus has but whose claim is not negated.
    """

    name: str
    original: list[Argument]
    adversarial: list[Argument]
    left_out: int = 0

    @property
    def planted(self) -> bool:
        """Whether this is the embedded sample, which cannot be compared with the paper's."""
        return self.name == EMBEDDED

    def part(self, split: str, *, adversarial: bool = False) -> list[Argument]:
        """Return the arguments of a split, in the order of the corpus."""
        chosen = self.adversarial if adversarial else self.original
        return [argument for argument in chosen if argument.split == split]


def argument_corpus(source: str | Path = "") -> Arguments:
    """Return a corpus of arguments.

    ``source`` is empty for the embedded sample; a name of the registry ("arct", which brings
    "arct-adversarial"); a folder with train, dev and test as ``.tsv``; or "CORPUS,ADVERSARIAL",
    each a name or a folder.  The counterparts come from ``dev-adv-negated.csv`` and
    ``test-adv-negated.csv`` of the second, or of the folder itself or its ``adversarial/``;
    without these from a column negatedClaim.  The small profile has the first arguments alone.
    InputError where it is neither a name of such a corpus nor a folder; CorpusError, with the line,
    for a file that is missing or damaged.
    """
    name, negated = EMBEDDED, {}
    if not source:
        original = read_arguments(SAMPLE)
    else:
        name, _, second = (part.strip() for part in str(source).partition(","))
        second = second or COUNTERPARTS.get(name, "")
        files = _files(name)
        for split in SPLITS:
            if split not in files:
                raise CorpusError(name, f"no {split}.tsv; a corpus needs all splits")
        original = [one for split in SPLITS for one in read_arguments(files[split], split=split)]
        others = _files(second) if second else files
        negated = {split: others[own] for split, own in ADVERSARIAL_FILES.items() if own in others}
        if second and not negated:
            expected = " and ".join(f"{own}.csv" for own in ADVERSARIAL_FILES.values())
            raise InputError(f"{second}: no adversarial arguments; expected {expected}")
    others = [one for split, file in negated.items() for one in read_arguments(file, split=split)]
    if not negated and all(argument.negated_claim for argument in original):
        others = [argument.counterpart() for argument in original]
    claims = {one.id: one.claim for one in original}
    turned = [one for one in others if one.adversarial]
    kept = [one for one in turned if one.claim != claims.get(one.id.removesuffix(MARK))]
    left_out = len(turned) - len(kept)
    if small_profile():
        by_split = ([one for one in original if one.split == split] for split in SPLITS)
        original = [one for own in by_split for one in own[:SMALL_SPLIT]]
        ids = {one.id + MARK for one in original}
        kept = [one for one in kept if one.id in ids]
    return Arguments(Path(name).name, original, kept, left_out)


def _files(source: str) -> dict[str, Path]:
    """Return the tables of a corpus by file name without suffixes, compressed or not."""
    folder = Path(source).expanduser()
    if files := fetch(source, KIND):
        paths = files.values()
    elif folder.is_dir():
        paths = [*sorted(folder.glob("*")), *sorted(folder.glob("adversarial/*"))]
    else:
        expected = f"expected a name ({names(KIND)}) or a folder"
        raise InputError(f"no arguments at {source}; {expected}")
    return {p.name.split(".")[0]: p for p in paths if {".tsv", ".csv"} & set(p.suffixes)}


def read_arguments(path: str | Path, *, split: str = "") -> list[Argument]:
    """Return the arguments of a file, tab-separated with a header.

    A ``.csv`` file is read with CSV quoting; in any other a quotation mark is text, as in ARCT.
    Columns: those `REQUIRED`, in any order, and if there are ``negatedClaim`` and ``adversarial``
    (True or False); others are ignored, but ``split`` where no ``split`` is given.  CorpusError,
    with the line, for a column or a value that is missing, a label other than 0 and 1, an id
    that comes twice, or two equal warrants.
    """
    return [
        Argument(
            id=row["#id"],
            **{part: row[part] for part in ("claim", "reason", "warrant0", "warrant1")},
            label=int(row["correctLabelW0orW1"]),
            split=split or row.get("split", ""),
            negated_claim=row.get("negatedClaim", ""),
            adversarial=row.get("adversarial", "").lower() == "true",
        )
        for row in _table(existing_file(path)).to_dict("records")
    ]


def _table(path: Path) -> pd.DataFrame:
    """Read a file's cells as text, and refuse the first row that is no argument."""
    quoting = csv.QUOTE_MINIMAL if ".csv" in path.suffixes else csv.QUOTE_NONE
    try:
        table = pd.read_csv(
            path, sep="\t", dtype=str, keep_default_na=False, quoting=quoting,
            encoding="utf-8-sig", skip_blank_lines=False,
        )  # fmt: skip
    except (OSError, EOFError, ValueError) as error:  # of pandas, of gzip, of an encoding
        why = one_line(str(error))
        raise CorpusError(path, f"not tab-separated UTF-8 text with a header ({why})") from error
    if not isinstance(table.index, pd.RangeIndex):
        raise CorpusError(path, "rows have more columns than the header", 2)
    if missing := [column for column in REQUIRED if column not in table]:
        expected = "expected a tab-separated header with " + ", ".join(REQUIRED)
        raise CorpusError(path, f"no column {', '.join(missing)}; {expected}", 1)
    table.index += 2  # its line
    table = table[(table != "").any(axis=1)].map(one_line)
    if table.empty:
        raise CorpusError(path, "no argument after the header")
    empty = (table[[*REQUIRED]] == "").any(axis=1)
    mislabelled = ~table["correctLabelW0orW1"].isin(("0", "1"))
    wrong = {
        f"an empty cell; every argument needs {', '.join(REQUIRED)}": empty,
        "a label that is not 0 or 1, the right warrant": mislabelled,
        "both warrants are the same; one must be wrong": table["warrant0"] == table["warrant1"],
        "an id that comes twice; give each its own": table["#id"].duplicated(),
    }
    for message, rows in wrong.items():
        if rows.any():
            raise CorpusError(path, message, int(rows.idxmax()))
    return table
