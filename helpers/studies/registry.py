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
    from helpers.studies.kobayashi2020 import causal_claims
    from helpers.studies.kobayashi2020 import claims as kobayashi
    from helpers.studies.kovaleva2019 import claims as kovaleva
    from helpers.studies.michel2019 import claims as michel
    from helpers.studies.niven2019 import claims as niven

    claims = []
    for module in (kovaleva, michel, niven, kobayashi, causal_claims):
        claims += module.CLAIMS
    return claims
