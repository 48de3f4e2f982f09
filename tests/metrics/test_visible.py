"""The tokens that are visible decide every baseline: uniform maps over them, and hand counts."""

import numpy as np
import pytest
from references import sees, sums_of

from helpers.data.records import Visible, roles
from helpers.metrics.clustering import renormalise_over_words
from helpers.metrics.surface import (
    SECTION_3,
    article_table,
    head_table,
)
from helpers.store.store import Example

FULL = Visible(causal=False, window=None)
CAUSAL = Visible(causal=True, window=None)
WINDOW = Visible(causal=False, window=3)
CAUSAL_WINDOW = Visible(causal=True, window=4)
MASKS = {
    "full": [FULL, FULL],
    "causal": [CAUSAL, CAUSAL],
    "sliding window": [WINDOW, WINDOW],
    "mixed": [FULL, CAUSAL_WINDOW],
}
MODELS = [pytest.param(visible, id=name) for name, visible in MASKS.items()]
HEADS = 3
BERT = {"cls": "[CLS]", "sep": "[SEP]"}


def masks_by_hand(visible, n):
    """Tabulate which tokens see which: [layer, query, key]."""
    masks = np.zeros((len(visible), n, n), bool)
    for layer, query, key in np.ndindex(masks.shape):
        masks[layer, query, key] = sees(visible[layer], query, key)
    return masks


def uniform_example(visible, index=0, n=40, **record):
    """Make maps whose heads attend equally to all tokens that they see."""
    masks = masks_by_hand(visible, n)
    maps = np.repeat((masks / masks.sum(axis=-1, keepdims=True))[:, None], HEADS, axis=1)
    record = {"tokens": ["[CLS]", *["a"] * (n - 2), "[SEP]"], "title": f"{index}", **record}
    return Example(index, maps, record, offset=0, visible=visible)


@pytest.mark.parametrize("visible", MODELS)
def test_visible_keys_are_those_of_each_layer(visible):
    example = uniform_example(visible)
    np.testing.assert_array_equal(example.visible_keys, masks_by_hand(visible, 40))


def test_what_a_mask_makes_impossible_is_empty():
    example = uniform_example([FULL, CAUSAL])
    sums = sums_of([example], BERT)
    table = head_table(sums, SECTION_3).groupby("layer").first()
    impossible = ["next", "cls_to_cls", "first_to_first", "entropy_from_cls"]
    assert table.loc[1, impossible].notna().all()
    assert table.loc[2, impossible].isna().all()
    assert table.loc[2, ["previous", "current", "other_to_first", "sep_to_sep"]].notna().all()
    by_article = article_table(sums).set_index("layer")
    assert by_article["next"].isna().tolist() == [False, True]


@pytest.mark.parametrize("visible", MODELS)
def test_rows_of_special_tokens_become_uniform_over_the_words_that_they_see(visible):
    n = 12
    maps = np.zeros((2, HEADS, n, n))
    maps[..., 0] = 1  # all attention to [CLS]
    token_roles = roles(["[CLS]", *["a"] * (n - 2), "[SEP]"], BERT)
    masks = masks_by_hand(visible, n)
    words = renormalise_over_words(maps, token_roles, masks)
    seen = masks[:, 1:-1, 1:-1]
    expected = seen / seen.sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(words, np.broadcast_to(expected[:, None], words.shape))
