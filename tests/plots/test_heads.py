"""Figures by attention head and layer show their tables, in the colours of the token types."""

import itertools

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from plot_checks import BERT, LONG_NAME, check_figure, check_long_name, head_table

from helpers.metrics.clustering import BEHAVIOURS
from helpers.metrics.heads import DIRECTIONS
from helpers.metrics.surface import table_without_gradients
from helpers.plots import heads as plots
from helpers.plots import scores
from helpers.plots.style import TOKEN_COLORS, TOKEN_STYLES, title_of

MODEL = "MiniLM, 6 layers of 12 heads"
TEXTS = {"model": MODEL, "lens": "attention"}
SHAPES = [(2, 2), (6, 12), (30, 9)]
FIRST = {"first": 0.3, "first_low": 0.2, "first_high": 0.4}
DECODER = {"cls": None, "sep": None}
PUNCTUATION = "periods and commas"
LINGUISTIC = ("dobj", "coreference", "det", "pobj")


def of_decoder(table):
    """Make the table of a model without special tokens that sees no next token."""
    lacking = [name for name in table if "sep" in name or "cls" in name or name.startswith("next")]
    first = {name.replace("cls", "first"): table[name] for name in table if "cls" in name}
    return table.assign(**dict.fromkeys(lacking, np.nan), **first)


def gradients(layers=3):
    """Make a table like gradients.csv, whose columns are multiples of one curve."""
    curve = np.linspace(0.02, 0.001, layers)
    names = [f"{kind}{unit}" for unit in ("", "_per_value", "_per_score") for kind in TOKEN_STYLES]
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


def every_figure(layers, heads, model=MODEL, *, decoder=False):
    """Yield each figure by head and layer, of an encoder or a decoder of this shape."""
    texts = {"model": model, "lens": "norm" if model == LONG_NAME else "attention"}
    table, slopes, tokens = head_table(layers, heads), gradients(layers), BERT
    if decoder:
        table, slopes, tokens = of_decoder(table), of_decoder(slopes), DECODER
    rng = np.random.default_rng(1)
    maps = {name: rng.uniform(0, 90, (layers, heads)) for name in ("dobj", "det", "pobj", "nn")}
    yield plots.fig2_token_types(table, tokens, **texts)
    yield plots.fig3_gradients({"trained": slopes, "random": slopes}, tokens, model=model)
    yield plots.fig4_entropy(table, tokens, **texts)
    yield plots.fig6_clusters(positions(layers, heads), table, tokens, tokens=1.0, model=model)
    yield plots.relative_position(table, **texts)
    accuracies = {(f"{name} (99)", DIRECTIONS[0]): values for name, values in maps.items()}
    yield scores.relation_heatmaps(accuracies, model=model)
    gains = table.assign(w_gain=maps["det"].ravel() - 40, u_gain=maps["nn"].ravel() - 50)
    yield scores.probe_head_gains(gains, **texts)


