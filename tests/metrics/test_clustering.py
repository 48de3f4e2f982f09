import itertools
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest

from helpers.metrics import clustering
from helpers.metrics.clustering import cohesion_table, distance_table
from helpers.metrics.heads import head_labels, head_rows


def euclidean(points):
    return np.linalg.norm(points[:, None] - points, axis=-1)


def cohesion(distances, layers, heads, by="layer", *, permutations):
    with patch.object(clustering, "PERMUTATIONS", permutations):
        square = distance_table(distances, layers, heads)
        table = cohesion_table(square, square)
        table = table[table["layer"].isna()]
    return table.set_index("by").loc[by]


def behaviour_table(layers, heads, behaviour="other"):
    return head_rows(layers, heads).assign(behaviour=behaviour)


def test_head_behaviours_follow_the_thresholds_in_order():
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
    table = head_rows(3, 3).join(table)
    behaviours = clustering.head_behaviours(table)
    assert set(behaviours) == {"layer", "head", "behaviour"}
    assert list(behaviours["behaviour"]) == list(table["expected"])


def test_head_positions_keep_distances_that_fit_in_a_plane():
    points = np.random.default_rng(0).normal(size=(12, 2))
    distances = euclidean(points)
    positions = clustering.head_positions(distance_table(distances, 3, 4), behaviour_table(3, 4))
    assert set(positions.columns) == {"layer", "head", "x", "y", "behaviour", "stress"}
    assert positions[["layer", "head"]].equals(head_rows(3, 4))
    np.testing.assert_allclose(euclidean(positions[["x", "y"]].to_numpy()), distances, atol=0.02)
    assert positions["stress"].max() < 0.01


def test_head_positions_have_the_stress_of_kruskal():
    table = distance_table(euclidean(np.random.default_rng(0).normal(size=(12, 5))), 3, 4)
    positions = clustering.head_positions(table, behaviour_table(3, 4), seed=1)
    distances = table.to_numpy()
    in_plane = euclidean(positions[["x", "y"]].to_numpy())
    stress = np.sqrt(np.square(in_plane - distances).sum() / np.square(distances).sum())
    assert positions["stress"].tolist() == pytest.approx([stress] * 12)
    assert stress > 0.1  # five dimensions do not fit in two


def mean_distance(distances, heads, layer_differences):
    """The mean over pairs of heads whose layers differ by one of these numbers, pair by pair."""
    selected = []
    for a, b in itertools.combinations(range(len(distances)), 2):
        if abs(a // heads - b // heads) in layer_differences:
            selected.append(distances[a, b])
    return np.mean(selected)


@pytest.mark.parametrize(("by", "layer_differences"), [("layer", range(1, 4)), ("next layer", [1])])
def test_cohesion_table_finds_planted_layers(by, layer_differences):
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(4, 5, 3))
    centres = rng.normal(size=(4, 1, 3)) * 2
    distances = euclidean((noise + centres).reshape(20, 3))
    row = cohesion(distances, 4, 5, by, permutations=999)
    assert row["p_value"] == 1 / 1000
    assert row["within"] == pytest.approx(mean_distance(distances, 5, [0]))
    assert row["between"] == pytest.approx(mean_distance(distances, 5, layer_differences))


# Four heads in two layers of two: of the three ways to pair them up, the true one is closest.
# Sums within layers: {12, 34}: 4, {13, 24}: 10, {14, 23}: 18.
FOUR_HEADS = np.array([[0, 2, 1, 9], [2, 0, 9, 9], [1, 9, 0, 2], [9, 9, 2, 0]], dtype=float)


@pytest.mark.parametrize("by", ["layer", "next layer"])  # with two layers, these are the same
def test_cohesion_p_value_is_the_share_of_assignments_as_close(by):
    p_value = cohesion(FOUR_HEADS, 2, 2, by, permutations=3000)["p_value"]
    assert p_value == pytest.approx(1 / 3, abs=0.04)


def test_cohesion_p_value_counts_assignments_that_are_closer():
    swapped = FOUR_HEADS[np.ix_([0, 2, 1, 3], [0, 2, 1, 3])]  # the true pairs are second of three
    p_value = cohesion(swapped, 2, 2, permutations=3000)["p_value"]
    assert p_value == pytest.approx(2 / 3, abs=0.04)


@pytest.mark.parametrize("by", ["layer", "index"])
def test_cohesion_p_value_of_equal_distances_is_one(by):
    assert cohesion(1.0 - np.eye(6), 3, 2, by, permutations=500)["p_value"] == 1


@pytest.mark.parametrize("by", ["layer", "index"])
def test_cohesion_p_value_is_uniform_under_the_null_hypothesis(by):
    rng = np.random.default_rng(0)
    p_values = []
    for _ in range(40):
        distances = euclidean(rng.normal(size=(20, 3)))
        p_values.append(cohesion(distances, 4, 5, by, permutations=200)["p_value"])
    assert 0.3 < np.mean(p_values) < 0.7


