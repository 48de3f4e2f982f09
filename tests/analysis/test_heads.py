"""Names of heads, and which word a head picks: by hand."""

import numpy as np
import pytest

from helpers.analysis import heads
from helpers.analysis.heads import DIRECTIONS, Question, head_label, parse_head, picked_words
from helpers.errors import InputError


@pytest.fixture
def attention():
    return np.array([[[[0.8, 0.2, 0.0], [0.1, 0.7, 0.2], [0.6, 0.3, 0.1]]]])


def test_the_word_itself_is_no_candidate(attention):
    assert picked_words(attention).tolist() == [[[1, 2, 0]]]  # the largest of each row
    by_column = picked_words(attention, direction=DIRECTIONS[1])
    assert by_column.tolist() == [[[2, 2, 1]]]
    assert picked_words(np.full((4, 4), 0.25)).tolist() == [1, 0, 0, 0]  # of equals the first


def test_only_candidates_are_picked_for_the_words_asked_about(attention):
    candidates = np.array([[False, True, True], [True, False, False]])
    assert picked_words(attention[0, 0], np.array([2, 0]), candidates=candidates).tolist() == [1, 0]
    assert candidates.tolist() == [[False, True, True], [True, False, False]]  # left as it was
    assert picked_words(np.ones((1, 1))).tolist() == [0]  # a word without candidates picks itself
    lonely = Question("coreference", 2, (), candidates=())
    assert heads.answer(lonely, np.full((3, 3), 0.5), DIRECTIONS[0]) == (2, False)


def test_a_mark_belongs_to_the_possessor_before_it():
    record = {
        "words": ["my", "sister", "'s", "hat", "'s"],
        "heads": [2, 4, 4, 0, 4],  # whatever the 's is attached to
        "relations": ["poss", "poss", "case", "ROOT", "case"],
    }
    assert heads.possessive_marks(record) == {1: 2}
    assert [q.mark for q in heads.questions(record)] == [None, 2, None, None]


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_coreference_is_read_from_the_mention_in_both_directions(direction):
    weights = np.array([[0, 0.9, 0.1], [0.2, 0, 0.8], [0.7, 0.3, 0]])
    question = Question("coreference", 2, (0,), candidates=(0, 1))
    assert heads.answer(question, weights, direction) == (0, True)


def test_labels_count_from_one_and_parsing_undoes_labelling():
    assert head_label(7, 9) == "8-10" and parse_head("8-10") == (7, 9)
    assert heads.head_labels(2, 3) == ["1-1", "1-2", "1-3", "2-1", "2-2", "2-3"]
    table = heads.head_rows(2, 3, value=np.arange(6).reshape(2, 3))
    assert list(table) == ["layer", "head", "value"] and table["value"].tolist() == list(range(6))
    labels = [head_label(row.layer - 1, row.head - 1) for row in table.itertuples()]
    assert labels == heads.head_labels(2, 3)


@pytest.mark.parametrize("label", ["", "8", "8-", "0-1", "1-0", "a-b", "1-2-3", "-1-2", "1.5-2"])
def test_what_is_no_head_is_refused(label):
    with pytest.raises(InputError, match="layer-head"):
        parse_head(label)
