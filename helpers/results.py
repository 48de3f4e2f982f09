"""The results of a run: the only writer of its tables, its figures and ``run.json``.

``run.json`` has the settings, the model and the corpora of a run and lists, for each notebook, the
tables and figures that it wrote.  What made them stands there, too: the git commit, the versions of
the libraries and the digest of the code.  In a batch run, notebooks save to the build folder, which
has a ``run.json`` of their entries, and `helpers.run.record` writes the results folder at the end.
A notebook in JupyterLab or a script saves to the results folder directly, and is listed under
"interactive".
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from helpers.cache import LIBRARIES, code_digest
from helpers.errors import InputError, TableError, or_wider
from helpers.files import (
    PROJECT_ROOT,
    build_dir,
    cache_root,
    figures_dir,
    folder_lock,
    json_digest,
    read_json,
    resolve_user_path,
    slugify,
    write_atomic,
)
from helpers.model.encoder import BUILT_IN, slug
from helpers.progress import NOTEBOOK_VARIABLE
from helpers.settings import (
    MODEL_SETTINGS,
    PATH_SETTINGS,
    RESERVED_NAMES,
    RESULT_SETTINGS,
    Settings,
    flag_value,
    small_profile,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from helpers.claims.engine import Claim

# A spreadsheet runs a cell that begins so as a formula, unless it is a number. An apostrophe put
# before it makes it text; apostrophes of the text itself may come first.
FORMULA = r"(?i)^(?='*[=+\-@\t\r\n])(?![+-](\d+\.?\d*|\.\d+)(e[+-]?\d+)?$|[+-](inf|nan)$)"
ESCAPE = r"^'(?='*[=+\-@\t\r\n])"  # the apostrophe, when a table is read
INTERACTIVE = "interactive"  # the entry of run.json for what no batch run has made
EARLIER = "earlier tables"  # of an entry: tables that its notebook shows and did not compute
MAX_LABEL_LENGTH = 53  # characters of a run's name before its digest: `RUN_NAME` allows 60
# Numbers that a claim may lack.
OPTIONAL_CLAIM_COLUMNS = (
    "value", "threshold", "turns_at", "power_at_paper", "control", "entropy_matched_control",
)  # fmt: skip
# The beginnings of the names of columns that may be empty.
MAY_BE_MISSING = ("paper", "p", "within", "between", "neighbouring", "validation")
NON_FINITE_HINT = (
    "the model has weights or states that are not finite, or a store is damaged; try "
    "'python -m helpers verify'"
)


class Results:
    """The tables, figures and ``run.json`` of a run.

    Parameters
    ----------
    settings : Settings
        The settings of the run.
    declared : collection of str
        The settings that a notebook or script names.  It does not know the others of the run.
    special_tokens : callable
        Function that returns the model's tokens for "cls" and "sep"; it is called if a column
        about one of them is empty.

    Attributes
    ----------
    slug : str
        The name of the run, as in `run_name`.
    folder, build : Path
        The folders of its results and of its executed notebooks.
    batch_folder : Path
        The folder to which the notebooks of a batch run save.
    lock_path : Path
        The path for `folder_lock` by which one process at a time changes ``run.json``.
    """

    def __init__(
        self,
        settings: Settings,
        declared: Collection[str],
        special_tokens: Callable[[], Mapping[str, str | None]],
    ) -> None:
        self.settings = settings
        self.declared = declared
        self.special_tokens = special_tokens
        self.slug = run_name(settings)
        self.folder = figures_dir(self.slug)
        self.build = build_dir(self.slug)
        self.batch_folder = self.build / "results"
        self.lock_path = cache_root() / "locks" / self.slug

    def save_table(
        self, table: pd.DataFrame, name: str, *, optional: Collection[str] = ()
    ) -> pd.DataFrame:
        """Write a table to ``tables/`` (with ``latex`` in both forms) and return it for display.

        Parameters
        ----------
        table : DataFrame
            The table.
        name : str
            Name of its file, without the suffix.
        optional : collection of str
            Columns that may be empty.

        Returns
        -------
        DataFrame
            The table.

        Raises
        ------
        TableError
            As in `check_table`.
        """
        check_table(
            table,
            name,
            special_tokens=self.special_tokens,
            optional=optional,
            dtype=self.settings.dtype,
        )
        folder = self._enter("tables", name)
        write_table(table, folder / "tables", name, latex=self.settings.latex)
        return table

    def save_figure(self, figure: Figure, name: str, *, caption: str = "") -> Figure:
        """Write a figure in the formats of the settings and return it for display.

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
        matplotlib.figure.Figure
            The figure.
        """
        from helpers.plots.style import save_figure

        folder = self._enter("figures", name, caption)
        save_figure(figure, folder, name, paper=self.settings.figures == "pdf")
        return figure

    def tables(self) -> dict[str, pd.DataFrame]:
        """Read the tables that this run's notebooks have written so far, by name.

        In a batch run, its own tables are those in the build folder.  Those of notebooks that it
        does not run are in the results folder.

        Returns
        -------
        dict of str to DataFrame
            The tables by the names of their files.
        """
        tables = read_tables(self.folder)
        if in_batch_run():
            tables |= read_tables(self.batch_folder)
        return tables

    def earlier_table(self, name: str) -> pd.DataFrame | None:
        """Read a table that an earlier run of this name computed, instead of computing it again.

        In ``run.json`` it is listed under "earlier tables", with the commit that made it.

        Parameters
        ----------
        name : str
            Name of its file, without the suffix.

        Returns
        -------
        DataFrame or None
            The table; None if no earlier run has written it.
        """
        table = read_tables(self.folder).get(name)
        if in_batch_run() and table is not None:
            commits = listed_tables(run_record(self.folder))
            with self._edited_entries() as (_, _, entry):
                entry.setdefault(EARLIER, {})[name] = commits.get(name)
        return table

    def save_claims(self, section: str = "", claims: Sequence[Claim] | None = None) -> pd.DataFrame:
        """Test claims on the tables that there are so far; write ``claims.csv`` and ``power.csv``.

        Rows of other sections stay in these files as they are.

        Parameters
        ----------
        section : str
            The beginning of a section, for example "3.2"; by default all sections of the claims.
        claims : sequence of Claim, optional
            Claims of a later paper; by default the claims of Clark et al. (2019).

        Returns
        -------
        DataFrame
            The section's claims; for the columns see `check_claims`.
        """
        from helpers.claims.clark2019 import CLAIMS
        from helpers.claims.engine import COLUMNS, NOT_MEASURED, check_claims
        from helpers.claims.power import FILE_COLUMNS

        # The claims of a section are tested together: all of section 3 for "3.2".
        together = [claim for claim in claims or CLAIMS if claim.section.startswith(section[:1])]
        tables = self.tables()
        checked = check_claims(tables, together)
        is_measured = checked["verdict"] != NOT_MEASURED
        # A file with claims of the paper has all claims of their sections, measured or not.
        is_shown = is_measured | (claims is None and is_measured.any())
        is_tested = checked["p_adjusted"].notna()
        for name, rows, optional in (
            ("claims", checked.loc[is_shown, list(COLUMNS)], OPTIONAL_CLAIM_COLUMNS),
            ("power", checked.loc[is_tested, list(FILE_COLUMNS)], FILE_COLUMNS),
        ):
            saved = tables.get(name, rows).reindex(columns=rows.columns)
            saved["section"] = saved["section"].astype(str).str.removesuffix(".0")
            is_of_others = ~saved["section"].isin(rows["section"])
            if len(rows):
                table = pd.concat([rows, saved[is_of_others]])
                table = table.sort_values("section", kind="stable")
                self.save_table(table, name, optional=optional)
        return checked[checked["section"].str.startswith(section)]

    def check_name(self) -> None:
        """Refuse a ``--name`` that a run with other settings has.

        Raises
        ------
        InputError
            With the settings that differ.
        """
        names = [name for name in RESULT_SETTINGS if name in self.declared]
        declared = serialize_settings(self.settings, names)
        recorded = declared | run_record(self.folder).get("settings", {})
        conflicts = [
            f"{name} is {recorded[name]!r} there, {value!r} here"
            for name, value in declared.items()
            if recorded[name] != value
        ]
        if self.settings.name and conflicts:
            raise InputError(
                f"--name {self.slug}: {self.folder} has a run with other settings "
                f"({'; '.join(conflicts)}); choose another name, or remove that folder"
            )

    def _enter(self, group: str, name: str, caption: str = "") -> Path:
        """List a table or figure in ``run.json``, and return the folder to which it is written.

        Outside a batch run it leaves the entry of the notebook that wrote an earlier version of it,
        because that entry names what made the earlier version.
        """
        with self._edited_entries() as (folder, record, entry):
            if not in_batch_run():
                self.check_name()
                settings = serialize_settings(self.settings, self.declared)
                record["settings"] = settings | record.get("settings", {})
                for earlier in record["notebooks"].values():
                    earlier[group] = [listed for listed in earlier[group] if listed != name]
                    if group == "tables":
                        earlier.get(EARLIER, {}).pop(name, None)
                entry |= made_by()
            entry[group] = sorted({*entry[group], name})
            if caption:
                entry.setdefault("captions", {})[name] = " ".join(caption.split())
        return folder

    @contextmanager
    def _edited_entries(self) -> Iterator[tuple[Path, dict[str, Any], dict[str, Any]]]:
        """Yield the folder to save to, its ``run.json`` and this notebook's entry; save them."""
        folder = self.batch_folder if in_batch_run() else self.folder
        with folder_lock(self.lock_path):
            record = run_record(folder)
            notebook = os.environ.get(NOTEBOOK_VARIABLE, INTERACTIVE)
            entries = record.setdefault("notebooks", {})
            yield folder, record, entries.setdefault(notebook, {"tables": [], "figures": []})
            write_record(folder, record)


