"""A text that a user types becomes a store to look at."""

import numpy as np
import pytest

from helpers.viewer.own_text import read
from helpers.viewer.view import view


@pytest.mark.default_model
def test_read_makes_a_store_of_parsed_sentences(own_cache):
    store = read("She opened the door.\n  It was\theavy.")
    assert len(store) == 2
    assert store[0].record["words"] == ["She", "opened", "the", "door", "."]
    assert store[0].record["heads"] == [2, 0, 4, 2, 2]
    assert store[0].attention.shape[-1] == 7
    np.testing.assert_allclose(store[1].attention.sum(-1), 1, atol=0.01)
    assert view(store, 1).data()["pages"][0]["tokens"][3] == "heavy"
