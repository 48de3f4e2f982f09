"""The picture of the atlas fits any model and has a tile for each head."""

import itertools

import pandas as pd
import pytest
from matplotlib.patches import Rectangle
from plot_checks import LONG_NAME, check_long_name, shown_texts

from beyond.atlas_plot import SIZE, atlas, atlas_title
from helpers.metrics.atlas import KINDS

NAMES = ("preposition to object", "mention to antecedent", "previous token", "[CLS]", "punctuation")


@pytest.mark.parametrize(("layers", "heads"), [(2, 7), (6, 12), (12, 12), (30, 9), (24, 16)])
def test_atlas_has_a_tile_for_each_head_and_every_text_inside_it(layers, heads):
    named_kinds = itertools.cycle(zip(KINDS, (*NAMES, "broad", "–"), strict=True))
    grid = itertools.product(range(1, layers + 1), range(1, heads + 1))
    rows = [(*head, *tile, "73% vs 40%") for head, tile in zip(grid, named_kinds, strict=False)]
    table = pd.DataFrame(rows, columns=["layer", "head", "kind", "name", "number"])
    assert atlas_title(table.iloc[:7]).startswith("Of 7 heads, 1 find a relation, 1 finds ante")
    assert atlas_title(table.assign(kind="other")).startswith("None of")
    figure = atlas(table, model=f"{LONG_NAME}, {layers} layers of {heads} heads")
    check_long_name(figure)
    assert tuple(figure.get_size_inches()) == SIZE
    (axes,) = figure.axes
    tiles = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    assert len(tiles) == layers * heads
    width = tiles[0].get_window_extent().width
    texts = [text for text in shown_texts(figure) if text in axes.texts]
    assert all(text.get_window_extent().width <= width + 1 for text in texts)
    labels = {text.get_text().split()[0] for text in texts}
    assert labels >= {f"{layer}-1" for layer in range(1, layers + 1)}
