"""Arguments with two warrants of which one is right, and their adversarial counterparts.

An argument gives a reason for a claim; a warrant says why the reason supports the claim.  One of
the two warrants does so.  The alternative would support the opposite claim (Habernal et al. 2018,
the Argument Reasoning Comprehension Task, ARCT).  With the claim negated the alternative is
therefore the right one.  This gives the adversarial set of Niven and Kao (2019, section 6): the
same two warrants, the other label.

The bundled sample, ``arguments-sample/``, was written for this project, under its licence.  It
has 180 arguments on as many topics (train 100, dev 20, test 60), each with its negated claim.  A
cue is planted in it.  In every split, ``not`` is only in the right warrant of six in ten arguments,
only in the alternative of one, in both warrants of one, and in neither of two.  Its coverage is
therefore 7/10 and its productivity 6/7: a model that picks the warrant with ``not``, and guesses
if that does not decide, is right on 75% without reading the argument.  In each of these groups
half of the labels are 0, and no warrant has another negation (``n't``, ``no``, ``never``).
"""

from __future__ import annotations

import csv
import warnings
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from helpers.data.text_files import existing_file, fetch, find_corpus, one_line, registry
from helpers.errors import CorpusError

SAMPLE_NAME = "arguments-sample"
SAMPLE_FOLDER = Path(__file__).with_name(SAMPLE_NAME)
CORPUS_KIND = "argument pairs"  # in the registry of corpora
ADVERSARIAL_FILE = "{split}-adv-negated"
ADVERSARIAL_SUFFIX = "-adversarial"  # of ids of adversarial arguments, and of their corpus's name
# The parts of an argument that a model is shown, by the name of the input; the warrant is last.
INPUTS = {
    "warrants": ("warrant",),
    "reason + warrants": ("reason", "warrant"),
    "claim + warrants": ("claim", "warrant"),
    "all": ("reason", "claim", "warrant"),
}
SPLITS = ("train", "dev", "test")
QUICK_SPLIT_SIZE = 8  # arguments of a split in a quick run
REQUIRED_COLUMNS = ("#id", "warrant0", "warrant1", "correctLabelW0orW1", "reason", "claim")


@dataclass(frozen=True, slots=True)
class Argument:
    """A claim, its reason, and two warrants of which one is right.

    Attributes
    ----------
    id : str
        An adversarial argument has the id of its original plus `ADVERSARIAL_SUFFIX`.
    claim, reason, warrant0, warrant1 : str
        The texts.
    label : {0, 1}
        The number of the right warrant.
    split : str
        One of the `SPLITS`.
    negated_claim : str
        The opposite claim; empty if the corpus does not have it.
    """

    id: str
    claim: str
    reason: str
    warrant0: str
    warrant1: str
    label: int
    split: str
    negated_claim: str = ""

    @property
    def adversarial(self) -> bool:
        """Whether the claim was negated."""
        return self.id.endswith(ADVERSARIAL_SUFFIX)

    @property
    def warrants(self) -> tuple[str, str]:
        """Both warrants, in the order that the label counts."""
        return self.warrant0, self.warrant1

    def texts(self, part: str) -> tuple[str, str]:
        """Both texts of a part, one for each warrant; those of reason and claim are the same."""
        if part == "warrant":
            return self.warrants
        text = getattr(self, part)
        return text, text

    def counterpart(self) -> Argument:
        """Make the adversarial argument: the claim negated, the other warrant right."""
        return replace(
            self,
            id=self.id + ADVERSARIAL_SUFFIX,
            label=1 - self.label,
            claim=self.negated_claim,
            negated_claim=self.claim,
        )


@dataclass(frozen=True)
class Arguments:
    """A corpus of arguments as they were written, and their adversarial counterparts.

    Attributes
    ----------
    name : str
        Name of the corpus or of its folder.
    original, adversarial : list of Argument
        All splits, in the order of the corpus.
    left_out : int
        Number of published counterparts that were left out because their claim is not negated.
    """

    name: str
    original: list[Argument]
    adversarial: list[Argument]
    left_out: int = 0

    @property
    def planted(self) -> bool:
        """Whether this is the bundled sample, which cannot be compared with the paper's corpus."""
        return self.name == SAMPLE_NAME

    def part(self, split: str, *, adversarial: bool = False) -> list[Argument]:
        """List the arguments of a split, in the order of the corpus.

        Parameters
        ----------
        split : {"train", "dev", "test"}
            The split.
        adversarial : bool, optional
            List the counterparts instead of the originals.
        """
        arguments = self.adversarial if adversarial else self.original
        return [argument for argument in arguments if argument.split == split]


