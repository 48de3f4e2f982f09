"""Where things are: the one place that turns names into folders."""

from __future__ import annotations

import os
from pathlib import Path


def project_root() -> Path:
    """Return the project folder (the one that holds ``helpers/`` and ``notebooks/``)."""
    return Path(__file__).resolve().parent.parent


def cache_root() -> Path:
    """Return the folder of the stores: ``ATTENTION_CACHE``, or ``.cache`` in the project."""
    return Path(os.environ.get("ATTENTION_CACHE") or project_root() / ".cache")


def figures_dir(slug: str) -> Path:
    """Return the folder of a model's figures; ``ATTENTION_FIGURES`` moves their parent."""
    return Path(os.environ.get("ATTENTION_FIGURES") or project_root() / "figures") / slug


def build_dir(slug: str) -> Path:
    """Return the folder of a model's executed notebooks; ``ATTENTION_BUILD`` moves its parent."""
    return Path(os.environ.get("ATTENTION_BUILD") or project_root() / "build") / slug


def given_path(given: str) -> Path:
    """Return a path of the user's; a relative one counts from where they are, then the project."""
    path = Path(given).expanduser()
    if path.exists() or path.is_absolute():
        return path
    return project_root() / path if (project_root() / path).exists() else path
