"""Which checkpoints are read, which are refused, and in what precision."""

from __future__ import annotations

import json
import shutil
import time

import huggingface_hub
import numpy as np
import pytest
import safetensors.torch
import tiny_models
import torch
import transformers as hf
from store_tools import cache_at
from tiny_models import FAMILIES, edit

from helpers.errors import ModelError
from helpers.model import encoder
from helpers.model.encoder import load
from helpers.model.weights import reinitialised
from helpers.store.extract import extract


def load_error(name, **options):
    """Return the message of the error that loading raises: one line that names the model."""
    with pytest.raises(ModelError) as caught:
        load(str(name), device="cpu", **options)
    message = str(caught.value)
    assert "\n" not in message
    assert repr(str(name)) in message
    return message


# What cannot be used


def test_a_state_space_model_is_refused(tmp_path):
    tiny_models.save(tmp_path, *tiny_models.mamba())
    assert "(mamba): gives no (heads, tokens, tokens) map" in load_error(tmp_path)


def test_a_model_with_attention_in_some_layers_only_is_refused(tmp_path):
    _, tokenizer = tiny_models.gpt2()
    config = hf.RecurrentGemmaConfig(
        vocab_size=len(tokenizer), lru_width=24, num_key_value_heads=1, **tiny_models.SIZES
    )
    tiny_models.save(tmp_path, hf.RecurrentGemmaForCausalLM(config), tokenizer)
    assert "(recurrent_gemma): gives no (heads, tokens, tokens) map" in load_error(tmp_path)


def test_a_model_that_attends_to_padding_is_refused(tmp_path):
    _, tokenizer = tiny_models.bert()
    config = hf.ConvBertConfig(vocab_size=len(tokenizer), **tiny_models.SIZES)
    torch.manual_seed(0)
    model = tiny_models.spread(hf.ConvBertForMaskedLM(config))
    tiny_models.save(tmp_path, model, tokenizer)
    assert "(convbert): its maps change with padding" in load_error(tmp_path)


def test_a_tokenizer_without_a_fast_version_is_refused(bert_copy):
    (bert_copy / "tokenizer.json").unlink()
    hf.ByT5Tokenizer().save_pretrained(bert_copy)
    assert "no fast version" in load_error(bert_copy)


def test_a_folder_without_a_tokenizer_is_refused(bert_copy):
    (bert_copy / "tokenizer.json").unlink()
    assert "no tokenizer" in load_error(bert_copy)


def test_what_is_no_model_is_refused(tmp_path, bert_copy):
    assert "not a folder" in load_error(tmp_path / "nowhere")
    assert "no config.json" in load_error(tmp_path)
    assert "leave --revision out" in load_error(bert_copy, revision="main")
    assert "is the name right" in load_error("a/b/c")


def test_pickled_weights_are_not_read(bert_copy):
    weights = safetensors.torch.load_file(bert_copy / "model.safetensors")
    torch.save(weights, bert_copy / "pytorch_model.bin")
    (bert_copy / "model.safetensors").unlink()
    assert "save_pretrained" in load_error(bert_copy)


