"""The studies of later papers, in the order of their notebooks (07 to 10).

A study takes part in a run through files in its folder, so that no other layer knows it:

- ``settings.toml`` declares the settings that only later papers use; `helpers.settings` makes flags
  and parameters of notebooks of them.
- ``paper.csv`` has the numbers of the paper that its tables and its notebook compare with.
- ``study.py`` has ``check``, which refuses settings that the notebook could not use, and
  ``claims``, which lists the claims of the paper.
"""

from __future__ import annotations

from helpers.claims.engine import Claim
from helpers.settings import Settings
from helpers.studies.kobayashi2020 import study as kobayashi2020
from helpers.studies.kovaleva2019 import study as kovaleva2019
from helpers.studies.michel2019 import study as michel2019
from helpers.studies.niven2019 import study as niven2019

STUDIES = (kovaleva2019, michel2019, niven2019, kobayashi2020)


def check_inputs(settings: Settings) -> None:
    """Raise InputError or CorpusError if a study cannot use the settings, before a run starts."""
    for study in STUDIES:
        study.check(settings)


def later_claims() -> list[Claim]:
    """List the claims of all studies; their code imports torch."""
    claims = []
    for study in STUDIES:
        claims += study.claims()
    return claims
