"""The results of a run: the only writer of its tables, its figures and ``run.json``.

A run writes one folder, ``build/<run>/``, in a batch and in JupyterLab alike.  ``run.json`` says
what made the results: commit, settings, model, corpora, library versions, a digest of the code, and
the tables and figures.  A run of the same settings, model, corpora and code adds to that folder.
For any other, ``run.json`` begins anew, and a batch run removes at its start what is not listed.  A
folder with files and without ``run.json`` is not of a run, and none writes to it.  The committed
runs are in ``figures/``.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from subprocess import DEVNULL, CalledProcessError, check_output
from typing import TYPE_CHECKING, Any

import pandas as pd

from helpers.cache import LIBRARIES, code_digest, read_table
from helpers.errors import InputError
from helpers.files import (
    IN_CHECKOUT,
    PROJECT_ROOT,
    build_dir,
    cache_root,
    figures_dir,
    file_digests,
    folder_lock,
    json_digest,
    read_json,
    resolve_user_path,
    slugify,
    write_atomic,
)
from helpers.model.loading import BUILT_IN, slug
from helpers.progress import NOTEBOOK_VARIABLE
from helpers.settings import (
    EXECUTION_SETTINGS,
    MODEL_SETTINGS,
    PATH_SETTINGS,
    RESULT_SETTINGS,
    Settings,
    make_settings,
)

if TYPE_CHECKING:
    from IPython.display import Image
    from matplotlib.figure import Figure


RECORD = "run.json"
IDENTITY = ("settings", "parameters", "model", "corpora", "code")  # what results of a run share
WRITTEN_SUFFIXES = (".csv", ".png", ".svg", ".pdf", ".ipynb", ".html")  # of a run's files
LATER = "-later"  # the end of the name of a run of later papers' notebooks
MAX_LABEL_LENGTH = 53  # characters of a run's name before its digest: `RUN_NAME` allows 60


class Results:
    """The tables, figures and ``run.json`` of a run.

    Parameters
    ----------
    settings : Settings
        The settings of the run.
    later : bool
        Whether this is the run of the notebooks on later papers, which has a folder of its own.

    Attributes
    ----------
    name : str
        The name of the run and of its folders.
    build : Path
        The folder to which notebooks save, ``build/<run>/``.
    published : Path
        The folder of the run if it is a committed one, ``figures/<run>/``.
    facts : dict
        What ``run.json`` says about the model and the corpora; a `Study` adds what it opens.
    """

    def __init__(self, settings: Settings, *, later: bool = False) -> None:
        self.settings = settings
        self.name = run_name(settings) + LATER * later
        self.build = build_dir(self.name)
        self.published = figures_dir(self.name)
        self.facts: dict[str, Any] = {}

    def save_table(self, table: pd.DataFrame, name: str) -> pd.DataFrame:
        """Write a table to ``tables/`` and return it for display.

        Parameters
        ----------
        table : DataFrame
            The table.
        name : str
            Name of its file, without the suffix.

        Returns
        -------
        DataFrame
            The table.
        """
        with self.edited_record() as record:
            writers = {*record["tables"].get(name, "").split(", "), notebook_name()} - {""}
            record["tables"][name] = ", ".join(sorted(writers))
            write_table(table, self.build / "tables", name)
        return table

    def save_figure(self, figure: Figure, name: str, *, caption: str = "") -> Image:
        """Write a figure to ``build/<run>/`` and return its picture for display.

        The picture is the file's, because drawing a figure again takes as long as all else in many
        notebooks.

        Parameters
        ----------
        figure : matplotlib.figure.Figure
            The figure.
        name : str
            Name of its files, without the suffix.
        caption : str
            What to look at; ``run.json`` lists it, and the report shows it below the figure.

        Returns
        -------
        IPython.display.Image
            The PNG, with the title as the text for readers who do not see it.
        """
        from IPython.display import Image

        from helpers.plots.style import SCREEN_DPI, save_figure, title_of

        title = title_of(figure)
        with self.edited_record() as record:  # not while it draws: other notebooks may run
            record["figures"][name] = {
                "notebook": notebook_name(),
                "title": title,
                "caption": " ".join(caption.split()),
            }
        path = save_figure(figure, self.build, name, formats=self.settings.formats.split(","))
        width = round(figure.get_figwidth() * SCREEN_DPI)
        return Image(path.read_bytes(), width=width, alt=title.replace("\n", " "))

    def tables(self) -> dict[str, pd.DataFrame]:
        """Read the tables of this run by name, unless they are of other settings or code.

        A notebook that is opened alone gets the tables that its run has not computed yet from the
        committed run in ``figures/<run>/``, if that has the same settings.

        Returns
        -------
        dict of str to DataFrame
            The tables by the names of their files.
        """
        tables: dict[str, pd.DataFrame] = {}
        committed_settings = run_record(self.published).get("settings")
        if not differ(committed_settings, serialize_settings(self.settings)):
            tables |= read_tables(self.published)
        if not self._differing(run_record(self.build)):
            tables |= read_tables(self.build)
        return tables

    def start_run(self) -> None:
        """Begin a batch run: remove the files in its folder that are of another run."""
        with self.edited_record() as record:
            record["commit"] = git_commit()
            listed = {*record["tables"], *record["figures"], *record["seconds"]}
            for path in [*self.build.glob("tables/*"), *self.build.glob("*")]:
                if path.suffix in WRITTEN_SUFFIXES and path.stem not in listed:
                    path.unlink()

    @contextmanager
    def edited_record(self) -> Iterator[dict[str, Any]]:
        """Yield ``run.json`` to be changed, and write it.

        If the results in the folder are of another run, it is a new one, which lists none of them.
        """
        with folder_lock(cache_root() / "locks" / self.name):
            check_run_folder(self.build)
            record = run_record(self.build)
            differing = ", ".join(self._differing(record))
            if differing:
                print(f"{self.build}: its results were of other {differing}", file=sys.stderr)
                record = {}
            record.setdefault("commit", git_commit())
            record = {"tables": {}, "figures": {}, "seconds": {}} | record | self._identity()
            for name, value in self.facts.items():
                record[name] = record.get(name, {}) | value if isinstance(value, dict) else value
            yield record
            text = json.dumps(record, indent=1, default=str) + "\n"
            write_atomic(self.build / RECORD, text.encode())

    def _identity(self) -> dict[str, Any]:
        """Collect the settings, the versions and the code, which all results of a folder share."""
        return {"settings": serialize_settings(self.settings), **made_by()}

    def _differing(self, record: Mapping[str, Any]) -> list[str]:
        """List in what a folder's results are of another run."""
        today = json.loads(json.dumps(self.facts | self._identity(), default=str))
        return [name for name in IDENTITY if differ(record.get(name), today.get(name))]


