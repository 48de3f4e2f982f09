"""How well each single head does syntax, over all relations: one row for each head."""

from __future__ import annotations

import numpy as np
import pandas as pd

from helpers.analysis.head_counts import DIRECTIONS, HeadCounts
from helpers.analysis.relations import ALL
from helpers.analysis.syntax import dependency_heads, head_accuracy

SCORES = ("best_accuracy", "best_margin", "attachment")


def head_scores(counts: HeadCounts, *, minimum: int) -> pd.DataFrame:
    """Return three scores of each head as a finder of syntactic heads, in percent.

    Columns: layer, head (both from 1), relation (the one that it finds best), best_accuracy (at
    that one), best_margin (the largest lead over a relation's best fixed offset, in points; it
    is not misled by relations that are easy) and attachment (of all words, the better of the two
    directions).  Relations with fewer than ``minimum`` words are left out.
    """
    table = dependency_heads(counts, minimum=minimum, resamples=1)
    best = {
        relation: np.max([head_accuracy(counts, relation, way) for way in DIRECTIONS], axis=0)
        for relation in table["relation"]
    }
    attachment = best.pop(ALL)
    relations = list(best)
    accuracies = np.stack(list(best.values()))  # [relation, layer, head]
    baselines = table.set_index("relation").loc[relations, "baseline"].to_numpy()
    layer, head = np.indices(attachment.shape).reshape(2, -1) + 1
    return pd.DataFrame(
        {
            "layer": layer,
            "head": head,
            "relation": np.array(relations)[accuracies.argmax(axis=0)].ravel(),
            "best_accuracy": accuracies.max(axis=0).ravel(),
            "best_margin": (accuracies - baselines[:, None, None]).max(axis=0).ravel(),
            "attachment": attachment.ravel(),
        }
    )
