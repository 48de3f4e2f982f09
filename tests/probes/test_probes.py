"""The probes of section 5 and Table 3: by hand, against slow references, and planted signals."""

import weakref
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from toy_corpora import ListedStore, random_heads

from helpers.metrics.reference import UAS_WITHOUT_PUNCTUATION, UUAS
from helpers.probes import table3, training
from helpers.probes.data import Parse, ProbeData, attention_block, control_heads, prepare
from helpers.probes.modules import (
    Attn,
    BilinearProbe,
    DistancesWords,
    StructuralProbe,
    distance_features,
    spanning_tree,
)
from helpers.probes.table3 import ATTN, ATTN_GLOVE, BILINEAR, STRUCTURAL
from helpers.probes.training import (
    CONTROL_TASK,
    UAS,
    UNDIRECTED,
    Counts,
    predict_heads,
    seeded,
    train,
)
from helpers.store.store import Example

LAYERS = 2
HEADS = 3
WIDTH = 4  # of word vectors
STATES = 24  # width of hidden states


def example(index, n, rng, *, split="train", planted=None, heads=None, relations=None):
    """Make random maps and states of at most 11 words.

    The head ``planted`` (layer, head) attends to gold heads.  Layer 1 of the states has the trees,
    in a rotation: a dimension for each edge, and the head.
    """
    heads = random_heads(rng, n) if heads is None else np.array(heads)
    maps = rng.random((LAYERS, HEADS, n + 2, n + 2))
    maps /= maps.sum(-1, keepdims=True)
    if planted is not None:
        rows = np.full((n, n + 2), 0.05 / (n + 2))
        rows[np.arange(n), heads] += 0.95  # position 0, to which the root attends, is [CLS]
        maps[planted][1:-1] = rows
    hidden = rng.standard_normal((LAYERS + 1, n + 2, STATES))
    vectors = np.zeros((n, STATES))
    vectors[np.arange(n), STATES // 2 + heads] = 1
    for word in range(1, n + 1):
        node = word
        while node:
            vectors[word - 1, node] += 1
            node = heads[node - 1]
    rotation = np.linalg.qr(np.random.default_rng(0).standard_normal((STATES, STATES)))[0]
    hidden[1, 1:-1] = 7 * vectors @ rotation + 5
    record = {
        "words": [f"w{i}" for i in range(n)],
        "heads": heads.tolist(),
        "relations": relations or ["dep"] * n,
        "split": split,
    }
    return Example(index, maps.astype(np.float16), record, hidden=hidden.astype(np.float16))


def vectors(words):
    """Return random vectors that depend on nothing but the word."""
    rows = [np.random.default_rng(list(word.encode())).standard_normal(WIDTH) for word in words]
    return np.array(rows, np.float32).reshape(-1, WIDTH)


def examples(count, *, planted=None):
    rng = np.random.default_rng(0)
    for i in range(count):
        split = "dev" if i % 4 == 0 else "train"
        yield example(i, int(rng.integers(3, 12)), rng, split=split, planted=planted)


def corpus(count=60, *, planted=None):
    return prepare(ListedStore(examples(count, planted=planted)), vectors)


def batch_of(data, *sentences):
    """Return the batch of some sentences of one length."""
    (batch,) = data.batches(sentences)
    return batch


def maps_of(batch):
    """Split the first sentence's block into words and special positions."""
    return batch.blocks[0, :, 1:-1], batch.blocks[0][:, [0, -1]].flatten(1)


def randomised(model):
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return model


MODELS = {
    "Attn": Attn,
    "Attn + GloVe": lambda data: Attn(data, with_words=True),
    "Distances + GloVe": DistancesWords,
}


# Data


def test_attention_block_has_both_directions_and_special_positions():
    sentence = example(0, 3, np.random.default_rng(0))
    maps = sentence.attention.reshape(LAYERS * HEADS, 5, 5)
    to_dependent, to_candidate = np.split(attention_block(sentence), 2, axis=2)
    np.testing.assert_array_equal(to_dependent, maps[:, :, 1:4].transpose(2, 1, 0))
    np.testing.assert_array_equal(to_candidate, maps[:, 1:4].transpose(1, 2, 0))
    # Two special tokens before the words, and none after them.
    shifted = Example(0, sentence.stored_attention, sentence.record, offset=2)
    to_dependent, to_candidate = np.split(attention_block(shifted), 2, axis=2)
    np.testing.assert_allclose(to_dependent[1, 0], maps[:, :2, 3].mean(1), atol=1e-3)
    np.testing.assert_allclose(to_candidate[1, 0], maps[:, 3, :2].sum(1), atol=1e-3)
    assert not to_dependent[:, -1].any() and not to_candidate[:, -1].any()


def test_vectors_and_features_are_scaled_over_train():
    data = corpus(20)
    train_sentences = data.splits["train"]
    words = np.concatenate([data.parses[index].words for index in train_sentences])
    torch.testing.assert_close(data.vectors[words].mean(0), torch.zeros(WIDTH), rtol=0, atol=1e-5)
    assert data.vectors[words].std(0, correction=0).numpy() == pytest.approx(np.ones(WIDTH))
    parts = [maps_of(batch_of(data, index)) for index in train_sentences]
    variances = torch.cat([maps.var(1, correction=0) for maps, _ in parts])
    squares = torch.cat([special.square() for _, special in parts])
    word_scales, special_scales = data.feature_scales
    torch.testing.assert_close(word_scales, variances.mean(0).sqrt(), rtol=1e-4, atol=0)
    torch.testing.assert_close(special_scales, squares.mean(0).sqrt(), rtol=1e-4, atol=0)


def test_batches_have_each_sentence_once_and_words_of_one_length():
    data = corpus(200)
    batches = list(data.batches(np.random.default_rng(1).permutation(200).tolist()))
    assert sorted(index for batch in batches for index in batch.sentences) == list(range(200))
    for batch in batches:
        (length,) = {len(parse) for parse in batch.parses}
        assert (len(batch.parses) - 1) * length < 320


def test_distances_in_a_tree_by_hand():
    heads = np.array([2, 0, 2, 3, 0])  # ROOT joins the second and the last word
    distances = Parse(heads, np.zeros(5, bool), "a", heads).distances
    assert distances[0].tolist() == [0, 1, 2, 3, 3]
    assert distances[3].tolist() == [3, 2, 1, 0, 4]


def test_control_heads_by_hand():
    # ROOT, the first word, the last; a word that would be its own head goes to ROOT
    assert control_heads(np.array([0, 1, 2, 1, 2])).tolist() == [0, 1, 5, 1, 0]
    assert control_heads(np.array([1, 2])).tolist() == [0, 0]


# Scores


@pytest.mark.parametrize("with_words", [False, True])
def test_linear_probe_scores_follow_the_equations(with_words):
    data = corpus(4)
    model = randomised(Attn(data, with_words=with_words))
    batch = batch_of(data, 1)
    maps, special = (part.numpy() for part in maps_of(batch))
    scores = model(batch)[0].detach().numpy()
    v = batch.vectors[0].numpy()[:, : model.width]
    word_scales, special_scales = (scales.numpy() for scales in data.feature_scales)
    dependent, candidate, root = (parameter.detach().numpy() for parameter in model.parameters())
    # A candidate's own row has the directions exchanged.
    exchanged = np.roll(candidate / word_scales[:, None], LAYERS * HEADS, axis=0)
    for j, pairs in enumerate(maps):
        assert scores[j, 1 + j] == -np.inf
        for i in set(range(len(v))) - {j}:
            weights = exchanged @ v[i] + dependent @ np.append(v[j], 1) / word_scales
            assert scores[j, 1 + i] == pytest.approx(weights @ pairs[i], rel=1e-4, abs=1e-3)
        expected = root @ np.append(v[j], 1) / special_scales @ special[j]
        assert scores[j, 0] == pytest.approx(expected, rel=1e-4, abs=1e-3)


def test_distances_probe_is_one_hidden_layer_over_joined_input():
    data = corpus(4)
    model = randomised(DistancesWords(data))
    batch = batch_of(data, 1)
    scores = model(batch)[0].detach().numpy()
    v = batch.vectors[0].numpy()
    features = distance_features(len(v)).numpy()
    layers = (model.candidate, model.dependent, model.distance)
    hidden_weight = np.hstack([layer.weight.detach().numpy() for layer in layers])
    bias = model.dependent.bias.detach().numpy()
    for j in range(len(v)):
        for c in set(range(len(v) + 1)) - {1 + j}:
            head = v[c - 1] if c else np.zeros(WIDTH)
            joined = np.concatenate([head, v[j], features[j, c]])
            hidden = 1 / (1 + np.exp(-(hidden_weight @ joined + bias)))
            expected = model.output(torch.from_numpy(hidden).float()).item()
            assert scores[j, c] == pytest.approx(expected, abs=1e-4)


def test_distance_features_by_hand():
    features = distance_features(4)
    expected = {  # ahead, behind, -2, -1, 0, +1, +2, ROOT
        (0, 0): [0, 0, 0, 0, 0, 0, 0, 1],
        (0, 1): [0, 0, 0, 0, 1, 0, 0, 0],
        (0, 2): [0.25, 0, 0, 0, 0, 1, 0, 0],
        (0, 4): [0.75, 0, 0, 0, 0, 0, 0, 0],
        (3, 2): [0, 0.5, 1, 0, 0, 0, 0, 0],
    }
    for pair, values in expected.items():
        assert features[pair].tolist() == values


def test_bilinear_scores_and_loss_of_three_words_by_hand():
    parse = Parse(np.array([2, 0, 2]), np.zeros(3, bool), "a", np.arange(3))
    states = [torch.tensor([[1, 0], [0, 2], [3, 1]], dtype=torch.float16)]
    data = ProbeData([], [parse], {}, torch.zeros(3, 0), states)
    probe = BilinearProbe(data)
    probe.dependent.weight.data = torch.tensor([[1.0, 2.0]])
    probe.dependent.bias.data = torch.tensor([0.5])  # U = (1, 2), a = 0.5: 1.5, 4.5 and 5.5
    probe.candidate.weight.data = torch.tensor([[1.0, -1.0]])
    probe.candidate.bias.data = torch.tensor([1.0])  # V = (1, -1), b = 1: 2, -1 and 3
    probe.root.data = torch.tensor([2.0])
    logits = probe(batch_of(data, 0))[0].detach()
    minus = -np.inf
    expected = np.array([[3, minus, -1.5, 4.5], [9, 9, minus, 13.5], [11, 11, -5.5, minus]])
    np.testing.assert_allclose(logits, expected, rtol=1e-6)
    assert predict_heads(probe, data, [0])[0].tolist() == [3, 3, 0]  # of equals, the first
    by_word = np.log(np.exp(expected).sum(1)) - [-1.5, 9, -5.5]
    assert probe.loss(batch_of(data, 0)).item() == pytest.approx(by_word.mean(), rel=1e-6)


def test_structural_distances_and_loss_by_hand():
    data = replace(corpus(4).at_layer(0), scale=1.0)
    (length,) = {len(data.parses[1])}
    data.states[1] = torch.zeros(length, STATES, dtype=torch.float16)
    data.states[1][0, :2] = torch.tensor([1.0, 2.0])
    probe = StructuralProbe(data)
    probe.projection.weight.data = torch.zeros(1, STATES)
    probe.projection.weight.data[0, :2] = torch.tensor([1.0, 0.5])  # the first word is at 2
    batch = batch_of(data, 1)
    expected = np.zeros((length, length))
    expected[0, 1:] = expected[1:, 0] = 4
    np.testing.assert_allclose(probe(batch)[0].detach(), expected, atol=1e-5)
    errors = abs(expected - data.parses[1].distances)
    smooth = np.where(errors < 0.5, errors**2, errors - 0.25)
    assert probe.loss(batch).item() == pytest.approx(smooth.mean(), rel=1e-4)


def test_spanning_tree_by_hand():
    distances = np.array([[0, 3, 1, 9], [3, 0, 2, 0], [1, 2, 0, 5], [9, 0, 5, 0]], np.float32)
    tree = spanning_tree(distances)
    assert np.argwhere(np.triu(tree)).tolist() == [[0, 2], [1, 2], [1, 3]]  # a distance is zero
    assert (tree == tree.T).all()


def test_undirected_attachment_leaves_punctuation_out():
    rng = np.random.default_rng(0)
    relations = ["nsubj", "root", "punct"]
    sentences = []
    for split in ("train", "dev"):
        made = example(0, 3, rng, split=split, heads=[2, 0, 2], relations=relations)
        made.hidden[0] = 0
        made.hidden[0, 1:4, 0] = [0, 2, 1]  # the full stop lies between the words
        sentences.append(made)
    data = prepare(ListedStore(sentences)).at_layer(0)
    edges = StructuralProbe(data).score(data, [1])[UUAS]
    assert (edges.right.tolist(), edges.total.tolist()) == ([[1]], [1])


# Training


def test_training_depends_on_the_seed_and_on_nothing_else(monkeypatch):
    """Neither on threads, nor on the global generator, nor on probes that are trained with it."""
    monkeypatch.setattr(training, "MIN_UPDATES", 1)
    monkeypatch.setattr(training, "EPOCHS", 2)
    data = corpus(24).at_layer(1)

    def trained(seed, threads, others=()):
        torch.set_num_threads(threads)
        torch.manual_seed(threads)
        probe = seeded(partial(BilinearProbe, data), seed)
        train([*others, probe], data, data.splits["train"], seed=seed)
        return torch.cat([parameter.flatten() for parameter in probe.parameters()])

    alone = trained(0, 1)
    assert torch.equal(alone, trained(0, 3))
    assert not torch.equal(alone, trained(1, 1))
    with_others = trained(0, 1, [make(data) for make in MODELS.values()])
    torch.testing.assert_close(with_others, alone, rtol=1e-4, atol=1e-5)


def test_maps_are_read_in_batches_and_not_kept(monkeypatch):
    """The maps of one batch are in memory at a time."""
    monkeypatch.setattr(training, "MIN_UPDATES", 1)
    monkeypatch.setattr(training, "EPOCHS", 1)
    data = corpus(24)
    alive = weakref.WeakSet()
    most = []

    def loss(batch):
        alive.add(batch)
        most.append(len(alive))
        return Attn.loss(probe, batch)

    probe = Attn(data)
    monkeypatch.setattr(probe, "loss", loss)
    train([probe], data, data.splits["train"])
    assert len(most) > 5 and max(most) <= 2  # the last one may still be bound


def test_attn_finds_a_planted_head_and_nothing_in_random_maps():
    planted = corpus(80, planted=(1, 2))
    results, probes = table3.fit_attention(planted, [ATTN])
    assert results[ATTN][UAS].by_seed[0] > 98
    table = table3.head_weights(probes[ATTN], planted)
    assert table.loc[0, ["layer", "head"]].tolist() == [2, 3]
    assert table["u_gain"][0] > 10 * table["u_gain"][1:].abs().max()
    data = corpus(200)
    results, _ = table3.fit_attention(data, [ATTN])
    dev = [data.parses[index] for index in data.splits["dev"]]
    chance = 100 * len(dev) / sum(len(parse) for parse in dev)  # one in as many as there are words
    assert results[ATTN][UAS].by_seed[0] < 2 * chance


@pytest.mark.parametrize(
    ("name", "metric"), [(STRUCTURAL, UUAS), (BILINEAR, UAS_WITHOUT_PUNCTUATION)]
)
def test_probes_of_states_find_the_layer_of_planted_trees(monkeypatch, name, metric):
    monkeypatch.setattr(table3.HIDDEN[name], "learning_rate", 0.02)
    monkeypatch.setattr(BilinearProbe, "weight_decay", 0.1)
    monkeypatch.setattr(training, "MIN_UPDATES", 150)
    data = corpus(80)
    counts, table = table3.fit_hidden(data, name, 1)
    assert table["chosen"].tolist() == [False, True, False]
    assert table["validation"][1] > table["validation"][0] + 30
    assert (counts[metric].by_seed > 90).all()


def test_control_task_is_learned_from_words_and_not_from_attention():
    data = corpus(60)
    makers = {name: partial(MODELS[name], data) for name in (ATTN, "Distances + GloVe")}
    results, _ = table3.fit_probes(makers, data, with_control_task=makers)
    from_words = results["Distances + GloVe"][CONTROL_TASK].by_seed[0]
    assert from_words > results[ATTN][CONTROL_TASK].by_seed[0] + 20


# Tables

ARTICLES = np.repeat(list("abcdefghijkl"), 5)


def test_difference_table_is_paired_over_articles():
    """Both probes find more in easy articles; Attn + GloVe finds one word more in each sentence."""
    total = np.full(60, 30)
    right = np.arange(60)[None] % 20
    attn, glove, edges = (Counts(count, total, ARTICLES) for count in (right, right + 1, right + 3))
    scores = {
        ATTN: {UAS_WITHOUT_PUNCTUATION: attn},
        ATTN_GLOVE: {UAS_WITHOUT_PUNCTUATION: glove, UNDIRECTED: attn},
        STRUCTURAL: {UUAS: edges},
    }
    table = table3.difference_table(scores).set_index(["probe", "other"])
    for pair, words in {(ATTN_GLOVE, ATTN): 1, (STRUCTURAL, ATTN_GLOVE): 3}.items():
        difference = table.loc[pair, ["difference", "difference_low", "difference_high"]]
        assert difference.tolist() == pytest.approx([100 * words / 30] * 3)


def test_right_branching_and_its_row_by_hand():
    rng = np.random.default_rng(0)
    train_sentence = example(0, 2, rng, heads=[2, 0])
    options = {"split": "dev", "relations": ["nsubj", "root", "obj", "punct"]}
    first = example(1, 4, rng, heads=[2, 0, 2, 2], **options)
    second = example(2, 3, rng, heads=[2, 3, 0], split="dev")
    hand_made = prepare(ListedStore([train_sentence, first, second]))
    counts = table3.right_branching(hand_made)
    # next word: 2 3 4 ROOT against 2 0 2 2 (one right); 2 3 ROOT against 2 3 0 (three)
    assert counts[UAS].right.tolist() == [[1, 3]]
    assert counts[UAS].total.tolist() == [4, 3]
    assert counts[UAS_WITHOUT_PUNCTUATION].total.tolist() == [3, 3]
    # Edges: both of the first, one of them by its other end, without that to punctuation.
    assert counts[UNDIRECTED].right.tolist() == [counts[UNDIRECTED].total.tolist()] == [[2, 2]]
    table = table3.probe_table({table3.RIGHT_BRANCHING: counts}).set_index("metric")
    assert table.loc[UAS, "value"] == pytest.approx(100 * 4 / 7)
    assert np.isnan(table.loc[UAS, "paper_value"])  # the paper leaves punctuation out
    assert table.loc[UAS_WITHOUT_PUNCTUATION, "value"] == pytest.approx(100 * 4 / 6)
    assert table.loc[UAS_WITHOUT_PUNCTUATION, "paper_value"] == 26


def test_all_heads_add_what_a_planted_head_knows_to_the_rule(own_cache):
    class Treebank(ListedStore):
        def record(self, index):
            return self[index].record

    sentences = Treebank(examples(60, planted=(1, 2)))
    for record in sentences.records():
        record["tags"] = ["NOUN"] * len(record["words"])
        record["relations"] = ["dep" if head else "root" for head in record["heads"]]
    (row,) = table3.all_heads_add(sentences, ["dep"]).to_dict("records")
    dev = [record for record in sentences.records() if record["split"] == "dev"]
    assert row["count"] == sum(record["relations"].count("dep") for record in dev)
    assert row["with_head"] > 95 > 60 > row["rule"]
    assert row["added"] == pytest.approx(row["with_head"] - row["rule"])


def test_a_small_treebank_has_the_least_number_of_updates(monkeypatch):
    monkeypatch.setattr(training, "MIN_UPDATES", 60)
    data = corpus(24)
    probe = Attn(data)
    batches = []
    monkeypatch.setattr(probe, "loss", lambda batch: batches.append(1) or Attn.loss(probe, batch))
    per_epoch = len(list(data.batches(data.splits["train"])))
    train([probe], data, data.splits["train"])
    assert training.EPOCHS * per_epoch < 60 <= len(batches) < 60 + per_epoch
