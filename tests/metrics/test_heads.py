"""Labels of attention heads, and the word that a head picks: by hand."""

import numpy as np
import pytest

from helpers.data.links import read_links
from helpers.metrics.heads import (
    DIRECTIONS,
    by_head,
    head_label,
    head_labels,
    head_rows,
    is_right,
    parse_head,
    picked_words,
    sees_answer,
)

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
    links = read_links({"words": "abcd", "pairs": [[0, 1, "det"]]})
    assert not is_right(picked_words(maps, links.query), links).any()


def test_a_head_picks_nothing_if_all_weights_that_it_sees_are_equal():
    maps = np.tril(np.ones((4, 4))) / np.arange(1, 5)[:, None]
    visible = np.tril(np.ones((4, 4), bool))
    # The second word sees one other, which gets all that there is to get.
    assert picked_words(maps, visible=visible).tolist() == [0, 0, 2, 3]
    assert picked_words(maps, direction=TO_DEPENDENT, visible=visible).tolist() == [1, 2, 3, 3]


def test_a_possessor_whose_mark_picks_nothing_is_wrong():
    """Even where the annotation attaches it to the mark itself."""
    links = read_links({"words": ["Ann", "'s", "hat"], "pairs": [[0, 1, "poss"]]})
    assert links.query.tolist() == [1]
    picked = picked_words(np.full((3, 3), 1 / 3), links.query)
    assert not is_right(picked, links).any()


def test_sees_answer_of_links_to_both_sides():
    visible = np.tril(np.ones((4, 4), bool))
    links = read_links({"words": "abcd", "pairs": [[0, 2, "det"], [3, 1, "dobj"]]})
    seen = [sees_answer(links, visible, direction).tolist() for direction in DIRECTIONS]
    assert seen == [[False, True], [True, False]]


def test_picked_words_are_candidates_of_each_query(attention):
    candidates = np.array([[False, True, True], [True, False, False]])
    unchanged = candidates.copy()
    picked = picked_words(attention, np.array([2, 0]), candidates=candidates)
    assert picked.tolist() == [1, 0]  # word 0 has no candidate but itself
    assert (candidates == unchanged).all()


def test_picked_words_without_candidates_are_the_words_themselves():
    assert picked_words(np.ones((1, 1))).tolist() == [0]
    none = np.zeros((1, 3), bool)
    assert picked_words(np.full((3, 3), 0.5), np.array([2]), candidates=none).tolist() == [2]


def test_picks_outside_the_text_are_not_right():
    links = read_links({"words": "abc", "pairs": [[0, 2, "det"], [2, 0, "dobj"]]})
    picked = np.array([[-1, 0], [2, 3], [5, -3]])
    assert is_right(picked, links).tolist() == [[False, True], [True, False], [False, False]]


def test_answer_of_a_possessor_is_read_from_its_mark(attention):
    links = read_links({"words": ["my", "hat", "'s"], "pairs": [[1, 0, "poss"]]})
    assert is_right(picked_words(attention, links.query), links).tolist() == [True]


def test_answer_of_coreference_is_another_mention():
    weights = np.array([[0, 0.9, 0.1, 0], [0.2, 0, 0.8, 0], [0.3, 0.1, 0, 0.6], [1, 0, 0, 0]])
    mentions = [[0, 1, 7, 0], [1, 2, None, 1], [2, 3, 7, 2]]
    links = read_links({"words": "abcd", "mentions": mentions})
    picked = picked_words(weights, links.query, candidates=links.candidates)
    assert picked.tolist() == [0]  # the last word has more attention, and is no mention
    assert is_right(picked, links).tolist() == [True]


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
def test_picks_of_equal_weights_are_the_first_candidates(direction):
    """Weights of three sizes: most are equal, some words see others of one weight or of none."""
    rng = np.random.default_rng(0)
    n = 9
    maps = rng.integers(3, size=(1, 40, n, n)) * rng.integers(2, size=(1, 40, n, 1)) / 7
    for sees in (np.ones((n, n), bool), np.tril(np.ones((n, n), bool))):
        for candidates in (np.arange(n) % 4 != 1, np.ones(n, bool), np.arange(n) == 3):
            picks = picked_words(
                maps[0],
                direction=direction,
                candidates=np.broadcast_to(candidates, (n, n)),
                visible=sees,
            )
            for head, query in np.ndindex(40, n):
                by_query = maps[0, head] if direction == DIRECTIONS[0] else maps[0, head].T
                seen = sees if direction == DIRECTIONS[0] else sees.T
                keys = [key for key in range(n) if candidates[key] and seen[query, key]]
                weights = {key: by_query[query, key] for key in keys if key != query}
                best = max(weights, key=weights.get, default=query)  # the first of equal ones
                differ = len(set(weights.values())) > 1 or len(weights) == 1
                expected = best if differ and weights[best] > 0 else query
                assert picks[head, query] == expected
