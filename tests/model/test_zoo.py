"""Each family of the documentation is read or refused as its tables say."""

from __future__ import annotations

from pathlib import Path

import pytest
import readme_tables
import torch
import transformers as hf
import zoo
from zoo import ZOO

from helpers.errors import ModelError
from helpers.model.loading import Model
from helpers.study import MORE_THAN_MAPS, model_notes

ROOT = Path(__file__).resolve().parents[2]
TEXT = "MK the cat sat"  # the first letters are amino acids
NAMES = [family.name for family in ZOO]
READ = [family for family in ZOO if not family.refusal]
REFUSED = [family for family in ZOO if family.refusal]
LEARNED_SINK = {"GPT-OSS"}
MIXED_HEADS = {"DiffLlama", "Qwen3-Next", "Qwen3.5", "Qwen3.5-MoE"}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("zoo")


@pytest.fixture(scope="module")
def loaded(root):
    return zoo.save_and_load(root)


def plain_maps(family, folder, ids):
    """Compute the maps of the text with the family's class of transformers."""
    model_class = type(family.build()[0])
    model = model_class.from_pretrained(folder, attn_implementation="eager").eval()
    if family.what == zoo.ONE_SIDE:
        model = model.get_encoder()
    elif isinstance(model, hf.CLIPModel):
        model = model.text_model
    with torch.no_grad():
        return model(input_ids=ids, output_attentions=True).attentions


@pytest.mark.parametrize("family", READ, ids=lambda family: family.name)
def test_maps_of_a_family_are_bit_equal_to_those_of_transformers(family, loaded, root):
    encoder = loaded[family.name]
    assert isinstance(encoder, Model), encoder
    ids = torch.tensor([encoder.tokenizer.backend_tokenizer.encode(TEXT).ids])
    with torch.no_grad():
        maps = encoder.model(input_ids=ids, output_attentions=True).attentions
    expected = plain_maps(family, root / str(NAMES.index(family.name)), ids)
    if family.name in zoo.HYBRIDS:
        assert encoder.layer_numbers == [2]
        expected = expected[-1:] if family.name == "MiniMax" else expected
    assert len(maps) == len(expected) == encoder.layers
    for layer, expected_layer in zip(maps, expected, strict=True):
        assert torch.equal(layer, expected_layer)
        sums = layer.sum(dim=-1)
        assert encoder.has_sink == (family.name in LEARNED_SINK)
        if encoder.has_sink:
            assert (sums < 1 - 1e-3).all()
        else:
            torch.testing.assert_close(sums, torch.ones_like(sums))
    uneven = torch.stack(maps).amax(dim=-1).mean() * ids.shape[1]
    assert uneven > 1.01, "maps that are nearly uniform would hide mistakes"


@pytest.mark.parametrize("family", READ, ids=lambda family: family.name)
def test_notes_name_the_layers_of_hybrids_and_heads_that_do_more(family, loaded):
    notes = list(model_notes(loaded[family.name], max_tokens=8))
    assert any("own numbers: 2." in note for note in notes) == (family.name in zoo.HYBRIDS)
    assert (MORE_THAN_MAPS in notes) == (family.name in MIXED_HEADS)


@pytest.mark.parametrize("family", REFUSED, ids=lambda family: family.name)
def test_a_family_without_maps_is_refused_with_the_reason(family, loaded):
    error = loaded[family.name]
    assert isinstance(error, ModelError)
    assert family.refusal in str(error)
    assert "\n" not in str(error)


def test_the_tables_of_the_documentation_are_those_of_the_matrix(loaded):
    """``python scripts/families.py`` writes them again."""
    blocks = zoo.blocks(loaded)
    for name in zoo.PAGES:
        page = (ROOT / name).read_text()
        assert readme_tables.written_anew(page, blocks) == page, name


def test_the_fast_tokenizer_of_esm_gives_the_ids_of_that_in_python():
    from helpers.model.tokenizer import esm_tokenizer

    python_tokenizer = zoo.amino_acids()
    fast = esm_tokenizer(python_tokenizer)
    pair = ("MKTAYI xx.AL-", "wörld 😀\n")
    for text in pair:
        assert fast.encode(text).ids == python_tokenizer(text)["input_ids"]
    assert fast.encode(*pair).ids == python_tokenizer(*pair)["input_ids"]
