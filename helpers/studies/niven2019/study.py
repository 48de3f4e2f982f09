"""The part of a run that belongs to notebook 09; its setting is in ``settings.toml``."""

from __future__ import annotations

from helpers.claims.engine import Claim
from helpers.settings import Settings
from helpers.studies.niven2019.arguments import argument_corpus


def check(settings: Settings) -> None:
    """Raise InputError or CorpusError unless the user's arguments can be read."""
    if settings.arct:
        argument_corpus(settings.arct)


def claims() -> list[Claim]:
    """List the claims of Niven and Kao (2019)."""
    from helpers.studies.niven2019.claims import CLAIMS  # torch

    return CLAIMS
