"""Heads taken out for good: the output of a mask, with fewer parameters."""

import numpy as np
import pytest
import torch

from helpers.errors import ModelError
from helpers.model.forward import padded
from helpers.model.sites import input_width, sites
from helpers.studies.fine_tune import FineTuned, Recipe, fine_tune
from helpers.studies.head_mask import head_mask
from helpers.studies.sixteen_heads import removal_speed
from helpers.studies.sixteen_heads.pruning import head_importance
from helpers.studies.sixteen_heads.removal_speed import remove_heads
from helpers.studies.tasks import Pair, Task

LAYERS, HEADS, WIDTH = 3, 4, 6
REMOVABLE = ("bert", "roberta", "xlm_roberta", "distilbert", "electra", "modernbert")
PAIRS = tuple(Pair(f"the {w} sat on the mat", None, int(w == "cat")) for w in ("cat", "dog") * 15)


def any_keep():
    keep = np.ones((LAYERS, HEADS), bool)
    keep[0, [1, 2]] = False
    keep[1] = False  # no head left in this layer
    return keep


def parameters(model):
    return sum(p.numel() for p in model.parameters())


@torch.no_grad()
def states(encoder, model):
    """Last hidden states of the real tokens of two texts of different length."""
    texts = "the cat sat on the mat and the dog", "rainy winters"
    ids = [encoder.encode_words(text.split()).ids for text in texts]
    batch = padded(encoder, [{"input_ids": i, "token_type_ids": [0] * len(i)} for i in ids])
    return model.base_model(**batch).last_hidden_state[batch["attention_mask"].bool()]


@pytest.mark.parametrize("family", REMOVABLE)
def test_removal_gives_what_the_mask_gives_with_fewer_parameters(tiny_encoder, family):
    encoder, keep = tiny_encoder(family), any_keep()
    before = states(encoder, encoder.model)
    smaller = remove_heads(encoder.model, keep)
    with head_mask(encoder.model, torch.from_numpy(keep).float()):
        masked = states(encoder, encoder.model)
    torch.testing.assert_close(states(encoder, smaller), masked, rtol=1e-4, atol=1e-5)
    assert torch.equal(states(encoder, encoder.model), before)
    own = sites(encoder.model)
    path = next(p for p, module in encoder.model.named_modules() if module is own[0].output)
    assert input_width(smaller.get_submodule(path)) == 2 * WIDTH
    biased = any(site.values.bias is not None for site in own)
    per_head = 4 * 24 * WIDTH + 3 * WIDTH * biased
    assert parameters(encoder.model) - parameters(smaller) == 6 * per_head


@pytest.mark.parametrize("family", ["albert", "t5", "mpnet", "deberta_v2", "gpt2"])
def test_families_that_can_only_be_masked_say_so(tiny_encoder, family):
    with pytest.raises(ModelError, match="cannot be removed"):
        remove_heads(tiny_encoder(family).model, any_keep())


@pytest.mark.parametrize("family", ["bert", "albert"])
def test_the_table_of_a_family_whose_heads_can_be_removed(tiny_encoder, family, monkeypatch):
    monkeypatch.setattr(removal_speed, "SECONDS", 0.0)
    task = Task("pets", ("no", "yes"), PAIRS, PAIRS)
    (run,) = fine_tune([FineTuned(tiny_encoder(family), task, Recipe(max_tokens=16, epochs=1))])
    table = removal_speed.removal_speed(run, head_importance([run], seed=0))
    if family == "albert":
        assert table.empty and "speed_up" in table
        return
    assert table["batch"].tolist() == [1, 4, 16] * 2  # there are 30 test examples
    assert table["difference"].max() < 1e-4
    assert table["heads"].unique().tolist() == [6, 2]  # 12 heads; 0.8 of them are 10
    assert (table[["full", "removed"]] > 0).all(axis=None)
    assert (table["turns"] == removal_speed.TURNS).all()
    assert (table["speed_up_low"] <= table["speed_up"]).all()
    assert (table["speed_up"] <= table["speed_up_high"]).all()
    named = run.classifier.named_parameters()
    layers = sum(p.numel() for name, p in named if "embeddings.weight" not in name)
    expected = 100 * 6 * (4 * 24 * WIDTH + 3 * WIDTH) / layers
    assert table["parameters"].iloc[0] == pytest.approx(expected)
