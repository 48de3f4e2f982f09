"""Attention to special tokens within one part of speech: a planted confounder, and an effect."""

import numpy as np
import pandas as pd
import pytest

from helpers.metrics.dependency_heads import no_op_table
from helpers.metrics.heads import DIRECTIONS
from helpers.store.store import Example

TAGS = ["NOUN"] * 4 + ["VERB"] * 4
ROOT = 7  # a verb


def sentence(number, special_share):
    """Make a dev sentence in which three nouns and one verb are objects of the last word.

    ``special_share(tag, is_object)`` is each word's attention to [CLS]; none goes to the parent.
    """
    rng = np.random.default_rng(number)
    nouns, verbs = rng.permutation(4), 4 + rng.permutation(3)
    objects = {*nouns[:3].tolist(), int(verbs[0])}
    maps = np.zeros((1, 1, 9, 9))
    maps[..., 0, 0] = 1
    for word, tag in enumerate(TAGS):
        share = special_share(tag, word in objects)
        maps[..., word + 1, 0] = share
        maps[..., word + 1, word + 1] = 1 - share
    pairs = [[word, ROOT, "dobj"] for word in sorted(objects)] + [[ROOT, ROOT, "root"]]
    record = {"words": list("abcdefgh"), "tags": TAGS, "pairs": pairs, "split": "dev",
              "source": f"article {number}"}  # fmt: skip
    return Example(number, maps.astype(np.float16), record, offset=1)


HELD_OUT = pd.DataFrame(
    {"relation": ["dobj"], "head": "1-1", "direction": DIRECTIONS[0], "margin": 50.0, "p_holm": 0.0}
)


@pytest.mark.parametrize(
    ("special_share", "difference", "within_tag"),
    [
        # Verbs attend to [CLS] more than nouns, and are rarely objects.
        (lambda tag, is_object: 0.25 if tag == "NOUN" else 0.75, "large", 0.0),
        # Whatever the tag, words without the relation attend to [CLS] by 0.25 more.
        (lambda tag, is_object: 0.25 if is_object else 0.5, 0.25, 0.25),
    ],
)
def test_no_op_within_a_tag_removes_a_confounder_and_keeps_an_effect(
    special_share, difference, within_tag
):
    table = no_op_table([sentence(number, special_share) for number in range(30)], HELD_OUT)
    row = table.set_index("relation").loc["dobj"]
    assert row["within_tag"] == pytest.approx(within_tag, abs=1e-3)
    assert row["within_tag_low"] - 1e-6 <= row["within_tag"] <= row["within_tag_high"] + 1e-6
    if difference == "large":
        assert row["difference_low"] > 0.2
    else:
        assert row["difference"] == pytest.approx(difference, abs=1e-3)


def test_no_op_within_a_tag_is_empty_without_enough_words():
    table = no_op_table([sentence(0, lambda tag, is_object: 0.5)], HELD_OUT)
    assert table["within_tag"].isna().all() and table["difference"].notna().all()
