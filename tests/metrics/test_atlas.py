"""The atlas names every head by one rule."""

import numpy as np
import pandas as pd
import pytest
from plot_checks import BERT

from helpers.metrics.atlas import COLUMNS, SOURCES, head_atlas
from helpers.metrics.heads import DIRECTIONS

SHARES = ("previous", "current", "next", "cls", "sep", "first", "punctuation")


def one_head(**numbers):
    """Make the tables of a model with the head 3-1 alone, and the relation that it does best."""
    defaults = dict.fromkeys(SHARES, 0.1) | {"entropy": 2.0, "uniform": np.log(100)}
    defaults |= {"relation": "dobj", "direction": DIRECTIONS[0], "coreference": 0.0}
    defaults |= dict.fromkeys(("among", "nearest", "lead_low", "same", "after_same"), 0.0)
    row = pd.DataFrame([{"layer": 3, "head": 1, **defaults, **numbers}])
    tables = {name: row[["layer", "head", *columns]] for name, columns in SOURCES.items()}
    return tables, row


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ({"among": 81, "nearest": 74, "lead_low": 0.1},
         ("relation", "object to verb", "81% (nearest 74%)")),
        ({"among": 81, "nearest": 74, "lead_low": 1, "direction": DIRECTIONS[1], "cls": 0.9},
         ("relation", "verb to object", "81% (nearest 74%)")),
        ({"among": 81, "nearest": 74, "lead_low": 1, "relation": "orphan"},
         ("relation", "orphan to parent", "81% (nearest 74%)")),
        ({"after_same": 0.3, "same": 0.4, "first": 0.75}, ("induction", "induction", "30%")),
        ({"after_same": 0.29, "same": 0.3}, ("same token", "same token", "30%")),
        ({"current": 0.5}, ("position", "itself", "50%")),
        ({"cls": 0.6, "first": 0.6}, ("special token", "[CLS]", "60%")),
        ({"punctuation": 0.61}, ("punctuation", "punctuation", "61%")),
        ({"punctuation": 0.59, "cls": np.nan}, ("mixed", "–", "59% punctuation")),
        ({"entropy": 0.78 * np.log(100)}, ("broad", "broad", "36 tokens")),
    ],
)  # fmt: skip
def test_head_atlas_names_a_head_by_the_first_rule_that_is_true(numbers, expected):
    tables, best = one_head(**numbers)
    table = head_atlas(tables, BERT, best)
    assert tuple(table) == COLUMNS
    assert tuple(table.loc[0, ["kind", "name", "number"]]) == expected


@pytest.mark.parametrize(
    ("label", "low", "kind"),
    [("3-1", 45, "coreference"), ("3-1", 39, "mixed"), ("3-2", 45, "mixed")],
)
def test_head_atlas_names_the_best_head_of_coreference_if_it_beats_head_match(label, low, kind):
    systems = {"system": ["head match", "head"], "head": ["", label], "accuracy": [40, 50]}
    tables, best = one_head(coreference=50.0)
    tables["coreference"] = pd.DataFrame(systems).assign(accuracy_low=low)
    assert head_atlas(tables, BERT, best).loc[0, "kind"] == kind
