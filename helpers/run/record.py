"""The record of a run: inputs checked before it starts, outputs compared and listed at its end."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from helpers.data.corpora import registry
from helpers.data.glove import DEFAULT, read_glove
from helpers.data.records import Corpus, Document, Segment, Sentence, describe_documents
from helpers.data.wikipedia import how_read
from helpers.errors import InputError
from helpers.files import build_dir, cache_root, check_free, sha256, write_atomic
from helpers.progress import BATCH_VARIABLE, OUTPUT_LIST_VARIABLE
from helpers.results import (
    FILES,
    FORMS_ON_REQUEST,
    INTERACTIVE,
    TEXT_AS_READ,
    contradictions,
    git,
    record_lock,
    set_aside,
    without_empty_sessions,
)
from helpers.run.tolerances import TableDifference, compare_tables, read_for_comparison
from helpers.settings import LATER_SETTINGS, RESULT_SETTINGS
from helpers.sources import run_record, serialize_settings, write_record
from helpers.store.format import read_manifest, shard_name
from helpers.study import Study

if TYPE_CHECKING:
    from helpers.store.store import Store

MADE = ("commit", "versions", "code")  # what made an entry of run.json
INPUTS = ("model", "corpora")


class _Listed(Study):
    """A study whose stores are the records alone: all of a corpus is read, cut and counted."""

    def _extract(self, *corpus: Any, **options: Any) -> Store:
        return super()._extract(*corpus, **options | {"stored": False})


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
    from helpers.store.cluster import check_scheduler
    from helpers.store.extract import needed_bytes, store_key
    from helpers.studies.registry import check_inputs

    if study.scheduler:
        check_scheduler(study.scheduler)
    check_inputs(study)
    if study.vectors:
        read_glove(study.vectors, max_lines=1000)
    segment_corpus = study.segment_corpus()
    _check_own_files(study, segment_corpus, study.treebank_corpus(), study.coreference_corpus())
    if study.text:
        yield how_read(study.text)
    listed = _Listed(**asdict(study))
    store_key(listed.encoder, segment_corpus, max_tokens=study.max_tokens)
    # Maps of words are stored again for two controls (04), the controls with random weights (05),
    # and the models of later papers, which have settings of their own.
    control_stores = 2 if "minimum_count" in declared_settings else 0
    random_stores = study.initialisations if "vectors" in declared_settings else 0
    later_stores = 0 if LATER_SETTINGS.keys().isdisjoint(declared_settings) else 1
    other_stores = max(control_stores, random_stores + control_stores // 2, later_stores)
    total = 0
    for setting, times, records in (
        ("segments", "stream" in declared_settings and not study.stream, listed.segment_store),
        ("sentences", 1 + other_stores, listed.treebank_store),
        ("coref", 1 + control_stores, listed.coreference_store),
    ):
        if setting in declared_settings:
            store = records()
            written = {shard.file for shard in read_manifest(store.folder).shards}
            missing = [n for n in range(store.n_shards) if shard_name(n) not in written]
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


def _check_own_files(
    study: Study, text: Corpus[Segment], treebank: Corpus[Sentence], coreference: Corpus[Document]
) -> None:
    """Read the corpora that the user has files of, before a model is loaded."""
    if study.text:
        text.validate()
    # The files of a registered corpus are known by their checksums.
    if study.treebank and study.treebank not in registry().index:
        treebank.validate()
    if study.coref and study.coref not in registry().index:
        coreference.validate()


def describe(study: Study) -> dict[str, Any]:
    """Collect the facts of a run: settings, model, corpora, and what makes its tables today."""
    corpora = {
        "text": study.segment_corpus().name,
        "treebank": study.treebank_corpus().name,
        "coreference": study.coreference_corpus().name,
        "word vectors": Path(study.vectors).stem or DEFAULT,
    }
    if study.text:
        corpora[TEXT_AS_READ] = how_read(study.text)
    return {
        "settings": serialize_settings(study, study.declared),
        "model": study.encoder.identity,
        "special tokens": study.encoder.special_tokens,
        "objective": study.encoder.objective,
        "corpora": corpora | study.corpus_fingerprints,
        **study.made_by,
    }


def save_description(study: Study) -> None:
    """Write ``run.json`` beside the figures, unless it is there, of this model and these corpora.

    In a notebook that `run` executes it does nothing: a notebook has not all of the settings.

    Parameters
    ----------
    study : Study
        The study of the notebook.
    """
    if os.environ.get(BATCH_VARIABLE):
        return
    today = describe(study)
    with record_lock(study.slug):
        before = run_record(study.results)
        if names := contradictions(before, today):
            print(set_aside(study.results, build_dir(study.slug), names), file=sys.stderr)
            before = {}
        if "model" not in before:
            earlier = {key: before[key] for key in ("settings", "notebooks") if key in before}
            settings = today["settings"] | earlier.get("settings", {})
            write_record(study.results, today | earlier | {"settings": settings})


@contextmanager
def recorded(study: Study) -> Iterator[Record]:
    """Yield the record of a run, which keeps ``run.json`` up to date; one run of a name at a time.

    Tables that notebooks wrote before still count if they are of the same model and corpora.  Those
    of other contents under the same names are moved to the build folder.  A run that fails before
    its first notebook has ended leaves nothing new in the results folder.

    Raises
    ------
    InputError
        If another process is running under the same name.
    """
    results = study.results
    build = build_dir(study.slug)
    build.mkdir(parents=True, exist_ok=True)
    try:
        run_lock = FileLock(build / ".lock").acquire(timeout=0)
    except Timeout:
        raise InputError(
            f"{study.slug}: a run of this name is going on; give this one another --name"
        ) from None
    with run_lock:
        write_record(build, describe(study) | {"notebooks": {}})
        today = run_record(build)
        del today["notebooks"]
        with record_lock(study.slug):
            before = run_record(results)
            if names := contradictions(before, today):
                print(set_aside(results, build, names), flush=True)
                before = {}
            record = Record(results, build, today, before)
            if "notebooks" not in before:
                record.description = today | {"notebooks": {}}
            elif "model" not in before:  # of notebooks in JupyterLab, which describe no model
                record.description = today | {"notebooks": before["notebooks"]}
            if record.description != before:
                write_record(results, record.description)
        try:
            yield record
        except BaseException:
            if not record.notebooks and not record.description["notebooks"]:
                (build / "run.json").unlink(missing_ok=True)
                if results / "run.json" not in record.digests_before:
                    (results / "run.json").unlink(missing_ok=True)
            raise


@dataclass
class Record:
    """The ``run.json`` of a run, and the decision which tables and figures stay in its folder.

    The notebooks of a run write to its build folder.  After each of them, its tables are compared
    with those in the results folder.  If the same code, inputs and library versions made them and
    none differs by more than rounding, the files in the results folder stay as they are.  As soon
    as this does not hold for a notebook, all tables and figures of this run are copied there.

    An entry of ``run.json`` stays while its notebook gives the same bytes with the same code.  An
    entry that another commit, other code or other versions made than what stands at the top of the
    file names its own.
    """

    results: Path
    build: Path
    today: dict[str, Any]  # the description of this run
    description: dict[str, Any]  # the content of run.json
    notebooks: dict[str, dict[str, Any]] = field(default_factory=dict)  # what this run wrote
    differences: dict[str, TableDifference] = field(default_factory=dict)  # by table
    publishes: bool = False  # whether this run's files replace those in the results folder

    def __post_init__(self) -> None:
        paths = [path for path in self.results.rglob("*.*") if path.is_file()]
        self.digests_before = {path: sha256(path) for path in paths}
        tables = self.results.glob("tables/*.csv")
        self.tables_before = {path.stem: path.read_bytes() for path in tables}
        self.same_code = True

    def note(self, notebook: str, notes: Path, cells: str = "") -> None:
        """Take what a notebook wrote into account.

        Parameters
        ----------
        notebook : str
            Its file name without ``.ipynb``.
        notes : Path
            A file with a line "tables name" or "figures name" for each that it wrote.
        cells : str
            The digest of the notebook's code.
        """
        entry = _read_notes(notes)
        if cells:
            entry["cells"] = cells
        self.notebooks[notebook] = entry
        write_record(self.build, self.today | {"notebooks": self.notebooks})
        for table in entry["tables"]:
            self.differences[table] = self._compare(table)
        with record_lock(self.results.name):
            self.description["notebooks"] = run_record(self.results).get("notebooks", {})
            self.publishes = self.publishes or not self._agrees(notebook)
            if self.publishes:
                self._publish()
            else:
                self._copy(entry, FORMS_ON_REQUEST)

    @contextmanager
    def writing(self, entry: str) -> Iterator[None]:
        """Let this process save tables for this run, as the kernel of a notebook does."""
        notes = self.build / f"{entry}.written"
        notes.unlink(missing_ok=True)
        os.environ[OUTPUT_LIST_VARIABLE] = str(notes)
        try:
            yield
        finally:
            del os.environ[OUTPUT_LIST_VARIABLE]
        self.note(entry, notes)

    def changed(self) -> list[str]:
        """List the tables and figures of this run that it changed in the results folder."""
        return sorted(
            name for group in FILES for name in self._names(group) if self._has_changed(group, name)
        )

    def outcome(self) -> str:
        """Summarize how the tables of this run compare with those of before, in a line."""
        counts = {group: len(self._names(group)) for group in FILES}
        counted = ", ".join(
            f"{count} {group[:-1] if count == 1 else group}" for group, count in counts.items()
        )
        changed = self.changed()
        if not self.tables_before.keys() & set(self._names("tables")):
            return f"{counted}: all new"
        if not self._differing() and not changed and self._figures_are_identical():
            clean = git("status", "--porcelain", "--ignored", "-uall", "--", str(self.results))
            return f"{counted}: as {'committed' if clean == '' else 'they were'}, byte for byte"
        sentences = [f"{counted}: {self._comparison()}."]
        if not self.publishes:
            sentences.append(
                f"The files in {self.results.name} stay as they were; the tables that this machine "
                f"computed are in {self.build / 'tables'}."
            )
        else:
            sentences += self._what_was_written(changed)
        return " ".join(sentences)

    def _comparison(self) -> str:
        """Count identical tables and those that differ, with the largest difference."""
        new = [name for name in self._names("tables") if name not in self.tables_before]
        old = [name for name in self._names("tables") if name in self.tables_before]
        identical = sum(self.differences[name].status == "identical" for name in old)
        parts = [f"{identical} {'table is' if identical == 1 else 'tables are'} identical"]
        if new:
            parts.append(f"{len(new)} {_verb(new, 'is', 'are')} new")
        by_quantity: dict[str, list[TableDifference]] = {}
        for difference in self._differing():
            if difference.status == "rounding":
                by_quantity.setdefault(difference.quantity, []).append(difference)
        for quantity, differences in sorted(by_quantity.items()):
            largest = max(differences, key=lambda difference: difference.share_of_tolerance)
            differ = _verb(differences, "differs", "differ")
            parts.append(
                f"{len(differences)} {differ} by rounding in {quantity} "
                f"(at most {largest.largest:.1g} {largest.unit}, in {largest.name}.csv)"
            )
        exceeding = [d for d in self._differing() if d.status == "exceeds"]
        for difference in exceeding:
            amount = f"{difference.largest:.2g} {difference.unit}".strip()
            if difference.largest == float("inf"):
                amount = difference.quantity or "other rows or columns"
            parts.append(f"{difference.name}.csv differs by more ({difference.column}: {amount})")
        disagreeing = [d.name for d in self.differences.values() if not d.verdicts_agree]
        if disagreeing:
            parts.append(f"verdicts differ in {', '.join(sorted(disagreeing))}")
        elif any("claims" in name for name in old):
            parts.append("all verdicts agree")
        return "; ".join(parts)

    def _what_was_written(self, changed: list[str]) -> Iterator[str]:
        if not self.same_code:
            yield "Other code, inputs or library versions made what was there before."
        total = sum(len(self._names(group)) for group in FILES)
        if changed:
            names = "all" if len(changed) == total else ", ".join(changed)
            yield f"New or changed: {names}."
        else:
            yield "No file changed."

    def _names(self, group: str) -> list[str]:
        return sorted({name for entry in self.notebooks.values() for name in entry[group]})

    def _differing(self) -> list[TableDifference]:
        return [
            difference
            for difference in self.differences.values()
            if difference.status != "identical" and difference.name in self.tables_before
        ]

    def _figures_are_identical(self) -> bool:
        return all(
            self.digests_before.get(target) == sha256(source)
            for name in self._names("figures")
            for source, target in self._files("figures", name, FILES)
        )

    def _compare(self, table: str) -> TableDifference:
        """Compare a table of this run with the one that was in the results folder at its start."""
        content = (self.build / "tables" / f"{table}.csv").read_bytes()
        before = self.tables_before.get(table)
        if before is None:
            return TableDifference(table, "exceeds", column="not there before")
        if before == content:
            return TableDifference(table, "identical")
        return compare_tables(read_for_comparison(before), read_for_comparison(content), table)

    def _agrees(self, notebook: str) -> bool:
        """Say whether the files of before may stand for those that a notebook wrote now."""
        if not self._was_made_alike(notebook):
            self.same_code = False
            return False
        entry = self.notebooks[notebook]
        before = self.description["notebooks"][notebook]
        lists_agree = all(
            entry.get(key) == before.get(key) for key in (entry.keys() | before.keys()) - {*MADE}
        )
        within = all(self.differences[name].status != "exceeds" for name in entry["tables"])
        are_there = all(
            target in self.digests_before
            for group in FILES
            for name in entry[group]
            for _, target in self._files(group, name, FILES)
        )
        return lists_agree and within and are_there

    def _was_made_alike(self, notebook: str) -> bool:
        """Say whether the same code, inputs and library versions made a notebook's entry."""
        before = self.description["notebooks"].get(notebook)
        if before is None:
            return False
        maker = {key: before.get(key, self.description.get(key)) for key in MADE}
        settings_before = self.description.get("settings", {})
        settings_today = self.today.get("settings", {})
        same_settings = all(
            settings_before.get(setting) == settings_today.get(setting)
            for setting in RESULT_SETTINGS
            if setting in settings_before
        )
        same_inputs = all(self.description.get(key) == self.today.get(key) for key in INPUTS)
        same_code = maker["code"] == self.today.get("code")
        same_cells = before.get("cells") == self.notebooks[notebook].get("cells")
        same_versions = _releases(maker["versions"]) == _releases(self.today.get("versions"))
        return same_settings and same_inputs and same_code and same_cells and same_versions

    def _publish(self) -> None:
        """Copy the files of this run to the results folder and list them in ``run.json``.

        Entries whose files change are taken out of the list first: if the process is killed in
        between, no table of two runs is listed as one of either.
        """
        entries = self.description["notebooks"]
        top = {key: self.description.get(key) for key in MADE}
        made_today = {key: self.today.get(key) for key in MADE}
        full = {name: top | entry for name, entry in entries.items()}
        renewed = [name for name in self.notebooks if self._is_renewed(name)]
        if any(name in entries for name in renewed):
            unchanged = {name: entry for name, entry in entries.items() if name not in renewed}
            write_record(self.results, {**self.description, "notebooks": unchanged})
        for notebook, entry in self.notebooks.items():
            self._copy(entry, FILES)
            self._copy(entry, FORMS_ON_REQUEST)
            if notebook in renewed:
                full[notebook] = entry | made_today
        written = {group: set(self._names(group)) for group in FILES}
        for name, entry in full.items():
            if name.startswith(INTERACTIVE):
                for group in FILES:
                    entry[group] = [file for file in entry[group] if file not in written[group]]
        full = without_empty_sessions(full)
        if not any(entry.items() >= top.items() for entry in full.values()):
            self.description = dict(self.today)  # nothing is left of what stood at the top
            top = made_today
        self.description["notebooks"] = {}
        for name, entry in sorted(full.items()):
            own_facts = {key: value for key, value in entry.items() if top.get(key) != value}
            self.description["notebooks"][name] = own_facts
        write_record(self.results, self.description)

    def _is_renewed(self, notebook: str) -> bool:
        """Say whether a notebook's entry has to name today's commit and code."""
        entry = self.notebooks[notebook]
        before = self.description["notebooks"].get(notebook, {})
        lists = {key: value for key, value in before.items() if key not in MADE}
        files_change = any(
            self.digests_before.get(target) != sha256(source)
            for group in FILES
            for name in entry[group]
            for source, target in self._files(group, name, FILES)
        )
        return files_change or lists != entry or not self._was_made_alike(notebook)

    def _copy(self, entry: Mapping[str, Any], patterns: Mapping[str, Iterable[str]]) -> None:
        """Copy the files of an entry to the results folder, unless they are there already."""
        for group in FILES:
            for name in entry[group]:
                for source, target in self._files(group, name, patterns):
                    if not source.is_file():
                        continue
                    content = source.read_bytes()
                    if not target.is_file() or target.read_bytes() != content:
                        write_atomic(target, content)

    def _files(
        self, group: str, name: str, patterns: Mapping[str, Iterable[str]]
    ) -> Iterator[tuple[Path, Path]]:
        """Yield the files of a table or figure in the build folder and in the results folder."""
        folder = self.build / "figures" if group == "figures" else self.build
        for pattern in patterns[group]:
            file = pattern.format(name)
            yield folder / file, self.results / file

    def _has_changed(self, group: str, name: str) -> bool:
        return any(
            target.is_file() and self.digests_before.get(target) != sha256(target)
            for _, target in self._files(group, name, FILES)
        )


def _verb(subjects: Sized, singular: str, plural: str) -> str:
    return singular if len(subjects) == 1 else plural


def _read_notes(notes: Path) -> dict[str, list[str]]:
    """Read which tables and figures a notebook wrote, and which "accepted" stores it used."""
    text = notes.read_text(encoding="utf-8") if notes.is_file() else ""
    names: dict[str, set[str]] = {group: set() for group in FILES}
    for line in text.splitlines():
        group, _, name = line.partition(" ")
        names.setdefault(group, set()).add(name)
    return {group: sorted(in_group) for group, in_group in names.items()}


def _releases(versions: Mapping[str, str] | None) -> dict[str, str]:
    """Shorten versions to their first two numbers: a patch release changes no method."""
    return {name: ".".join(number.split(".")[:2]) for name, number in (versions or {}).items()}
