"""``run.json``: what a run was of and what computed it."""

from __future__ import annotations

import json
import platform
import subprocess
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from helpers.paths import project_root
from helpers.study import Study

PACKAGES = ("torch", "transformers", "numpy", "pandas", "scikit-learn", "spacy", "gensim")


def describe(study: Study) -> dict[str, Any]:
    """Return the facts of a run: settings, model, corpora, versions, git commit."""
    from helpers.data.glove import DEFAULT

    return {
        "settings": asdict(study),
        "model": study.encoder.identity,
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
    """Write ``run.json`` beside the figures."""
    study.results.mkdir(parents=True, exist_ok=True)
    text = json.dumps(describe(study), indent=1, default=str)
    (study.results / "run.json").write_text(text + "\n", encoding="utf-8")


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
