"""``run.json``: what a run was of and what computed it."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from helpers.analysis.tables import read_record
from helpers.errors import InputError
from helpers.paths import build_dir, project_root, write_whole
from helpers.progress import HEADLESS
from helpers.settings import Settings
from helpers.study import Study

PACKAGES = ("torch", "transformers", "numpy", "pandas", "scikit-learn", "spacy", "gensim")


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

    Raises:
        InputError: another process is running under the same name.
    """
    study.results.mkdir(parents=True, exist_ok=True)
    build_dir(study.slug).mkdir(parents=True, exist_ok=True)
    lock = FileLock(build_dir(study.slug) / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise InputError(
            f"{study.slug}: a run of this name is going on; give this one another --name"
        ) from None
    try:
        facts, before = describe(study), read_record(study.results)
        same = json.loads(json.dumps(facts, default=str))
        kept = all(before.get(key) == same.get(key) for key in ("model", "commit", "corpora"))
        kept = kept and _material(before.get("settings", {})) == _material(same["settings"])
        record = Record(study, facts, dict(before.get("notebooks", {})) if kept else {})
        record.save()
        yield record
    finally:
        lock.release()


@dataclass
class Record:
    """The facts of a run, and which tables and figures each of its notebooks wrote."""

    study: Study
    facts: dict[str, Any]
    notebooks: dict[str, dict[str, list[str]]]

    def save(self) -> None:
        """Write ``run.json``."""
        _write(self.study, self.facts | {"notebooks": dict(sorted(self.notebooks.items()))})

    @contextmanager
    def of(self, notebook: str) -> Iterator[None]:
        """Note what is written to the results folder meanwhile as that notebook's."""
        before = self._files()
        yield
        new = [path for path, state in self._files().items() if before.get(path) != state]
        self.notebooks[notebook] = {
            "tables": sorted(path.stem for path in new if path.suffix == ".csv"),
            "figures": sorted(path.stem for path in new if path.suffix == ".png"),
        }
        self.save()

    def _files(self) -> dict[Path, tuple[int, int]]:
        found = [*self.study.results.glob("*.png"), *self.study.results.glob("tables/*.csv")]
        states = ((path, path.stat()) for path in found)
        return {path: (state.st_ino, state.st_mtime_ns) for path, state in states}


def _material(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that change numbers."""
    names = [own.name for own in fields(Settings) if own.metadata["material"]]
    return {name: settings.get(name) for name in names}


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
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=project_root(), capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
