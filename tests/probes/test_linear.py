"""The probes of section 5 and Table 3: by hand, against slow references, and planted signals."""

import tracemalloc
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from tolerances import float32_error
from toy_corpora import ListedStore, random_heads

from helpers.errors import InputError
from helpers.metrics import rows_of_model
from helpers.metrics.reference import UAS_WITHOUT_PUNCTUATION, UUAS
from helpers.metrics.statistics import Estimate, weighted_ratios, with_seed_noise
from helpers.probes import table3, training
from helpers.probes.data import attention_block, control_heads, prepare
from helpers.probes.distances import DistancesWords, distance_features
from helpers.probes.linear import Attn
from helpers.probes.scores import CONTROL_TASK, UAS, UNDIRECTED, Counts, attachment
from helpers.probes.table3 import ATTN, ATTN_GLOVE, COMPARISONS
from helpers.probes.training import predict_heads, seeded, train
from helpers.store.store import Example

LAYERS = 2
HEADS = 3
WIDTH = 4


def example(index, n, rng, *, split="train", planted=None, relations=None):
    """Make random maps; the head ``planted`` (layer, head) attends to gold heads."""
    heads = random_heads(rng, n).tolist()
    maps = rng.random((LAYERS, HEADS, n + 2, n + 2))
    maps /= maps.sum(-1, keepdims=True)
    if planted is not None:
        rows = np.full((n, n + 2), 0.05 / (n + 2))
        rows[np.arange(n), heads] += 0.95  # position 0, to which the root attends, is [CLS]
        maps[planted][1:-1] = rows
    record = {
        "words": [f"w{i}" for i in range(n)],
        "heads": heads,
        "relations": relations or ["dep"] * n,
        "split": split,
    }
    return Example(index, maps.astype(np.float16), record)


def vectors(words):
    """Return random vectors that depend on nothing but the word."""
    rows = [np.random.default_rng(list(word.encode())).standard_normal(WIDTH) for word in words]
    return np.array(rows, np.float32).reshape(-1, WIDTH)


def examples(count, *, planted=None, seed=0):
    rng = np.random.default_rng(seed)
    for i in range(count):
        split = "dev" if i % 4 == 0 else "train"
        yield example(i, int(rng.integers(3, 12)), rng, split=split, planted=planted)


def corpus(count=60, *, planted=None, seed=0, vectors=vectors):
    return prepare(ListedStore(examples(count, planted=planted, seed=seed)), vectors)


def batch_of(data, *sentences):
    """Return the batch of some sentences of one length."""
    (batch,) = data.batches(sentences)
    return batch


def maps_of(batch):
    """Split the first sentence's block into words and special positions."""
    return batch.blocks[0, :, 1:-1], batch.blocks[0][:, [0, -1]].flatten(1)


def randomised(model, seed=0):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return model


MODELS = {
    "Attn": Attn,
    "Attn + GloVe": lambda data: Attn(data, with_words=True),
    "Distances + GloVe": DistancesWords,
}


# the layout


def test_attention_block_has_both_directions_and_special_positions():
    sentence = example(0, 3, np.random.default_rng(0))
    block = attention_block(sentence)
    maps = sentence.attention.reshape(LAYERS * HEADS, 5, 5)
    heads = LAYERS * HEADS
    assert block.shape == (3, 3 + 2, 2 * heads)
    for dependent in range(3):
        for position in range(5):
            to_dependent = maps[:, position, 1 + dependent]
            to_candidate = maps[:, 1 + dependent, position]
            np.testing.assert_array_equal(block[dependent, position, :heads], to_dependent)
            np.testing.assert_array_equal(block[dependent, position, heads:], to_candidate)


def test_attention_block_of_two_special_tokens_before_and_none_after():
    sentence = example(0, 3, np.random.default_rng(0))
    block = attention_block(Example(0, sentence.stored_attention, sentence.record, offset=2))
    maps = sentence.attention.reshape(LAYERS * HEADS, 5, 5).astype(np.float32)
    heads = LAYERS * HEADS
    np.testing.assert_allclose(block[1, 0, :heads], maps[:, :2, 3].mean(1), atol=1e-3)
    np.testing.assert_allclose(block[1, 0, heads:], maps[:, 3, :2].sum(1), atol=1e-3)
    assert not block[:, -1].any()


