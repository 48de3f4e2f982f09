"""The picture of the atlas fits any model, has a tile for each head, and colours that are safe."""

import itertools

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb
from plot_checks import LONG_NAME, shown_texts, texts_outside

from beyond.atlas_plot import BAR_COLORS, COLORS, atlas, atlas_title, attention_parts
from helpers.metrics.atlas import KINDS, MIXED

NAMES = (
    "preposition to object", "mention to antecedent", "induction", "same token", "previous token",
    "[CLS]", "punctuation", "broad", "–",
)  # fmt: skip
# Machado, Oliveira and Fernandes (2009): linear RGB as deuteranopes see it.
DEUTERANOPIA = np.array(
    [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]]
)
TO_XYZ = np.array(
    [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
)  # fmt: skip


def made_up(layers, heads):
    grid = itertools.product(range(1, layers + 1), range(1, heads + 1))
    kinds = itertools.cycle(zip(KINDS, NAMES, strict=True))
    rows = [(*head, *tile, "73% (nearest 40%)") for head, tile in zip(grid, kinds, strict=False)]
    table = pd.DataFrame(rows, columns=["layer", "head", "kind", "name", "number"])
    return table.assign(cls=0.3, sep=0.2, first=0.3, punctuation=0.1, previous=0.2, next=0.05)


@pytest.mark.parametrize("column", [False, True])
@pytest.mark.parametrize(("layers", "heads"), [(2, 7), (12, 12), (30, 9), (24, 16)])
def test_atlas_has_a_tile_for_each_head_and_every_text_inside_it(layers, heads, column):
    figure = atlas(made_up(layers, heads), model=LONG_NAME[:40], column=column)
    assert not texts_outside(figure)
    (axes,) = figure.axes
    tiles = [patch for patch in axes.patches if patch.get_label() == "tile"]
    assert len(tiles) == layers * heads
    width, height = tiles[0].get_window_extent().size
    texts = [text.get_window_extent() for text in shown_texts(figure) if text in axes.texts]
    assert len(texts) == layers * heads
    assert max(text.width for text in texts) <= 1.05 * width
    assert max(text.height for text in texts) <= height


def test_atlas_title_counts_the_commonest_kinds():
    assert atlas_title(made_up(1, 9)).startswith("Of 9 heads, 1 find a relation, 1 find ante")
    assert atlas_title(made_up(1, 9).assign(kind=MIXED)).startswith("None of")


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


def lab(color, *, deuteranope):
    rgb = np.array(to_rgb(color))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    if deuteranope:
        linear = np.clip(DEUTERANOPIA @ linear, 0, 1)
    xyz = TO_XYZ @ linear / [0.9505, 1, 1.0888]
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("deuteranope", [False, True])
@pytest.mark.parametrize("colors", [COLORS, BAR_COLORS])
def test_colours_of_two_meanings_are_far_apart(colors, deuteranope):
    places = [lab(color, deuteranope=deuteranope) for color in set(colors.values())]
    distances = [np.linalg.norm(a - b) for a, b in itertools.combinations(places, 2)]
    assert min(distances) > 15
