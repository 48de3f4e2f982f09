"""The panels of Figures 1 and 5 have the sentences and pairs that the tables name."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from viewer_stores import DOCUMENT, word_store

from helpers.data.visible import Visible
from helpers.metrics import panels
from helpers.metrics.head_counts import count_heads
from helpers.metrics.heads import DIRECTIONS
from helpers.metrics.panels import Link, coreference_panels, pattern_panels, relation_panels
from helpers.metrics.surface import RELATIVE_POSITION

POSSESSIVE = {
    "words": ["old", "Ann", "'s", "red", "hat", "has", "a", "hole", "."],
    "heads": [2, 5, 2, 5, 6, 0, 8, 6, 6],
    "relations": ["amod", "poss", "case", "amod", "nsubj", "ROOT", "det", "dobj", "punct"],
    "split": "dev",
}
LISTED = {
    "words": ["However", ",", "one", "old", "scholar", "offers", "an", "other", "answer", "."],
    "heads": [6, 6, 5, 5, 6, 0, 9, 9, 6, 6],
    "relations": [
        *("advmod", "punct", "nummod", "amod", "nsubj"),
        *("ROOT", "det", "amod", "dobj", "punct"),
    ],
    "split": "dev",
}
PATTERNS = dict.fromkeys((*RELATIVE_POSITION, "first", "cls", "sep", "punctuation"), 0.1)


def best_head(relation, direction=DIRECTIONS[0]):
    """Make a row like those of dependency_heads.csv."""
    return {
        "relation": relation, "head": "1-1", "direction": direction, "accuracy": 90.0,
        "baseline": 50.0,
    }  # fmt: skip


def panels_of(store, relation, direction=DIRECTIONS[0]):
    table = pd.DataFrame([best_head(relation, direction)])
    return relation_panels(store, table, {relation: relation})


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_possessor_found_from_its_mark_is_right_as_in_the_table(direction):
    store = word_store(POSSESSIVE, layers=1, heads=1)
    example = store.examples[0]
    example.stored_attention[:] = 0
    example.stored_attention[0, 0, range(11), range(11)] = 1  # every word attends to itself but ...
    # Ann -> red and 's -> hat, or the reverse; positions count [CLS]
    edges = ((2, 4), (3, 5)) if direction == DIRECTIONS[0] else ((4, 2), (5, 3))
    for query, key in edges:
        example.stored_attention[0, 0, query, query] = 0
        example.stored_attention[0, 0, query, key] = 1
    counts = count_heads(store.examples)
    assert counts.accuracy("poss")[DIRECTIONS.index(direction)].item() == 100
    (drawn,) = panels_of(store, "poss", direction)
    assert drawn.correct
    assert drawn.links == [Link(*((2, 4) if direction == DIRECTIONS[0] else (4, 2)), "right")]
    assert drawn.special_share == pytest.approx(0)


def test_relation_panels_have_all_links_of_a_sentence_and_the_attention_to_special_tokens():
    store = word_store(POSSESSIVE, layers=1, heads=1)
    example = store.examples[0]
    example.stored_attention[:] = 0
    example.stored_attention[..., 0] = 1  # to [CLS], except ...
    for query, key, weight in ((1, 2, 0.5), (4, 5, 0.75)):  # ... old -> Ann and red -> hat
        example.stored_attention[0, 0, query, [0, key]] = (1 - weight, weight)
    (drawn,) = panels_of(store, "amod")
    assert drawn.links == [Link(0, 1, "right"), Link(3, 4, "right")]
    assert drawn.special_share == pytest.approx(0.375)


def test_a_wrong_choice_has_the_right_one_beside_it():
    store = word_store(POSSESSIVE, layers=1, heads=1)
    store.examples[0].stored_attention[:] = 0
    store.examples[0].stored_attention[..., 1] = 1  # all words attend to "old"
    (drawn,) = panels_of(store, "det")
    assert drawn.links == [Link(6, 0, "wrong"), Link(6, 7, "missed")]
    assert not drawn.correct


def test_a_success_and_a_failure_are_the_first_of_their_kind():
    store = word_store(*[POSSESSIVE] * 4, layers=1, heads=1)
    for example, key in zip(store.examples, (1, 8, 1, 8), strict=True):  # "old", or "hole"
        example.stored_attention[:] = 0
        example.stored_attention[..., key] = 1
    right, wrong = panels_of(store, "det")
    assert (right.correct, right.location.example) == (True, 1)
    assert (wrong.correct, wrong.location.example) == (False, 0)


def test_panels_have_no_negative_share_of_special_tokens():
    """Rounded weights may sum to a little more than one."""
    store = word_store(POSSESSIVE, layers=1, heads=1)
    store.examples[0].stored_attention[:] = 0
    store.examples[0].stored_attention[..., 2] = 1.001
    (drawn,) = panels_of(store, "amod")
    assert drawn.special_share == 0


def test_relation_panels_of_a_causal_model_have_the_links_that_can_be_seen():
    """A decoder's adjectives see neither of "old Ann" and "red hat", its nouns both."""
    store = word_store(POSSESSIVE, layers=1, heads=1)
    causal = [Visible(causal=True, window=None)]
    maps = np.tril(store.examples[0].attention)
    maps = maps / maps.sum(axis=-1, keepdims=True)
    store.examples[0] = replace(store.examples[0], stored_attention=maps, visible=causal)
    n_panels = [len(panels_of(store, "amod", direction)) for direction in DIRECTIONS]
    assert n_panels == [0, 1]


