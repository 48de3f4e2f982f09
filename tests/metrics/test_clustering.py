"""Section 6: behaviours, the plane, and whether heads of a layer are close to each other."""

import numpy as np
import pandas as pd
import pytest
from references import MASKS
from scipy.spatial.distance import jensenshannon
from store_tools import MAX_TOKENS, cache_at, many_segments
from tolerances import float32_error

from helpers.data.records import roles, visible_mask
from helpers.metrics import clustering
from helpers.metrics.clustering import cohesion_table, distance_table, distances, head_distances
from helpers.metrics.heads import head_rows
from helpers.store.extract import extract


@pytest.fixture(autouse=True)
def _few_permutations(monkeypatch):
    monkeypatch.setattr(clustering, "PERMUTATIONS", 199)


def euclidean(points):
    return np.linalg.norm(points[:, None] - points, axis=-1)


def cohesion(distances, layers, heads, **options):
    square = distance_table(distances, layers, heads)
    return cohesion_table(square, 2 * square, **options).set_index("by")


def behaviour_table(layers, heads, behaviour="other"):
    return head_rows(layers, heads).assign(behaviour=behaviour)


def test_head_behaviours_follow_the_thresholds_in_order():
    columns = ["previous", "current", "next", "cls", "sep", "punctuation", "entropy"]
    rows = [
        (0.5, 0.1, 0.1, 0.7, 0.0, 0.0, 1.0, "previous"),
        (0.1, 0.6, 0.1, 0.0, 0.0, 0.0, 1.0, "current"),
        (0.1, 0.1, 0.6, 0.0, 0.0, 0.0, 1.0, "next"),
        (0.49, 0.1, 0.1, 0.6, 0.0, 0.0, 1.0, "cls"),
        (0.0, 0.1, 0.1, 0.0, 0.7, 0.0, 1.0, "sep"),
        (0.0, 0.1, 0.1, 0.0, 0.0, 0.7, 1.0, "punctuation"),
        (0.0, 0.1, 0.1, np.nan, 0.3, 0.1, 3.2, "broad"),
        (0.0, 0.1, 0.1, np.nan, 0.59, 0.1, 3.1, "other"),
    ]
    table = pd.DataFrame(rows, columns=[*columns, "expected"]).assign(uniform=4.0)
    behaviours = clustering.head_behaviours(head_rows(2, 4).join(table))
    assert set(behaviours) == {"layer", "head", "behaviour"}
    assert list(behaviours["behaviour"]) == list(table["expected"])


def test_head_positions_have_the_stress_of_kruskal():
    distances = euclidean(np.random.default_rng(0).normal(size=(12, 5)))
    square = distance_table(distances, 3, 4)
    positions = clustering.head_positions(square, behaviour_table(3, 4), seed=1)
    assert positions[["layer", "head"]].equals(head_rows(3, 4))
    in_plane = euclidean(positions[["x", "y"]].to_numpy())
    stress = np.sqrt(np.square(in_plane - distances).sum() / np.square(distances).sum())
    np.testing.assert_allclose(positions["stress"], stress, atol=1e-6)
    assert 0.01 < stress < 0.3


# Four heads in two layers of two: of the three ways to pair them up, the true one is closest.
# Sums within layers: {12, 34}: 4, {13, 24}: 10, {14, 23}: 18.
FOUR_HEADS = np.array([[0, 2, 1, 9], [2, 0, 9, 9], [1, 9, 0, 2], [9, 9, 2, 0]], dtype=float)


@pytest.mark.parametrize(("order", "share"), [([0, 1, 2, 3], 1 / 3), ([0, 2, 1, 3], 2 / 3)])
def test_cohesion_p_value_is_the_share_of_assignments_as_close(order, share, monkeypatch):
    monkeypatch.setattr(clustering, "PERMUTATIONS", 1000)
    distances = FOUR_HEADS[np.ix_(order, order)]
    table = cohesion(distances, 2, 2, behaviours=["cls", "cls", "next", "next"])
    for by in ("layer", "next layer", "next layer, words", "behaviour"):  # with two, the same
        assert table.loc[by, "p_value"] == pytest.approx(share, abs=0.06)


def test_cohesion_of_four_heads_by_hand():
    table = cohesion(FOUR_HEADS, 2, 2, behaviours=["cls", "cls", "next", "other"])
    means = table[["within", "between"]].T.to_dict("list")
    assert means == {
        "layer": [2, 7], "next layer": [2, 7], "next layer, words": [4, 14], "behaviour": [2, 5],
    }  # fmt: skip
    table = cohesion(FOUR_HEADS, 2, 2, behaviours=["cls", "other", "next", "other"])
    assert pd.isna(table.loc["behaviour", "p_value"])
    assert (cohesion(1.0 - np.eye(6), 3, 2)["p_value"] == 1).all()  # of equal distances


