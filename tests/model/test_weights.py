"""Which checkpoints are read, which are refused, and in what precision."""

from __future__ import annotations

import json
import re
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


def weights_of(folder):
    return safetensors.torch.load_file(folder / "model.safetensors")


def slow_tokenizer(folder):
    (folder / "tokenizer.json").unlink()
    hf.ByT5Tokenizer().save_pretrained(folder)


def more_entries(folder):
    tokenizer = hf.AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(["moreover", "furthermore"])
    tokenizer.save_pretrained(folder)


def pickled(folder):
    torch.save(weights_of(folder), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def with_weights(change):
    def changed(folder):
        weights = weights_of(folder)
        change(weights)
        safetensors.torch.save_file(weights, folder / "model.safetensors", {"format": "pt"})

    return changed


def own_code(folder):
    edit(folder / "config.json", model_type="own", auto_map={"AutoConfig": "own.Config"})
    (folder / "own.py").write_text("raise SystemExit('this was run')")


KEY = "bert.encoder.layer.1.attention.self.key.weight"


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: (folder / "tokenizer.json").unlink(), "there is no tokenizer"),
        (slow_tokenizer, "no fast version"),
        (more_entries, r"the tokenizer has \d+ entries but the weights have \d+"),
        (pickled, "save_pretrained"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"half"), "SafetensorError"),
        (with_weights(lambda weights: weights[KEY].fill_(torch.nan)), f"{KEY} .* NaN or infinite"),
        (with_weights(lambda weights: weights.pop(KEY)), f"no weights for {KEY}"),
        (lambda folder: edit(folder / "config.json", vocab_size=999), "embeddings.weight are"),
        (own_code, "cannot be loaded"),
    ],
)
def test_a_checkpoint_that_cannot_be_used_is_one_line(spoil, message, bert_copy):
    spoil(bert_copy)
    assert re.search(message, load_error(bert_copy))


def convbert():
    _, tokenizer = tiny_models.bert()
    config = hf.ConvBertConfig(vocab_size=len(tokenizer), **tiny_models.SIZES)
    torch.manual_seed(0)
    return tiny_models.spread(hf.ConvBertForMaskedLM(config)), tokenizer


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (tiny_models.mamba, "(mamba): gives no (heads, tokens, tokens) map"),
        (convbert, "(convbert): its maps change with padding"),
    ],
)
def test_a_model_without_maps_or_that_attends_to_padding_is_refused(build, message, tmp_path):
    tiny_models.save(tmp_path, *build())
    assert message in load_error(tmp_path)


def test_what_is_no_model_is_refused(tmp_path, bert_copy):
    assert "not a folder" in load_error(tmp_path / "nowhere")
    assert "no config.json" in load_error(tmp_path)
    assert "leave --revision out" in load_error(bert_copy, revision="main")
    assert "is the name right" in load_error("a/b/c")


@pytest.mark.parametrize("other", ["weights.bin", "../other/model.safetensors"])
@pytest.mark.parametrize("by", ["index", "configuration"])
def test_only_safetensors_of_the_folder_are_read(by, other, bert_copy):
    shutil.copytree(bert_copy, bert_copy.parent / "other")
    torch.save(weights_of(bert_copy), bert_copy / "weights.bin")
    if by == "index":
        index = {"metadata": {}, "weight_map": dict.fromkeys(weights_of(bert_copy), other)}
        (bert_copy / "model.safetensors").rename(bert_copy / "decoy.safetensors")
        (bert_copy / "model.safetensors.index.json").write_text(json.dumps(index))
    else:
        edit(bert_copy / "config.json", transformers_weights=other)
    assert f"it names {other!r} as weights" in load_error(bert_copy)


def test_an_unknown_hub_name_without_network_is_answered_soon(monkeypatch, tmp_path):
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    start = time.monotonic()
    message = load_error("no/such-model")
    assert time.monotonic() - start < 5
    assert "is there a network?" in message and "--model minilm" in message


def test_the_default_is_refused_if_it_is_not_installed(monkeypatch):
    monkeypatch.setattr(encoder, "DEFAULT_PACKAGE", "gt_not_installed")
    assert "pip install -r requirements.txt" in load_error("minilm")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_a_device_that_is_not_there_is_refused(tiny_folder):
    with pytest.raises(ModelError, match="--device cpu or auto"):
        load(str(tiny_folder("bert")), device="cuda")


# Objective


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


@pytest.mark.parametrize(
    ("device", "dtype"),
    [("cpu", "float16"), ("cpu", "bfloat16"), ("cuda", "float32"), ("cuda", "bfloat16")],
)
def test_maps_elsewhere_are_close_to_those_on_the_cpu(
    device, dtype, tiny_folder, tiny_encoder, segments, tmp_path
):
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device here")
    encoder = load(str(tiny_folder("bert")), device=device, dtype=dtype)
    assert (encoder.device.type, encoder.model.dtype) == (device, getattr(torch, dtype))
    with cache_at(tmp_path / "there"):
        there = extract(encoder, segments, max_tokens=60)
    with cache_at(tmp_path / "here"):
        here = extract(tiny_encoder("bert"), segments, max_tokens=60)
    assert there.spec != here.spec or dtype == "float32"
    for one, other in zip(there, here, strict=True):
        tolerance = 1e-3 if dtype == "float32" else 0.02
        np.testing.assert_allclose(one.attention[0], other.attention[0], atol=tolerance)


# The control of random weights keeps the input embeddings, and nothing else

# A trained part of attention, though transformers keeps them in an nn.Embedding.
ATTENTION_TABLES = ("relative_attention_bias", "rel_embeddings")


@pytest.mark.parametrize("family", FAMILIES)
def test_random_initialisation_keeps_the_embeddings_alone(family, tiny_encoder):
    trained = tiny_encoder(family).model
    control, again, other = (reinitialised(trained, seed=seed) for seed in (3, 3, 4))
    tables = [
        f"{path}.weight"
        for path, module in trained.named_modules()
        if isinstance(module, torch.nn.Embedding) and not path.endswith(ATTENTION_TABLES)
    ]
    tied, others = trained.get_output_embeddings(), []
    for name, weight in control.named_parameters():
        before = trained.get_parameter(name)
        if tied is not None and before is tied.weight:
            assert weight is control.get_input_embeddings().weight
            name = tables[0]
        assert torch.equal(weight, again.get_parameter(name)), name
        kept = name in tables or ".embeddings." in f".{name}"
        assert torch.equal(weight, before) == kept, name
        if not kept:
            others.append(name)
            assert weight.ndim != 2 or not torch.equal(weight, other.get_parameter(name)), name
    assert any(f"{table}." in name for table in ATTENTION_TABLES for name in others) == (
        family in {"mpnet", "t5", "deberta", "deberta_v2"}
    )


def test_random_initialisation_keeps_a_normalisation_beside_the_tables():
    sizes = {"d_model": 8, "encoder_layers": 1, "encoder_attention_heads": 2, "encoder_ffn_dim": 8}
    config = hf.BartConfig(vocab_size=32, decoder_attention_heads=2, **sizes)
    trained = tiny_models.spread(hf.BartModel(config).get_encoder())
    control = reinitialised(trained, seed=0)
    weights = control.named_parameters()
    kept = {name for name, weight in weights if torch.equal(weight, trained.get_parameter(name))}
    norm = {"layernorm_embedding.weight", "layernorm_embedding.bias"}
    assert kept == {"embed_tokens.weight", "embed_positions.weight"} | norm
