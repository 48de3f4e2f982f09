"""The part of a run that belongs to notebook 08."""

from __future__ import annotations

from helpers.claims.engine import Claim
from helpers.settings import Settings


def check(settings: Settings) -> None:
    """Accept all settings: the tasks, which notebook 07 also takes, are checked for that one."""


def claims() -> list[Claim]:
    """List the claims of Michel et al. (2019)."""
    from helpers.studies.michel2019.claims import CLAIMS  # torch

    return CLAIMS
