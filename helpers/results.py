"""Whose a results folder is: it belongs to one set of the settings that matter."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from helpers.data.corpora import registry
from helpers.errors import InputError
from helpers.model.encoder import DEFAULT, mpnet, slug
from helpers.paths import figures_dir, given_path, project_root, write_whole
from helpers.settings import LONGEST_NAME, MATERIAL, NO_NAMES, PLACES, Settings, flag, folder_name
from helpers.tables import run_record


def results_name(settings: Settings) -> str:
    """Return the folder name of a run's results: ``name``, or the model's and what else differs.

    Where another run has that one (``x/tiny`` after ``y/tiny``), a digest of the settings follows.

    Raises:
        InputError: ``name`` is taken by a run of other settings.
    """
    model = slug(settings.model, random_seed=settings.random_init)
    model += f"-{settings.lens}" if settings.lens != Settings.lens else ""
    natural = "--".join(filter(None, (model, settings.difference)))
    name = settings.name or folder_name(natural, LONGEST_NAME - 20)  # what follows has room
    others = _others(settings, figures_dir(name))
    if settings.name and others:
        raise InputError(
            f"--name {name}: {figures_dir(name)} has another run ({'; '.join(others)}); give this "
            "one another name, or none, or remove that folder"
        )
    if settings.name or not (others or name in NO_NAMES):
        return name
    text = json.dumps(known(settings, MATERIAL), sort_keys=True)
    return f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:6]}"


def known(settings: Settings, names: Collection[str]) -> dict[str, Any]:
    """Return settings as run.json has them, with models and files as where they are."""
    own = {name: getattr(settings, name) for name in names}
    places = {name: _place(own[name]) for name in ("model", *PLACES) if name in own}
    return own | places | {"small": settings.small}


def claim(settings: Settings, folder: Path) -> None:
    """Say in ``run.json`` whose a folder is, before a notebook that is run by itself fills it.

    It knows only the settings that it declares; the next one adds its own.
    """
    record = run_record(folder)
    if "notebooks" not in record:  # else a run has said it as it began
        there = record.get("settings", {}) | known(settings, settings.declared)
        write_record(folder, record | {"settings": there})


def write_record(folder: Path, facts: Mapping[str, Any]) -> None:
    """Write ``run.json``."""
    write_whole(folder / "run.json", f"{json.dumps(facts, indent=1, default=str)}\n".encode())


def _others(settings: Settings, folder: Path) -> list[str]:
    """Return how the run of a folder differs in the settings that matter and both know."""
    there = run_record(folder).get("settings")
    if there is None:
        unknown = any((folder / "tables").glob("*.csv"))
        return ["tables without a run.json that says what of"] if unknown else []
    here, there = known(settings, settings.declared), {"small": False} | there
    names = {name: flag(name) for name in MATERIAL} | {"small": "the small profile"}
    return [
        f"{said} is {there[name]!r} there, {here[name]!r} here"
        for name, said in names.items()
        if name in here and name in there and here[name] != there[name]
    ]


def _place(given: str) -> str:
    """Return where a model or file is, from the project; what has a name of its own keeps it."""
    if given in ("", DEFAULT, mpnet.NAME, *registry().index):
        return given
    if (path := given_path(given)).exists():
        return f"./{os.path.relpath(path.resolve(), project_root())}"
    return ",".join(_place(part.strip()) for part in given.split(",")) if "," in given else given
