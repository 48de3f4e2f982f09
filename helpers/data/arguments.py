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

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from helpers.data.argument_files import SPLITS, Argument, read_arguments, stem_and_suffix
from helpers.data.corpora import fetch, registry
from helpers.data.records import file_fingerprint
from helpers.data.text import quoted
from helpers.errors import CorpusError, InputError

__all__ = [
    "INPUTS", "MARK", "SPLITS", "Argument", "Arguments", "adversarial", "argument_corpus",
    "read_arguments",
]  # fmt: skip

FORMAT = 1  # raise it when the reader gives something else for the same files
SAMPLE = Path(__file__).with_name("arguments_sample.tsv")
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
    for argument in arguments:
        if not argument.negated_claim:
            raise InputError(
                f"argument {argument.id}: no negated claim; give one in a column negatedClaim"
            )
        counterparts.append(
            replace(
                argument,
                id=argument.id + MARK,
                claim=argument.negated_claim,
                negated_claim=argument.claim,
                label=1 - argument.label,
                adversarial=True,
            )
        )
    return counterparts


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
        return _corpus("arguments-sample", [SAMPLE], {})
    first, _, second = (part.strip() for part in str(source).partition(","))
    files = _files(first)
    second = second or COUNTERPARTS.get(first, "")
    others = _files(second) if second else files | _nested(first)
    wanted = [_named(files, split, first) for split in SPLITS]
    negated = {split: others[name] for split, name in ADVERSARIAL_FILES.items() if name in others}
    if second and not negated:
        names = " and ".join(f"{name}.csv" for name in ADVERSARIAL_FILES.values())
        raise InputError(f"{second}: no adversarial arguments; expected {names}")
    return _corpus(first if first in registry() else Path(first).name, wanted, negated)


def _corpus(name: str, files: Sequence[Path], negated: dict[str, Path]) -> Arguments:
    original = [
        argument
        for split, file in zip(SPLITS, files, strict=False)
        for argument in read_arguments(file, split=split)
    ]
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
    return Arguments(name, digest.hexdigest(), tuple(original), tuple(counterparts), left_out)


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
    return {stem_and_suffix(path)[0]: path for path in _tables(folder)}


def _nested(source: str) -> dict[str, Path]:
    if source in registry():
        return {}
    folder = Path(source).expanduser() / "adversarial"
    return {stem_and_suffix(path)[0]: path for path in _tables(folder)}


def _tables(folder: Path) -> list[Path]:
    found = sorted(folder.glob("*")) if folder.is_dir() else []
    return [path for path in found if stem_and_suffix(path)[1] in (".tsv", ".csv")]


def _named(files: dict[str, Path], split: str, source: str) -> Path:
    if split not in files:
        raise CorpusError(Path(source) / f"{split}.tsv", "no such file; a corpus needs all splits")
    return files[split]
