"""Masks and greedy translations of encoder-decoder models, against the plain definitions."""

import json

import numpy as np
import pytest
import sentencepiece
import torch
import transformers as hf
from torch.nn import functional as F

from helpers.errors import ModelError
from helpers.studies.sixteen_heads import translator as translators
from helpers.studies.sixteen_heads.numbers import DIGITS, WORDS, Translation, number_pairs
from helpers.studies.sixteen_heads.translator import (
    IGNORED,
    KINDS,
    MarianCodec,
    Translator,
    WordCodec,
    batch_of,
    load_marian,
    mask_gradients,
    masked,
    new_marian,
    translate,
)

LAYERS, HEADS = 2, 3
PAIRS = number_pairs(12, 5, seed=0)[0]
SENTENCES = ("the cat sat on the mat", "a dog ran to the house", "we read a long book today") * 20


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def translator():
    torch.manual_seed(0)
    words = (*WORDS, *DIGITS)
    model = new_marian(words, layers=LAYERS, heads=HEADS, width=24)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "proj" in name or "fc" in name:
                parameter.mul_(4)  # far from uniform attention
    return Translator("toy", model.eval().requires_grad_(False), WordCodec(words), {})


def logits(translator, kind=None, mask=None):
    batch = batch_of(translator.codec, PAIRS, translator.model.config.pad_token_id)
    if kind is None:
        return translator.model(**batch).logits
    with masked(translator.model, kind, mask):
        return translator.model(**batch).logits


def projections(model, kind):
    layers = (model.get_encoder() if kind == "encoder" else model.get_decoder()).layers
    return [
        (layer.encoder_attn if kind == "cross" else layer.self_attn).out_proj for layer in layers
    ]


def test_words_become_ids_and_words_again():
    codec = WordCodec(["two", "one"])
    ids = codec.source_ids("one two three")
    assert len(ids) == 4
    assert codec.text(ids) == "one two <unk>"
    assert codec.text([0, *codec.target_ids("two two"), 0]) == "two two"


def test_padding_is_no_label():
    batch = batch_of(WordCodec(("a", "b")), [Translation("a", "b b"), Translation("a b a", "b")], 0)
    assert batch["input_ids"].shape == batch["attention_mask"].shape == (2, 4)
    assert batch["attention_mask"].sum(dim=1).tolist() == [2, 4]
    assert (batch["labels"] == IGNORED).sum(dim=1).tolist() == [0, 1]


@pytest.mark.parametrize("kind", KINDS)
def test_mask_of_ones_changes_no_bit(translator, kind):
    assert translator.shape(kind) == (LAYERS, HEADS)
    assert torch.equal(logits(translator, kind, torch.ones(LAYERS, HEADS)), logits(translator))


@pytest.mark.parametrize("kind", KINDS)
def test_mask_of_zero_is_the_head_taken_out_of_the_projection(translator, kind):
    mask = torch.ones(LAYERS, HEADS)
    mask[1, 2] = 0
    found = logits(translator, kind, mask)
    weight = projections(translator.model, kind)[1].weight
    before = weight.detach().clone()
    width = weight.shape[1] // HEADS
    with torch.no_grad():
        weight[:, 2 * width :] = 0
        expected = logits(translator)
        weight.copy_(before)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(found, logits(translator), atol=1e-4)


