"""Looking at a sentence of one's own."""

import numpy as np
import pytest
from store_tools import extract_small

from helpers.errors import InputError
from helpers.store import format
from helpers.viewer import own_text
from helpers.viewer.own_text import read
from helpers.viewer.view import view


@pytest.mark.default_model
def test_a_text_becomes_a_store_of_parsed_sentences(monkeypatch, tmp_path):
    monkeypatch.setenv("ATTENTION_CACHE", str(tmp_path))
    store = read("She opened the door.\n  It was\theavy.")
    assert len(store) == 2
    assert store[0].record["words"] == ["She", "opened", "the", "door", "."]
    assert store[0].record["heads"] == [2, 0, 4, 2, 2]
    assert store[0].attention.shape[-1] == 7
    np.testing.assert_allclose(store[1].attention.sum(-1), 1, atol=0.01)
    assert view(store, 1).data()["panes"][0]["pages"][0]["tokens"][3] == "heavy"


def test_own_texts_do_not_pile_up(monkeypatch, tmp_path, tiny_folder, encoder):
    monkeypatch.setenv("ATTENTION_CACHE", str(tmp_path))
    monkeypatch.setattr(own_text, "KEPT", 2)
    other = extract_small(encoder, tmp_path, 2)
    model = str(tiny_folder("bert"))
    first, second = (read(f"A cat sat {where}.", model=model) for where in ("here", "there"))
    assert read("A cat sat here.", model=model).folder == first.folder, "looked at again"
    third = read("A dog sat.", model=model)
    assert set(format.stores()) == {other.folder, first.folder, third.folder}
    assert not second.folder.with_name(f"{second.folder.name}.lock").exists()
    assert len(read("A cat sat there.", model=model)) == 1, "made anew"


def test_an_empty_text_is_refused():
    with pytest.raises(InputError, match="empty"):
        read(" \n")
