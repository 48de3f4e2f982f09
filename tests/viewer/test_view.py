"""What the viewer sends is what the store holds, judged as the analyses judge, and stays text."""

import base64
import html
import json
import re
import zlib
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
import seaborn as sns
from matplotlib import colormaps
from matplotlib.colors import to_hex
from toy_corpora import corpus_of, sentence_of
from viewer_stores import (
    BIDI_SENTENCE,
    BIDI_SHOWN,
    BIDI_TEXT,
    DOCUMENT,
    HOSTILE,
    OTHER,
    SENTENCE,
    MemoryStore,
    token_store,
    word_store,
)

from helpers.analysis.heads import COREFERENCE, DIRECTIONS, answer, questions
from helpers.errors import InputError
from helpers.model.forward import forward, model_inputs
from helpers.plots.style import DIVERGING as SIGNED
from helpers.plots.style import SEQUENTIAL
from helpers.store.extract import extract
from helpers.store.store import Example
from helpers.viewer import view as viewer
from helpers.viewer.page import (
    BIDI_CONTROLS,
    DIVERGING,
    RAMP,
    document,
    embedded_page,
    summaries,
    thumbnails,
)
from helpers.viewer.view import ViewerWidget, masked_example, to_bertviz, view, viewers


def html_of(shown):
    return document(shown.heading, shown.data())


def data_of(page):
    text = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    data = json.loads(text[1])
    return data | data["panes"][0]


def unpack(text):
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8)


def test_embedded_weights_are_those_of_the_store():
    store = word_store(SENTENCE)
    page = embedded_page(store, store[0], range(12))
    assert page["labels"][:5] == ["1-1", "1-2", "1-3", "1-4", "2-1"]
    for head in range(12):
        high, low = unpack(page["maps"][head]).astype(float).reshape(2, 9, 9)
        expected = store[0].attention[divmod(head, 4)].astype(float)
        np.testing.assert_allclose((256 * high + low) / 10_000, expected, atol=0.51e-4)


def test_tokens_and_kinds_include_the_special_tokens():
    store = word_store(OTHER)
    page = embedded_page(store, store[0], [0])
    assert page["tokens"] == ["[CLS]", "Ann", "saw", "the", "dog", ".", "[SEP]"]
    assert page["kinds"] == ["cls", *["other"] * 4, "punctuation", "sep"]
    assert page["special"] == [0, 6]


def test_a_small_map_holds_the_largest_weight_of_each_cell():
    maps = np.zeros((1, 1, 64, 64))
    maps[0, 0, 3, 63], maps[0, 0, 2, 62] = 1.0, 0.5
    small = thumbnails(maps, range(64))
    assert small.shape == (1, 32, 32)
    assert small[0, 1, 31] == 255
    assert np.count_nonzero(small) == 1


def test_summaries_name_where_most_attention_goes():
    maps = np.zeros((1, 3, 3, 3))
    maps[0, 0, :, 2] = 1
    maps[0, 1] = np.eye(3)
    maps[0, 2] = np.eye(3, k=1)
    maps[0, 2, 2, 0] = 1
    masks = {"sep": np.array([False, False, True]), "other": np.array([True, True, False])}
    found = summaries(maps, masks, {"sep": "[SEP]"})
    assert found == ["100% to [SEP]", "100% to itself", "67% to the next"]


@pytest.mark.parametrize("record", [SENTENCE, DOCUMENT], ids=["syntax", "coreference"])
def test_the_browser_is_sent_what_every_head_picks(record):
    store = word_store(record)
    example, own = store[0], store[0].word_positions
    sent = unpack(embedded_page(store, example, [0])["buffers"][2]).view("<u2")
    sent = sent.reshape(2, 3, 4, len(list(questions(record))))
    for direction, layer, head in np.ndindex(2, 3, 4):
        weights = example.attention[layer, head, own, own]
        expected = [answer(asked, weights, DIRECTIONS[direction]) for asked in questions(record)]
        found = sent[direction, layer, head]
        assert found.tolist() == [2 * (picked + 1) + right for picked, right in expected]


def test_the_small_maps_have_the_colours_of_the_figures():
    assert ["#ffffff", *sns.color_palette(SEQUENTIAL, 12).as_hex()] == RAMP
    assert [to_hex(colormaps[SIGNED](place / 4)) for place in range(5)] == DIVERGING


