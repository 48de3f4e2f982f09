"""A text that a user types becomes a store to look at, and leaves nothing behind."""

import gc
import tempfile

import numpy as np
import pytest
import torch

from helpers import read, view
from helpers.errors import InputError
from helpers.model.forward import to_words


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """Redirect temporary folders to an empty one."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.mark.default_model
def test_read_parses_the_words_of_english(own_cache):
    text = "She opened the door.\n  It was\theavy."
    store = read(text, level="word")
    assert " ".join(store[0].record["words"]) == "She opened the door . It was heavy ."
    assert store[0].record["heads"] == [2, 0, 4, 2, 2, 7, 0, 7, 7]
    np.testing.assert_allclose(store[0].attention.sum(-1), 1, atol=0.01)
    assert view(store, relation="dobj").data()["pages"][0]["tokens"][4] == "door"
    assert len(read([text, "She left."], level="word")) == 2


@pytest.mark.parametrize("family", ["bert", "gpt2", "t5"])
@pytest.mark.parametrize(
    "text",
    ["The cat sat. The dog watched", "for i in range(3): print(x[i])", "東京は日本。", "Zürich 😀"],
)
def test_read_has_the_maps_of_the_tokens_of_any_text(text, family, tiny_encoder, own_cache):
    encoder = tiny_encoder(family)
    inputs = encoder.tokenizer(text, return_tensors="pt")
    inputs.pop("token_type_ids", None)
    with torch.inference_mode():
        outputs = encoder.model.base_model(**inputs, output_attentions=True)
    (example,) = read(text, encoder)
    np.testing.assert_allclose(example.attention, torch.cat(outputs.attentions), atol=1e-3)
    assert len(example.tokens) == inputs["input_ids"].shape[1]
    assert view(read(text, encoder)).data()["pages"][0]["tokens"] == example.tokens


@pytest.mark.parametrize("family", ["bert", "gpt2", "t5"])
def test_read_divides_other_languages_by_the_tokenizer(family, tiny_encoder, own_cache):
    encoder = tiny_encoder(family)
    tokens, words = (read("東京 は日本", encoder, level=name)[0] for name in ("token", "word"))
    assert "relations" not in words.record
    assert "".join(words.record["words"]) == "東京は日本" and "東京は" not in words.tokens
    groups = words.record["inputs"]["groups"]
    maps = to_words(torch.from_numpy(tokens.attention), groups)
    np.testing.assert_allclose(words.attention, maps, atol=2e-3)


def test_read_keeps_words_with_combining_marks_whole(tiny_encoder, own_cache):
    (example,) = read("हिन्दी में लिखा", tiny_encoder("gpt2"), level="word")
    assert example.record["words"] == ["हिन्दी", "में", "लिखा"]


def test_read_refuses_a_model_that_is_loaded_by_other_means(tiny_encoder):
    with pytest.raises(InputError, match="BertForMaskedLM is no name or folder"):
        read("a cat", tiny_encoder("bert").model)


def test_read_says_that_a_special_token_is_text(tiny_encoder, own_cache, capsys):
    assert "[SEP]" not in read("a [SEP] b", tiny_encoder("bert"))[0].tokens[:-1]
    assert "[SEP] is read as text" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", {}, "not empty"),
        (["a", " "], {}, "not empty"),
        ([], {}, "not empty"),
        (17, {}, "a text"),
        ("a\ud83d", {}, "half of a character"),
        ("She", {"level": "words"}, "token or word"),
        ("She", {"lens": "norms"}, "attention or norm"),
        ("cat " * 80, {}, "tokens, and .* takes 64"),
    ],
)
def test_read_refuses_in_a_line(text, options, message, tiny_encoder, own_cache):
    with pytest.raises(InputError, match=message):
        read(text, tiny_encoder("bert"), **options)


def test_read_leaves_nothing_of_the_text(tiny_folder, own_cache, temporary):
    store = read("She opened the door.", model=str(tiny_folder("bert")))
    assert len(list(temporary.iterdir())) == 1 and store[0].attention.sum() > 0
    for file in own_cache.rglob("*"):
        assert not file.is_file() or b"opened" not in file.read_bytes()
    assert not list(own_cache.glob("*/manifest.json"))
    del store
    gc.collect()
    assert not list(temporary.iterdir())
