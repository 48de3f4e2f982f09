"""Claims of the causal test of Table 1: does the margin of a head say what it does?"""

from __future__ import annotations

from pathlib import Path

from beyond.claims.claim import read_claims

CLAIMS = read_claims(Path(__file__).with_suffix(".toml"))
