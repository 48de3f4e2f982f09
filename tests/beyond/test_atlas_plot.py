"""The picture of the atlas fits any model and has a tile for each head."""

import itertools

import pandas as pd
import pytest
from matplotlib.patches import Rectangle
from plot_checks import LONG_NAME, check_long_name, shown_texts, texts_outside

from beyond.atlas_plot import SIZE, atlas, atlas_title
from helpers.metrics.atlas import KINDS


def atlas_table(layers, heads):
    names = itertools.cycle(
        zip(KINDS, ["preposition to object", "mention to antecedent", "previous token", "[CLS]",
                    "punctuation", "broad", "–"], strict=True)
    )  # fmt: skip
    rows = []
    for layer, head in itertools.product(range(1, layers + 1), range(1, heads + 1)):
        rows.append((layer, head, *next(names), "73% vs 40%"))
    return pd.DataFrame(rows, columns=["layer", "head", "kind", "name", "number"])


@pytest.mark.parametrize(("layers", "heads"), [(2, 2), (6, 12), (12, 12), (30, 9), (24, 16)])
def test_atlas_has_a_tile_for_each_head_and_every_text_inside_it(layers, heads):
    figure = atlas(atlas_table(layers, heads), model="a model with a long name " * 2)
    assert tuple(figure.get_size_inches()) == SIZE
    (axes,) = figure.axes
    tiles = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    assert len(tiles) == layers * heads
    assert not texts_outside(figure)
    figure.draw_without_rendering()
    width = tiles[0].get_window_extent().width
    for text in axes.texts:
        assert text.get_window_extent().width <= width + 1, text.get_text()
    labels = {text.get_text().split()[0] for text in shown_texts(figure) if text in axes.texts}
    assert labels >= {f"{layer}-1" for layer in range(1, layers + 1)}


def test_atlas_title_counts_kinds():
    table = atlas_table(2, 7)
    assert atlas_title(table).startswith("Of 14 heads, 2 find a relation, 2 find ante")
    unnamed = table.assign(kind="other")
    assert atlas_title(unnamed) == "None of 14 heads does one thing by our thresholds"


def test_a_long_name_of_a_model_stays_on_the_page():
    check_long_name(atlas(atlas_table(6, 12), model=f"{LONG_NAME}, 6 layers of 12 heads"))
