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

WORDS = 12


class ToyStore(list):
    """Sentences by their maps, links and article, in place of a store of one layer."""

    layers = 1

    def __init__(self, *sentences):
        self.key = repr(sentences)
        self.heads = sentences[0][0].shape[1]
        for attention, links, article in sentences:
            parents = [0] * WORDS
            for predicate, argument in links:
                parents[argument] = predicate + 1
            record = {"heads": parents, "relations": ["obj"] * WORDS, "title": article}
            self.append(
                SimpleNamespace(record=record, attention=attention, word_positions=slice(None))
            )


def test_dependency_links_join_verbs_and_arguments_that_are_not_neighbours():
    relations = ["nsubj", "root", "det", "obj", "obl:agent", "nsubj:pass", "amod", "dative"]
    heads = [2, 0, 4, 2, 2, 2, 4, 2]
    assert dependency_links(heads, relations) == [(1, 3), (1, 4), (1, 5), (1, 7)]


def test_pairs_have_the_distance_of_their_link_and_weights_are_of_either_direction():
    pairs = free_pairs([(1, 3), (5, 1), (4, 6)], 8)
    assert pairs[0] == pairs[2] == [(0, 2), (2, 4), (3, 5), (5, 7)]
    assert pairs[1] == [(0, 4), (2, 6), (3, 7)]
    attention = np.arange(16).reshape(1, 1, 4, 4)
    assert link_weights(attention, [(0, 2), (1, 3)]).tolist() == [[13]]  # from 3 to 1


def test_treebank_links_distinguish_links_from_distances():
    """Head 1 attends along links, head 2 to all words at the same distance, head 3 uniformly."""
    sentences = [(np.full((1, 3, WORDS, WORDS), 1.0), [(1, 2)], "a")]  # no link counts
    for start in range(6):
        attention = np.full((1, 3, WORDS, WORDS), 1 / WORDS)
        attention[0, 0, start, start + 3] = 0.9
        attention[0, 1, np.arange(9), np.arange(9) + 3] = 0.9
        sentences.append((attention, [(start, start + 3)], f"article {start}"))
    table = treebank_links(ToyStore(*sentences), seed=1).set_index("head")
    columns = {"linked": [0.9, 0.9, 1 / 12], "random": [1 / 12, 0.9, 1 / 12]}
    columns["difference"] = columns["difference_low"] = [0.9 - 1 / 12, 0, 0]
    for name, expected in columns.items():
        assert table[name].tolist() == pytest.approx(expected)
    with pytest.raises(InputError, match="no sentence has a predicate"):
        treebank_links(ToyStore(sentences[0]), seed=0)
