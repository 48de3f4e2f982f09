"""Each family of the documentation is read or refused as its tables say."""

from __future__ import annotations

from pathlib import Path

import pytest
import readme_tables
import torch
import transformers as hf
import zoo

from helpers.errors import ModelError
from helpers.model.loading import Model
from helpers.model.tokenizer import esm_tokenizer
from helpers.study import MORE_THAN_MAPS, model_notes

ROOT = Path(__file__).resolve().parents[2]
TEXT = "MK the cat sat"  # the first letters are amino acids
READ = [family.name for family in zoo.ZOO if not family.refusal]
REFUSED = [family.name for family in zoo.ZOO if family.refusal]
MORE = [family.name for family in zoo.MORE]
HYBRIDS = {name for name, *_ in zoo.HYBRIDS}
LEARNED_SINK = {"GPT-OSS"}
MIXED_HEADS = {"DiffLlama", "Qwen3-Next", "Qwen3.5", "Qwen3.5-MoE"}


def plain_maps(family, folder, ids):
    """Compute the maps of the text with the family's class of transformers."""
    model_class = type(family.build()[0])
    model = model_class.from_pretrained(folder, attn_implementation="eager")
    model = model.eval().requires_grad_(False)  # which decides how torch computes a convolution
    if family.what == zoo.ONE_SIDE:
        model = model.get_encoder()
    elif isinstance(model, hf.CLIPModel):
        model = model.text_model
    with torch.no_grad():
        return model(input_ids=ids, output_attentions=True).attentions


@pytest.mark.parametrize("name", [*READ, *MORE])
def test_load_model_of_a_family_has_maps_bit_equal_to_those_of_transformers(name):
    encoder = zoo.load(name)
    assert isinstance(encoder, Model), encoder
    ids = torch.tensor([encoder.tokenizer.backend_tokenizer.encode(TEXT).ids])
    with torch.no_grad():
        maps = encoder.model(input_ids=ids, output_attentions=True).attentions
    expected = plain_maps(zoo.FAMILIES[name], encoder.name, ids)
    if name in HYBRIDS:
        assert encoder.layer_numbers == [2]
        expected = expected[-1:] if name == "MiniMax" else expected
    assert len(maps) == len(expected) == encoder.layers
    assert encoder.has_sink == (name in LEARNED_SINK)
    for layer, expected_layer in zip(maps, expected, strict=True):
        assert torch.equal(layer, expected_layer)
        sums = layer.sum(dim=-1)
        assert (sums < 1 - 1e-3).all() if encoder.has_sink else torch.allclose(sums, torch.ones(1))
    uneven = torch.stack(maps).amax(dim=-1).mean() * ids.shape[1]
    assert uneven > 1.01, "maps that are nearly uniform would hide mistakes"


@pytest.mark.parametrize("name", READ)
def test_model_notes_name_the_layers_of_hybrids_and_heads_that_do_more(name):
    notes = list(model_notes(zoo.load(name), max_tokens=8))
    assert any("own numbers: 2." in note for note in notes) == (name in HYBRIDS)
    assert (MORE_THAN_MAPS in notes) == (name in MIXED_HEADS)


@pytest.mark.parametrize("name", REFUSED)
def test_load_model_refuses_a_family_without_maps_with_the_reason(name):
    error = zoo.load(name)
    assert isinstance(error, ModelError)
    assert zoo.FAMILIES[name].refusal in str(error)
    assert "\n" not in str(error)


def test_tables_of_the_documentation_are_those_of_the_matrix():
    """``python scripts/families.py`` writes them again."""
    blocks = zoo.blocks(zoo.save_and_load())
    for name in zoo.PAGES:
        page = (ROOT / name).read_text()
        assert readme_tables.written_anew(page, blocks) == page, name


def test_esm_tokenizer_gives_the_ids_of_that_in_python():
    python_tokenizer = zoo.amino_acids()
    fast = esm_tokenizer(python_tokenizer)
    pair = ("MKTAYI xx.AL-", "wörld 😀\n")
    for text in pair:
        assert fast.encode(text).ids == python_tokenizer(text)["input_ids"]
    assert fast.encode(*pair).ids == python_tokenizer(*pair)["input_ids"]
