"""Measures of section 3 over blocks of rows: those of whole maps, however the rows are divided."""

from functools import partial

import numpy as np
import pytest

from helpers.data.records import roles
from helpers.data.visible import Visible, visible_mask
from helpers.metrics import rows
from helpers.metrics.rows import RowSums, means_of_maps, section_3

BERT = {"cls": "[CLS]", "sep": "[SEP]"}
TOKENS = ["[CLS]", "a", ".", "[SEP]", "b", ",", "a", "[SEP]"]
N = len(TOKENS)
MASKS = {
    "full": Visible(causal=False, window=None),
    "causal": Visible(causal=True, window=None),
    "window": Visible(causal=False, window=2),
    "causal window": Visible(causal=True, window=2),
}
LAYERS = 2


def maps_of(mask, *, mass=1.0):
    """Make random maps of two layers of three heads, and what their queries see."""
    weights = np.random.default_rng(0).gamma(0.5, size=(LAYERS, 3, N, N)) * mask
    visible = np.repeat(mask[None], LAYERS, axis=0)
    return mass * weights / weights.sum(axis=-1, keepdims=True), visible


def means_of_blocks(measure, attention, visible, size):
    """Add the rows in blocks of ``size`` queries, layer by layer."""
    sums = RowSums(measure)
    for layer in range(LAYERS):
        for first in range(0, N, size):
            block = slice(first, first + size)
            sums.add(layer, attention[layer, :, block], first, visible[layer, block])
    return sums.means()


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("size", [1, 3, 7])
def test_blocks_of_rows_give_the_measures_of_whole_maps(mask, size):
    attention, visible = maps_of(visible_mask(MASKS[mask], N))
    measure = partial(section_3, roles=roles(TOKENS, BERT))
    expected = means_of_maps(measure, attention, visible)
    assert np.isnan(expected["next"]).all() == MASKS[mask].causal
    for name, values in means_of_blocks(measure, attention, visible, size).items():
        np.testing.assert_allclose(values, expected[name], rtol=1e-12, err_msg=name)


def test_a_block_without_a_token_type_leaves_its_mean_to_the_others():
    attention, visible = maps_of(np.ones((N, N), dtype=bool))
    measure = partial(rows.token_types, roles=roles(TOKENS, BERT))
    means = means_of_blocks(measure, attention, visible, 1)
    to_sep = attention[:, :, [3, 7]][..., [3, 7]].sum(axis=-1).mean(axis=-1)
    np.testing.assert_allclose(means["sep_to_sep"], to_sep)
    assert np.isnan(means["sink"]).all()


def test_a_head_with_an_empty_sink_has_its_share_too():
    attention, visible = maps_of(np.ones((N, N), dtype=bool), mass=0.7)
    attention[0] /= 0.7  # a layer whose heads give the sink nothing
    measure = partial(rows.token_types, roles=roles(TOKENS, BERT))
    sink = means_of_blocks(measure, attention, visible, 3)["sink"]
    np.testing.assert_allclose(sink[0], 0, atol=1e-12)
    np.testing.assert_allclose(sink[1], 0.3)


def test_a_text_without_special_tokens_has_no_shares_of_them():
    attention, visible = maps_of(np.ones((N, N), dtype=bool))
    measure = partial(section_3, roles=roles(TOKENS, {"cls": None, "sep": None}))
    means = means_of_blocks(measure, attention, visible, 3)
    for name in ("cls", "sep_to_sep", "other_to_sep", "uniform_cls", "entropy_from_cls"):
        assert np.isnan(means[name]).all()
    np.testing.assert_allclose(means["first"], attention[..., 0].mean(axis=-1))
