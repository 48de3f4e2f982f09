"""What a table of results must be where it is saved: finite, and empty only where it may be."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd

from helpers.errors import InputError

# Tables in which every number is there, but for columns about a token that a model does not have.
WHOLE = (
    "relative_position", "token_types", "entropy", "gradients", "head_distances", "head_positions",
    "structural_layers",
)  # fmt: skip
ABOUT = {"cls": ("cls", "entropy_from_cls"), "sep": ("sep", "sep_to_sep", "other_to_sep")}
# Columns that may be empty from top to bottom: what the paper does not say, what a figure's
# example has no use for, what claims could not measure.
MAY_BE_EMPTY = ("here", "threshold", "control", "relation", "direction", "within", "between", "std")
CAUSE = (
    "weights or hidden states that are not finite, or a damaged store: try --dtype float32, and "
    "'python -m helpers verify'"
)


def check_table(
    table: pd.DataFrame, name: str, *, special_tokens: Callable[[], Mapping[str, str | None]]
) -> None:
    """Refuse a table with numbers that a model of its kind should have and that are not there.

    ``special_tokens`` is asked which of [CLS] and [SEP] the model has, if a column is empty.

    Raises:
        InputError: the message names table, column and likely cause.
    """
    for column in table.columns if len(table) else ():
        values = table[column]
        numbers = pd.api.types.is_float_dtype(values)
        if numbers and np.isinf(values).any():
            raise InputError(f"{name}.csv: column {column} has infinite numbers; {CAUSE}")
        empty = values.isna()
        whole = name.removeprefix("control_") in WHOLE
        if not (empty.any() if whole else empty.all()) or may_be_empty(str(column)):
            continue
        roles = [role for role, columns in ABOUT.items() if column in columns]
        if not any(special_tokens().get(role) is None for role in roles):
            rows = "no number" if empty.all() else f"{empty.sum()} of {len(table)} numbers missing"
            raise InputError(f"{name}.csv: column {column} has {rows}; {CAUSE}")


def may_be_empty(column: str) -> bool:
    """Return whether a column may hold nothing at all, whatever the model."""
    return (
        column in MAY_BE_EMPTY
        or column.startswith(("paper", "p_value"))
        or column.endswith(("_low", "_high"))
    )
