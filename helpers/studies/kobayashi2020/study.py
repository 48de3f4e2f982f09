"""The part of a run that belongs to notebook 10."""

from __future__ import annotations

from helpers.claims.engine import Claim
from helpers.settings import Settings


def check(settings: Settings) -> None:
    """Accept all settings: notebook 10 has none of its own."""


def claims() -> list[Claim]:
    """List the claims of Kobayashi et al., of Abnar and Zuidema, and of our causal test."""
    from helpers.studies.kobayashi2020 import causal_claims, claims  # torch

    return [*claims.CLAIMS, *causal_claims.CLAIMS]