def test_cohesion_table_compares_layers_with_their_neighbours_and_all_others():
    distances = euclidean(np.random.default_rng(0).normal(size=(12, 5)))
    square = distance_table(distances, 4, 3, [2, 4, 6, 7])  # the layers that attend
    table = cohesion_table(square, square).set_index("by")
    blocks = distances.reshape(4, 3, 4, 3).sum(axis=(1, 3))  # of each layer with each
    within, neighbours = blocks.trace() / 24, blocks.trace(1) / 27
    others = (blocks.sum() - blocks.trace()) / 108
    columns = ["within", "between"]
    assert table.loc["layer", columns].tolist() == pytest.approx([within, others])
    assert table.loc["next layer", columns].tolist() == pytest.approx([within, neighbours])


@pytest.mark.parametrize(("layers", "heads"), [(1, 4), (4, 1), (1, 1)])
def test_one_layer_or_one_head_has_positions_and_no_p_values(layers, heads):
    distances = distance_table(1.0 - np.eye(layers * heads), layers, heads)
    assert cohesion_table(distances, distances)["p_value"].isna().all()
    positions = clustering.head_positions(distances, behaviour_table(layers, heads))
    assert np.isfinite(positions[["x", "y"]].to_numpy()).all()


def test_mark_findings_names_heads_after_relations_that_they_find_better_than_rules():
    heads = pd.DataFrame({
        "relation": ["dobj", "compound", "pobj", "det"], "head": ["1-2", "1-1", "2-1", "2-2"],
        "accuracy_low": [50.0, 50, 50, 40], "baseline": 40.0,  # det: no better than an offset
    })  # fmt: skip
    scores = pd.DataFrame({"system": ["head match", "head"], "head": ["", "1-2"]})
    scores = scores.assign(accuracy=[36.0, 57.0], accuracy_low=[33.0, 54.0])
    behaviours = behaviour_table(2, 2, "broad")
    for low, name in ((54.0, "dobj, coreference"), (36.0, "dobj")):  # no better than head match
        tables = {"dependency_heads": heads, "coreference": scores.assign(accuracy_low=low)}
        marked = clustering.mark_findings(behaviours, tables)
        assert marked["behaviour"].tolist() == ["broad", name, "pobj", "broad"]
    pd.testing.assert_frame_equal(clustering.mark_findings(behaviours, {}), behaviours)


# Distances: by SciPy, and over the first segments of a store


@pytest.mark.parametrize(("heads", "n"), [(1, 1), (4, 22)])
def test_head_distances_are_divergences_summed_over_tokens(heads, n):
    attention = np.random.default_rng(n).dirichlet(np.full(n, 0.1), size=(2, heads, n))
    if heads > 1:  # as hard as real maps get: two heads that differ by a hundredth
        attention[1, -1] = 0.99 * attention[0, -1] + 0.01 * attention[0, 0]
    between_heads = head_distances(attention)
    smoothed = 0.999 * attention.reshape(-1, n, n) + 0.001 / n
    expected = [[(jensenshannon(p, q, axis=1) ** 2).sum() for q in smoothed] for p in smoothed]
    np.testing.assert_allclose(between_heads, expected, rtol=1e-5, atol=float32_error(n))
    assert (between_heads.diagonal() == 0).all()
    assert (between_heads == between_heads.T).all()
    attention[1, 0, 0, 0] = np.nan  # is not hidden
    between_heads = head_distances(attention)
    assert np.isnan(between_heads[heads]).all()
    assert np.isfinite(np.delete(between_heads[0], heads)).all()


@pytest.mark.parametrize("stream", [False, True])
def test_distances_are_means_over_the_first_segments(tiny_encoder, tmp_path, monkeypatch, stream):
    monkeypatch.setattr(clustering, "SEGMENTS", 10)  # 11 segments, in shards of four
    with cache_at(tmp_path):
        segments = many_segments(11)
        store = extract(tiny_encoder("bert"), segments, max_tokens=MAX_TOKENS, stream=stream)
        means, word_means = distances(store)
        examples = [store[index] for index in range(10)]
    expected = np.mean([head_distances(example.attention) for example in examples], axis=0)
    np.testing.assert_allclose(means, expected, rtol=1e-12)
    of_examples = []
    for example in (examples[0], examples[8]):
        is_word = example.roles.punctuation | example.roles.other
        words = example.attention[:, :, is_word][..., is_word]
        of_examples.append(head_distances(words / words.sum(axis=-1, keepdims=True)))
    np.testing.assert_allclose(word_means, np.mean(of_examples, axis=0), rtol=1e-6)
    assert list(means) == list(means.index)


@pytest.mark.parametrize("mask", MASKS)
def test_rows_of_special_tokens_become_uniform_over_the_words_that_they_see(mask):
    n = 12
    maps = np.zeros((1, 3, n, n))
    maps[..., 0] = 1  # all attention to [CLS]
    token_roles = roles(["[CLS]", *["a"] * (n - 2), "[SEP]"], {"cls": "[CLS]", "sep": "[SEP]"})
    masks = visible_mask(MASKS[mask], n)[None]
    words = clustering.renormalise_over_words(maps, token_roles, masks)
    seen = masks[:, None, 1:-1, 1:-1]
    expected = seen / seen.sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(words, np.broadcast_to(expected, words.shape))
