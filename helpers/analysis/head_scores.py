"""How well each single head does syntax, over all relations: one row for each head."""

from __future__ import annotations

import numpy as np
import pandas as pd

from helpers.analysis.dependency_heads import HeadCounts
from helpers.analysis.heads import head_rows
from helpers.analysis.relations import ALL

SCORES = ("best_accuracy", "best_margin", "attachment")


def head_scores(counts: HeadCounts, *, minimum: int) -> pd.DataFrame:
    """Return three scores of each head as a finder of syntactic heads, in percent.

    Columns: layer, head (both from 1), relation (the one that it finds best), best_accuracy (at
    that one), best_margin (the largest lead over a relation's best fixed offset, in points; it
    is not misled by relations that are easy) and attachment (of all words, the better of the two
    directions).  Relations with fewer than ``minimum`` words are left out.
    """
    relations = [name for name in counts.frequent(minimum) if name != ALL]
    best = {name: counts.accuracy(name).max(axis=0) for name in (ALL, *relations)}
    attachment = best.pop(ALL)
    accuracies = np.stack(list(best.values()))  # [relation, layer, head]
    offsets = [counts.offset_accuracy(name).max() for name in relations]
    return head_rows(
        *attachment.shape,
        relation=np.array(relations)[accuracies.argmax(axis=0)],
        best_accuracy=accuracies.max(axis=0),
        best_margin=(accuracies - np.array(offsets)[:, None, None]).max(axis=0),
        attachment=attachment,
    )
