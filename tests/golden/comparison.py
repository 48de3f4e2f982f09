"""Compare tables with the golden ones, number by number."""

import numpy as np
import pandas as pd
from golden.runs import FOLDER

# Relative to the largest value of the column: one rounding of float16, in which maps are stored.
# Between instruction sets most columns differ by 1e-5, differences of averages by 2e-4.
RELATIVE = 5e-4
# Weights of a probe, which is trained until it changes little; bounds of ratios of small effects.
RELATIVE_OF = {"probe_heads": 0.02, "head_edge_ratios": 0.01}
DIGITS = 6
# Whole numbers, and numbers of a grid, that name a row.
KEYS = ("layer", "head", "distance", "dose", "rank", "tokens")
# Where numbers are trained or resampled, in their own unit.
WIDER = {"probes": 2.0, "probe_differences": 2.0, "probe_layers": 2.0}
P_TOLERANCE = 0.005
VERDICTS = ("verdict", "larger_than_in_controls")


def read_golden(model, measure):
    """Read a golden table."""
    path = FOLDER / model / f"{measure}.csv"
    return pd.read_csv(path, keep_default_na=False, na_values=[""])


def is_number(column):
    """Tell whether a column has numbers, and not names or yes and no."""
    return pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)


def as_text(column):
    """List the cells of a column as text; an empty cell is empty text."""
    return column.astype(object).fillna("").astype(str).tolist()


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
    """List the columns of a golden table that differ by more than their tolerance, in words."""
    missing = [name for name in expected if name not in table]
    if missing or len(table) != len(expected):
        return [f"{len(table)} rows for {len(expected)}, without the columns {missing}"]
    names = [name for name in expected if not is_number(expected[name])]
    keys = [name for name in expected if name in names or name in KEYS]
    keys = [name for name in keys if name not in VERDICTS]
    table, expected = in_order(table, keys), in_order(expected, keys)
    lines = []
    for name in expected:
        if name in names or name in KEYS:
            if as_text(table[name]) != as_text(expected[name]):
                lines.append(f"{name}: other names, verdicts or rows")
            continue
        values = pd.to_numeric(table[name]).to_numpy(float)
        golden = expected[name].to_numpy(float)
        if (np.isnan(values) != np.isnan(golden)).any():
            lines.append(f"{name}: other empty cells")
            continue
        differs = values != golden  # infinite degrees of freedom do not
        gaps = np.abs(values[differs] - golden[differs])
        largest = np.nanmax(gaps, initial=0)
        if largest > tolerance(measure, name, golden):
            lines.append(f"{name}: {largest:.3g} of {np.nanmax(np.abs(golden)):.3g}")
    return lines
