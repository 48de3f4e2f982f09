"""The results of a run: the only writer of its tables, its figures and ``run.json``.

``run.json`` has the settings, the model and the corpora of a run and lists, for each notebook, the
tables and figures that it wrote.  What made them stands there, too: the git commit, the versions of
the libraries and the digest of the code.  In a batch run, notebooks save to the build folder, and
`helpers.run.record` writes the results folder at the end.  A notebook in JupyterLab or a script
saves to the results folder directly, and is listed as an interactive session.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache, cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from filelock import FileLock

from helpers.cache import package_digest
from helpers.errors import InputError, TableError, or_wider
from helpers.files import (
    build_dir,
    cache_root,
    figures_dir,
    project_root,
    resolve_user_path,
    slugify,
    write_atomic,
)
from helpers.model.encoder import BUILT_IN, slug
from helpers.progress import OUTPUT_LIST_VARIABLE
from helpers.settings import (
    MODEL_SETTINGS,
    PATH_SETTINGS,
    RESERVED_NAMES,
    RESULT_SETTINGS,
    Settings,
    flag,
    flag_value,
    small_profile,
)
from helpers.sources import fingerprints

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from helpers.claims.engine import Claim

LIBRARIES = ("torch", "transformers", "numpy", "pandas", "scikit-learn", "spacy", "gensim")
# The files that are compared and committed, and forms of them that are asked for with a flag.
FILES = {"tables": ("tables/{}.csv",), "figures": ("{}.png", "{}.svg")}
FORMS_ON_REQUEST = {"tables": ("tables/{}.tex",), "figures": ("{}.pdf",)}
INTERACTIVE = "interactive"  # how entries of run.json begin that no batch run made
# A spreadsheet runs a cell that begins so as a formula, unless it is a number. An apostrophe put
# before it makes it text; apostrophes of the text itself may come first.
FORMULA = r"(?i)^(?='*[=+\-@\t\r\n])(?![+-](\d+\.?\d*|\.\d+)(e[+-]?\d+)?$|[+-](inf|nan)$)"
ESCAPE = r"^'(?='*[=+\-@\t\r\n])"  # the apostrophe, when a table is read
MAX_LABEL_BYTES = 80  # bytes of a run's name before its digest
# Numbers that a claim may lack.
OPTIONAL_CLAIM_COLUMNS = (
    "value", "threshold", "turns_at", "power_at_paper", "control", "entropy_matched_control",
)  # fmt: skip
# The beginnings of the names of columns that may be empty.
MAY_BE_MISSING = ("paper", "p", "within", "between", "neighbouring", "validation")
NON_FINITE_HINT = (
    "weights or states that are not finite, or a damaged store: try 'python -m helpers verify'"
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

    @cached_property
    def corpus_fingerprints(self) -> dict[str, str]:
        """The SHA-256 of each corpus that the declared settings describe in full."""
        return fingerprints(self.settings, self.declared)

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
        self._enter("tables", name)
        folder = self.build if in_batch_run() else self.folder
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

        self._enter("figures", name, caption)
        folder = self.build / "figures" if in_batch_run() else self.folder
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
            tables |= read_tables(self.build)
        return tables

    def save_claims(self, section: str = "", later: Iterable[Claim] = ()) -> pd.DataFrame:
        """Test the paper's claims on the tables that there are so far, and write ``claims.csv``.

        Parameters
        ----------
        section : str
            The beginning of a section, for example "3.2"; by default the whole paper.  Rows of the
            other sections stay as they are in the file.
        later : iterable of Claim
            Claims of later papers.  Without them, their rows in the file stay in it.

        Returns
        -------
        DataFrame
            The section's claims; for the columns see `check_claims`.
        """
        from helpers.claims.clark2019 import paper_claims
        from helpers.claims.engine import COLUMNS, NOT_MEASURED, check_claims

        tables = self.tables()
        paper_rows = check_claims(tables, paper_claims(section))
        rows = pd.concat([paper_rows, check_claims(tables, later)])
        if "claims" in tables:
            saved = tables["claims"].reindex(columns=COLUMNS)
            saved["section"] = saved["section"].astype(str).str.removesuffix(".0")
            rows = pd.concat([rows, saved[~saved["section"].isin(set(rows["section"]))]])
        is_paper = rows["section"].str[:1].str.isdecimal()
        is_measured = rows["verdict"] != NOT_MEASURED
        rows = rows[is_measured | (is_paper & is_measured[is_paper].any())]
        if len(rows):
            # Sections of the paper are numbers, which come before the names of later papers.
            rows = rows.sort_values("section", key=lambda names: names.str[:1], kind="stable")
            self.save_table(rows, "claims", optional=OPTIONAL_CLAIM_COLUMNS)
        return paper_rows[paper_rows["section"].str.startswith(section)]

    def check_name(self) -> None:
        """Refuse a ``--name`` that a run with other settings has.

        Raises
        ------
        InputError
            With the settings that differ.
        """
        if not self.settings.name:
            return
        recorded = run_record(self.folder).get("settings")
        conflicts = []
        if recorded is not None:
            names = [name for name in self.declared if name in RESULT_SETTINGS]
            for name, value in serialize_settings(self.settings, names).items():
                recorded_value = recorded.get(name, value)
                if recorded_value != value:
                    label = "ATTENTION_PROFILE=small" if name == "small" else flag(name)
                    conflicts.append(f"{label} is {recorded_value!r} there, {value!r} here")
        elif any(self.folder.glob("tables/*.csv")):
            conflicts.append("it has tables but no run.json, so their settings are unknown")
        if conflicts:
            raise InputError(
                f"--name {self.slug}: {self.folder} has another run ({'; '.join(conflicts)}); "
                "give this one another name, or none, or remove that folder"
            )

    def claim(self, description: Mapping[str, Any]) -> dict[str, Any]:
        """Take the folder for a run of these inputs; return what its ``run.json`` says.

        Tables and figures of another model, or of other corpora under the same names, are set
        aside.  It is called with the `record_lock`.

        Parameters
        ----------
        description : mapping
            The ``model`` and ``corpora`` of ``run.json``, as far as they are known.
        """
        before = run_record(self.folder)
        names = contradictions(before, description)
        if names:
            print(set_aside(self.folder, self.build, names), file=sys.stderr, flush=True)
            return {}
        return before

    @contextmanager
    def described(self, description: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Add a description to what ``run.json`` says, yield all of it, and write it at the end."""
        with record_lock(self.slug):
            before = self.claim(description)
            record = dict(before)
            record.setdefault("notebooks", {})
            for key, value in description.items():
                record.setdefault(key, value)
            for key in ("settings", "corpora"):
                for name, value in description[key].items():
                    record[key].setdefault(name, value)
            yield record
            write_record(self.folder, record)

    def _enter(self, group: str, name: str, caption: str = "") -> None:
        """List a table or figure that is about to be written, for the batch run or in run.json.

        In ``run.json`` it leaves the entry of the notebook that wrote an earlier version of it,
        because that entry names what made the earlier version.
        """
        if in_batch_run():
            note_output(group, name, caption)
            return
        self.check_name()
        description = {
            "settings": serialize_settings(self.settings, self.declared),
            "corpora": self.corpus_fingerprints,
        }
        makers = made_by()
        digest = hashlib.sha256(json.dumps(makers, sort_keys=True).encode()).hexdigest()
        session = f"{INTERACTIVE}-{digest[:8]}"
        with self.described(description) as record:
            entries = record["notebooks"]
            for entry in entries.values():
                entry[group] = [listed_name for listed_name in entry[group] if listed_name != name]
            entry = entries.setdefault(session, {"tables": [], "figures": [], **makers})
            _list_output(entry, group, name, caption)
            record["notebooks"] = without_empty_sessions(entries)


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
    model = slug(
        settings.model,
        random_seed=settings.random_init,
        entropy_matched=settings.entropy_matched,
    )
    if settings.lens != Settings.lens:
        model += f"-{settings.lens}"
    differing = {name: value for name, value in settings.non_default.items() if name != "lens"}
    parts = [model, *(_label(name, value) for name, value in differing.items()), settings.preset]
    label = "--".join(part for part in parts if part)
    short_label = label.encode(errors="replace")[:MAX_LABEL_BYTES].decode(errors="ignore")
    is_local = Path(settings.model).expanduser().is_dir() and settings.model not in BUILT_IN
    if not differing and not is_local and label == short_label and label not in RESERVED_NAMES:
        return label
    values = serialize_settings(settings, [*MODEL_SETTINGS, *settings.non_default])
    digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
    return f"{short_label}-{digest[:6]}"


