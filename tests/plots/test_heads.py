"""What is drawn is what the tables say, in the colours of the token types."""

import errno
import itertools
import os
import re
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from plot_checks import DEFICIENCIES, lab, shown_texts

from helpers.analysis.heads import DIRECTIONS
from helpers.errors import StoreError
from helpers.plots import heads as plots
from helpers.plots import scores as plots_scores
from helpers.plots.examples import HeadPanel, PatternPanel, fig1_examples, fig5_heads
from helpers.plots.style import (
    BEHAVIOUR_STYLES,
    RIGHT,
    TOKEN_COLORS,
    TOKEN_STYLES,
    WRONG,
    _repeatable,
    save_figure,
)

BERT = {"cls": "[CLS]", "sep": "[SEP]"}
SHAPES = [(2, 2), (6, 12), (24, 16)]
TOKEN_TYPES = ["cls", "sep", "punctuation", "sep_to_sep", "other_to_sep"]
HEAD_COLUMNS = [*TOKEN_TYPES, "entropy", "entropy_from_cls", "previous", "current", "next"]


def head_table(layers=3, heads=4, seed=0):
    rng = np.random.default_rng(seed)
    layer, head = np.divmod(np.arange(layers * heads), heads)
    table = pd.DataFrame({"layer": layer + 1, "head": head + 1, "uniform": np.log(90)})
    for column in HEAD_COLUMNS:
        table[column] = rng.uniform(0, 1, len(table))
    return table


def gradients(layers=3):
    values = np.linspace(0.02, 0.001, layers)
    columns = {kind: values * (i + 1) for i, kind in enumerate(TOKEN_STYLES)}
    return pd.DataFrame({"layer": np.arange(layers) + 1, **columns, "objective": "contrastive"})


def positions(layers=3, heads=4, special=("dobj", "coreference"), seed=0):
    table = head_table(layers, heads)[["layer", "head"]]
    rng = np.random.default_rng(seed)
    table[["x", "y"]] = rng.normal(size=(len(table), 2)) * 10
    plain = list(BEHAVIOUR_STYLES)
    rest = [plain[i % len(plain)] for i in range(len(table) - len(special))]
    return table.assign(behaviour=[*special, *rest][: len(table)])


def coreference():
    rows = [
        (system, head, candidates, kind, 100, 40.0 + i, 35.0 + i, 47.0 + i, paper)
        for kind in ("all", "pronoun")
        for i, (system, head, candidates, paper) in enumerate(
            [
                ("nearest", "", "mentions", 27.0),
                ("head", "5-4", "mentions", 65.0),
                ("head", "5-4", "words", np.nan),
            ]
        )
    ]
    scores = ["accuracy", "ci_low", "ci_high", "paper_accuracy"]
    return pd.DataFrame(rows, columns=["system", "head", "candidates", "type", "n", *scores])


PLAIN = "UAS without punctuation"


def probes():
    rows = [
        ("right-branching", "UAS", 24.0, 23.0, 25.0, np.nan, 400, np.nan),
        ("right-branching", PLAIN, 26.0, 25.0, 27.0, np.nan, 400, 26.3),
        ("Attn", PLAIN, 54.0, 52.0, 55.0, 1500, 400, 61.0),
        ("structural", "UUAS", 70.0, np.nan, np.nan, 1500, 400, np.nan),
    ]
    scores = ["value", "ci_low", "ci_high", "n_train", "n_dev", "paper_value"]
    return pd.DataFrame(rows, columns=["probe", "metric", *scores])


def every_figure(layers, heads):
    table, rng = head_table(layers, heads), np.random.default_rng(1)
    maps = {name: rng.uniform(0, 90, (layers, heads)) for name in ("dobj", "det", "pobj", "nn")}
    yield plots.fig2_token_types(table, BERT, model="minilm")
    yield plots.fig3_gradients(gradients(layers), BERT, model="minilm")
    yield plots.fig4_entropy(table, BERT, model="minilm")
    yield plots.fig6_clusters(positions(layers, heads), BERT, model="minilm")
    yield plots.relative_position(table, model="minilm")
    accuracies = {(name, DIRECTIONS[0]): values for name, values in maps.items()}
    yield plots_scores.relation_heatmaps(accuracies, model="minilm")
    gains = table.assign(w_gain=maps["det"].ravel() - 40, u_gain=maps["nn"].ravel() - 50)
    yield plots_scores.probe_head_gains(gains)


