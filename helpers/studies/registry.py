"""All studies together: their claims, and a check of their inputs before a run.

No other layer names a study.  Modules that import torch are imported when they are needed, because
the command line is slow with it.
"""

from __future__ import annotations

from helpers.claims.engine import Claim
from helpers.settings import Settings
from helpers.studies.niven2019.arguments import argument_corpus


def check_inputs(settings: Settings) -> None:
    """Raise InputError or CorpusError if a study cannot read its settings, before a run starts."""
    if settings.task:
        from helpers.studies.common.fine_tune import load_tasks  # torch

        load_tasks(settings.task, "", examples=2, seed=0)
    if settings.arct:
        argument_corpus(settings.arct)


def later_claims() -> list[Claim]:
    """List the claims of all studies, in the order of the notebooks."""
    from helpers.studies.claims import causal
    from helpers.studies.claims import kobayashi2020 as kobayashi
    from helpers.studies.claims import kovaleva2019 as kovaleva
    from helpers.studies.claims import michel2019 as michel
    from helpers.studies.claims import niven2019 as niven

    claims = []
    for module in (kovaleva, michel, niven, kobayashi, causal):
        claims += module.CLAIMS
    return claims
