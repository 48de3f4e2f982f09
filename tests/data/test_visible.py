"""Which keys a query sees, against masks that are written out."""

import numpy as np
import pytest

from helpers.data.visible import Visible, describe_mask, visible_mask, visible_words

MASKS = {
    Visible(False, None): ["1111", "1111", "1111", "1111"],
    Visible(True, None): ["1000", "1100", "1110", "1111"],
    Visible(False, 1): ["1100", "1110", "0111", "0011"],
    Visible(True, 1): ["1000", "1100", "0110", "0011"],
    Visible(False, 2): ["1110", "1111", "1111", "0111"],
    Visible(False, 0): ["1000", "0100", "0010", "0001"],
}


def mask_of(rows):
    return np.array([[cell == "1" for cell in row] for row in rows])


@pytest.mark.parametrize(("visible", "rows"), MASKS.items())
def test_visible_mask_is_the_mask_that_is_written_out(visible, rows):
    assert np.array_equal(visible_mask(visible, 4), mask_of(rows))


@pytest.mark.parametrize("visible", [key for key in MASKS if key.window != 0])
def test_describe_mask_recovers_what_made_a_mask(visible):
    assert describe_mask(visible_mask(visible, 4)) == visible


@pytest.mark.parametrize("window", [3, 4, 100])
def test_a_window_as_long_as_the_input_limits_nothing(window):
    assert visible_mask(Visible(False, window), 4).all()
    assert describe_mask(visible_mask(Visible(False, window), 4)) == Visible(False, None)


@pytest.mark.parametrize(
    "rows",
    [
        ["1100", "1100", "0011", "0011"],  # blocks
        ["1000", "1100", "0010", "0011"],  # causal chunks
        ["1110", "1111", "1111", "1111"],
    ],
)
def test_describe_mask_describes_no_other_mask(rows):
    assert describe_mask(mask_of(rows)) is None


@pytest.mark.parametrize("visible", MASKS)
def test_a_word_sees_another_if_any_of_its_tokens_does(visible):
    groups = [0, 1, 1, 2]
    mask = visible_mask(visible, 4)
    expected = np.zeros((3, 3), dtype=bool)
    for i, query in enumerate(groups):
        for j, key in enumerate(groups):
            expected[query, key] |= mask[i, j]
    assert np.array_equal(visible_words(mask, groups), expected)
