"""The panels of Figures 1 and 5 have the sentences and pairs that the tables name."""

import numpy as np
import pandas as pd
import pytest
from viewer_stores import DOCUMENT, word_store

from helpers.metrics import panels
from helpers.metrics.heads import DIRECTIONS
from helpers.metrics.panels import Link, coreference_panels, pattern_panels, relation_panels

POSSESSIVE = {
    "words": ["old", "Ann", "'s", "red", "hat", "has", "a", "hole", "."],
    "heads": [2, 5, 2, 5, 6, 0, 8, 6, 6],
    "relations": ["amod", "poss", "case", "amod", "nsubj", "ROOT", "det", "dobj", "punct"],
    "split": "dev",
}
PATTERNS = dict.fromkeys(("previous", "next", "first", "cls", "sep", "punctuation"), 0.1)
COREFERENCE_TABLE = pd.DataFrame({
    "system": ["nearest mention", "head match", "head"], "type": "all",
    "accuracy": [20.0, 30.0, 50.0],
})  # fmt: skip


def one_head(*records, to=(1,)):
    """Make a store of one head whose words all attend to one position, which counts [CLS]."""
    store = word_store(*records, layers=1, heads=1)
    for example, key in zip(store.examples, to, strict=True):
        example.stored_attention[:] = 0
        example.stored_attention[..., key] = 1
    return store


def panels_of(store, relation, direction=DIRECTIONS[0]):
    row = {"relation": relation, "head": "1-1", "direction": direction}
    table = pd.DataFrame([{**row, "accuracy": 90.0, "baseline": 50.0}])
    return relation_panels(store, table, {relation: relation})


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_possessor_is_found_from_its_mark_as_in_the_table(direction):
    store = one_head(POSSESSIVE)
    maps = store.examples[0].stored_attention[0, 0]
    maps[:] = np.eye(11)  # every word attends to itself but ...
    # ... Ann to red and 's to hat, or the reverse
    ends = ([2, 3], [4, 5]) if direction == DIRECTIONS[0] else ([4, 5], [2, 3])
    maps[ends[0]] = 0
    maps[ends] = 1
    (drawn,) = panels_of(store, "poss", direction)
    assert drawn.links == [Link(*((2, 4) if direction == DIRECTIONS[0] else (4, 2)), "right")]
    assert drawn.special_share == pytest.approx(0)


def test_relation_panels_have_all_links_of_a_sentence_and_the_attention_to_special_tokens():
    store = one_head(POSSESSIVE, to=(0,))
    maps = store.examples[0].stored_attention[0, 0]
    for query, key, weight in ((1, 2, 0.5), (4, 5, 0.75)):  # old -> Ann and red -> hat
        maps[query, [0, key]] = (1 - weight, weight)
    (drawn,) = panels_of(store, "amod")
    assert drawn.links == [Link(0, 1, "right"), Link(3, 4, "right")]
    assert drawn.special_share == pytest.approx(0.375)
    maps[:, 2] = 1.001  # rounded weights may sum to a little more than one
    assert panels_of(store, "amod")[0].special_share == 0


def test_a_success_and_a_failure_are_the_first_of_their_kind():
    store = one_head(*[POSSESSIVE] * 4, to=(1, 8, 1, 8))  # to "old", or to "hole"
    right, wrong = panels_of(store, "det")
    assert (right.correct, right.location.example) == (True, 1)
    assert (wrong.correct, wrong.location.example) == (False, 0)
    assert wrong.links == [Link(6, 0, "wrong"), Link(6, 7, "missed")]


def test_pattern_panels_have_the_patterns_that_a_head_reaches():
    store = word_store(POSSESSIVE, layers=2, heads=1)
    heads = pd.DataFrame({"layer": [1, 2], "head": 1, "entropy": [3.0, 2.4], "uniform": [4.5, 2.5]})
    heads = heads.assign(**PATTERNS).assign(next=[0.2, 0.6], sep=[0.59, 0.0])
    broad, to_next = pattern_panels(store, heads)
    assert broad.location[1:3] == (2, 1)  # the broadest of what its layer sees
    assert "2.4 of 2.5" in broad.title and "60%" in to_next.title
    np.testing.assert_array_equal(to_next.weights, store.examples[0].attention[1, 0])
    heads = heads.assign(cls=np.nan, sep=np.nan, first=[0.7, 0], next=0, entropy=0)
    (first,) = pattern_panels(store, heads)  # of a model without special tokens
    assert "70%" in first.title and first.word_types[0] == "first"


def test_coreference_panels_draw_a_mention_and_the_words_before_it(monkeypatch):
    store = one_head(DOCUMENT)  # all words attend to its first word, Ann, but the man to Bob
    store.examples[0].stored_attention[0, 0, 9] = np.eye(14)[3]
    right, wrong = coreference_panels(store, (0, 0), COREFERENCE_TABLE)
    assert right.words == DOCUMENT["words"][:5]
    assert right.links == [Link(4, 0, "right")]
    assert wrong.words == DOCUMENT["words"][:11]
    # "his": the man is its nearest antecedent
    assert wrong.links == [Link(10, 0, "wrong"), Link(10, 8, "missed")]
    assert list(right.scores.values()) == [50, 20]
    monkeypatch.setattr(panels, "MAX_WORDS", 4)  # the antecedents are further away
    assert coreference_panels(store, (0, 0), COREFERENCE_TABLE) == []


def test_hand_checked_sentences_are_taken_first():
    words = panels.checked_sentences()["dobj"][1].split()
    n = len(words)
    listed = {"words": words, "heads": range(n), "relations": ["dobj"] * n, "split": "dev"}
    drawn = panels_of(word_store(POSSESSIVE, listed, layers=1, heads=1), "dobj")
    assert {(panel.location.example, panel.is_checked) for panel in drawn} == {(1, True)}
    drawn = panels_of(word_store(POSSESSIVE, layers=1, heads=1), "dobj")
    assert not any(panel.is_checked for panel in drawn)
