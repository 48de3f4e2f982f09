"""Labels and titles have room, and a figure's files are complete."""

import itertools

import numpy as np
import pytest
from plot_checks import BERT, head_table

from helpers.plots import style
from helpers.plots.heads import fig2_token_types
from helpers.plots.style import save_figure


@pytest.mark.parametrize(
    ("ends", "order"), [([0.2, 0.21, 0.9], [0, 1, 2]), ([5, 4.9, 0], [2, 1, 0])]
)
def test_labels_of_lines_are_near_their_ends_and_apart(ends, order):
    axes = style.canvas(2.0, "").subplots()
    for number, end in enumerate(ends):
        axes.plot([0, 1], [0, end], label=str(number))
    axes.set_ylim(0, max(ends))
    style.label_ends(axes, gap=0.2)
    heights = {int(text.get_text()): text.get_position()[1] for text in axes.texts}
    assert sorted(heights, key=heights.get) == order
    assert np.diff(sorted(heights.values())).min() >= 0.2 - 1e-9
    for number, end in enumerate(ends):
        assert abs(heights[number] - end / max(ends)) <= 0.2


def test_titles_of_many_heat_maps_of_many_layers_do_not_cover_each_other():
    maps = {f"compound:prt{n} (234)\n29-8: 89%, d → p": np.zeros((30, 9)) for n in range(7)}
    with style.theme():
        figure = style.heat_maps(maps, "Accuracy", unit="%", norm=style.Normalize(0, 1))
        figure.draw_without_rendering()
    boxes = [axes._left_title.get_window_extent() for axes in figure.axes if axes.images]
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))


def test_save_figure_writes_each_format_without_a_date_and_with_embedded_fonts(tmp_path):
    figure = fig2_token_types(head_table(), BERT, model="minilm", lens="attention")
    assert save_figure(figure, tmp_path / "new", "fig2") == tmp_path / "new/fig2.png"
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["fig2.png"]
    path = save_figure(figure, tmp_path, "fig2", formats=["svg", "pdf"])
    assert b"<dc:date>" not in path.with_suffix(".svg").read_bytes()
    page = path.with_suffix(".pdf").read_bytes()
    assert b"/CreationDate" not in page
    assert b"/FontFile2" in page and b"/Type3" not in page


def test_characters_that_no_font_draws_are_replaced_with_one_warning(monkeypatch):
    monkeypatch.setattr(style, "INSTALLED_FONTS", style.FONTS[:1])  # DejaVu Sans
    with pytest.warns(UserWarning, match="2 characters") as caught:
        missing = style.missing_glyphs(["кот", "猫", "قط", "γάτα", "猫は"])
    assert "кот, 猫は".translate(missing) == "кот, ??"
    assert len(caught) == 1