def store_with_known_answers():
    """Head 1-1 is right about the first sentence's dobj and wrong about the second's."""
    maps = [np.zeros((1, 1, len(record["words"]) + 2, len(record["words"]) + 2))
            for record in (SENTENCE, OTHER)]  # fmt: skip
    maps[0][0, 0, 6, 3] = maps[1][0, 0, 4, 3] = 1
    examples = [Example(i, maps[i], record) for i, record in enumerate((SENTENCE, OTHER))]
    return MemoryStore(examples, "word")


def test_search_by_relation_and_by_word():
    here = view(store_with_known_answers())

    def places(**wanted):
        return here.search(**wanted)[["example", "asked", "word"]].to_numpy().tolist()

    right, wrong = [0, 6, HOSTILE], [1, 4, "dog"]
    assert places(relation="dobj") == [right, wrong] and places(relation="dobj", limit=1) == [right]
    assert places(relation="dobj", right=True) == [right]
    (found,) = here.search(relation="dobj", right=False).itertuples()
    assert (found.word, found.picked, found.gold) == ("dog", "the", "saw")
    assert places(word="DOG") == [[0, 2, "dog"], wrong] and not places(word="cat")
    assert places(word="dog", relation="dobj") == [wrong]
    tokens = view(token_store(1, 1, 5)).search(word="token1")
    assert tokens[["example", "asked"]].to_numpy().tolist() == [[0, 2]]
    with pytest.raises(InputError, match="word"):
        here.search()


def test_corpus_text_stays_text():
    store = word_store(SENTENCE)
    page = html_of(view(store, title=HOSTILE))
    assert page.count("<script") == page.count("</script>") == 2
    assert "<img" not in page
    assert data_of(page)["pages"][0]["tokens"][6] == HOSTILE
    frame = view(store, title=HOSTILE)._repr_mimebundle_()[0]["text/html"]
    assert re.fullmatch(r"<iframe( [a-z]+=\"[^\"]*\")+></iframe>", frame)


def test_a_page_shows_bidirectional_control_characters():
    text = html_of(view(word_store(BIDI_SENTENCE), title=BIDI_TEXT))
    assert not BIDI_CONTROLS.search(text)
    assert BIDI_SHOWN in data_of(text)["title"]
    shown = data_of(text)["pages"][0]
    assert shown["tokens"] == ["[CLS]", "Ann", BIDI_SHOWN, ".", "[SEP]"]
    assert shown["source"] == f"{BIDI_SHOWN}, sentence 1"


def test_a_widget_shows_bidirectional_control_characters():
    widget = ViewerWidget(view(word_store(BIDI_SENTENCE), title=BIDI_TEXT))
    assert widget.settings["panes"][0]["title"] == BIDI_SHOWN
    content, _ = widget.answer({"kind": "page", "pane": 0, "example": 0}, [])
    assert content["page"]["tokens"][2] == BIDI_SHOWN
    content, _ = widget.answer(ASKED | {"word": BIDI_TEXT, "relation": ""}, [])
    assert [hit["word"] for hit in content["found"]] == [BIDI_SHOWN]


@pytest.mark.parametrize("path", sorted(Path(viewer.__file__).parent.iterdir()), ids=str)
def test_templates_and_scripts_have_no_bidirectional_control_characters(path):
    """They would be replaced in every page, as those of a corpus are."""
    assert path.is_dir() or not BIDI_CONTROLS.search(path.read_text(encoding="utf-8"))


ASKED = {"kind": "search", "pane": 0, "head": 0, "direction": DIRECTIONS[0], "right": None}


def test_the_kernel_answers_a_search_and_reports_a_mistake():
    widget = ViewerWidget(view(store_with_known_answers()))
    query = ASKED | {"word": "", "relation": "dobj", "right": False}
    content, _ = widget.answer(query, [])
    assert [hit["word"] for hit in content["found"]] == ["dog"] and not content["more"]
    refused = widget.answer({"kind": "page", "pane": 0, "example": 2}, [])
    assert refused == ({"error": "no example 2: the store has 0 to 1"}, [])
    relations = widget.settings["panes"][0]["relations"]
    assert relations == ["case", "det", "dobj", "nsubj", "poss", "punct"]
    for places in (50, 51):  # more than it shows
        widget = ViewerWidget(view(word_store(*[OTHER] * places)))
        content, _ = widget.answer(ASKED | {"word": "dog", "relation": ""}, [])
        assert (len(content["found"]), content["more"]) == (50, places > 50)