# scores


@pytest.mark.parametrize("with_words", [False, True])
def test_linear_probe_scores_follow_the_equations(with_words):
    data = corpus(4)
    model = randomised(Attn(data, with_words=with_words))
    batch = batch_of(data, 1)
    maps, special = (part.numpy() for part in maps_of(batch))
    scores = model(batch)[0].detach().numpy()
    width = model.width
    v = batch.vectors[0].numpy()[:, :width]
    word_scales, special_scales = (scales.numpy() for scales in data.feature_scales)
    candidate = model.candidate.detach().numpy()
    dependent = model.dependent.detach().numpy()
    root = model.root.detach().numpy()
    u_1, w_1 = np.split(candidate, 2)  # a candidate's own row has the directions exchanged
    u_scales, w_scales = np.split(word_scales, 2)
    exchanged = np.concatenate([w_1, u_1]) / np.concatenate([w_scales, u_scales])[:, None]
    for j, pairs in enumerate(maps):
        assert scores[j, 1 + j] == -np.inf
        for i in set(range(len(v))) - {j}:
            weights = exchanged @ v[i] + dependent @ np.append(v[j], 1) / word_scales
            assert scores[j, 1 + i] == pytest.approx(weights @ pairs[i], rel=1e-4, abs=1e-3)
        expected = root @ np.append(v[j], 1) / special_scales @ special[j]
        assert scores[j, 0] == pytest.approx(expected, rel=1e-4, abs=1e-3)


def test_weights_of_attn_are_those_of_the_maps_themselves():
    data = corpus(4)
    model = randomised(Attn(data))
    batch = batch_of(data, 1)
    maps, special = maps_of(batch)
    word_weights, root_weights = model.weights
    expected = maps @ word_weights
    itself = torch.eye(len(expected), dtype=torch.bool)
    expected = torch.cat([(special @ root_weights)[:, None],
                          expected.masked_fill(itself, -torch.inf)], dim=1)  # fmt: skip
    torch.testing.assert_close(model(batch)[0], expected, rtol=1e-4, atol=1e-3)


def test_vectors_are_standardised_over_the_words_of_train():
    data = corpus(20)
    words = np.concatenate([data.parses[index].words for index in data.splits["train"]])
    torch.testing.assert_close(data.vectors[words].mean(0), torch.zeros(WIDTH), rtol=0, atol=1e-5)
    assert data.vectors[words].std(0, correction=0).numpy() == pytest.approx(np.ones(WIDTH))


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
    output = model.output.weight.detach().numpy()[0]
    for j in range(len(v)):
        for c in set(range(len(v) + 1)) - {1 + j}:
            head = v[c - 1] if c else np.zeros(WIDTH)
            joined = np.concatenate([head, v[j], features[j, c]])
            hidden = 1 / (1 + np.exp(-(hidden_weight @ joined + bias)))
            expected = output @ hidden + model.output.bias.item()
            assert scores[j, c] == pytest.approx(expected, abs=1e-4)


def test_distance_features_by_hand():
    features = distance_features(4)
    expected = {  # ahead, behind, -2, -1, 0, +1, +2, ROOT
        (0, 0): [0, 0, 0, 0, 0, 0, 0, 1],
        (0, 1): [0, 0, 0, 0, 1, 0, 0, 0],
        (0, 2): [0.25, 0, 0, 0, 0, 1, 0, 0],
        (0, 4): [0.75, 0, 0, 0, 0, 0, 0, 0],
        (3, 3): [0, 0.25, 0, 1, 0, 0, 0, 0],
        (3, 2): [0, 0.5, 1, 0, 0, 0, 0, 0],
    }
    for pair, values in expected.items():
        assert features[pair].tolist() == values


def test_feature_scales_by_hand():
    data = corpus(8)
    variances = []
    specials = []
    for index in data.splits["train"]:
        batch = batch_of(data, index)
        maps, special = (part.numpy() for part in maps_of(batch))
        specials.append(special)
        variances += [pairs.var(0) for pairs in maps]
    words, special = data.feature_scales
    np.testing.assert_allclose(words, np.sqrt(np.mean(variances, axis=0)), rtol=1e-5)
    root = np.sqrt(np.square(np.concatenate(specials)).mean(0))
    np.testing.assert_allclose(special, root, rtol=1e-5)


