"""What can be removed: shown on the first examples, or on all."""

import numpy as np
import pytest

from helpers.analysis.statistics import mcnemar
from helpers.studies import head_removal as removals
from helpers.studies.head_removal import Scores, changes_of, compare_accuracies, in_looks


def test_what_is_not_significant_is_not_yet_removable():
    """Of 160 examples twenty lost and twenty won: neither a difference nor its absence."""
    before = np.arange(160) % 2 == 0
    same, few = before.copy(), before.copy()
    few[:40] = ~few[:40]
    low, high, removable = compare_accuracies(before, np.array([same, few]))
    assert mcnemar(before, few) == 1
    assert removable.tolist() == [True, False]
    assert (low[0], high[0]) == (0, 0) and low[1] < -removals.MARGIN < removals.MARGIN < high[1]
    assert not compare_accuracies(before[:140], same[None, :140])[2].any()  # too few
    assert not compare_accuracies(before, same[None], looks=2)[2].any()  # too few for two looks
    many = np.tile(before, 25)
    once = many.copy()
    once[:20] = ~once[:20]  # of 4,000: found to be no change, however significant
    assert compare_accuracies(many, once[None])[2].all()


def test_what_a_look_does_not_settle_is_scored_on_more_examples(monkeypatch):
    """Four changes: none, two that the first look sees as larger than they are, a large one."""
    whole = np.arange(1200) % 10 > 0
    unlucky, late, bad = whole.copy(), whole.copy(), whole.copy()
    unlucky[1:7] = False  # 2 points of the first 300, 0.75 of 800
    late[1:14] = False  # 12 lost: 4 points, 1.5 of 800, 1 of all
    bad[5::10] = False
    rows = np.array([whole, whole, unlucky, late, bad])
    asked = []

    def scores(run, pairs, changes, label):
        asked.append((len(pairs), list(changes)))
        right = rows[[0, *(change + 1 for change in changes)]][:, pairs]
        return Scores(right, 1.0 - right)

    monkeypatch.setattr(removals, "scores_under", scores)
    table, first = in_looks(None, list(range(1200)), [0, 1, 2, 3], "heads")
    assert asked == [(300, [0, 1, 2, 3]), (500, [1, 2, 3]), (400, [2, 3])]
    assert table["examples"].tolist() == [300, 800, 1200, 1200]
    assert table["removable"].tolist() == [True, True, True, False]
    assert table["change"].tolist() == pytest.approx([0, -0.75, -1, -10])
    assert table["loss_change"].tolist() == pytest.approx([0, 0.0075, 0.01, 0.1])
    assert table["p_value"].tolist() == pytest.approx([1, 2 * 0.5**6, 2 * 0.5**12, 2 * 0.5**120])
    assert not changes_of(scores(None, range(300), [1], ""), looks=3)["removable"].any()
    np.testing.assert_array_equal(first.right, rows[:, :300])
    few, first = in_looks(None, list(range(300)), [0, 1], "heads")  # there are no more
    assert first.right.shape == (3, 300)
    assert few["examples"].tolist() == [300, 300]


def test_looks_share_the_error_between_them():
    """22 of 1,600 lost: within two points at 5%, at 2.5%, not at a thousandth."""
    before = np.ones(1600, bool)
    after = np.arange(1600) >= 22  # 1.375 points, with a standard error of 0.29
    removable = [compare_accuracies(before, after[None], looks=n)[2][0] for n in (1, 2, 50)]
    assert removable == [True, True, False]
