"""What a run is of: looked at before it starts, and written down in ``run.json``."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from helpers.data.corpora import registry
from helpers.data.glove import DEFAULT, read_glove
from helpers.data.records import Corpus, Document, Segment, Sentence, describe_documents
from helpers.data.wikipedia import how_read
from helpers.errors import InputError
from helpers.paths import build_dir, cache_root, check_free, given_path, project_root, sha256
from helpers.sources import known, run_record, write_record
from helpers.store.format import read_manifest, shard_name
from helpers.study import Study
from helpers.work import HEADLESS

if TYPE_CHECKING:
    from helpers.store.store import Store

PACKAGES = ("torch", "transformers", "numpy", "pandas", "scikit-learn", "spacy", "gensim")
MADE = ("commit", "versions")  # what made an entry of run.json
FILES = {"tables": ("tables/{}.csv",), "figures": ("{}.png", "{}.svg")}


class _Listed(Study):
    """A study whose stores are the records alone: all of a corpus is read, cut and counted."""

    def _extract(self, *corpus: Any, **options: Any) -> Store:
        return super()._extract(*corpus, **options | {"stored": False})


def check(study: Study, taken: Collection[str]) -> Iterator[str]:
    """Look at what notebooks that take these settings will use; yield what is found, in lines.

    InputError for a path that does not exist, a corpus or task that cannot be read, a scheduler
    that does not answer, a model that cannot be loaded, or that does not take these settings;
    StoreError where the disk has no room.
    """
    from helpers.store.cluster import check_scheduler
    from helpers.store.extract import needed_bytes, store_key
    from helpers.studies.argument_cues.arguments import argument_corpus

    if study.scheduler:
        check_scheduler(study.scheduler)
    if study.task:
        from helpers.studies.fine_tune import tasks_of  # torch

        tasks_of(study.task, "", examples=2, seed=0)
    if study.framenet and not given_path(study.framenet).is_dir():
        raise InputError(f"--framenet {study.framenet}: no such folder")
    if study.arct:
        argument_corpus(study.arct)
    if study.vectors:
        read_glove(study.vectors, most=1000)
    corpora = study.segment_corpus(), study.treebank_corpus(), study.coreference_corpus()
    _check_own_files(study, *corpora)
    if study.text:
        yield how_read(study.text)
    listed = _Listed(**asdict(study))
    store_key(listed.encoder, corpora[0], max_tokens=study.max_tokens)
    # The maps of words once more: of 04's two controls, of 05's, of 07's, through 10's lens.
    own, more = 2 * ("minimum_count" in taken), study.initialisations * ("vectors" in taken)
    more, total = max(own, more + own // 2, int("framenet" in taken)), 0
    for setting, times, records in (
        ("segments", "stream" in taken and not study.stream, listed.segment_store),
        ("sentences", 1 + more, listed.treebank_store),
        ("coref", 1 + own, listed.coreference_store),
    ):
        if setting in taken:
            store = records()
            written = {shard.file for shard in read_manifest(store.folder).shards}
            missing = [n for n in range(store.n_shards) if shard_name(n) not in written]
            size = times * needed_bytes(store, missing) if missing else 0
            total += size
            name, size = store.spec.corpus["name"], f"{size / 1e6:,.0f} MB to extract"
            line = f"{name}: {len(store):,} examples, {size}"
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
    """Return the facts of a run: settings, model, corpora, versions, git commit."""
    return {
        "settings": known(study, study.declared),
        "model": study.encoder.identity,
        "special tokens": study.encoder.special_tokens,
        "objective": study.encoder.objective,
        "corpora": {
            "text": study.segment_corpus().name,
            "treebank": study.treebank_corpus().name,
            "coreference": study.coreference_corpus().name,
            "word vectors": Path(study.vectors).stem or DEFAULT,
        }
        | ({"text, as read": how_read(study.text)} if study.text else {}),
        "versions": {name: version(name) for name in PACKAGES}
        | {"python": platform.python_version()},
        "commit": _commit(),
    }


def save_description(study: Study) -> None:
    """Write ``run.json`` beside the figures, unless it is there, of this model and these corpora.

    In a notebook that `run` executes it does nothing: a notebook has not all of the settings.
    """
    if not os.environ.get(HEADLESS):
        now = describe(study)
        if not _same(run_record(study.results), now):
            write_record(study.results, now)


@contextmanager
def recorded(study: Study) -> Iterator[Record]:
    """Give out the record of a run, which keeps ``run.json`` up to date; one run a folder.

    What notebooks wrote before still counts if they had the same settings, model and corpora.
    What is this run's alone (today's commit, versions) is in the ``run.json`` of its build folder.
    A run that fails before a notebook is through leaves nothing behind.  InputError where another
    process is running under the same name.
    """
    results, build = study.results, build_dir(study.slug)
    build.mkdir(parents=True, exist_ok=True)
    try:
        held = FileLock(build / ".lock").acquire(timeout=0)
    except Timeout:
        raise InputError(
            f"{study.slug}: a run of this name is going on; give this one another --name"
        ) from None
    with held:
        write_record(build, describe(study))
        today, facts = run_record(build), run_record(results)
        record = Record(results, today, facts)
        if "notebooks" not in facts or not _same(facts, today):
            record.facts = today | {"notebooks": {}}
            write_record(results, record.facts)
        try:
            yield record
        except BaseException:
            if not record.facts["notebooks"]:
                new = {path for path in results.rglob("*.*") if path.is_file()}
                for path in {build / "run.json", *new} - record.before.keys():
                    path.unlink()
            raise


def _same(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    return all(before.get(key) == now.get(key) for key in ("model", "corpora"))


@dataclass
class Record:
    """A run's ``run.json``, where an entry stays while its notebook writes the same bytes.

    An entry that other code or versions made than what stands at the top names its own.
    """

    results: Path
    today: dict[str, Any]  # the facts of this run
    facts: dict[str, Any]  # what run.json says
    wrote: set[tuple[str, str]] = field(default_factory=set)  # in this run: kinds and names

    def __post_init__(self) -> None:
        files = [path for path in self.results.rglob("*.*") if path.is_file()]
        self.before = {path: sha256(path) for path in files}

    def note(self, notebook: str, notes: Path) -> None:
        """Write down what a notebook wrote; ``notes`` has a line "kind name" for each."""
        text = notes.read_text(encoding="utf-8") if notes.is_file() else ""
        lines = {(kind, name) for kind, _, name in (ln.partition(" ") for ln in text.splitlines())}
        self.wrote |= {line for line in lines if line[0] in FILES}
        kinds = dict.fromkeys([*FILES, *(kind for kind, _ in lines)])  # "accepted" stores, if any
        own = {kind: sorted(name for of, name in lines if of == kind) for kind in kinds}
        entries, top = self.facts["notebooks"], {key: self.facts.get(key) for key in MADE}
        old = entries.get(notebook, {})
        as_listed = own == {key: value for key, value in old.items() if key not in MADE}
        if as_listed and not any(self._is_new(*line) for line in lines if line in self.wrote):
            return
        now = {key: self.today.get(key) for key in MADE}
        entries = {name: old | top | old for name, old in entries.items()} | {notebook: own | now}
        if not any(entry.items() >= top.items() for entry in entries.values()):
            self.facts, top = dict(self.today), now  # nothing is left of what stood there
        self.facts["notebooks"] = {
            name: {key: value for key, value in entry.items() if top.get(key) != value}
            for name, entry in sorted(entries.items())
        }
        write_record(self.results, self.facts)

    def anew(self) -> list[str]:
        """Return the tables and figures of this run that were not there with these bytes."""
        return sorted(name for kind, name in self.wrote if self._is_new(kind, name))

    def outcome(self) -> str:
        """Return a line: how many tables and figures this run wrote, and which are others now."""
        counts = {kind: sum(of == kind for of, _ in self.wrote) for kind in FILES}
        said = ", ".join(f"{n} {kind[:-1] if n == 1 else kind}" for kind, n in counts.items())
        if new := self.anew():
            names = ", ".join(new) if len(new) < len(self.wrote) else "all"
            return f"{said}; new or changed: {names}"
        clean = _git("status", "--porcelain", "--ignored", "-uall", "--", str(self.results)) == ""
        return f"{said}: as {'committed' if clean else 'they were'}, byte for byte"

    def _is_new(self, kind: str, name: str) -> bool:
        paths = [self.results / pattern.format(name) for pattern in FILES[kind]]
        return any(self.before.get(path) != sha256(path) for path in paths)


def _commit() -> str | None:
    """Return the git commit of the project, with a mark if the code that computes differs from it.

    Figures, tables and executed notebooks are what a run writes: they do not count.
    """
    commit = _git("rev-parse", "--short=12", "HEAD")
    changed = _git("status", "--porcelain", "--", "helpers", "requirements.txt")
    return f"{commit}-dirty" if commit and changed else commit


def _git(*arguments: str) -> str | None:
    """Return what git prints in the project's folder; None without git or a repository."""
    how = {"cwd": project_root(), "stderr": subprocess.DEVNULL, "text": True}
    with suppress(OSError, subprocess.CalledProcessError):
        return subprocess.check_output(["git", *arguments], **how).strip()
    return None
