"""The part of a run that belongs to notebook 07; its settings are in ``settings.toml``."""

from __future__ import annotations

from helpers.claims.engine import Claim
from helpers.settings import Settings


def check(settings: Settings) -> None:
    """Raise InputError or CorpusError unless the user's task can be read."""
    if settings.task:
        from helpers.studies.common.fine_tune import load_tasks  # torch

        load_tasks(settings.task, "", examples=2, seed=0)


def claims() -> list[Claim]:
    """List the claims of Kovaleva et al. (2019)."""
    from helpers.studies.kovaleva2019.claims import CLAIMS  # torch

    return CLAIMS
