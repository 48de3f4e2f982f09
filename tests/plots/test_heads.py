"""Figures by head and layer show what the tables say, in the colours of the token types."""

import itertools

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from plot_checks import BERT, head_table, shown_texts

from helpers.analysis.heads import DIRECTIONS
from helpers.plots import heads as plots
from helpers.plots import scores
from helpers.plots.style import BEHAVIOUR_STYLES, TOKEN_COLORS, TOKEN_STYLES

SHAPES = [(2, 2), (6, 12), (24, 16)]
UNITS = ("(nats)", "(fraction)", "(%)", "per unit", "(log-odds)")


def gradients(layers=3):
    values = np.linspace(0.02, 0.001, layers)
    names = [name + suffix for suffix in ("", "_per_value") for name in TOKEN_STYLES]
    names += ["other_over_cls", "other_over_sep"]
    table = {"layer": np.arange(layers) + 1}
    for i, name in enumerate(names, 1):
        bounds = np.outer((i, 0.9 * i, i + 1), values)
        table |= dict(zip((name, f"{name}_low", f"{name}_high"), bounds, strict=True))
    return pd.DataFrame(table | {"objective": "contrastive", "loss": 0.51})


def positions(layers=3, heads=4, special=("dobj", "coreference"), seed=0):
    table = head_table(layers, heads)[["layer", "head"]]
    rng = np.random.default_rng(seed)
    table[["x", "y"]] = rng.normal(size=(len(table), 2)) * 10
    plain = list(BEHAVIOUR_STYLES)
    rest = [plain[i % len(plain)] for i in range(len(table) - len(special))]
    return table.assign(behaviour=[*special, *rest][: len(table)], stress=0.3)


def every_figure(layers, heads):
    table = head_table(layers, heads)
    rng = np.random.default_rng(1)
    maps = {name: rng.uniform(0, 90, (layers, heads)) for name in ("dobj", "det", "pobj", "nn")}
    yield plots.fig2_token_types(table, BERT, model="minilm")
    yield plots.fig3_gradients({"model": gradients(layers)}, BERT)
    yield plots.fig4_entropy(table, BERT, model="minilm")
    yield plots.fig6_clusters(positions(layers, heads), BERT, model="minilm")
    yield plots.relative_position(table, model="minilm")
    accuracies = {(name, DIRECTIONS[0]): values for name, values in maps.items()}
    yield scores.relation_heatmaps(accuracies, model="minilm")
    gains = table.assign(w_gain=maps["det"].ravel() - 40, u_gain=maps["nn"].ravel() - 50)
    yield scores.probe_head_gains(gains)


def drawn_lines(axes):
    return [line for line in axes.lines if len(line.get_xdata())]  # seaborn's legend has empty ones


@pytest.mark.parametrize("shape", SHAPES)
def test_titles_labels_and_texts_fit_on_the_page(shape):
    for figure in every_figure(*shape):
        title = figure.get_suptitle()
        assert title.startswith(("Figure ", "Section ")), title
        texts = shown_texts(figure)
        joined = " ".join(text.get_text() for text in texts)
        assert "Layer" in joined and any(unit in joined for unit in UNITS), title
        page = figure.bbox
        for text in texts:
            box = mpl.text.Text.get_window_extent(text)
            if text.axes is not None and text in text.axes.texts:
                continue  # tested on their own
            assert box.x0 >= -1 and box.x1 <= page.x1 + 1, (title, text.get_text())
            assert box.y0 >= -1 and box.y1 <= page.y1 + 1, (title, text.get_text())


@pytest.mark.parametrize("shape", SHAPES)
def test_fig2_has_every_head_as_a_point_means_as_lines_and_says_how_sure_they_are(shape):
    table = head_table(*shape)
    figure = plots.fig2_token_types(table, BERT, lens="norm")
    panels = figure.axes
    assert "±0.1 at most" in figure.texts[-1].get_text()
    assert "orm-weighted attention" in figure.get_suptitle() + panels[0].get_ylabel()
    columns = [["cls", "sep", "punctuation"], ["sep_to_sep", "other_to_sep"]]
    for axes, names in zip(panels, columns, strict=True):
        (heads,) = axes.collections
        drawn = np.asarray(heads.get_offsets())
        np.testing.assert_allclose(drawn[:, 1], table[names].to_numpy().T.ravel())
        assert (np.rint(drawn[:, 0]) == np.tile(table["layer"], len(names))).all()
        for name, line in zip(names, drawn_lines(axes), strict=True):
            means = table.groupby("layer")[name].mean()
            np.testing.assert_allclose(line.get_xydata(), np.stack([means.index, means], axis=1))
    color = to_hex(drawn_lines(panels[0])[1].get_color())
    assert color.upper() == TOKEN_COLORS["sep"]


