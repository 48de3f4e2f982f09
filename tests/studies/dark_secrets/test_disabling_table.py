"""Accuracy without heads and layers, by hand."""

import numpy as np
from scipy.stats import binomtest

from helpers.studies.dark_secrets.fine_tuning import WHOLE_LAYER, disabling_table


def test_changes_losses_and_gains():
    labels = np.array([0, 1, 0, 1, 0, 1, 0, 1, 0, 1])
    whole = labels.copy()
    whole[:2] = 1 - whole[:2]  # 80% right
    worse = whole.copy()
    worse[2:8] = 1 - worse[2:8]  # six more wrong
    better = labels.copy()
    mixed = whole.copy()
    mixed[[0, 5]] = 1 - mixed[[0, 5]]  # one gained, one lost
    table = disabling_table(
        labels, whole, np.array([[whole, worse, mixed], [better, mixed, worse]])
    )
    assert table["layer"].tolist() == [1, 1, 1, 2, 2, 2]
    assert table["head"].tolist() == [1, 2, WHOLE_LAYER] * 2
    assert table["accuracy"].tolist() == [80, 20, 80, 100, 80, 20]
    assert table["change"].tolist() == [0, -60, 0, 20, 0, -60]
    assert table["lost"].tolist() == [0, 6, 1, 0, 1, 6]
    assert table["gained"].tolist() == [0, 0, 1, 2, 1, 0]
    p_values = [1, binomtest(0, 6).pvalue, 1, binomtest(2, 2).pvalue, 1, binomtest(0, 6).pvalue]
    assert np.allclose(table["p_value"], p_values)
    assert table["p_value"][1] == 2 * 0.5**6
