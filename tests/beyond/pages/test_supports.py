"""A dry run lists the measures that a model supports, and is right."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import tiny_models
import torch
import transformers as hf
from tiny_models import FAMILIES

from beyond.pages.supports import check_supported, supports
from helpers.__main__ import main
from helpers.errors import ModelError
from helpers.model.encoder import load_encoder
from helpers.model.forward import value_pass
from helpers.model.sites import patch_head_outputs, sites
from helpers.model.weights import reinitialised
from helpers.study import Study


def bloom():
    _, tokenizer = tiny_models.gpt2()
    config = hf.BloomConfig(vocab_size=len(tokenizer), hidden_size=24, n_layer=2, n_head=4)
    return hf.BloomForCausalLM(config), tokenizer


def gpt_big_code():
    _, tokenizer = tiny_models.gpt2()
    config = hf.GPTBigCodeConfig(vocab_size=len(tokenizer), n_embd=24, n_layer=2, n_head=4)
    return hf.GPTBigCodeForCausalLM(config), tokenizer


def convbert():
    tokenizer = hf.BertTokenizer(vocab=tiny_models.wordpiece(tiny_models.BERT_SPECIALS))
    config = hf.ConvBertConfig(vocab_size=len(tokenizer), embedding_size=16, **tiny_models.SIZES)
    return hf.ConvBertForMaskedLM(config), tokenizer


OTHERS = {"bloom": bloom, "gpt_big_code": gpt_big_code, "convbert": convbert}


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tiny_folder):
    """Make the folder of a tiny model of a family."""

    def made(family):
        if family in FAMILIES:
            return tiny_folder(family)
        torch.manual_seed(0)
        return tiny_models.save(tmp_path_factory.mktemp(family), *OTHERS[family]())

    return made


def supported(table, what):
    return bool(table.set_index("what")["supported"][what])


@pytest.mark.parametrize("family", [*FAMILIES, *OTHERS])
def test_supports_says_what_then_works(family, folder):
    encoder = load_encoder(str(folder(family)), device="cpu")
    table = supports(encoder)
    assert (table["supported"] == (table["why_not"] == "")).all()
    assert not table["why_not"].str.contains("Error").any(), "no raw error"

    has_lens = supported(table, "maps of what attention moves")
    with nullcontext() if has_lens else pytest.raises(ModelError), value_pass(encoder):
        pass

    assert supported(table, "control: random weights")
    reinitialised(encoder.model, seed=0)

    if supported(table, "removal of heads"):
        inputs = encoder.tokenizer("the cat", return_tensors="pt")
        ids = inputs["input_ids"]
        maps = encoder.model(ids, output_attentions=True).attentions
        outputs = []

        def keep(_layer, values):
            outputs.append(values)
            return values

        with patch_head_outputs(sites(encoder.model), keep):
            encoder.model(ids)
        assert [values.shape[2] for values in outputs] == [layer.shape[1] for layer in maps]


@pytest.mark.parametrize("family", OTHERS)
def test_supports_refuses_the_norm_lens_of_families_whose_heads_are_other_sums(family, folder):
    table = supports(load_encoder(str(folder(family)), device="cpu"))
    assert not supported(table, "maps of what attention moves")
    assert supported(table, "removal of heads") == (family == "gpt_big_code")
    assert supported(table, "attention maps")


def test_check_supported_refuses_a_run_that_would_stop_later(folder, figures):
    study = Study(model=str(folder("bloom")), device="cpu")
    check_supported(study, {"00", "10"})
    with pytest.raises(ModelError, match=r"^notebook 08: .* leave it out with --only"):
        check_supported(study, {"00", "08"})


@pytest.mark.parametrize("family", OTHERS)
def test_a_run_with_the_norm_lens_is_refused_before_it_reads_a_corpus(
    family, folder, figures, capsys
):
    options = ["--model", str(folder(family)), "--device", "cpu", "--lens", "norm"]
    assert main(["run", "--only", "00", *options]) == 2
    output = capsys.readouterr()
    assert output.err.startswith("error: --lens norm: ")
    assert output.err.count("\n") == 1
    assert output.out == ""


@pytest.mark.parametrize("family", ["bert", "gpt2"])  # a decoder has its first token
def test_supports_calls_edges_to_special_tokens_supported(family, tiny_encoder):
    assert supported(supports(tiny_encoder(family)), "edges to special tokens cut")


@pytest.mark.parametrize("family", FAMILIES)
def test_supports_calls_agreement_supported_of_language_models(family, tiny_encoder):
    encoder = tiny_encoder(family)
    answer = encoder.objective in ("masked-lm", "next-token")
    assert supported(supports(encoder), "agreement of verbs") == answer
