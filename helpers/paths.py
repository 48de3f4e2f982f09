"""Where things are: the one place that turns names into folders."""

from __future__ import annotations

import os
from pathlib import Path


def project_root() -> Path:
    """Return the folder that holds ``helpers/``: the project's, where it is a checkout."""
    return Path(__file__).resolve().parent.parent


def in_checkout() -> bool:
    """Return whether the package is in a checkout: an installed copy has no notebooks."""
    return (project_root() / "notebooks").is_dir()


def cache_root() -> Path:
    """Return the folder of the stores: ``ATTENTION_CACHE``, or ``.cache`` in the project.

    An installed copy has it among the user's caches, and writes nothing beside its code.
    """
    if given := os.environ.get("ATTENTION_CACHE"):
        return Path(given)
    if in_checkout():
        return project_root() / ".cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "attention-notebooks"


def figures_dir(slug: str) -> Path:
    """Return the folder of a run's figures; ``ATTENTION_FIGURES`` moves their parent."""
    return Path(os.environ.get("ATTENTION_FIGURES") or _results_root() / "figures") / slug


def build_dir(slug: str) -> Path:
    """Return the folder of a run's executed notebooks; ``ATTENTION_BUILD`` moves their parent."""
    return Path(os.environ.get("ATTENTION_BUILD") or _results_root() / "build") / slug


def _results_root() -> Path:
    return project_root() if in_checkout() else Path.cwd()


def given_path(given: str) -> Path:
    """Return a path of the user's; a relative one counts from where they are, then the project."""
    path = Path(given).expanduser()
    if path.exists() or path.is_absolute():
        return path
    return project_root() / path if (project_root() / path).exists() else path