def _label(setting: str, value: object) -> str:
    """Write a setting as a part of a folder's name: a file's own name, or setting and value."""
    if setting in PATH_SETTINGS:
        return slugify(Path(str(value).split(",")[0]).name.partition(".")[0] or "folder")
    return slugify(f"{setting.replace('_', '-')}-{flag_value(value)}")


def serialize_settings(settings: Settings, names: Collection[str]) -> dict[str, Any]:
    """Serialise settings for ``run.json``; models and files are paths from the project."""
    values = {}
    for name in names:
        value = getattr(settings, name)
        values[name] = _portable_path(value) if name in ("model", *PATH_SETTINGS) else value
    values["small"] = small_profile()
    return values


def _portable_path(text: str) -> str:
    """Write the path of a model or file from the project; names of models and corpora stay."""
    if "," in text and not resolve_user_path(text).exists():
        return ",".join(_portable_path(part.strip()) for part in text.split(","))
    path = resolve_user_path(text)
    if text in ("", *BUILT_IN) or not path.exists():
        return text
    return f"./{os.path.relpath(path.resolve(), project_root())}"


def contradictions(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Name the inputs in which two descriptions of a run differ, of those that both have."""
    names = set()
    for group in ("model", "corpora"):
        old = before.get(group, {})
        new = now.get(group, {})
        for key in old.keys() & new.keys():
            if old[key] != new[key]:
                names.add("model" if group == "model" else key.removesuffix(" fingerprint"))
    return sorted(names)


def set_aside(results: Path, build: Path, names: Collection[str]) -> str:
    """Move the tables and figures of other inputs to the build folder; say so in a sentence."""
    number = 1
    while (folder := build / f"set-aside-{number}").exists():
        number += 1
    (folder / "tables").mkdir(parents=True)
    for group, patterns in FILES.items():
        listed_names = recorded_outputs(results, group)
        for pattern in patterns + FORMS_ON_REQUEST[group]:
            for path in results.glob(pattern.format("*")):
                if listed_names is None or path.stem in listed_names:
                    shutil.move(path, folder / path.relative_to(results))
    shutil.move(results / "run.json", folder)
    n_tables = len(list(folder.glob("tables/*.csv")))
    n_figures = len(list(folder.glob("*.png")))
    return (
        f"{results.name}: the {' and the '.join(names)} changed since the last run. "
        f"{n_tables} tables and {n_figures} figures of before are now in {folder}."
    )


@contextmanager
def record_lock(slug: str) -> Iterator[None]:
    """Let one process at a time read and change the ``run.json`` of a run."""
    folder = cache_root() / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / f"{slug}.lock"):
        yield


def run_record(results: Path) -> dict[str, Any]:
    """Read a run's ``run.json``; empty if it is missing or damaged."""
    try:
        return dict(json.loads((results / "run.json").read_bytes()))
    except (OSError, ValueError, TypeError):
        return {}


def write_record(folder: Path, record: Mapping[str, Any]) -> None:
    """Write ``run.json``."""
    text = json.dumps(record, indent=1, default=str)
    write_atomic(folder / "run.json", f"{text}\n".encode())


def recorded_outputs(results: Path, group: str) -> set[str] | None:
    """Read the "tables" or "figures" that ``run.json`` lists; None if it has no such lists."""
    notebooks = run_record(results).get("notebooks")
    if notebooks is None:
        return None
    names = set()
    for outputs in notebooks.values():
        names.update(outputs[group])
    return names


def without_empty_sessions(entries: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out the interactive sessions whose tables and figures were all made again since."""
    return {
        name: entry
        for name, entry in sorted(entries.items())
        if not name.startswith(INTERACTIVE) or entry["tables"] or entry["figures"]
    }


def in_batch_run() -> bool:
    """Say whether ``run`` executes this notebook."""
    return bool(os.environ.get(OUTPUT_LIST_VARIABLE))


def note_output(group: str, name: str, caption: str = "") -> None:
    """List a table or figure for the batch run of this notebook, if any."""
    if in_batch_run():
        notes = Path(os.environ[OUTPUT_LIST_VARIABLE])
        entry = read_notes(notes)
        _list_output(entry, group, name, caption)
        notes.write_text(json.dumps(entry), encoding="utf-8")


def read_notes(notes: Path) -> dict[str, Any]:
    """Read the lists of the tables and figures that a notebook of a batch run has written."""
    if notes.is_file():
        return json.loads(notes.read_bytes())
    return {"tables": [], "figures": []}


def _list_output(entry: dict[str, Any], group: str, name: str, caption: str) -> None:
    """Enter a table or figure, and its caption, in an entry of ``run.json``."""
    entry[group] = sorted({*entry.get(group, []), name})
    if caption:
        entry.setdefault("captions", {})[name] = " ".join(caption.split())


@cache
def made_by() -> dict[str, Any]:
    """Collect what makes a table today: the commit, the versions and the digest of the code."""
    versions = {name: version(name) for name in LIBRARIES}
    versions["python"] = platform.python_version()
    return {"commit": git_commit(), "versions": versions, "code": package_digest()}


def git_commit() -> str | None:
    """Return the git commit of the project, marked "-dirty" if the code was changed after it.

    Tables, figures and executed notebooks do not count as code, because a run writes them.
    """
    commit = git("rev-parse", "--short=12", "HEAD")
    changes = git("status", "--porcelain", "--", "helpers", "requirements.txt")
    return f"{commit}-dirty" if commit and changes else commit


def git(*arguments: str) -> str | None:
    """Run git in the project's folder and return its output; None without git or a repository."""
    with suppress(OSError, subprocess.CalledProcessError):
        return subprocess.check_output(
            ["git", *arguments], cwd=project_root(), stderr=subprocess.DEVNULL, text=True
        ).strip()
    return None


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
    if not len(table):
        return
    for column in table.select_dtypes("float"):
        values = table[column]
        if np.isinf(values).any():
            problem = "has infinite numbers"
        elif values.isna().all() and not _may_be_empty(str(column), special_tokens, optional):
            problem = "has no number"
        else:
            continue
        raise TableError(
            f"{name}.csv: column {column} {problem}; {NON_FINITE_HINT}{or_wider(dtype)}"
        )


def _may_be_empty(
    column: str,
    special_tokens: Callable[[], Mapping[str, str | None]],
    optional: Collection[str],
) -> bool:
    """Tell whether a column of a table may have no number."""
    parts = column.split("_")
    if column in optional or parts[0] in MAY_BE_MISSING or parts[-1] in ("low", "high"):
        return True
    roles = {"cls", "sep"}.intersection(parts)
    return any(special_tokens().get(role) is None for role in roles)


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
        if value % 1 == 0 or abs(value) >= 1000:
            return f"{value:.0f}"
        return f"{value:.3g}"

    table = table.rename(columns=lambda name: str(name).replace("_", " "))
    text = table.to_latex(index=False, escape=True, na_rep="", float_format=format_number)
    return text.replace("·", r"\textperiodcentered{}")


def read_tables(results: Path) -> dict[str, pd.DataFrame]:
    """Read the tables of a run by name: those that ``run.json`` lists, or all without a list.

    InputError for a file that is no table.
    """
    names = recorded_outputs(results, "tables")
    tables = {}
    for path in sorted((results / "tables").glob("*.csv")):
        if names is not None and path.stem not in names:
            continue
        try:
            tables[path.stem] = pd.read_csv(path).replace(ESCAPE, "", regex=True)
        except ValueError as error:
            problem = str(error).splitlines()[0]
            raise InputError(f"{path}: not a table ({problem}); run the notebook again") from error
    return tables
