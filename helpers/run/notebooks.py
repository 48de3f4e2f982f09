"""The series without a browser: papermill executes the notebooks of a run in order."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout
from tqdm import tqdm
from tqdm.contrib import DummyTqdmFile

from helpers import errors
from helpers.errors import InputError
from helpers.files import IN_CHECKOUT, PROJECT_ROOT, cache_root, write_atomic
from helpers.progress import NOTEBOOK_VARIABLE, PROGRESS_LINE
from helpers.results import COMMIT_VARIABLE, Results, made_by, run_name
from helpers.run.interrupts import raise_lost_interrupt
from helpers.settings import RESULT_SETTINGS, SIZES, Settings, flag, flag_value

if TYPE_CHECKING:
    from jupyter_client.manager import AsyncKernelManager

HERE = Path(__file__).parent
CELL_TIMEOUT = 6 * 3600  # seconds: a large model on a small machine is slow, not stuck
START_TIMEOUT = 900  # a kernel imports PyTorch first, maybe from a cold disk or on a busy machine
# On Linux, and where the user has set nothing else.
KERNEL_ENVIRONMENT = {
    # Looks at a lock before a thread sleeps, by default 300,000: beside another busy process, a
    # lesson of notebook 05 then takes 89 s, not 12.
    "GOMP_SPINCOUNT": "10000",
    # Pools of memory, by default 16 on two processors: notebook 02 then needs 2.2 GB, not 1.8.
    "MALLOC_ARENA_MAX": "2",
}
FIRST_LATER = "07"  # from here on, notebooks are about papers that came after this one
USER_ERRORS = {name for name, value in vars(errors).items() if isinstance(value, type)}
RUNNING: list[Any] = []  # the kernels of this process
OTHER_SETTINGS = "settings"  # the parameter of a notebook that takes the settings it does not name


class NotebookFailed(RuntimeError):
    """A notebook stopped with an error that is not the user's."""


def notebooks(only: str = "", *, extended: bool = True) -> list[Path]:
    """List the notebooks of the series in order.

    Parameters
    ----------
    only : str
        Numbers of notebooks and ranges, such as "00-03,05", or their names; empty for the whole
        series.
    extended : bool
        Whether the whole series includes those on later papers, from 07 on.

    Raises
    ------
    InputError
        If no notebook has one of the numbers, or in an installed copy, which has no notebooks.
    """
    if not IN_CHECKOUT:
        raise InputError(
            f"{PROJECT_ROOT}: an installed copy has no notebooks; run them from a checkout of "
            "the project ('make run' there)"
        )
    by_number = {path.name[:2]: path for path in sorted(notebook_folder().glob("[0-9]*.ipynb"))}
    number_of_name = {path.stem: number for number, path in by_number.items()}
    if not only:
        return [path for path in by_number.values() if extended or not is_later(path)]
    numbers: set[str] = set()
    for part in filter(None, only.replace(" ", "").split(",")):
        first, _, last = number_of_name.get(part, part).partition("-")
        if not (first.isdecimal() and (last or first).isdecimal()):
            numbers.add(part)
            continue
        numbers |= {f"{number:02}" for number in range(int(first), int(last or first) + 1)}
    if not numbers or not numbers <= by_number.keys():
        series = ", ".join(by_number)
        raise InputError(
            f"--only {only}: expected numbers of notebooks, such as 00-03,05; the series has "
            f"{series}"
        )
    return [by_number[number] for number in sorted(numbers)]


def notebook_folder() -> Path:
    """Locate the folder of the series."""
    return PROJECT_ROOT / "notebooks"


def is_later(path: Path) -> bool:
    """Tell whether a notebook is about a later paper; these are a run of their own."""
    return path.name >= FIRST_LATER


def used_settings(path: Path) -> set[str]:
    """Collect the settings that change what a notebook computes, which its metadata lists."""
    return set(_read(path)["metadata"].get("attention", {}).get("settings", ()))


def declared(path: Path) -> set[str]:
    """Collect the names that a notebook's cell tagged ``parameters`` assigns."""
    for cell in _read(path)["cells"]:
        if "parameters" in cell["metadata"].get("tags", []):
            return set(re.findall(r"^(\w+) =", "".join(cell["source"]), re.MULTILINE))
    return set()


