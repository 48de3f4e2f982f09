"""Which checkpoints are read, which are refused, and in what precision."""

from __future__ import annotations

import json
import re
import shutil
from unittest import mock

import huggingface_hub
import pytest
import safetensors.torch
import tiny_models
import torch
import transformers as hf
from tiny_models import FAMILIES, edit
from tokenizers.processors import TemplateProcessing

from helpers.errors import ModelError
from helpers.model.forward import forward, model_inputs
from helpers.model.loading import load_model
from helpers.model.tokenizer import begin_with_bos
from helpers.model.weights import reinitialised
from helpers.study import Study


def load_error(name, **options):
    """Return the message of the error that loading raises: one line that names the model."""
    with pytest.raises(ModelError) as caught:
        load_model(str(name), device="cpu", **options)
    message = str(caught.value)
    assert "\n" not in message
    assert repr(str(name)) in message
    return message


# What cannot be used


def weights_of(folder):
    return safetensors.torch.load_file(folder / "model.safetensors")


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


def quantised(folder):
    edit(folder / "config.json", quantization_config={"quant_method": "gptq", "bits": 4})


def own_code(folder):
    edit(folder / "config.json", model_type="own", auto_map={"AutoConfig": "own.Config"})
    (folder / "own.py").write_text("raise SystemExit('this was run')")


def lfs_pointer(folder):
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 4\n"
    (folder / "model.safetensors").write_text(pointer)


def adapter(folder):
    (folder / "model.safetensors").rename(folder / "adapter_model.safetensors")
    (folder / "config.json").unlink()
    settings = {"base_model_name_or_path": "some/base", "peft_type": "LORA"}
    (folder / "adapter_config.json").write_text(json.dumps(settings))


def sentence_transformer(folder):
    shutil.copytree(folder, folder / "0_Transformer")
    (folder / "model.safetensors").unlink()
    (folder / "config.json").write_text('{"__version__": "0.3.8"}')
    module = {"path": "0_Transformer", "type": "sentence_transformers.models.Transformer"}
    (folder / "modules.json").write_text(json.dumps([module]))


def output_of_a_training(folder):
    for name in ("checkpoint-500", "checkpoint-1500", "checkpoint-best"):
        shutil.copytree(folder, folder.parent / name)
        (folder.parent / name).rename(folder / name)
    (folder / "model.safetensors").unlink()
    (folder / "training_args.bin").touch()


def two_models(folder):
    config = hf.AutoConfig.from_pretrained(folder)
    hf.EncoderDecoderConfig.from_encoder_decoder_configs(config, config).save_pretrained(folder)


def with_file(name, text):
    return lambda folder: (folder / name).write_text(text)


KEY = "bert.encoder.layer.1.attention.self.key.weight"


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: (folder / "tokenizer.json").unlink(), "no fast tokenizer"),
        (more_entries, r"the tokenizer has \d+ entries but the weights have \d+"),
        (pickled, "can run code.*--revision of a branch"),
        (lfs_pointer, "pointers of git-lfs"),
        (with_file("tokenizer.json", "version https://git-lfs\n"), "pointers of git-lfs"),
        (two_models, "Save the encoder alone"),
        (adapter, "PEFT adapter.*merge_and_unload"),
        (sentence_transformer, "--model .*/bert/0_Transformer"),
        (output_of_a_training, "-1500, or .*-500, or .*-best"),
        (lambda folder: (folder / "model.safetensors").rename(folder / "x.gguf"), "GGUF"),
        (lambda folder: edit(folder / "config.json", model_type="newer"), "newer"),
        (with_file("config.json", "{"), "config.json is not a valid JSON"),
        (with_file("config.json", "null"), "config.json has no JSON object"),
        (with_file("model.safetensors.index.json", '{"weight_map": 3}'), "TypeError"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"half"), "SafetensorError"),
        (with_weights(lambda weights: weights[KEY].fill_(torch.nan)), "a row sums to nan"),
        (with_weights(lambda weights: weights.pop(KEY)), f"no weights for {KEY}"),
        (lambda folder: edit(folder / "config.json", vocab_size=999), "embeddings.weight are"),
        (own_code, "needs code from its folder, which is not run"),
        (quantised, "weights are quantised"),
    ],
)
def test_load_model_refuses_a_broken_checkpoint_in_one_line(spoil, message, bert_copy):
    spoil(bert_copy)
    assert re.search(message, load_error(bert_copy))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("nowhere", {}, "there is no such folder"),
        ("bert/model.safetensors", {}, "it is a file"),
        ("bert", {"revision": "main"}, "Leave --revision out"),
        ("bert/tokens", {}, r"config\.json|no \*\.safetensors"),
    ],
)
def test_load_model_refuses_a_path_that_is_no_model(name, options, message, bert_copy):
    (bert_copy / "tokens").mkdir()
    assert re.search(message, load_error(bert_copy.parent / name, **options))