def test_cohesion_table_compares_behaviours_among_heads_that_have_one(monkeypatch):
    monkeypatch.setattr(clustering, "PERMUTATIONS", 3000)
    square = distance_table(FOUR_HEADS, 2, 2)
    table = cohesion_table(square, square, behaviours=["cls", "cls", "next", "next"])
    row = table.set_index("by").loc["behaviour"]
    assert row["within"] == 2
    assert row["between"] == (1 + 9 + 9 + 9) / 4
    assert row["p_value"] == pytest.approx(1 / 3, abs=0.04)  # as of the layers above
    table = cohesion_table(square, square, behaviours=["cls", "cls", "next", "other"])
    row = table.set_index("by").loc["behaviour"]
    assert (row["within"], row["between"]) == (2, (1 + 9) / 2)
    table = cohesion_table(square, square, behaviours=["cls", "other", "next", "other"])
    assert np.isnan(table.set_index("by").loc["behaviour", "p_value"])


def test_cohesion_table_finds_heads_of_one_index_next_to_layers():
    """A model whose heads share a bias by index, on top of what its layers have in common."""
    rng = np.random.default_rng(1)
    layer_part = rng.normal(size=(6, 1, 4)) * 3
    index_part = rng.normal(size=(1, 5, 4))
    points = layer_part + index_part + 0.3 * rng.normal(size=(6, 5, 4))
    row = cohesion(euclidean(points.reshape(-1, 4)), 6, 5, "index", permutations=999)
    assert row["p_value"] == 1 / 1000
    assert row["within"] < row["between"]
    points = layer_part + rng.normal(size=(6, 5, 4))
    row = cohesion(euclidean(points.reshape(-1, 4)), 6, 5, "index", permutations=999)
    assert row["p_value"] > 0.05


def test_cohesion_table_compares_each_layer_with_its_neighbours_and_all_others():
    distances = euclidean(np.random.default_rng(0).normal(size=(12, 5)))
    square = distance_table(distances, 4, 3)
    table = cohesion_table(square, 2 * square).set_index(["by", "layer"])
    pairs = {"within": [], "neighbouring": [], "between": []}
    for a, b in itertools.product(range(3, 6), range(12)):  # heads of the second layer
        gap = abs(a // 3 - b // 3)
        if a != b:
            pairs["between" if gap else "within"].append(distances[a, b])
        if gap == 1:
            pairs["neighbouring"].append(distances[a, b])
    within, neighbouring, between = (np.mean(values) for values in pairs.values())
    columns = ["within", "between"]
    assert table.loc[("layer", 2), columns].tolist() == pytest.approx([within, between])
    assert table.loc[("next layer", 2), columns].tolist() == pytest.approx([within, neighbouring])
    doubled = [2 * within, 2 * neighbouring]
    assert table.loc[("next layer, words", 2), columns].tolist() == pytest.approx(doubled)


@pytest.mark.parametrize(("layers", "heads"), [(1, 4), (4, 1), (1, 2), (1, 1)])
def test_one_layer_or_one_head_has_positions_and_no_p_values(layers, heads):
    distances = distance_table(1.0 - np.eye(layers * heads), layers, heads)
    cohesion = cohesion_table(distances, distances)
    assert set(cohesion["by"]) == {"layer", "next layer", "next layer, words", "index"}
    assert cohesion["p_value"].isna().all()
    of_layers = cohesion.dropna(subset="layer")
    assert of_layers["within"].isna().all() == (heads == 1)
    positions = clustering.head_positions(distances, behaviour_table(layers, heads))
    assert np.isfinite(positions[["x", "y"]].to_numpy()).all()


@pytest.fixture
def run_tables():
    heads = pd.DataFrame({
        "relation": ["dobj", "compound", "pobj", "det"], "head": ["1-2", "1-1", "2-1", "2-2"],
        "accuracy_low": [50.0, 50, 50, 40], "baseline": 40.0,  # det: no better than an offset
    })  # fmt: skip
    scores = pd.DataFrame({"system": ["head match", "head"], "head": ["", "1-2"]})
    scores = scores.assign(accuracy=[36.0, 57.0], accuracy_low=[33.0, 54.0])
    return {"dependency_heads": heads, "coreference": scores}


def marked(tables):
    positions = behaviour_table(2, 2, "broad")
    marked = clustering.mark_findings(positions, tables)
    return dict(zip(head_labels(2, 2), marked["behaviour"], strict=True))


def test_mark_findings_names_heads_after_their_relations(run_tables):
    expected = {"1-1": "broad", "1-2": "dobj, coreference", "2-1": "pobj", "2-2": "broad"}
    assert marked(run_tables) == expected


def test_mark_findings_leaves_out_a_head_that_does_not_beat_head_match(run_tables):
    run_tables["coreference"]["accuracy_low"] = 36.0
    assert marked(run_tables)["1-2"] == "dobj"


def test_mark_findings_without_tables_keeps_every_behaviour():
    assert set(marked({}).values()) == {"broad"}
