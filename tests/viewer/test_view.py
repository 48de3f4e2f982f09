"""The viewer sends the store's maps and the analyses' answers, and text of a corpus stays text."""

import base64
import json
import re
import zlib
from itertools import count
from xml.etree import ElementTree

import numpy as np
import pytest
from viewer_stores import (
    BIDI_SENTENCE,
    BIDI_SHOWN,
    BIDI_TEXT,
    HOSTILE,
    OTHER,
    SENTENCE,
    MemoryStore,
    word_store,
)

from helpers.data.links import read_links
from helpers.errors import InputError
from helpers.metrics.heads import DIRECTIONS
from helpers.store.store import Example
from helpers.viewer import view as view_module
from helpers.viewer.page import (
    BIDI_CONTROLS,
    answer_links,
    document,
    embedded_page,
    panels_of_view,
    summaries,
    thumbnails,
)
from helpers.viewer.view import ViewerWidget, view


def html_of(viewer):
    return document(viewer.heading, viewer.data())


def content_of(page):
    """The JSON of a page."""
    text = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    return json.loads(text[1])


def unpack(text):
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8)


def test_embedded_page_has_the_tokens_and_weights_of_the_store():
    store = word_store(OTHER)
    page = embedded_page(store, store[0], range(12))
    assert page["labels"][:5] == ["1-1", "1-2", "1-3", "1-4", "2-1"]
    assert page["tokens"] == ["[CLS]", "Ann", "saw", "the", "dog", ".", "[SEP]"]
    assert page["kinds"] == ["cls", *["other"] * 4, "punctuation", "sep"]
    assert page["special"] == [0, 6]
    for head in range(12):
        low, high = unpack(page["maps"][head]).astype(float).reshape(2, 7, 7)
        expected = store[0].attention[divmod(head, 4)].astype(float)
        np.testing.assert_allclose((256 * high + low) / 10_000, expected, atol=0.51e-4)


def test_summaries_name_the_target_of_most_attention():
    maps = np.zeros((1, 3, 3, 3))
    maps[0, 0, :, 2] = 1
    maps[0, 1] = np.eye(3)
    maps[0, 2] = np.eye(3, k=1)
    maps[0, 2, 2, 0] = 1
    masks = {"sep": np.array([False, False, True]), "other": np.array([True, True, False])}
    texts = summaries(maps, masks, {"sep": "[SEP]"})
    assert texts == ["100% to [SEP]", "100% to itself", "67% to the next"]


def test_thumbnails_have_the_largest_weight_of_each_cell():
    maps = np.zeros((1, 1, 64, 64))
    maps[0, 0, 3, 63] = 1.0
    maps[0, 0, 2, 62] = 0.5
    small = thumbnails(maps, range(64))
    assert small.shape == (1, 32, 32)
    assert small[0, 1, 31] == 255
    assert np.count_nonzero(small) == 1


def store_with_known_answers():
    """A store in which head 1-1 is right about the first sentence's dobj, not the second's."""
    examples = []
    for index, (record, query) in enumerate([(SENTENCE, 6), (OTHER, 4)]):
        length = len(record["words"]) + 2
        maps = np.zeros((1, 1, length, length))
        maps[0, 0, query, 3] = 1
        examples.append(Example(index, maps, record))
    return MemoryStore(examples, "word")


RIGHT_HIT = [0, 6, HOSTILE, "bit", "bit"]  # example, position, word, picked, gold
WRONG_HIT = [1, 4, "dog", "the", "saw"]
SEARCHES = [
    ({"relation": "dobj"}, [RIGHT_HIT, WRONG_HIT]),
    ({"relation": "dobj", "limit": 1}, [RIGHT_HIT]),
    ({"relation": "dobj", "right": True}, [RIGHT_HIT]),
    ({"relation": "dobj", "right": False}, [WRONG_HIT]),
    ({"word": "DOG"}, [[0, 2, "dog", "", ""], [1, 4, "dog", "", ""]]),
    ({"word": "cat"}, []),
    ({"word": "dog", "relation": "dobj"}, [WRONG_HIT]),
]


@pytest.mark.parametrize(("query", "hits"), SEARCHES)
def test_search_finds_words_and_answers(query, hits):
    table = view(store_with_known_answers()).search(**query)
    assert table[["example", "asked", "word", "picked", "gold"]].to_numpy().tolist() == hits


def test_text_of_a_corpus_stays_text():
    store = word_store(SENTENCE)
    page = html_of(view(store, title=HOSTILE))
    assert page.count("<script") == page.count("</script>") == 2
    assert "<img" not in page
    assert content_of(page)["pages"][0]["tokens"][6] == HOSTILE
    frame = view(store, title=HOSTILE)._repr_mimebundle_()["text/html"]
    assert re.fullmatch(r"<div [^>]*><iframe( [a-z]+=\"[^\"]*\")+>[\w ,.]+</iframe></div>", frame)


def test_bidirectional_control_characters_are_shown():
    viewer = view(word_store(BIDI_SENTENCE), title=BIDI_TEXT)
    text = html_of(viewer)
    assert not BIDI_CONTROLS.search(text)
    assert BIDI_SHOWN in content_of(text)["title"]
    widget = ViewerWidget(viewer)
    assert widget.settings["title"] == BIDI_SHOWN
    content, _ = widget.answer({"kind": "page", "example": 0}, [])
    assert content["page"] | content_of(text)["pages"][0] == content_of(text)["pages"][0]
    assert content["page"]["tokens"] == ["[CLS]", "Ann", BIDI_SHOWN, ".", "[SEP]"]
    content, _ = widget.answer(SEARCH | {"word": BIDI_TEXT}, [])
    assert [hit["word"] for hit in content["found"]] == [BIDI_SHOWN]