def test_a_notebook_output_has_a_form_for_pages_without_a_kernel(monkeypatch):
    shown = view(word_store(SENTENCE), layer=1, head=2)
    for limit, heads in ((1_000_000, [str(head) for head in range(12)]), (100, ["1"])):
        monkeypatch.setattr(viewer, "NOTEBOOK_LIMIT", limit)
        bundle, _ = shown._repr_mimebundle_()
        assert {*bundle} == {"text/plain", "text/html", "application/vnd.jupyter.widget-view+json"}
        assert list(data_of(html.unescape(bundle["text/html"]))["pages"][0]["maps"]) == heads


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"example": 1}, "no example 1: the store has 0 to 0"),
        ({"layer": 4}, "no head 4-1: the model has 1-1 to 3-4"),
        ({"relation": "dojb"}, "no relation 'dojb' here; there are case, det, dobj"),
        ({"direction": "up"}, "no direction 'up'; there are dependent attends to head"),
    ],
)
def test_what_does_not_exist_is_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        view(word_store(SENTENCE), **arguments)


def test_to_bertviz_gives_a_tensor_for_each_layer():
    store = word_store(OTHER)
    maps, tokens = to_bertviz(store, 0)
    assert [tuple(layer.shape) for layer in maps] == [(1, 4, 7, 7)] * 3
    np.testing.assert_array_equal(maps[2][0, 1].numpy(), store[0].attention[2, 1])
    assert tokens == ["[CLS]", *OTHER["words"], "[SEP]"]


def test_each_example_is_opened_in_the_store_that_it_is_from():
    treebank, documents = word_store(SENTENCE), word_store(DOCUMENT, DOCUMENT)
    columns = ["title", "example", "layer", "head", "relation", "direction"]
    rows = [
        ("a", 0, 1, 2, "", ""),
        ("b", 1, 2, 1, COREFERENCE, ""),
        ("c", 0, 2, 2, "dobj", DIRECTIONS[1]),
    ]
    table = pd.DataFrame(rows, columns=columns)
    found = viewers(table, lambda: treebank, lambda: documents)
    assert [(shown.store is documents, shown.example, shown.head) for shown in found] == [
        (False, 0, (0, 1)), (True, 1, (1, 0)), (False, 0, (1, 1))
    ]  # fmt: skip
    assert found[2].direction == DIRECTIONS[1]
    (first,) = viewers(table.head(0), lambda: treebank, lambda: documents)
    assert first.store is treebank and first.example == 0


WORDS = ["the", "dog", "saw", "Ann", "."]


@pytest.fixture
def store(encoder, own_cache):
    corpus = corpus_of([sentence_of(WORDS), sentence_of(WORDS[::-1])])
    return extract(encoder, corpus, level="word", max_tokens=32)


def test_a_masked_word_changes_the_maps_as_the_mask_token_in_the_text_does(
    encoder, store, tmp_path
):
    masked = masked_example(store, 0, [2], encoder)
    assert masked.record["words"] == ["the", encoder.tokenizer.mask_token, "saw", "Ann", "."]
    corpus = corpus_of([sentence_of(masked.record["words"])], name="masked")
    options = {"level": "word", "max_tokens": 32}
    expected = extract(encoder, corpus, **options)[0].attention
    np.testing.assert_allclose(masked.attention, expected, atol=1e-3)
    assert np.abs(masked.attention - store[0].attention).max() > 0.01
    widget = ViewerWidget(view(store, encoder=encoder))
    asked = {"kind": "map", "pane": 0, "example": 0, "head": 0, "masked": [2]}
    with patch.object(viewer, "masked_example", return_value=masked) as once:
        assert widget.answer(asked, []) == widget.answer(asked, [])
    once.assert_called_once()


def test_the_neuron_view_is_of_the_tokens_with_most_attention(encoder, store):
    asked = {"kind": "neurons", "pane": 0, "example": 0, "head": 6, "position": 3, "piece": 1}
    found, _ = ViewerWidget(view(store, encoder=encoder)).answer(asked, [])
    maps, _ = forward(encoder, [inputs := model_inputs(encoder, store[0].record)])
    own = inputs["groups"].index(3) + 1  # the second token of the word
    weights, keys = maps[1][0, 2, own].topk(10)
    tokens = encoder.tokenizer.convert_ids_to_tokens(inputs["input_ids"])
    assert found["tokens"] == [tokens[key] for key in keys] and found["pieces"][1] == tokens[own]
    np.testing.assert_allclose(found["weights"], weights, atol=1e-6)
    scores = found["scale"] * np.array(found["keys"]) @ found["query"] + found["other"]
    np.testing.assert_allclose(np.diff(scores), np.diff(weights.log()), atol=1e-4)


def test_another_model_cannot_mask(tiny_encoder, encoder, store):
    with pytest.raises(InputError, match="is not that model"):
        view(store, encoder=tiny_encoder("roberta"))