def test_batches_have_each_sentence_once_and_words_of_one_length():
    data = corpus(200)
    sentences = np.random.default_rng(1).permutation(200).tolist()
    batches = list(data.batches(sentences))
    assert sorted(index for batch in batches for index in batch.sentences) == list(range(200))
    for batch in batches:
        lengths = {len(parse) for parse in batch.parses}
        assert len(lengths) == 1
        assert (len(batch.parses) - 1) * lengths.pop() < 320


# training


def test_loss_of_three_words_by_hand(hand_made):
    model = randomised(Attn(hand_made))
    batch = batch_of(hand_made, 2)  # the heads are 2, 3 and ROOT
    scores = model(batch)[0].detach().double().numpy()
    gold = scores[[0, 1, 2], [2, 3, 0]]
    expected = np.log(np.exp(scores).sum(axis=1)) - gold
    assert model.loss(batch).item() == pytest.approx(expected.mean(), rel=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_probes_trained_together_are_those_trained_alone(name, monkeypatch):
    monkeypatch.setattr(training, "MIN_UPDATES", 1)
    data = corpus(24)
    alone = seeded(partial(MODELS[name], data), 0)
    together = seeded(partial(MODELS[name], data), 0)
    train([alone], data, data.splits["train"])
    others = [seeded(partial(make, data), 1) for make in MODELS.values()]
    train([*others, together], data, data.splits["train"])
    for parameter, expected in zip(together.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(parameter, expected, rtol=1e-4, atol=1e-5)


def test_training_depends_on_the_seed_and_on_nothing_else(monkeypatch):
    monkeypatch.setattr(training, "MIN_UPDATES", 1)
    data = corpus(24)

    def trained(seed, threads):
        torch.set_num_threads(threads)
        torch.manual_seed(threads)  # of others
        probe = seeded(partial(DistancesWords, data), seed)
        train([probe], data, data.splits["train"], seed=seed)
        return probe.dependent.weight

    assert torch.equal(trained(0, 1), trained(0, 3))
    assert not torch.equal(trained(0, 1), trained(1, 1))


def test_a_small_treebank_has_the_least_number_of_updates(monkeypatch):
    monkeypatch.setattr(training, "MIN_UPDATES", 60)
    data = corpus(24)
    probe = Attn(data)
    batches = []
    monkeypatch.setattr(probe, "loss", lambda batch: batches.append(1) or Attn.loss(probe, batch))
    per_epoch = len(list(data.batches(data.splits["train"])))
    train([probe], data, data.splits["train"])
    assert 60 <= len(batches) < 60 + per_epoch
    assert len(batches) > training.EPOCHS * per_epoch


def test_maps_are_read_in_batches_and_not_kept(monkeypatch):
    """The peak does not grow with the corpus: a store of twice as many sentences needs no more."""
    monkeypatch.setattr(training, "EPOCHS", 1)
    monkeypatch.setattr(training, "MIN_UPDATES", 1)

    class Computed(ListedStore):
        def __getitem__(self, index):
            return example(index, 20, np.random.default_rng(index), split="train")

    def peak(count):
        sentences = list(examples(2)) + [example(i, 20, np.random.default_rng(i)) for i in range(2)]
        data = prepare(ListedStore(sentences), vectors)
        parses = [*data.parses[:2], *[data.parses[2]] * count]
        data = replace(data, parses=parses, store=Computed())
        data.feature_scales = tuple(torch.ones(2 * LAYERS * HEADS * size) for size in (1, 2))
        probe = Attn(data)
        tracemalloc.start()
        train([probe], data, range(2, 2 + count))
        probe.score(data, range(2, 2 + count))
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    block = 20 * 22 * 2 * LAYERS * HEADS * 4
    assert peak(120) < peak(40) + 40 * block


@pytest.mark.parametrize("planted", [(0, 1), (1, 2)])
def test_attn_finds_a_planted_head(planted):
    data = corpus(80, planted=planted)
    results, probes = table3.fit_attention(data, [ATTN])
    assert results[ATTN][UAS].by_seed[0] > 98
    table = table3.head_weights(probes[ATTN], data)
    layer, head = planted
    assert table["layer"][0] == layer + 1
    assert table["head"][0] == head + 1
    assert table["u_gain"][0] > 10 * table["u_gain"][1:].abs().max()


def test_attn_does_not_beat_chance_on_random_maps():
    data = corpus(200)
    results, _ = table3.fit_attention(data, [ATTN])
    dev = [data.parses[index] for index in data.splits["dev"]]
    chance = 100 * len(dev) / sum(len(parse) for parse in dev)  # one in as many as there are words
    assert results[ATTN][UAS].by_seed[0] < 2 * chance


def test_control_heads_by_hand():
    # ROOT, the first word, the last; a word that would be its own head goes to ROOT
    assert control_heads(np.array([0, 1, 2, 1, 2])).tolist() == [0, 1, 5, 1, 0]
    assert control_heads(np.array([1, 2])).tolist() == [0, 0]


def test_control_task_is_learned_from_words_and_not_from_attention():
    data = corpus(120)
    makers = {name: partial(make, data) for name, make in MODELS.items()}
    results, _ = table3.fit_probes(makers, data, with_control_task=["Attn", "Distances + GloVe"])
    from_words = results["Distances + GloVe"][CONTROL_TASK].by_seed[0]
    assert from_words > results["Attn"][CONTROL_TASK].by_seed[0] + 20
    assert CONTROL_TASK not in results["Attn + GloVe"]


ARTICLES = np.repeat(list("abcdefghijkl"), 5)


@pytest.fixture
def compared_results():
    """Results of all probes of `COMPARISONS` on the same sentences, two seeds each."""
    rng = np.random.default_rng(0)
    total = rng.integers(5, 30, len(ARTICLES))
    difficulty = rng.random(len(ARTICLES)) * 0.6  # some sentences are easy for every probe
    names = []
    for pair in COMPARISONS:
        names += [name for name in pair if name not in names]
    results = {}
    for lead, name in enumerate(names):
        share = difficulty + 0.05 * lead
        counts = Counts(np.stack([rng.binomial(total, share) for _ in range(2)]), total, ARTICLES)
        by_metric = {
            UAS_WITHOUT_PUNCTUATION: counts,
            UNDIRECTED: Counts(total[None], total, ARTICLES),
        }
        if name == table3.STRUCTURAL:
            by_metric = {UUAS: counts}
        results[name] = by_metric
    return results


def article_sums(counts):
    """Sum counts over the five sentences of each article, with the mean over seeds."""
    right = counts.right.mean(0).reshape(12, 5).sum(axis=1)
    total = counts.total.reshape(12, 5).sum(axis=1)
    return right, total


def test_difference_table_is_paired_over_articles(compared_results):
    table = table3.difference_table(compared_results).set_index(["probe", "other"])
    assert list(table.index) == list(COMPARISONS)
    row = table.loc[ATTN_GLOVE, ATTN]
    minuend = compared_results[ATTN_GLOVE][UAS_WITHOUT_PUNCTUATION]
    subtrahend = compared_results[ATTN][UAS_WITHOUT_PUNCTUATION]
    expected = minuend.by_seed.mean() - subtrahend.by_seed.mean()
    assert row["difference"] == pytest.approx(expected)
    sums = zip(article_sums(minuend), article_sums(subtrahend), strict=True)
    paired = weighted_ratios(*(np.column_stack(pair) for pair in sums), [1, -1])
    over_articles = Estimate(expected, 100 * paired.low, 100 * paired.high)
    interval = with_seed_noise(over_articles, minuend.by_seed, subtrahend.by_seed)
    assert row["difference_low"] == pytest.approx(interval.low)
    assert row["difference_high"] == pytest.approx(interval.high)
    assert interval.low < over_articles.low


def test_difference_table_compares_uuas_with_undirected_edges(compared_results):
    table = table3.difference_table(compared_results).set_index(["probe", "other"])
    uuas = compared_results[table3.STRUCTURAL][UUAS].by_seed.mean()
    # Attn + GloVe finds all edges.
    difference = table.loc[(table3.STRUCTURAL, ATTN_GLOVE), "difference"]
    assert difference == pytest.approx(uuas - 100)


# scores and tables


@pytest.fixture
def hand_made():
    """One train and two dev sentences with known parses and random maps."""
    rng = np.random.default_rng(0)

    def sentence(index, heads, relations, split):
        random_parse = example(index, len(heads), rng, split=split, relations=relations)
        return replace(random_parse, record={**random_parse.record, "heads": heads})

    sentences = [
        sentence(0, [2, 0], ["dep", "root"], "train"),
        sentence(1, [2, 0, 2, 2], ["nsubj", "root", "obj", "punct"], "dev"),
        sentence(2, [2, 3, 0], ["det", "nn", "root"], "dev"),
    ]
    return prepare(ListedStore(sentences))


def test_right_branching_by_hand(hand_made):
    counts = table3.right_branching(hand_made)
    # next word: 2 3 4 ROOT against 2 0 2 2 (one right); 2 3 ROOT against 2 3 0 (three)
    assert counts[UAS].right.tolist() == [[1, 3]]
    assert counts[UAS].total.tolist() == [4, 3]
    assert counts[UAS_WITHOUT_PUNCTUATION].total.tolist() == [3, 3]
    # Edges: both of the first, one of them by its other end, without that to punctuation.
    edges = counts[UNDIRECTED]
    assert edges.right.tolist() == [[2, 2]]
    assert edges.total.tolist() == [2, 2]


def test_probe_table_by_hand(hand_made):
    results = {table3.RIGHT_BRANCHING: table3.right_branching(hand_made)}
    table = table3.probe_table(results, 1).set_index("metric")
    assert set(table["probe"]) == {"Right-branching"}
    assert table.loc[UAS, "value"] == pytest.approx(100 * 4 / 7)
    assert np.isnan(table.loc[UAS, "paper_value"])  # the paper leaves punctuation out
    assert table.loc[UAS_WITHOUT_PUNCTUATION, "value"] == pytest.approx(100 * 4 / 6)
    assert table.loc[UAS_WITHOUT_PUNCTUATION, "paper_value"] == 26
    assert set(table["n_train"]) == {0}
    assert set(table["n_dev"]) == {2}


@pytest.mark.parametrize("model", MODELS)
def test_predicted_heads_are_in_the_order_of_the_indices(model):
    data = corpus(20)
    probe = randomised(MODELS[model](data))
    indices = [7, 2, 15, 0]
    heads = predict_heads(probe, data, indices)
    for index, predicted in zip(indices, heads, strict=True):
        best = probe(batch_of(data, index))[0].argmax(-1).numpy()
        np.testing.assert_array_equal(predicted, best)


def test_attachment_counts_heads_with_and_without_punctuation():
    data = corpus(20)
    rng = np.random.default_rng(1)
    parses = data.parses[:4]
    predicted_by_sentence = []
    for parse in parses:
        parse.punctuation[::3] = True
        guesses = rng.integers(0, len(parse) + 1, len(parse))
        predicted_by_sentence.append(np.where(rng.random(len(parse)) < 0.5, parse.heads, guesses))
    counts = attachment(parses, predicted_by_sentence)
    for sentence, (parse, predicted) in enumerate(zip(parses, predicted_by_sentence, strict=True)):
        is_word = ~parse.punctuation
        is_right = predicted == parse.heads
        expected = {
            UAS: (is_right.sum(), len(parse)),
            UAS_WITHOUT_PUNCTUATION: ((is_right & is_word).sum(), is_word.sum()),
        }
        for metric, (right, total) in expected.items():
            assert counts[metric].right[0, sentence] == right
            assert counts[metric].total[sentence] == total


def test_attention_contrast_by_hand(hand_made):
    summed = np.zeros(2 * LAYERS * HEADS)
    words = 0
    for index in hand_made.splits["dev"]:
        maps, _ = maps_of(batch_of(hand_made, index))
        heads = hand_made.parses[index].heads
        for j, (head, candidates) in enumerate(zip(heads, maps.numpy(), strict=True)):
            remaining = [i for i in range(len(heads)) if i not in (j, head - 1)]
            if head and remaining:
                summed += candidates[head - 1] - candidates[remaining].mean(axis=0)
                words += 1
    np.testing.assert_allclose(
        table3.attention_contrast(hand_made), summed / words, atol=float32_error(1.0)
    )


# errors


def test_prepare_refuses_a_record_without_syntax():
    sentence = example(0, 3, np.random.default_rng(0))
    record = {"words": sentence.record["words"], "split": "train"}
    with pytest.raises(InputError):
        prepare(ListedStore([replace(sentence, record=record)]))


@pytest.mark.parametrize("count", [0, 1])
def test_prepare_refuses_a_treebank_without_train_or_dev(count):
    with pytest.raises(InputError):
        prepare(ListedStore([example(0, 3, np.random.default_rng(0))] * count))


# the whole table


class Vectors:
    """The part of `helpers.data.glove.Embeddings` that probes use."""

    name = "toy"
    fingerprint = ""
    vectors = staticmethod(vectors)


def toy_store(seed):
    sentences = []
    for sentence in examples(24, seed=seed):
        states = np.random.default_rng(sentence.index)
        hidden = states.standard_normal((LAYERS + 1, len(sentence), WIDTH))
        sentences.append(replace(sentence, hidden=hidden.astype(np.float16)))
    return ListedStore(sentences)


def tables_of(embeddings):
    """Compute all tables of section 5, from probes that are hardly trained."""
    stores = [toy_store(0)] * 4  # controls see the same sentences
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "EPOCHS", 1)
        patch.setattr(training, "MIN_UPDATES", 1)
        return table3.make_tables(stores[0], stores[1:3], stores[3], embeddings, 2)


@pytest.fixture(scope="module")
def tables():
    return tables_of(Vectors())


def test_table3_is_computed_once(monkeypatch, tmp_path):
    monkeypatch.setenv("ATTENTION_CACHE", str(tmp_path))
    calls = []
    table = pd.DataFrame({"value": [1.0]})
    monkeypatch.setattr(table3, "make_tables", lambda *given: calls.append(given) or {"a": table})
    stores = [toy_store(seed) for seed in range(3)]
    for seeds in (1, 1, 2):
        tables = table3.table3(stores[0], stores[1:2], stores[2], None, seeds=seeds)
        pd.testing.assert_frame_equal(tables["a"], table)
    assert len(calls) == 2


WITHOUT_CONTROL_TASK = {"Structural probe", "Right-branching", "Entropy-matched Attn + GloVe"}
WITH_CONTROL_TASK = {
    "Distances + GloVe",
    "Random-init Attn + GloVe",
    "Attn",
    "Attn + GloVe",
    "Bilinear probe on hidden states",
    "Random-init bilinear probe",
    "Entropy-matched bilinear probe",
}


def test_table3_scores_every_probe(tables):
    scores = tables["probes"].pivot(index="probe", columns="metric", values="value")
    assert set(scores.index) == WITH_CONTROL_TASK | WITHOUT_CONTROL_TASK
    assert set(scores.index[scores["selectivity"].notna()]) == WITH_CONTROL_TASK
    difference = scores[UAS_WITHOUT_PUNCTUATION] - scores["control task"]
    np.testing.assert_allclose(difference.dropna(), scores["selectivity"].dropna())


@pytest.mark.parametrize("model", ["trained", "random", "entropy-matched"])
def test_table3_compares_every_pair(tables, model):
    rows = rows_of_model(tables["probe_differences"], model)
    pairs = rows[["probe", "other"]].itertuples(index=False, name=None)
    assert tuple(pairs) == COMPARISONS


def test_table3_has_every_head_and_one_chosen_layer(tables):
    assert len(tables["probe_heads"]) == LAYERS * HEADS
    chosen = tables["probe_layers"].groupby("probe")["chosen"].sum()
    assert chosen.to_dict() == {table3.STRUCTURAL: 1, table3.BILINEAR: 1}


def test_table3_without_word_vectors_has_the_other_rows(tables):
    without = tables_of(None)
    assert without.keys() == tables.keys()
    assert set(without["probes"]["probe"]) == {
        "Structural probe",
        "Right-branching",
        "Random-init Attn",
        "Attn",
        "Entropy-matched Attn",
        "Bilinear probe on hidden states",
        "Random-init bilinear probe",
        "Entropy-matched bilinear probe",
    }
    scores = [table["probes"].query("probe == 'Attn'") for table in (tables, without)]
    pd.testing.assert_frame_equal(*(rows.reset_index(drop=True) for rows in scores))
    pairs = rows_of_model(without["probe_differences"])[["probe", "other"]].to_numpy().tolist()
    assert pairs == [["Attn", "Right-branching"]]
