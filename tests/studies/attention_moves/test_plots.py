import numpy as np
import pandas as pd
import pytest
from plot_checks import shown_texts

from helpers.analysis.heads import head_rows
from helpers.plots.style import save_figure
from helpers.studies.attention_moves import plots
from helpers.studies.attention_moves.value_norms import SHARES, SINKS, VALUES

LAYERS, HEADS = 3, 5
SPECIAL = {"cls": "<s>", "sep": "</s>"}


@pytest.fixture
def tables():
    generator = np.random.default_rng(0)
    draw = lambda *shape: generator.random(shape)  # noqa: E731
    shares = head_rows(LAYERS, HEADS, **{name: draw(LAYERS, HEADS) / 4 for name in SHARES})
    norms = head_rows(LAYERS, HEADS, **{name: draw(LAYERS, HEADS) for name in VALUES})
    sinks = pd.DataFrame({"layer": range(1, LAYERS + 1)} | {name: draw(LAYERS) for name in SINKS})
    return shares, norms, sinks


def test_fig13_has_both_lenses_and_every_type_of_token(tables, tmp_path):
    shares, _, _ = tables
    figure = plots.fig13_lenses(shares, SPECIAL, model="m")
    left, right = figure.axes
    means = shares.groupby("layer").mean()
    np.testing.assert_allclose(left.lines[0].get_ydata(), means["attention_cls"])
    np.testing.assert_allclose(right.lines[1].get_ydata(), means["norm_sep"])
    texts = [text.get_text() for text in shown_texts(figure)]
    assert {"<s>", "</s>", "periods and commas", "other tokens"} <= set(texts)
    save_figure(figure, tmp_path, "fig13")


def test_fig13_leaves_out_a_token_that_the_model_does_not_have(tables):
    shares = tables[0].assign(attention_cls=np.nan, norm_cls=np.nan)
    figure = plots.fig13_lenses(shares, {"cls": None, "sep": "</s>"})
    assert [len(axes.lines) for axes in figure.axes] == [3, 3]


def test_fig14_draws_values_shares_and_states(tables, tmp_path):
    _, norms, sinks = tables
    figure = plots.fig14_sinks(sinks, norms, SPECIAL, model="m")
    values, shares, states = figure.axes
    assert [len(axes.lines) for axes in (values, shares, states)] == [4, 3, 2]
    np.testing.assert_allclose(shares.lines[1].get_ydata(), sinks["norm_first"])
    np.testing.assert_allclose(states.lines[0].get_ydata(), sinks["peak_first"])
    save_figure(figure, tmp_path, "fig14")


def test_fig15_has_a_map_for_each_relation_with_its_head_framed(tmp_path):
    generator = np.random.default_rng(1)
    names = [f"relation {i}" for i in range(plots.MOST_MAPS + 2)]
    recall = pd.concat(
        head_rows(LAYERS, HEADS, change=generator.normal(size=(LAYERS, HEADS))).assign(
            kind=kind, probe="Attn", relation=name
        )
        for kind in ("zero", "mean")
        for name in names
    )
    heads = pd.DataFrame(
        {"kind": "zero", "probe": "Attn", "relation": names, "head": "2-3", "recall": 50.0,
         "change": -1.0, "words": range(len(names))}
    )  # fmt: skip
    figure = plots.fig15_removed_heads(recall, heads, "Attn", model="m")
    panels = [axes for axes in figure.axes if axes.images]
    assert len(panels) == plots.MOST_MAPS  # those with the most words
    own = recall[(recall["kind"] == "zero") & (recall["relation"] == names[-1])]
    expected = own.pivot(index="layer", columns="head", values="change")
    np.testing.assert_array_equal(panels[0].images[0].get_array(), expected)
    box = panels[0].patches[-1]
    assert box.get_xy() == (2.5, 1.5)
    save_figure(figure, tmp_path, "fig15")
