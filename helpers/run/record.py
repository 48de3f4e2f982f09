"""What a run is of: looked at before it starts, and written down in ``run.json``."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, get_args

from filelock import FileLock, Timeout

from helpers.errors import InputError
from helpers.paths import build_dir, given_path, project_root, write_whole
from helpers.progress import HEADLESS
from helpers.settings import MATERIAL
from helpers.study import Study
from helpers.tables import run_record

PACKAGES = ("torch", "transformers", "numpy", "pandas", "scikit-learn", "spacy", "gensim")


def check(study: Study) -> None:
    """Look at what the user named before any work starts; annotated corpora are read whole.

    InputError for a path that does not exist, a corpus or task that cannot be read, a scheduler
    that does not answer, a model that cannot be loaded, or that does not take these settings.
    """
    from helpers.data.glove import read_glove
    from helpers.model.encoder import DType
    from helpers.store.cluster import check_scheduler
    from helpers.store.extract import store_key
    from helpers.studies.argument_cues.arguments import argument_corpus

    if study.dtype not in get_args(DType):
        raise InputError(f"--dtype {study.dtype}: expected {', '.join(get_args(DType))}")
    if study.scheduler:
        check_scheduler(study.scheduler)
    if study.task:
        _check_task(study.task)
    if study.framenet and not given_path(study.framenet).is_dir():
        raise InputError(f"--framenet {study.framenet}: no such folder")
    if study.arct:
        argument_corpus(study.arct)
    if study.vectors:
        read_glove(study.vectors, most=1000)
    for named, corpus in (
        (study.text, study.segment_corpus),
        (study.treebank, study.treebank_corpus),
        (study.coref, study.coreference_corpus),
    ):
        if named:
            corpus().check()
    store_key(study.encoder, study.segment_corpus(), max_tokens=study.max_tokens)


def _check_task(task: str) -> None:
    from helpers.studies.tasks import read_task

    paths = [given_path(part.strip()) for part in task.split(",")]
    missing = [f", no file {path}" for path in paths if not path.is_file()]
    if missing or len(paths) != 2:
        raise InputError(f"--task {task}: expected TRAIN.tsv,TEST.tsv{''.join(missing)}")
    read_task(*paths)


def describe(study: Study) -> dict[str, Any]:
    """Return the facts of a run: settings, model, corpora, versions, git commit."""
    from helpers.data.glove import DEFAULT

    return {
        "settings": asdict(study),
        "model": study.encoder.identity,
        "special tokens": study.encoder.special_tokens,
        "objective": study.encoder.objective,
        "corpora": {
            "text": study.segment_corpus().name,
            "treebank": study.treebank_corpus().name,
            "coreference": study.coreference_corpus().name,
            "word vectors": Path(study.vectors).stem or DEFAULT,
        },
        "versions": {name: version(name) for name in PACKAGES}
        | {"python": platform.python_version()},
        "commit": _commit(),
    }


def save_description(study: Study) -> None:
    """Write ``run.json`` beside the figures.

    In a notebook that `run` executes it does nothing: a notebook has not all of the settings.
    """
    if not os.environ.get(HEADLESS):
        _write(study, describe(study))


@contextmanager
def recorded(study: Study) -> Iterator[Record]:
    """Give out the record of a run, which keeps ``run.json`` up to date; one run a folder.

    What notebooks wrote before still counts if they had the same settings, model and code.
    InputError where another process is running under the same name.
    """
    study.results.mkdir(parents=True, exist_ok=True)
    build_dir(study.slug).mkdir(parents=True, exist_ok=True)
    try:
        held = FileLock(build_dir(study.slug) / ".lock").acquire(timeout=0)
    except Timeout:
        raise InputError(
            f"{study.slug}: a run of this name is going on; give this one another --name"
        ) from None
    with held:
        facts, before = describe(study), run_record(study.results)
        same = json.loads(json.dumps(facts, default=str))
        kept = all(before.get(key) == same.get(key) for key in ("model", "commit", "corpora"))
        own, others = same["settings"], before.get("settings", {})
        kept = kept and all(own.get(name) == others.get(name) for name in MATERIAL)
        record = Record(study, facts, dict(before.get("notebooks", {})) if kept else {})
        record.save()
        yield record


@dataclass
class Record:
    """The facts of a run, and which tables and figures each of its notebooks wrote."""

    study: Study
    facts: dict[str, Any]
    notebooks: dict[str, dict[str, list[str]]]

    def save(self) -> None:
        """Write ``run.json``."""
        _write(self.study, self.facts | {"notebooks": dict(sorted(self.notebooks.items()))})

    def note(self, notebook: str, notes: Path) -> None:
        """Write down what a notebook wrote; ``notes`` has a line "kind name" for each."""
        text = notes.read_text(encoding="utf-8") if notes.is_file() else ""
        lines = [line.split(maxsplit=1) for line in text.splitlines()]
        self.notebooks[notebook] = {
            kind: sorted({name for own, name in lines if own == kind})
            for kind in ("tables", "figures", *(kind for kind, _ in lines if kind == "accepted"))
        }
        self.save()


def _write(study: Study, facts: Mapping[str, Any]) -> None:
    study.results.mkdir(parents=True, exist_ok=True)
    text = json.dumps(facts, indent=1, default=str) + "\n"
    write_whole(study.results / "run.json", text.encode())


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
