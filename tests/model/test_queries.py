"""A head's queries, keys and the rest of its scores sum to what its model takes a softmax of."""

import pytest
import tiny_models
import torch
import transformers as hf
from toy_corpora import SENTENCES

from helpers.errors import ModelError
from helpers.model.encoder import load
from helpers.model.forward import forward, model_inputs
from helpers.model.queries import head_scores

RECORD = {"words": SENTENCES[0]}
WITH_POSITIONS = ("mpnet", "t5", "deberta", "deberta_v2")  # in the scores, beside query times key


@pytest.mark.parametrize("focused", [False, True])
@pytest.mark.parametrize("family", [*tiny_models.FAMILIES, "llama"])
def test_the_parts_of_a_score_sum_to_it(family, focused, tiny_folder):
    factors = {"temperatures": (2.0 ** torch.arange(12)).view(3, 4).tolist()} if focused else {}
    encoder = load(str(tiny_folder(family)), device="cpu", **factors)
    maps, _ = forward(encoder, [model_inputs(encoder, RECORD)])
    for layer, head in ((0, 1), (2, 3)):
        found = head_scores(encoder, RECORD, layer, head)
        scores = found.scale * found.queries @ found.keys.T + found.other
        torch.testing.assert_close(scores.softmax(-1), maps[layer][0, head], rtol=0, atol=1e-5)
        rest = found.other[found.other.isfinite()].abs().max()
        size = scores[scores.isfinite()].abs().max()
        assert rest > 1e-2 if family in WITH_POSITIONS else rest < 1e-5 * size


def test_the_rest_of_mpnets_scores_is_its_position_bias(tiny_encoder):
    encoder = tiny_encoder("mpnet")
    found = head_scores(encoder, RECORD, 1, 2)
    with torch.inference_mode():
        bias = encoder.model.base_model.encoder.compute_position_bias(found.other[None])
    torch.testing.assert_close(found.other, bias[0, 2], rtol=0, atol=1e-5)


def test_a_family_whose_scores_cannot_be_told_apart_is_named(tmp_path, own_cache):
    _, tokenizer = tiny_models.bert()
    sizes = {"d_model": 24, "n_layer": 2, "n_head": 4, "d_inner": 32}
    model = hf.XLNetModel(hf.XLNetConfig(vocab_size=len(tokenizer), **sizes))
    encoder = load(str(tiny_models.save(tmp_path / "xlnet", model, tokenizer)), device="cpu")
    with pytest.raises(ModelError, match="XLNetRelativeAttention"):
        head_scores(encoder, RECORD, 0, 0)