def run_name(settings: Settings) -> str:
    """Compute the name of a run's folders: ``--name``, or the model and what differs.

    The default run of a model that is bundled or on the hub is called after the model.  The name of
    any other run ends with six digits of the SHA-256 of its settings, because its readable part can
    be that of another run.

    Parameters
    ----------
    settings : Settings
        The settings of the run.

    Returns
    -------
    str
        The name of one folder.
    """
    if settings.name:
        return settings.name
    label = slug(
        settings.model,
        random_seed=settings.random_init,
        entropy_matched=settings.entropy_matched,
    )
    defaults = Settings(quick=settings.quick)  # in a preset the defaults are smaller, too
    differing = {
        name: getattr(settings, name)
        for name in RESULT_SETTINGS
        if name not in MODEL_SETTINGS and getattr(settings, name) != getattr(defaults, name)
    }
    hashed_settings = [*MODEL_SETTINGS, *differing]
    if differing.pop("lens", None):
        label += f"-{settings.lens}"
    for name, value in differing.items():
        text = f"{name.replace('_', '-')}-{flag_value(value)}"
        if name in PATH_SETTINGS:
            text = Path(value.split(",")[0]).name.partition(".")[0] or "folder"
        label += f"--{slugify(text)}"
    if settings.preset:
        label += f"--{settings.preset}"
    is_local = Path(settings.model).expanduser().is_dir() and settings.model not in BUILT_IN
    is_long = len(label) > MAX_LABEL_LENGTH
    if not (differing or is_local or is_long or label in RESERVED_NAMES):
        return label
    values = serialize_settings(settings, hashed_settings)
    return f"{label[:MAX_LABEL_LENGTH]}-{json_digest(values)[:6]}"


