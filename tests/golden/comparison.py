"""Compare tables with the golden ones, number by number."""

import numpy as np
import pandas as pd
from golden.runs import FOLDER

# Relative to the largest value of the column: one rounding of float16, in which maps are stored.
# Between instruction sets most columns differ by 1e-5, differences of averages by 2e-4.
RELATIVE = 5e-4
RELATIVE_OF = {"probe_heads": 0.02}  # weights of a probe, which is trained until it changes little
DIGITS = 6
# Whole numbers, and numbers of a grid, that name a row.
KEYS = ("layer", "head", "distance", "dose", "rank", "tokens")
# Where numbers are trained or resampled, in their own unit.
WIDER = {
    "probes": 2.0, "probe_differences": 2.0, "probe_layers": 2.0,
}  # fmt: skip
P_TOLERANCE = 0.005


def read_golden(model, measure):
    """Read a golden table."""
    path = FOLDER / model / f"{measure}.csv"
    return pd.read_csv(path, keep_default_na=False, na_values=[""])


def write_golden(table, model, measure):
    """Write a golden table."""
    path = FOLDER / model / f"{measure}.csv"
    path.parent.mkdir(exist_ok=True)
    table.to_csv(path, index=False, float_format=f"%.{DIGITS}g")


def is_number(column):
    """Tell whether a column has numbers, and not names or yes and no."""
    return pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)


def in_order(table, keys):
    """Sort the rows by the columns that name them; rows of one name stay in their order."""
    rank = table[keys].astype(object).fillna("").astype(str).apply(tuple, axis=1)
    return table.loc[rank.sort_values(kind="stable").index].reset_index(drop=True)


def tolerance(measure, column, expected):
    """Compute the largest absolute difference that a column may have."""
    if column.startswith("p_") or column.endswith(("_p", "p_value")):
        return P_TOLERANCE
    size = np.nanmax(np.abs(expected), initial=0)
    return max(WIDER.get(measure, 0), RELATIVE_OF.get(measure, RELATIVE) * size)


def differences(measure, table, expected):
    """Compare the columns of a golden table.

    Yields
    ------
    column, absolute, relative, is_within : str, float, float, bool
        The largest differences of each column that has numbers, absolute and relative to the
        largest value; both are infinite for other rows, names, verdicts or empty cells.
    """
    keys = [name for name in expected if not is_number(expected[name]) or name in KEYS]
    verdicts = [name for name in keys if name in ("verdict", "larger_than_in_controls")]
    keys = [name for name in keys if name not in verdicts]
    missing = [name for name in expected if name not in table]
    if missing or len(table) != len(expected):
        yield ", ".join(missing) or f"{len(table)} rows for {len(expected)}", np.inf, np.inf, False
        return
    table, expected = in_order(table, keys), in_order(expected, keys)
    for name in expected:
        if name in keys or name in verdicts:
            is_same = table[name].fillna("").astype(str) == expected[name].fillna("").astype(str)
            if not is_same.all():
                yield name, np.inf, np.inf, False
            continue
        values = pd.to_numeric(table[name]).to_numpy(float)
        golden = expected[name].to_numpy(float)
        if (np.isnan(values) != np.isnan(golden)).any():
            yield name, np.inf, np.inf, False
            continue
        absolute = np.nanmax(np.abs(values - golden), initial=0)
        size = np.nanmax(np.abs(golden), initial=0)
        relative = absolute / size if size else absolute
        yield name, absolute, relative, absolute <= tolerance(measure, name, golden)
