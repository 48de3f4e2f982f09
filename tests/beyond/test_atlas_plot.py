"""The picture of the atlas fits any model, has a tile for each head, and colours that are safe."""

import itertools

import numpy as np
import pandas as pd
import pytest
from plot_checks import LONG_NAME, is_inside

from beyond.atlas_plot import atlas, attention_parts
from helpers.metrics.atlas import KINDS

NAMES = (
    "preposition to object", "mention to antecedent", "induction", "same token", "previous token",
    "[CLS]", "punctuation", "broad", "–",
)  # fmt: skip


def made_up(layers, heads):
    grid = itertools.product(range(1, layers + 1), range(1, heads + 1))
    tiles = itertools.cycle(zip(KINDS, NAMES, strict=True))
    rows = [(*head, *tile, "73% (nearest 40%)") for head, tile in zip(grid, tiles, strict=False)]
    table = pd.DataFrame(rows, columns=["layer", "head", "kind", "name", "number"])
    return table.assign(cls=0.3, sep=0.2, first=0.3, punctuation=0.1, previous=0.2, next=0.05)


@pytest.mark.parametrize(
    ("layers", "heads", "column"), [(2, 7, False), (12, 12, True), (24, 16, False)]
)
def test_atlas_has_a_tile_for_each_head_and_every_text_inside_it(layers, heads, column):
    figure = atlas(made_up(layers, heads), model=LONG_NAME[:40], column=column)
    assert is_inside(figure)
    (axes,) = figure.axes
    tiles = [patch for patch in axes.patches if patch.get_label() == "tile"]
    assert len(tiles) == layers * heads
    width, height = tiles[0].get_window_extent().size
    texts = [text.get_window_extent() for text in axes.texts]
    assert len(texts) == layers * heads
    assert max(text.width for text in texts) <= 1.05 * width
    assert max(text.height for text in texts) <= height


def test_attention_parts_by_hand():
    encoder = {
        "cls": 0.3,
        "sep": 0.2,
        "first": 0.3,
        "punctuation": 0.1,
        "previous": 0.25,
        "next": 0.1,
    }
    parts = [0.5, 0.1, 0.35, 0.05]
    assert list(attention_parts(encoder).values()) == pytest.approx(parts)
    decoder = {"cls": np.nan, "first": 0.8, "punctuation": 0.3, "previous": 0.1, "next": np.nan}
    assert list(attention_parts(decoder).values()) == pytest.approx([0.8, 0.2, 0, 0])
