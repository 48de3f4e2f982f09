"""The part of a run that belongs to notebook 10."""

from __future__ import annotations

from helpers.claims.engine import Claim
from helpers.settings import Settings


def check(settings: Settings) -> None:
    """Accept all settings: notebook 10 has none of its own."""


def claims() -> list[Claim]:
    """List the claims of Kobayashi et al. (2020) and of Abnar and Zuidema (2020)."""
    from helpers.studies.kobayashi2020.claims import CLAIMS  # torch

    return CLAIMS
