"""All studies together: their claims, and a check of their inputs before a run.

No other layer names a study.  Modules that import torch are imported when they are needed, because
the command line is slow with it.
"""

from __future__ import annotations

from beyond.claims.engine import Claim


def later_claims() -> list[Claim]:
    """List the claims of all studies, in the order of the notebooks."""
    from beyond.papers.accuracy_and_function import claims as causal
    from beyond.papers.argument_cues import claims as niven
    from beyond.papers.dark_secrets import claims as kovaleva
    from beyond.papers.sinks import claims as kobayashi
    from beyond.papers.sixteen_heads import claims as michel

    claims = []
    for module in (kovaleva, michel, niven, kobayashi, causal):
        claims += module.CLAIMS
    return claims