def points(axes):
    return [np.asarray(group.get_offsets()) for group in axes.collections]


def legend_colors(legend):
    return {
        text.get_text(): to_hex(handle.get_color()).upper()
        for text, handle in zip(legend.get_texts(), legend.get_lines(), strict=True)
    }


# All figures


@pytest.mark.parametrize("shape", SHAPES)
def test_titles_labels_and_texts_fit_on_the_page(shape):
    for figure in every_figure(*shape):
        title = figure.get_suptitle()
        assert title.startswith(("Figure ", "Section ")), title
        texts = shown_texts(figure)
        joined = " ".join(text.get_text() for text in texts)
        assert "Layer" in joined
        assert any(
            unit in joined for unit in ("(nats)", "(fraction)", "(%)", "per unit", "(log-odds)")
        ), title
        page = figure.bbox
        for text in texts:
            box = mpl.text.Text.get_window_extent(text)
            if text.axes is not None and text in text.axes.texts:
                continue  # tested on their own
            assert box.x0 >= -1 and box.x1 <= page.x1 + 1, (title, text.get_text())
            assert box.y0 >= -1 and box.y1 <= page.y1 + 1, (title, text.get_text())


# Machado, Oliveira and Fernandes (2009), severity 1: what linear RGB looks like.


@pytest.mark.parametrize("matrix", DEFICIENCIES.values(), ids=DEFICIENCIES.keys())
def test_colors_of_token_types_differ_with_color_blindness(matrix):
    for one, other in itertools.combinations(TOKEN_COLORS.values(), 2):
        assert np.linalg.norm(lab(one, matrix) - lab(other, matrix)) > 15, (one, other)
    assert np.linalg.norm(lab(RIGHT, matrix) - lab(WRONG, matrix)) > 15


# Figures 2 to 4


@pytest.mark.parametrize("shape", SHAPES)
def test_fig2_has_every_head_as_a_point_and_means_as_lines(shape):
    table = head_table(*shape)
    above, below = plots.fig2_token_types(table, BERT).axes
    columns = {above: ["cls", "sep", "punctuation"], below: ["sep_to_sep", "other_to_sep"]}
    for axes, names in columns.items():
        for name, group, line in zip(names, points(axes), axes.lines, strict=True):
            assert len(group) == shape[0] * shape[1]
            np.testing.assert_allclose(group[:, 1], table[name])
            assert (np.rint(group[:, 0]) == table["layer"]).all()
            np.testing.assert_array_equal(line.get_xdata(), np.arange(shape[0]) + 1)
            means = table[name].to_numpy().reshape(shape).mean(axis=1)
            np.testing.assert_allclose(line.get_ydata(), means)


def test_fig2_leaves_out_what_the_model_does_not_have_and_says_so():
    table = head_table().assign(sep=np.nan, sep_to_sep=np.nan, other_to_sep=np.nan)
    figure = plots.fig2_token_types(table, {"cls": "<s>", "sep": None})
    (axes,) = figure.axes
    assert list(legend_colors(axes.get_legend())) == ["to <s>", "to periods and commas"]
    notes = [text.get_text() for text in figure.texts]
    assert "Left out: this model has no separator ([SEP] in BERT)." in notes
    complete = plots.fig2_token_types(head_table(), BERT)
    assert not any("Left out" in text.get_text() for text in complete.texts)


def test_fig3_draws_the_table_and_names_the_objective():
    table = gradients()
    figure = plots.fig3_gradients(table, BERT)
    (axes,) = figure.axes
    for kind, line in zip(TOKEN_STYLES, axes.lines, strict=True):
        np.testing.assert_array_equal(line.get_ydata(), table[kind])
    assert any("contrastive" in text.get_text() for text in figure.texts)
    assert not axes.collections
    for kind in TOKEN_STYLES:
        table[f"{kind}_low"], table[f"{kind}_high"] = 0.9 * table[kind], 1.1 * table[kind]
    with_bands = plots.fig3_gradients(table, BERT)
    assert any("95% interval over articles" in text.get_text() for text in with_bands.texts)
    for kind, band in zip(TOKEN_STYLES, with_bands.axes[0].collections, strict=True):
        corners = band.get_paths()[0].vertices[:, 1]
        assert corners.min() == pytest.approx(table[f"{kind}_low"].min())
        assert corners.max() == pytest.approx(table[f"{kind}_high"].max())


