"""The record of a run: inputs checked before it starts, outputs compared and listed at its end."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from helpers.data.glove import DEFAULT, read_glove
from helpers.data.records import describe_documents
from helpers.errors import InputError
from helpers.files import cache_root, check_free, write_atomic
from helpers.progress import OUTPUT_LIST_VARIABLE
from helpers.results import (
    FILES,
    FORMS_ON_REQUEST,
    INTERACTIVE,
    Results,
    git,
    in_batch_run,
    made_by,
    read_notes,
    record_lock,
    run_record,
    serialize_settings,
    without_empty_sessions,
    write_record,
)
from helpers.run.tolerances import TableDifference, compare_tables, read_for_comparison
from helpers.settings import LATER_SETTINGS
from helpers.study import Study

MADE = ("commit", "versions", "code")  # what made an entry of run.json
INPUTS = ("model", "corpora")


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
    store_key(study.encoder, study.segment_corpus(), max_tokens=settings.max_tokens)
    # Maps of words are stored again for two controls (04), the controls with random weights and the
    # entropy-matched one (05), and the models of later papers, which have settings of their own.
    control_stores = 2 if "minimum_count" in declared_settings else 0
    random_stores = settings.initialisations + 1 if "vectors" in declared_settings else 0
    later_stores = 0 if LATER_SETTINGS.keys().isdisjoint(declared_settings) else 1
    other_stores = max(control_stores, random_stores, later_stores)
    total = 0
    for setting, times, open_store in (
        ("segments", "stream" in declared_settings and not settings.stream, study.segment_store),
        ("sentences", 1 + other_stores, study.treebank_store),
        ("coref", 1 + control_stores, study.coreference_store),
    ):
        if setting in declared_settings:
            store = open_store(stream=True)  # all of a corpus is read, cut and counted
            missing = store.missing_shards()
            size = times * needed_bytes(store, missing) if missing else 0
            total += size
            name = store.spec.corpus["name"]
            line = f"{name}: {len(store):,} examples, {size / 1e6:,.0f} MB to extract"
            if setting == "sentences":
                line += f"; documents: {describe_documents(store.records())}"
            yield line
    check_free(cache_root(), total)
    free = shutil.disk_usage(cache_root()).free
    yield f"{cache_root()}: {total / 1e9:.1f} GB in all, {free / 1e9:,.0f} GB are free"


def describe(study: Study) -> dict[str, Any]:
    """Collect the facts of a run: settings, model, corpora, and what makes its tables today."""
    settings = study.settings
    corpora = {
        "text": study.segment_corpus().name,
        "treebank": study.treebank_corpus().name,
        "coreference": study.coreference_corpus().name,
        "word vectors": Path(settings.vectors).stem or DEFAULT,
    }
    return {
        "settings": serialize_settings(settings, study.results.declared),
        "model": study.encoder.identity,
        "special tokens": study.encoder.special_tokens,
        "objective": study.encoder.objective,
        "corpora": corpora | study.results.corpus_fingerprints,
        **made_by(),
    }


def save_description(study: Study) -> None:
    """Write ``run.json`` beside the figures, unless it is there, of this model and these corpora.

    In a notebook that `run` executes it does nothing: a notebook has not all of the settings.

    Parameters
    ----------
    study : Study
        The study of the notebook.
    """
    if not in_batch_run():
        with study.results.described(describe(study)):
            pass


@contextmanager
def recorded(study: Study) -> Iterator[Record]:
    """Yield the record of a run, and write it when the run ends; one run of a name at a time.

    Tables that notebooks wrote before still count if they are of the same model and corpora.  Those
    of other contents under the same names are moved to the build folder.  Of a run that fails, what
    its finished notebooks wrote is recorded.

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
            f"{study.slug}: a run of this name is going on; give this one another --name"
        ) from None
    with run_lock:
        record = Record(results, describe(study))
        with record_lock(study.slug):
            results.claim(record.today)
        for folder in ("tables", "figures"):  # those of an earlier run
            shutil.rmtree(results.build / folder, ignore_errors=True)
        try:
            yield record
        finally:
            record.publish()