def test_corrupted_weights_are_refused(bert_copy):
    whole = (bert_copy / "model.safetensors").read_bytes()
    (bert_copy / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    assert "SafetensorError" in load_error(bert_copy)


@pytest.mark.parametrize("other", ["weights.bin", "../other/model.safetensors"])
@pytest.mark.parametrize("by", ["index", "configuration"])
def test_only_safetensors_of_the_folder_are_read(by, other, bert_copy):
    state = safetensors.torch.load_file(bert_copy / "model.safetensors")
    elsewhere = bert_copy.parent / "other"
    elsewhere.mkdir()
    shutil.copy(bert_copy / "model.safetensors", elsewhere)
    torch.save(state, bert_copy / "weights.bin")
    if by == "index":
        (bert_copy / "model.safetensors").rename(bert_copy / "decoy.safetensors")
        index = {"metadata": {}, "weight_map": dict.fromkeys(state, other)}
        (bert_copy / "model.safetensors.index.json").write_text(json.dumps(index))
    else:
        edit(bert_copy / "config.json", transformers_weights=other)
    message = load_error(bert_copy)
    assert f"it names {other!r} as weights" in message


def test_an_index_that_is_none_is_refused(bert_copy):
    (bert_copy / "model.safetensors.index.json").write_text("[]")
    assert "cannot be loaded" in load_error(bert_copy)


@pytest.mark.parametrize("value", [float("nan"), -float("inf")])
def test_weights_that_are_not_finite_are_refused(value, bert_copy):
    state = safetensors.torch.load_file(bert_copy / "model.safetensors")
    key = "bert.encoder.layer.1.attention.self.key.weight"
    state[key][2, 3] = value
    safetensors.torch.save_file(state, bert_copy / "model.safetensors", {"format": "pt"})
    assert f"{key} has weights that are NaN or infinite" in load_error(bert_copy)


def test_incomplete_weights_are_refused(bert_copy):
    weights = safetensors.torch.load_file(bert_copy / "model.safetensors")
    del weights["bert.encoder.layer.1.attention.self.key.weight"]
    safetensors.torch.save_file(weights, bert_copy / "model.safetensors", {"format": "pt"})
    assert "no weights for bert.encoder.layer.1.attention.self.key.weight" in load_error(bert_copy)


def test_weights_of_another_size_are_refused(bert_copy):
    edit(bert_copy / "config.json", vocab_size=999)
    assert "bert.embeddings.word_embeddings.weight are [" in load_error(bert_copy)


def test_a_tokenizer_with_more_entries_than_embeddings_is_refused(bert_copy):
    tokenizer = hf.AutoTokenizer.from_pretrained(bert_copy)
    entries = len(tokenizer)
    tokenizer.add_tokens(["moreover", "furthermore"])
    tokenizer.save_pretrained(bert_copy)
    message = load_error(bert_copy)
    assert f"the tokenizer has {entries + 2} entries but the weights have {entries}" in message


def test_code_of_a_checkpoint_is_not_run(bert_copy):
    own = {"model_type": "own", "auto_map": {"AutoConfig": "own.Config"}}
    edit(bert_copy / "config.json", **own)
    (bert_copy / "own.py").write_text("raise SystemExit('this was run')")
    load_error(bert_copy)


def test_an_unknown_hub_name_without_network_is_answered_soon(monkeypatch, tmp_path):
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    start = time.monotonic()
    message = load_error("no/such-model")
    assert time.monotonic() - start < 5
    assert "is there a network?" in message
    assert "a local folder" in message
    assert "--model minilm" in message


def test_the_default_is_refused_if_it_is_not_installed(monkeypatch):
    monkeypatch.setattr(encoder, "DEFAULT_PACKAGE", "gt_not_installed")
    assert "pip install -r requirements.txt" in load_error("minilm")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_a_device_that_is_not_there_is_refused(tiny_folder):
    with pytest.raises(ModelError, match="--device cpu or auto"):
        load(str(tiny_folder("bert")), device="cuda")


# Objective


def test_a_checkpoint_with_a_trained_head_has_its_objective(tiny_encoder):
    assert tiny_encoder("bert").objective == "masked-lm"
    assert tiny_encoder("gpt2").objective == "next-token"


@pytest.mark.parametrize(
    ("build", "head"),
    [
        (tiny_models.bert, hf.BertModel),
        (tiny_models.bert, hf.BertForSequenceClassification),
        (tiny_models.electra, hf.ElectraForPreTraining),
    ],
)
def test_a_head_that_was_never_trained_is_left_off(build, head, tmp_path):
    tiny_models.save(tmp_path, *build(head))
    encoder = load(str(tmp_path), device="cpu")
    assert encoder.objective == "contrastive"
    assert encoder.model.get_output_embeddings() is None
    assert (encoder.layers, encoder.heads) == (3, 4)


def test_a_decoder_saved_without_its_head_is_tied_to_its_embeddings(tmp_path):
    model, tokenizer = tiny_models.gpt2()
    tiny_models.save(tmp_path, model.transformer, tokenizer)
    assert load(str(tmp_path), device="cpu").objective == "next-token"


def test_a_checkpoint_in_the_names_of_2018_is_whole(tmp_path):
    """bert-base-uncased on the hub: gamma and beta, next-sentence head, no decoder bias."""
    torch.manual_seed(0)
    model, tokenizer = tiny_models.bert(hf.BertForPreTraining)
    tiny_models.save(tmp_path, tiny_models.spread(model), tokenizer)
    weights = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): tensor.clone()
        for name, tensor in model.state_dict().items()
        if name != "cls.predictions.decoder.bias"
    }
    assert "cls.seq_relationship.weight" in weights
    safetensors.torch.save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    encoder = load(str(tmp_path), device="cpu")
    assert encoder.objective == "masked-lm"
    expected = model.state_dict()
    for name, tensor in encoder.model.state_dict().items():
        assert torch.equal(tensor, expected[name]), name