def test_load_model_refuses_what_is_neither_built_in_nor_on_the_hub():
    assert "Leave --revision out" in load_error("mpnet", revision="main")
    assert "named owner/name" in load_error("a/b/c")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        ("GatedRepoError", "log in with 'hf auth login'"),
        ("RepositoryNotFoundError", "RepositoryNotFoundError: 403"),
    ],
)
def test_load_model_says_why_the_hub_gives_no_model(error, message, monkeypatch):
    def refuse(*_, **__):
        response = mock.Mock(status_code=403, headers={}, request=None)
        raise getattr(huggingface_hub.errors, error)("403", response=response)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
    assert message in load_error("some/model")


@pytest.fixture(params=["weights.bin", "../other/model.safetensors"])
def foreign_file(request, bert_copy):
    """Weights that must not be read: of another format, or of another folder."""
    shutil.copytree(bert_copy, bert_copy.parent / "other")
    torch.save(weights_of(bert_copy), bert_copy / "weights.bin")
    return request.param


@pytest.mark.parametrize("by", ["index", "configuration"])
def test_load_model_reads_only_safetensors_of_the_folder(by, foreign_file, bert_copy):
    if by == "index":
        index = {"metadata": {}, "weight_map": dict.fromkeys(weights_of(bert_copy), foreign_file)}
        (bert_copy / "model.safetensors").rename(bert_copy / "decoy.safetensors")
        (bert_copy / "model.safetensors.index.json").write_text(json.dumps(index))
    else:
        edit(bert_copy / "config.json", transformers_weights=foreign_file)
    assert f"it names {foreign_file!r} as weights" in load_error(bert_copy)


# Objective


@pytest.mark.parametrize(
    ("build", "head"),
    [
        (tiny_models.bert, hf.BertModel),
        (tiny_models.bert, hf.BertForSequenceClassification),
        (tiny_models.electra, hf.ElectraForPreTraining),
    ],
)
def test_load_model_leaves_a_head_off_that_was_never_trained(build, head, tmp_path):
    tiny_models.save(tmp_path, *build(head))
    encoder = load_model(str(tmp_path), device="cpu")
    assert encoder.objective == "contrastive"
    assert encoder.model.get_output_embeddings() is None


def test_load_model_reads_a_checkpoint_with_the_names_of_2018(tmp_path):
    """bert-base-uncased on the hub: gamma and beta, next-sentence head, no decoder bias."""
    torch.manual_seed(0)
    model, tokenizer = tiny_models.bert(hf.BertForPreTraining)
    tiny_models.save(tmp_path, tiny_models.spread(model), tokenizer)
    weights = {}
    for name, tensor in model.state_dict().items():
        old_name = name.replace("LayerNorm.weight", "LayerNorm.gamma")
        old_name = old_name.replace("LayerNorm.bias", "LayerNorm.beta")
        if name != "cls.predictions.decoder.bias":
            weights[old_name] = tensor.clone()
    assert "cls.seq_relationship.weight" in weights
    safetensors.torch.save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    encoder = load_model(str(tmp_path), device="cpu")
    assert encoder.objective == "masked-lm"
    expected = model.state_dict()
    for name, tensor in encoder.model.state_dict().items():
        assert torch.equal(tensor, expected[name]), name


# Device and precision


@pytest.mark.parametrize(("device", "dtype"), [("cpu", "bfloat16"), ("cuda", "float32")])
def test_maps_on_a_device_are_close_to_those_on_the_cpu(device, dtype, tiny_folder, encoder):
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device here")
    loaded = load_model(str(tiny_folder("bert")), device=device, dtype=dtype)
    assert (loaded.model.device.type, loaded.model.dtype) == (device, getattr(torch, dtype))
    inputs = [model_inputs(encoder, {"words": ["The", "cat", "sat", "."]})]
    maps, expected = (forward(model, inputs)[0][0].float().cpu() for model in (loaded, encoder))
    torch.testing.assert_close(maps, expected, rtol=0, atol=1e-3 if dtype == "float32" else 0.02)


# The control of random weights keeps the input embeddings, and nothing else

# A trained part of attention, though transformers keeps them in an nn.Embedding.
ATTENTION_TABLES = ("relative_attention_bias", "rel_embeddings")


