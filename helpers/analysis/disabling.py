"""How much a task loses, or gains, without a head or a layer (Kovaleva et al. 2019, 4.6)."""

from __future__ import annotations

import numpy as np
import pandas as pd
from jaxtyping import Int
from scipy.stats import binomtest

WHOLE_LAYER = 0  # the number that stands in the column ``head`` of a whole layer's row


def disabling_table(
    labels: Int[np.ndarray, " example"],
    predicted: Int[np.ndarray, " example"],
    disabled: Int[np.ndarray, "layer disabled example"],
) -> pd.DataFrame:
    """Compare predictions without a head, or a layer, with those of the whole model.

    ``disabled[layer]`` holds the predictions without each head and, last, without the layer.

    Returns:
        A row for each: layer and head (from 1; `WHOLE_LAYER` for a layer), accuracy (percent),
        change (percentage points), lost and gained (examples that become wrong, and right), and
        p_value (McNemar's exact test of as many lost as gained).
    """
    right = predicted == labels
    rows = []
    for layer, places in enumerate(disabled, 1):
        heads = len(places) - 1
        for place, own in enumerate(places):
            now = own == labels
            lost, gained = int((right & ~now).sum()), int((now & ~right).sum())
            rows.append(
                {
                    "layer": layer,
                    "head": WHOLE_LAYER if place == heads else place + 1,
                    "accuracy": 100 * now.mean(),
                    "change": 100 * (gained - lost) / len(labels),
                    "lost": lost,
                    "gained": gained,
                    "p_value": binomtest(gained, lost + gained).pvalue if lost + gained else 1.0,
                }
            )
    return pd.DataFrame(rows)
