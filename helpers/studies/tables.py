"""What the tables of several guests need: to be one, which tasks count, a mean with an interval."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import t

from helpers.analysis.claims import Estimate, Tables, rows_of
from helpers.analysis.statistics import LEVEL


def stacked(tables: Mapping[Any, pd.DataFrame], *names: str) -> pd.DataFrame:
    """Return tables as one, what their keys say in its first columns."""
    whole = pd.concat(tables, names=[*names, None])
    return whole.reset_index(names).reset_index(drop=True)


def mean_interval(values: pd.Series) -> Estimate:
    """Return the mean of independent values and its 95% interval (Student's t)."""
    mean, count = float(values.mean()), len(values)
    if count < 2:
        return Estimate(mean, np.nan, np.nan)
    half = t.ppf((1 + LEVEL) / 2, count - 1) * values.std() / np.sqrt(count)
    return Estimate(mean, mean - half, mean + half)


def learned_tasks(tables: Tables) -> set[str]:
    """Return the tasks that the model learns beyond the baselines, by the table ``fine_tuning``."""
    accuracy = rows_of(tables, "fine_tuning", "task", "start", "learned")
    own = (accuracy["start"] == "pretrained") & accuracy["learned"].astype(bool)
    return set(accuracy.loc[own, "task"])