def test_fig4_has_points_means_and_uniform_attention():
    table = head_table()
    for axes, column in zip(
        plots.fig4_entropy(table, BERT).axes, ("entropy", "entropy_from_cls"), strict=True
    ):
        (group,) = points(axes)
        means, uniform = axes.lines
        np.testing.assert_allclose(group[:, 1], table[column])
        np.testing.assert_allclose(means.get_ydata(), table.groupby("layer")[column].mean())
        np.testing.assert_allclose(uniform.get_ydata(), np.log(90))
        assert uniform.is_dashed()
        assert axes.get_ylim()[1] > np.log(90)


# Figure 6


@pytest.mark.parametrize("shape", SHAPES)
def test_fig6_has_every_head_in_both_panels(shape):
    table = positions(*shape)
    by_behaviour, by_layer = plots.fig6_clusters(table, BERT).axes[:2]
    expected = sorted(map(tuple, table[["x", "y"]].to_numpy()))
    for axes in (by_behaviour, by_layer):
        assert sorted(map(tuple, np.concatenate(points(axes)))) == expected
        assert np.ptp(axes.get_xlim()) == pytest.approx(np.ptp(axes.get_ylim()))
        assert axes.get_box_aspect() == 1
    (layers,) = by_layer.collections
    np.testing.assert_array_equal(layers.get_array(), table["layer"])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("shape", [(6, 12), (24, 16)])
def test_fig6_labels_overlap_neither_each_other_nor_the_edge(shape, seed):
    special = ("dobj", "coreference", "det", "pobj")
    table = positions(*shape, special=special, seed=seed)
    figure = plots.fig6_clusters(table, BERT)
    figure.draw_without_rendering()
    axes = figure.axes[0]
    stars = table[table["behaviour"].isin(special)]
    expected = [f"{row.behaviour} {row.layer}-{row.head}" for row in stars.itertuples()]
    assert [text.get_text() for text in axes.texts] == expected
    boxes = [mpl.text.Text.get_window_extent(text) for text in axes.texts]
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
    for box in boxes:
        assert axes.bbox.x0 <= box.x0 and box.x1 <= axes.bbox.x1
        assert axes.bbox.y0 <= box.y0 and box.y1 <= axes.bbox.y1


# Heat maps


def test_heat_maps_show_the_values_layer_by_head():
    table = head_table()
    panels = plots.relative_position(table).axes[:3]
    for axes, column in zip(panels, ("previous", "current", "next"), strict=True):
        (image,) = axes.images
        np.testing.assert_array_equal(image.get_array(), table[column].to_numpy().reshape(3, 4))
        assert column in axes.get_title("left")
        assert image.get_extent() == [0.5, 4.5, 3.5, 0.5]
        assert image.get_clim() == (0, 1)


def test_relation_heat_map_names_and_frames_the_best_head():
    values = np.full((3, 4), 10.0)
    values[1, 2] = 76.4
    axes = plots_scores.relation_heatmaps({("dobj", DIRECTIONS[0]): values}).axes[0]
    assert axes.get_title("left") == "dobj\n2-3: 76%, d → h"
    (frame,) = axes.patches
    assert frame.get_xy() == (2.5, 1.5)


# Tables 2 and 3


def test_coreference_bars_intervals_and_paper():
    table = coreference()
    panels = plots_scores.coreference_scores(table).axes
    assert [axes.get_title("left") for axes in panels] == ["all (n = 100)", "pronoun (n = 100)"]
    names = [label.get_text() for label in panels[0].get_yticklabels()]
    assert names == ["nearest", "head 5-4\n(mentions)", "head 5-4\n(words)"]
    for axes in panels:
        assert [bar.get_width() for bar in axes.patches] == [40, 41, 42]
        (interval,) = axes.collections
        ends = [tuple(segment[:, 0]) for segment in interval.get_segments()]
        assert ends == [(35, 47), (36, 48), (37, 49)]
        np.testing.assert_array_equal(axes.lines[-1].get_xdata(), [27, 65, np.nan])


