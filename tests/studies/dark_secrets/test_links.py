"""Links from trees, their weights by hand, and random pairs that tell neighbours from links."""

import numpy as np
import pytest

from helpers.errors import InputError
from helpers.studies.dark_secrets.fine_tuning import map_similarity
from helpers.studies.dark_secrets.links import (
    corrected_interval,
    dependency_links,
    far_enough,
    link_table,
    link_weights,
    random_links,
)


def uniform(words, layers=1, heads=2):
    return np.full((layers, heads, words, words), 1 / words)


def test_arguments_of_every_scheme_are_links_to_their_predicate():
    relations = ["nsubj", "root", "det", "obj", "obl:agent", "nsubj:pass", "amod", "dative"]
    heads = [2, 0, 4, 2, 2, 2, 4, 2]
    assert dependency_links(heads, relations) == [(1, 0), (1, 3), (1, 4), (1, 5), (1, 7)]


def test_a_root_is_an_argument_of_nothing():
    assert dependency_links([0], ["nsubj"]) == []


def test_neighbours_are_not_counted():
    assert far_enough([(1, 0), (1, 3), (4, 2), (5, 4)]) == [(1, 3), (4, 2)]


def test_the_weight_is_the_largest_of_any_link_in_either_direction():
    attention = np.zeros((1, 2, 4, 4))
    attention[0, 0, 0, 2], attention[0, 0, 3, 1] = 0.3, 0.6  # the second against its direction
    attention[0, 1, 0, 3] = 0.9  # not a link
    assert link_weights(attention, [(0, 2), (1, 3)]).tolist() == [[0.6, 0.0]]


def test_random_pairs_have_the_distances_of_the_links_and_are_none():
    links = [(1, 3), (5, 1), (4, 6)]
    generator = np.random.default_rng(0)
    drawn = [random_links(links, 8, generator) for _ in range(200)]
    for pairs in drawn:
        assert [abs(a - b) for a, b in pairs] == [2, 4, 2]
        assert not {(1, 3), (1, 5), (4, 6)} & set(pairs)
    assert {pairs[1] for pairs in drawn} == {(0, 4), (2, 6), (3, 7)}


def test_no_random_pair_where_every_one_is_a_link():
    assert random_links([(0, 2)], 3, np.random.default_rng(0)) is None


def test_a_head_that_sees_links_and_one_that_sees_distances():
    sentences = []
    for shift in range(6):
        attention = uniform(12, heads=3)
        link = (shift, shift + 3)
        attention[0, 0, link[0], link[1]] = 0.9
        for i in range(9):
            attention[0, 1, i, i + 3] = 0.9
        sentences.append((attention, [link], f"article {shift}"))
    table = link_table(sentences, seed=1)
    assert (table["sentences"] == 6).all()
    assert table["layer"].tolist() == [1, 1, 1] and table["head"].tolist() == [1, 2, 3]
    assert table["linked"].round(6).tolist() == [0.9, 0.9, round(1 / 12, 6)]
    assert table["random"].round(6).tolist() == [round(1 / 12, 6), 0.9, round(1 / 12, 6)]
    assert table["difference"][0] > 0.8 and np.allclose(table["difference"][1:], 0)
    assert (table["ci_low"] <= table["difference"] + 1e-9).all()
    assert (table["ci_high"] >= table["difference"] - 1e-9).all()


def test_intervals_hold_for_all_heads_at_once():
    """Of 300 sets of 40 heads that see nothing, one in twenty has a head beyond chance."""
    rng, wrong = np.random.default_rng(0), 0
    clusters = np.repeat(np.arange(30), 4).astype(str)
    for _ in range(300):
        articles = rng.normal(size=(30, 40)).repeat(4, axis=0)  # sentences of one are alike
        low, high = corrected_interval(articles + rng.normal(size=(120, 40)), clusters)
        wrong += bool(((low > 0) | (high < 0)).any())
    assert 4 <= wrong <= 27
    alone = corrected_interval(rng.normal(size=(9, 2)), ["a"] * 9)
    assert np.isnan(alone).all()


def test_sentences_that_say_nothing_are_left_out():
    neighbours, nothing = (uniform(5), [(1, 2)], "a"), (uniform(5), [], "a")
    no_pair = uniform(3), [(0, 2)], "a"
    with pytest.raises(InputError, match="none of the sentences"):
        link_table([neighbours, nothing, no_pair], seed=0)
    table = link_table([neighbours, (uniform(5), [(0, 2)], "a"), no_pair], seed=0)
    assert (table["sentences"] == 1).all()


def test_the_seed_decides():
    rng = np.random.default_rng(0)
    sentences = [(maps, [(1, 4)], "a") for maps in rng.dirichlet(np.ones(9), size=(4, 1, 2, 9))]
    first, again, other = (link_table(sentences, seed=seed) for seed in (0, 0, 1))
    assert first.equals(again) and not first.equals(other)


# Maps before and after


def test_similarity_is_the_cosine_of_flattened_maps():
    before = np.zeros((1, 3, 2, 2), dtype=np.float16)
    after = before.copy()
    before[0, :] = [[1, 0], [0.5, 0.5]]
    after[0, 0] = before[0, 0]
    after[0, 1] = [[0, 1], [0.5, 0.5]]
    after[0, 2] = [[0, 1], [0, 0]]
    expected = [1, 0.5 / 1.5, 0]
    assert np.allclose(map_similarity(before, after), [expected])