def read_title(notebook: str) -> str:
    """Read the title of a notebook; another name stays as it is."""
    path = notebook_folder() / f"{notebook}.ipynb"
    if not path.is_file():
        return notebook
    return _read(path)["cells"][0]["source"][0].strip("# \n")


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def check_settings(paths: Sequence[Path], settings: Settings) -> None:
    """Refuse a setting that changes nothing in a run of these notebooks.

    A size may have no effect, because one command line serves several parts of the series.

    Raises
    ------
    InputError
        It names the notebooks that use the setting; or, for ``pairs``, those that need trees.
    """
    for path in paths if settings.pairs else ():
        if "treebank" in used_settings(path) and "pairs" not in used_settings(path):
            raise InputError(
                f"notebook {path.name[:2]}: it needs trees, and --pairs has pairs of words; leave "
                "it out with --only, or give a --treebank instead"
            )
    used = set().union(*map(used_settings, paths), SIZES)
    defaults = asdict(Settings(quick=settings.quick))
    for name in RESULT_SETTINGS:
        value = getattr(settings, name)
        if value != defaults[name] and name not in used:
            takers = ", ".join(path.name[:2] for path in notebooks() if name in used_settings(path))
            raise InputError(
                f"{flag(name)} {flag_value(value)}: no notebook of this run uses it; leave it out, "
                f"or run notebooks that use it ({takers})"
            )


def run(paths: Sequence[Path], settings: Settings, results: Results) -> None:
    """Execute the notebooks of a run into ``build/<run>/``, with an HTML copy of each.

    ``run.json`` gets the seconds of each.  What a failed run has computed stays in the cache for
    the next one.  A run that has finished before finds all in the cache, and a notebook then keeps
    one processor busy: notebooks are executed two at a time.

    Parameters
    ----------
    paths : sequence of Path
        The notebooks.
    settings : Settings
        Those that differ from the defaults go to the notebooks.
    results : Results
        The results of the run.

    Raises
    ------
    InputError
        If a notebook stopped because of something the user gave, or another process is running
        under the same name.
    NotebookFailed
        If a notebook stopped for any other reason.
    """
    with one_run_at_a_time(results.name):
        with results.edited_record(starts_run=True) as record:
            seconds_before = dict(record["seconds"])
        has_finished = seconds_before.keys() >= {path.stem for path in paths}
        environment = {"OMP_NUM_THREADS": "1"} if has_finished else {}
        with tqdm(total=len(paths), unit="notebook") as bar:

            def run_one(path: Path) -> None:
                bar.set_description(path.stem)
                start = time.monotonic()
                execute(path, results.build, parameters(path, settings), environment)
                with results.edited_record() as record:
                    record["seconds"][path.stem] = round(time.monotonic() - start, 1)
                write_html(results.build / path.name)
                bar.update()

            if has_finished:  # the longest first, so that none is left alone at the end
                two_at_a_time(run_one, sorted(paths, key=lambda path: -seconds_before[path.stem]))
            else:
                for path in paths:
                    run_one(path)


def two_at_a_time(run_one: Callable[[Path], None], paths: Sequence[Path]) -> None:
    """Call a function for each path in two threads; stop the other's kernel if one fails."""
    waiting = iter(paths)
    with ThreadPoolExecutor(max_workers=2) as threads:
        running = {threads.submit(run_one, path) for path in islice(waiting, 2)}
        try:
            while running:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    future.result()
                    running |= {threads.submit(run_one, path) for path in islice(waiting, 1)}
        except BaseException:  # also Ctrl-C
            for kernel in RUNNING:
                kernel.provisioner.process.kill()
            raise


@contextmanager
def one_run_at_a_time(name: str) -> Iterator[None]:
    """Refuse a second run of the same name meanwhile."""
    path = cache_root() / "locks" / f"{name}.run"
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(path, timeout=0):
            yield
    except Timeout:
        raise InputError(
            f"{name}: another run of this name is in progress; wait for it, or choose another "
            "--name"
        ) from None


