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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from helpers.data.corpora import fetch, registry
from helpers.data.text_files import existing_file, file_fingerprint, lines, one_line, quoted
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
    """Return the counterparts: the claim negated, so that the other warrant is right.

    Raises:
        InputError: an argument has no negated claim.
    """
    counterparts = []
    for own in arguments:
        if not own.negated_claim:
            raise InputError(
                f"argument {own.id}: no negated claim; give one in a column negatedClaim"
            )
        claims = {"claim": own.negated_claim, "negated_claim": own.claim}
        turned = replace(own, id=own.id + MARK, label=1 - own.label, adversarial=True, **claims)
        counterparts.append(turned)
    return counterparts


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
    second = second or COUNTERPARTS.get(first, "")
    others = _files(second) if second else files
    for split in SPLITS:
        if split not in files:
            missing = Path(first) / f"{split}.tsv"
            raise CorpusError(missing, "no such file; a corpus needs all splits")
    negated = {split: others[name] for split, name in ADVERSARIAL_FILES.items() if name in others}
    if second and not negated:
        names = " and ".join(f"{name}.csv" for name in ADVERSARIAL_FILES.values())
        raise InputError(f"{second}: no adversarial arguments; expected {names}")
    name = first if first in registry() else Path(first).name
    return _corpus(name, [files[split] for split in SPLITS], negated)


def _corpus(name: str, files: Sequence[Path], negated: dict[str, Path]) -> Arguments:
    original = [
        argument
        for split, file in zip(SPLITS, files, strict=False)
        for argument in read_arguments(file, split=split)
    ]
    splits = {argument.split for argument in original}
    if without := [split for split in SPLITS if split not in splits]:
        raise CorpusError(
            files[0].parent, f"no argument in {without[0]}; a corpus needs all splits"
        )
    left_out = 0
    if negated:
        counterparts, left_out = _counterparts(negated)
    elif all(argument.negated_claim for argument in original):
        counterparts = adversarial(original)
    else:
        counterparts = []
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
    kept, left_out = [], 0
    for split, file in files.items():
        rows = list(read_arguments(file, split=split))
        claims = {row.id: row.claim for row in rows if not row.adversarial}
        for row in rows:
            if not row.adversarial:
                continue
            if not row.id.endswith(MARK) or row.id.removesuffix(MARK) not in claims:
                raise CorpusError(file, f"{quoted(row.id)} is adversarial without its original")
            if row.claim == claims[row.id.removesuffix(MARK)]:
                left_out += 1
            else:
                kept.append(row)
    return kept, left_out


def _files(source: str) -> dict[str, Path]:
    """Return the tables of a corpus, by file name without its suffixes."""
    if source in registry():
        if registry()[source].kind != KIND:
            raise InputError(f"{source} is a {registry()[source].kind} corpus, not {KIND}")
        return {stem_and_suffix(path)[0]: path for path in fetch(source).values()}
    folder = Path(source).expanduser()
    if not folder.is_dir():
        names = ", ".join(name for name, corpus in registry().items() if corpus.kind == KIND)
        raise InputError(f"no arguments at {source}; expected a name ({names}) or a folder")
    found = [*sorted(folder.glob("*")), *sorted(folder.glob("adversarial/*"))]
    tables = {stem_and_suffix(path): path for path in found}
    return {stem: path for (stem, suffix), path in tables.items() if suffix in (".tsv", ".csv")}


def read_arguments(path: str | Path, *, split: str = "") -> Iterator[Argument]:
    """Yield the arguments of a file, tab-separated with a header.

    A ``.csv`` file is read with CSV quoting; in any other a quotation mark is text, as in ARCT.
    Columns: ``#id``, ``warrant0``, ``warrant1``, ``correctLabelW0orW1``, ``reason``, ``claim``,
    in any order, and if there are ``negatedClaim``, ``adversarial`` (True or False) and
    ``split``, which ``split`` stands in for; others are ignored.

    Raises:
        CorpusError: with the line, for a column or a value that is missing, a label other than 0
            and 1, an id that comes twice, or two equal warrants.
    """
    path = existing_file(path)
    rows = _rows(path)
    _, header = next(rows, (1, []))
    if missing := [column for column in REQUIRED if column not in header]:
        expected = "expected a tab-separated header with " + ", ".join(REQUIRED)
        raise CorpusError(path, f"no column {', '.join(missing)}; {expected}", 1)
    if twice := [column for column in header if column and header.count(column) > 1]:
        raise CorpusError(path, f"two columns are called {quoted(twice[0])}; name each once", 1)
    seen: set[str] = set()
    for line, cells in rows:
        if len(cells) != len(header):
            message = f"{len(cells)} columns where the header has {len(header)}"
            raise CorpusError(path, f"{message}; check for a stray tab or quotation mark", line)
        row = {column: one_line(cell) for column, cell in zip(header, cells, strict=True)}
        _check(path, line, row, seen)
        yield Argument(
            id=row["#id"],
            **{part: row[part] for part in ("claim", "reason", "warrant0", "warrant1")},
            label=int(row["correctLabelW0orW1"]),
            split=row.get("split") or split,
            negated_claim=row.get("negatedClaim", ""),
            adversarial=row.get("adversarial") == "True",
        )
    if not seen:
        raise CorpusError(path, "no argument after the header")


def _check(path: Path, line: int, row: dict[str, str], seen: set[str]) -> None:
    if empty := [column for column in REQUIRED if not row[column]]:
        raise CorpusError(path, f"empty {', '.join(empty)}; every argument needs them", line)
    if row["correctLabelW0orW1"] not in ("0", "1"):
        label = quoted(row["correctLabelW0orW1"])
        raise CorpusError(path, f"label {label}; expected 0 or 1, the right warrant", line)
    if row.get("adversarial", "True") not in ("True", "False"):
        value = quoted(row["adversarial"])
        raise CorpusError(path, f"adversarial is {value}; expected True or False", line)
    if row.get("split", SPLITS[0]) not in SPLITS:
        message = f"split {quoted(row['split'])}; expected {', '.join(SPLITS)}"
        raise CorpusError(path, message, line)
    if row["warrant0"] == row["warrant1"]:
        raise CorpusError(path, "both warrants are the same; one must be wrong", line)
    if row["#id"] in seen:
        raise CorpusError(path, f"id {quoted(row['#id'])} comes twice; give each its own", line)
    seen.add(row["#id"])


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the line on which a row ends, and its cells; blank lines are skipped."""
    by_csv = {"quoting": csv.QUOTE_MINIMAL, "strict": True}
    by_tabs = {"quoting": csv.QUOTE_NONE}
    style = by_csv if stem_and_suffix(path)[1] == ".csv" else by_tabs
    number = 0

    def texts() -> Iterator[str]:
        nonlocal number  # the reader's own count is of the lines that it is given
        for at, line in lines(path):
            number = at
            yield line

    try:
        for cells in csv.reader(texts(), delimiter="\t", **style):
            if any(cells):
                yield number, cells
    except csv.Error as error:
        why = str(error).replace("\t", "a tab")
        message = f"not tab-separated text ({why}); check the quotation marks"
        raise CorpusError(path, message, number) from error


def stem_and_suffix(path: Path) -> tuple[str, str]:
    """Return a file's name in two, without the suffix of its compression."""
    plain = Path(path.name.removesuffix(".gz").removesuffix(".bz2"))
    return plain.stem, plain.suffix
