"""The claims of notebook 10 on made-up tables, and for a model without special tokens."""

import pandas as pd

from beyond.claims.engine import check_claims
from beyond.papers.common.edge_cuts import CONSTANT, DROPPED, MASS_MATCHED
from beyond.papers.sinks.claims import CLAIMS


def with_bounds(table, column):
    bounds = {"low": table[column] - 0.05, "high": table[column] + 0.05, "df": 90}
    return table.assign(**{f"{column}_{name}": values for name, values in bounds.items()})


def special_tokens(ratios):
    """Make special_tokens.csv from the ratios of each set of tokens, by layer and over all."""
    frames = []
    for token, by_layer in ratios.items():
        layers = [str(layer) for layer in range(1, len(by_layer))]
        frame = pd.DataFrame({"token": token, "layer": [*layers, "all"], "ratio": by_layer})
        frames.append(frame.assign(value_ratio=by_layer))
    return with_bounds(with_bounds(pd.concat(frames), "ratio"), "value_ratio")


def edges(ratios):
    """Make edges.csv from what a change costs over what dropping does; other layers cost less."""
    rows = []
    for layers, factor in (("2-3", 1), ("1-3", 0)):
        for (keys, change), ratio in ratios.items():
            rows.append((layers, keys, change, factor * ratio))
    table = pd.DataFrame(rows, columns=["layers", "keys", "change", "of_dropped"])
    return with_bounds(table, "of_dropped")


TABLES = {
    "special_tokens": special_tokens({"cls": [0.2, 0.3, 0.1], "sep": [0.3, 1.5, 0.6]}),
    "edges": edges(
        {
            ("cls", DROPPED): 1.0,
            ("cls", MASS_MATCHED): 5.0,
            ("cls", CONSTANT): 0.2,
            ("sep", MASS_MATCHED): 0.4,
        }
    ),
}


def check(tables):
    """Check the claims on tables; the rows have the ids of the claims."""
    return check_claims(tables, CLAIMS).set_index("id")


def test_claims_are_decided_for_each_token_in_the_layers_of_the_sink():
    assert check(TABLES)["verdict"].to_dict() == {
        "kobayashi-lens-cls": "supported",
        "kobayashi-lens-cls-every-layer": "supported",
        "kobayashi-values-cls": "supported",
        "kobayashi-lens-sep": "not supported",
        "kobayashi-lens-sep-every-layer": "not supported",
        "kobayashi-values-sep": "supported",
        "moves-cls-words": "supported",
        "moves-sep-words": "not supported",
        "sink-constant-cls": "supported",
    }


def test_claims_about_a_first_token_are_decided_on_its_own_rows():
    table = edges({("first", MASS_MATCHED): 0.2, ("first", CONSTANT): 0.8})
    assert check({"edges": table})["verdict"].to_dict() == {
        "moves-first-words": "not supported",
        "sink-constant-first": "not supported",
    }
