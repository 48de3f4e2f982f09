"""Measures by hand, and a model without special tokens."""

import pandas as pd
import pytest

from helpers.analysis.paper import check_claims
from helpers.studies.attention_moves.claims import largest_ratio, movement_claims


def special_tokens(ratios):
    """A row a layer and one of all layers, whose intervals are 0.1 wide."""
    layers = [str(layer) for layer in range(1, len(ratios))] + ["all"]
    columns = {
        f"{name}{end}": [ratio + shift for ratio in ratios]
        for name in ("ratio", "value_ratio")
        for end, shift in (("", 0), ("_low", -0.05), ("_high", 0.05))
    }
    return pd.DataFrame({"layer": layers, **columns})


def estimate(name, value, **where):
    return where | {name: value, f"{name}_low": value - 1, f"{name}_high": value + 1}


TABLES = {
    "special_tokens": special_tokens([0.9, 0.2, 0.3]),
    "edge_ratios": pd.DataFrame(
        [
            estimate("ratio", 8, ways=ways, model="own", measure="sentence vector")
            | estimate("lead", -3, ways=ways, model=model, measure="sentence vector")
            for ways in ("dropped / taken from others", "given to others / dropped")
            for model in ("own", "drawn")
        ]
    ),
    "attributions": pd.DataFrame(
        [
            estimate("lead", value, method="rollout", effect=effect)
            for effect, value in (("vector", -2), ("similarity", 50))
        ]
    ),
}


def test_the_rows_that_are_meant_are_measured():
    assert largest_ratio(TABLES) == pytest.approx((0.9, 0.85, 0.95))
    found = check_claims(TABLES, movement_claims())
    assert found.loc[2, ["here", "ci_low", "ci_high"]].tolist() == pytest.approx([0.3, 0.25, 0.35])
    edges = ["no", "yes", "yes", "not measured"]  # there is no focused control
    assert list(found["holds"]) == ["yes", "yes", "yes", *edges, "no"]


def test_a_model_without_special_tokens_has_no_number_for_them():
    nothing = {"special_tokens": TABLES["special_tokens"].assign(ratio=float("nan"))}
    table = check_claims(TABLES | nothing, movement_claims())
    assert (table["holds"] == "not measured").sum() == 3  # no focused control, either
