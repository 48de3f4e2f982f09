"""Claims of section 3 for maps that are planted: what a mask decides is no finding."""

import numpy as np
import pytest

from beyond.claims.clark2019 import CLAIMS
from beyond.claims.engine import check_claims
from helpers.data.visible import Visible, visible_mask
from helpers.metrics import surface
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
    "local before global": [LOCAL, FULL, FULL],
    "mixed decoder": [CAUSAL, LOCAL_CAUSAL, LOCAL_CAUSAL],
}
BERT = {"cls": "[CLS]", "sep": "[SEP]"}
DECODER = {"cls": None, "sep": None, "first": "<s>"}
UNDER_CAUSAL_MASK = "cannot occur under a causal mask"


def tables_of(visible, special_tokens, sharpness=0.0):
    """Make the tables of section 3 of maps that are uniform over what a layer sees.

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
    sums = surface.example_sums(examples, special_tokens)
    return {
        "relative_position": surface.head_table(sums, surface.RELATIVE_POSITION),
        "token_types": surface.head_table(sums, surface.TOKEN_TYPES),
        "entropy": surface.head_table(sums, surface.ENTROPY),
        "averages_by_article": surface.article_table(sums),
    }


def checked(tables):
    """Test the claims of section 3."""
    claims = [claim for claim in CLAIMS if claim.id.startswith("sec3-")]
    return check_claims(tables, claims).set_index("id")


@pytest.mark.parametrize("visible", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("special_tokens", [BERT, DECODER], ids=["cls and sep", "first"])
def test_uniform_heads_are_broad_and_no_layer_is_broader_than_others(visible, special_tokens):
    table = checked(tables_of(visible, special_tokens))
    assert table.loc["sec3-early-head-broad", "value"] == pytest.approx(1, abs=0.01)
    assert table.loc["sec3-early-head-broad", "verdict"] == "supported"
    assert table.loc["sec3-early-layers-broader", "value"] == pytest.approx(0, abs=0.02)
    assert table.loc["sec3-early-layers-broader", "verdict"] != "supported"


def test_a_layer_that_is_broader_within_its_window_is_found():
    tables = tables_of([LOCAL, FULL, FULL], BERT)
    rows = tables["entropy"]["layer"] > 1
    for name in ("entropy", "entropy_low", "entropy_high"):
        tables["entropy"].loc[rows, name] -= 0.5
    is_later = tables["averages_by_article"]["layer"] > 1
    tables["averages_by_article"].loc[is_later, "entropy"] -= 0.5
    claim = checked(tables).loc["sec3-early-layers-broader"]
    assert claim["value"] == pytest.approx(0.5, abs=0.02)
    assert claim["verdict"] == "supported"


def test_what_a_causal_mask_makes_impossible_is_not_measured():
    table = checked(tables_of([CAUSAL] * 3, DECODER))
    for name in ("sec3-next-head", "sec3-neighbours-early"):
        assert table.loc[name, "verdict"] == "not measured"
        assert table.loc[name, "reason"] == UNDER_CAUSAL_MASK
    to_itself = table.loc["sec3-special-to-itself-more"]
    assert (to_itself["verdict"], to_itself["reason"]) == (
        "not measured",
        "the first token sees only itself under a causal mask",
    )
    assert table.loc["sec3-cls-early", "reason"] == "the model has no [CLS]"
    assert table.loc["sec3-special-is-sep", "reason"] == "the model has no [SEP]"


@pytest.mark.parametrize("visible", MODELS.values(), ids=MODELS)
def test_cls_is_not_compared_with_tokens_that_see_more(visible):
    table = checked(tables_of(visible, BERT))
    for name in ("sec3-last-cls-broader", "sec3-earlier-cls-alike"):
        claim = table.loc[name]
        if any(layer.causal for layer in visible):
            assert claim["verdict"] == "not measured"
        elif any(layer.window for layer in visible):
            assert claim["reason"].endswith("because layers have a window")
        else:
            assert claim["value"] == pytest.approx(0, abs=1e-3)


def test_the_first_token_of_a_decoder_is_the_special_token():
    table = checked(tables_of([CAUSAL] * 3, DECODER, sharpness=0.8))
    assert table.loc["sec3-special-half", "value"] > 0.8
    assert table.loc["sec3-special-half", "verdict"] == "supported"
    assert table.loc["sec3-special-many-times", "value"] > 5


def test_gradients_that_could_not_be_measured_give_their_reason():
    tables = tables_of([FULL] * 3, BERT)
    reason = "the text has one article"
    tables["gradients"] = surface.table_without_gradients(3, "contrastive", reason)
    claim = checked(tables).loc["sec3-gradient-small"]
    assert (claim["verdict"], claim["reason"]) == ("not measured", reason)
