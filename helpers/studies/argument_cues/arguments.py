"""Arguments with two warrants of which one is right, and their adversarial counterparts.

An argument gives a reason for a claim; a warrant says why the reason supports it.  Of the two
warrants here one does, and the other, the alternative, would support the opposite claim
(Habernal et al. 2018, the Argument Reasoning Comprehension Task, ARCT).  So with the claim
negated the alternative is the right one, which gives the adversarial set of Niven and Kao (2019,
section 6): the same two warrants, the other label.

The embedded sample, ``arguments_sample.tsv``, was written for this project, under its licence:
180 arguments on as many topics, 100 to train on, 20 to develop with, 60 to test with, each with
its negated claim.  A cue is planted in it.  In every split, of ten arguments

- six have the word ``not`` in the right warrant alone,
- one has it in the alternative alone,
- one has it in both, and two have it in neither,

so that for ``not`` coverage is 7/10 and productivity 6/7, and whoever picks the warrant with
``not``, and guesses where that does not decide, is right on 75% without reading the argument.
In each of these groups half of the labels are 0.  Its warrants have no other negation word
(``n't``, ``cannot``, ``no``, ``never``).
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pandas as pd

from helpers.data.corpora import fetch, names
from helpers.data.text_files import existing_file, file_fingerprint, one_line
from helpers.errors import CorpusError, InputError
from helpers.settings import small_profile

FORMAT = 1  # raise it when the reader gives something else for the same files
SAMPLE = Path(__file__).with_name("arguments_sample.tsv")
EMBEDDED = "arguments-sample"  # its name
KIND = "argument pairs"  # in the registry of corpora
COUNTERPARTS = {"arct": "arct-adversarial"}  # the adversarial set of a corpus, both by name
ADVERSARIAL_FILES = {"dev": "dev-adv-negated", "test": "test-adv-negated"}
MARK = "-adversarial"  # ends the id of an adversarial argument
SWAPPED_MARK = "-swapped"  # ends the id of an argument whose warrants are swapped
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
    has the id of its original with ``-adversarial`` after it.
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


@dataclass(frozen=True)
class Arguments:
    """A corpus: the arguments as they were written, and their adversarial counterparts.

    ``left_out`` counts the counterparts that a corpus has but whose claim is not negated.
    """

    name: str
    fingerprint: str
    original: tuple[Argument, ...] = field(repr=False)
    adversarial: tuple[Argument, ...] = field(repr=False)
    left_out: int = 0

    @property
    def planted(self) -> bool:
        """Whether this is the embedded sample: what the paper found in ARCT is no measure of it."""
        return self.name == EMBEDDED

    def part(self, split: str, *, adversarial: bool = False) -> list[Argument]:
        """Return the arguments of a split, in the order of the corpus."""
        chosen = self.adversarial if adversarial else self.original
        return [argument for argument in chosen if argument.split == split]

    @property
    def can_mirror(self) -> bool:
        """Whether one can train and validate on originals and their counterparts."""
        return all(argument.negated_claim for argument in self.part("train") + self.part("dev"))


def adversarial(arguments: Iterable[Argument]) -> list[Argument]:
    """Return the counterparts: the claim negated, so that the other warrant is right."""
    return [
        replace(
            own, id=own.id + MARK, label=1 - own.label, adversarial=True,
            claim=own.negated_claim, negated_claim=own.claim,
        )
        for own in arguments
    ]  # fmt: skip


def swapped(arguments: Iterable[Argument]) -> list[Argument]:
    """Return the same arguments with their warrants, and with them the label, swapped."""
    return [
        replace(
            a, id=a.id + SWAPPED_MARK, warrant0=a.warrant1, warrant1=a.warrant0, label=1 - a.label
        )
        for a in arguments
    ]


def argument_corpus(source: str | Path = "") -> Arguments:
    """Return a corpus of arguments.

    Args:
        source: empty for the embedded sample; a name of the registry ("arct", which brings
            "arct-adversarial"); a folder with train, dev and test as ``.tsv``; or
            "CORPUS,ADVERSARIAL", each a name or a folder, the second with
            ``dev-adv-negated.csv`` and ``test-adv-negated.csv``.  The counterparts come from a
            column negatedClaim, if there is one, or from those files, which a folder may have
            itself or in ``adversarial/``.

    Raises:
        InputError: neither a name nor a folder; or the name of another kind of corpus.
        CorpusError: a file that is missing or damaged, with the line.
    """
    if not source:
        return _corpus(EMBEDDED, [SAMPLE], {})
    first, _, second = (part.strip() for part in str(source).partition(","))
    files = _files(first)
    second = second or COUNTERPARTS.get(first, first)
    others = files if second == first else _files(second)
    if missing := [split for split in SPLITS if split not in files]:
        raise CorpusError(first, f"no {missing[0]}.tsv; a corpus needs all splits")
    negated = {split: others[name] for split, name in ADVERSARIAL_FILES.items() if name in others}
    if second != first and not negated:
        expected = " and ".join(f"{name}.csv" for name in ADVERSARIAL_FILES.values())
        raise InputError(f"{second}: no adversarial arguments; expected {expected}")
    return _corpus(Path(first).name, [files[split] for split in SPLITS], negated)


def _corpus(name: str, files: Sequence[Path], negated: dict[str, Path]) -> Arguments:
    read = [read_arguments(file, split=split) for split, file in zip(SPLITS, files, strict=False)]
    original = [argument for arguments in read for argument in arguments]
    if without := [split for split in SPLITS if split not in {a.split for a in original}]:
        where = files[0].parent
        raise CorpusError(where, f"no argument in {without[0]}; a corpus needs all splits")
    counterparts, left_out = _counterparts(negated)
    if not negated and all(argument.negated_claim for argument in original):
        counterparts = adversarial(original)
    digest = hashlib.sha256(f"{FORMAT} {name}".encode())
    for file in (*files, *negated.values()):
        digest.update(file_fingerprint(file).encode())
    found = Arguments(name, digest.hexdigest(), tuple(original), tuple(counterparts), left_out)
    return _first(found, SMALL_SPLIT) if small_profile() else found


def _first(corpus: Arguments, count: int) -> Arguments:
    """Return the first ``count`` arguments of each split, and their counterparts."""
    original = tuple(one for split in SPLITS for one in corpus.part(split)[:count])
    ids = {one.id + MARK for one in original}
    return replace(
        corpus,
        fingerprint=f"{corpus.fingerprint}-{count}",
        original=original,
        adversarial=tuple(one for one in corpus.adversarial if one.id in ids),
    )


def _counterparts(files: dict[str, Path]) -> tuple[list[Argument], int]:
    """Return the adversarial half of published files, without the claims left as they were."""
    rows = [row for split, file in files.items() for row in read_arguments(file, split=split)]
    claims = {row.id: row.claim for row in rows if not row.adversarial}
    turned = [row for row in rows if row.adversarial]
    kept = [row for row in turned if row.claim != claims.get(row.id.removesuffix(MARK))]
    return kept, len(turned) - len(kept)


def _files(source: str) -> dict[str, Path]:
    """Return the tables of a corpus, by file name without its suffixes."""
    if files := fetch(source, KIND):
        return _by_stem(files.values())
    folder = Path(source).expanduser()
    if not folder.is_dir():
        expected = f"expected a name ({names(KIND)}) or a folder"
        raise InputError(f"no arguments at {source}; {expected}")
    return _by_stem([*sorted(folder.glob("*")), *sorted(folder.glob("adversarial/*"))])


def _by_stem(paths: Iterable[Path]) -> dict[str, Path]:
    """Return the tables among files by name, whether they are compressed or not."""
    return {p.name.split(".")[0]: p for p in paths if {".tsv", ".csv"} & set(p.suffixes)}


def read_arguments(path: str | Path, *, split: str = "") -> list[Argument]:
    """Return the arguments of a file, tab-separated with a header.

    A ``.csv`` file is read with CSV quoting; in any other a quotation mark is text, as in ARCT.
    Columns: ``#id``, ``warrant0``, ``warrant1``, ``correctLabelW0orW1``, ``reason``, ``claim``,
    in any order, and if there are ``negatedClaim``, ``adversarial`` (True or False) and
    ``split``, which ``split`` stands in for; others are ignored.

    Raises:
        CorpusError: with the line, for a column or a value that is missing, a label other than 0
            and 1, an id that comes twice, or two equal warrants.
    """
    path = existing_file(path)
    table = _table(path)
    _check(path, table)
    own = pd.DataFrame({"split": split, "negatedClaim": "", "adversarial": "False"}, table.index)
    own = table.combine_first(own)
    own["split"] = own["split"].mask(own["split"] == "", split)
    return [
        Argument(
            id=row["#id"],
            **{part: row[part] for part in ("claim", "reason", "warrant0", "warrant1")},
            label=int(row["correctLabelW0orW1"]),
            split=row["split"],
            negated_claim=row["negatedClaim"],
            adversarial=row["adversarial"] == "True",
        )
        for row in own.to_dict("records")
    ]


def _table(path: Path) -> pd.DataFrame:
    """Read a file's cells as text; the index is the line of each row."""
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
    table.index += 2
    table = table[(table != "").any(axis=1)]
    if table.empty:
        raise CorpusError(path, "no argument after the header")
    return table.map(one_line)


def _check(path: Path, table: pd.DataFrame) -> None:
    """Refuse the first row that is no argument."""
    required, labels = table[[*REQUIRED]], table["correctLabelW0orW1"]
    splits = table.get("split", pd.Series(SPLITS[0], table.index))
    turned = table.get("adversarial", pd.Series("True", table.index))
    wrong = {
        f"an empty cell; every argument needs {', '.join(REQUIRED)}": (required == "").any(axis=1),
        "a label that is not 0 or 1, the right warrant": ~labels.isin(("0", "1")),
        "adversarial is neither True nor False": ~turned.isin(("True", "False")),
        f"a split that is none of {', '.join(SPLITS)}": ~splits.isin(("", *SPLITS)),
        "both warrants are the same; one must be wrong": table["warrant0"] == table["warrant1"],
        "an id that comes twice; give each its own": table["#id"].duplicated(),
    }
    for message, rows in wrong.items():
        if rows.any():
            raise CorpusError(path, message, int(rows.idxmax()))
