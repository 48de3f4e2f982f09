"""The whole series without a browser: papermill runs the notebooks in order."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm
from tqdm.contrib import DummyTqdmFile

from helpers import errors
from helpers.errors import InputError
from helpers.files import IN_CHECKOUT, PROJECT_ROOT, build_dir, json_digest, write_atomic
from helpers.progress import NOTEBOOK_VARIABLE, PROGRESS_LINE
from helpers.settings import SIZES, Settings, flag, flag_value

if TYPE_CHECKING:
    from helpers.run.record import Record
    from helpers.study import Study

CELL_TIMEOUT = 6 * 3600  # seconds: a large model on a small machine is slow, not stuck
START_TIMEOUT = 900  # a kernel imports PyTorch first, maybe from a cold disk or on a busy machine
LIVE_WIDGET = "application/vnd.jupyter.widget-view+json"  # its text/html needs no kernel
KEPT_METADATA = ("tags", "jupyter")  # of a cell; "jupyter" says that it is folded
FIRST_LATER = "07"  # from here on, notebooks are about papers that came after this one
USER_ERRORS = {name for name, value in vars(errors).items() if isinstance(value, type)}


class NotebookFailed(RuntimeError):
    """A notebook stopped with an error that is not the user's."""


def notebooks(only: str = "", *, extended: bool = True) -> list[Path]:
    """List the notebooks of the series in order.

    Parameters
    ----------
    only : str
        Numbers of notebooks, separated by commas; empty for the whole series.
    extended : bool
        Whether the whole series includes 07 to 10, which are about later papers.

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
    paths = sorted((PROJECT_ROOT / "notebooks").glob("[0-9]*.ipynb"))
    if not only:
        return [path for path in paths if extended or path.name < FIRST_LATER]
    by_number = {path.name[:2]: path for path in paths}
    numbers = {number.strip().zfill(2) for number in only.split(",") if number.strip()}
    if not numbers or not numbers <= by_number.keys():
        series = ", ".join(by_number)
        raise InputError(f"--only {only}: expected numbers of notebooks; the series has {series}")
    return [by_number[number] for number in sorted(numbers)]


def declared(path: Path) -> set[str]:
    """Collect the names that a notebook's cell tagged ``parameters`` assigns."""
    for cell in _read_cells(path):
        if "parameters" in cell["metadata"].get("tags", []):
            return set(re.findall(r"^(\w+) =", "".join(cell["source"]), re.MULTILINE))
    return set()


def code_cells_digest(path: Path) -> str:
    """Compute the SHA-256 of a notebook's code; its prose and outputs change no table."""
    sources = [cell["source"] for cell in _read_cells(path) if cell["cell_type"] == "code"]
    return json_digest(sources)


def read_title(notebook: str) -> str:
    """Read the title of a notebook; an entry of ``run.json`` that is none keeps its name."""
    path = PROJECT_ROOT / "notebooks" / f"{notebook}.ipynb"
    if not path.is_file():
        return notebook
    return _read_cells(path)[0]["source"][0].strip("# \n")


def _read_cells(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


def check_settings(paths: Sequence[Path], settings: Settings) -> set[str]:
    """Collect the settings that notebooks declare, and refuse one that has no effect.

    A setting has no effect if it differs from its default and no notebook declares it.  A size may
    have none, because one command line serves several parts of the series.

    Raises
    ------
    InputError
        For any other setting without effect; it names the notebooks that declare the setting.
    """
    declared_settings = set().union(*map(declared, paths))
    defaults = asdict(Settings(quick=settings.quick))
    for name, value in asdict(settings).items():
        if value != defaults[name] and name not in declared_settings.union(SIZES):
            takers = ", ".join(path.name[:2] for path in notebooks() if name in declared(path))
            raise InputError(
                f"{flag(name)} {flag_value(value)}: no notebook of this run uses it; leave it out, "
                f"or run notebooks that use it ({takers})"
            )
    return declared_settings


def run(paths: Sequence[Path], study: Study, record: Record) -> Path:
    """Execute notebooks into ``build/<run>/``, with an HTML copy of each; return that folder.

    The study's settings go to the notebooks that declare them.  The tables and figures of each
    notebook are noted in the record.  What a failed run has computed stays in the cache for the
    next one.

    Raises
    ------
    InputError
        If a notebook stopped because of something the user gave.
    NotebookFailed
        If a notebook stopped for any other reason.
    """
    folder = study.results.build
    settings = asdict(study.settings) | {"name": study.slug}
    bar = tqdm(paths, unit="notebook")
    with ThreadPoolExecutor(1) as copier:  # a copy is made while the next notebook is executed
        copies = []
        for path in bar:
            bar.set_description(path.stem)
            execute(path, folder, settings)
            record.note(path.stem, code_cells_digest(path))
            copies.append(copier.submit(write_html, folder / path.name))
    for copy in copies:
        copy.result()
    return folder


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
    exporter = HTMLExporter(
        template_name="lab", require_js_url="", mathjax_url="", mermaid_js_url="", embed_images=True
    )
    body, _ = exporter.from_notebook_node(notebook)
    body = re.sub(r'<script src=""[^>]*></script>', "", body)
    write_atomic(path.with_suffix(".html"), show_bidi_controls(body).encode())


def execute(path: Path, folder: Path, settings: Mapping[str, Any]) -> None:
    """Execute a notebook into a folder."""
    import papermill
    from papermill.exceptions import PapermillExecutionError

    output = folder / path.name
    for name in ("asyncio", "papermill"):  # they log a line about each kernel that ends
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        with batch_notebook(path.stem):
            papermill.execute_notebook(
                path,
                output,
                parameters={name: settings[name] for name in declared(path) & settings.keys()},
                kernel_name="python3",
                extra_arguments=["--IPKernelApp.log_level=CRITICAL"],  # no advice on encryption
                progress_bar=False,
                stderr_file=DummyTqdmFile(sys.stderr),  # lines above the bar of notebooks
                execution_timeout=CELL_TIMEOUT,
                start_timeout=START_TIMEOUT,
                shutdown_kernel="immediate",  # nothing is left to do, and it saves a second
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


@contextmanager
def batch_notebook(name: str) -> Iterator[None]:
    """List what is saved meanwhile under the name of a notebook; the kernels inherit it."""
    os.environ[NOTEBOOK_VARIABLE] = name
    try:
        yield
    finally:
        del os.environ[NOTEBOOK_VARIABLE]


def refresh(paths: Sequence[Path]) -> None:
    """Execute notebooks in place, as they are committed: without what differs between machines."""
    import nbformat

    folder = build_dir("refresh")
    folder.mkdir(parents=True, exist_ok=True)
    for path in tqdm(paths, desc="notebooks", unit="notebook"):
        execute(path, folder, {})
        notebook = nbformat.read(folder / path.name, as_version=4)
        notebook.metadata = {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        }
        for cell in notebook.cells:
            metadata = cell.metadata
            cell.metadata = {key: metadata[key] for key in KEPT_METADATA if metadata.get(key)}
            if cell.cell_type == "code":
                cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
                for output in cell.outputs:
                    output.get("data", {}).pop(LIVE_WIDGET, None)
        nbformat.write(notebook, path)