def test_kinds_are_masked_apart(translator):
    zero = torch.zeros(LAYERS, HEADS)
    outputs = [logits(translator, kind, zero) for kind in KINDS]
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert not torch.allclose(outputs[one], outputs[other], atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_those_of_each_pair_alone_by_small_steps(translator, kind):
    found = mask_gradients(translator, PAIRS, kind)
    assert found.shape == (len(PAIRS), LAYERS, HEADS)
    model, step = translator.model.double(), 1e-4
    try:
        for layer, head in ((0, 1), (1, 2)):
            ends = []
            for sign in (1, -1):
                mask = torch.ones(LAYERS, HEADS, dtype=torch.double)
                mask[layer, head] += sign * step
                ends.append([loss_alone(translator, pair, kind, mask) for pair in PAIRS])
            slope = np.subtract(*ends) / (2 * step)
            np.testing.assert_allclose(found[:, layer, head], slope, atol=2e-4)
    finally:
        model.float()


def loss_alone(translator, pair, kind, mask):
    batch = batch_of(translator.codec, [pair], 0)
    with masked(translator.model, kind, mask):
        scores = translator.model(**batch).logits[0]
    return F.cross_entropy(scores, batch["labels"][0]).item()


def test_greedy_translation_takes_the_likeliest_word_each_time(translator):
    found = translate(translator.model, translator.codec, [p.source for p in PAIRS], batch_size=5)
    assert len(set(found)) > 1
    for pair, text in zip(PAIRS, found, strict=True):
        source = torch.tensor([translator.codec.source_ids(pair.source)])
        ids = [0]
        while len(ids) <= source.shape[1] + 2:
            scores = translator.model(input_ids=source, decoder_input_ids=torch.tensor([ids]))
            ids.append(int(scores.logits[0, -1].argmax()))
            if ids[-1] == 1:
                break
        expected = translator.codec.text(ids[1:])
        assert text.startswith(expected)
        assert text == expected or ids[-1] != 1


def saved_marian(folder):
    """Save a tiny random Marian model with vocabularies trained on a few sentences."""
    folder.mkdir()
    for side in ("source", "target"):
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(SENTENCES), model_prefix=str(folder / side), vocab_size=40,
            hard_vocab_limit=False, minloglevel=2,
        )  # fmt: skip
        (folder / f"{side}.model").rename(folder / f"{side}.spm")
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "source.spm"))
    names = ["</s>", "<unk>", *(pieces.id_to_piece(i) for i in range(3, len(pieces))), "<pad>"]
    vocabulary = {name: index for index, name in enumerate(names)}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    files = [str(folder / name) for name in ("source.spm", "target.spm", "vocab.json")]
    tokenizer = hf.MarianTokenizer(*files)
    size = len(vocabulary)
    config = hf.MarianConfig(
        vocab_size=size, d_model=16, encoder_layers=2, decoder_layers=2, encoder_ffn_dim=16,
        decoder_ffn_dim=16, encoder_attention_heads=4, decoder_attention_heads=2,
        max_position_embeddings=40, pad_token_id=size - 1, eos_token_id=0,
        decoder_start_token_id=size - 1, forced_eos_token_id=0,
    )  # fmt: skip
    hf.MarianMTModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.filterwarnings("ignore:Recommended")
def test_published_model_in_a_folder(tmp_path):
    translator = load_marian(str(saved_marian(tmp_path / "model")))
    assert isinstance(translator.codec, MarianCodec)
    assert translator.shape("encoder") == (2, 4)
    assert translator.shape("cross") == translator.shape("decoder") == (2, 2)
    assert len(translator.identity["weights_sha256"]) == 64
    text = SENTENCES[0]
    assert translator.codec.text(translator.codec.target_ids(text)) == text
    assert len(translate(translator.model, translator.codec, [text, "a dog"])) == 2
    pairs = [Translation(text, SENTENCES[1])] * 2
    assert mask_gradients(translator, pairs, "cross").shape == (2, 2, 2)


def test_models_that_are_not_there_are_named(tmp_path, monkeypatch):
    def unreachable(*_args, **_kwargs):
        raise OSError("no network")

    monkeypatch.setattr(translators, "snapshot_download", unreachable)
    with pytest.raises(ModelError, match=r"opus-mt-xx-yy.*network"):
        load_marian("Helsinki-NLP/opus-mt-xx-yy")
    with pytest.raises(ModelError, match="not a folder"):
        load_marian("./nowhere")
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(ModelError, match=r"safetensors.*save_pretrained"):
        load_marian(str(tmp_path))
    (tmp_path / "model.safetensors").write_bytes(b"junk")
    with pytest.raises(ModelError, match="cannot be loaded as a Marian model"):
        load_marian(str(tmp_path))