def test_fig2_leaves_out_what_the_model_does_not_have_and_says_so():
    table = head_table().assign(sep=np.nan, sep_to_sep=np.nan, other_to_sep=np.nan)
    figure = plots.fig2_token_types(table, {"cls": "<s>", "sep": None})
    (axes,) = figure.axes
    shown = [text.get_text() for text in axes.get_legend().get_texts()]
    assert shown == ["to <s>", "to periods and commas"]
    notes = [text.get_text() for text in figure.texts]
    assert any("Left out: this model has no separator ([SEP] in BERT)." in note for note in notes)


@pytest.mark.parametrize("special", [BERT, {"cls": "<s>", "sep": None}])
def test_fig3_draws_gradients_and_ratios_beside_those_of_controls(special):
    table, kinds = gradients(), [kind for kind in TOKEN_STYLES if special.get(kind, True)]
    if special["sep"] is None:
        table.loc[:, [name for name in table if "sep" in name]] = np.nan
    tables = {
        "model": table,
        "random": gradients().tail(2),
        "entropy_matched": gradients().head(2),
    }
    figure = plots.fig3_gradients(tables, special)
    assert any("contrastive, 0.51 nats" in text.get_text() for text in figure.texts)
    for axes, suffix in zip(figure.axes, ("", "_per_value"), strict=False):
        for kind, line in zip(kinds, axes.lines, strict=True):
            np.testing.assert_array_equal(line.get_ydata(), table[kind + suffix])
    below = [axes for axes in figure.axes[2:] if axes.lines]
    for axes, kind in zip(below, [kind for kind in kinds if kind in ("cls", "sep")], strict=True):
        for own, line in zip(tables.values(), axes.lines, strict=True):
            np.testing.assert_array_equal(line.get_ydata(), own[f"other_over_{kind}"])


def test_fig4_has_uniform_attention_too():
    table = head_table()
    panels = plots.fig4_entropy(table, BERT).axes
    for axes, column in zip(panels, ("entropy", "entropy_from_cls"), strict=True):
        means, uniform = drawn_lines(axes)
        np.testing.assert_allclose(means.get_ydata(), table.groupby("layer")[column].mean())
        np.testing.assert_allclose(uniform.get_ydata(), np.log(90))
        assert uniform.is_dashed() and axes.get_ylim()[1] > np.log(90)


@pytest.mark.parametrize("shape", SHAPES[1:])
def test_fig6_has_every_head_in_both_panels_and_free_labels(shape):
    special = ("dobj", "coreference", "det", "pobj")
    table = positions(*shape, special=special)
    figure = plots.fig6_clusters(table, BERT)
    figure.draw_without_rendering()
    panels = by_behaviour, by_layer = figure.axes[:2]
    expected = sorted(map(tuple, table[["x", "y"]].to_numpy()))
    for axes in panels:
        groups = [np.asarray(group.get_offsets()) for group in axes.collections]
        assert sorted(map(tuple, np.concatenate(groups))) == expected
        assert np.ptp(axes.get_xlim()) == pytest.approx(np.ptp(axes.get_ylim()), rel=0.01)
    np.testing.assert_array_equal(by_layer.collections[0].get_array(), table["layer"])
    stars = table[table["behaviour"].isin(special)]
    expected = [f"{row.behaviour} {row.layer}-{row.head}" for row in stars.itertuples()]
    assert [text.get_text() for text in by_behaviour.texts] == expected
    boxes = [mpl.text.Text.get_window_extent(text) for text in by_behaviour.texts]
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
    for box in boxes:
        assert by_behaviour.bbox.x0 <= box.x0 and box.x1 <= by_behaviour.bbox.x1
        assert by_behaviour.bbox.y0 <= box.y0 and box.y1 <= by_behaviour.bbox.y1


def test_heat_maps_show_the_values_layer_by_head():
    table = head_table()
    panels = plots.relative_position(table).axes[:3]
    for axes, column in zip(panels, ("previous", "current", "next"), strict=True):
        (image,) = axes.images
        np.testing.assert_array_equal(image.get_array(), table[column].to_numpy().reshape(3, 4))
        assert column in axes.get_title("left")
        assert image.get_extent() == [0.5, 4.5, 3.5, 0.5]
        assert image.get_clim() == (0, 1)
