"""Measures of section 5: how much syntax probes find in attention maps.

UAS is without punctuation.  A claim whose number is a control minus the mean of controls, whatever
the model, is about zero, and therefore not about training.
"""

from __future__ import annotations

from functools import partial

from beyond.claims.tables import Measure, Tables, cell, estimate_from_table
from helpers.metrics.statistics import Estimate, distance_from


def points_apart(tables: Tables, probe: str, other: str) -> Estimate:
    """Read how many percentage points two probes are apart, in either direction."""
    difference = estimate_from_table(
        tables, "probe_differences", "difference", probe=probe, other=other
    )
    return distance_from(difference, 0)


probe_lead = partial(cell, "probe_differences", "difference")
MEASURES: dict[str, Measure] = {
    "sec5-attn-over-right-branching": probe_lead(probe="Attn", other="Right-branching"),
    "sec5-glove-adds": probe_lead(probe="Attn + GloVe", other="Attn"),
    "sec5-attn-adds-to-distances": probe_lead(probe="Attn + GloVe", other="Distances + GloVe"),
    "sec5-attn-over-distances": probe_lead(probe="Attn", other="Distances + GloVe"),
    "sec5-random-weights-worse": probe_lead(probe="Attn + GloVe", other="Random-init Attn + GloVe"),
    "sec5-hidden-states-alike": partial(
        points_apart, probe="Bilinear probe on hidden states", other="Attn + GloVe"
    ),
    "sec5-structural-probe-alike": partial(
        points_apart, probe="Structural probe", other="Attn + GloVe"
    ),
}
