"""The committed labels, thresholds and agreement belong together."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import accuracy_score, cohen_kappa_score, f1_score

from helpers.studies.dark_secrets.pattern_labels import (
    agreement,
    agreement_across_heads,
    confusion,
    fit_thresholds,
    read_labels,
    self_agreement,
    trust_table,
)
from helpers.studies.dark_secrets.patterns import CLASSES, FEATURES, classify, default_thresholds


def half(name):
    table = read_labels()
    return table[table["half"] == name]


def measure(table, name, column="classifier"):
    return table.set_index("measure").loc[name, column]


def test_labels_are_whole():
    table = read_labels()
    assert len(table) >= 200
    assert table["map"].is_unique
    assert set(table["label"]) == set(CLASSES)
    assert table["label"].value_counts().min() >= 15
    assert set(table["half"]) == {"fit", "held-out"}
    assert abs((table["half"] == "fit").mean() - 0.5) < 0.05
    assert table["second_label"].notna().sum() >= 40
    assert table[list(FEATURES)].notna().all().all()


def test_committed_thresholds_are_those_of_the_fit_half_alone():
    assert fit_thresholds(half("fit")) == pytest.approx(default_thresholds())


def test_agreement_is_that_of_scikit_learn():
    table = half("held-out")
    found = agreement(table)
    guesses = [CLASSES[index] for index in classify(table[list(FEATURES)].to_numpy())]
    accuracy = 100 * accuracy_score(table["label"], guesses)
    macro = 100 * f1_score(table["label"], guesses, average="macro")
    assert measure(found, "accuracy") == pytest.approx(accuracy)
    assert measure(found, "macro F1") == pytest.approx(macro)
    commonest = 100 * table["label"].value_counts(normalize=True).max()
    assert measure(found, "accuracy", "majority") == pytest.approx(commonest)
    labels, guesses = table["label"].map(CLASSES.index), classify(table[list(FEATURES)].to_numpy())
    assert confusion(labels.to_numpy(), guesses).trace() == accuracy * len(table) / 100
    for name in ("accuracy", "macro F1"):
        low, high = (measure(found, name, bound) for bound in ("ci_low", "ci_high"))
        assert low < measure(found, name) < high


def test_agreement_is_far_above_the_majority_also_on_heads_not_seen():
    held_out = agreement(half("held-out"))
    assert measure(held_out, "accuracy", "ci_low") > measure(held_out, "accuracy", "majority") + 20
    assert measure(held_out, "macro F1") > 60
    across = agreement_across_heads(read_labels())
    assert measure(across, "accuracy") > 65


def test_self_agreement_is_that_of_scikit_learn():
    twice = read_labels().dropna(subset="second_label")
    found = self_agreement(read_labels())
    kappa = cohen_kappa_score(twice["label"], twice["second_label"])
    assert found["maps"] == len(twice)
    assert found["kappa"] == pytest.approx(kappa)
    assert found["same"] == pytest.approx(100 * (twice["label"] == twice["second_label"]).mean())


def test_fit_finds_thresholds_that_separate_what_can_be_separated():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.uniform(0, 1, (300, len(FEATURES))), columns=list(FEATURES))
    limits = {
        "diagonal": 0.7, "band": 0.6, "slide": 0.4, "narrow": 0.5, "column": 0.5, "stripes": 0.3,
    }  # fmt: skip
    classes = classify(table.to_numpy(), limits)
    table["label"] = [CLASSES[index] for index in classes]
    found = classify(table[list(FEATURES)].to_numpy(), fit_thresholds(table))
    assert (found == classes).mean() > 0.9


def test_trust_table_has_the_paper_beside_what_was_found():
    table = trust_table().set_index("measure")
    held_out = half("held-out")
    assert table.loc["accuracy, held-out half", "percent"] == measure(
        agreement(held_out), "accuracy"
    )
    assert table.loc["accuracy, held-out half", "maps"] == len(held_out)
    assert table["paper"].dropna().tolist() == [86]
    assert table["percent"].notna().all()
