"""The record of a run: inputs checked before it starts, outputs compared and listed at its end."""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from filelock import FileLock, Timeout

from helpers.data.glove import DEFAULT, read_glove
from helpers.errors import InputError
from helpers.files import cache_root, check_free, folder_lock, write_atomic
from helpers.results import (
    INTERACTIVE,
    Results,
    in_batch_run,
    made_by,
    run_record,
    serialize_settings,
    write_record,
)
from helpers.run.tolerances import TableDifference, compare_tables
from helpers.settings import LATER_SETTINGS
from helpers.study import Study

MAKERS = ("commit", "versions", "code")  # what made an entry of run.json
INPUTS = ("model", "corpora", "code")  # of an entry; the digest of the code has the versions
OUTPUTS = ("tables", "figures")  # the lists of an entry


def check(study: Study, declared_settings: Collection[str]) -> Iterator[str]:
    """Check the inputs of notebooks that declare these settings; yield a line for each corpus.

    Raises
    ------
    InputError
        If a path does not exist, a corpus or task cannot be read, a scheduler does not answer, or
        a model cannot be loaded or does not take the settings of the study.
    StoreError
        If the disk has no room.
    """
    from helpers.store.cluster import dask_client
    from helpers.store.extract import needed_bytes, store_key
    from helpers.studies.registry import check_inputs

    settings = study.settings
    if settings.scheduler:
        dask_client(scheduler=settings.scheduler).close()
    check_inputs(settings)
    if settings.vectors:
        read_glove(settings.vectors, max_lines=1000)
    study.objective_inputs()
    # A missing file is refused here, before anything is read.
    study.treebank_corpus()
    study.coreference_corpus()
    store_key(study.encoder, study.segment_corpus(), max_tokens=settings.max_tokens)
    # Maps of words are stored again for two controls (04), the controls with random weights and the
    # entropy-matched one (05), and the models of later papers, which have settings of their own.
    control_stores = 2 if "minimum_count" in declared_settings else 0
    random_stores = settings.initialisations + 1 if "vectors" in declared_settings else 0
    later_stores = 0 if LATER_SETTINGS.keys().isdisjoint(declared_settings) else 1
    other_stores = max(control_stores, random_stores, later_stores)
    total = 0
    yield f"language: {study.language}"
    yield from study.notes
    # Without other stores, sentences are only for examples, which can be segments as well.
    open_sentences = study.treebank_store if other_stores else study.example_store
    for setting, n_stores, open_store in (
        ("segments", "stream" in declared_settings and not settings.stream, study.segment_store),
        ("sentences", 1 + other_stores, open_sentences),
        ("coref", 1 + control_stores, study.coreference_store),
    ):
        is_missing = setting == "coref" and study.missing_note("coref")
        if setting in declared_settings and not is_missing:
            store = open_store(stream=True)  # all of a corpus is read, cut and counted
            size = n_stores * needed_bytes(store)
            total += size
            name = store.spec.corpus["name"]
            yield f"{name}: {len(store):,} examples, {size / 1e6:,.0f} MB to extract"
    check_free(cache_root(), total)
    free = shutil.disk_usage(cache_root()).free
    yield f"{cache_root()}: {total / 1e9:.1f} GB in all, {free / 1e9:,.0f} GB are free"


def describe(study: Study) -> dict[str, Any]:
    """Collect the facts of a run: settings, model, corpora, and what makes its tables today."""
    corpora = {}
    if not study.missing_note("vectors"):
        corpora["word vectors"] = Path(study.settings.vectors).stem or DEFAULT
    for name, is_used, corpus in (
        ("text", True, study.segment_corpus()),
        ("treebank", study.has_parses, study.treebank_corpus()),
        ("coreference", not study.missing_note("coref"), study.coreference_corpus()),
    ):
        if is_used:
            corpora[name] = corpus.name
            corpora[f"{name} fingerprint"] = corpus.fingerprint
    return {
        "settings": serialize_settings(study.settings, study.results.declared),
        "model": study.encoder.identity,
        "special tokens": study.encoder.special_tokens,
        "objective": study.objective,
        "language": study.language,
        "notes": study.notes,
        "corpora": corpora,
        **made_by(),
    }


def save_description(study: Study) -> None:
    """Add the facts of a study to its ``run.json``, except those that are there already.

    In a notebook that `run` executes it does nothing: a notebook has not all of the settings.

    Parameters
    ----------
    study : Study
        The study of the notebook.
    """
    if not in_batch_run():
        with folder_lock(study.results.lock_path):
            folder = study.results.folder
            write_record(folder, describe(study) | run_record(folder))


@contextmanager
def recorded(study: Study) -> Iterator[Record]:
    """Yield the record of a run, and publish it when the run ends; one run of a name at a time.

    Tables that notebooks wrote before still count if they are of the same model and corpora.  Of a
    run that fails, what its finished notebooks wrote is recorded.

    Raises
    ------
    InputError
        If another process is running under the same name.
    """
    results = study.results
    results.build.mkdir(parents=True, exist_ok=True)
    try:
        run_lock = FileLock(results.build / ".lock").acquire(timeout=0)
    except Timeout:
        raise InputError(
            f"{study.slug}: another run of this name is in progress; wait for it, or choose "
            "another --name"
        ) from None
    with run_lock:
        record = Record(results, describe(study))
        record.check_inputs()
        shutil.rmtree(results.batch_folder, ignore_errors=True)  # of an earlier run
        try:
            yield record
        finally:
            with folder_lock(results.lock_path):
                record.publish()


