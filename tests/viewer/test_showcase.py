"""Figure 5 judges heads by the rules of Tables 1 and 2."""

import subprocess
import sys

import pandas as pd
import pytest
from viewer_stores import word_store

from helpers.analysis.dependency_heads import count_heads
from helpers.analysis.head_choice import DIRECTIONS
from helpers.viewer.showcase import relation_panels

POSSESSIVE = {
    "words": ["old", "Ann", "'s", "red", "hat", "has", "a", "hole", "."],
    "heads": [2, 5, 2, 5, 6, 0, 8, 6, 6],
    "relations": ["amod", "poss", "case", "amod", "nsubj", "ROOT", "det", "dobj", "punct"],
    "split": "dev",
}


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_possessor_found_from_its_mark_is_right_in_the_figure_as_in_the_table(direction):
    store = word_store(POSSESSIVE, layers=1, heads=1)
    example = store.examples[0]
    example.attention[:] = 0
    example.attention[0, 0, range(11), range(11)] = 1  # every word attends to itself but ...
    for query, key in ((2, 4), (3, 5)):  # Ann -> red, 's -> hat; positions count [CLS]
        if direction == DIRECTIONS[1]:
            query, key = key, query
        example.attention[0, 0, query, query] = 0
        example.attention[0, 0, query, key] = 1
    counts = count_heads(store.examples)
    assert counts.right[counts.rows("poss"), DIRECTIONS.index(direction)].item() == 1
    row = {"relation": "poss", "head": "1-1", "direction": direction, "accuracy": 100.0}
    (panel,) = relation_panels(store, pd.DataFrame([row]), {"poss": "poss"})
    assert panel.correct
    assert panel.gold == ([(2, 4)] if direction == DIRECTIONS[0] else [(4, 2)])


def test_the_viewer_needs_no_library_that_draws():
    code = (
        "import sys, helpers.viewer.showcase, helpers.viewer.view, helpers.viewer.own_text;"
        "print([name for name in ('matplotlib', 'seaborn') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
