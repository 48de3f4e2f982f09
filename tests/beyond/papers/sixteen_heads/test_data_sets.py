"""Correlations between halves of the test articles, compared with values by hand."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr

from beyond.papers.common import head_removal
from beyond.papers.common.head_removal import Scores
from beyond.papers.common.tasks import Pair
from beyond.papers.sixteen_heads import data_sets

EXAMPLES_PER_ARTICLE = 40
ARTICLES = 6


@pytest.fixture
def pairs():
    sources = np.repeat([f"article {number}" for number in range(ARTICLES)], EXAMPLES_PER_ARTICLE)
    return [Pair(("a text",), 0, source) for source in sources.tolist()]


@pytest.fixture
def correlations(pairs, monkeypatch):
    """Make a function that correlates known outcomes [head, example] of the heads of a model."""

    def compute(right, test=pairs):
        unchanged = np.ones_like(right[:1])
        scores = Scores(np.concatenate([unchanged, right]), np.zeros((len(right) + 1, len(test))))
        monkeypatch.setattr(head_removal, "single_head_interventions", lambda run: [])
        monkeypatch.setattr(head_removal, "evaluate_interventions", lambda *args: scores)
        monkeypatch.setattr(
            data_sets, "table_by_task", lambda runs, name, job, **inputs: job(runs[0])
        )
        monkeypatch.setattr(head_removal, "shuffled", lambda examples, seed: examples)
        run = SimpleNamespace(task=SimpleNamespace(test=test))
        return data_sets.cross_data([run], seed=0).set_index("heads")

    return compute


def random_outcomes(pairs, *, heads=40, error_rates=None):
    """Draw which examples are right without each head."""
    generator = np.random.default_rng(0)
    rates = generator.uniform(0, 0.1, heads) if error_rates is None else np.array(error_rates)
    return generator.random((len(rates), len(pairs))) > rates[:, None]


def changes_of_halves(right, pairs):
    """Compute by hand the change of accuracy without each head on either half."""
    is_first = data_sets.first_half(pairs, 0)
    return [right[:, half].mean(axis=1) - 1 for half in (is_first, ~is_first)]


def test_first_half_has_other_articles_than_the_second(pairs):
    is_first = data_sets.first_half(pairs, 0)
    articles = pd.Series([pair.source for pair in pairs])
    assert set(articles[is_first]).isdisjoint(articles[~is_first])
    assert is_first.sum() == len(pairs) / 2


def test_cross_data_correlates_the_changes_on_halves(pairs, correlations):
    right = random_outcomes(pairs)
    table = correlations(right)
    first, second = changes_of_halves(right, pairs)
    all_heads = table.loc[data_sets.ALL_HEADS]
    assert all_heads["examples"] == len(pairs)
    assert all_heads["correlation"] == pytest.approx(np.corrcoef(first, second)[0, 1])
    spearman = spearmanr(first, second).statistic
    assert all_heads["rank_correlation"] == pytest.approx(spearman)
    assert all_heads["rank_correlation_low"] < spearman < all_heads["rank_correlation_high"]


def test_cross_data_shows_a_correlation_that_two_heads_make(pairs, correlations):
    right = random_outcomes(pairs, error_rates=[0.02] * 38 + [0.5, 0.6])
    table = correlations(right)
    assert table.loc[data_sets.ALL_HEADS, "correlation"] > 0.9
    first, second = changes_of_halves(right[:38], pairs)
    rest = table.loc[data_sets.WITHOUT_OUTLIERS]
    assert rest["correlation"] == pytest.approx(np.corrcoef(first, second)[0, 1])
    assert rest["correlation_low"] < 0 < rest["correlation_high"]


def test_cross_data_without_any_change_is_nan(pairs, correlations):
    table = correlations(np.ones((6, len(pairs)), bool))
    assert table["correlation"].isna().all()


def test_cross_data_of_one_article_is_nan(pairs, correlations):
    test = pairs[:EXAMPLES_PER_ARTICLE]
    table = correlations(random_outcomes(test), test)
    assert table[["correlation", "rank_correlation"]].isna().all(axis=None)
