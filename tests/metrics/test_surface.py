"""Section 3: one example by hand, any map by slow references, and a corpus by articles."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from references import MASKS, sees, sums_of

from helpers.data.records import KEY_TYPES, roles, visible_mask
from helpers.metrics import surface
from helpers.metrics.statistics import bootstrap_intervals, ratio
from helpers.metrics.surface import head_table, layer_summary, section_3, sum_by_article
from helpers.store.store import Example

# [CLS] a [SEP]; one layer, two heads: the second attends evenly.
TOKENS = ["[CLS]", "a", "[SEP]"]
FIRST = [[0.5, 0.2, 0.3], [0.1, 0.3, 0.6], [0.0, 0.1, 0.9]]
MAPS = np.array([[FIRST, np.full((3, 3), 1 / 3)]])
BERT = {"cls": "[CLS]", "sep": "[SEP]"}
NO_SPECIAL = {"cls": None, "sep": None}
LONGER = ["[CLS]", "a", ".", "[SEP]", "b", ",", "a", "[SEP]"]


def test_measures_of_a_map_by_hand():
    values = section_3(MAPS, roles(TOKENS, BERT), np.ones((1, 3, 3), bool))
    expected = {
        "previous": 0.2 / 3, "current": 1.7 / 3, "next": 0.8 / 3, "cls": 0.6 / 3, "sep": 1.8 / 3,
        "punctuation": 0, "sep_to_sep": 0.9, "other_to_sep": 0.9 / 2, "cls_to_cls": 0.5,
        "other_to_cls": 0.1 / 2, "uniform_sep": 1 / 3, "largest": 2 / 3, "sink": 0,
    }  # fmt: skip
    for name, value in expected.items():
        assert values[name][0, 0] == pytest.approx(value, abs=1e-12), name
        first = name.replace("cls", "first")  # [CLS] is the first token
        assert values[first][0, 0] == values[name][0, 0]
    smooth = 0.9999 * np.array(FIRST) + 0.0001 / 3
    by_row = -(smooth * np.log(smooth)).sum(axis=1)
    assert values["entropy"][0] == pytest.approx([by_row.mean(), np.log(3)])
    assert values["entropy_from_cls"][0] == pytest.approx([by_row[0], np.log(3)])


@pytest.mark.parametrize("mask", MASKS)
def test_uniform_attention_is_at_every_baseline(mask):
    visible = visible_mask(MASKS[mask], len(LONGER))[None]
    maps = (visible / visible.sum(axis=-1, keepdims=True))[:, None]
    values = section_3(maps, roles(LONGER, BERT), visible)
    for name in ("previous", "current", "next", "punctuation", "first", "cls", "sep"):
        np.testing.assert_allclose(values[name], values[f"uniform_{name}"])
    np.testing.assert_allclose(values["entropy"], values["uniform"])
    n_seen = [sum(sees(MASKS[mask], i, j) for j in range(8)) for i in range(8)]
    assert values["uniform"][0, 0] == pytest.approx(np.log(n_seen).mean())
    impossible = ["next", "cls_to_cls", "entropy_from_cls"]  # a causal mask hides what follows
    assert [np.isnan(values[name]).all() for name in impossible] == [MASKS[mask].causal] * 3
    assert np.isfinite(values["sep_to_sep"]).all()


def test_a_token_that_the_model_or_the_example_lacks_has_no_measures():
    values = section_3(MAPS, roles(["a", "b", "c"], NO_SPECIAL), np.ones((1, 3, 3), bool))
    assert values["first"][0, 0] == pytest.approx(0.6 / 3)  # whatever it is
    for name in ("cls", "sep", "sep_to_sep", "other_to_cls", "uniform_sep", "entropy_from_cls"):
        assert np.isnan(values[name]).all()
    pair = sums_of([example(0), example(1, tokens=[*"abcdef"])], BERT)
    single = sums_of([example(0)], BERT)
    np.testing.assert_array_equal(pair.mean("sep_to_sep"), single.mean("sep_to_sep"))


@pytest.mark.parametrize("mass", [[0.7, 0.7], [1.0, 0.7]])
def test_the_mass_that_rows_lack_is_the_share_of_a_sink(mass):
    maps = example(0).stored_attention * np.reshape(mass, (2, 1, 1, 1))
    sums = sums_of([replace(example(0), stored_attention=maps)], BERT)
    sink = head_table(sums, ["sink"])["sink"]
    np.testing.assert_allclose(sink, np.repeat(1 - np.array(mass), 3), atol=1e-3)
    without = sums_of([example(0)], BERT)
    assert "sink" not in head_table(without, surface.TOKEN_TYPES)


# Over a corpus


def example(index, tokens=("[CLS]", "a", ".", "[SEP]", "b", "[SEP]")):
    maps = np.random.default_rng(index).dirichlet(np.ones(6), size=(2, 3, 6)).astype(np.float16)
    return Example(index, maps, {"tokens": list(tokens)})


def test_head_table_has_means_over_examples_and_intervals_over_articles():
    examples = [example(number) for number in range(30)]
    titles = [f"Article {number**2 % 13}" for number in range(30)]  # of one to six examples
    for segment, title in zip(examples, titles, strict=True):
        segment.record["title"] = title
    sums = sums_of(examples, BERT)
    table = head_table(sums, ["previous", "uniform"])
    assert set(table) == {"layer", "head", "previous", "uniform", "previous_low", "previous_high"}
    values = [segment.attention[1, 2].diagonal(-1).sum() / 6 for segment in examples]
    row = table.query("layer == 2 and head == 3").iloc[0]
    assert row["previous"] == pytest.approx(np.mean(values), rel=1e-6)
    by_article = pd.Series(values).groupby(titles)
    bounds = bootstrap_intervals(by_article.sum().to_numpy(), by_article.count().to_numpy())
    assert row[["previous_low", "previous_high"]].tolist() == pytest.approx(bounds, rel=1e-5)
    counts = sums.by_article("uniform")[1][:, 0, 0]
    assert dict(zip(sums.articles, counts, strict=True)) == by_article.count().to_dict()


# The gradients of section 3.2


def test_gradient_table_has_means_and_ratios_with_intervals_over_articles():
    """Gradients of a model without [CLS]; the fourth segment has no punctuation."""
    articles = list("aabcaabc" * 8)
    gradients = np.random.default_rng(0).random((len(articles), 3, len(KEY_TYPES)))
    gradients[:, :, 1] = np.nan
    gradients[3, :, 2] = np.nan
    importance = {
        "gradients": gradients, "per_value": 1 / gradients, "per_score": gradients**2,
        "losses": np.arange(64), "guesses": np.full(64, 2.5),
    }  # fmt: skip
    table = surface.gradient_table(importance, articles, "masked-lm")
    assert table["layer"].tolist() == [1, 2, 3] and table.filter(like="cls").isna().all(axis=None)
    row = table.iloc[1]
    assert row[["loss", "guess", "articles"]].tolist() == [31.5, 2.5, 3]
    assert row["first_per_score"] == pytest.approx((gradients[:, 1, 4] ** 2).mean())
    for ending, values in (("", gradients[:, 1]), ("_per_value", 1 / gradients[:, 1])):
        _, _, punctuation, other, first = values.T
        pairs = {
            "punctuation": (punctuation, ~np.isnan(punctuation)),
            "other_over_first": (other, first),
        }
        for name, pair in pairs.items():
            sums = pd.DataFrame(pair).T.astype(float).groupby(articles).sum().to_numpy().T
            name += ending
            low, high = bootstrap_intervals(*sums)
            expected = [sums[0].sum() / sums[1].sum(), low, high]
            assert row[[name, f"{name}_low", f"{name}_high"]].tolist() == pytest.approx(expected)


# The summary


def sums_of_values(by_article, first=0):
    """Make the sums of articles of one example each, ``values[name][article]`` is ``[layer]``."""
    values = [{name: np.reshape(v, (-1, 1)) for name, v in of.items()} for of in by_article]
    return sum_by_article(values, [f"article {first + number:02}" for number in range(len(values))])


VALUES = {name: [0.0, 0.0, 0.0] for name in surface.SECTION_3} | {
    "previous": [0.6, 0.2, 0.1], "current": [0.05, 0.3, 0.2], "next": [0.1, 0.1, 0.1],
    "cls": [0.1, 0.4, 0.3], "sep": [0.4, 0.5, 0.1], "punctuation": [0.0, 0.1, 0.2],
    "sep_to_sep": [0.7, 0.9, 0.1], "other_to_sep": [0.3, 0.2, 0.1],
    "uniform_cls": [0.01] * 3, "uniform_sep": [0.02] * 3, "uniform": [np.log(100)] * 3,
    "entropy": [4.4, 1.0, 3.0], "entropy_from_cls": [4.0, 3.0, 2.0], "largest": [0.06, 0.5, 0.5],
}  # fmt: skip


def test_layer_summary_by_hand():
    """Three layers of one head: every number can be read off the values."""
    summary = layer_summary({"trained": sums_of_values([VALUES, VALUES])})
    expected = {
        "share of the median head on the current token": 0.2,
        "largest share of a head on the previous token": 0.6,
        "largest share of a head on the next token": 0.1,
        "previous and next token, first third of the layers minus the rest": 0.7 - (0.3 + 0.2) / 2,
        "special token, middle layers": 0.5,  # layer 2, the only one at 45-85% of the depth
        "special token, middle layers, as a multiple of uniform": 0.5 / 0.02,
        "[SEP] minus [CLS], middle layers": 0.5 - 0.4,
        "[CLS], first third of the layers minus the rest": 0.1 - (0.4 + 0.3) / 2,
        "punctuation, last third of the layers minus the rest": 0.2 - (0.0 + 0.1) / 2,
        "special token from itself minus from other tokens, middle layers": 0.9 - 0.2,
        "special token from itself, middle layers": 0.9,
        "largest entropy of an early head, as a share of uniform": 4.4 / np.log(100),
        "broad heads of the first third of the layers minus those of the rest": 1 - 0,
        "largest weight of the median broad head of the first third of the layers": 0.06,
        "lowest entropy of an early layer minus the mean of the rest, above uniform": 4.4 - 2.0,
        "entropy from [CLS], last layer": 2.0,
        "entropy from [CLS] minus that of all tokens, last layer": 2.0 - 3.0,
        "entropy from [CLS] and of all tokens, median distance before the last layer": 1.2,
        "uniform share of two tokens": 2 / 100,
        "entropy of a broad head, last layer": 0.78 * np.log(100),
    }
    assert summary.set_index("quantity")["value"].to_dict() == pytest.approx(expected)


def test_layer_summary_pairs_a_control_by_the_names_of_articles():
    """Articles differ more than the two models do; the control lacks one of them."""
    rng = np.random.default_rng(0)
    of_control = rng.normal(0.5, 0.1, 40)
    of_model = of_control + rng.normal(0.01, 0.005, 40)
    sums = {
        "trained": sums_of_values([{**VALUES, "sep": [value] * 3} for value in of_model]),
        "random": sums_of_values([{**VALUES, "sep": [value] * 3} for value in of_control[1:]], 1),
    }
    summary = layer_summary(sums).set_index(["quantity", "model"])
    rows = summary.loc["special token, middle layers"]
    expected = ratio(of_model, np.ones(40))
    bounds = rows.loc["trained", ["value", "value_low", "value_high"]].tolist()
    assert bounds == pytest.approx([expected.value, expected.low, expected.high])
    lead = rows.loc["random", ["lead", "lead_low", "lead_high"]].tolist()
    assert lead[0] == pytest.approx(of_model.mean() - of_control[1:].mean())
    assert 0 < lead[1] < lead[0] < lead[2]
    largest = summary.loc[("largest share of a head on the previous token", "trained")]
    assert largest[["value_low", "value_high"]].tolist() == pytest.approx([0.6, 0.6])
