import itertools
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest

from helpers.analysis import clustering
from helpers.analysis.clustering import cohesion_table, distance_table
from helpers.analysis.heads import head_rows


def euclidean(points):
    return np.linalg.norm(points[:, None] - points, axis=-1)


def cohesion(distances, layers, heads, by="layer", *, permutations):
    with patch.object(clustering, "PERMUTATIONS", permutations):
        table = cohesion_table(distance_table(distances, layers, heads))
    return table.set_index("by").loc[by]


def others(layers, heads):
    return head_rows(layers, heads).assign(behaviour="other")


def test_behaviours_follow_the_thresholds_in_order():
    columns = ["previous", "current", "next", "cls", "sep", "punctuation", "entropy"]
    rows = [
        (0.6, 0.1, 0.1, 0.7, 0.0, 0.0, 1.0, "previous"),
        (0.1, 0.6, 0.1, 0.0, 0.0, 0.0, 1.0, "current"),
        (0.1, 0.1, 0.6, 0.0, 0.0, 0.0, 1.0, "next"),
        (0.49, 0.1, 0.1, 0.6, 0.0, 0.0, 1.0, "cls"),
        (0.0, 0.1, 0.1, 0.0, 0.7, 0.0, 1.0, "sep"),
        (0.0, 0.1, 0.1, 0.0, 0.0, 0.7, 1.0, "punctuation"),
        (0.0, 0.1, 0.1, np.nan, 0.3, 0.1, 3.2, "broad"),
        (0.0, 0.1, 0.1, np.nan, 0.59, 0.1, 3.1, "other"),
        (0.5, 0.1, 0.1, 0.7, 0.0, 0.0, 1.0, "previous"),
    ]
    table = pd.DataFrame(rows, columns=[*columns, "expected"]).assign(uniform=4.0)
    table = others(3, 3)[["layer", "head"]].join(table)
    keys = ["layer", "head"]
    found = clustering.head_behaviours(table)
    assert list(found) == [*keys, "behaviour"]
    assert list(found["behaviour"]) == list(table["expected"])


def test_positions_keep_distances_that_fit_in_a_plane():
    points = np.random.default_rng(0).normal(size=(12, 2))
    distances = euclidean(points)
    positions = clustering.head_positions(distance_table(distances, 3, 4), others(3, 4))
    assert list(positions.columns) == ["layer", "head", "x", "y", "behaviour", "stress"]
    assert positions[["layer", "head"]].equals(head_rows(3, 4))
    np.testing.assert_allclose(euclidean(positions[["x", "y"]].to_numpy()), distances, atol=0.02)
    assert positions["stress"].max() < 0.01


def test_stress_is_kruskals():
    table = distance_table(euclidean(np.random.default_rng(0).normal(size=(12, 5))), 3, 4)
    positions = clustering.head_positions(table, others(3, 4), seed=1)
    kept = euclidean(positions[["x", "y"]].to_numpy())
    stress = np.sqrt(np.square(kept - table.to_numpy()).sum() / np.square(table).to_numpy().sum())
    assert positions["stress"].tolist() == pytest.approx([stress] * 12)
    assert stress > 0.1  # five dimensions do not fit in two


