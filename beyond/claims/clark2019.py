"""The claims of Clark et al. (2019), in the order of the paper's sections."""

from __future__ import annotations

from pathlib import Path

from beyond.claims import section3, section4, section5, section6
from beyond.claims.claim import read_claims
from helpers.metrics.reference import paper_numbers

CLAIMS = read_claims(
    Path(__file__).with_name("claims.toml"),
    {**section3.MEASURES, **section4.MEASURES, **section5.MEASURES, **section6.MEASURES},
    thresholds=section3.THRESHOLDS,
    paper_numbers=paper_numbers(),
)
