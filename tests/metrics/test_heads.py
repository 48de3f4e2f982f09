"""Labels of attention heads, and the word that a head picks: by hand."""

import numpy as np
import pytest

from helpers.data.links import labelled_pairs
from helpers.data.visible import Visible
from helpers.metrics.heads import (
    COREFERENCE,
    DIRECTIONS,
    PickFrom,
    Question,
    by_head,
    gold_links,
    head_label,
    head_labels,
    head_rows,
    pair_questions,
    parse_head,
    picked_words,
    picks_in,
    predict_link,
    sees_answer,
)
from helpers.store.store import Example

TO_DEPENDENT = DIRECTIONS[1]


@pytest.fixture
def attention():
    """The map of one head over three words."""
    return np.array([[0.8, 0.2, 0.0], [0.1, 0.7, 0.2], [0.6, 0.3, 0.1]])


def test_picked_words_are_never_the_word_itself(attention):
    assert picked_words(attention).tolist() == [1, 2, 0]  # the largest of each row
    assert picked_words(attention, direction=TO_DEPENDENT).tolist() == [2, 2, 1]  # of each column


def test_picked_words_of_many_heads_have_their_shape(attention):
    maps = np.stack([attention, attention.T])[None]  # [layer, head, word, word]
    assert picked_words(maps).tolist() == [[[1, 2, 0], [2, 2, 1]]]


def test_picked_words_of_some_equal_weights_are_the_first():
    weights = np.array([[0.2, 0.3, 0.3, 0.2], [0.4, 0.1, 0.1, 0.4]])
    assert picked_words(np.tile(weights, (2, 1))).tolist() == [1, 0, 1, 0]


@pytest.mark.parametrize("weight", [0.25, 0.0])
def test_a_head_picks_nothing_if_all_weights_are_equal(weight):
    """The word itself stands for no pick, whatever attention it gets."""
    maps = np.full((4, 4), weight)
    np.fill_diagonal(maps, 1 - 3 * weight)
    assert picked_words(maps).tolist() == [0, 1, 2, 3]
    question = Question("det", 0, (1,))
    assert not predict_link(question, maps, DIRECTIONS[0])[1]


def test_a_head_picks_nothing_if_all_weights_that_it_sees_are_equal():
    maps = np.tril(np.ones((4, 4))) / np.arange(1, 5)[:, None]
    visible = np.tril(np.ones((4, 4), bool))
    # The second word sees one other, which gets all that there is to get.
    assert picked_words(maps, visible=visible).tolist() == [0, 0, 2, 3]
    assert picked_words(maps, direction=TO_DEPENDENT, visible=visible).tolist() == [1, 2, 3, 3]


def test_a_possessor_whose_mark_picks_nothing_is_wrong():
    """Even where the annotation attaches it to the mark itself."""
    question = Question("poss", 0, (1,), mark=1)
    _, is_right = predict_link(question, np.full((3, 3), 1 / 3), DIRECTIONS[0])
    assert not is_right


def test_sees_answer_of_links_to_both_sides():
    visible = np.tril(np.ones((4, 4), bool))
    to_right = Question("det", 0, (2,))
    to_left = Question("dobj", 3, (1,))
    seen = [
        [bool(sees_answer(question, visible, direction)) for direction in DIRECTIONS]
        for question in (to_right, to_left)
    ]
    assert seen == [[False, True], [True, False]]
    antecedents = Question(COREFERENCE, 1, (0, 3), mention=1, candidates=(0, 3))
    assert sees_answer(antecedents, visible, TO_DEPENDENT)
    assert not sees_answer(antecedents._replace(gold=(3,)), visible, TO_DEPENDENT)


def test_picked_words_are_candidates_of_each_query(attention):
    candidates = np.array([[False, True, True], [True, False, False]])
    unchanged = candidates.copy()
    picked = picked_words(attention, np.array([2, 0]), candidates=candidates)
    assert picked.tolist() == [1, 0]  # word 0 has no candidate but itself
    assert (candidates == unchanged).all()


def test_picked_words_without_candidates_are_the_words_themselves():
    assert picked_words(np.ones((1, 1))).tolist() == [0]
    question = Question(COREFERENCE, 2, (), candidates=())
    picked, right = predict_link(question, np.full((3, 3), 0.5), DIRECTIONS[0])
    assert picked == 2
    assert not right


POSSESSORS = {
    "words": ["my", "sister", "'s", "hat", "'s"],
    "heads": [2, 4, 4, 0, 4],  # whatever the 's is attached to
    "relations": ["poss", "poss", "case", "ROOT", "case"],
}


