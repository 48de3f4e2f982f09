import numpy as np
import pytest

from helpers.analysis.head_counts import HeadCounts
from helpers.studies.sixteen_heads.summaries import head_scores


def counts():
    """One sentence of ten words: five `det`, four `obj`; two heads, in two directions."""
    right = np.zeros((3, 2, 1, 2), np.uint16)  # [relation, direction, layer, head]
    right[0, :, 0] = [[4, 1], [2, 6]]  # of all ten words
    right[1, :, 0] = [[5, 0], [1, 2]]  # det
    right[2, :, 0] = [[1, 1], [0, 3]]  # obj
    offsets = np.zeros((3, 10), np.uint16)
    offsets[1, 5], offsets[2, 4] = 4, 1
    row = np.arange(3)
    zero, total = np.zeros(3, int), np.array([10, 5, 4], np.uint16)
    rooted = np.array([1, 0, 0], np.uint16)
    names = ("All", "det", "obj")
    splits, articles = np.array(["train"]), np.zeros(1, int)
    asking, special = np.column_stack([total, total]), np.zeros((3, 2, 1, 2))
    return HeadCounts(
        names, splits, articles, zero, row, total, rooted, offsets, right, asking, special
    )


def test_scores_by_hand():
    table = head_scores(counts(), minimum=1)
    assert table[["layer", "head"]].to_numpy().tolist() == [[1, 1], [1, 2]]
    assert table["relation"].tolist() == ["det", "obj"]
    assert table["best_accuracy"].tolist() == pytest.approx([100, 75])
    # det: 100 and 40 against 80; obj: 25 and 75 against 25
    assert table["best_margin"].tolist() == pytest.approx([20, 50])
    assert table["attachment"].tolist() == pytest.approx([40, 60])


def test_rare_relations_are_left_out():
    table = head_scores(counts(), minimum=5)
    assert table["relation"].tolist() == ["det", "det"]
    assert table["best_accuracy"].tolist() == pytest.approx([100, 40])
