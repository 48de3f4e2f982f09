"""What Does BERT Look At? (Clark et al., 2019) on encoders and decoders, and on any corpus.

  python -m helpers run                            the whole series on the bundled default
  python -m helpers run --model bert-base-uncased  the paper's model (needs the model hub)
  python -m helpers run --model ./my-model --text my.txt --only 01,02,03
  python -m helpers run --treebank train.conllu,dev.conllu --only 04,05
  python -m helpers run --extended                 notebooks 07 to 11 as well
  python -m helpers run --only 09 -p arct arct     a parameter of one notebook
  python -m helpers replicate                      the paper's model, number by number
  python -m helpers compare minilm my-model        finished runs, claim by claim

Results: build/<name>/ has tables, figures, executed notebooks and a report. A run of other
settings, model, corpus or code starts this folder afresh, and refuses a folder that no run wrote.
Attention maps are kept in .cache/ (ATTENTION_CACHE moves it). Therefore a second run is quick, and
an interrupted one goes on where it stopped.

'replicate' writes build/<name>/replication.html: every number of the paper next to this run's, with
a tolerance and an outcome. Sections 4 and 5 are compared with the paper's numbers if --treebank is
the Penn Treebank in Stanford Dependencies and --coref is CoNLL-2012; with other corpora, their
rows say what was used instead.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import fields, replace
from itertools import chain
from pathlib import Path
from typing import Any

from helpers import __version__
from helpers.errors import InputError
from helpers.files import build_dir, cache_root, figures_dir, resolve_user_path
from helpers.settings import Settings, describe_setting, flag, make_settings, read_literal

PROGRAM = "python -m helpers"
PAPER_MODEL = "bert-base-uncased"
DEFAULT_COMPARISON = ("minilm", "mpnet", "smollm2")


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
        return options.function(options)
    except (InputError, OSError) as error:  # OSError: a name too long, a file not readable
        print(f"error: {error}".replace("\n", " "), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; run again to go on from what is finished", file=sys.stderr)
        return 130


def parser() -> argparse.ArgumentParser:
    """Make the parser of the command line; `run` and `replicate` have a flag for each setting."""
    top = argparse.ArgumentParser(
        PROGRAM, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    top.add_argument("--version", action="version", version=f"attention-notebooks {__version__}")
    commands = top.add_subparsers(title="commands", required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="run the series, or a part of it")
    run.set_defaults(function=_run, page="")
    run.add_argument("--only", default="", metavar="00-03,05", help="numbers of notebooks")
    run.add_argument("--extended", action="store_true", help="notebooks 07 to 11 as well")
    help_text = "a parameter of notebooks 07 to 11, such as task or arct; may be given again"
    parameter: dict[str, Any] = {"action": "append", "default": [], "dest": "parameters"}
    run.add_argument("-p", nargs=2, metavar=("NAME", "VALUE"), help=help_text, **parameter)
    _add_settings(run)

    help_text = "run 00 to 06 with the paper's model, and compare every number of the paper"
    replicate = commands.add_parser("replicate", help=help_text)
    _add_settings(replicate)
    replicate.set_defaults(function=_run, page="replicate", model=PAPER_MODEL)
    replicate.set_defaults(only="", extended=False, parameters=[])

    compare = commands.add_parser("compare", help="compare finished runs: a page in build/compare/")
    compare.set_defaults(function=_compare)
    help_text = f"its name, or its folder (default: {' '.join(DEFAULT_COMPARISON)})"
    compare.add_argument("runs", nargs="*", metavar="RUN", help=help_text)

    verify = commands.add_parser("verify", help="check every byte of the stores of attention maps")
    verify.set_defaults(function=_verify)
    verify.add_argument("stores", nargs="*", metavar="STORE", help="folder names (default: all)")
    help_text = "remove damaged files, which the next run makes again"
    verify.add_argument("--repair", action="store_true", help=help_text)
    return top


def _add_settings(command: argparse.ArgumentParser) -> None:
    command.usage = f"{command.prog} [options]; --help lists them"
    help_text = "check all, list what is extracted"
    command.add_argument("--dry-run", action="store_true", help=help_text)
    for setting in fields(Settings):
        options: dict[str, Any] = {"action": "store_true"}
        if setting.type is not bool:
            is_text = setting.type in (str, str | None)
            options = {"default": setting.default, "type": str if is_text else read_literal}
        default = f" (default: {setting.default})" if setting.default else ""
        help_text = describe_setting(setting.name) + default
        command.add_argument(flag(setting.name), help=help_text, **options)


def _run(options: argparse.Namespace) -> int:
    from helpers import run
    from helpers.results import Results, check_run_folder, run_name
    from helpers.study import Study

    settings = make_settings(**{name: vars(options)[name] for name in vars(Settings())})
    paths = run.list_notebooks(options.only, extended=options.extended)
    parameters = {name: read_literal(value) for name, value in options.parameters}
    run.check_notebooks(paths, settings, parameters)
    if parameters:
        settings = replace(settings, name=run_name(settings, parameters))
    runs = []
    for later in (False, True):  # the paper's notebooks and the later ones are two runs
        run_paths = [path for path in paths if run.is_later(path) == later]
        if run_paths:
            runs.append((run_paths, Results(settings, later=later)))
            check_run_folder(runs[-1][1].build)
    # The bundled default needs no check, which takes seconds.
    if options.dry_run or settings != make_settings(name=settings.name):
        study = Study(**vars(settings))
        used = set().union(*map(run.used_settings, paths))
        for line in chain(run.describe_parameters(parameters), run.check_inputs(study, used)):
            print(line, flush=True)
        if options.dry_run:
            print(*run.describe_support(study.encoder), sep="\n")
            return 0
    for run_paths, results in runs:
        try:
            run.run(run_paths, results, parameters)
        except (run.NotebookFailed, BrokenProcessPool) as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
        print(f"page: {results.build / 'index.html'}")
        if options.page:
            _make_page(options.page, results.build / "replication", run=str(results.build))
    return 0


def _compare(options: argparse.Namespace) -> int:
    runs = list(map(_find_run, options.runs or DEFAULT_COMPARISON))
    folder = build_dir("compare") / "-vs-".join(run.name for run in runs)
    folder.mkdir(parents=True, exist_ok=True)
    _make_page("compare", folder / "index", runs=list(map(str, runs)))
    return 0


def _make_page(page: str, target: Path, **parameters: Any) -> None:
    from helpers.run import execute_all, page_job

    execute_all([[page_job(page, target, **parameters)]])
    print(f"page: {target.with_suffix('.html')}")


def _find_run(name: str) -> Path:
    """Find the folder of a run: the one that is named, or the one in build/ or figures/."""
    from helpers.results import RECORD

    for folder in (resolve_user_path(name), build_dir(name), figures_dir(name)):
        if (folder / RECORD).is_file():
            return folder.resolve()
    raise InputError(f"{name}: no folder of a run, and no run of this name in build/ or figures/")


def _verify(options: argparse.Namespace) -> int:
    """Check stores; with ``--repair``, remove what is damaged."""
    from helpers.store import store

    folders = {folder.name: folder for folder in store.stores()}
    unknown = set(options.stores).difference(folders)
    if unknown:
        raise InputError(f"there is no store {', '.join(unknown)} in {cache_root()}")
    status = 0
    for name in options.stores or folders:
        problems = store.verify(folders[name]).values()
        print(f"{name}: {'damaged' if problems else 'whole'}", *problems, sep="\n  ")
        if problems and options.repair:
            store.repair(folders[name])
            print("  removed; the next run that needs it makes it again")
        elif problems:
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