def test_trees_become_pairs_with_the_root_as_its_own_partner():
    assert labelled_pairs(POSSESSORS) == [
        (0, 1, "poss"), (1, 3, "poss"), (2, 3, "case"), (3, 3, "ROOT"), (4, 3, "case"),
    ]  # fmt: skip
    assert labelled_pairs({"words": ["a"], "pairs": [[0, 0, "root"]]}) == [(0, 0, "root")]
    assert labelled_pairs({"tokens": ["a"]}) == []


def test_questions_of_pairs_are_asked_once_for_each_word_and_label():
    pairs = [[0, 3, "contact"], [4, 4, "root"], [0, 1, "contact"], [0, 2, "bond"]]
    record = {"words": POSSESSORS["words"], "pairs": pairs}
    assert list(gold_links(record)) == [
        Question("contact", 0, (1, 3)),
        Question("bond", 0, (2,)),
    ]
    assert list(pair_questions(record))[1] == Question("root", 4, ())


def test_questions_of_a_sentence_leave_out_the_root():
    assert list(gold_links(POSSESSORS)) == [
        Question("poss", 0, (1,)),
        Question("poss", 1, (3,), mark=2),
        Question("case", 2, (3,)),
        Question("case", 4, (3,)),
    ]


def test_questions_of_a_document_are_mentions_with_an_antecedent():
    mentions = [[4, 5, 1, 4], [0, 2, 1, 1], [2, 3, None, 2], [6, 8, 1, 7], [9, 10, 2, 9]]
    assert list(gold_links({"words": ["a"] * 10, "mentions": mentions})) == [
        Question(COREFERENCE, 4, (1,), mention=2, candidates=(1, 2, 7, 9)),
        Question(COREFERENCE, 7, (1, 4), mention=3, candidates=(1, 2, 4, 9)),
    ]


def test_questions_of_a_text_without_annotation_are_none():
    assert list(gold_links({"tokens": ["[CLS]", "a", "[SEP]"]})) == []


def test_answer_of_a_possessor_is_read_from_its_mark(attention):
    question = Question("poss", 0, (0,), mark=2)
    picked, right = predict_link(question, attention, DIRECTIONS[0])
    assert picked == 0
    assert right


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_answer_of_coreference_is_read_from_the_mention(direction):
    weights = np.array([[0, 0.9, 0.1], [0.2, 0, 0.8], [0.7, 0.3, 0]])
    question = Question(COREFERENCE, 2, (0,), candidates=(0, 1))
    picked, right = predict_link(question, weights, direction)
    assert picked == 0
    assert right


def test_parse_head_undoes_head_label():
    assert head_label(7, 9) == "8-10"
    assert parse_head("8-10") == (7, 9)
    assert parse_head(" 8-10 ") == (7, 9)


def test_head_rows_are_in_the_order_of_head_labels():
    assert head_labels(2, 3) == ["1-1", "1-2", "1-3", "2-1", "2-2", "2-3"]
    table = head_rows(2, 3, value=np.arange(6).reshape(2, 3))
    assert list(table) == ["layer", "head", "value"]
    assert table["value"].tolist() == [0, 1, 2, 3, 4, 5]
    labels = [head_label(row.layer - 1, row.head - 1) for row in table.itertuples()]
    assert labels == head_labels(2, 3)


def test_by_head_undoes_head_rows():
    values = np.arange(6.0).reshape(2, 3)
    shuffled = head_rows(2, 3, value=values).sample(frac=1, random_state=0)
    assert (by_head(shuffled, "value") == values).all()


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_picks_in_equal_weights_are_the_first_candidates(direction):
    """Weights of three sizes: most are equal, some words see others of one weight or of none."""
    rng = np.random.default_rng(0)
    n = 9
    maps = rng.integers(3, size=(1, 40, n, n)) * rng.integers(2, size=(1, 40, n, 1)) / 7
    record = {"tokens": [str(token) for token in range(n)]}
    causal = Visible(causal=True, window=None)
    for visible, sees in (((), np.ones((n, n))), ([causal], np.tril(np.ones((n, n))))):
        example = Example(0, maps.astype(np.float32), record, visible=visible)
        for candidates in (np.arange(n) % 4 != 1, np.ones(n, dtype=bool), np.arange(n) == 3):
            (picks,) = picks_in(example, [PickFrom(candidates, direction)])
            for head, query in np.ndindex(40, n):
                by_query = maps[0, head] if direction == DIRECTIONS[0] else maps[0, head].T
                seen = sees if direction == DIRECTIONS[0] else sees.T
                keys = [key for key in range(n) if candidates[key] and seen[query, key]]
                weights = {key: by_query[query, key] for key in keys if key != query}
                best = max(weights, key=weights.get, default=query)  # the first of equal ones
                differ = len(set(weights.values())) > 1 or len(weights) == 1
                expected = best if differ and weights[best] > 0 else query
                assert picks[0, head, query] == expected