class Record:
    """The outputs of a run, and the decision which of them replace those in its results folder.

    The notebooks of a run write to its build folder.  At the end its tables are compared with those
    in the results folder.  If the same code, inputs and library versions made them and none differs
    by more than rounding, the files in the results folder stay as they are, and so does
    ``run.json``.  Otherwise all tables and figures of this run are copied there.

    The top of ``run.json`` describes the run that was copied last.  An entry of an earlier run
    names its own commit, versions and code, if they are others.

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
        self.changed: list[str] = []  # the tables and figures whose files differ
        self.is_made_alike = True
        self.is_published = False

    def note(self, notebook: str, notes: Path, cells: str = "") -> None:
        """Take what a notebook wrote into account.

        Parameters
        ----------
        notebook : str
            Its file name without ``.ipynb``.
        notes : Path
            The file in which it listed them, with `results.note_output`.
        cells : str
            The digest of the notebook's code.
        """
        entry = read_notes(notes)
        if cells:
            entry["cells"] = cells
        self.notebooks[notebook] = entry

    @contextmanager
    def writing(self, entry: str) -> Iterator[None]:
        """Let this process save tables for this run, as the kernel of a notebook does."""
        notes = self.results.build / f"{entry}.written"
        notes.unlink(missing_ok=True)
        os.environ[OUTPUT_LIST_VARIABLE] = str(notes)
        try:
            yield
        finally:
            del os.environ[OUTPUT_LIST_VARIABLE]
        self.note(entry, notes)

    def compare(self) -> bool:
        """Compare this run with what is in the results folder; say whether that may stay.

        It may if the same code, inputs and library versions made it, the same tables and figures
        are listed, and no table differs by more than rounding.
        """
        before = run_record(self.results.folder)
        self.is_made_alike = all(self._is_made_alike(name, before) for name in self.notebooks)
        pairs = list(self._files(FILES))
        self.changed = sorted({source.stem for source, target in pairs if _differ(source, target)})
        self.differences = [_compare(*pair) for pair in pairs if pair[0].suffix == ".csv"]
        is_rounding = all(table.status in ("identical", "rounding") for table in self.differences)
        return self.is_made_alike and is_rounding and all(target.is_file() for _, target in pairs)

    def publish(self) -> None:
        """Copy the files of this run to the results folder and write ``run.json``, if they differ.

        Files that were asked for with a flag (PDF, LaTeX) are copied in any case.
        """
        with record_lock(self.results.slug):
            self.is_published = not self.compare()
            if self.is_published:
                self._write_results()
            self._copy(FORMS_ON_REQUEST)

    def _write_results(self) -> None:
        """Copy all files and list them in ``run.json``.

        Entries whose files change are taken out of the list first: if the process is killed in
        between, no table of two runs is listed as one of either.
        """
        before = run_record(self.results.folder)
        makers = {key: before[key] for key in MADE if key in before}
        earlier_entries = {}
        for name, entry in before.get("notebooks", {}).items():
            if name not in self.notebooks:
                earlier_entries[name] = makers | entry
            if name.startswith(INTERACTIVE):
                for group in FILES:
                    earlier_entries[name][group] = sorted(
                        {*entry[group]}.difference(self.names(group))
                    )
        earlier_entries = without_empty_sessions(earlier_entries)
        if before:
            write_record(self.results.folder, before | {"notebooks": earlier_entries})
        self._copy(FILES)
        entries = dict(self.notebooks)
        for name, entry in earlier_entries.items():
            entries[name] = {
                key: value for key, value in entry.items() if self.today.get(key) != value
            }
        record = self.today | {"notebooks": dict(sorted(entries.items()))}
        write_record(self.results.folder, record)

    def outcome(self) -> str:
        """Summarize how the tables of this run compare with those of before, in a line."""
        folder = self.results.folder
        n_figures = len(self.names("figures"))
        summary = f"{_counted(len(self.differences), 'table')}, {_counted(n_figures, 'figure')}: "
        if all(table.status == "new" for table in self.differences):
            return f"{summary}all new"
        if not self.changed:
            clean = git("status", "--porcelain", "--ignored", "-uall", "--", str(folder))
            return f"{summary}as {'committed' if clean == '' else 'they were'}, byte for byte"
        summary += _comparison(self.differences)
        if not self.is_published:
            return (
                f"{summary}. The files in {folder.name} stay as they were; the tables that this "
                f"machine computed are in {self.results.build / 'tables'}."
            )
        if not self.is_made_alike:
            summary += ". Other code, inputs or library versions made what was there"
        is_all = len(self.changed) == len(self.differences) + n_figures
        return f"{summary}. New or changed: {'all' if is_all else ', '.join(self.changed)}."

    def names(self, group: str) -> list[str]:
        """List the "tables" or "figures" of this run."""
        return sorted({name for entry in self.notebooks.values() for name in entry[group]})

    def _is_made_alike(self, notebook: str, before: Mapping[str, Any]) -> bool:
        """Say whether the same code, inputs and library versions made a notebook's entry before."""
        entry = before.get("notebooks", {}).get(notebook)
        if entry is None:
            return False
        outputs = {key: value for key, value in entry.items() if key not in MADE}
        maker = {key: entry.get(key, before.get(key)) for key in MADE}
        return (
            outputs == self.notebooks[notebook]
            and all(before.get(key) == self.today.get(key) for key in INPUTS)
            and maker["code"] == self.today.get("code")
            and _releases(maker["versions"]) == _releases(self.today.get("versions"))
        )

    def _files(self, patterns: Mapping[str, Iterable[str]]) -> Iterator[tuple[Path, Path]]:
        """Yield each file of this run in the build folder and in the results folder."""
        for group, forms in patterns.items():
            folder = self.results.build / "figures" if group == "figures" else self.results.build
            for name in self.names(group):
                for form in forms:
                    yield folder / form.format(name), self.results.folder / form.format(name)

    def _copy(self, patterns: Mapping[str, Iterable[str]]) -> None:
        """Copy files of this run to the results folder, unless they are there already."""
        for source, target in self._files(patterns):
            if source.is_file() and _differ(source, target):
                write_atomic(target, source.read_bytes())


