"""Labels of attention heads, and the word that a head picks: by hand, and every tie."""

import numpy as np
import pandas as pd
import pytest
from references import slow_pick

from helpers.data.links import read_links
from helpers.metrics import by_model, rows_of_model
from helpers.metrics.heads import (
    DIRECTIONS,
    by_head,
    head_indices,
    head_label,
    head_labels,
    head_rows,
    is_right,
    parse_head,
    picked_words,
    sees_answer,
)

CAUSAL = np.tril(np.ones((4, 4), bool))


def test_picked_words_by_hand():
    attention = np.array([[0.8, 0.2, 0.0], [0.1, 0.7, 0.2], [0.6, 0.3, 0.1]])
    assert picked_words(attention).tolist() == [1, 2, 0]  # the largest of each row, not itself
    assert picked_words(attention, direction=DIRECTIONS[1]).tolist() == [2, 2, 1]  # of each column
    maps = np.stack([attention, attention.T])[None]  # [layer, head, word, word]
    assert picked_words(maps).tolist() == [[[1, 2, 0], [2, 2, 1]]]
    candidates = np.array([[False, True, True], [True, False, False]])
    assert picked_words(attention, np.array([2, 0]), candidates=candidates).tolist() == [1, 0]


def test_a_head_picks_nothing_if_all_weights_that_it_sees_are_equal():
    """The word itself stands for no pick, whatever attention it gets."""
    maps = CAUSAL / np.arange(1, 5)[:, None]
    # The second word sees one other, which gets all that there is to get.
    assert picked_words(maps, visible=CAUSAL).tolist() == [0, 0, 2, 3]
    assert picked_words(maps, direction=DIRECTIONS[1], visible=CAUSAL).tolist() == [1, 2, 3, 3]


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_picks_of_equal_weights_are_the_first_candidates(direction):
    """Weights of three sizes: most are equal, some words see others of one weight or of none."""
    rng = np.random.default_rng(0)
    n = 9
    maps = rng.integers(3, size=(40, n, n)) * rng.integers(2, size=(40, n, 1)) / 7
    for seen in (np.ones((n, n), bool), np.tril(np.ones((n, n), bool))):
        for candidates in (np.arange(n) % 4 != 1, np.ones(n, bool), np.arange(n) == 3):
            of_queries = np.broadcast_to(candidates, (n, n))
            picks = picked_words(maps, direction=direction, candidates=of_queries, visible=seen)
            for head, query in np.ndindex(40, n):
                pair = maps[head], seen
                if direction == DIRECTIONS[1]:
                    pair = maps[head].T, seen.T
                pick = slow_pick(*pair, query, np.flatnonzero(candidates))
                assert picks[head, query] == (query if pick is None else pick)


def test_right_picks_are_words_other_than_the_one_that_is_read():
    links = read_links({"words": "abc", "pairs": [[0, 2, "det"], [2, 0, "dobj"]]})
    picked = np.array([[-1, 0], [2, 3], [5, -3]])
    assert is_right(picked, links).tolist() == [[False, True], [True, False], [False, False]]
    possessor = read_links({"words": ["Ann", "'s", "hat"], "pairs": [[0, 1, "poss"]]})
    assert possessor.query.tolist() == [1]  # its 's, which is no answer even if it is annotated
    assert not is_right(np.array([1]), possessor).any()


def test_answers_are_seen_on_one_side_of_a_causal_mask():
    links = read_links({"words": "abcd", "pairs": [[0, 2, "det"], [3, 1, "dobj"]]})
    seen = [sees_answer(links, CAUSAL, direction).tolist() for direction in DIRECTIONS]
    assert seen == [[False, True], [True, False]]


def test_labels_and_tables_of_heads():
    assert (head_label(7, 9), parse_head("8-10")) == ("8-10", (7, 9))
    assert head_labels(2, 3) == ["1-1", "1-2", "1-3", "2-1", "2-2", "2-3"]
    values = np.arange(6.0).reshape(2, 3)
    table = head_rows(2, 3, value=values)
    labels = [head_label(row.layer - 1, row.head - 1) for row in table.itertuples()]
    assert labels == head_labels(2, 3) and table["value"].tolist() == [0, 1, 2, 3, 4, 5]
    assert (by_head(table.sample(frac=1, random_state=0), "value") == values).all()
    rows = table.assign(head=labels, direction=DIRECTIONS[1])
    np.testing.assert_array_equal(head_indices(rows), [[1] * 6, [0, 0, 0, 1, 1, 1], [0, 1, 2] * 2])


def test_rows_of_a_model_and_of_its_controls():
    trained = pd.DataFrame({"layer": [1, 2], "previous": [0.5, 0.25]})
    table = by_model({"trained": trained, "random": 2 * trained})
    assert list(table) == ["model", "layer", "previous"]
    pd.testing.assert_frame_equal(rows_of_model(table), trained)
    pd.testing.assert_frame_equal(rows_of_model(table, "random"), 2 * trained)
    assert rows_of_model(trained) is trained and rows_of_model(trained, "random").empty
