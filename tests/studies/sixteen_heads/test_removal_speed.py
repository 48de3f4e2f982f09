"""Heads taken out for good: the output of a mask, with fewer parameters."""

import numpy as np
import pytest
import torch

from helpers.model.forward import padded
from helpers.studies.fine_tune import FineTuned, Recipe, fine_tune
from helpers.studies.head_removal import head_mask
from helpers.studies.sixteen_heads.pruning import head_importance, removal_speed, remove_heads
from helpers.studies.tasks import Pair, Task

LAYERS, HEADS, WIDTH = 3, 4, 6
PAIRS = tuple(Pair(f"the {w} sat on the mat", None, int(w == "cat")) for w in ("cat", "dog") * 15)


@torch.no_grad()
def states(encoder, model):
    """Last hidden states of the real tokens of two texts of different length."""
    texts = "the cat sat on the mat and the dog", "rainy winters"
    ids = [encoder.encode_words(text.split()).ids for text in texts]
    batch = padded(encoder, [{"input_ids": i, "token_type_ids": [0] * len(i)} for i in ids])
    return model.base_model(**batch).last_hidden_state[batch["attention_mask"].bool()]


@pytest.mark.parametrize("family", ["bert", "roberta", "xlm_roberta", "distilbert", "electra"])
def test_removal_gives_what_the_mask_gives_with_fewer_parameters(tiny_encoder, family):
    encoder, keep = tiny_encoder(family), np.ones((LAYERS, HEADS), bool)
    keep[0, [1, 2]] = keep[1, :3] = False
    before = states(encoder, encoder.model)
    smaller = remove_heads(encoder.model, keep)
    with head_mask(encoder.model, torch.from_numpy(keep).float()):
        masked = states(encoder, encoder.model)
    torch.testing.assert_close(states(encoder, smaller), masked, rtol=1e-4, atol=1e-5)
    assert torch.equal(states(encoder, encoder.model), before)
    removed = sum(p.numel() for p in encoder.model.parameters())
    removed -= sum(p.numel() for p in smaller.parameters())
    assert removed == 5 * (4 * 24 * WIDTH + 3 * WIDTH)


@pytest.mark.parametrize("family", ["bert", "albert"])
def test_the_table_of_a_family_whose_heads_can_be_removed(tiny_encoder, family):
    task = Task("pets", ("no", "yes"), PAIRS, PAIRS)
    (run,) = fine_tune([FineTuned(tiny_encoder(family), task, Recipe(max_tokens=16, epochs=1))])
    table = removal_speed(run, head_importance([run], seed=0))
    if family == "albert":
        assert table.empty and "speed_up" in table
        return
    assert table["batch"].tolist() == [1, 4, 16]  # there are 30 test examples
    assert (table["heads"] == 6).all()
    assert (table[["full", "removed"]] > 0).all(axis=None)
    assert table["speed_up"].between(table["speed_up_low"], table["speed_up_high"]).all()