def test_probe_bars_tell_metrics_apart_and_bear_missing_intervals():
    figure = plots_scores.probe_scores(probes())
    figure.draw_without_rendering()
    (axes,) = figure.axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == [f"right-branching ({PLAIN})", f"Attn ({PLAIN})", "structural (UUAS)"]
    assert [text.get_text() for text in axes.texts] == ["26.0", "54.0", "70.0"]
    one_metric = plots_scores.probe_scores(probes().query("metric != 'UUAS'")).axes[0]
    assert one_metric.get_yticklabels()[1].get_text() == "Attn"


def test_learning_curves_are_sorted_by_size():
    columns = {"n_train": [400, 100], "value": [50.0, 40.0]}
    table = pd.DataFrame({"probe": "Attn", "metric": PLAIN, **columns})
    table = table.assign(ci_low=table["value"] - 1, ci_high=table["value"] + 1)
    both = pd.concat([table, table.assign(metric="UAS", value=0)])
    (axes,) = plots_scores.learning_curves(both).axes
    (line,) = axes.lines
    np.testing.assert_array_equal(line.get_xdata(), [100, 400])
    np.testing.assert_array_equal(line.get_ydata(), [40, 50])
    assert len(axes.collections) == 1


# Figures 1 and 5

TOKENS = ["[CLS]", "costs", "$", ".", "[SEP]"]
WEIGHTS = np.array(
    [
        [0.0, 0.5, 0.0, 0.5, 0.0],
        [0.1, 0.2, 0.3, 0.4, 0.0],
        [0.0, 0.0, 1.0, 0.0, 0.0],
        [0.0, 0.0, 0.0, 0.0, 1.0],
        [0.2, 0.2, 0.2, 0.2, 0.2],
    ]
)


def test_fig1_lines_are_as_dark_as_the_weights():
    figure = fig1_examples([PatternPanel("1-2 · [SEP]", TOKENS, WEIGHTS)] * 5, BERT)
    assert len(figure.axes) == 5
    lines = figure.axes[0].collections[0]
    pairs = [(int(start[1]), int(end[1])) for start, end in lines.get_segments()]
    assert pairs == [tuple(pair) for pair in np.argwhere(WEIGHTS > 0)]
    alphas = lines.get_colors()[:, 3]
    np.testing.assert_allclose(alphas, [WEIGHTS[pair] for pair in pairs])
    kinds = ["cls", "other", "other", "punctuation", "sep"]
    colors = [to_hex(color).upper() for color in lines.get_colors()]
    assert colors == [TOKEN_COLORS[kinds[key]].upper() for _, key in pairs]


def head_panels():
    right = HeadPanel("Head 2-3 · dobj · 76%", TOKENS, WEIGHTS, gold=[(1, 3)])
    wrong = HeadPanel("Head 2-3 · dobj · 76%", TOKENS, WEIGHTS, gold=[(2, 1)], picked=[(2, 3)])
    other = HeadPanel("Head 1-1 · det · 70%", TOKENS, WEIGHTS, gold=[(1, 2)], picked=[(1, 2)])
    return right, wrong, other


def drawn_lines(axes):
    return {
        (*map(int, line.get_ydata()), "dashed" if line.is_dashed() else "solid", line.get_color())
        for line in axes.lines
    }


def test_fig5_colors_the_pair_and_marks_failures():
    right, wrong, other = head_panels()
    assert (right.correct, wrong.correct, other.correct) == (True, False, True)
    axes = fig5_heads([right, wrong, other]).axes
    assert [each.get_title("left") for each in axes] == ["✓ right", "✗ wrong", "✓ right"]
    assert drawn_lines(axes[0]) == {(1, 3, "solid", RIGHT)}
    assert drawn_lines(axes[1]) == {(2, 3, "solid", WRONG), (2, 1, "dashed", WRONG)}
    count = len(TOKENS)
    bold = [i for i, text in enumerate(axes[1].texts) if text.get_color() == WRONG]
    assert bold == [2, count + 1, count + 3]


