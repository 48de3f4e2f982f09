"""Links of trees, their weights, and random pairs to compare with."""

from types import SimpleNamespace

import numpy as np
import pytest

from beyond.papers.dark_secrets.links import (
    dependency_links,
    free_pairs,
    link_weights,
    treebank_links,
)
from helpers.errors import InputError


def uniform(words, heads=2):
    return np.full((1, heads, words, words), 1 / words)


class ToyStore(list):
    """Sentences by their maps, links and article, in place of a store of one layer."""

    layers = 1

    def __init__(self, *sentences):
        self.key = repr(sentences)
        self.heads = sentences[0][0].shape[1]
        for attention, links, article in sentences:
            parents = [0] * attention.shape[-1]
            relations = ["dep"] * attention.shape[-1]
            for predicate, argument in links:
                parents[argument] = predicate + 1
                relations[argument] = "obj"
            record = {"heads": parents, "relations": relations, "title": article}
            self.append(
                SimpleNamespace(record=record, attention=attention, word_positions=slice(None))
            )


def test_dependency_links_join_verbs_and_arguments_that_are_not_neighbours():
    relations = ["nsubj", "root", "det", "obj", "obl:agent", "nsubj:pass", "amod", "dative"]
    heads = [2, 0, 4, 2, 2, 2, 4, 2]
    assert dependency_links(heads, relations) == [(1, 3), (1, 4), (1, 5), (1, 7)]


def test_link_weights_are_the_largest_in_either_direction():
    attention = np.zeros((1, 2, 4, 4))
    attention[0, 0, 0, 2] = 0.3  # along a link
    attention[0, 0, 3, 1] = 0.6  # against the direction of a link
    attention[0, 1, 0, 3] = 0.9  # not on a link
    assert link_weights(attention, [(0, 2), (1, 3)]).tolist() == [[0.6, 0.0]]


def test_free_pairs_have_the_distance_of_their_link():
    pairs = free_pairs([(1, 3), (5, 1), (4, 6)], 8)
    assert pairs[0] == pairs[2] == [(0, 2), (2, 4), (3, 5), (5, 7)]
    assert pairs[1] == [(0, 4), (2, 6), (3, 7)]
    assert free_pairs([(0, 2)], 3) == [[]]


def test_treebank_links_distinguish_links_from_distances():
    """Head 1 attends along links, head 2 to all words at the same distance, head 3 uniformly."""
    sentences = []
    for start in range(6):
        attention = uniform(12, heads=3)
        attention[0, 0, start, start + 3] = 0.9
        for word in range(9):
            attention[0, 1, word, word + 3] = 0.9
        sentences.append((attention, [(start, start + 3)], f"article {start}"))
    table = treebank_links(ToyStore(*sentences), seed=1).set_index("head")
    assert table.index.tolist() == [1, 2, 3]
    assert table["linked"].tolist() == pytest.approx([0.9, 0.9, 1 / 12])
    assert table["random"].tolist() == pytest.approx([1 / 12, 0.9, 1 / 12])
    assert table["difference"].tolist() == pytest.approx([0.9 - 1 / 12, 0, 0])
    assert table["difference_low"].tolist() == pytest.approx([0.9 - 1 / 12, 0, 0])


def test_treebank_links_leave_out_sentences_without_usable_links():
    only_neighbours = (uniform(5), [(1, 2)], "a")
    no_free_pair = (uniform(3), [(0, 2)], "a")
    usable = (uniform(5), [(0, 2)], "a")
    table = treebank_links(ToyStore(only_neighbours, usable, no_free_pair), seed=0)
    expected = treebank_links(ToyStore(usable), seed=0)["linked"]
    np.testing.assert_allclose(table["linked"], expected)
    with pytest.raises(InputError, match="no sentence has a predicate"):
        treebank_links(ToyStore(only_neighbours, no_free_pair), seed=0)
