import math

import pytest

from helpers.errors import InputError
from helpers.studies.sixteen_heads.translation import translation_scores


def test_exact_matches_and_a_bleu_by_hand():
    same = ["3 2 0 5", "1 2 3 4 5 6"]
    bleu, exact = translation_scores(same, same)
    assert (round(bleu, 6), exact) == (100, 100)
    # 9 of 10 words, 6 of 8 pairs, 4 of 6 triples, 2 of 4 quadruples; same length
    bleu, exact = translation_scores(["3 2 0 5", "1 2 3 4 9 6"], same)
    expected = 100 * math.prod([9 / 10, 6 / 8, 4 / 6, 2 / 4]) ** 0.25
    assert bleu == pytest.approx(expected)
    assert exact == 50


def test_nothing_said_scores_nothing():
    assert translation_scores(["", ""], ["1 2", "3"]) == (0, 0)


def test_uneven_lists_are_refused():
    with pytest.raises(InputError, match="1 translations for 2 references"):
        translation_scores(["1"], ["1", "2"])
    with pytest.raises(InputError, match="0 translations"):
        translation_scores([], [])
