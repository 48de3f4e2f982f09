"""Rows of a model and of its controls in one table."""

import pandas as pd

from helpers.metrics import by_model, rows_of_model


def test_by_model_of_two_models_is_undone_by_rows_of_model():
    trained = pd.DataFrame({"layer": [1, 2], "previous": [0.5, 0.25]})
    random = pd.DataFrame({"layer": [1, 2], "previous": [0.1, 0.2]})
    table = by_model({"trained": trained, "random": random})
    assert list(table.columns) == ["model", "layer", "previous"]
    assert table["model"].tolist() == ["trained", "trained", "random", "random"]
    pd.testing.assert_frame_equal(rows_of_model(table), trained)
    pd.testing.assert_frame_equal(rows_of_model(table, "random"), random)


def test_rows_of_model_without_the_column_are_trained():
    table = pd.DataFrame({"layer": [1]})
    assert len(rows_of_model(table)) == 1
    assert rows_of_model(table, "random").empty
