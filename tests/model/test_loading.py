"""The key of a model, and the inputs that it takes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from unittest import mock

import huggingface_hub
import pytest
import safetensors.torch
import torch
import transformers as hf
from tiny_models import POSITIONS

from helpers.data import text_files
from helpers.model import loading
from helpers.model.loading import load_model, model_key, slug


@pytest.mark.default_model
def test_load_model_without_a_name_gives_the_bundled_default():
    encoder = load_model(device="cpu")
    assert (encoder.name, encoder.layers, encoder.heads) == ("minilm", 6, 12)
    assert encoder.key["weights_sha256"] == loading.BUILT_IN["minilm"]
    assert (encoder.objective, encoder.max_length) == ("contrastive", 512)
    assert encoder.special_tokens == {"cls": "[CLS]", "sep": "[SEP]"}
    assert encoder.takes_token_types


# The key


def test_key_of_a_folder_has_the_digests_of_its_files_and_not_its_place(bert_copy, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    moved = bert_copy.rename(tmp_path / "elsewhere" / "bert")
    files = ("config.json", "tokenizer.json", "tokenizer_config.json")
    expected = {
        "name": "bert",
        "weights_sha256": loading.sha256(moved / "model.safetensors"),
        "files": {name: loading.sha256(moved / name) for name in files},
        "dtype": "float32",
        "random_init": None,
    }
    assert load_model(str(moved), device="cpu").key == model_key(str(moved)) == expected


@pytest.mark.parametrize("remembered_bytes", [0, 1 << 30])  # the weights count as large, or not
@pytest.mark.parametrize("changed", ["config.json", "tokenizer_config.json", "model.safetensors"])
def test_key_changes_with_any_file_and_option(
    changed, remembered_bytes, bert_copy, own_cache, monkeypatch
):
    monkeypatch.setattr(text_files, "LARGE_FILE_BYTES", remembered_bytes)
    path = bert_copy / changed
    keys = [model_key(str(bert_copy))]
    if path.suffix == ".json":
        path.write_text(path.read_text() + "\n")
    else:
        tensors = safetensors.torch.load_file(path)
        safetensors.torch.save_file(tensors, path, {"format": "pt", "note": "saved again"})
    for options in ({}, {"dtype": "bfloat16"}, {"random_init": 1}):
        keys.append(model_key(str(bert_copy), **options))
    assert len({json.dumps(key) for key in keys}) == 4
    assert model_key(str(bert_copy)) == keys[1]


def test_key_needs_no_torch(tiny_folder):
    script = (
        "import sys\n"
        "from helpers.model.loading import model_key\n"
        "print(model_key(sys.argv[1])['name'], 'torch' in sys.modules)"
    )
    arguments = [sys.executable, "-c", script, str(tiny_folder("bert"))]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["bert", "False"]


def test_key_of_a_hub_model_has_its_commit(monkeypatch, bert_copy, tmp_path):
    commit = tmp_path / ("0123456789" * 4)
    bert_copy.rename(commit)
    snapshot = mock.Mock(return_value=str(commit))
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    encoder = load_model("some/bert", revision="v2", device="cpu")
    assert {call.args for call in snapshot.call_args_list} == {("some/bert",)}
    revisions = [call.kwargs["revision"] for call in snapshot.call_args_list]
    assert revisions == ["v2", commit.name]
    assert (encoder.key["name"], encoder.key["revision"]) == ("some/bert", commit.name)
    assert "weights_sha256" not in encoder.key
    assert encoder.slug == "some--bert"


def test_key_of_weights_in_several_files_has_one_hash(tmp_path, tiny_folder):
    model = hf.BertForMaskedLM.from_pretrained(tiny_folder("bert"))
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    hf.AutoTokenizer.from_pretrained(tiny_folder("bert")).save_pretrained(tmp_path)
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    encoder = load_model(str(tmp_path), device="cpu")
    assert len(encoder.key["weights_sha256"]) == 64
    assert encoder.objective == "masked-lm"


def test_slug_is_a_folder_name(tmp_path):
    assert slug("google-bert/bert-base-uncased") == "google-bert--bert-base-uncased"
    assert slug("minilm", random_seed=7) == "minilm-random-7"
    (tmp_path / "my model").mkdir()
    assert slug(str(tmp_path / "my model")) == "my-model"
    assert slug("..") not in {"", ".", ".."}


# Inputs: their length, and texts that hold the names of special tokens


@pytest.mark.parametrize(
    ("family", "reserved"),
    [("bert", 0), ("gpt2", 0), ("modernbert", 0), ("roberta", 2), ("xlm_roberta", 2), ("mpnet", 2)],
)
def test_max_length_is_the_longest_input_that_the_model_takes(family, reserved, tiny_encoder):
    encoder = tiny_encoder(family)
    assert encoder.max_length == POSITIONS - reserved
    word = encoder.encode_words(["a"]).ids[-2 if encoder.special_ids else -1]
    ids = torch.full((1, encoder.max_length), word)
    with torch.inference_mode():
        encoder.model(ids, attention_mask=torch.ones_like(ids))
        if family != "modernbert":  # rotary positions have no table to run out of
            with pytest.raises((IndexError, RuntimeError)):
                longer = torch.full((1, encoder.max_length + 1), word)
                encoder.model(longer, attention_mask=torch.ones_like(longer))


def test_the_tokenizer_can_limit_the_length_but_not_truncate_or_pad(bert_copy):
    tokenizer = hf.AutoTokenizer.from_pretrained(bert_copy, model_max_length=32)
    tokenizer.save_pretrained(bert_copy)
    tokenizer.backend_tokenizer.enable_truncation(4)
    tokenizer.backend_tokenizer.enable_padding(length=12)
    tokenizer.backend_tokenizer.save(str(bert_copy / "tokenizer.json"))
    encoder = load_model(str(bert_copy), device="cpu")
    words = ["a", "b", "c", "d", "e"]
    assert encoder.max_length == 32
    assert encoder.encode_words(words).tokens == ["[CLS]", *words, "[SEP]"]


@pytest.mark.parametrize("family", ["bert", "roberta", "deberta", "modernbert", "xlm_roberta"])
def test_encode_words_treats_names_of_special_tokens_as_text(family, tiny_encoder):
    encoder = tiny_encoder(family)
    word = encoder.special_tokens["sep"]
    if family == "xlm_roberta":
        word = "[SEP]"  # a Unigram model has "</s>" among its pieces
    assert not set(encoder.special_ids) & set(encoder.encode_words([word]).ids[1:-1])
