"""The claims of notebook 10 on made-up tables, and for a model without special tokens."""

import numpy as np
import pandas as pd
import pytest

from helpers.claims.engine import check_claims
from helpers.studies.kobayashi2020.claims import CLAIMS, largest_ratio


def special_tokens(ratios):
    """Make special_tokens.csv of the layers and of all layers, with intervals 0.1 wide."""
    layers = [str(layer) for layer in range(1, len(ratios))]
    table = pd.DataFrame({"layer": [*layers, "all"]})
    for name in ("ratio", "value_ratio"):
        table[name] = ratios
        table[f"{name}_low"] = table[name] - 0.05
        table[f"{name}_high"] = table[name] + 0.05
    return table


def edge_ratios():
    """Make edge_ratios.csv of the model and one control: ratios 8, leads -3."""
    rows = []
    for modes in ("dropped / mass-matched", "redistributed / dropped"):
        for model in ("trained", "random"):
            rows.append((model, modes, "sentence vector", 8, 7, 9, -3, -4, -2))
    estimates = ["ratio", "ratio_low", "ratio_high", "lead", "lead_low", "lead_high"]
    return pd.DataFrame(rows, columns=["model", "ways", "measure", *estimates])


def attributions():
    """Make the rows of rollout in attributions.csv."""
    rows = [("rollout", "vector", -2, -3, -1), ("rollout", "similarity", 50, 49, 51)]
    return pd.DataFrame(rows, columns=["method", "effect", "lead", "lead_low", "lead_high"])


TABLES = {
    "special_tokens": special_tokens([0.9, 0.2, 0.3]),
    "edge_ratios": edge_ratios(),
    "attributions": attributions(),
}


def verdicts_by_id(tables):
    """Check the claims; the key is a word or two that only one statement has."""
    claims = check_claims(tables, CLAIMS).set_index("claim")
    keys = {
        "special tokens": "much less than",
        "every layer": "every layer",
        "value vectors": "Value vectors",
        "dropped": "Dropping attention",
        "given": "Giving that attention",
        "random": "random weights, next to",
        "entropy-matched": "entropy-matched",
        "rollout": "Rollout explains",
    }
    verdicts = {}
    for key, phrase in keys.items():
        (statement,) = [claim for claim in claims.index if phrase in claim]
        verdicts[key] = claims.loc[statement, "verdict"]
    assert len(verdicts) == len(claims)
    return verdicts


def test_largest_ratio_is_that_of_a_layer_with_its_interval():
    assert tuple(largest_ratio(TABLES)) == pytest.approx((0.9, 0.85, 0.95))


def test_claims_read_the_rows_that_they_name():
    claims = check_claims(TABLES, CLAIMS).set_index("claim")
    statement = "Value vectors of special tokens are smaller than those of words"
    columns = ["value", "value_low", "value_high"]
    assert claims.loc[statement, columns].tolist() == pytest.approx([0.3, 0.25, 0.35])
    assert verdicts_by_id(TABLES) == {
        "special tokens": "supported",
        "every layer": "supported",
        "value vectors": "supported",
        "dropped": "not supported",
        "given": "supported",
        "random": "supported",
        "entropy-matched": "not measured",  # the tables have no such control
        "rollout": "not supported",
    }


def test_claims_about_special_tokens_are_not_measured_without_them():
    special_table = TABLES["special_tokens"].assign(ratio=np.nan)
    verdicts = verdicts_by_id(dict(TABLES, special_tokens=special_table))
    not_measured = {key for key, verdict in verdicts.items() if verdict == "not measured"}
    assert not_measured == {"special tokens", "every layer", "entropy-matched"}