def _differ(source: Path, target: Path) -> bool:
    """Whether the second of two files is missing, or has other bytes."""
    return not target.is_file() or target.read_bytes() != source.read_bytes()


def _compare(source: Path, target: Path) -> TableDifference:
    """Compare a table of a run with the one in its results folder."""
    if not target.is_file():
        return TableDifference(source.stem, "new")
    if not _differ(source, target):
        return TableDifference(source.stem, "identical")
    before = read_for_comparison(target.read_bytes())
    return compare_tables(before, read_for_comparison(source.read_bytes()), source.stem)


def _comparison(differences: Sequence[TableDifference]) -> str:
    """Summarize which tables are identical, which differ and by how much, and the verdicts."""
    by_status = defaultdict(list)
    by_quantity = defaultdict(list)
    for table in differences:
        by_status[table.status].append(table)
        if table.status == "rounding":
            by_quantity[table.quantity].append(table)
    parts = [f"{_counted(len(by_status['identical']), 'table')} identical"]
    if by_status["new"]:
        parts.append(f"{_counted(len(by_status['new']), 'table')} new")
    for quantity, tables in sorted(by_quantity.items()):
        largest = max(tables, key=lambda table: table.share_of_tolerance)
        parts.append(
            f"{_counted(len(tables), 'table')} with rounding in {quantity} "
            f"(at most {largest.largest:.1g} {largest.unit}, in {largest.name}.csv)"
        )
    for table in by_status["exceeds"]:
        amount = "other cells" if math.isinf(table.largest) else f"{table.largest:.2g} {table.unit}"
        parts.append(f"{table.name}.csv differs by more ({amount} in {table.column})")
    disagreeing = [table.name for table in differences if not table.verdicts_agree]
    if disagreeing:
        parts.append(f"verdicts differ in {', '.join(sorted(disagreeing))}")
    elif any("claims" in table.name and table.status != "new" for table in differences):
        parts.append("all verdicts agree")
    return "; ".join(parts)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _releases(versions: Mapping[str, str] | None) -> dict[str, str]:
    """Shorten versions to their first two numbers: a patch release changes no method."""
    return {name: ".".join(number.split(".")[:2]) for name, number in (versions or {}).items()}