def curves(axes):
    """List the values of the solid lines in axes."""
    return [line.get_ydata().tolist() for line in axes.lines if not line.is_dashed()]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("decoder", [False, True], ids=["encoder", "decoder"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_figure_has_the_width_of_a_column_and_type_that_can_be_read(shape, decoder):
    for figure in every_figure(*shape, decoder=decoder):
        check_figure(figure)


def test_zero_is_white_in_every_heat_map():
    for figure in every_figure(2, 3):
        for axes in figure.axes:
            for image in axes.images:
                assert to_hex(image.cmap(image.norm(0.0))) == "#ffffff", title_of(figure)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_fig2_draws_heads_as_points_and_layer_means_as_lines(shape):
    table = head_table(*shape).assign(sep_to_sep=0.5)
    panels = plots.fig2_token_types(table, BERT, **TEXTS).axes
    role = table.groupby("layer")[["cls", "sep"]].mean().max().idxmax()
    columns = [["cls", "sep", "punctuation"], [f"{role}_to_{role}", f"other_to_{role}"]]
    for axes, names in zip(panels, columns, strict=True):
        for name, curve, points in zip(names, curves(axes), axes.collections, strict=True):
            drawn = np.asarray(points.get_offsets())
            np.testing.assert_allclose(drawn[:, 1], table[name])
            assert (np.rint(drawn[:, 0]) == table["layer"]).all()
            np.testing.assert_allclose(curve, table.groupby("layer")[name].mean())
    label = next(text for text in panels[0].texts if text.get_text() == "[SEP]")
    assert to_hex(label.get_color()).upper() == TOKEN_COLORS["sep"]


def test_fig2_labels_its_lines_from_top_to_bottom():
    table = head_table().assign(cls=0.1, sep=0.6, punctuation=0.3)
    axes, _ = plots.fig2_token_types(table, BERT, **TEXTS).axes
    names = [text for text in axes.texts if text.get_transform() == axes.transAxes]
    names.sort(key=lambda text: -text.get_position()[1])
    assert [text.get_text() for text in names] == ["[SEP]", "periods and commas", "[CLS]"]


def test_fig2_draws_uniform_attention_dashed_in_the_colour_of_its_token():
    table = head_table().assign(uniform_sep=np.repeat([0.1, 0.2, 0.3], 4))
    axes, _ = plots.fig2_token_types(table, BERT, **TEXTS).axes
    (dashed,) = [line for line in axes.lines if line.is_dashed()]
    assert dashed.get_ydata().tolist() == [0.1, 0.1, 0.2, 0.2, 0.3, 0.3]
    assert dashed.get_color() == TOKEN_COLORS["sep"]


@pytest.mark.parametrize(
    ("table", "tokens", "names"),
    [
        (of_decoder(head_table()), DECODER, {"the first token", "periods and commas"}),
        (head_table().assign(first=head_table()["cls"]), BERT, {*BERT.values(), PUNCTUATION}),
        (
            head_table().assign(**FIRST), BERT,
            {"the first token", *BERT.values(), PUNCTUATION},
        ),
        (head_table().assign(sep=np.nan), {"cls": "<s>", "sep": None}, {"<s>", PUNCTUATION}),
    ],
    ids=["decoder", "first is [CLS]", "first is another", "no separator"],
)  # fmt: skip
def test_fig2_has_the_tokens_of_the_model(table, tokens, names):
    axes = plots.fig2_token_types(table, tokens, **TEXTS).axes[0]
    drawn = {line.get_label() for line in axes.lines if not line.is_dashed()}
    assert drawn == names


def test_fig3_draws_gradients_of_each_unit_and_of_random_weights():
    table, random = gradients(), gradients().assign(sep=0.5)
    figure = plots.fig3_gradients({"trained": table, "random": random}, BERT, model=MODEL)
    for axes, unit in zip(figure.axes, ("", "_per_value", "_per_score"), strict=True):
        expected = [table[f"{token_type}{unit}"].tolist() for token_type in ("cls", "sep")]
        assert curves(axes)[:2] == expected
        expected = [table[f"{token_type}{unit}"].tolist() for token_type in TOKEN_STYLES]
        assert curves(axes)[:4] == expected
    assert [len(curves(axes)) for axes in figure.axes] == [5, 4, 4]
    assert curves(figure.axes[0])[-1] == [0.5] * 3  # of the token with the largest ratio


def test_fig3_names_the_largest_ratio_of_weights_and_of_scores():
    table = gradients()
    table["other_over_sep"] = [3.0, 30.0, 10.0]
    table["other_over_sep_per_score"] = [0.5, 0.05, 0.1]
    title = title_of(plots.fig3_gradients({"trained": table}, BERT, model=MODEL))
    assert "30 times less" in title
    assert "20 times more" in title


def test_fig3_says_that_a_model_is_no_better_than_a_guess():
    better, worse = gradients().assign(guess=2.77), gradients().assign(guess=0.5)
    titles = [
        title_of(plots.fig3_gradients({"trained": table}, BERT, model=MODEL))
        for table in (better, worse)
    ]
    assert ["guess" in title for title in titles] == [False, True]


def test_fig3_of_a_text_of_one_article_gives_the_reason():
    table = table_without_gradients(3, "contrastive", "The text has one article.")
    figure = plots.fig3_gradients({"trained": table}, BERT, model=MODEL)
    assert any("The text has one article." in text.get_text() for text in figure.texts)
    check_figure(figure)


def test_fig4_draws_layer_means_and_what_uniform_attention_is_in_each_layer():
    table = head_table()
    table["uniform"] = np.where(table["layer"] == 2, 2.0, 4.0)
    panels = plots.fig4_entropy(table, BERT, **TEXTS).axes[:2]
    for axes, column in zip(panels, ("entropy", "entropy_from_cls"), strict=True):
        means, uniform = axes.lines
        np.testing.assert_allclose(means.get_ydata(), table.groupby("layer")[column].mean())
        assert uniform.is_dashed()
        assert uniform.get_ydata().tolist() == [4, 4, 2, 2, 4, 4]
        assert uniform.get_xdata().tolist() == [0.5, 1.5, 1.5, 2.5, 2.5, 3.5]
        assert axes.get_ylim()[1] > 4


def test_fig4_names_the_narrowest_layer_and_counts_equal_tokens():
    table = head_table()
    table["entropy"] = table["layer"].map({1: 3.9, 2: 2.4, 3: 3.8})
    figure = plots.fig4_entropy(table, BERT, **TEXTS)
    assert "Layer 2" in title_of(figure) and "2.4" in title_of(figure)
    entropy, _, tokens, _ = figure.axes
    assert tokens.get_ylim() == entropy.get_ylim()
    np.testing.assert_allclose(np.exp(tokens.get_yticks()), plots.TOKEN_TICKS)


@pytest.fixture(scope="module", params=SHAPES[1:], ids=str)
def clusters(request):
    """The positions and averages of the heads of a model, and Figure 6 of them."""
    table = positions(*request.param, linguistic=LINGUISTIC)
    averages = head_table(*request.param).assign(sep=0.1)
    figure = plots.fig6_clusters(table, averages, BERT, tokens=4.0, model=MODEL)
    figure.draw_without_rendering()
    return table, averages, figure


def test_fig6_draws_every_head_in_every_panel_on_one_scale(clusters):
    table, averages, figure = clusters
    panels = figure.axes[:4]
    for axes in panels:
        points, *_ = axes.collections
        np.testing.assert_allclose(points.get_offsets(), table[["x", "y"]] / 4)
        units = axes.transData.transform([(0, 0), (1, 1)])
        assert units[1, 0] - units[0, 0] == pytest.approx(units[1, 1] - units[0, 1])
    broad, special, syntax, by_layer = [axes.collections for axes in panels]
    shares = averages["entropy"] / averages["uniform"]
    np.testing.assert_allclose(broad[0].get_array(), shares)
    top = averages[["cls", "punctuation"]].mean().idxmax()
    np.testing.assert_allclose(special[0].get_array(), averages[top])
    assert len(syntax[1].get_offsets()) == len(LINGUISTIC)
    np.testing.assert_array_equal(by_layer[0].get_array(), table["layer"])


def test_fig6_labels_linguistic_heads_without_overlaps(clusters):
    table, _, figure = clusters
    findings = figure.axes[2]
    linguistic = table[table["behaviour"].isin(LINGUISTIC)]
    numbers = [f"{head.layer}-{head.head}" for head in linguistic.itertuples()]
    assert [text.get_text() for text in findings.texts] == numbers
    notes = " ".join(" ".join(text.get_text().split()) for text in figure.texts)
    assert f"{numbers[0]} {LINGUISTIC[0]}" in notes
    boxes = [mpl.text.Text.get_window_extent(text) for text in findings.texts]
    for first, second in itertools.combinations(boxes, 2):
        assert not first.overlaps(second)
    for box in boxes:
        assert findings.bbox.x0 - 1 <= box.x0 and box.x1 <= findings.bbox.x1 + 1  # pixel
        assert findings.bbox.y0 <= box.y0 and box.y1 <= findings.bbox.y1


def test_relative_position_draws_values_by_layer_and_head():
    table = head_table()
    panels = plots.relative_position(table, **TEXTS).axes[:3]
    for axes, column, uniform in zip(
        panels, ("previous", "current", "next"), ("25.0%", "50.0%", "10.0%"), strict=True
    ):
        (image,) = axes.images
        np.testing.assert_array_equal(image.get_array(), table[column].to_numpy().reshape(3, 4))
        assert column in axes.get_title("left") and uniform in axes.get_title("left")
        assert image.get_extent() == [0.5, 4.5, 3.5, 0.5]
        assert image.get_clim() == (0, 1)


def test_relative_position_has_no_map_of_a_token_that_is_never_seen():
    figure = plots.relative_position(of_decoder(head_table()), **TEXTS)
    titles = [axes.get_title("left").split()[0] for axes in figure.axes if axes.images]
    assert titles == ["previous", "current"]


def test_a_long_name_of_a_model_stays_on_the_page():
    for figure in every_figure(2, 2, LONG_NAME):  # the page is as wide for more heads
        check_long_name(figure)