# Device and precision


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_maps_are_close_to_single_precision(
    dtype, tiny_folder, tiny_encoder, segments, own_cache
):
    half = load(str(tiny_folder("bert")), device="cpu", dtype=dtype)
    assert half.model.dtype == getattr(torch, dtype)
    stores = [extract(encoder, segments, max_tokens=60) for encoder in (tiny_encoder("bert"), half)]
    assert stores[0].folder != stores[1].folder
    for exact, close in zip(*stores, strict=True):
        np.testing.assert_allclose(close.attention[0], exact.attention[0], atol=0.02)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_maps_on_cuda_are_those_on_the_cpu(dtype, tiny_folder, tiny_encoder, segments, tmp_path):
    assert load(str(tiny_folder("bert"))).device.type == "cuda"
    encoder = load(str(tiny_folder("bert")), device="cuda", dtype=dtype)
    with cache_at(tmp_path / "cuda"):
        there = extract(encoder, segments, max_tokens=60)
    with cache_at(tmp_path / "cpu"):
        here = extract(tiny_encoder("bert"), segments, max_tokens=60)
    for one, other in zip(there, here, strict=True):
        tolerance = 1e-3 if dtype == "float32" else 0.02
        np.testing.assert_allclose(one.attention[0], other.attention[0], atol=tolerance)


def test_loading_is_quiet(tiny_folder, capfd):
    assert load(str(tiny_folder("bert")), device="cpu").model
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""


# The control of random weights keeps the input embeddings, and nothing else

# A trained part of attention, though transformers keeps them in an nn.Embedding.
ATTENTION_TABLES = ("relative_attention_bias", "rel_embeddings")


@pytest.mark.parametrize("family", FAMILIES)
def test_random_initialisation_keeps_the_embeddings_alone(family, tiny_encoder):
    trained = tiny_encoder(family).model
    control = reinitialised(trained, seed=3)
    again, other = reinitialised(trained, seed=3), reinitialised(trained, seed=4)
    tables = [
        f"{path}.weight"
        for path, module in trained.named_modules()
        if isinstance(module, torch.nn.Embedding) and not path.endswith(ATTENTION_TABLES)
    ]
    assert tables
    tied = trained.get_output_embeddings()
    others = []
    for name, weight in control.named_parameters():
        before = trained.get_parameter(name)
        if tied is not None and before is tied.weight:
            assert weight is control.get_input_embeddings().weight
            name = tables[0]
        assert torch.equal(weight, again.get_parameter(name)), name
        if name in tables or ".embeddings." in f".{name}":
            assert torch.equal(weight, before), name
            assert weight is not before
        else:
            others.append(name)
            assert not torch.equal(weight, before), name
            if weight.ndim == 2:
                assert not torch.equal(weight, other.get_parameter(name)), name
    assert any(f"{table}." in name for table in ATTENTION_TABLES for name in others) == (
        family in {"mpnet", "t5", "deberta", "deberta_v2"}
    )


def test_random_initialisation_keeps_a_normalisation_beside_the_tables(tiny_encoder):
    config = hf.BartConfig(
        decoder_attention_heads=2,
        vocab_size=32,
        d_model=8,
        encoder_layers=1,
        encoder_attention_heads=2,
        encoder_ffn_dim=8,
    )
    trained = tiny_models.spread(hf.BartModel(config).get_encoder())
    control = reinitialised(trained, seed=0)
    kept = {
        name for name, weight in control.named_parameters()
        if torch.equal(weight, trained.get_parameter(name))
    }  # fmt: skip
    norm = {"layernorm_embedding.weight", "layernorm_embedding.bias"}
    assert kept == {"embed_tokens.weight", "embed_positions.weight"} | norm
