"""Section 3 in numbers: by hand, for planted maps, and paired with a control."""

import numpy as np
import pytest
from references import sums_of as sums_by_article

from helpers.data.records import Visible, visible_mask
from helpers.metrics import surface
from helpers.metrics.statistics import ratio
from helpers.metrics.surface import layer_summary, sum_by_article
from helpers.store.store import Example

FULL = Visible(causal=False, window=None)
CAUSAL = Visible(causal=True, window=None)
LOCAL = Visible(causal=False, window=4)
MODELS = {"full": [FULL] * 3, "causal": [CAUSAL] * 3, "global before local": [FULL, LOCAL, LOCAL]}
BERT = {"cls": "[CLS]", "sep": "[SEP]"}
DECODER = {"cls": None, "sep": None, "first": "<s>"}
CLS_AGAINST_ALL = "entropy from [CLS] minus that of all tokens, last layer"


def summary_of(visible, special_tokens, to_first=0.0):
    """Summarise uniform maps, of which a part goes to the first token: values by quantity."""
    examples = []
    for index in range(6):
        n = 30 + index
        masks = np.stack([visible_mask(layer, n) for layer in visible])
        maps = (1 - to_first) * masks / masks.sum(axis=-1, keepdims=True)
        maps[..., 0] += to_first
        tokens = [special_tokens["cls"] or "<s>", *["a"] * (n - 2), special_tokens["sep"] or "b"]
        record = {"tokens": tokens, "title": f"article {index}"}
        examples.append(Example(index, maps[:, None], record, offset=0, visible=visible))
    summary = layer_summary({"trained": sums_by_article(examples, special_tokens)})
    return summary.set_index("quantity")["value"]


@pytest.mark.parametrize("visible", MODELS.values(), ids=MODELS)
def test_layer_summary_of_uniform_maps_has_what_masks_allow(visible):
    values = summary_of(visible, BERT)
    largest = "largest entropy of an early head, as a share of uniform"
    assert values[largest] == pytest.approx(1, abs=0.01)
    assert (CLS_AGAINST_ALL in values) == (visible == MODELS["full"])
    assert ("largest share of a head on the next token" in values) == (CAUSAL not in visible)
    of_decoder = summary_of(visible, DECODER, to_first=0.8)
    assert not of_decoder.index.str.contains(r"\[CLS\]|\[SEP\]").any()
    assert of_decoder["special token, middle layers"] > 0.8


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
