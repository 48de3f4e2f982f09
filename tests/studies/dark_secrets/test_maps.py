"""The maps of a task's examples are the model's own, one by one."""

import numpy as np
import pytest
import torch

from helpers.studies.dark_secrets import maps as map_reader
from helpers.studies.dark_secrets.maps import text_maps
from helpers.studies.tasks import Pair

PAIRS = [
    Pair("The cat sat on the mat.", "It was a lazy cat.", 0),
    Pair("Yes.", None, 1),
    Pair("She doesn't know New York.", None, 0),
]


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_maps_are_those_of_the_example_alone(tiny_encoder, family, monkeypatch):
    monkeypatch.setattr(map_reader, "BATCH_SIZE", 2)
    encoder = tiny_encoder(family)
    found = list(text_maps(encoder, PAIRS, max_tokens=48))
    assert len(found) == len(PAIRS)
    for pair, example in zip(PAIRS, found, strict=True):
        texts = [pair.first] if pair.second is None else [pair.first, pair.second]
        inputs = encoder.tokenizer(*texts, return_tensors="pt")
        maps = encoder.model.base_model(**inputs, output_attentions=True).attentions
        expected = torch.cat(maps).detach().numpy()
        assert np.allclose(example.attention, expected, atol=1e-5)
        ids = inputs["input_ids"][0].tolist()
        assert example.special.tolist() == [i in encoder.tokenizer.all_special_ids for i in ids]