@pytest.fixture(params=FAMILIES)
def family(request):
    return request.param


def reinitialised_names(control, trained):
    """The names of the parameters that were not kept."""
    return {
        name
        for name, parameter in control.named_parameters()
        if not torch.equal(parameter, trained.get_parameter(name))
    }


def test_reinitialised_keeps_the_embeddings_and_nothing_else(family, tiny_encoder):
    trained = tiny_encoder(family).model
    random_state = torch.get_rng_state()
    control, same_seed, other_seed = (reinitialised(trained, seed=seed) for seed in (3, 3, 4))
    assert torch.equal(torch.get_rng_state(), random_state)
    words = trained.get_input_embeddings().weight
    head = trained.get_output_embeddings()
    if head is not None and head.weight is words:
        assert control.get_output_embeddings().weight is control.get_input_embeddings().weight
    tables = [words]  # of words, positions and segments
    for path, module in trained.named_modules():
        if isinstance(module, torch.nn.Embedding) and not path.endswith(ATTENTION_TABLES):
            tables.append(module.weight)
    new_names = reinitialised_names(control, trained)
    for name, parameter in control.named_parameters():
        is_table = any(trained.get_parameter(name) is table for table in tables)
        assert (name in new_names) != (is_table or ".embeddings." in f".{name}"), name
        assert torch.equal(parameter, same_seed.get_parameter(name)), name
        if name in new_names and parameter.ndim == 2:
            assert not torch.equal(parameter, other_seed.get_parameter(name)), name
    is_attention_table = [table in name for table in ATTENTION_TABLES for name in new_names]
    assert any(is_attention_table) == (family in {"mpnet", "t5", "deberta", "deberta_v2"})


def test_reinitialised_keeps_a_normalisation_next_to_the_tables():
    sizes = {"d_model": 8, "encoder_layers": 1, "encoder_attention_heads": 2, "encoder_ffn_dim": 8}
    config = hf.BartConfig(vocab_size=32, decoder_attention_heads=2, **sizes)
    trained = tiny_models.spread(hf.BartModel(config).get_encoder())
    control = reinitialised(trained, seed=0)
    names = {name for name, _ in control.named_parameters()}
    assert names - reinitialised_names(control, trained) == {
        "embed_tokens.weight",
        "embed_positions.weight",
        "layernorm_embedding.weight",
        "layernorm_embedding.bias",
    }


# The beginning of a decoder's texts


END = "<|endoftext|>"


def gpt2_tokenizer(single=None, bos=None):
    """GPT-2's tokenizer with another template of a text."""
    _, tokenizer = tiny_models.gpt2()
    backend = tokenizer.backend_tokenizer
    if single:
        ids = [(END, tokenizer.convert_tokens_to_ids(END))]
        backend.post_processor = TemplateProcessing(single=single, special_tokens=ids)
    return hf.PreTrainedTokenizerFast(tokenizer_object=backend, bos_token=bos)


@pytest.mark.parametrize(
    ("single", "bos", "expected"),
    [
        ([END, "$A"], END, [END, "a"]),  # as it is
        (["$A", END], END, [END, "a", END]),
        (None, END, [END, "a"]),
        (None, None, ["a"]),
    ],
)
def test_texts_of_a_decoder_begin_with_the_bos_token(single, bos, expected):
    tokenizer = gpt2_tokenizer(single, bos)
    begin_with_bos(tokenizer)
    assert tokenizer("a").tokens() == expected
    words = tokenizer.backend_tokenizer.encode(["a", "a"], is_pretokenized=True)
    before, after = (expected.index("a"), len(expected) - expected.index("a") - 1)
    assert words.word_ids == [None] * before + [0, 1] + [None] * after


def test_a_decoder_without_a_beginning_keeps_its_first_word(tmp_path):
    model, _ = tiny_models.gpt2()
    folder = tiny_models.save(tmp_path / "model", model, gpt2_tokenizer())
    encoder = load_model(str(folder), device="cpu")
    assert encoder.special_tokens == {"cls": None, "sep": None}
    assert encoder.is_decoder
    assert any("first word" in note for note in Study(model=str(folder), device="cpu").notes)


def test_the_head_of_a_language_model_is_read_only_if_the_checkpoint_names_it(tmp_path):
    model, tokenizer = tiny_models.gpt2()
    for part, objective in ((model, "next-token"), (model.transformer, "contrastive")):
        folder = tiny_models.save(tmp_path / objective, part, tokenizer)
        assert load_model(str(folder), device="cpu").objective == objective