def test_pattern_panels_have_the_patterns_that_a_head_reaches():
    store = word_store(POSSESSIVE, layers=2, heads=1)
    heads = pd.DataFrame({"layer": [1, 2], "head": 1, "entropy": [3.0, 2.4], "uniform": [4.5, 2.5]})
    heads = heads.assign(**PATTERNS).assign(next=[0.2, 0.6], sep=[0.59, 0.0])
    broad, to_next = pattern_panels(store, heads)
    assert broad.location[1:3] == (2, 1)  # the broadest of what its layer sees
    assert "2.4 of 2.5" in broad.title
    assert "60%" in to_next.title
    np.testing.assert_array_equal(to_next.weights, store.examples[0].attention[1, 0])


def test_pattern_panels_draw_the_first_token_of_a_model_without_special_ones():
    store = word_store(POSSESSIVE, layers=1, heads=1)
    heads = pd.DataFrame([{"layer": 1, "head": 1, "entropy": 1.0, "uniform": 4.0, **PATTERNS}])
    heads = heads.assign(cls=np.nan, sep=np.nan, first=0.7)
    (drawn,) = pattern_panels(store, heads)
    assert drawn.title == "Head 1-1: 70% to the first token"
    assert drawn.word_types[0] == "first"


def repeated(record, times):
    return {name: value * times for name, value in record.items() if name != "split"}


@pytest.mark.parametrize("times", [1, 3])  # 9 and 27 words, next to a sentence of 36
def test_pattern_panels_draw_the_sentence_closest_to_an_easy_length(times):
    store = word_store(repeated(POSSESSIVE, 4), repeated(POSSESSIVE, times), layers=1, heads=1)
    heads = pd.DataFrame([{"layer": 1, "head": 1, "entropy": 4.0, "uniform": 4.0, **PATTERNS}])
    (drawn,) = pattern_panels(store, heads)
    assert drawn.location.example == 1


@pytest.fixture
def store_of_ann():
    """Make a store of one document in which every word attends to its first word, Ann."""
    store = word_store(DOCUMENT, layers=1, heads=1)
    store.examples[0].stored_attention[:] = 0
    store.examples[0].stored_attention[..., 1] = 1
    return store


COREFERENCE_TABLE = pd.DataFrame({
    "system": ["head", "nearest mention"], "type": "all", "accuracy": [50.0, 20.0],
})  # fmt: skip


def test_coreference_panels_draw_a_mention_and_the_words_before_it(store_of_ann):
    right, wrong = coreference_panels(store_of_ann, (0, 0), COREFERENCE_TABLE)
    assert right.words == DOCUMENT["words"][:5]
    assert right.links == [Link(4, 0, "right")]
    assert wrong.words == DOCUMENT["words"][:9]
    assert wrong.links == [Link(8, 0, "wrong"), Link(8, 2, "missed")]
    assert list(right.scores.values()) == [50, 20]


def test_coreference_panels_need_the_antecedent_among_the_words(store_of_ann, monkeypatch):
    monkeypatch.setattr(panels, "MAX_WORDS", 4)
    assert coreference_panels(store_of_ann, (0, 0), COREFERENCE_TABLE) == []


def test_relation_panels_take_hand_checked_sentences_if_the_treebank_has_them(monkeypatch):
    checked = {"dobj": [" ".join(LISTED["words"])]}
    monkeypatch.setattr(panels, "checked_sentences", lambda: checked)
    store = word_store(POSSESSIVE, LISTED, layers=1, heads=1)
    drawn = panels_of(store, "dobj")
    assert [(panel.location.example, panel.chosen) for panel in drawn] == [(1, panels.CHECKED)]
    assert panels.describe_choice(drawn) != panels.describe_choice([])
    drawn = panels_of(word_store(POSSESSIVE, layers=1, heads=1), "dobj")
    assert {panel.chosen for panel in drawn} == {panels.BY_RULE}


def test_hand_checked_sentences_fit_into_a_panel_and_are_listed_once():
    for relation, sentences in panels.checked_sentences().items():
        assert len(set(sentences)) == len(sentences), relation
        for sentence in sentences:
            words = sentence.split()
            assert panels.MIN_WORDS <= len(words) <= panels.MAX_WORDS, sentence
            assert max(map(len, words)) <= panels.MAX_LETTERS, sentence


def test_relation_panels_have_held_out_accuracies_and_three_relations_in_a_fixed_order():
    names = ["poss", "pobj", "amod", "det", "dobj"]
    held_out = pd.DataFrame([best_head(name) for name in names])
    held_out = held_out.assign(
        dev_accuracy=70.0, nearest_class="NOUN", nearest_side="left", nearest_accuracy=90.0
    )
    relations = ["nsubj", "pobj", "pobj", "poss", "det", "ROOT", "det", "dobj", "punct"]
    store = word_store({**POSSESSIVE, "relations": relations}, layers=1, heads=1)
    mapping = {name: name for name in names if name != "amod"}
    drawn = relation_panels(store, held_out, mapping, held_out=held_out)
    relations = dict.fromkeys(panel.location.relation for panel in drawn)
    assert list(relations) == ["dobj", "det", "pobj"]
    assert all(list(panel.scores.values()) == [70, 50, 90] for panel in drawn)
