"""Command line: ``python -m helpers run`` and the other commands."""

from __future__ import annotations

import argparse
import difflib
import gc
import os
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from helpers import __version__
from helpers.errors import InputError
from helpers.files import cache_root, check_writable
from helpers.run.interrupts import remembered_interrupts
from helpers.settings import Settings, flag

if TYPE_CHECKING:
    from helpers.results import Results

DESCRIPTION = """\
What Does BERT Look At? (Clark et al., 2019) on encoders and decoders, and on any corpus.

  python -m helpers run                            the whole series on the bundled default
  python -m helpers run --model bert-base-uncased  the paper's model (needs the model hub)
  python -m helpers run --model ./my-model --text my.txt --only 01,02,03
  python -m helpers run --treebank train.conllu,dev.conllu --only 04,05
  python -m helpers run --extended                 notebooks 07 to 12 as well
  python -m helpers replicate                      the paper's model, number by number
  python -m helpers compare minilm my-model        finished runs, claim by claim
"""
RUN_EPILOG = """\
Results: build/<name>/ has tables, figures, executed notebooks and a report. A run of other
settings, model, corpus or code starts this folder afresh, and refuses a folder that no run wrote.
Attention maps are kept in .cache/ (ATTENTION_CACHE moves it). Therefore a second run is quick, and
an interrupted one goes on where it stopped.
"""
PAPER_MODEL = "bert-base-uncased"
REPLICATE_EPILOG = """\
The table build/<name>/tables/replication.csv has every number of the paper next to this run's,
with a tolerance and an outcome, and so has the report, under notebook 06. Sections 4 and 5 are
compared with the paper's numbers if --treebank is the Penn Treebank in Stanford Dependencies and
--coref is CoNLL-2012; with other corpora, their rows say what was used instead.
"""
COMPARE_DESCRIPTION = """\
Results in build/compare/<names>/: claims.csv, best_heads.csv, atlas.csv (a row for each head of
each model), compare.png and a report with tables to sort and search. For runs of one model on
treebanks of Universal Dependencies there is across_treebanks.csv: each head that is best in one
run, scored in all of them. For runs of later notebooks there is claims.csv alone.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Parameters
    ----------
    arguments : sequence of str, optional
        Command and options.  By default those of the process.

    Returns
    -------
    int
        Exit status: 0, 1 for a failure, 2 for bad input, 130 for an interruption.
    """
    options = parser().parse_args(arguments)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        with remembered_interrupts():
            return options.command(options)
    except (InputError, OSError) as error:  # OSError: a name too long, a file not readable
        print(f"error: {error}".replace("\n", " "), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; run again to go on from what is finished", file=sys.stderr)
        return 130


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Print one line instead of the full usage, which is a page; exit with 2."""
        flags = [flag(setting.name) for setting in fields(Settings)] + ["--only", "--dry-run"]
        unknown = re.search(r"unrecognized arguments: (--\S+)", message)
        close = difflib.get_close_matches(unknown[1], flags, n=1) if unknown else []
        hint = f"; did you mean {close[0]}?" if close else f"; see {self.prog} --help"
        self.exit(2, f"error: {message}{hint}\n")


class _HelpFormatter(argparse.HelpFormatter):
    def _get_help_string(self, action: argparse.Action) -> str:
        """Add the default to the help of an option, unless it is empty or off."""
        text = action.help or ""
        if action.default in (None, "", False, argparse.SUPPRESS) or "(default" in text:
            return text
        return f"{text} (default: %(default)s)"


def parser() -> argparse.ArgumentParser:
    """Make the parser of the command line."""
    top = _Parser(
        "python -m helpers",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"attention-notebooks {__version__}")
    commands = top.add_subparsers(title="commands", required=True, metavar="COMMAND")

    def command(
        name: str, function: Callable[[argparse.Namespace], int], meaning: str, **options: Any
    ) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=meaning, **options)
        added.set_defaults(command=function)
        return added

    help_format = _HelpFormatter
    run = command(
        "run",
        _run,
        "run the series, or a part of it",
        epilog=RUN_EPILOG,
        formatter_class=help_format,
    )
    replicate = command(
        "replicate",
        _replicate,
        "run 00 to 06 with the paper's model, and compare every number of the paper",
        epilog=REPLICATE_EPILOG,
        formatter_class=help_format,
    )
    run.add_argument("--only", default="", metavar="00-03,05", help="numbers of notebooks")
    run.add_argument(
        "--extended", action="store_true", help="notebooks 07 to 12 as well, on later papers"
    )
    run.add_argument(
        "--dry-run",
        action="store_true",
        help="check everything, list what would be extracted and the disk space, and stop",
    )
    for command_parser in (run, replicate):
        command_parser.add_argument(
            "--publish",
            action="store_true",
            help="copy the results of a run that is committed in figures/ to this folder",
        )
        command_parser.add_argument(
            "--zip",
            action="store_true",
            help="write the report and the notebooks' HTML copies into one file, to mail",
        )
    for setting in fields(Settings):
        options: dict[str, Any] = {"action": "store_true"}
        if setting.type is not bool:
            is_number = "minimum" in setting.metadata
            options = {"type": _number if is_number else str, "default": setting.default}
        for added in (run, replicate):
            added.add_argument(flag(setting.name), help=setting.metadata["help"], **options)
    replicate.set_defaults(model=PAPER_MODEL, only="", extended=False, dry_run=False)
    compare = command(
        "compare",
        _compare,
        "compare finished runs: claims, best heads, one figure",
        description=COMPARE_DESCRIPTION,
    )
    compare.add_argument(
        "runs",
        nargs="*",
        metavar="RUN",
        help="folder in build/, else in figures/, path to such a folder, or model that has run "
        "(default: minilm mpnet smollm2)",
    )
    command("corpora", _corpora, "list the corpora that have a name")
    verify = command(
        "verify", _verify, "check every byte of the cache: stores, tables, trained models"
    )
    verify.add_argument("stores", nargs="*", metavar="STORE", help="folder names (default: all)")
    verify.add_argument(
        "--repair",
        action="store_true",
        help="remove damaged files, which the next run that needs them makes again",
    )
    cache = command("cache", _cache, "list the stores, or remove some")
    cache.add_argument("--remove", nargs="+", default=[], metavar="STORE", help="folder names")
    command("doctor", _doctor, "list what a run needs, and how to install what is missing")
    return top


def _number(text: str) -> int | str:
    """Read a number; another text, such as "all", is left to `Settings`, which checks it."""
    return int(text) if text.removeprefix("-").isdecimal() else text


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    """Collect the settings among the options."""
    return {setting.name: getattr(options, setting.name) for setting in fields(Settings)}


def _run(options: argparse.Namespace) -> int:
    from helpers.results import Results
    from helpers.run import notebooks

    settings = Settings(**_settings(options))
    paths = notebooks.notebooks(options.only, extended=options.extended)
    notebooks.check_settings(paths, settings)
    paths_of = {}
    for later in (False, True):  # the paper's notebooks and the later ones are two runs
        run_paths = [path for path in paths if notebooks.is_later(path) == later]
        if run_paths:
            results = Results(settings, later=later)
            paths_of[results] = run_paths
            results.check_name()
            check_writable(results.name)
            if options.publish:
                from beyond.pages.publish import check_publishable

                check_publishable(results, {path.stem for path in run_paths})
    # The bundled default needs no check, which takes seconds.
    if options.dry_run or settings != Settings(name=settings.name):
        _check_inputs(settings, paths)
    if options.dry_run:
        return 0
    for results, run_paths in paths_of.items():
        status = _run_notebooks(run_paths, results, options)
        if status:
            return status
    return 0


def _check_inputs(settings: Settings, paths: Sequence[Path]) -> None:
    """Read all that notebooks need; print what it is, and how much is to be extracted."""
    from helpers.run.check import check_files, check_inputs
    from helpers.run.notebooks import used_settings
    from helpers.study import Study

    study = Study(**asdict(settings))
    used = set().union(*map(used_settings, paths))
    check_files(study)
    for line in check_inputs(study, used):
        print(line, flush=True)
    cache_root().mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(cache_root()).free
    print(f"{cache_root()}: {free / 1e9:,.0f} GB are free", flush=True)
    del study
    gc.collect()  # of the model's weights, half a gigabyte of SmolLM2; the study refers to itself


def _run_notebooks(paths: Sequence[Path], results: Results, options: argparse.Namespace) -> int:
    """Execute the notebooks of one run, write its report, and compare or publish it."""
    from helpers.run import notebooks

    settings = results.settings
    later = notebooks.is_later(paths[0])
    try:
        notebooks.run(paths, settings, results)
    except notebooks.NotebookFailed as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    # Imported late, because it takes seconds.
    if settings.per_example and not later:
        from beyond.per_example import save_per_example
        from helpers.study import Study

        study = Study(**asdict(settings))
        for path in save_per_example(study, [path.name[:2] for path in paths]):
            print(f"each example: {path}")
    from beyond.pages.publish import publish
    from beyond.pages.report import write_run_report, zip_report

    print(f"report: {write_run_report(settings, later=later)}")
    if options.zip:
        print(f"to mail: {zip_report(results.build)}")
    print(publish(results, replace=options.publish))
    return 0


def _replicate(options: argparse.Namespace) -> int:
    from beyond.claims.paper_heads import is_paper_model
    from beyond.claims.replication import summarise_replication
    from helpers.study import Study

    study = Study(**_settings(options))
    if not is_paper_model(study.encoder):
        raise InputError(
            f"--model {options.model}: replicate needs the paper's model, a BERT of 12 layers of "
            "12 heads with the vocabulary of bert-base-uncased or bert-base-cased; 'run' takes any "
            "other"
        )
    status = _run(options)
    if status == 0:
        print(summarise_replication(study.tables()["replication"]).to_string())
        print(f"each number: {study.results.build / 'tables' / 'replication.csv'}")
    return status


def _compare(options: argparse.Namespace) -> int:
    from beyond.pages import compare

    runs = compare.open_runs(options.runs)
    claims, notes, report = compare.compare(runs)
    print(claims.round(3).to_string(index=False, na_rep=""))
    print(*notes, *(f"{run.name} is in {run.folder}" for run in runs), sep="\n")
    print(f"tables and figure: {report.parent}", f"report: {report}", sep="\n")
    return 0


def _corpora(_: argparse.Namespace) -> int:
    from helpers.data.corpora import corpora_table, embedded_table

    for title, table in (
        ("Bundled, with the licence of each part itself:", embedded_table()),
        ("Open, by name:", corpora_table()),
    ):
        print(title, end="\n\n")
        for row in table.to_dict("records"):
            print(*(f"{column}: {value}" for column, value in row.items()), "", sep="\n")
    return 0


def _verify(options: argparse.Namespace) -> int:
    from helpers.run.housekeeping import check_cache

    return check_cache(options.stores, repair=options.repair)


def _cache(options: argparse.Namespace) -> int:
    from helpers.run.housekeeping import cache_table, remove_stores

    remove_stores(options.remove)
    print(cache_table().to_string(index=False, na_rep=""))
    return 0


def _doctor(_: argparse.Namespace) -> int:
    from helpers.run.housekeeping import diagnosis

    for name, finding in diagnosis():
        print(f"{name:<18} {finding}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