@pytest.mark.parametrize(("by", "apart"), [("layer", range(1, 4)), ("next layer", [1])])
def test_planted_layers_are_found(by, apart):
    rng = np.random.default_rng(0)
    layers, heads = 4, 5
    points = rng.normal(size=(layers * heads, 3)) + np.repeat(rng.normal(size=(4, 3)) * 2, 5, 0)
    distances = euclidean(points)
    found = cohesion(distances, layers, heads, by, permutations=999)
    assert found.p_value == 1 / 1000

    pairs = list(itertools.combinations(range(layers * heads), 2))
    for name, between in (("within", [0]), ("between", apart)):
        own = [distances[a, b] for a, b in pairs if abs(a // heads - b // heads) in between]
        assert found[name] == pytest.approx(np.mean(own))


def test_p_value_is_the_share_of_all_assignments_as_close():
    # Four heads in two layers of two: of the three ways to pair them up, the true one is second.
    distances = np.array([[0, 2, 1, 9], [2, 0, 9, 9], [1, 9, 0, 2], [9, 9, 2, 0]], dtype=float)
    # Sums within layers: {12, 34}: 4, {13, 24}: 10, {14, 23}: 18.
    assert cohesion(distances, 2, 2, permutations=3000).p_value == pytest.approx(1 / 3, abs=0.04)
    alike = cohesion(distances, 2, 2, "next layer", permutations=3000)  # less the rest: the same
    assert alike.p_value == pytest.approx(1 / 3, abs=0.04)
    swapped = distances[np.ix_([0, 2, 1, 3], [0, 2, 1, 3])]
    second = cohesion(swapped, 2, 2, permutations=3000)
    assert second.p_value == pytest.approx(2 / 3, abs=0.04)


@pytest.mark.parametrize("by", ["layer", "index"])
def test_heads_without_layers_are_not_called_cohesive(by):
    assert cohesion(1.0 - np.eye(6), 3, 2, by, permutations=500).p_value == 1
    rng = np.random.default_rng(0)
    random = [euclidean(rng.normal(size=(20, 3))) for _ in range(40)]
    p_values = [cohesion(each, 4, 5, by, permutations=200).p_value for each in random]
    assert 0.3 < np.mean(p_values) < 0.7  # uniform under the null hypothesis


def test_heads_of_one_index_are_found_beside_layers():
    """A model whose heads share a bias by index, on top of what its layers have in common."""
    rng = np.random.default_rng(1)
    layers, heads = 6, 5
    of_layer, of_index = rng.normal(size=(layers, 1, 4)) * 3, rng.normal(size=(1, heads, 4))
    points = (of_layer + of_index + 0.3 * rng.normal(size=(layers, heads, 4))).reshape(-1, 4)
    found = cohesion(euclidean(points), layers, heads, "index", permutations=999)
    assert found.p_value == 1 / 1000 and found["within"] < found["between"]
    only_layers = (of_layer + rng.normal(size=(layers, heads, 4))).reshape(-1, 4)
    assert cohesion(euclidean(only_layers), layers, heads, "index", permutations=999).p_value > 0.05


@pytest.mark.parametrize(("layers", "heads"), [(1, 4), (4, 1), (1, 1), (1, 2)])
def test_what_there_is_nothing_to_compare_with_stays_empty(layers, heads):
    distances = 1.0 - np.eye(layers * heads)
    table = cohesion_table(distance_table(distances, layers, heads))
    assert len(table) == 3 and table["p_value"].isna().all()
    positions = clustering.head_positions(
        distance_table(distances, layers, heads), others(layers, heads)
    )
    assert np.isfinite(positions[["x", "y"]].to_numpy()).all()
    if layers * heads == 2:
        assert abs(positions["x"].diff().iloc[-1]) == pytest.approx(1)


def test_heads_of_figure_6_are_named_after_what_they_find():
    heads = pd.DataFrame({
        "relation": ["dobj", "compound", "pobj", "det"], "head": ["1-2", "1-1", "2-1", "2-2"],
        "ci_low": [50.0, 50, 50, 40], "baseline": 40.0,  # det: no better than an offset
    })  # fmt: skip
    scores = pd.DataFrame({"system": ["head match", "head"], "head": ["", "1-2"]})
    scores = scores.assign(accuracy=[36.0, 57.0], ci_low=[33.0, 54.0])
    tables = {"dependency_heads": heads, "coreference": scores}
    plain = head_rows(2, 2).assign(behaviour="broad")
    named = clustering.mark_findings(plain, tables)["behaviour"].tolist()
    assert named == ["broad", "dobj, coreference", "pobj", "broad"]
    tables["coreference"] = scores.assign(ci_low=36.0)
    assert clustering.mark_findings(plain, tables)["behaviour"].iloc[1] == "dobj"
    assert clustering.mark_findings(plain, {})["behaviour"].tolist() == ["broad"] * 4
