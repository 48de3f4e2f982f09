"""Results folders: what made their tables and figures, and from which texts and model.

``run.json`` lists, for each notebook, the tables and figures that it wrote and what made them: the
git commit, the versions of the libraries and the digest of the code.  A batch run keeps that list
itself (`helpers.run.record`).  What a notebook in JupyterLab or a script saves is listed here.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from filelock import FileLock

from helpers.cache import package_digest
from helpers.data.glove import glove
from helpers.data.text_files import file_fingerprint
from helpers.errors import InputError
from helpers.files import build_dir, cache_root, project_root, resolve_user_path
from helpers.progress import OUTPUT_LIST_VARIABLE
from helpers.settings import LATER_SETTINGS, PATH_SETTINGS
from helpers.sources import Sources, recorded_outputs, run_record, serialize_settings, write_record

LIBRARIES = ("torch", "transformers", "numpy", "pandas", "scikit-learn", "spacy", "gensim")
# The files that are compared and committed, and forms of them that are asked for with a flag.
FILES = {"tables": ("tables/{}.csv",), "figures": ("{}.png", "{}.svg")}
FORMS_ON_REQUEST = {"tables": ("tables/{}.tex",), "figures": ("{}.pdf",)}
INTERACTIVE = "interactive"  # how entries of run.json begin that no batch run made
SET_ASIDE = "set-aside"
TEXT_AS_READ = "text, as read"


def in_batch_run() -> bool:
    """Say whether ``run`` executes this notebook."""
    return bool(os.environ.get(OUTPUT_LIST_VARIABLE))


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
    command = ["git", *arguments]
    with suppress(OSError, subprocess.CalledProcessError):
        printed = subprocess.check_output(
            command, cwd=project_root(), stderr=subprocess.DEVNULL, text=True
        )
        return printed.strip()
    return None


def fingerprints(study: Sources, declared: Collection[str]) -> dict[str, str]:
    """Compute the SHA-256 of each corpus that these settings describe in full.

    A notebook that does not declare ``segments``, for example, does not know the text of the run.
    A corpus that cannot be read has no fingerprint: the notebook that reads it gives the error.
    """
    readers = {
        "text": ("segments", lambda: study.segment_corpus().fingerprint),
        "treebank": ("sentences", lambda: study.treebank_corpus().fingerprint),
        "coreference": ("coref", lambda: study.coreference_corpus().fingerprint),
        "word vectors": ("vectors", lambda: _vectors_fingerprint(study.vectors)),
    }
    for setting in [name for name in PATH_SETTINGS if name in LATER_SETTINGS]:
        for name in getattr(study, setting).split(","):
            path = resolve_user_path(name.strip())
            if name.strip() and path.exists():
                readers[f"{setting} {path.name}"] = (
                    setting,
                    lambda path=path: file_fingerprint(path),
                )
    digests = {}
    for corpus, (setting, compute) in readers.items():
        if setting in declared:
            with suppress(InputError):
                digests[f"{corpus} fingerprint"] = compute()
    return digests


def _vectors_fingerprint(vectors: str) -> str:
    return file_fingerprint(resolve_user_path(vectors)) if vectors else glove().fingerprint


def contradictions(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Name the inputs in which two descriptions of a run differ, of those that both have."""
    names = []
    if _differ(before.get("model"), now.get("model")):
        names.append("model")
    old_corpora = before.get("corpora", {})
    new_corpora = now.get("corpora", {})
    for key in old_corpora.keys() & new_corpora.keys() - {TEXT_AS_READ}:
        if old_corpora[key] != new_corpora[key]:
            names.append(key.removesuffix(" fingerprint"))
    return sorted(set(names))


def _differ(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> bool:
    if not old or not new:
        return False
    return any(old[key] != new[key] for key in old.keys() & new.keys())


def set_aside(results: Path, build: Path, names: Collection[str]) -> str:
    """Move the tables and figures of other inputs to the build folder; say so in a sentence."""
    number = 1
    while (folder := build / f"{SET_ASIDE}-{number}").exists():
        number += 1
    counts = {}
    for group in FILES:
        patterns = FILES[group] + FORMS_ON_REQUEST[group]
        in_list = recorded_outputs(results, group)
        for pattern in patterns:
            for path in sorted(results.glob(pattern.format("*"))):
                if in_list is None or path.stem in in_list:
                    _move(path, folder / path.relative_to(results))
        counts[group] = len({path.stem for path in folder.glob(FILES[group][0].format("*"))})
    for part in ("tables", "figures"):  # of these inputs, as this machine computed them
        if (build / part).is_dir():
            _move(build / part, folder / "computed" / part)
    if (results / "run.json").is_file():
        _move(results / "run.json", folder / "run.json")
    return (
        f"{results.name}: the {' and the '.join(names)} changed since the last run. "
        f"{counts['tables']} tables and {counts['figures']} figures of before are now in {folder}."
    )


def _move(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(source, target)


@contextmanager
def record_lock(slug: str) -> Iterator[None]:
    """Let one process at a time read and change the ``run.json`` of a run."""
    folder = cache_root() / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / f"{slug}.lock"):
        yield


def claim_folder(study: Sources, folder: Path, corpora: Mapping[str, str]) -> None:
    """Prepare a results folder for a notebook that no batch run executes.

    ``run.json`` says which settings and corpora (fingerprints by name) the folder is of.  What is
    there of another text under the same name is set aside.
    """
    with record_lock(folder.name):
        before = run_record(folder)
        if names := contradictions(before, {"corpora": corpora}):
            print(set_aside(folder, build_dir(folder.name), names), file=sys.stderr)
            before = {}
        record = dict(before)
        record["settings"] = serialize_settings(study, study.declared) | before.get("settings", {})
        record["corpora"] = before.get("corpora", {}) | corpora
        if not any((folder / "tables").glob("*.csv")):
            record.setdefault("notebooks", {})
        if record != before:
            write_record(folder, record)


def register(folder: Path, group: str, name: str, makers: Mapping[str, Any]) -> None:
    """List a table or figure that a notebook in JupyterLab or a script has just saved.

    ``makers`` are those of `made_by`.  The file leaves the entry of the notebook that wrote an
    earlier version of it, because that entry names what made the earlier version.
    """
    with record_lock(folder.name):
        record = run_record(folder)
        if "notebooks" not in record:  # a folder from before runs were listed: all of it counts
            return
        digest = hashlib.sha256(json.dumps(makers, sort_keys=True).encode()).hexdigest()[:8]
        session = f"{INTERACTIVE}-{digest}"
        entries = record["notebooks"]
        for entry in entries.values():
            entry[group] = [listed_name for listed_name in entry[group] if listed_name != name]
        entry = entries.setdefault(session, {"tables": [], "figures": [], **makers})
        entry[group] = sorted({*entry[group], name})
        record["notebooks"] = without_empty_sessions(entries)
        write_record(folder, record)


def without_empty_sessions(entries: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out the interactive sessions whose tables and figures were all made again since."""
    return {
        name: entry
        for name, entry in sorted(entries.items())
        if not name.startswith(INTERACTIVE) or entry["tables"] or entry["figures"]
    }
