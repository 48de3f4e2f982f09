"""The parts of a head's scores add up to the scores that its model takes a softmax of."""

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
# Their scores have terms of positions next to the product of query and key.
WITH_POSITIONS = ("mpnet", "t5", "deberta", "deberta_v2")


TEMPERATURES = (2.0 ** torch.arange(12)).view(3, 4).tolist()


@pytest.mark.parametrize(("layer", "head"), [(0, 1), (2, 3)])
@pytest.mark.parametrize("temperatures", [None, TEMPERATURES], ids=["plain", "temperatures"])
@pytest.mark.parametrize("family", [*tiny_models.FAMILIES, "llama"])
def test_head_scores_add_up_to_the_scores_of_the_model(
    family, temperatures, layer, head, tiny_folder
):
    encoder = load(str(tiny_folder(family)), device="cpu", temperatures=temperatures)
    maps, _ = forward(encoder, [model_inputs(encoder, RECORD)])
    parts = head_scores(encoder, RECORD, layer, head)
    scores = parts.scale * parts.queries @ parts.keys.T + parts.bias
    torch.testing.assert_close(scores.softmax(-1), maps[layer][0, head], rtol=0, atol=1e-5)
    rest = parts.bias[parts.bias.isfinite()].abs().max()
    if family in WITH_POSITIONS:
        assert rest > 1e-2
    else:
        assert rest < 1e-5 * scores[scores.isfinite()].abs().max()


def test_head_scores_of_mpnet_have_its_position_bias_as_the_rest(tiny_encoder):
    encoder = tiny_encoder("mpnet")
    rest = head_scores(encoder, RECORD, 1, 2).bias
    with torch.inference_mode():
        bias = encoder.model.base_model.encoder.compute_position_bias(rest[None])
    torch.testing.assert_close(rest, bias[0, 2], rtol=0, atol=1e-5)


def test_head_scores_name_a_family_that_they_do_not_know(tmp_path, own_cache):
    _, tokenizer = tiny_models.bert()
    sizes = {"d_model": 24, "n_layer": 2, "n_head": 4, "d_inner": 32}
    model = hf.XLNetModel(hf.XLNetConfig(vocab_size=len(tokenizer), **sizes))
    encoder = load(str(tiny_models.save(tmp_path / "xlnet", model, tokenizer)), device="cpu")
    with pytest.raises(ModelError, match="XLNetRelativeAttention"):
        head_scores(encoder, RECORD, 0, 0)