def differ(recorded: Any, value: Any) -> bool:
    """Tell whether two values differ in something that neither lacks."""
    if isinstance(recorded, dict) and isinstance(value, dict):
        return any(recorded[key] != value[key] for key in recorded.keys() & value.keys())
    return None not in (recorded, value) and recorded != value


def check_run_folder(folder: Path) -> None:
    """Raise InputError if a folder holds files, but no ``run.json``: no run may empty it."""
    if folder.is_dir() and any(folder.iterdir()) and not (folder / RECORD).is_file():
        problem = "this folder holds files that no run wrote"
        raise InputError(f"{folder}: {problem}; choose another --name, or move them")


def notebook_name() -> str:
    """Return the name of the notebook that runs here: of a batch run, or in JupyterLab."""
    session = os.environ.get("JPY_SESSION_NAME", "")  # the path of the notebook
    return os.environ.get(NOTEBOOK_VARIABLE) or Path(session).stem


def run_name(settings: Settings, parameters: Mapping[str, Any] | None = None) -> str:
    """Compute the name of a run's folders: ``--name``, or the model and what differs.

    The default run of a model that is bundled or on the hub is called after the model.  The name of
    any other run ends with six digits of the SHA-256 of its settings, because its readable part can
    be that of another run.

    Parameters
    ----------
    settings : Settings
        The settings of the run.
    parameters : mapping, optional
        The parameters of notebooks that are no settings (``run -p``).

    Returns
    -------
    str
        The name of one folder.
    """
    if settings.name:
        return settings.name
    values = {**vars(settings), **(parameters or {})}
    defaults = vars(make_settings(quick=settings.quick))
    parts = [slug(settings.model, random_seed=settings.random_init)]
    for name, value in values.items():
        if value != defaults.get(name) and name not in (*MODEL_SETTINGS, *EXECUTION_SETTINGS):
            path = Path(str(value).split(",")[0])
            text = path.stem if name in PATH_SETTINGS else f"{name.replace('_', '-')}-{value}"
            parts.append(slugify(text))
    is_local = Path(settings.model).expanduser().is_dir() and settings.model not in BUILT_IN
    has_digest = is_local or len(parts) > 1
    if settings.quick:
        parts.append("quick")
    label = "--".join(parts)
    if not has_digest and len(label) <= MAX_LABEL_LENGTH:
        return label
    digest = json_digest([serialize_settings(settings), dict(parameters or {})])
    return f"{label[:MAX_LABEL_LENGTH]}-{digest[:6]}"


