"""Figures by attention head and layer show their tables, in the colours of the token types."""

import itertools

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from plot_checks import BERT, LONG_NAME, check_long_name, head_table, shown_texts, texts_outside

from helpers.metrics.clustering import BEHAVIOURS
from helpers.metrics.heads import DIRECTIONS
from helpers.metrics.surface import table_without_gradients
from helpers.plots import heads as plots
from helpers.plots import scores
from helpers.plots.style import COLUMN_TYPE, COLUMN_WIDTH, TOKEN_COLORS, TOKEN_STYLES

MODEL = "MiniLM, 6 layers of 12 heads"
TEXTS = {"model": MODEL, "lens": "attention"}
SHAPES = [(2, 2), (6, 12), (24, 16), (30, 9)]
FIRST = {"first": 0.3, "first_low": 0.2, "first_high": 0.4}
UNITS = ("(nats)", "(fraction)", "(%)", "per unit", "(log-odds)")


def gradients(layers=3):
    """Make a table like gradients.csv, whose columns are multiples of one curve."""
    curve = np.linspace(0.02, 0.001, layers)
    names = [*TOKEN_STYLES]
    names += [f"{token_type}_per_value" for token_type in TOKEN_STYLES]
    names += ["other_over_cls", "other_over_sep"]
    table = pd.DataFrame({"layer": np.arange(layers) + 1, "objective": "contrastive", "loss": 0.51})
    table["articles"] = 8
    for factor, name in enumerate(names, 1):
        table[name] = factor * curve
        table[f"{name}_low"] = 0.9 * factor * curve
        table[f"{name}_high"] = (factor + 1) * curve
    return table


def positions(layers=3, heads=4, linguistic=("dobj", "coreference"), seed=0):
    """Make a table like head_positions.csv; the first heads have the linguistic behaviours."""
    table = head_table(layers, heads)[["layer", "head"]]
    rng = np.random.default_rng(seed)
    table[["x", "y"]] = rng.normal(size=(len(table), 2)) * 10
    behaviours = itertools.chain(linguistic, itertools.cycle(BEHAVIOURS))
    table["behaviour"] = list(itertools.islice(behaviours, len(table)))
    return table.assign(stress=0.3)


def every_figure(layers, heads, model=MODEL):
    """Yield each figure by head and layer, of a model of this shape."""
    texts = {"model": model, "lens": "norm" if model == LONG_NAME else "attention"}
    table = head_table(layers, heads)
    rng = np.random.default_rng(1)
    maps = {name: rng.uniform(0, 90, (layers, heads)) for name in ("dobj", "det", "pobj", "nn")}
    yield plots.fig2_token_types(table, BERT, **texts)
    yield plots.fig3_gradients({"trained": gradients(layers)}, BERT, model=model)
    yield plots.fig4_entropy(table, BERT, **texts)
    yield plots.fig6_clusters(positions(layers, heads), table, BERT, tokens=1.0, model=model)
    yield plots.relative_position(table, **texts)
    accuracies = {(name, DIRECTIONS[0]): values for name, values in maps.items()}
    yield scores.relation_heatmaps(accuracies, model=model)
    gains = table.assign(w_gain=maps["det"].ravel() - 40, u_gain=maps["nn"].ravel() - 50)
    yield scores.probe_head_gains(gains, **texts)


def title_of(figure):
    """Return the title, which is the first text of a figure for a page, without its line breaks."""
    return figure.texts[0].get_text().replace("\n", " ")


def curves(axes):
    """List the values of the lines in axes."""
    return [line.get_ydata().tolist() for line in axes.lines]


@pytest.mark.parametrize("shape", SHAPES)
def test_texts_fit_on_the_page_and_into_a_column(shape):
    """Titles, labels and all other texts; in a column they have its size."""
    for figure in every_figure(*shape):
        title = title_of(figure)
        assert title.startswith(("Figure ", "Section ")), title
        texts = shown_texts(figure)
        joined = " ".join(text.get_text() for text in texts)
        assert "layer" in joined.lower(), title
        assert any(unit in joined for unit in UNITS), title
        assert not texts_outside(figure), title
        if not hasattr(figure, "draw_for_column"):
            continue
        column = figure.draw_for_column()
        assert column.get_figwidth() == COLUMN_WIDTH
        assert not texts_outside(column), title
        sizes = {text.get_fontsize() for text in shown_texts(column)}
        assert sizes <= {COLUMN_TYPE, COLUMN_TYPE * 0.7}, title  # exponents