def argument_corpus(source: str | Path = "", *, quick: bool = False) -> Arguments:
    """Read a corpus of arguments and their adversarial counterparts.

    Parameters
    ----------
    source : str or Path, optional
        Empty for the bundled sample; a name of the registry ("arct", which brings
        "arct-adversarial"); or a folder with train, dev and test as ``.tsv``.

    Returns
    -------
    Arguments
        The counterparts are read from ``train-adv-negated.csv`` and so on, of the registry or of
        the folder or its ``adversarial/``; without such files they are made from a column
        negatedClaim.  A quick run keeps only the first arguments of each split.

    Raises
    ------
    InputError
        If ``source`` is neither a registered corpus of arguments nor a folder.
    CorpusError
        If a file is missing or damaged; the message has the file and the line.
    """
    name = str(source or SAMPLE_FOLDER)
    files = _table_files(name)
    limit = QUICK_SPLIT_SIZE if quick else None
    original = []
    published = []
    for split in SPLITS:
        if split not in files:
            raise CorpusError(name, f"no {split}.tsv; a corpus needs all splits")
        original += read_arguments(files[split], split)[:limit]
        counterparts = ADVERSARIAL_FILE.format(split=split)
        if counterparts in files:
            published += read_arguments(files[counterparts], split)
    if not published and all(argument.negated_claim for argument in original):
        published = [argument.counterpart() for argument in original]
    claims = {argument.id + ADVERSARIAL_SUFFIX: argument.claim for argument in original}
    published = [argument for argument in published if argument.id in claims]
    adversarial = [argument for argument in published if argument.claim != claims[argument.id]]
    return Arguments(Path(name).name, original, adversarial, len(published) - len(adversarial))


def _table_files(source: str) -> dict[str, Path]:
    """Find the tables of a corpus, compressed or not, by file name without suffixes."""
    folder = find_corpus(source, CORPUS_KIND)
    if source + ADVERSARIAL_SUFFIX in registry().index:
        fetch(source + ADVERSARIAL_SUFFIX)  # into ``adversarial/``
    paths = [*folder.glob("*"), *folder.glob("adversarial/*")]
    return {
        path.name.split(".")[0]: path for path in paths if {".tsv", ".csv"} & set(path.suffixes)
    }


def read_arguments(path: Path, split: str) -> list[Argument]:
    """Read the arguments of a tab-separated file with a header.

    Parameters
    ----------
    path : Path
        A ``.csv`` file is read with CSV quoting; in any other file a quotation mark is text, as in
        ARCT.  Columns: the `REQUIRED_COLUMNS`, in any order, and optionally ``negatedClaim``.
        Further columns are ignored.
    split : str
        The split that the file has.

    Returns
    -------
    list of Argument
        In the order of the file.

    Raises
    ------
    CorpusError
        With the line, if a column or a value is missing, a label is not 0 or 1, or an id
        occurs twice.
    """
    arguments = {}
    for line, row in _read_table(existing_file(path)).to_dict("index").items():
        if not all(row[column] for column in REQUIRED_COLUMNS):
            required = ", ".join(REQUIRED_COLUMNS)
            raise CorpusError(path, f"an empty cell; every argument needs {required}", line)
        label = row["correctLabelW0orW1"]
        if label not in ("0", "1"):
            raise CorpusError(path, "a label that is not 0 or 1, the right warrant", line)
        if row["#id"] in arguments:
            raise CorpusError(path, "an id that comes twice; give each its own", line)
        arguments[row["#id"]] = Argument(
            id=row["#id"],
            claim=row["claim"],
            reason=row["reason"],
            warrant0=row["warrant0"],
            warrant1=row["warrant1"],
            label=int(label),
            split=split,
            negated_claim=row.get("negatedClaim", ""),
        )
    return list(arguments.values())


def _read_table(path: Path) -> pd.DataFrame:
    """Read the cells of a file as text; the index is the line of each row."""
    quoting = csv.QUOTE_MINIMAL if ".csv" in path.suffixes else csv.QUOTE_NONE
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            table = pd.read_csv(
                path, sep="\t", dtype=str, keep_default_na=False, quoting=quoting,
                encoding="utf-8-sig", skip_blank_lines=False, index_col=False,
            )  # fmt: skip
    except pd.errors.ParserWarning as warning:  # pandas would drop the cells
        problem = "more cells than the header; expected one tab between two cells"
        raise CorpusError(path, problem, 2) from warning
    except (OSError, EOFError, ValueError) as error:  # of pandas, of gzip, of an encoding
        reason = one_line(str(error))
        raise CorpusError(path, f"not tab-separated UTF-8 text with a header ({reason})") from error
    missing = [column for column in REQUIRED_COLUMNS if column not in table]
    if missing:
        expected = "expected a tab-separated header with " + ", ".join(REQUIRED_COLUMNS)
        raise CorpusError(path, f"no column {', '.join(missing)}; {expected}", 1)
    table.index += 2
    table = table[(table != "").any(axis=1)].map(one_line)
    if table.empty:
        raise CorpusError(path, "no argument after the header")
    return table
