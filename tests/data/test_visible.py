"""Which keys a query sees, against masks that are written out."""

import numpy as np
import pytest

from helpers.data.records import Visible, describe_mask, visible_mask, visible_words

MASKS = {
    Visible(False, None): ["1111", "1111", "1111", "1111"],
    Visible(True, None): ["1000", "1100", "1110", "1111"],
    Visible(False, 1): ["1100", "1110", "0111", "0011"],
    Visible(True, 1): ["1000", "1100", "0110", "0011"],
    Visible(False, 2): ["1110", "1111", "1111", "0111"],
}


def mask_of(rows):
    return np.array([[cell == "1" for cell in row] for row in rows])


@pytest.mark.parametrize(("visible", "rows"), MASKS.items())
def test_masks_are_those_that_are_written_out(visible, rows):
    mask = mask_of(rows)
    assert np.array_equal(visible_mask(visible, 4), mask)
    assert describe_mask(mask) == visible
    groups = [0, 1, 1, 2]  # the word of each token: it sees another if any of its tokens does
    expected = np.zeros((3, 3), dtype=bool)
    for query, key in np.argwhere(mask):
        expected[groups[query], groups[key]] = True
    assert np.array_equal(visible_words(mask, groups), expected)


def test_describe_mask_describes_no_other_mask():
    for rows in (["1100", "1100", "0011", "0011"], ["1110", "1111", "1111", "1111"]):
        assert describe_mask(mask_of(rows)) is None
    long_window = visible_mask(Visible(False, 3), 4)  # limits nothing
    assert describe_mask(long_window) == Visible(False, None)
