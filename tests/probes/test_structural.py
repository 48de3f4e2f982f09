"""The structural probe: by hand, and planted trees."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from toy_corpora import ListedStore, random_heads

from helpers.metrics.reference import UUAS
from helpers.probes import table3
from helpers.probes.data import Parse, prepare
from helpers.probes.scores import Counts
from helpers.probes.structural import StructuralProbe, spanning_tree
from helpers.probes.training import seeded, train
from helpers.store.store import Example

WIDTH = 24


def tree_vectors(heads, width):
    """Make vectors with the squared distances of a tree: a dimension for each edge."""
    n = len(heads)
    vectors = np.zeros((n, width))
    for word in range(1, n + 1):
        node = word
        while node:
            vectors[word - 1, node - 1] = 1
            node = heads[node - 1]
    return vectors


def examples(count=80, layers=3, planted=1, seed=0, relations="dep"):
    """Make states of which one layer has the trees, in a fixed rotation; the rest is noise."""
    rng = np.random.default_rng(seed)
    rotation = np.linalg.qr(rng.standard_normal((WIDTH, WIDTH)))[0]
    for index in range(count):
        n = int(rng.integers(3, 9))
        heads = random_heads(rng, n)
        hidden = rng.standard_normal((layers, n + 2, WIDTH))
        signal = np.hstack([tree_vectors(heads, WIDTH // 2), 0.5 * hidden[0, 1:-1, : WIDTH // 2]])
        hidden[planted, 1:-1] = 7 * signal @ rotation + 5
        record = {
            "words": ["w"] * n,
            "heads": heads.tolist(),
            "relations": [relations] * n,
            "split": "dev" if index % 4 == 0 else "train",
        }
        maps = np.full((layers - 1, 1, n + 2, n + 2), 1 / (n + 2), np.float16)
        yield Example(index, maps, record, hidden=hidden.astype(np.float16))


def parse_of(heads):
    """Make a parse without punctuation."""
    n = len(heads)
    return Parse(np.array(heads), np.zeros(n, bool), "a", np.arange(n))


def test_tree_distances_equal_shortest_paths():
    rng = np.random.default_rng(0)
    for n in (1, 2, 7, 20):
        heads = random_heads(rng, n)
        slow = np.where(np.eye(n, dtype=bool), 0, n + 1)
        for word, head in enumerate(heads):
            if head:
                slow[word, head - 1] = slow[head - 1, word] = 1
        for middle in range(n):
            slow = np.minimum(slow, slow[:, [middle]] + slow[[middle]])
        np.testing.assert_array_equal(parse_of(heads).distances, slow)


def test_spanning_tree_by_hand():
    distances = np.array([[0, 3, 1, 9], [3, 0, 2, 0], [1, 2, 0, 5], [9, 0, 5, 0]], np.float32)
    pairs = [(0, 2), (1, 2), (1, 3)]  # the last has a distance of zero
    assert np.argwhere(np.triu(spanning_tree(distances))).tolist() == [list(pair) for pair in pairs]
    assert (spanning_tree(distances) == spanning_tree(distances).T).all()
    assert spanning_tree(np.zeros((0, 0), np.float32)).shape == (0, 0)


def batch_of(data, *sentences):
    """Return the batch of some sentences of one length."""
    (batch,) = data.batches(sentences)
    return batch


def test_squared_distances_follow_the_definition():
    data = prepare(ListedStore(examples(4))).at_layer(1)
    model = StructuralProbe(data)
    batch = batch_of(data, 2)
    vectors = batch.states[0]
    difference = vectors[:, None] - vectors
    expected = (difference @ model.projection.weight.T).square().sum(-1)
    torch.testing.assert_close(model(batch)[0], expected, rtol=1e-4, atol=1e-4)


def test_loss_of_three_words_by_hand():
    heads = [2, 0, 2]
    record = {"words": ["w"] * 3, "heads": heads, "relations": ["dep"] * 3, "split": "train"}
    hidden = np.zeros((1, 3, 2), np.float16)
    hidden[0] = [[0, 0], [1, 0], [1, 2]]
    maps = np.full((1, 1, 3, 3), 1 / 3, np.float16)
    sentence = Example(0, maps, record, hidden=hidden, offset=0)
    dev_sentence = replace(sentence, record={**record, "split": "dev"})
    data = replace(prepare(ListedStore([sentence, dev_sentence])).at_layer(0), scale=1.0)
    probe = StructuralProbe(data)
    probe.projection.weight.data = torch.tensor([[1.0, 0.0], [0.0, 0.6]])
    # The third word is 1.44 from the second and 2.44 from the first: errors of 0.44.
    assert probe.loss(batch_of(data, 0)).item() == pytest.approx(4 * 0.44**2 / 9, abs=1e-3)
    probe.projection.weight.data = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
    # The distances are 4, 8 and 4 for 1, 2 and 1.
    expected = (4 * (3 - 0.25) + 2 * (6 - 0.25)) / 9
    assert probe.loss(batch_of(data, 0)).item() == pytest.approx(expected, abs=1e-2)


def test_probe_recovers_planted_trees_and_their_layer(monkeypatch):
    monkeypatch.setattr(StructuralProbe, "learning_rate", 0.02)
    data = prepare(ListedStore(examples()))
    counts, by_layer = table3.fit_hidden(data, table3.STRUCTURAL, 2)
    assert by_layer["layer"].tolist() == [0, 1, 2]
    assert by_layer["chosen"].tolist() == [False, True, False]
    assert by_layer["validation"][1] > 30 + by_layer["validation"][0]
    scores = counts[UUAS].by_seed
    assert (scores > 90).all()
    elsewhere = table3.fit_at_layer(data, table3.STRUCTURAL, 0, 2)[UUAS].by_seed
    assert (elsewhere < scores.mean() - 30).all()


def rounded_otherwise(sentences, share=0.001):
    """Move some hidden states by one unit in the last place, as another processor does."""
    rng = np.random.default_rng(1)
    for sentence in sentences:
        hidden = sentence.hidden.copy()
        moved = rng.random(hidden.shape) < share
        hidden[moved] = np.nextafter(hidden[moved], np.float16(np.inf))
        yield replace(sentence, hidden=hidden)


def test_rounding_of_the_states_is_not_amplified_by_training():
    weights = []
    for sentences in (examples(), rounded_otherwise(examples())):
        data = prepare(ListedStore(sentences)).at_layer(1)
        probe = seeded(partial(StructuralProbe, data), 0)
        train([probe], data, data.splits["train"])
        weights.append(probe.projection.weight)
    assert (weights[0] - weights[1]).norm() < 1e-3 * weights[0].norm()


def test_interval_of_counts_is_wider_where_seeds_disagree():
    rng = np.random.default_rng(0)
    total = rng.integers(5, 15, 40)
    articles = np.repeat(list("abcdefgh"), 5)
    right = rng.binomial(total, 0.5)
    equal_seeds = Counts(np.stack([right, right, right]), total, articles).estimate()
    unequal_seeds = Counts(np.stack([right - 1, right, right + 1]), total, articles).estimate()
    assert unequal_seeds.value == pytest.approx(equal_seeds.value)
    assert unequal_seeds.low < equal_seeds.low - 1
    assert unequal_seeds.high > equal_seeds.high + 1


def test_undirected_attachment_leaves_punctuation_out():
    sentence = next(examples(1))
    record = {
        "words": ["a", "b", "."],
        "heads": [2, 0, 2],
        "relations": ["nsubj", "root", "punct"],
        "split": "train",
    }
    hidden = np.zeros((1, 5, WIDTH), np.float16)
    hidden[0, 1:4, 0] = [0, 2, 1]  # the full stop lies between the words
    train_sentence = replace(sentence, record=record, hidden=hidden)
    dev_sentence = replace(train_sentence, record={**record, "split": "dev"})
    data = prepare(ListedStore([train_sentence, dev_sentence])).at_layer(0)
    edges = StructuralProbe(data).score(data, [1])[UUAS]
    assert edges.right.tolist() == [[1]]
    assert edges.total.tolist() == [1]


def test_hidden_states_do_not_depend_on_their_scale():
    def states_times(factor):
        scaled = []
        for sentence in examples(20):
            hidden = sentence.hidden.astype(np.float32) * factor
            scaled.append(replace(sentence, hidden=hidden.astype(np.float16)))
        return prepare(ListedStore(scaled)).at_layer(1)

    plain = states_times(1)
    large = states_times(64)
    torch.testing.assert_close(
        batch_of(plain, 0).states, batch_of(large, 0).states, rtol=1e-3, atol=1e-3
    )
    assert large.scale == pytest.approx(64 * plain.scale, rel=1e-3)
