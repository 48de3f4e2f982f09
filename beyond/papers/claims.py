"""The claims of all later papers, in the order of the notebooks."""

from __future__ import annotations

from beyond.papers.accuracy_and_function import claims as accuracy_and_function
from beyond.papers.argument_cues import claims as argument_cues
from beyond.papers.dark_secrets import claims as dark_secrets
from beyond.papers.sinks import claims as sinks
from beyond.papers.sixteen_heads import claims as sixteen_heads

LATER_CLAIMS = [
    *dark_secrets.CLAIMS,
    *sixteen_heads.CLAIMS,
    *argument_cues.CLAIMS,
    *sinks.CLAIMS,
    *accuracy_and_function.CLAIMS,
]
