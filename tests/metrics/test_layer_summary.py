"""Section 3 in numbers: by hand, for planted maps, and paired with a control."""

import numpy as np
import pytest
from references import sums_of as sums_by_article

from helpers.data.visible import Visible, visible_mask
from helpers.metrics import surface
from helpers.metrics.layer_summary import layer_summary
from helpers.metrics.statistics import ratio
from helpers.metrics.surface import sum_by_article
from helpers.store.store import Example

FULL = Visible(causal=False, window=None)
CAUSAL = Visible(causal=True, window=None)
LOCAL = Visible(causal=False, window=4)
LOCAL_CAUSAL = Visible(causal=True, window=5)
MODELS = {
    "full": [FULL] * 3,
    "causal": [CAUSAL] * 3,
    "window": [LOCAL] * 3,
    "causal window": [LOCAL_CAUSAL] * 3,
    "global before local": [FULL, LOCAL, LOCAL],
    "mixed decoder": [CAUSAL, LOCAL_CAUSAL, LOCAL_CAUSAL],
}
BERT = {"cls": "[CLS]", "sep": "[SEP]"}
DECODER = {"cls": None, "sep": None, "first": "<s>"}
CLS_AGAINST_ALL = "entropy from [CLS] minus that of all tokens, last layer"


def sums_of(visible, special_tokens, sharpness=0.0):
    """Sum section 3 over maps that are uniform over what a layer sees.

    With ``sharpness`` a part of each row goes to the first token.
    """
    examples = []
    for index in range(6):
        n = 30 + index
        masks = np.stack([visible_mask(layer, n) for layer in visible])
        maps = np.repeat((masks / masks.sum(axis=-1, keepdims=True))[:, None], 2, axis=1)
        to_first = masks[:, None] & (np.arange(n) == 0)
        maps = np.where(to_first.any(axis=-1, keepdims=True), (1 - sharpness) * maps, maps)
        maps = maps + sharpness * to_first
        first = special_tokens["cls"] or special_tokens["first"]
        tokens = [first, *["a", "."] * (n // 2)][: n - 1]
        tokens.append(special_tokens["sep"] or "b")
        record = {"tokens": tokens, "title": f"article {index}"}
        examples.append(Example(index, maps, record, offset=0, visible=visible))
    return sums_by_article(examples, special_tokens)


def values_of(sums):
    """Summarise one model: its numbers by quantity."""
    return layer_summary({"trained": sums}).set_index("quantity")["value"]


@pytest.mark.parametrize("visible", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("special_tokens", [BERT, DECODER], ids=["cls and sep", "first"])
def test_layer_summary_of_uniform_maps_depends_on_no_mask(visible, special_tokens):
    values = values_of(sums_of(visible, special_tokens))
    largest = "largest entropy of an early head, as a share of uniform"
    assert values[largest] == pytest.approx(1, abs=0.01)
    lowest = "lowest entropy of an early layer minus the mean of the rest, above uniform"
    assert values[lowest] == pytest.approx(0, abs=0.02)


@pytest.mark.parametrize("visible", MODELS.values(), ids=MODELS)
def test_layer_summary_has_no_row_for_what_a_mask_or_a_model_lacks(visible):
    of_bert = values_of(sums_of(visible, BERT))
    is_full = all(layer == FULL for layer in visible)
    assert (CLS_AGAINST_ALL in of_bert) == is_full
    sees_next = not any(layer.causal for layer in visible)
    assert ("largest share of a head on the next token" in of_bert) == sees_next
    of_decoder = values_of(sums_of(visible, DECODER))
    assert not of_decoder.index.str.contains(r"\[CLS\]|\[SEP\]").any()


def test_layer_summary_of_a_decoder_is_about_its_first_token():
    values = values_of(sums_of([CAUSAL] * 3, DECODER, sharpness=0.8))
    assert values["special token, middle layers"] > 0.8


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
    difficulty = rng.normal(0.5, 0.1, 40)
    sums = {}
    for model, values in {
        "trained": difficulty + rng.normal(0.01, 0.005, 40),
        "random": difficulty[1:],
    }.items():
        articles = [{**VALUES, "sep": [value] * 3} for value in values]
        sums[model] = sums_of_values(articles, first=40 - len(values))
    summary = layer_summary(sums).set_index(["model", "quantity"])
    of_model = summary.loc[("trained", "special token, middle layers")]
    of_control = summary.loc[("random", "special token, middle layers")]
    assert of_control["lead"] == pytest.approx(of_model["value"] - of_control["value"])
    assert 0 < of_control["lead_low"] < of_control["lead_high"]
    assert of_model["value_low"] < of_control["value"] < of_model["value_high"]


def test_bounds_of_the_largest_head_are_those_of_its_resamples():
    rng = np.random.default_rng(1)
    largest = rng.normal(0.6, 0.05, 50)
    articles = [{**VALUES, "previous": [value, 0.2, 0.1]} for value in largest]
    summary = layer_summary({"trained": sums_of_values(articles)}).set_index("quantity")
    row = summary.loc["largest share of a head on the previous token"]
    expected = ratio(largest, np.ones(50))
    assert (row["value_low"], row["value_high"]) == pytest.approx((expected.low, expected.high))