def test_zero_is_white_in_every_heat_map():
    for figure in every_figure(2, 3):
        for axes in figure.axes:
            for image in axes.images:
                assert to_hex(image.cmap(image.norm(0.0))) == "#ffffff", title_of(figure)


def test_fig2_names_the_lens_and_the_widest_interval():
    figure = plots.fig2_token_types(head_table(), BERT, model=MODEL, lens="norm")
    assert any("±0.1" in text.get_text() for text in figure.texts)
    assert "norm-weighted attention" in title_of(figure)
    for axes in figure.axes:
        assert "norm-weighted attention" in axes.get_ylabel()


@pytest.mark.parametrize("shape", SHAPES)
def test_fig2_draws_heads_as_points_and_layer_means_as_lines(shape):
    table = head_table(*shape)
    panels = plots.fig2_token_types(table, BERT, **TEXTS).axes
    columns = [["cls", "sep", "punctuation"], ["sep_to_sep", "other_to_sep"]]
    for axes, names in zip(panels, columns, strict=True):
        for name, line, heads in zip(names, axes.lines, axes.collections, strict=True):
            drawn = np.asarray(heads.get_offsets())
            np.testing.assert_allclose(drawn[:, 1], table[name])
            assert (np.rint(drawn[:, 0]) == table["layer"]).all()
            means = table.groupby("layer")[name].mean()
            np.testing.assert_allclose(line.get_xydata(), np.stack([means.index, means], axis=1))
        if "sep" in names:
            color = to_hex(axes.lines[names.index("sep")].get_color())
            assert color.upper() == TOKEN_COLORS["sep"]


DECODER = {"cls": None, "sep": None}


def of_decoder(table):
    """Make the table of a model without special tokens that sees no next token."""
    lacking = [name for name in table if name.startswith(("cls", "sep", "other_to_sep", "next"))]
    first = {name.replace("cls", "first"): table[name] for name in table if name.startswith("cls")}
    return table.assign(**dict.fromkeys([*lacking, "entropy_from_cls"], np.nan), **first)