class Record:
    """The outputs of a run, and the decision which of them replace those in its results folder.

    The notebooks of a run write to a folder in ``build/``.  At the end its tables are compared with
    those in the results folder.  If the same code, inputs and library versions made them and none
    differs by more than rounding, the results folder stays as it is.  Otherwise all tables and
    figures of this run are copied there, and ``run.json`` is written.

    The top of ``run.json`` describes the run that was copied last.  An entry of an earlier run
    names its own commit, versions and code.

    Parameters
    ----------
    results : Results
        The results of the run.
    description : mapping
        What `describe` says about the run.
    """

    def __init__(self, results: Results, description: Mapping[str, Any]) -> None:
        self.results = results
        self.today: dict[str, Any] = json.loads(json.dumps(description, default=str))
        self.notebooks: dict[str, dict[str, Any]] = {}
        self.differences: list[TableDifference] = []  # of each table
        self.is_published = False

    def note(self, notebook: str, cells: str = "") -> None:
        """Take what a notebook wrote into account.

        Parameters
        ----------
        notebook : str
            Its file name without ``.ipynb``.
        cells : str
            The digest of the notebook's code.
        """
        entries = run_record(self.results.batch_folder).get("notebooks", {})
        entry = entries.get(notebook, {"tables": [], "figures": []})
        self.notebooks[notebook] = entry | {"cells": cells}

    def check_inputs(self) -> None:
        """Refuse a results folder of a model or corpora of other contents under the same names.

        Raises
        ------
        InputError
            With what has changed.
        """
        folder = self.results.folder
        before = run_record(folder)
        recorded_inputs = before.get("model", {}) | before.get("corpora", {})
        inputs = recorded_inputs | self.today["model"] | self.today["corpora"]
        changed = [name for name, value in recorded_inputs.items() if inputs[name] != value]
        if changed:
            raise InputError(
                f"{folder}: the run in this folder had another {', '.join(changed)}; "
                "remove the folder, or choose another --name"
            )

    def publish(self) -> None:
        """Copy the files of this run to the results folder and write ``run.json``, if they differ.

        Entries whose files change are taken out of ``run.json`` first: if the process is killed in
        between, no table of two runs is listed as one of either.
        """
        folder = self.results.folder
        before = run_record(folder)
        pairs = list(self._files())
        self.differences = [_compare(*pair) for pair in pairs if pair[0].suffix == ".csv"]
        is_rounding = {table.status for table in self.differences} <= {"identical", "rounding"}
        is_complete = all(target.is_file() for _, target in pairs)
        is_made_alike = all(self._is_made_alike(name, before) for name in self.notebooks)
        self.is_published = not (is_made_alike and is_rounding and is_complete)
        if not self.is_published:
            return
        makers = {key: before.get(key) for key in MAKERS}
        earlier = {
            name: makers | entry
            for name, entry in before.get("notebooks", {}).items()
            if name not in self.notebooks
        }
        if INTERACTIVE in earlier:
            interactive = earlier[INTERACTIVE]
            for group in OUTPUTS:
                interactive[group] = sorted(set(interactive[group]) - self.names(group))
        write_record(folder, before | {"notebooks": earlier})
        for source, target in pairs:
            write_atomic(target, source.read_bytes())
        entries = dict(sorted((earlier | self.notebooks).items()))
        write_record(folder, self.today | {"notebooks": entries})

    def outcome(self) -> str:
        """Summarize how the tables of this run compare with those of before, in a line.

        It names each kind of number that differs, and says whether all verdicts agree.
        """
        tables = pd.DataFrame(self.differences, columns=list(TableDifference.__annotations__))
        parts = []
        for (status, quantity), group in tables.groupby(["status", "quantity"]):
            worst = group.loc[group["share_of_tolerance"].idxmax()]
            part = f"{len(group)} {status}"
            if quantity:
                size = f"{worst['largest']:.2g} in " if np.isfinite(worst["largest"]) else ""
                part += f" in {quantity} ({size}{worst['name']}.csv)"
            parts.append(part)
        parts.append("all verdicts agree" if tables["verdicts_agree"].all() else "verdicts differ")
        n_figures = len(self.names("figures"))
        summary = f"{len(tables)} tables and {n_figures} figures; tables: {'; '.join(parts)}. "
        if self.is_published:
            return summary + f"They are now in {self.results.folder}."
        return (
            f"{summary}The files in {self.results.folder} stay as they were; what this machine "
            f"computed is in {self.results.batch_folder}."
        )

    def names(self, group: str) -> set[str]:
        """Collect the names of the "tables" or "figures" of this run."""
        return {name for entry in self.notebooks.values() for name in entry[group]}

    def _is_made_alike(self, notebook: str, before: Mapping[str, Any]) -> bool:
        """Say whether the same code and inputs made a notebook's entry before."""
        recorded_entry = before | before.get("notebooks", {}).get(notebook, {})
        entry = {key: self.today.get(key) for key in INPUTS} | self.notebooks[notebook]
        return all(recorded_entry.get(key) == value for key, value in entry.items())

    def _files(self) -> Iterator[tuple[Path, Path]]:
        """Yield each file that this run has written, and its place in the results folder."""
        names = self.names("tables") | self.names("figures")
        folder = self.results.batch_folder
        for source in sorted(folder.rglob("*.*")):
            # A figure for a paper has a second PDF, for a column.
            if source.stem.removesuffix("_column") in names:
                yield source, self.results.folder / source.relative_to(folder)


def _compare(source: Path, target: Path) -> TableDifference:
    """Compare a table of a run with the one in its results folder."""
    if not target.is_file():
        return TableDifference(source.stem, "new")
    # Every bit of a number counts, and only an empty field is a missing value.
    options = {"keep_default_na": False, "na_values": [""]}
    before = pd.read_csv(target, **options)
    return compare_tables(before, pd.read_csv(source, **options), source.stem)