def serialize_settings(settings: Settings, names: Collection[str]) -> dict[str, Any]:
    """Serialise settings for ``run.json``; models and files are paths from the project."""
    values = {name: getattr(settings, name) for name in names}
    for name in values.keys() & {"model", *PATH_SETTINGS}:
        values[name] = ",".join(map(_portable_path, values[name].split(",")))
    values["small"] = small_profile()
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
    return read_json(results / "run.json")


def write_record(folder: Path, record: Mapping[str, Any]) -> None:
    """Write ``run.json``."""
    text = json.dumps(record, indent=1, default=str)
    write_atomic(folder / "run.json", f"{text}\n".encode())


def listed_tables(record: Mapping[str, Any]) -> dict[str, str | None]:
    """List the tables in ``run.json``, each with the commit of the code that computed it."""
    commits = {}
    for entry in record.get("notebooks", {}).values():
        commits |= dict.fromkeys(entry["tables"], entry.get("commit", record.get("commit")))
        commits |= entry.get(EARLIER, {})
    return commits


def in_batch_run() -> bool:
    """Say whether ``run`` executes this notebook."""
    return NOTEBOOK_VARIABLE in os.environ


@cache
def made_by() -> dict[str, Any]:
    """Collect what makes a table today: the commit, the versions and the digest of the code."""
    versions = {name: version(name) for name in LIBRARIES}
    versions["python"] = platform.python_version()
    return {"commit": git_commit(), "versions": versions, "code": code_digest("run")}