def legend_labels(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def test_fig2_draws_the_first_token_of_a_decoder():
    table = of_decoder(head_table())
    figure = plots.fig2_token_types(table, DECODER, **TEXTS)
    (axes,) = figure.axes
    assert legend_labels(axes) == ["to the first token", "to periods and commas"]
    means = table.groupby("layer")["first"].mean()
    np.testing.assert_allclose(axes.lines[0].get_ydata(), means)
    assert "is the first token" not in figure.texts[-1].get_text()


def test_fig2_says_that_the_first_token_is_a_special_one():
    table = head_table()
    figure = plots.fig2_token_types(table.assign(first=table["cls"]), BERT, **TEXTS)
    assert legend_labels(figure.axes[0]) == ["to [CLS]", "to [SEP]", "to periods and commas"]
    assert figure.texts[-1].get_text().startswith("[CLS] is the first token.")


def test_fig2_draws_a_first_token_next_to_special_ones():
    figure = plots.fig2_token_types(head_table().assign(**FIRST), BERT, **TEXTS)
    assert legend_labels(figure.axes[0])[0] == "to the first token"
    assert len(legend_labels(figure.axes[0])) == 4


def test_fig2_leaves_out_tokens_that_the_model_does_not_have():
    table = head_table().assign(sep=np.nan, sep_to_sep=np.nan, other_to_sep=np.nan)
    figure = plots.fig2_token_types(table, {"cls": "<s>", "sep": None}, **TEXTS)
    (axes,) = figure.axes
    assert legend_labels(axes) == ["to <s>", "to periods and commas"]


@pytest.mark.parametrize(
    ("special_tokens", "special_types"),
    [(BERT, ["cls", "sep"]), ({"cls": "<s>", "sep": None}, ["cls"])],
    ids=["with-separator", "without-separator"],
)
def test_fig3_draws_gradients_and_the_ratios_of_all_models(special_tokens, special_types):
    table = gradients()
    if special_tokens["sep"] is None:
        table.loc[:, [name for name in table if "sep" in name]] = np.nan
    random = gradients(2).assign(articles=3)
    tables = {"trained": table, "random": random, "entropy-matched": gradients(4)}
    figure = plots.fig3_gradients(tables, special_tokens, model=MODEL)
    title, subtitle, _ = [text.get_text() for text in figure.texts]
    ratio = table[[f"other_over_{special_type}" for special_type in special_types]].max(axis=None)
    assert f"up to {ratio:.1f} times those to {special_tokens[special_types[-1]]}" in title
    assert "contrastive, 0.51 nats" in subtitle
    assert "intervals over 8 articles (controls: 3)" in subtitle
    by_attention, by_value, *ratio_panels = [axes for axes in figure.axes if axes.lines]
    token_types = [*special_types, "punctuation", "other"]
    assert curves(by_attention) == [table[name].tolist() for name in token_types]
    assert curves(by_value) == [table[f"{name}_per_value"].tolist() for name in token_types]
    for axes, special_type in zip(ratio_panels, special_types, strict=True):
        column = f"other_over_{special_type}"
        assert curves(axes) == [model_table[column].tolist() for model_table in tables.values()]


def test_fig3_compares_other_tokens_with_the_first_of_a_decoder():
    table = gradients()
    first = {name.replace("cls", "first"): table[name] for name in table if "cls" in name}
    special = [name for name in table if "cls" in name or "sep" in name]
    decoder = table.assign(**dict.fromkeys(special, np.nan), **first)
    figure = plots.fig3_gradients({"trained": decoder, "random": decoder}, DECODER, model=MODEL)
    top = table["other_over_cls"].max()
    assert f"up to {top:.1f} times those to the first token" in title_of(figure)
    by_attention, _, ratios = [axes for axes in figure.axes if axes.lines]
    columns = ["first", "punctuation", "other"]
    assert curves(by_attention) == [decoder[name].tolist() for name in columns]
    assert ratios.get_title("left") == "other tokens / the first token"
    assert curves(ratios) == [table["other_over_cls"].tolist()] * 2


def test_fig3_of_a_decoder_has_its_legend_in_the_empty_panel():
    table = gradients()
    first = {name.replace("cls", "first"): table[name] for name in table if "cls" in name}
    special = [name for name in table if "cls" in name or "sep" in name]
    decoder = table.assign(**dict.fromkeys(special, np.nan), **first)
    figure = plots.fig3_gradients({"trained": decoder, "random": decoder}, DECODER, model=MODEL)
    assert not figure.legends
    (legend,) = [axes.get_legend() for axes in figure.axes if axes.get_legend()]
    assert legend.axes.get_visible() and not legend.axes.lines
    labels = [text.get_text() for text in legend.get_texts()]
    names = ["the first token", "periods and commas", "other tokens"]
    assert labels == [*(f"to {name}" for name in names), "this model", "random weights"]


def test_the_name_of_a_head_of_many_layers_is_above_or_below_its_point():
    table = head_table(30, 9)
    axes = plots.fig4_entropy(table, {"cls": None, "sep": None}, **TEXTS).axes[0]
    name, _ = axes.texts  # the other one is that of uniform attention
    layer, head = map(int, name.get_text().split("-"))
    row = table[(table["layer"] == layer) & (table["head"] == head)].iloc[0]
    mean = table.loc[table["layer"] == layer, "entropy"].mean()
    assert name.xy[1] == row["entropy"]
    assert name.get_position()[0] == 0
    assert np.sign(name.get_position()[1]) == np.sign(row["entropy"] - mean)


def test_fig3_has_a_row_of_gradients_per_score():
    table = gradients()
    for name in (*TOKEN_STYLES, "other_over_cls", "other_over_sep"):
        for bound in ("", "_low", "_high"):
            table[f"{name}_per_score{bound}"] = 7 * table[name + bound]
    figure = plots.fig3_gradients({"trained": table}, BERT, model=MODEL)
    _, _, by_score, ratios, *_ = [axes for axes in figure.axes if axes.lines]
    assert curves(by_score) == [(7 * table[name]).tolist() for name in TOKEN_STYLES]
    expected = [(7 * table[f"other_over_{name}"]).tolist() for name in ("cls", "sep")]
    assert curves(ratios) == expected
    assert not texts_outside(figure)
    assert not texts_outside(figure.draw_for_column())


def test_fig3_says_that_a_model_is_no_better_than_a_guess():
    better = gradients().assign(guess=2.77)
    figure = plots.fig3_gradients({"trained": better}, BERT, model=MODEL)
    assert "guess" not in title_of(figure)
    assert "0.51 nats (a guess: 2.77)" in figure.texts[1].get_text()
    worse = gradients().assign(guess=0.5)
    assert "no better than a guess" in title_of(
        plots.fig3_gradients({"trained": worse}, BERT, model=MODEL)
    )


def test_fig3_of_a_text_of_one_article_gives_the_reason():
    table = table_without_gradients(3, "contrastive", "The text has one article.")
    figure = plots.fig3_gradients({"trained": table}, BERT, model=MODEL)
    assert title_of(figure) == "Figure 3 · Not measured"
    assert "The text has one article." in figure.texts[1].get_text()
    figure.draw_without_rendering()


def test_figures_name_the_token_that_begins_the_texts_of_a_decoder():
    table = head_table().assign(**FIRST, first_to_first=0.5, other_to_first=0.3)
    special = [name for name in table if "cls" in name or "sep" in name]
    table[special] = np.nan
    figure = plots.fig2_token_types(table, {**DECODER, "first": "<s>"}, **TEXTS)
    assert "<s> is the first token." in " ".join(text.get_text() for text in figure.texts)


def test_fig4_draws_what_uniform_attention_is_in_each_layer():
    table = head_table()
    table["uniform"] = np.where(table["layer"] == 2, 2.0, 4.0)
    figure = plots.fig4_entropy(table, BERT, **TEXTS)
    assert "of 2.0 to 4.0 nats" in title_of(figure)
    _, uniform = figure.axes[0].lines
    assert uniform.get_ydata().tolist() == [4, 4, 2, 2, 4, 4]
    assert uniform.get_xdata().tolist() == [0.5, 1.5, 1.5, 2.5, 2.5, 3.5]


def test_fig4_names_all_layers_whose_entropy_is_shown_as_the_largest():
    table = head_table()
    table["entropy"] = table["layer"].map({1: 3.853, 2: 2.4, 3: 3.850})
    title = title_of(plots.fig4_entropy(table, BERT, **TEXTS))
    assert "layer 2 (2.4)" in title
    assert "layers 1, 3 (3.9" in title


def test_fig4_draws_layer_means_and_uniform_attention():
    table = head_table()
    panels = plots.fig4_entropy(table, BERT, **TEXTS).axes
    for axes, column in zip(panels, ("entropy", "entropy_from_cls"), strict=True):
        means, uniform = axes.lines
        np.testing.assert_allclose(means.get_ydata(), table.groupby("layer")[column].mean())
        np.testing.assert_allclose(uniform.get_ydata(), np.log(90))
        assert uniform.is_dashed()
        assert axes.get_ylim()[1] > np.log(90)


LINGUISTIC = ("dobj", "coreference", "det", "pobj")


@pytest.fixture(scope="module", params=SHAPES[1:], ids=str)
def clusters(request):
    """The positions and averages of the heads of a model, and Figure 6 of them."""
    table = positions(*request.param, linguistic=LINGUISTIC)
    averages = head_table(*request.param)
    figure = plots.fig6_clusters(table, averages, BERT, tokens=4.0, model=MODEL)
    figure.draw_without_rendering()
    return table, averages, figure


def test_fig6_clusters_draws_every_head_in_every_panel_on_one_scale(clusters):
    table, averages, figure = clusters
    panels = figure.axes[:8]
    for axes in panels:
        points, *_ = axes.collections
        np.testing.assert_allclose(points.get_offsets(), table[["x", "y"]] / 4)
        units = axes.transData.transform([(0, 0), (1, 1)])
        assert units[1, 0] - units[0, 0] == pytest.approx(units[1, 1] - units[0, 1])
    shares = averages.assign(entropy=averages["entropy"] / averages["uniform"])
    columns = ("entropy", "previous", "next", "cls", "sep", "punctuation")
    for axes, column in zip(panels, columns, strict=False):
        np.testing.assert_allclose(axes.collections[0].get_array(), shares[column])
        best = shares[column].idxmax()
        layer, head = averages.loc[best, ["layer", "head"]].astype(int)
        assert f"most: head {layer}-{head}, {shares[column][best]:.0%}" in axes.get_title("left")
        _, ring = axes.collections
        np.testing.assert_allclose(ring.get_offsets()[0], table.loc[best, ["x", "y"]] / 4)
    np.testing.assert_array_equal(panels[-1].collections[0].get_array(), table["layer"])


def test_fig6_clusters_of_a_decoder_has_the_first_token_and_no_next_one():
    averages = of_decoder(head_table())
    figure = plots.fig6_clusters(positions(), averages, DECODER, tokens=1.0, model=MODEL)
    patterns = [axes.get_title("left").split("\n")[0] for axes in figure.axes[:6]]
    assert patterns[:4] == [
        "entropy / uniform", "to the previous token", "to the first token",
        "to periods and commas",
    ]  # fmt: skip
    np.testing.assert_allclose(figure.axes[2].collections[0].get_array(), averages["first"])


@pytest.mark.parametrize(("entropy", "names"), [(4.45, ["1-2"]), (1.01, [])])
def test_fig4_names_the_farthest_head_below_the_line_of_uniform_attention(entropy, names):
    """A head that hardly differs from the others has no name."""
    table = head_table(1, 4).assign(entropy=[1.0, entropy, 1, 1], entropy_from_cls=np.nan)
    figure = plots.fig4_entropy(table, {"cls": None, "sep": None}, model=MODEL)
    *labels, of_line = figure.axes[0].texts
    assert [label.get_text() for label in labels] == names
    assert all(label.get_va() == "top" for label in labels)
    assert of_line.get_text() == "uniform attention"
    assert ("is named" in figure.texts[1].get_text()) == bool(names)


def test_fig6_clusters_draws_the_linguistic_heads_of_a_large_model_on_top():
    averages = of_decoder(head_table(30, 9))
    figure = plots.fig6_clusters(positions(30, 9), averages, DECODER, tokens=1.0, model=MODEL)
    heads, linguistic = figure.axes[4].collections
    assert len(heads.get_offsets()) == 270 and len(linguistic.get_offsets()) == 2
    assert [axes.get_subplotspec().get_geometry()[:2] for axes in figure.axes[:6]] == [(2, 3)] * 6


def test_fig6_clusters_fits_nine_panels():
    averages = head_table(6, 12).assign(**FIRST)
    figure = plots.fig6_clusters(positions(6, 12), averages, BERT, tokens=1.0, model=MODEL)
    assert len([axes for axes in figure.axes if axes.collections]) >= 9
    assert not texts_outside(figure)
    assert not texts_outside(figure.draw_for_column())


def test_fig6_clusters_labels_linguistic_heads_without_overlaps(clusters):
    table, _, figure = clusters
    findings = figure.axes[6]
    stars = table[table["behaviour"].isin(LINGUISTIC)]
    numbers = [f"{head.layer}-{head.head}" for head in stars.itertuples()]
    named = [
        f"{behaviour} {number}"
        for behaviour, number in zip(stars["behaviour"], numbers, strict=True)
    ]
    is_crowded = len(table) > plots.CROWDED
    expected = numbers if is_crowded else named
    assert [text.get_text() for text in findings.texts] == expected
    listed = f"{numbers[0]}: {stars['behaviour'].iloc[0]}; {numbers[1]}:"
    footnotes = [text.get_text().replace("\u00a0", " ") for text in figure.texts]
    assert any(listed in footnote for footnote in footnotes) == is_crowded
    boxes = [mpl.text.Text.get_window_extent(text) for text in findings.texts]
    for first, second in itertools.combinations(boxes, 2):
        assert not first.overlaps(second)
    for box in boxes:
        assert findings.bbox.x0 <= box.x0 and box.x1 <= findings.bbox.x1
        assert findings.bbox.y0 <= box.y0 and box.y1 <= findings.bbox.y1


def test_relative_position_draws_values_by_layer_and_head():
    table = head_table()
    panels = plots.relative_position(table, **TEXTS).axes[:3]
    for axes, column in zip(panels, ("previous", "current", "next"), strict=True):
        (image,) = axes.images
        np.testing.assert_array_equal(image.get_array(), table[column].to_numpy().reshape(3, 4))
        assert column in axes.get_title("left")
        assert image.get_extent() == [0.5, 4.5, 3.5, 0.5]
        assert image.get_clim() == (0, 1)


@pytest.mark.parametrize("in_column", [False, True])
def test_relative_position_marks_uniform_attention_on_the_scale(in_column):
    table = head_table().assign(uniform_previous=0.25, uniform_current=0.5)
    figure = plots.relative_position(table, **TEXTS)
    if in_column:
        figure = figure.draw_for_column()
    titles = [axes.get_title("left") for axes in figure.axes[:3]]
    assert ["uniform attention: 25.0%" in titles[0], "uniform attention: 50.0%" in titles[1]] == [
        True,
        True,
    ]
    assert "uniform" not in titles[2]
    lines = figure.axes[3].lines
    places = [line.get_xdata() if in_column else line.get_ydata() for line in lines]
    assert [place[0] for place in places] == [0.25, 0.5]


def test_relative_position_has_no_map_of_a_token_that_is_never_seen():
    figure = plots.relative_position(of_decoder(head_table()), **TEXTS)
    titles = [axes.get_title("left") for axes in figure.axes if axes.images]
    assert [title.split("\n")[0] for title in titles] == [
        "to the previous token", "to the current token",
    ]  # fmt: skip


def test_a_long_name_of_a_model_stays_on_the_page():
    for figure in every_figure(2, 2, LONG_NAME):  # the page is as wide for more heads
        check_long_name(figure)
