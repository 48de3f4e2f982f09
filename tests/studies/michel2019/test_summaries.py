"""Summaries of the tables of pruning, compared with values by hand."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr
from scipy.stats import t as student

from helpers.studies.michel2019 import summaries


def test_seed_intervals_are_means_with_students_t():
    table = pd.DataFrame(
        {"task": "a", "pruned": 20, "start": [90.0, 91, 95], "change": [-1, 0, -5]}
    )
    row = summaries.seed_intervals(table).iloc[0]
    columns = ["seeds", "start", "change", "smallest", "largest"]
    assert row[columns].tolist() == [3, 92, -2, -5, 0]
    standard_error = np.std([-1, 0, -5], ddof=1) / 3**0.5
    expected = student.interval(0.95, 2, -2, standard_error)
    assert (row["change_low"], row["change_high"]) == pytest.approx(expected)


def ablation(first, second, task="a"):
    """Make a table of ablation with changes on two halves of the articles."""
    heads = pd.DataFrame({"task": task, "layer": 1, "head": range(1, len(first) + 1)})
    return heads.assign(change_one=first, change_other=second)


def test_cross_data_of_correlated_changes_has_high_intervals():
    first, noise = np.random.default_rng(0).normal(size=(2, 40))
    table = summaries.cross_data(ablation(first, 2 * first + 0.1 * noise), seed=0)
    assert set(table["heads"]) == {summaries.ALL_HEADS, summaries.WITHOUT_OUTLIERS}
    assert (table[["correlation_low", "rank_correlation_low"]] > 0.9).all(axis=None)


def test_cross_data_shows_a_correlation_that_two_heads_make():
    first, second = np.random.default_rng(0).normal(size=(2, 40))
    outliers = [3, 8]
    first[outliers] = -20
    second[outliers] = -30
    table = summaries.cross_data(ablation(first, second), seed=0).set_index("heads")
    all_heads = table.loc[summaries.ALL_HEADS]
    assert all_heads["correlation"] == pytest.approx(np.corrcoef(first, second)[0, 1])
    assert all_heads["correlation"] > 0.9
    rest = table.loc[summaries.WITHOUT_OUTLIERS]
    first_rest = np.delete(first, outliers)
    second_rest = np.delete(second, outliers)
    assert rest["correlation"] == pytest.approx(np.corrcoef(first_rest, second_rest)[0, 1])
    spearman = spearmanr(first_rest, second_rest).statistic
    assert rest["rank_correlation"] == pytest.approx(spearman)
    assert rest["correlation_low"] < 0 < rest["correlation_high"]


def test_cross_data_without_any_change_is_nan():
    first = np.arange(6.0)
    table = summaries.cross_data(ablation(first, np.zeros(6)), seed=0)
    assert table["correlation"].isna().all()
