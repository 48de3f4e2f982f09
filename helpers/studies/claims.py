"""The claims of the papers of notebooks 07 to 10, whose sections name them."""

from __future__ import annotations

from helpers.analysis.claims import Claim
from helpers.studies.argument_cues.cues import cue_claims
from helpers.studies.argument_cues.partial_inputs import choice_claims
from helpers.studies.attention_moves.claims import movement_claims
from helpers.studies.dark_secrets.claims import finetuning_claims
from helpers.studies.sixteen_heads.claims import pruning_claims


def later_claims() -> list[Claim]:
    """Return the claims of the guest papers, in the order of the notebooks."""
    return [
        *finetuning_claims(),
        *pruning_claims(),
        *cue_claims(),
        *choice_claims(),
        *movement_claims(),
    ]
