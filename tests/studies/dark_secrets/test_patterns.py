"""Shares of patterns are counted by head, and corrected for what the judge confuses."""

import numpy as np
import pandas as pd
import pytest

from helpers.errors import InputError
from helpers.studies.dark_secrets import patterns
from helpers.studies.dark_secrets.pattern_features import ANY_COLUMN, CLASSES
from tests.studies.dark_secrets.test_pattern_features import SEGMENT, SPECIAL, N, column, diagonal


def test_table_counts_maps_by_head():
    first = np.stack([column(), diagonal()]).reshape(1, 2, N, N)
    second = np.stack([column(), column()]).reshape(1, 2, N, N)
    table = patterns.pattern_counts((maps, SPECIAL, SEGMENT) for maps in (first, second))
    assert list(table["layer"]) == [1, 1]
    assert list(table["head"]) == [1, 2]
    assert list(table["maps"]) == [2, 2]
    assert list(table["vertical"]) == [1, 0.5]
    assert list(table["diagonal"]) == [0, 0.5]
    assert table["pattern"].iloc[0] == "vertical"
    with pytest.raises(InputError, match="at least one example"):
        patterns.pattern_counts([])


def test_correction_finds_the_shares_that_a_simulation_began_with():
    generator = np.random.default_rng(0)
    taken = np.full((5, 5), 0.06) + 0.7 * np.eye(5)  # P(guess | label)
    true = np.array([0.5, 0.2, 0.2, 0.1, 0.0])
    labels = generator.choice(5, 200_000, p=true)
    told = np.array([generator.multinomial((labels == k).sum(), taken[k]) for k in range(5)])
    shares = patterns.corrected_shares(told.sum(axis=0) / len(labels), 10_000 * taken)
    np.testing.assert_allclose(shares, true, atol=0.01)
    inverse = np.linalg.solve(taken.T, told.sum(axis=0) / len(labels))  # may be below 0
    np.testing.assert_allclose(shares, inverse, atol=0.01)
    assert shares.min() >= 0
    several = patterns.corrected_shares(np.stack([true, true]), np.stack([taken, np.eye(5)]))
    np.testing.assert_allclose(several[1], true, atol=1e-6)


def test_shares_are_corrected_for_the_confusion_on_the_labelled_maps(monkeypatch):
    by_head = np.random.default_rng(0).multinomial(12, (0.02 + 0.9 * np.eye(5)).ravel() / 5, 60)
    by_head = by_head.reshape(-1, 5, 5)
    monkeypatch.setattr(patterns, "confusion_by_head", lambda judge: by_head)
    counts = by_head.sum(axis=0)
    # heads that show what the labelled maps show: told as confused, corrected as labelled
    told = np.tile(counts.sum(axis=0) / counts.sum(), (20, 1))
    rows = pd.DataFrame(told, columns=list(CLASSES)).assign(task="t", weights="w", maps=10)
    found = patterns.share_table(rows)
    assert list(found["pattern"]) == [*CLASSES, ANY_COLUMN]
    classes = found.iloc[:5]
    np.testing.assert_allclose(classes["share"], counts.sum(axis=1) / counts.sum(), atol=1e-3)
    np.testing.assert_allclose(classes["told"], told[0])
    both = found["pattern"].isin(["vertical", "vertical + diagonal"])
    assert found["share"].iloc[-1] == pytest.approx(found["share"][both].sum())
    assert (found["ci_low"] <= found["share"]).all()
    assert (found["share"] <= found["ci_high"]).all()
    assert (found["ci_high"] - found["ci_low"]).between(0.001, 0.4).all()
