"""What notebook 09 found, in sentences written from its tables."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from helpers.studies.argument_cues.cues import ALL, HALVES
from helpers.studies.argument_cues.scores import ORIGINAL


def cue_findings(tables: Mapping[str, pd.DataFrame]) -> list[str]:
    """Return sentences about the strongest cue, and what models get right of which parts."""
    cues, choices = tables["cues"], tables["partial_inputs"]
    cue = cues[(cues["half"] == HALVES[0]) & (cues["split"] == ALL)].iloc[0]
    choices = choices[choices["train"] == ORIGINAL]
    said = [
        f"The strongest cue is “{cue['cue']}”: in one warrant only in {cue['coverage']:.0f}% of "
        f"the arguments, and in {cue['productivity']:.0f}% of these ({cue['ci_low']:.0f} to "
        f"{cue['ci_high']:.0f}) in the right one, {cue['gain']:.0f} points over guessing."
    ]
    for inputs, test, what in (
        ("warrants", HALVES[0], "Right with warrants alone"),
        ("all", HALVES[0], "With everything shown"),
        ("all", HALVES[1], "The same on the counterparts"),
    ):
        rows = choices[(choices["inputs"] == inputs) & (choices["test"] == test)]
        numbers = "; ".join(
            f"{row['model']} {row['mean']:.1f} ({row['ci_low']:.1f} to {row['ci_high']:.1f})"
            for _, row in rows.iterrows()
        )
        said += [f"{what}, in percent: {numbers}."] if numbers else []
    return said