# Files


def test_save_writes_the_same_png_and_svg_again(tmp_path):
    for folder in ("one", "two"):
        path = save_figure(fig5_heads(head_panels()), tmp_path / folder, "fig5_heads")
        assert path == tmp_path / folder / "fig5_heads.png"
    for suffix in ("png", "svg"):
        one, two = (tmp_path / name / f"fig5_heads.{suffix}" for name in ("one", "two"))
        assert one.read_bytes() == two.read_bytes()
    assert b"<dc:date>" not in (tmp_path / "one/fig5_heads.svg").read_bytes()


def test_an_svg_does_not_tell_one_processor_from_another():
    one, other = (f'<path d="M 424.05180{last} 0.5"/>' for last in (2, 3))
    assert _repeatable(one) == _repeatable(other) == '<path d="M 424.052 0.5"/>'
    for kept in ('transform="scale(0.015625)"', 'id="m9264669bf2"', "<!-- 1.25 -->"):
        assert _repeatable(kept) == kept
    clips = '<clipPath id="p7f0a1"/><g clip-path="url(#p7f0a1)"/>'
    assert _repeatable(clips) == '<clipPath id="clip0"/><g clip-path="url(#clip0)"/>'


def test_a_full_disk_leaves_the_figure_that_was_there(tmp_path, monkeypatch):
    path = save_figure(fig5_heads(head_panels()), tmp_path, "fig5")
    before = {each.name: each.read_bytes() for each in tmp_path.iterdir()}

    def refuse(self, data):
        with self.open("wb") as file:
            file.write(data[: len(data) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", refuse)
    with pytest.raises(StoreError, match=r"fig5\.png: cannot be written .*make room"):
        save_figure(plots.fig2_token_types(head_table(), BERT), tmp_path, path.stem)
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == before


# Bands


def by_article(articles=12, layers=3, seed=0):
    rng = np.random.default_rng(seed)
    index = pd.MultiIndex.from_product(
        [[f"article {i}" for i in range(articles)], np.arange(layers) + 1],
        names=["article", "layer"],
    )
    table = index.to_frame(index=False).assign(examples=2)
    for column in HEAD_COLUMNS:
        table[column] = rng.uniform(0.4, 0.6, len(table))
    return table


@pytest.mark.parametrize(
    ("draw", "bands"), [(plots.fig2_token_types, 5), (plots.fig4_entropy, 2)], ids=["2", "4"]
)
def test_the_interval_of_a_layers_mean_over_articles_is_a_band(draw, bands):
    def drawn(figure):
        return [
            artist
            for artist in figure.findobj(mpl.collections.PolyCollection)
            if isinstance(artist, mpl.collections.FillBetweenPolyCollection)
        ]

    assert not drawn(draw(head_table(), BERT))
    found = drawn(draw(head_table(), BERT, by_article()))
    assert len(found) == bands
    low, high = np.quantile(found[0].get_paths()[0].vertices[:, 1], [0, 1])
    assert 0.4 < low < 0.5 < high < 0.6


def test_a_figure_for_a_paper_has_no_title_and_whole_fonts(tmp_path):
    figure = fig5_heads(head_panels())
    before = save_figure(figure, tmp_path / "screen", "figure").read_bytes()
    for folder in ("one", "two"):
        save_figure(figure, tmp_path / folder, "figure", paper=True)
        assert (tmp_path / folder / "figure.png").read_bytes() == before  # nothing is left changed
    page = (tmp_path / "one/figure.pdf").read_bytes()
    assert page == (tmp_path / "two/figure.pdf").read_bytes()
    assert b"/FontFile2" in page and b"/Type3" not in page
    box = re.search(rb"/MediaBox \[ ([\d. ]+) \]", page)[1]
    assert float(box.split()[-1]) / 72 < figure.get_figheight() - 0.35  # the title's room is gone
    assert not (tmp_path / "screen/figure.pdf").exists()