def serialize_settings(settings: Settings) -> dict[str, Any]:
    """Serialise settings for ``run.json``; models and files are paths from the project."""
    values: dict[str, Any] = {name: getattr(settings, name) for name in RESULT_SETTINGS}
    for name in ("model", *PATH_SETTINGS):
        values[name] = ",".join(map(_portable_path, values[name].split(",")))
    return values


def _portable_path(text: str) -> str:
    """Write the path of a model or file from the project; names of models and corpora stay."""
    if text in ("", *BUILT_IN):
        return text
    path = resolve_user_path(text.strip())
    if not path.exists():
        return text
    return f"./{os.path.relpath(path.resolve(), PROJECT_ROOT)}"


def run_record(results: Path) -> dict[str, Any]:
    """Read a run's ``run.json``; empty if it is missing or damaged."""
    return read_json(results / RECORD)


@cache
def made_by() -> dict[str, Any]:
    """Collect what makes a table today: the versions and the digest of the code."""
    versions = {name: version(name) for name in LIBRARIES}
    versions["python"] = platform.python_version()
    packages = PROJECT_ROOT.glob("*/__init__.py") if IN_CHECKOUT else [Path(__file__)]
    code = file_digests(*sorted(path.parent for path in packages))
    return {"versions": versions, "code": code_digest(code)}


def git_commit() -> str | None:
    """Return the git commit of the project, marked "-dirty" if the code was changed after it.

    Tables, figures and notebooks do not count as code.
    """
    code = ["*.py", "*.toml", "requirements.txt", ":!tests", ":!scripts"]
    git = partial(check_output, cwd=PROJECT_ROOT, stderr=DEVNULL, text=True)
    try:
        commit = git(["git", "rev-parse", "--short=12", "HEAD"]).strip()
        changes = git(["git", "status", "--porcelain", "--", *code])
    except (OSError, CalledProcessError):  # no git, or no repository
        return None
    return f"{commit}-dirty" if changes else commit


def write_table(table: pd.DataFrame, folder: Path, name: str) -> None:
    """Write ``folder/name.csv`` with six digits."""
    text = table.to_csv(index=False, float_format="%.6g")
    write_atomic(folder / f"{name}.csv", text.encode())


def read_tables(results: Path) -> dict[str, pd.DataFrame]:
    """Read the tables that a folder's ``run.json`` lists, by name.

    Parameters
    ----------
    results : Path
        The folder of a run.

    Returns
    -------
    dict of str to DataFrame
    """
    listed = run_record(results).get("tables", {})
    paths = sorted(results.glob("tables/*.csv"))
    return {path.stem: read_table(path) for path in paths if path.stem in listed}