def parameters(path: Path, settings: Settings) -> dict[str, Any]:
    """Collect the parameters of a notebook: all settings that differ from their defaults.

    Those that the notebook does not name go into its parameter ``settings``.  A run with default
    settings has no parameters, so that its notebooks are those that are committed.
    """
    defaults = asdict(Settings())
    values = {name: value for name, value in asdict(settings).items() if value != defaults[name]}
    if values:
        values["name"] = run_name(settings)
    names = declared(path)
    named = {name: value for name, value in values.items() if name in names}
    unnamed = {name: value for name, value in values.items() if name not in names}
    if unnamed:
        named[OTHER_SETTINGS] = unnamed
    return named


def write_html(path: Path) -> None:
    """Write the HTML copy of an executed notebook beside it: one file that loads nothing."""
    import nbformat
    from nbconvert import HTMLExporter

    from helpers.viewer.page import show_bidi_controls

    notebook = nbformat.read(path, as_version=4)
    notebook.metadata.pop("widgets", None)  # a live widget is blank without its kernel
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if output.output_type == "stream":
                output.text = PROGRESS_LINE.sub("", output.text)  # which the log has
    # With embed_images it would end each <details> at once, and show the solution.
    exporter = HTMLExporter(
        template_name="lab", require_js_url="", mathjax_url="", mermaid_js_url=""
    )
    exporter.raw_template = (HERE / "notebook.html.j2").read_text(encoding="utf-8")
    body, _ = exporter.from_notebook_node(notebook)
    body = re.sub(r'<script src=""[^>]*></script>', "", body)
    body = body.replace("<th></th>", "<td></td>")  # a heading without a name is none
    write_atomic(path.with_suffix(".html"), show_bidi_controls(body).encode())


@contextmanager
def started_kernel(path: Path, environment: Mapping[str, str]) -> Iterator[AsyncKernelManager]:
    """Start the kernel of a notebook, and stop it at the end."""
    from jupyter_client.manager import AsyncKernelManager
    from jupyter_core.utils import run_sync

    kernel = AsyncKernelManager(kernel_name="python3")  # as papermill's own, which sees it die
    run_sync(kernel.start_kernel)(
        extra_arguments=[
            "--IPKernelApp.log_level=CRITICAL",  # no advice on encryption
        ],
        # What the notebook saves is listed under its name.
        env={
            **KERNEL_ENVIRONMENT,
            **os.environ,
            **environment,
            COMMIT_VARIABLE: made_by()["commit"] or "",
            NOTEBOOK_VARIABLE: path.stem,
        },
    )
    RUNNING.append(kernel)
    try:
        yield kernel
    finally:  # before the next notebook needs its memory
        RUNNING.remove(kernel)
        run_sync(kernel.shutdown_kernel)(now=True)


def execute(
    path: Path,
    folder: Path,
    values: Mapping[str, Any],
    environment: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Execute a notebook into a folder, in a kernel that gets additions to the environment."""
    import papermill
    from papermill.exceptions import PapermillExecutionError

    raise_lost_interrupt()
    output = folder / path.name
    for name in ("asyncio", "papermill"):  # they log a line about each kernel that ends
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        with started_kernel(path, environment) as kernel:
            papermill.execute_notebook(
                path,
                output,
                parameters=dict(values),
                kernel_name="python3",
                km=kernel,
                progress_bar=False,
                stderr_file=DummyTqdmFile(sys.stderr),  # lines above the bar of notebooks
                execution_timeout=CELL_TIMEOUT,
                start_timeout=START_TIMEOUT,
                on_cell_start=raise_lost_interrupt,
            )
    except PapermillExecutionError as error:
        if error.ename in USER_ERRORS:
            raise InputError(f"{path.stem}: {error.evalue}") from error
        raise NotebookFailed(
            f"{path.name}, cell {error.exec_count}: {error.ename}: {error.evalue}\n"
            f"The executed notebook is {output}; what was computed is kept for the next run."
        ) from error
    except RuntimeError:
        raise NotebookFailed(
            f"{path.name}: its process was killed or did not start, maybe because memory ran out; "
            "what was computed is kept: free some memory or choose smaller sizes, and run again"
        ) from None