SEARCH = {
    "kind": "search", "head": 0, "direction": DIRECTIONS[0], "right": None, "word": "",
    "relation": "",
}  # fmt: skip


def test_widget_answers_a_search_and_a_mistake():
    widget = ViewerWidget(view(store_with_known_answers()))
    assert widget.settings["relations"] == ["case", "det", "dobj", "nsubj", "poss", "punct"]
    content, _ = widget.answer(SEARCH | {"relation": "dobj", "right": False}, [])
    assert [hit["word"] for hit in content["found"]] == ["dog"]
    assert not content["more"]
    content, buffers = widget.answer({"kind": "page", "example": 2}, [])
    assert "2" in content["error"] and buffers == []


@pytest.mark.parametrize(("name", "examples"), [("a.png", None), ("a", None), ("a.svg", [0])])
def test_save_refuses_what_is_neither_page_nor_drawing(name, examples, tmp_path):
    with pytest.raises(InputError, match="one example"):
        view(word_store(SENTENCE)).save(tmp_path / name, examples)


@pytest.mark.parametrize("examples", [[0, 3], [-1], []])
def test_save_refuses_examples_that_are_not_there(examples, tmp_path):
    with pytest.raises(InputError):
        view(word_store(SENTENCE, OTHER)).save(tmp_path / "some.html", examples)
    assert not (tmp_path / "some.html").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"example": 1}, "example 1.* 0 to 0"),
        ({"layer": "3-1"}, "layer='3-1'"),
        ({"layer": 4}, "4-1.* 1-1 to 3-4"),
        ({"relation": "dojb"}, "dojb.* case, det, dobj"),
        ({"direction": "up"}, f"up.* {DIRECTIONS[0]}"),
    ],
)
def test_view_refuses_what_the_store_does_not_have(arguments, message):
    with pytest.raises(InputError, match=message):
        view(word_store(SENTENCE), **arguments)
    with pytest.raises(InputError, match="word"):
        view(word_store(SENTENCE)).search()
    with pytest.raises(InputError, match="no relation 'root'"):
        view(word_store(SENTENCE)).search(relation="root")


def test_view_is_the_same_output_in_every_kernel_and_another_for_every_view(monkeypatch):
    store = word_store(SENTENCE)
    outputs = []
    for _ in range(2):
        monkeypatch.setattr(view_module, "NUMBERS", count(1))  # as a new kernel begins
        outputs += [view(store)._repr_mimebundle_()["text/html"] for _ in range(2)]
    first, second, *again = outputs
    assert [first, second] == again
    assert first != second


SVG = "{http://www.w3.org/2000/svg}"


def test_save_draws_the_weights_as_svg(tmp_path):
    store = word_store(SENTENCE)
    viewer = view(store, layer=2, head=3)
    root = ElementTree.parse(viewer.save(tmp_path / "head.svg")).getroot()
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert "Head 2-3" in texts and texts.count("[CLS]") == 2
    assert texts.count(f"{HOSTILE[:10]}…") == 2
    (panel,) = panels_of_view(viewer)
    np.testing.assert_array_equal(panel.weights, store[0].attention[1, 2])


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_panel_of_a_relation_has_the_answers_and_no_special_tokens(direction):
    store = word_store(SENTENCE)
    (panel,) = panels_of_view(view(store, layer=2, head=1, relation="(all)", direction=direction))
    assert panel.words == SENTENCE["words"]
    links = read_links(SENTENCE)
    words = store[0].word_positions
    weights = store[0].attention[1, 0][words, words]
    _, right = answer_links(links, weights, direction, np.ones(weights.shape, bool))
    verdicts = [link.verdict for link in panel.links]
    assert verdicts.count("right") == right.sum()
    n_wrong = (~right & ~links.is_root).sum()
    assert verdicts.count("wrong") == verdicts.count("missed") == n_wrong


def test_maps_are_drawn_side_by_side():
    store, control = word_store(OTHER), word_store(SENTENCE, OTHER)
    control.examples.pop(0)
    control.manifest["model"]["random_init"] = 0
    maps = store[0].attention
    expected = {"3-4": maps[2, 3], "control": control[0].attention[1, 0], "mean": maps.mean((0, 1))}
    for choice, weights in expected.items():
        panels = panels_of_view(view(store, layer=2, head=1, compare=choice, control=control))
        np.testing.assert_array_equal([panel.weights for panel in panels], [maps[1, 0], weights])


def test_names_of_heads_are_those_of_a_run_of_the_same_weights(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTENTION_BUILD", str(tmp_path))
    store = word_store(OTHER)
    assert view(store).settings()["names"] == {}
    (tmp_path / "toy--mine" / "tables").mkdir(parents=True)
    record = {"model": {**store.manifest["model"], "layers": 3, "heads": 4}}
    record["settings"] = {"lens": "attention"}
    (tmp_path / "toy--mine" / "run.json").write_text(json.dumps(record))
    table = "layer,head,kind,name\n1,1,relation,object to verb\n1,2,mixed,–\n"
    (tmp_path / "toy--mine" / "tables" / "atlas.csv").write_text(table)
    assert view(store).settings()["names"] == {"1-1": "object to verb"}
    store.lens = "norm"
    assert view(store).settings()["names"] == {}
