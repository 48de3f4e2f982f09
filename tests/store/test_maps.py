"""Attention maps of other tools: arrays and files become a store that everything reads."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from helpers.errors import InputError
from helpers.metrics import clustering, surface
from helpers.metrics.dependency_heads import relation_tables
from helpers.metrics.head_counts import count_heads
from helpers.metrics.reference import ALL
from helpers.store.maps import open_maps
from helpers.store.store import open_store
from helpers.viewer.view import view

LAYERS = 3
HEADS = 2
PATCHES = ["[CLS]", *(f"{row},{column}" for row in range(4) for column in range(4))]
TOKENS = ["[CLS]", "re", "##ads", "books", ".", "[SEP]"]
WORDS = [None, 0, 0, 1, 2, None]
SOURCE = ["[CLS]", "das", "ist", "gut", ".", "[SEP]"]
TARGET = ["that", "is", "good", "."]


def softmax_maps(n_queries, n_keys, seed=0):
    """Make maps with random weights, [layer, head, query, key]."""
    generator = np.random.default_rng(seed)
    weights = np.exp(2 * generator.normal(size=(LAYERS, HEADS, n_queries, n_keys)))
    return weights / weights.sum(axis=-1, keepdims=True)


def test_open_maps_of_patches_run_through_sections_3_and_6():
    maps = [softmax_maps(17, 17, seed) for seed in range(6)]
    store = open_maps(maps, [PATCHES] * 6, name="vit")
    assert (store.layers, store.heads, len(store)) == (LAYERS, HEADS, 6)
    assert store.special_tokens == {"cls": "[CLS]", "sep": None}
    assert not any(layer.causal or layer.window for layer in store.visible)
    np.testing.assert_allclose(store[4].attention, maps[4], atol=1e-3)
    shares = surface.head_table(surface.sums(store), ["cls", "previous"])
    to_cls = np.mean([m[..., 0].mean(axis=-1) for m in maps], axis=0)
    np.testing.assert_allclose(shares["cls"], to_cls.ravel(), atol=1e-3)
    distances, _ = clustering.distances(store)
    by_hand = np.mean([clustering.head_distances(m) for m in maps], axis=0)
    np.testing.assert_allclose(distances, by_hand, rtol=0.01, atol=0.01)


def test_open_maps_of_cross_attention_has_the_measures_that_need_no_square():
    maps = [softmax_maps(4, 6, seed) for seed in range(9)]
    documents = [{"document": f"d{number // 2}"} for number in range(9)]
    store = open_maps(maps, [(TARGET, SOURCE)] * 9, records=documents, name="translator")
    assert store[0].is_cross and store[0].tokens == SOURCE
    assert store[0].visible_keys.shape == (LAYERS, 4, 6)
    sums = surface.sums(store)
    table = surface.head_table(sums, ["cls", "sep", "punctuation", "entropy", "uniform"])
    for column, key in (("cls", 0), ("sep", 5), ("punctuation", 4)):
        by_hand = np.mean([m[..., key].mean(axis=-1) for m in maps], axis=0)
        np.testing.assert_allclose(table[column], by_hand.ravel(), atol=1e-3)
    entropies = np.mean([-(m * np.log(m)).sum(axis=-1).mean(axis=-1) for m in maps], axis=0)
    np.testing.assert_allclose(table["entropy"], entropies.ravel(), atol=5e-3)
    np.testing.assert_allclose(table["uniform"], np.log(6))
    others = surface.head_table(sums, ["sep_to_sep", "other_to_cls", "entropy_from_cls"])
    assert others.drop(columns=["layer", "head"]).isna().all(axis=None)
    assert len(sums.articles) == 5  # documents
    assert np.isnan(sums.mean("previous")).all()
    distances, word_distances = clustering.distances(store)
    assert distances.shape == (6, 6)
    without_special = []
    for index in (0, 8):  # one example in eight
        words = maps[index][..., 1:5]
        without_special.append(clustering.head_distances(words / words.sum(-1, keepdims=True)))
    np.testing.assert_allclose(word_distances, np.mean(without_special, axis=0), atol=0.01)


def test_view_draws_cross_attention_from_queries_to_keys():
    maps = softmax_maps(4, 6)
    maps[2, 1] = np.eye(4, 6)
    store = open_maps(maps, (TARGET, SOURCE))
    viewer = view(store, layer=3, head=2)
    (page,) = viewer.data()["pages"]
    assert page["tokens"] == [*TARGET, *SOURCE]
    assert page["summaries"][0][5] == "25% to [CLS]" and page["questions"] == []
    assert viewer.search(word="gut")["asked"].tolist() == [7]


def test_open_maps_joins_the_tokens_of_a_word():
    layers = tuple(torch.tensor(softmax_maps(6, 6)[layer][None]) for layer in range(LAYERS))
    pairs = [[1, 0, "obj"], [0, 0, "root"]]
    store = open_maps(layers, TOKENS, words=WORDS, records={"pairs": pairs, "document": "d"})
    example = store[0]
    assert example.tokens == ["[CLS]", "reads", "books", ".", "[SEP]"]
    assert example.record["words"] == ["reads", "books", "."] and example.offset == 1
    to_word = torch.cat(layers)[:, :, :, 1:3].sum(dim=-1)
    np.testing.assert_allclose(example.attention[..., 0, 1], to_word[..., 0], atol=1e-3)
    from_word = to_word[:, :, 1:3].mean(dim=-1)
    np.testing.assert_allclose(example.attention[..., 1, 1], from_word, atol=1e-3)
    counts = count_heads(store)
    picks_reads = example.attention[:, :, 2, 1] > example.attention[:, :, 2, 3]
    assert np.array_equal(counts.accuracy("obj")[0], 100 * picks_reads)
    assert counts.size(ALL) == 2 and counts.accuracy(ALL).max() <= 50  # the root is an error


def test_open_maps_splits_documents_into_train_and_dev():
    tokens = list("abcdef")
    records = []
    for number in range(40):
        pairs = [[0, 1, "contact"], [0, 2, "contact"], [3, 4, "bond"]]
        records.append({"pairs": pairs, "document": f"d{number // 4}", "tags": list("NVNVNV")})
    maps = [softmax_maps(6, 6, seed) for seed in range(40)]
    store = open_maps(maps, [tokens] * 40, records=records)
    splits = [record["split"] for record in store.records()]
    assert splits.count("dev") == 8 and store.record(5)["source"] == "maps, document d1, sentence 6"
    tables = relation_tables(store, count_heads(store), minimum=5)
    held_out = tables["dependency_heads_held_out"].set_index("relation")
    assert held_out.loc["contact", "nearest_accuracy"] == 100  # the next V is a partner
    assert held_out.loc["contact", "dev_count"] == 8
    named = open_maps(maps[:2], [tokens] * 2, records=[{**records[0], "split": "dev"}] * 2)
    assert [record["split"] for record in named.records()] == ["dev", "dev"]


def test_open_maps_of_two_texts_in_a_square_has_word_alignments():
    words = [*TARGET, *SOURCE[1:-1]]  # the queries before the keys
    square = np.zeros((LAYERS, HEADS, 8, 8))
    square[:, :, :4, 4:] = softmax_maps(4, 4)
    aligned = {"pairs": [[query, 4 + query, "aligned"] for query in range(4)]}
    square[1, 0, :4, 4:] = np.eye(4)
    counts = count_heads(open_maps(square, words, records=aligned, sink=True))
    assert counts.accuracy("aligned")[0, 1, 0] == 100
    assert np.nanmax(counts.rival_accuracy("aligned")[0]) == 100  # these are word for word


def test_open_maps_finds_a_causal_mask():
    causal = np.tril(np.ones((5, 5)))
    causal /= causal.sum(axis=-1, keepdims=True)
    store = open_maps(np.broadcast_to(causal, (2, 2, 5, 5)), list("abcde"))
    assert all(layer.causal for layer in store.visible)
    uniform = surface.head_table(surface.sums(store), ["uniform"])["uniform"]
    np.testing.assert_allclose(uniform, np.log(np.arange(1, 6)).mean())


def test_open_maps_keeps_its_folder_as_long_as_the_store(monkeypatch):
    first, second = (open_maps(softmax_maps(5, 5, seed), list("abcde")) for seed in (0, 1))
    assert first.key != second.key
    folder = first.folder
    monkeypatch.setenv("HOME", str(folder.parent))
    assert open_store(f"~/{folder.name}").key == first.key
    del first
    assert not folder.exists()


GOOD = softmax_maps(5, 5)
NAN = GOOD.copy()
NAN[1, 0, 2, 3] = np.nan
IN_ORDER = "0, 1, 2 ... in order"


@pytest.mark.parametrize(
    ("maps", "sink", "message"),
    [
        (GOOD * 0.9, False, "example 0: a row .* sum 0.9\\)"),
        (GOOD * 1.1, True, "sum 1.1\\)"),
        (NAN, False, "sum nan"),
        (GOOD - 0.1, False, "smallest -"),
        (GOOD[..., :4], False, r"\[3, 2, 5, 4\] for 5 and 5 tokens"),
        (GOOD[0], False, r"\[2, 5, 5\]"),
        ([GOOD[0], GOOD[0, :1]], False, "equal size"),
        (np.full((1, 1, 5, 5), "x"), False, "can.t convert"),
    ],
)
def test_open_maps_refuses_what_is_no_attention(maps, sink, message):
    with pytest.raises(InputError, match=message):
        open_maps([maps], [list("abcde")], sink=sink)


@pytest.mark.parametrize(
    "words",
    [[0, 1], [1, 0, 0, 2, 3], [0, 1, 0, 2, 3], [0, 2, 3, 4, 5], [1, 2, 3, 4, 5], list("abcde"),
     [-1, 0, 1, 2, -1], [0, 1, None, 2, 3], [None] * 5, 5],
)  # fmt: skip
def test_open_maps_refuses_words_out_of_order(words):
    with pytest.raises(InputError, match=f"{IN_ORDER}|'int' object"):
        open_maps([GOOD], [list("abcde")], words=[words])


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"head": [0] * 5}, "the fields of a record are"),
        (5, "the fields of a record are"),
        ({"document": 3.5}, "document is 3.5"),
        ({"heads": "01111", "relations": list("abcde")}, "heads is '01111'"),
        ({"heads": [0.0] * 5, "relations": list("abcde")}, "heads is"),
        ({"heads": [0] * 5, "relations": [1] * 5}, "relations is"),
        ({"heads": [0] * 5}, "give heads .* relations"),
        ({"heads": [6] * 5, "relations": ["x"] * 5}, "give heads \\(0 to 5"),
        ({"pairs": [], "tags": [1] * 5}, "tags is"),
        ({"pairs": [], "tags": ["N"]}, "give heads .* tags"),
        ({"split": "test"}, "split is 'test'"),
        ({"pairs": [3]}, "pairs is"),
        ({"pairs": [[0, 5, "x"]]}, "has the word 5"),
        ({"mentions": [["0", 1, 1, 0]]}, "a mention"),
        ({"mentions": [[0, 1, "chain", 0]]}, "a mention"),
        ({"mentions": [[0, 6, 1, 0]]}, "a mention"),
        ({"mentions": [[1, 3, 1, 3]]}, "a mention"),
        ({"mentions": [[0, 1, 1]]}, "not enough values"),
    ],
)
def test_open_maps_refuses_annotation_that_does_not_fit(record, message):
    with pytest.raises(InputError, match=message) as error:
        open_maps([GOOD], [list("abcde")], records=[record])
    assert "\n" not in str(error.value)


def layers_of(*examples):
    """A batch as transformers returns it: a tensor [text, head, query, key] for each layer."""
    return tuple(torch.tensor(np.stack(layer)) for layer in zip(*examples, strict=True))


@pytest.mark.parametrize("n_texts", [1, 2, LAYERS, 4])
@pytest.mark.parametrize("form", [tuple, list, np.stack])
def test_open_maps_splits_a_batch_by_text_or_refuses_it(n_texts, form):
    texts = [softmax_maps(5, 5, seed) for seed in range(n_texts)]
    maps = form(layers_of(*texts))
    if n_texts == LAYERS and form is not tuple:  # the same shapes as examples
        with pytest.raises(InputError, match=r"Give tuple\(maps\)"):
            open_maps(maps, [list("abcde")] * n_texts)
        return
    store = open_maps(maps, [list("abcde")] * n_texts)
    for example, expected in zip(store, texts, strict=True):
        np.testing.assert_allclose(example.attention, expected, atol=1e-3)
    if n_texts > 1:
        with pytest.raises(InputError, match="of one text"):
            open_maps(maps, list("abcde"))


def test_open_maps_takes_as_many_examples_as_layers_by_layer():
    texts = [softmax_maps(5, 5, seed) for seed in range(LAYERS)]
    for maps in ([tuple(text) for text in texts], tuple(map(tuple, texts))):
        store = open_maps(maps, [list("abcde")] * LAYERS)
        np.testing.assert_allclose(store[1].attention, texts[1], atol=1e-3)
    longer = [softmax_maps(n, n) for n in (5, 6, 7)]
    assert len(open_maps(longer, [list("abcdefg"[:n]) for n in (5, 6, 7)])) == LAYERS


@pytest.mark.parametrize(
    ("maps", "tokens", "message"),
    [
        ((), list("abcde"), "eager"),
        (None, list("abcde"), "eager"),
        ((None,) * 12, list("abcde"), "sdpa"),
        ((None,) * 12, [list("abcde")] * 2, "sdpa"),
        ((None, GOOD[0]), list("abcde"), "leave layers without maps out"),
        (SimpleNamespace(attentions=(None,)), list("abcde"), "sdpa"),
        ((layers_of(GOOD), layers_of(GOOD)), list("abcde"), "run the model once"),
        ((layers_of(GOOD), layers_of(GOOD)), [list("abcde")], "run the model once"),
        ([GOOD] * 2, [list("abcde")], "of each of the"),
        ([], [], "of each of the"),
        ([GOOD, GOOD[:1]], [list("abcde")] * 2, "layers or heads differ"),
        (GOOD, [101, 102, 103, 104, 105], "convert_ids_to_tokens"),
        (GOOD, torch.arange(5)[None], "convert_ids_to_tokens"),
        ([GOOD], [[1, 2, 3, 4, 5]], "convert_ids_to_tokens"),
        (GOOD, "abcde", "convert_ids_to_tokens"),
        (GOOD, {"input_ids": [1]}, "convert_ids_to_tokens"),
        (GOOD, ["a", None, "b", "c", "d"], "list of texts"),
        (GOOD, [list("abcde"), []], "list of texts"),
        (GOOD, [[list("abcde")]], "list of texts"),
    ],
)
def test_open_maps_refuses_what_is_no_maps_or_no_tokens(maps, tokens, message):
    with pytest.raises(InputError, match=message) as error:
        open_maps(maps, tokens)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("roles", ["[CLS]", ["[CLS]"], {"bos": "a"}])
def test_open_maps_refuses_unknown_roles(roles):
    with pytest.raises(InputError):
        open_maps(GOOD, list("abcde"), special_tokens=roles)


def test_open_maps_needs_a_square_for_words():
    with pytest.raises(InputError, match="need maps from a text to itself"):
        open_maps(GOOD, (list("abcde"), list("abcde")), records={"pairs": []})


def test_open_maps_takes_numbers_and_arrays_of_numpy():
    words = np.array([None, 0, 0, 1, 2, None], dtype=object)
    records = {
        "heads": np.array([0, 1, 1]),
        "relations": np.array(["root", "obj", "punct"]),
        "pairs": [np.array([1, 0, "obj"], dtype=object), (np.int64(2), np.int8(0), "x")],
        "tags": ("V", "N", None),
        "mentions": [[np.int64(0), 1, None, np.int32(0)]],
    }
    store = open_maps(softmax_maps(6, 6), np.array(TOKENS), words=words, records=records)
    record = json.loads(json.dumps(store.record(0)))
    assert record["heads"] == [0, 1, 1] and record["pairs"] == [[1, 0, "obj"], [2, 0, "x"]]
    ids = torch.tensor([0, 0, 1, 1, 2])
    assert open_maps(GOOD, list("abcde"), words=ids)[0].tokens[:2] == ["ab", "cd"]
