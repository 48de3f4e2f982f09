"""Both lenses on a map made by hand, and against loops over stored maps."""

import numpy as np
import pytest
from store_tools import many_segments

from beyond.papers.sinks import lenses
from beyond.papers.sinks.lenses import LENSES
from helpers.model.forward import norm_maps
from helpers.store.extract import extract

# One layer, one head, three tokens: [CLS] cat . - half of all attention is on [CLS], whose value
# vector has a tenth of the norm of the others.
ATTENTION = np.array([[[[0.8, 0.1, 0.1], [0.5, 0.3, 0.2], [0.2, 0.2, 0.6]]]])
NORMS = np.array([[[0.1, 1.0, 1.0]]])
MASKS = lenses.token_masks(["[CLS]", "cat", "."], {"cls": "[CLS]", "sep": "[SEP]"})


def lens_values_by_hand():
    maps = {"attention": ATTENTION, "norm": norm_maps(ATTENTION, NORMS)}
    values = lenses.lens_values(maps, NORMS, MASKS)
    return {name: array.item() for name, array in values.items()}


def test_lens_values_are_shares_by_type_of_token():
    values = lens_values_by_hand()
    assert values["attention_cls"] == pytest.approx(0.5)
    assert values["norm_cls"] == pytest.approx((0.08 / 0.28 + 0.05 / 0.55 + 0.02 / 0.82) / 3)
    assert values["attention_punctuation"] == pytest.approx(0.3)


@pytest.mark.parametrize("lens", LENSES)
@pytest.mark.parametrize("family", ["bert", "gpt2", "llama"])
def test_lens_sums_match_the_maps_of_a_store(tiny_encoder, family, lens):
    encoder = tiny_encoder(family)
    store = extract(encoder, many_segments(9), lens=lens, max_tokens=60)
    sums = lenses.lens_sums(encoder, list(store.records()))
    assert np.isfinite(sums.mean("norm_other")).all()
    sep = encoder.special_tokens["sep"]
    if sep is None:
        assert np.isnan(sums.mean(f"{lens}_sep")).all()
        return
    shares = []
    for example in store:
        is_sep = [token == sep for token in example.record["tokens"]]
        shares.append(example.attention.astype(float)[..., is_sep].sum(-1).mean(-1))
    np.testing.assert_allclose(sums.mean(f"{lens}_sep"), np.mean(shares, 0), atol=2e-3)


def test_token_masks_without_cls_have_the_first_token_in_no_other_type():
    masks = lenses.token_masks([".", "cat", ".", "</s>"], {"cls": None, "sep": "</s>"})
    types = {name: mask.astype(int).tolist() for name, mask in masks.items()}
    assert types == {
        "first": [1, 0, 0, 0],
        "sep": [0, 0, 0, 1],
        "punctuation": [0, 0, 1, 0],
        "other": [0, 1, 0, 0],
    }
