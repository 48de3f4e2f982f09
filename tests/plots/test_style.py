"""Colours can be told apart, and the files of a figure are whole and the same every time."""

import itertools
import re

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from plot_checks import BERT, head_table

from helpers.plots.heads import fig2_token_types
from helpers.plots.style import RIGHT, TOKEN_COLORS, WRONG, _repeatable, save_figure

# Machado, Oliveira and Fernandes (2009), severity 1: what linear RGB looks like.
DEFICIENCIES = {
    "protan": "0.152286 1.052583 -0.204868 0.114503 0.786281 0.099216 -0.003882 -0.048116 1.051998",
    "deutan": "0.367322 0.860646 -0.227968 0.280085 0.672501 0.047413 -0.011820 0.042940 0.968881",
    "tritan": "1.255528 -0.076749 -0.178779 -0.078411 0.930809 0.147602 0.004733 0.691367 0.303900",
}


def lab(color, matrix):
    rgb = np.array(to_rgb(color))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.array(matrix.split(), float).reshape(3, 3) @ linear, 0, 1)
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    x, y, z = np.cbrt(np.array(to_xyz) @ seen / [0.9505, 1, 1.089])
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def figure():
    return fig2_token_types(head_table(), BERT, model="minilm")


@pytest.mark.parametrize("matrix", DEFICIENCIES.values(), ids=DEFICIENCIES.keys())
def test_colors_of_token_types_differ_with_color_blindness(matrix):
    for one, other in itertools.combinations(TOKEN_COLORS.values(), 2):
        assert np.linalg.norm(lab(one, matrix) - lab(other, matrix)) > 15, (one, other)
    assert np.linalg.norm(lab(RIGHT, matrix) - lab(WRONG, matrix)) > 15


def test_a_figure_is_saved_as_the_same_bytes_again(tmp_path):
    shown = figure()
    one = save_figure(shown, tmp_path / "one", "fig2", paper=True)
    again = save_figure(shown, tmp_path / "again", "fig2")  # nothing is left changed
    other = save_figure(figure(), tmp_path / "other", "fig2", paper=True)
    assert one == tmp_path / "one/fig2.png" and one.read_bytes() == again.read_bytes()
    for suffix in (".png", ".svg", ".pdf"):
        assert one.with_suffix(suffix).read_bytes() == other.with_suffix(suffix).read_bytes()
    assert b"<dc:date>" not in one.with_suffix(".svg").read_bytes()
    assert not again.with_suffix(".pdf").exists()
    page = one.with_suffix(".pdf").read_bytes()  # it has no title, and whole fonts
    assert b"/FontFile2" in page and b"/Type3" not in page
    box = re.search(rb"/MediaBox \[ ([\d. ]+) \]", page)[1]
    assert float(box.split()[-1]) / 72 < shown.get_figheight() - 0.35  # the title's room is gone


def test_an_svg_does_not_tell_one_processor_from_another():
    one, other = (f'<path d="M 424.05180{last} 0.5"/>' for last in (2, 3))
    assert _repeatable(one) == _repeatable(other) == '<path d="M 424.052 0.5"/>'
    for kept in ('transform="scale(0.015625)"', 'id="m9264669bf2"', "<!-- 1.25 -->"):
        assert _repeatable(kept) == kept
    clips = '<clipPath id="p7f0a1"/><g clip-path="url(#p7f0a1)"/>'
    assert _repeatable(clips) == '<clipPath id="clip0"/><g clip-path="url(#clip0)"/>'
