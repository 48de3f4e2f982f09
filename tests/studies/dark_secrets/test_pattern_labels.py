"""The committed labels and maps belong together, and say how far each judge can be trusted."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import accuracy_score, cohen_kappa_score, confusion_matrix, f1_score

from helpers.analysis.heads import head_rows
from helpers.paths import project_root
from helpers.studies.dark_secrets import pattern_labels as found
from helpers.studies.dark_secrets.maps import text_maps
from helpers.studies.dark_secrets.pattern_features import CLASSES, FEATURES, map_features
from helpers.studies.tasks import Pair
from helpers.study import Study


def test_labels_are_whole():
    labels, maps = found.read_labels(), found.read_maps()
    assert len(labels) == len(maps["maps"]) == len(maps["features"]) >= 600
    assert maps["maps"].shape[1:] == (32, 32)
    assert np.isfinite(maps["features"]).all()
    assert set(labels["model"]) == {"minilm", "mpnet"}
    assert set(labels["source"]) == {"segment", "task", "sentence"}
    for column in ("pass1", "pass2", "settled"):
        assert set(labels[column]) == set(CLASSES)
    alike = labels["pass1"] == labels["pass2"]
    assert (labels["settled"] == labels["pass1"])[alike].all()
    assert labels["settled"].value_counts().min() >= 50
    assert (labels.iloc[:648].groupby(["model", "layer", "head"]).size() == 3).all()
    assert not labels.duplicated(["model", "source", "example", "layer", "head"]).any()


@pytest.fixture(scope="module")
def told():
    """What judges say that are quicker than those of the notebook."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(found, "EPOCHS", 4)
        yield found.guesses()


def test_trust_table_is_that_of_scikit_learn(told):
    labels = found.label_indices()
    table = found.trust_table().set_index("measure")
    scores = {}
    for judge in found.JUDGES:
        scores[judge] = 100 * f1_score(labels, told[judge], average="macro")
        row = table.loc[f"macro F1, {judge}"]
        assert row["percent"] == pytest.approx(scores[judge])
        assert row["ci_low"] < row["percent"] < row["ci_high"]
        accuracy = table.loc[f"accuracy, {judge}", "percent"]
        assert accuracy == pytest.approx(100 * accuracy_score(labels, told[judge]))
    assert scores["support vectors"] > 75 and scores["thresholds"] > 45
    assert table["paper"].dropna().tolist() == [86]
    matrix = found.confusion_table()[list(CLASSES)].to_numpy()
    passes = found.read_labels()["pass1"], found.read_labels()["pass2"]
    kappa = table.loc["the same beyond chance (kappa, in percent)", "percent"]
    assert kappa == pytest.approx(100 * cohen_kappa_score(*passes))
    np.testing.assert_array_equal(matrix, confusion_matrix(labels, told["support vectors"]))


def test_the_best_judge_is_used():
    table = pd.read_csv(project_root() / "figures/minilm/tables/pattern_trust.csv")
    f1 = table[table["measure"].str.startswith("macro F1")].set_index("measure")["percent"]
    assert f1.argmax() == 0 and f1.max() > 75  # the first of `JUDGES` is used


@pytest.mark.default_model
def test_committed_maps_are_those_of_the_default_model():
    """A map of every head in an input of each source, the input drawn anew for every map."""
    study, labels = Study(), found.read_labels()
    encoder, generator = study.encoder, np.random.default_rng(0)
    pairs = [Pair(own.first, own.second, 0) for own in study.segment_corpus().records()]
    longest = {"segment": 128, "task": 64, "sentence": 128}
    parts = []
    for source in longest:
        rows = head_rows(encoder.layers, encoder.heads)
        count = len(pairs) * (2 if source == "sentence" else 1)
        rows.insert(0, "example", generator.integers(count, size=len(rows)))
        parts.append(rows.assign(source=source))
    rows = pd.concat(parts, ignore_index=True)
    own = labels[labels["model"] == encoder.name]
    pd.testing.assert_frame_equal(own.iloc[: len(rows)][list(rows)], rows)
    for row in own[own["source"] != "sentence"].iloc[::25].itertuples():
        pair = [pairs[row.example]]
        attention, *tokens = next(text_maps(encoder, pair, max_tokens=longest[row.source]))
        features = map_features(attention, *tokens)[row.layer - 1, row.head - 1]
        committed = found.read_maps()["features"][row.Index]
        np.testing.assert_allclose(features, committed, atol=0.02)


@pytest.mark.parametrize(("profile", "folds"), [("full", 5), ("small", 2)])
def test_no_map_of_a_head_is_on_both_sides(profile, folds, monkeypatch):
    monkeypatch.setenv("ATTENTION_PROFILE", profile)
    heads, seen = found.labelled_heads(), []

    def fold(keep, step_done):
        seen.append(keep)
        step_done()
        return np.full(((~keep).sum(), len(found.JUDGES)), len(seen))

    monkeypatch.setattr(found, "_fold", fold)
    monkeypatch.setattr(found, "cached_table", lambda name, compute, **_: compute())
    told = found.guesses()
    assert len(seen) == folds
    assert not any(set(heads[keep]) & set(heads[~keep]) for keep in seen)
    assert (np.sum([~keep for keep in seen], axis=0) == 1).all()
    assert (told > 0).all().all()


def test_judges_learn_what_can_be_learned_and_learn_it_the_same_way_again(monkeypatch):
    monkeypatch.setattr(found, "EPOCHS", 12)
    generator = np.random.default_rng(0)
    maps = generator.integers(0, 60, (300, 32, 32)).astype(np.uint8)
    labels = generator.integers(0, 2, 300)
    maps[labels == 0, :, 3] = 200  # a column, or a diagonal
    maps[np.ix_(labels == 1)][:, np.arange(32), np.arange(32)] = 200
    for index in np.flatnonzero(labels == 1):
        np.fill_diagonal(maps[index], 200)
    first, again = (found.train_network(maps[:200], labels[:200]) for _ in range(2))
    assert (first.guess(maps[200:]) == labels[200:]).mean() > 0.95
    for one, other in zip(first.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)
    features, settled = found.read_maps()["features"], found.label_indices()
    heads = found.labelled_heads()
    judges = [found.fit_vectors(features[::4], settled[::4], heads[::4]) for _ in range(2)]
    np.testing.assert_array_equal(*(judge.decision_function(features) for judge in judges))
    assert features.shape[1] > len(FEATURES)