def git_commit() -> str | None:
    """Return the git commit of the project, marked "-dirty" if the code was changed after it.

    Tables, figures and executed notebooks do not count as code, because a run writes them.
    """
    commands = ("rev-parse --short=12 HEAD", "status --porcelain -- helpers requirements.txt")
    try:
        commit, changes = [
            subprocess.check_output(
                ["git", *command.split()], cwd=PROJECT_ROOT, text=True, stderr=subprocess.DEVNULL
            )
            for command in commands
        ]
    except (OSError, subprocess.CalledProcessError):  # no git, or no repository
        return None
    return f"{commit.strip()}-dirty" if changes else commit.strip()


def check_table(
    table: pd.DataFrame,
    name: str,
    *,
    special_tokens: Callable[[], Mapping[str, str | None]],
    optional: Collection[str] = (),
    dtype: str = "float32",
) -> None:
    """Refuse a table with a column of numbers that are infinite, or all missing.

    A column may be empty if it is optional, a bound of an interval, about two heads or layers or
    about a number of the paper (`MAY_BE_MISSING`), or about a special token that the model lacks.

    Parameters
    ----------
    table : DataFrame
        The table.
    name : str
        Its name in messages.
    special_tokens : callable
        Function that returns the model's tokens for "cls" and "sep"; it is called if a column
        about one of them is empty.
    optional : collection of str
        Columns that may be empty.
    dtype : str
        Precision of the run, for the advice in messages.

    Raises
    ------
    TableError
        With the table, the column and the likely cause.
    """
    for column in table.select_dtypes("float"):
        values = table[column]
        parts = str(column).split("_")
        may_be_empty = (
            not len(table)
            or column in optional
            or parts[0] in MAY_BE_MISSING
            or parts[-1] in ("low", "high")
            or values.notna().any()
        )
        roles = {"cls", "sep"}.intersection(parts)
        if np.isinf(values).any():
            problem = "has infinite numbers"
        elif may_be_empty or any(special_tokens()[role] is None for role in roles):
            continue
        else:
            problem = "has no number"
        raise TableError(
            f"{name}.csv: column {column} {problem}; {NON_FINITE_HINT}{or_wider(dtype)}"
        )


def write_table(table: pd.DataFrame, folder: Path, name: str, *, latex: bool = False) -> None:
    """Write ``folder/name.csv`` with six digits, with ``latex`` also ``.tex`` with about three."""
    text = table.replace(FORMULA, "'", regex=True).to_csv(index=False, float_format="%.6g")
    write_atomic(folder / f"{name}.csv", text.encode())
    if latex:
        write_atomic(folder / f"{name}.tex", as_latex(table).encode())


def as_latex(table: pd.DataFrame) -> str:
    """Write a table as LaTeX (booktabs), its numbers rounded to about three digits.

    Parameters
    ----------
    table : DataFrame
        The table; underscores in the names of its columns become spaces.

    Returns
    -------
    str
        A ``tabular`` environment.
    """

    def format_number(value: float) -> str:
        return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"

    table = table.rename(columns=lambda name: str(name).replace("_", " "))
    text = table.to_latex(index=False, escape=True, na_rep="", float_format=format_number)
    return text.replace("·", r"\textperiodcentered{}")


def read_tables(results: Path) -> dict[str, pd.DataFrame]:
    """Read the tables of a run by name: those that ``run.json`` lists, or all without a list.

    InputError for a file that is no table.
    """
    record = run_record(results)
    names = listed_tables(record)
    tables = {}
    for path in sorted((results / "tables").glob("*.csv")):
        if "notebooks" in record and path.stem not in names:
            continue
        try:
            tables[path.stem] = pd.read_csv(path).replace(ESCAPE, "", regex=True)
        except ValueError as error:
            raise InputError(f"{path}: not a table; run the notebook again") from error
    return tables
